"""A place of a provider's in which the suite can do as it likes: beside what is kept there, and gone afterwards."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from bide.clock import SystemClock
from bide.core.addresses import SCHEMES as POSTGRES
from bide.core.redis_address import SCHEMES as REDIS
from bide.core.s3_address import SCHEME as S3
from bide.errors import ProviderError, SettingError
from bide.stores import file_of, open_provider
from bide.testing.server_scratches import PostgresScratch, RedisScratch, S3Scratch, look, new_name

if TYPE_CHECKING:
    from bide.testing.conformance import Bench


class Scratch(Protocol):
    """A scratch place. Benches are imported when one is asked for: pytest has to know of their suite before."""

    @property
    def place(self) -> str:
        """What is used, for people."""
        ...

    async def prepare(self) -> None:
        """Make it, and open a store in it once; raises ``ProviderError`` where that cannot be done."""
        ...

    def bench(self) -> AbstractAsyncContextManager[Bench]:
        """A bench with an empty store in it, open."""
        ...

    async def remove(self) -> None:
        """Leave nothing of it."""
        ...


def scratch_of(address: str, folder: Path) -> Scratch:
    """The scratch place for the provider of ``address``. Raises ``SettingError`` for an address that is none."""
    open_provider(address, folder, SystemClock())  # not opened: it only reads the address
    scheme = urlsplit(address).scheme
    if scheme not in _SCRATCHES:
        raise SettingError(
            "provider",
            f"there is no bench for {scheme!r}: it needs a server whose clock the suite can set; see what it keeps "
            "in docs/providers.md, and examine this one with: bide doctor",
        )
    return _SCRATCHES[scheme](address, folder)


class MemoryScratch:
    """Stores in the memory of this process."""

    place = "the memory of this process"

    def __init__(self, address: str, folder: Path) -> None: ...

    async def prepare(self) -> None:
        """Nothing to do."""

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        from bide.testing.benches.memory import MemoryBench

        bench = MemoryBench()
        await bench.open()
        yield bench
        await bench.close()

    async def remove(self) -> None:
        """Nothing to do."""


class SqliteScratch:
    """Files in a new folder beside the one that the address names, so on its file system."""

    def __init__(self, address: str, folder: Path) -> None:
        file = file_of(address, folder)
        assert file is not None
        self._folder = file.parent / new_name()
        self.place = f"files in {self._folder}"
        options = dict(parse_qsl(urlsplit(address).query))
        self._synchronous = options.get("synchronous", "full").upper()
        self._made = 0

    async def prepare(self) -> None:
        from bide.providers.sqlite import SqliteProvider

        try:
            self._folder.mkdir(mode=0o700)
        except OSError as error:
            raise ProviderError(
                f"no folder for the test can be made in {self._folder.parent}: {error.strerror}"
            ) from error
        await look(SqliteProvider(self._folder / "first.db", clock=SystemClock()))

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        from bide.testing.benches.sqlite import SqliteBench

        self._made += 1
        bench = SqliteBench(self._folder / f"{self._made}.db", synchronous=self._synchronous)
        await bench.open()
        try:
            yield bench
        finally:
            await bench.close()
            for file in self._folder.iterdir():
                file.unlink()

    async def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


_SCRATCHES: dict[str, Callable[[str, Path], Scratch]] = {
    "memory": MemoryScratch,
    "sqlite": SqliteScratch,
    **dict.fromkeys(POSTGRES, PostgresScratch),
    **dict.fromkeys(REDIS, RedisScratch),
    S3: S3Scratch,
}
