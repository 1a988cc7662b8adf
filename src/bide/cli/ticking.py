"""What ``tick`` does: one pass, and a report of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bide.cli.opening import load, with_open
from bide.cli.printing import counted, print_json, print_text, tell

if TYPE_CHECKING:
    from bide.engine.running import TickReport


def tick_once(target: str, *, as_json: bool) -> bool:
    """Do one pass of ``target`` and print what came of it; whether no poll failed."""
    report = with_open(load(target), lambda app: app.tick())
    if as_json:
        print_json(
            {
                "claimed": report.claimed,
                "changed": report.changed,
                "unchanged": report.unchanged,
                "failed": [{"poll": failed.poll, "error": failed.error} for failed in report.failed],
                "deliveries": report.deliveries,
            }
        )
    else:
        _show(report)
    return not report.failed


def _show(report: TickReport) -> None:
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
        tell(f"  failed   {failed.poll}: {failed.error}")
    tried = {word.replace("_", " "): number for word, number in report.deliveries.items() if number}
    if tried:
        print_text("deliveries: " + ", ".join(f"{number} {word}" for word, number in tried.items()))
