"""The client of one connection: declared operations for the engine, and plain requests for users' functions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bide.clock import Clock, is_cancelled
from bide.connection.calls import Call, Caller, Transport
from bide.connection.failures import failure
from bide.connection.preparing import (
    Base,
    Query,
    base_of,
    prepared_operation,
    prepared_request,
)
from bide.connection.transport import CALL_DEADLINE
from bide.core.conditional import Validators, conditional_headers
from bide.core.declaration import Connection, Operation
from bide.core.durations import format_duration
from bide.core.http import Response
from bide.errors import AnswerError, CallError
from bide.slots import Slots
from bide.telemetry import Telemetry

CALL_RETRIES = 2
"""Further attempts of a read, or of what was not sent, unless an operation says otherwise."""


class _Environment:
    """The connection's base, filled from the environment when it is first needed and then kept."""

    def __init__(self, connection: Connection, variables: Mapping[str, str]) -> None:
        self.variables = variables
        self._connection = connection
        self._base: Base | None = None

    @property
    def base(self) -> Base:
        if self._base is None:
            self._base = base_of(self._connection, self.variables)
        return self._base


@dataclass(frozen=True, slots=True)
class _Budget:
    """Whose requests they are, and how far they may go. ``ends_at`` None: each has its own deadline."""

    operation: str
    retries: int = CALL_RETRIES
    ends_at: float | None = None


class Client:
    """Requests through a connection: its address and headers, slots, deadline, retries and log.

    What an operation that is an async function is given. Requests of one run share the operation's deadline; each
    may be retried by the operation's rule.
    """

    def __init__(self, caller: Caller, environment: _Environment, budget: _Budget) -> None:
        self._caller = caller
        self._environment = environment
        self._budget = budget

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        body: bytes | str | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """Send a request and answer the whole response.

        ``path`` is put behind the connection's ``base_url`` (or is a whole address of the same origin); ``json``
        is sent as JSON, ``body`` as it is. An error page is no answer: a status other than 2xx raises ``CallError``
        (``"status"``, with its ``status``), unless it is among ``allow``.
        """
        prepared = prepared_request(
            self._environment.base, method, path, query=query, headers=headers, json=json, body=body
        )
        budget = self._budget
        timeout = CALL_DEADLINE
        if budget.ends_at is not None:
            timeout = budget.ends_at - self._caller.clock.monotonic()
            if timeout <= 0:
                subject = f"operation {budget.operation}"
                raise failure("timeout", subject, "its deadline has passed; nothing more is sent", sent=False)
        return await self._caller.perform(
            Call(
                operation=budget.operation,
                request=prepared.request,
                bound=prepared.bound,
                shown=prepared.shown,
                timeout=timeout,
                retries=budget.retries,
                allow=frozenset(allow),
            )
        )

    async def get(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """GET ``path``; see :meth:`request`."""
        return await self.request("GET", path, query=query, headers=headers, allow=allow)

    async def post(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        body: bytes | str | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """POST to ``path``; see :meth:`request`. Retried only where it was certainly not sent."""
        return await self.request(
            "POST", path, query=query, headers=headers, json=json, body=body, allow=allow
        )

    async def put(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        body: bytes | str | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """PUT to ``path``; see :meth:`request`. Retried only where it was certainly not sent."""
        return await self.request(
            "PUT", path, query=query, headers=headers, json=json, body=body, allow=allow
        )

    async def patch(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        body: bytes | str | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """PATCH ``path``; see :meth:`request`. Retried only where it was certainly not sent."""
        return await self.request(
            "PATCH", path, query=query, headers=headers, json=json, body=body, allow=allow
        )

    async def delete(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        allow: Collection[int] = (),
    ) -> Response:
        """DELETE ``path``; see :meth:`request`. Retried only where it was certainly not sent."""
        return await self.request("DELETE", path, query=query, headers=headers, allow=allow)


class ConnectionClient(Client):
    """The client of ``connection``: :meth:`call` and :meth:`run` for its operations, and requests of its own.

    Variables are filled from ``environment`` at the first call and then kept; a missing one is a ``CallError``
    (``"environment"``) that names it, at each call until it is there.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        transport: Transport,
        slots: Slots,
        clock: Clock,
        telemetry: Telemetry,
        environment: Mapping[str, str],
    ) -> None:
        caller = Caller(connection.name, transport=transport, slots=slots, clock=clock, telemetry=telemetry)
        super().__init__(caller, _Environment(connection, environment), _Budget(operation=""))
        self._declared: dict[str, _Declared] = {}

    async def call(self, operation: Operation, validators: Validators | None = None) -> Response:
        """Make the request that ``operation`` declares; conditional where there are ``validators``.

        The answer is a success (2xx), or 304 if validators were sent. Everything else raises ``CallError``, with
        ``hint_ms`` where the server said when to come back. ``NoFreeSlot`` where the caller does not wait for slots.
        """
        declared = self._declared.get(operation.name)
        if declared is None or declared.operation is not operation:
            declared = self._declared[operation.name] = _Declared(operation, self._call_of(operation))
        return await self._caller.perform(declared.call_with(validators))

    async def run(self, operation: Operation) -> object:
        """Run the function of ``operation`` with a :class:`Client`, within the operation's deadline.

        Answers what it answers. ``CallError`` and ``AnswerError`` pass through; any other exception is a
        ``CallError`` (``"function"``) with its type and message, the exception itself as ``__cause__``.
        """
        assert operation.function is not None
        timeout = operation.deadline.total_seconds()
        ends_at = self._caller.clock.monotonic() + timeout
        client = Client(self._caller, self._environment, _Budget(operation.name, operation.retries, ends_at))
        subject = f"operation {operation.name}"
        try:
            async with asyncio.timeout(timeout) as limit:
                answer = await operation.function(client)
            if not limit.expired():  # it may have swallowed its cancellation
                return answer
        except (CallError, AnswerError):
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            if not limit.expired():
                reason = f"its function raised {type(error).__name__}: {error}"
                raise failure("function", subject, reason) from error
        reason = f"its function did not end within {format_duration(operation.deadline)}"
        raise failure("timeout", subject, reason)

    def _call_of(self, operation: Operation) -> Call:
        prepared = prepared_operation(self._environment.base, operation, self._environment.variables)
        return Call(
            operation=operation.name,
            request=prepared.request,
            bound=prepared.bound,
            shown=prepared.shown,
            timeout=operation.deadline.total_seconds(),
            retries=operation.retries,
        )


class _Declared:
    """The call of a declared operation, and the conditional one of the validators that it had last."""

    __slots__ = ("_call", "_conditional", "_validators", "operation")

    def __init__(self, operation: Operation, call: Call) -> None:
        self.operation = operation
        self._call = call
        self._validators: Validators | None = None
        self._conditional = call

    def call_with(self, validators: Validators | None) -> Call:
        if validators is None:
            return self._call
        if validators != self._validators:
            condition = conditional_headers(validators)
            request = replace(self._call.request, headers=self._call.request.headers + condition)
            self._conditional = replace(self._call, request=request, conditional=bool(condition))
            self._validators = validators
        return self._conditional
