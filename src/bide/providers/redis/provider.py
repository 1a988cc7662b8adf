"""The store of a fleet on Redis or Valkey: keys of one prefix, changed by functions of the server alone."""

from __future__ import annotations

from collections.abc import Mapping

from bide.clock import Clock
from bide.core.redis_address import redis_address
from bide.providers.choosing import Turns
from bide.providers.redis.events import RedisEvents
from bide.providers.redis.inspection import RedisInspection
from bide.providers.redis.joining import RedisJoining
from bide.providers.redis.polls import RedisPolls
from bide.providers.redis.recording import RedisRecording
from bide.providers.redis.store import Store
from bide.providers.redis.work import RedisWork


class RedisProvider(RedisWork, RedisJoining, RedisPolls, RedisRecording, RedisEvents, RedisInspection):
    """Keeps everything under the keys ``{prefix}:…`` of the server at ``address``.

    Options in the address: ``prefix`` (``bide``), ``pool``, how many connections this process may have besides the
    listening one (8), ``timeout``, how long a command may take (10 s), ``name``, what connections are called
    (``bide``), ``wake`` (true): false is for servers that allow no blocking reads, ``cluster`` (false), ``socket``
    for a Unix socket, and ``ca``, ``cert`` and ``key`` for TLS. Instants are the server's. A provider serves any
    number of event loops. Needs Redis 7 or Valkey.

    Raises :class:`~bide.errors.SettingError` for an address that cannot be read.
    """

    def __init__(self, address: str, *, clock: Clock) -> None:
        self._store = Store(redis_address(address), clock)
        self._turns = Turns()

    async def open(self) -> None:
        """Connect, and bring the store up to this version.

        Raises :class:`~bide.errors.ProviderNewer`, :class:`~bide.errors.ProviderCorrupt` or another
        :class:`~bide.errors.ProviderError`, naming the server and what to do; then nothing was changed.
        """
        await self._store.open()

    async def close(self) -> None:
        """Finish what was begun, and close every connection."""
        await self._store.close()

    def requests(self) -> Mapping[str, int]:
        """Commands that were sent so far by this object."""
        return dict(self._store.requests)

    @property
    def pending(self) -> int:
        """How many calls are under way at this moment."""
        return self._store.pending

    @property
    def hears(self) -> bool:
        """Whether other processes can wake this one; where not, it looks often."""
        return self._store.hears
