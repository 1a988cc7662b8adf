"""Tasks as they are used: a function that can still be called, and work items submitted for it.

``@app.task`` makes a :class:`Task` of a function. Calling it calls the function here and now; ``submit`` stores a
work item, which some worker handles later.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from bide.clock import Clock
from bide.core.durations import Duration, format_duration, parse_duration
from bide.core.pacing import PollingStrategy
from bide.core.work import MOST_PRIORITY, TaskDeclaration, is_priority
from bide.errors import BideError, NoResult, ResultTimeout, SettingError, TaskFailed
from bide.provider import Alike, ItemRow, NewItem, Provider

P = ParamSpec("P")
R = TypeVar("R")

LOOKS = PollingStrategy.adaptive("20ms", "1s")
"""How often ``Handle.result`` looks whether there is one."""

LONGEST_KEY = 500
"""Characters of a key."""


class Home(Protocol):
    """What a task needs of its app."""

    clock: Clock

    @property
    def provider(self) -> Provider:
        """The open provider. Raises ``BideError`` where the app is not open."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the app was opened in. Raises as :attr:`provider` does."""
        ...

    def declared_task(self, name: str) -> TaskDeclaration:
        """What was declared of a task, checked. Raises ``UnknownName``, and ``DeclarationError``."""
        ...

    def submitted(self) -> None:
        """Be told that something was stored, and may be looked for."""
        ...


