"""``queues``: how much waits where."""

from __future__ import annotations

from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption


def queues(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Count what is in each queue.

    By state, with the age of the oldest that could be had, the limits over the fleet, and the tasks.
    """
    from bide.cli.queues import show_queues

    show_queues(target, as_json=as_json)
