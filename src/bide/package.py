"""Declaring in Python what an outside API offers: packages with their operations, events and polls.

The builders only record, in the very tables that ``bide.toml`` is made of, and never refuse a value: the check
finds every mistake at once, whichever way it was written. What is refused here is what Python refuses itself,
such as an argument that does not exist. An argument left at None is not recorded, so that defaults stand in
one place.

::

    shop = Package("shop", max_concurrent=4)
    shop.operation("price", get="/price", answer={"symbol": str, "price": Decimal, "fetched_at": str})
    changed = shop.event("PriceChanged", {"symbol": str, "price": Decimal}, public=True)
    shop.poll("price", call="price", every="1m", emits=changed)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bide.core.annotations import declared_fields
from bide.core.declaration import Twice
from bide.core.durations import Duration

F = TypeVar("F", bound=Callable[..., Any])
Raw = dict[str, Any]

FieldTypes = Mapping[str, Any] | type | str
"""Fields by name, each a word such as ``"number?"`` or a Python type; or a class whose annotations say it."""


class Event:
    """An event that polls emit when what they read has changed.

    ``fields`` are those that count as a change; each is a field of the answer, of the same type. ``public``
    says that subscribers may hear it. ``occurred_at`` names the field that holds when it happened on the other
    side. ``wire_name`` marks an event that the API sends by itself; no poll emits one.
    """

    def __init__(
        self,
        name: str,
        fields: FieldTypes,
        *,
        public: bool | None = None,
        wire_name: str | None = None,
        occurred_at: str | None = None,
    ) -> None:
        self.name = name
        self.package: str | None = None
        self._block = given(fields=fields, public=public, wire_name=wire_name, occurred_at=occurred_at)

    @property
    def full_name(self) -> str:
        """``"<package>.<event>"``; the bare name until a package has it."""
        return f"{self.package}.{self.name}" if self.package is not None else self.name

    def raw(self) -> Raw:
        """Its block."""
        return {**self._block, "fields": declared_fields(self._block["fields"])}

    def __repr__(self) -> str:
        return f"Event({self.full_name!r})"


class Operation:
    """An operation as it is declared. Called with an async function, it makes that the way to ask."""

    def __init__(self, name: str | None, block: Raw) -> None:
        self.name = name
        self._block = block

    def __call__(self, function: F) -> F:
        """Ask by ``function``, which gets the connection's client and answers the fields. Answers ``function``."""
        if "function" in self._block:
            raise TypeError(f"{self!r} has a function already; declare another operation for this one")
        self._block["function"] = function
        self.name = self.name or name_of(function)
        return function

    def asks_by(self, function: object) -> bool:
        """Whether ``function`` is its way to ask."""
        return self._block.get("function") is function

    def raw(self) -> Raw:
        """Its block."""
        fields: Raw = {
            key: declared_fields(self._block[key]) for key in ("answer", "input") if key in self._block
        }
        return {**self._block, **fields}

    def __repr__(self) -> str:
        return f"Operation({self.name!r})"


class Package:
    """What an outside API offers, declared once: operations, polls, events and how many calls at a time.

    ``max_concurrent`` bounds the calls at a time of each of its connections in one process; None: no bound.
    """

    def __init__(self, name: str, *, max_concurrent: int | None = None) -> None:
        self.name = name
        self._max_concurrent = max_concurrent
        self._operations: list[Operation] = []
        self._events: list[Event] = []
        self._polls: list[tuple[str, Raw]] = []

    def operation(
        self,
        name: str | None = None,
        *,
        get: str | None = None,
        request: Mapping[str, Any] | None = None,
        answer: FieldTypes | None = None,
        select: Mapping[str, str] | None = None,
        public: bool | None = None,
        input: FieldTypes | None = None,
        changes: bool | None = None,
        retry: int | None = None,
        deadline: Duration | None = None,
    ) -> Operation:
        """Declare an operation: by the path to ``get``, by a ``request``, or as a decorator of an async function.

        ``answer`` are the fields that are read, ``select`` a JMESPath for each that is not found under its own
        name. ``input`` and ``changes`` mark what no poll may call. ``retry`` is how often a failed read is tried
        again (2) within ``deadline`` (30 s). A decorated function's operation has its name unless one is given.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError("write the decorator with its parentheses: @package.operation(answer=...)")
        block = given(
            get=get,
            request=request,
            answer=answer,
            select=select,
            public=public,
            input=input,
            changes=changes,
            retry=retry,
            deadline=deadline,
        )
        operation = Operation(name, block)
        self._operations.append(operation)
        return operation

    def event(
        self,
        name: str,
        fields: FieldTypes,
        *,
        public: bool | None = None,
        wire_name: str | None = None,
        occurred_at: str | None = None,
    ) -> Event:
        """Declare an event of this package; see :class:`Event`."""
        return self._add(Event(name, fields, public=public, wire_name=wire_name, occurred_at=occurred_at))

    def poll(
        self, name: str, *, call: str | Operation | Callable[..., Any], every: Duration, emits: str | Event
    ) -> None:
        """Declare a poll: ``call`` an operation ``every`` so often, and emit what changed.

        ``call`` is an operation, its name or its function. An event made apart becomes one of this package.
        """
        if isinstance(emits, Event):
            emits = self._add(emits).name if emits.package in {None, self.name} else emits.full_name
        self._polls.append((name, {"call": self._name_of_operation(call), "every": every, "emits": emits}))

    def raw(self) -> Raw:
        """Its block, as it would stand in bide.toml."""
        blocks = {
            "operations": by_name(
                (made.name, made.raw()) for made in self._operations if made.name is not None
            ),
            "events": by_name((made.name, made.raw()) for made in self._events),
            "polls": by_name(self._polls),
        }
        return {
            **given(max_concurrent=self._max_concurrent),
            **{key: block for key, block in blocks.items() if block},
        }

    def __repr__(self) -> str:
        return f"Package({self.name!r})"

    def _add(self, event: Event) -> Event:
        if event not in self._events:
            event.package = self.name
            self._events.append(event)
        return event

    def _name_of_operation(self, call: str | Operation | Callable[..., Any]) -> str | None:
        if isinstance(call, str):
            return call
        if isinstance(call, Operation):
            return call.name
        named = (made.name for made in self._operations if made.asks_by(call))
        return next(named, name_of(call))


def given(**arguments: Any) -> Raw:
    """The arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not None}


def by_name(named: Iterable[tuple[str, Any]]) -> Raw:
    """A table; a name that several things have holds them for the check to refuse."""
    table: Raw = {}
    for name, value in named:
        table[name] = Twice(table[name], value) if name in table else value
    return table


def name_of(function: object) -> str:
    """What a function is called, for a declaration that takes its name."""
    return getattr(function, "__name__", type(function).__name__)
