"""What ``sample`` does: serves the market and takes webhooks until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bide.cli.instants import time_of_day
from bide.cli.loopback import Answer, Asked, LoopbackServer
from bide.cli.market import Market
from bide.cli.output import OutputLost
from bide.cli.payloads import compact
from bide.cli.printing import print_text
from bide.cli.receiver import Received, Receiver
from bide.cli.stopping import stop_on_signals
from bide.clock import SystemClock
from bide.errors import SettingError

HOOK = "/hook"
"""Where webhooks are taken."""


def serve_sample(*, port: int, step_s: float, secret: str | None) -> None:
    """Serve until a signal. Raises ``SettingError`` where the port is taken."""
    asyncio.run(_serve(port, step_s, secret))


async def _serve(port: int, step_s: float, secret: str | None) -> None:
    clock = SystemClock()
    stopping = asyncio.Event()
    lost: list[OutputLost] = []

    def say(text: str) -> None:
        try:
            print_text(f"{time_of_day(clock.utc_ms())}  {text}")
        except OutputLost as error:  # whoever reads this has left, and may go on asking
            lost.append(error)
            stopping.set()

    receiver = Receiver(clock, secret=secret, heard=lambda received: say(_told(received)))
    answer = sample_api(Market(clock, step_s=step_s), receiver)

    def logged(asked: Asked) -> Answer:
        answered = answer(asked)
        if asked.path != HOOK or answered.status >= 400:
            say(f"{asked.method} {asked.path} {answered.status}")
        return answered

    try:
        async with LoopbackServer(logged, port=port) as server:
            print_text(f"prices at {server.url}/price, webhooks to {server.url}{HOOK}; Ctrl-C stops")
            with stop_on_signals(stopping, lambda: None):
                await stopping.wait()
    except OSError as error:
        raise SettingError("--port", f"{port} cannot be used ({error.strerror}); give another") from error
    if lost:
        raise lost[0]


def sample_api(market: Market, receiver: Receiver) -> Callable[[Asked], Answer]:
    """The whole sample API: webhooks at ``/hook``, the market elsewhere."""
    return lambda asked: receiver.answer(asked) if asked.path == HOOK else market.answer(asked)


def _told(received: Received) -> str:
    signed = ", signature verified" if received.verified else ""
    again = ", known already" if received.again else ""
    return f"webhook {received.event}: {compact(received.payload)}{signed}{again}"
