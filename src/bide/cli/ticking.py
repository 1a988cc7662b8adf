"""What ``tick`` does: one pass, and a report of it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bide.cli.opening import load, with_open
from bide.cli.outside import safe_line
from bide.cli.printing import counted, print_json, print_text, step, tell

if TYPE_CHECKING:
    from bide.app import App
    from bide.engine.running import TickReport
    from bide.planning import PlannedPoll
    from bide.telemetry import DeliverySettled, Record

_FAILED = ("retried", "dead", "lost")
"""How attempts of deliveries end that somebody should look at."""


def tick_once(target: str, *, as_json: bool) -> bool:
    """Do one pass of ``target`` and print what came of it; whether no poll failed."""
    app = load(target)
    failed: list[DeliverySettled] = []
    report, polls = with_open(app, lambda app: _tick(app, failed))
    if as_json:
        print_json(
            {
                "claimed": report.claimed,
                "changed": report.changed,
                "unchanged": report.unchanged,
                "failed": [{"poll": failed.poll, "error": failed.error} for failed in report.failed],
                "deliveries": report.deliveries,
                "failed_deliveries": [_as_json(settled) for settled in failed],
            }
        )
    else:
        _show(report, failed)
    if not report.claimed:
        _explain(polls, target)
    return not report.failed


async def _tick(app: App, failed: list[DeliverySettled]) -> tuple[TickReport, Sequence[PlannedPoll]]:
    import asyncio

    from bide.telemetry import DeliverySettled

    def note(record: Record) -> None:
        if isinstance(record, DeliverySettled) and record.outcome in _FAILED:
            failed.append(record)

    unlisten = app.telemetry.listen(note)
    with contextlib.suppress(NotImplementedError):  # an event loop without signal handlers, as on Windows
        # As Ctrl-C, so that commands are not left running and deliveries under way are given back.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
    try:
        return await app.tick(), (await app.plan()).polls
    finally:
        unlisten()


def _explain(polls: Sequence[PlannedPoll], target: str) -> None:
    """Say so where no poll is declared, or none of them is called."""
    if not polls:
        tell("no connection has a poll; declare a package with polls and a connection of it, or a watch")
    elif not any(poll.active for poll in polls):
        tell(f"no poll is active; {step('plan', target)} says why")


def _error(settled: DeliverySettled) -> str:
    return settled.error or "its lock was lost before it was done"


def _as_json(settled: DeliverySettled) -> dict[str, str]:
    return {
        "subscriber": settled.subscriber,
        "delivery": settled.delivery,
        "outcome": settled.outcome,
        "error": _error(settled),
    }


def _show(report: TickReport, deliveries: list[DeliverySettled]) -> None:
    if not report.claimed:
        print_text("no poll was due")
    else:
        counts = (
            f"{len(report.changed)} changed, {len(report.unchanged)} unchanged, {len(report.failed)} failed"
        )
        print_text(f"{counted(len(report.claimed), 'poll')} called: {counts}")
    for name in report.changed:
        print_text(f"  changed  {name}")
    for failed in report.failed:
        tell(f"  failed   {failed.poll}: {safe_line(failed.error)}")
    tried = {word.replace("_", " "): number for word, number in report.deliveries.items() if number}
    if tried:
        print_text("deliveries: " + ", ".join(f"{number} {word}" for word, number in tried.items()))
    for settled in deliveries:
        told = f"{settled.delivery} to {settled.subscriber}: {safe_line(_error(settled))}"
        tell(f"  {settled.outcome:<8} {told}")
