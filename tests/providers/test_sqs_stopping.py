"""The end of a process that works on SQS: a receive that waits is let end, unless somebody asks twice."""

from __future__ import annotations

import asyncio

from bide import App
from bide.providers.sqs import SqsProvider
from bide.providers.sqs.traffic import Traffic
from tests.providers.sqs_server import Emulator
from tests.servers import eventually


def _traffic(app: App) -> Traffic:
    provider = app._provider
    return provider._sessions.traffic if isinstance(provider, SqsProvider) else Traffic()


async def test_a_further_signal_cuts_the_wait_for_a_receive_short(emulator: Emulator, aws: None) -> None:
    app = App(emulator.address("stopping"))
    stopping = asyncio.Event()

    @app.task
    async def nothing() -> None: ...

    async def work() -> Traffic:
        async with app.open():
            traffic = _traffic(app)
            await app.worker().run(stopping=stopping)
        return traffic

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    await eventually(lambda: bool(_traffic(app).waiting))
    stopping.set()
    await eventually(lambda: app._provider is None)
    assert not (await asyncio.wait({working}, timeout=0.2))[0], "the receive is let end"
    app.stop_now()
    traffic = await asyncio.wait_for(working, 15)
    assert (traffic.waiting, traffic.short) == (0, 0)
