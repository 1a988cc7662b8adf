"""``status``: how it stands."""

from __future__ import annotations

from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption


def status(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Show how everything stands, and where it is kept."""
    from bide.cli.standing import show_status

    show_status(target, as_json=as_json)
