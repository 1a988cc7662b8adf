"""The store of a fleet: a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping

from bide.clock import Clock
from bide.core.addresses import postgres_address
from bide.providers.postgres.database import Database
from bide.providers.postgres.events import PostgresEvents
from bide.providers.postgres.inspection import PostgresInspection
from bide.providers.postgres.joining import PostgresJoining
from bide.providers.postgres.occurrences import PostgresOccurrences
from bide.providers.postgres.polls import PostgresPolls
from bide.providers.postgres.turns import Turns
from bide.providers.postgres.work import PostgresWork


class PostgresProvider(
    PostgresWork, PostgresJoining, PostgresOccurrences, PostgresPolls, PostgresEvents, PostgresInspection
):
    """Keeps everything in one schema of the database at ``address``, which ``open()`` makes where there is none.

    Options in the address: ``schema`` (``bide``), ``pool``, how many connections this process may have besides
    the listening one (8), and ``listen`` (true): false is for poolers of transactions, such as PgBouncer. Others
    are the driver's. Instants are the server's. A provider serves any number of event loops.

    Raises :class:`~bide.errors.SettingError` for an address that cannot be read.
    """

    def __init__(self, address: str, *, clock: Clock) -> None:
        self._database = Database(postgres_address(address), clock)
        self._phases = {}
        self._turns = Turns()

    async def open(self) -> None:
        """Connect, and bring the tables up to this version.

        Raises :class:`~bide.errors.ProviderNewer`, :class:`~bide.errors.ProviderCorrupt` or another
        :class:`~bide.errors.ProviderError`, naming the database and what to do; then nothing was changed.
        """
        await self._database.open()

    async def close(self) -> None:
        """Finish what was begun, and close every connection."""
        await self._database.close()

    def requests(self) -> Mapping[str, int]:
        """Statements, those that begin and end transactions and those of the listening connection among them."""
        return {"statement": self._database.statements}

    @property
    def pending(self) -> int:
        """How many calls are under way at this moment."""
        return self._database.pending

    @property
    def hears(self) -> bool:
        """Whether other processes can wake this one; where not, it looks often."""
        return self._database.hears
