"""A store on a cluster: its keys are in one slot, wherever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import Ack, Items, NewItem
from bide.providers.redis import RedisProvider
from tests.providers.redis_server import Server, free_port
from tests.providers.test_redis_trouble import command, until, waits

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """A cluster of one server, which has every slot."""
    bus = str(free_port())  # by default 10,000 above its own port, which need not be one
    started = Server(options=["--cluster-enabled", "yes", "--cluster-port", bus])
    try:
        started.start()
        asyncio.run(command(started, "CLUSTER", "ADDSLOTSRANGE", 0, 16383))
        yield started
    finally:
        started.remove()


async def ready(server: Server) -> None:
    async def is_up() -> bool:
        return b"cluster_state:ok" in await command(server, "CLUSTER", "INFO")

    async with asyncio.timeout(30):
        while not await is_up():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.05)


async def test_work_goes_through_a_cluster_and_wakes(cluster: Server) -> None:
    await ready(cluster)
    address = cluster.address("?cluster=true")
    provider, other = (RedisProvider(address, clock=SystemClock()) for _ in range(2))
    await provider.open()
    await other.open()
    await until(lambda: provider.hears)
    fetching = asyncio.create_task(
        provider.fetch_work_items(
            *(["q"], ["n"]),
            limit=5,
            lock_timeout=timedelta(seconds=30),
            poll_timeout=timedelta(seconds=60),
            fetch_token="f",
        )
    )
    await waits(provider)
    await other.enqueue([ITEM])
    async with asyncio.timeout(20):
        fetched = await fetching
    assert isinstance(fetched, Items)
    assert await other.settle([Ack(item.token) for item in fetched.items]) == ["settled"]
    await provider.close()
    await other.close()


async def test_a_server_of_a_cluster_serves_what_is_in_its_slots(cluster: Server) -> None:
    """Also to a client that does not know of the cluster; one of another server is told to say so."""
    await ready(cluster)
    provider = RedisProvider(cluster.address("?prefix=plain"), clock=SystemClock())
    await provider.open()
    assert len(await provider.enqueue([ITEM])) == 1
    slot = await command(cluster, "CLUSTER", "KEYSLOT", "{plain}:meta")
    await provider.close()
    await command(cluster, "CLUSTER", "DELSLOTS", slot)
    try:
        with pytest.raises(ProviderError) as raised:
            await RedisProvider(cluster.address("?prefix=plain"), clock=SystemClock()).open()
        assert raised.value.retryable
    finally:
        await command(cluster, "CLUSTER", "ADDSLOTS", slot)
