"""Declaring in Python what an app does: its connections, subscribers and watches.

As in :mod:`bide.package`, everything is recorded in the tables that ``bide.toml`` is made of, and checked
later, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from bide.core.annotations import declared_fields
from bide.core.durations import Duration
from bide.core.pacing import Backoff
from bide.package import Event, F, FieldTypes, Package, Raw, by_name, given, name_of
from bide.task import Home, P, R, Task


class Subscription:
    """A subscriber as it is declared. Called with a function, it makes that the one who hears."""

    def __init__(self, name: str | None, block: Raw) -> None:
        self.name = name
        self.block = block

    def __call__(self, function: F) -> F:
        """Bring the events to ``function``, async or not. Answers ``function``."""
        if "function" in self.block:
            raise TypeError(f"{self!r} has a function already; subscribe once more for this one")
        self.block["function"] = function
        self.name = self.name or name_of(function)
        return function

    def __repr__(self) -> str:
        return f"Subscription({self.name!r}, on={self.block['on']!r})"


class Recorder:
    """Records what an app declares. ``settings`` are those of ``[app]``; None stands for one not given."""

    home: Home
    """Where tasks are submitted: the app itself."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._tables: Raw = {}
        self._settings = given(**(settings or {}))
        self._packages: list[Package] = []
        self._connections: list[tuple[str, Raw]] = []
        self._subscriptions: list[Subscription] = []
        self._watches: list[tuple[str, Raw]] = []
        self._tasks: list[Task[..., Any]] = []
        self._queues: list[tuple[str, Raw]] = []
        self.before_hooks: list[Callable[..., Any]] = []
        self.after_hooks: list[Callable[..., Any]] = []

    def include(self, tables: Mapping[str, Any]) -> None:
        """Take in the tables of a ``bide.toml``; what is recorded besides is added to them."""
        self._tables = dict(tables)

    def connect(
        self,
        name: str,
        package: Package | str,
        *,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        max_concurrent: int | None = None,
        polls: Mapping[str, Duration] | None = None,
        quiet_after: Duration | None = None,
        paused: bool | None = None,
        hint_clamp: Duration | None = None,
    ) -> None:
        """Declare a connection: one use of ``package`` (or of the one at ``"module:name"``) at ``base_url``.

        ``headers`` go with every call; ``${NAME}`` in them is filled from the environment. ``polls`` gives polls
        other intervals, ``max_concurrent`` may only lower the package's. A poll without change for
        ``quiet_after`` is reported as quiet. ``paused`` keeps its polls uncalled. ``hint_clamp`` (a day) is the
        longest wait that a hint of the server may ask for.
        """
        if isinstance(package, Package) and package not in self._packages:
            self._packages.append(package)
        block = given(
            package=package.name if isinstance(package, Package) else package,
            base_url=base_url,
            headers=headers,
            max_concurrent=max_concurrent,
            polls=polls,
            quiet_after=quiet_after,
            paused=paused,
            hint_clamp=hint_clamp,
        )
        self._connections.append((name, block))

    def subscribe(
        self,
        on: str | Event,
        *,
        name: str | None = None,
        webhook: str | None = None,
        command: Sequence[str] | None = None,
        function: Callable[..., Any] | str | None = None,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        within: Duration | None = None,
        ordered: bool | None = None,
        max_attempts: int | None = None,
        max_concurrent: int | None = None,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Declare who hears the event ``on``: a webhook, a command, or a function (also as a decorator).

        ``name`` is the subscription's in the store, and by default the function's. ``secret`` signs a webhook.
        ``within`` (3 days) bounds a delivery's whole life, ``max_attempts`` its attempts, ``timeout`` one attempt
        (30 s; functions: none). ``ordered`` brings events one after the other; ``max_concurrent`` (1) is how many
        deliveries at a time this process brings.
        """
        if name is None and (webhook is not None or command is not None or isinstance(function, str)):
            raise TypeError("subscribe() needs name= here: the subscription is kept in the store under it")
        block = given(
            on=on.full_name if isinstance(on, Event) else on,
            webhook=webhook,
            command=command,
            secret=secret,
            headers=headers,
            within=within,
            ordered=ordered,
            max_attempts=max_attempts,
            max_concurrent=max_concurrent,
            timeout=timeout,
        )
        if isinstance(function, str):
            block["function"] = function
        subscription = Subscription(name, block)
        self._subscriptions.append(subscription)
        if callable(function):
            subscription(function)
        return subscription

    def watch(
        self,
        name: str,
        *,
        url: str,
        every: Duration,
        select: Mapping[str, str] | None = None,
        fields: FieldTypes | None = None,
        headers: Mapping[str, str] | None = None,
        to: Iterable[Mapping[str, Any] | Callable[..., Any]] = (),
        max_concurrent: int | None = None,
    ) -> None:
        """Declare package, connection, poll, event (``"<name>.Changed"``) and subscribers in one.

        ``select`` names what is read out of the JSON at ``url``, ``fields`` the types (``any`` where left out).
        ``to`` are functions, or tables such as ``{"webhook": "https://…", "within": "1h"}``.
        """
        block = given(
            url=url,
            every=every,
            select=select,
            fields=declared_fields(fields) if fields is not None else None,
            headers=headers,
            to=[{"function": target} if callable(target) else target for target in to] or None,
            max_concurrent=max_concurrent,
        )
        self._watches.append((name, block))

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        lock_timeout: Duration | None = None,
        within: Duration | None = None,
        priority: int | None = None,
        max_concurrent: int | None = None,
        timeout: Duration | None = None,
        retry: Backoff | Mapping[str, Any] | None = None,
        max_give_backs: int | None = None,
        keep_result: Duration | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        timezone: str | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self, function: Callable[P, R] | None = None, /, *, name: str | None = None, **options: Any
    ) -> Any:
        """Declare a task: a decorator of the function that work items of its name are handled by.

        ``name`` is by default the function's. ``queue`` ("default") is where its items wait. An item has
        ``max_attempts`` (5), with a back-off of ``retry`` (``Backoff("1s", "1h")``) between them, and ``within``
        bounds its whole life; ``timeout`` bounds one attempt. ``lock_timeout`` (the worker's, 30 s) is renewed while
        it runs. ``priority`` moves items ahead by a minute for each point. ``max_concurrent`` is how many run at a
        time in one process. ``max_give_backs`` (100) is how often an item may be given back. ``keep_result`` is how
        long what the function returns is kept. ``every``, or a ``cron`` expression in a ``timezone`` (UTC), lets it
        run by itself, once for the whole fleet.
        """
        if isinstance(function, str):
            raise TypeError("write the decorator with a keyword: @app.task(name=...)")

        def declare(function: Callable[P, R]) -> Task[P, R]:
            function = function.function if isinstance(function, Task) else function
            block = given(function=function, **options)
            task = Task(name or name_of(function), function, self.home, block)
            self._tasks.append(task)
            return task

        return declare if function is None else declare(function)

    def queue(self, name: str, *, limit: int | None = None, per_key: int | None = None) -> None:
        """Declare how many items of a queue may be running at a time over the whole fleet, and of one limit key."""
        self._queues.append((name, given(limit=limit, per_key=per_key)))

    def before_task(self, function: F) -> F:
        """Call ``function``, async or not, with the ``Context`` before each attempt of any task. A decorator.

        A plain function is called on the event loop, and must be quick. What it raises is what the attempt raised.
        """
        self.before_hooks.append(function)
        return function

    def after_task(self, function: F) -> F:
        """Call ``function``, async or not, with the ``Context`` and the outcome after each attempt. A decorator.

        The outcome is ``Succeeded``, ``Retried``, ``Dead`` or ``GivenBack``. What the function raises is logged.
        """
        self.after_hooks.append(function)
        return function

    def raw(self) -> Raw:
        """Everything recorded, in the tables of ``bide.toml``."""
        subscriptions = [(made.name, made.block) for made in self._subscriptions if made.name is not None]
        recorded = {
            "packages": [(package.name, package.raw()) for package in self._packages],
            "connections": self._connections,
            "subscribers": subscriptions,
            "watches": self._watches,
            "tasks": [(task.name, task.block) for task in self._tasks],
            "queues": self._queues,
        }
        tables = dict(self._tables)
        if self._settings:
            tables["app"] = _joined(tables.get("app", {}), self._settings.items())
        for key, named in recorded.items():
            if named:
                tables[key] = _joined(tables.get(key, {}), named)
        return tables


def _joined(table: Any, named: Iterable[tuple[str, Any]]) -> Any:
    """``table`` with more entries; one that is no table stays, for the check to refuse."""
    return by_name([*table.items(), *named]) if isinstance(table, Mapping) else table
