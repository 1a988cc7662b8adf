"""The app: where declarations, a provider, connections and the engine are joined.

The only module that knows them all. An ``App`` is declared in Python or read from a ``bide.toml``; it is
opened, then ticked or run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bide.clock import Clock, SystemClock
from bide.config import BadReference, Compiled, compile_declarations, imported, read_file
from bide.config.options import WorkerRunOptions
from bide.config.worker import WorkerSettings, worker_settings
from bide.connection import ConnectionClient, HttpClient
from bide.core.declaration import Declarations, Mistake, Poll
from bide.core.durations import Duration
from bide.core.names import nearest
from bide.core.template import hiding
from bide.engine.asking import HeardPoll, declaration_hash
from bide.engine.deliveries import DeliveryHandler
from bide.engine.dispatcher import DispatcherSettings
from bide.engine.running import Engine, TickReport
from bide.errors import BideError, DeclarationError, UnknownName
from bide.planning import Plan, make_plan
from bide.provider import Provider, Schedule
from bide.slots import SlotTable
from bide.stores import filled, location_of, may_exist, open_provider
from bide.tasks import Tasks, not_open
from bide.telemetry import Telemetry
from bide.worker import counting_of, require_queues, task_work


class App(Tasks):
    """Packages, connections, subscribers and tasks over one provider.

    ``provider`` is an address such as ``"sqlite:///bide.db"`` (the default, beside ``folder``). The other
    settings are those of ``[app]`` in ``bide.toml``; ``docs/reference.md`` has them all with their defaults.
    ``clock`` and ``environment`` are there for tests: the machine's are used otherwise.

    Declaring never raises for a mistake; :meth:`check` finds them all, and :meth:`open` raises
    :class:`~bide.errors.DeclarationError` with every one.
    """

    def __init__(
        self,
        provider: str | None = None,
        *,
        tick: object = None,
        retention: object = None,
        failure_retry: object = None,
        concurrency: int | None = None,
        max_calls: int | None = None,
        folder: str | Path | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            {
                "provider": provider,
                "tick": tick,
                "retention": retention,
                "failure_retry": failure_retry,
                "concurrency": concurrency,
                "max_calls": max_calls,
            }
        )
        self.folder = Path(folder) if folder is not None else Path.cwd()
        self.telemetry = Telemetry()
        self.clock: Clock = clock or SystemClock()
        self.environment = os.environ if environment is None else environment
        self.slots = SlotTable()
        self._compiled: Compiled | None = None
        self._engine: Engine | None = None
        self._busy = False
        self._clients: dict[str, ConnectionClient] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> App:
        """The app that a ``bide.toml`` declares. Raises ``DeclarationError`` where it cannot be read."""
        path = Path(path)
        app = cls(folder=path.resolve().parent)
        app.include(read_file(path))
        return app

    # --- what is declared ----------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Compiled:
        """Every mistake at once. Touches neither network nor database; ``strict`` counts warnings as mistakes."""
        compiled = compile_declarations(self.raw(), folder=self.folder, environment=self.environment)
        self._compiled = compiled
        return compiled.strictly() if strict else compiled

    @property
    def declarations(self) -> Declarations:
        """What was declared, compiled. Raises ``DeclarationError`` with every mistake."""
        compiled = self._compiled or self.check()
        if compiled.declarations is None:
            raise DeclarationError(compiled.mistakes)
        return compiled.declarations

    @property
    def location(self) -> str:
        """Where the store is, as people would look for it."""
        return location_of(self.declarations.provider, self.folder, self.environment)

    def store_exists(self) -> bool:
        """Whether the store may have been made already: a file is looked for, a server is not asked.

        A store in memory never has. Raises ``SettingError`` where a variable of the address is missing.
        """
        return may_exist(filled(self.declarations.provider, self.environment), self.folder)

    def plan_offline(self) -> Plan:
        """The plan without asking the store: no poll's next due instant is known."""
        return make_plan(self.declarations, {}, now_ms=0)

    # --- opened --------------------------------------------------------------------------------------------

    def connection(self, name: str) -> ConnectionClient:
        """The client of a connection, for calls from handlers. Raises ``UnknownName``."""
        if self._provider is None:
            raise not_open()
        if name not in self._clients:
            raise UnknownName("connection", name, nearest(name, self._clients))
        return self._clients[name]

    @asynccontextmanager
    async def open(self, *, grace: Duration | None = None) -> AsyncIterator[App]:
        """Open the provider (made and migrated where need be) and the connections.

        ``grace`` (30 s) is how long a stop waits for what is under way. File, environment and flags replace it, as
        every setting of :class:`~bide.config.worker.WorkerSettings`. Raises ``DeclarationError`` with every mistake,
        ``SettingError`` (also where a variable of the provider's address is missing), ``ProviderError``, and
        ``BideError`` where the app is open already.
        """
        if self._provider is not None:
            raise BideError("the app is open already; one app is opened once at a time")
        self._compiled = None  # something may have been declared since it was checked
        declarations = self.declarations
        code = WorkerRunOptions(grace=grace)
        settings = worker_settings(self.raw(), self.environment, flags=self.flags, options=code, whole=False)
        self._provider = provider = open_provider(
            filled(self.declarations.provider, self.environment), self.folder, self.clock
        )
        self._count(provider)
        self._loop = asyncio.get_running_loop()
        transport = HttpClient()
        try:
            await provider.open()
            self._clients = self._make_clients(declarations, transport)
            self._engine = self._make_engine(declarations, provider, transport, settings)
            self._runners.add(self._engine)
            yield self
        finally:
            self._provider = self._engine = self._loop = None
            self._clients = {}
            await transport.close()
            await self._close(provider)

    async def plan(self) -> Plan:
        """What runs and what does not, with next due instants from the store."""
        rows = {row.name: row for row in await self.provider.poll_rows()}
        kept = await self.provider.subscriptions()
        return make_plan(self.declarations, rows, now_ms=await self.provider.now(), subscriptions=kept)

    async def tick(self) -> TickReport:
        """One pass: deliver what waits, call what is due, deliver again.

        Raises ``ProviderError``, and ``BideError`` where a pass or a run is under way.
        """
        with self._alone():
            return await self._open_engine.tick()

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping`` is set, then stop gracefully.

        Raises as :meth:`tick` does, ``DeclarationError`` for settings that do not fit together, and ``UnknownName``
        for a queue of theirs that nobody declared.
        """
        settings = worker_settings(self.raw(), self.environment, flags=self.flags)
        require_queues(self.declarations, settings)
        with self._alone():
            await self._open_engine.run(stopping, *counting_of(self))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise BideError("the app is ticking or running already; one app does one of them at a time")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    @property
    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise not_open()
        return self._engine

    def _make_clients(self, declarations: Declarations, transport: HttpClient) -> dict[str, ConnectionClient]:
        return {
            name: ConnectionClient(
                connection,
                transport=transport,
                slots=self.slots.of(name, connection.max_concurrent),
                clock=self.clock,
                telemetry=self.telemetry,
                environment=self.environment,
            )
            for name, connection in declarations.connections.items()
        }

    def _make_engine(
        self,
        declarations: Declarations,
        provider: Provider,
        transport: HttpClient,
        settings: WorkerSettings,
    ) -> Engine:
        hide = hiding(declarations.variables, self.environment)
        handler = DeliveryHandler(
            declarations.subscribers,
            sender=transport,
            events=provider,
            clock=self.clock,
            telemetry=self.telemetry,
            environment=self.environment,
            hide=hide,
            folder=str(self.folder),
        )
        polls = {
            name: self._heard(poll, declarations) for name, poll in declarations.polls.items() if poll.active
        }
        return Engine(
            provider,
            declarations,
            polls,
            handler,
            clock=self.clock,
            telemetry=self.telemetry,
            hide=hide,
            dispatching=DispatcherSettings(
                declarations.concurrency,
                settings.lock_timeout,
                settings.long_poll_timeout,
                settings.min_poll_interval,
                settings.grace,
            ),
            strategy=settings.strategy,
            tasks=task_work(self, settings) if declarations.tasks else None,
        )

    def _heard(self, poll: Poll, declarations: Declarations) -> HeardPoll:
        connection = declarations.connections[poll.connection]
        schedule = Schedule(poll.name, poll.every, poll.operation.deadline, declarations.failure_retry)
        return HeardPoll(
            poll, connection, self._clients[poll.connection], schedule, declaration_hash(poll, connection)
        )


def load_app(target: str) -> App:
    """The app that ``target`` names: the path of a TOML file, or ``"module:attribute"``.

    Raises ``DeclarationError`` for a file that cannot be read, and for a module or attribute that is not there
    or cannot be imported.
    """
    module_name, colon, attribute = target.partition(":")
    if target.endswith(".toml") or not colon or "/" in module_name:
        return App.from_file(target)
    try:
        found = imported(target, Path.cwd())
    except BadReference as error:
        mistake = Mistake("config.value_invalid", target, error.reason, error.suggestion)
        raise DeclarationError([mistake]) from error
    if isinstance(found, App):
        return found
    apps = [name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, App)]
    raise DeclarationError(
        [
            Mistake(
                "config.value_invalid",
                target,
                f"{attribute} is of type {type(found).__name__}, and no App",
                f"Name an App of the module: {', '.join(apps)}." if apps else "Make an App in the module.",
            )
        ]
    )