class Task(Generic[P, R]):
    """A function and the work items of its name. ``function`` is the function itself, which a call calls."""

    def __init__(self, name: str, function: Callable[P, R], home: Home, block: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.block = block
        self._home = home

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; nothing is stored."""
        return self.function(*args, **kwargs)

    async def submit(
        self,
        /,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        limit_key: str | None = None,
        priority: int | None = None,
        within: Duration | None = None,
        keep_result: Duration | None = None,
        transaction: object = None,
        **kwargs: Any,
    ) -> Handle:
        """Store a work item that a worker calls the function for, with these arguments.

        ``delay`` and ``at`` (an aware datetime) say when it may begin, the later of the two. A ``key`` makes it one
        with what was submitted under the same key in the last 24 hours: the same item, if the arguments are the same.
        Items of one ``limit_key`` share the ``per_key`` of their queue. ``priority`` moves an item ahead by a minute
        for each point. ``within`` bounds its whole life. ``keep_result`` is how long its result is kept. With a
        ``transaction`` it is stored if that commits. What is left out is as the task says.

        Raises ``ArgumentError`` where the arguments do not fit the function, ``SettingError`` for a bad option,
        ``KeyConflict`` where the key is that of other arguments, and ``ProviderError``.
        """
        provider, declared = self._home.provider, self._home.declared_task(self.name)
        options = _Options(
            declared,
            delay=delay,
            at=at,
            limit_key=limit_key,
            priority=priority,
            within=within,
            keep_result=keep_result,
        )
        item = options.item(self._home.clock.new_id(), declared.signature.encode(args, kwargs), key)
        return (await self._store(provider, [item], options, transaction))[0]

    async def submit_many(
        self,
        calls: Sequence[Mapping[str, Any] | Sequence[Any]],
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        keys: Sequence[str | None] | None = None,
        limit_key: str | None = None,
        priority: int | None = None,
        within: Duration | None = None,
        keep_result: Duration | None = None,
        transaction: object = None,
    ) -> list[Handle]:
        """Store a work item for each of ``calls``, all of them or none, in one go.

        A call is a mapping of arguments by name or a sequence by position. ``keys`` are one for each. The other
        options are those of :meth:`submit`, the same for all. Raises as :meth:`submit` does; an ``ArgumentError``
        names the call, counted from 0.
        """
        provider, declared = self._home.provider, self._home.declared_task(self.name)
        options = _Options(
            declared,
            delay=delay,
            at=at,
            limit_key=limit_key,
            priority=priority,
            within=within,
            keep_result=keep_result,
        )
        if keys is not None and len(keys) != len(calls):
            raise SettingError("keys", f"{len(keys)} for {len(calls)} calls; give one for each, or none")
        payloads = declared.signature.encode_calls(calls)
        ids = sorted(self._home.clock.new_id() for _ in calls)  # an index takes them quickest in order
        items = options.items(ids, payloads, keys)
        return await self._store(provider, items, options, transaction) if items else []

    def submit_from_thread(self, /, *args: Any, **kwargs: Any) -> Handle:
        """As :meth:`submit`, for a plain function: waits on its thread until the item is stored.

        Raises ``BideError`` on the thread of the app's event loop, which would wait for itself.
        """
        loop = self._home.loop
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            raise BideError("submit_from_thread() is for other threads; here, use `await task.submit(...)`")
        return asyncio.run_coroutine_threadsafe(self.submit(*args, **kwargs), loop).result()

    async def _store(
        self, provider: Provider, items: Sequence[NewItem], options: _Options, transaction: object
    ) -> list[Handle]:
        if transaction is None:
            stored = await provider.enqueue(items)
            self._home.submitted()
        else:
            stored = await provider.enqueue_within(transaction, items)
        home, keeps = self._home, options.keeps_result
        # Of an item that was there before nobody here knows whether it keeps a result.
        return [Handle(home, one.id, new=one.new, keeps_result=keeps if one.new else None) for one in stored]

    def __repr__(self) -> str:
        return f"Task({self.name!r})"


class Handle:
    """A submitted work item. ``id`` is its own; ``new`` is False where one of its key was there already."""

    def __init__(self, home: Home, id: str, *, new: bool = False, keeps_result: bool | None = None) -> None:
        self.id = id
        self.new = new
        self._home = home
        self._keeps_result = keeps_result

    async def status(self) -> ItemRow | None:
        """The item as it is kept: its state, attempts, error. None: nothing is kept, as of one that is done."""
        return await self._home.provider.item(self.id)

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for what the function returned, with the types of its annotation.

        ``timeout`` None waits for ever. Raises ``TaskFailed`` where the item is dead, ``NoResult`` where no result is
        kept, ``ResultTimeout``, ``ResultError`` where what is kept cannot be read, and ``ProviderError``.
        """
        if self._keeps_result is False:
            raise NoResult(self.id, "it was submitted without keep_result")
        clock = self._home.clock
        limit = None if timeout is None else parse_duration(timeout, "timeout", zero=True).total_seconds()
        ends = None if limit is None else clock.monotonic() + limit
        interval = LOOKS.initial_interval()
        while True:
            row = await self.status()
            if row is None:
                raise NoResult(self.id, "nothing is kept of it (any more)")
            if row.state in {"done", "dead"}:
                return self._result_of(row)
            wait = LOOKS.jittered(interval, clock.draw()).total_seconds()
            interval = LOOKS.next_interval(interval, False)
            if ends is not None:
                wait = min(wait, ends - clock.monotonic())
                if wait <= 0:
                    raise ResultTimeout(self.id, row.state, limit or 0)
            await clock.sleep(wait)

    def _result_of(self, row: ItemRow) -> Any:
        if row.state == "dead":
            raise TaskFailed(row.name, row.id, row.error or "no reason is kept")
        if row.result is None:
            raise NoResult(self.id, "it is done and was submitted without keep_result")
        return self._home.declared_task(row.name).signature.results.decode(row.result)

    def __repr__(self) -> str:
        return f"Handle({self.id!r}, new={self.new})"


class _Options:
    """Options of ``submit``, read, over those of the task. Raises ``SettingError``."""

    def __init__(
        self,
        declared: TaskDeclaration,
        *,
        delay: Duration | None,
        at: datetime | None,
        limit_key: str | None,
        priority: int | None,
        within: Duration | None,
        keep_result: Duration | None,
    ) -> None:
        self._fixed: dict[str, Any] = {
            "queue": declared.queue,
            "name": declared.name,
            "priority": declared.priority if priority is None else _whole(priority),
            "max_attempts": declared.max_attempts,
            "within": declared.within if within is None else parse_duration(within, "within"),
        }
        kept = declared.keep_result if keep_result is None else parse_duration(keep_result, "keep_result")
        self.keeps_result = kept is not None
        if kept is not None:
            self._fixed["keep_result"] = kept
        if delay is not None:
            self._fixed["delay"] = _before(self._fixed["within"], parse_duration(delay, "delay", zero=True))
        if at is not None:
            self._fixed["at"] = _instant(at)
        if limit_key is not None:
            self._fixed["limit_key"] = _key(limit_key, "limit_key")

    def item(self, id: str, payload: str, key: str | None) -> NewItem:
        return NewItem(id=id, payload=payload, key=None if key is None else _key(key, "key"), **self._fixed)

    def items(
        self, ids: Sequence[str], payloads: Sequence[str], keys: Sequence[str | None] | None
    ) -> Sequence[NewItem]:
        if keys is None:
            return Alike(self.item("", "", None), ids, payloads)
        return [self.item(*given) for given in zip(ids, payloads, keys, strict=True)]


def _before(within: timedelta | None, delay: timedelta) -> timedelta:
    if within is not None and delay >= within:
        life = f"the whole life of the item, {format_duration(within)} (within); make that longer"
        raise SettingError("delay", f"{format_duration(delay)} is not shorter than {life}")
    return delay


def _whole(priority: object) -> int:
    if isinstance(priority, int) and is_priority(priority):
        return priority
    raise SettingError(
        "priority", f"{priority!r} is not a whole number up to {MOST_PRIORITY}; write for example 10"
    )


def _instant(at: object) -> int:
    if not isinstance(at, datetime):
        raise SettingError("at", f"{at!r} is not a datetime; for a duration from now use delay")
    if at.utcoffset() is None:
        raise SettingError("at", f"{at} has no time zone; write for example {at!r} with tzinfo=UTC")
    return round(at.timestamp() * 1000)


def _key(key: object, setting: str) -> str:
    if isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isprintable():
        return key
    if not isinstance(key, str):
        flaw, step = repr(key)[:40], "give it as text"
    elif len(key) > LONGEST_KEY:
        flaw, step = f"{len(key)} of them", "use a shorter one, such as a digest of it"
    else:
        flaw, step = repr(key[:40]), "leave it out, or use another one"
    rule = f"must be printable text of 1 to {LONGEST_KEY} characters"
    raise SettingError(setting, f"{rule}, not {flaw}; {step}")
