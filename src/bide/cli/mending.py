"""What ``work retry``, ``work discard`` and ``work purge`` do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bide.cli.opening import in_store, load, nothing_kept, with_open
from bide.cli.printing import counted, listed, print_json, print_text, step, tell
from bide.cli.progress import progress
from bide.cli.queues import require_queue, require_task
from bide.errors import SettingError, UnknownName
from bide.provider import ItemState

if TYPE_CHECKING:
    from bide.app import App

_PAGE = 500
"""Items that are changed in one transaction: short, so that workers wait for none of them."""


def retry_items(target: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Make exactly the items named ready again, where they had ended."""

    async def act(app: App) -> list[str]:
        made = await app.provider.requeue(ids)
        await _require_there(app, [one for one in ids if one not in made])
        return made

    made = in_store(target, act) or []
    if as_json:
        print_json({"retried": made, "count": len(made)})
        return
    if made:
        print_text(f"ready again: {listed(made)}")
    kept = [one for one in ids if one not in made]
    if kept:
        tell(f"not ended, or its key is another item's now, so left as they are: {listed(kept)}")


def retry_all(target: str, *, queue: str, state: ItemState, task: str | None, as_json: bool) -> None:
    """Make every item of a queue ready again that had ended so by now, a few hundred at a time."""

    async def act(app: App) -> int:
        await require_queue(app, queue)
        if task is not None:
            await require_task(app, task, [queue])
        with progress("retried") as shown:
            began, after = await app.provider.now(), None
            while page := await app.provider.items(
                queue, states=[state], name=task, after=after, limit=_PAGE
            ):
                # What a worker ends again meanwhile is not for this command, which would never end then.
                ids = [row.id for row in page if row.ended_at is not None and row.ended_at <= began]
                made = await app.provider.requeue(ids) if ids else []
                shown.add(len(made))
                if not made:
                    after = page[-1].id
            return shown.done

    number = in_store(target, act) or 0
    if as_json:
        print_json({"retried": None, "count": number})
    else:
        print_text(f"{counted(number, 'work item')} of {queue} ready again")


def discard_items(target: str, ids: Sequence[str], *, reason: str, as_json: bool) -> None:
    """Give up exactly the items named, where they wait."""
    if not reason.strip():
        raise SettingError("--reason", "is empty; say why, or leave it out")

    async def act(app: App) -> list[str]:
        gone = await app.provider.discard(ids, reason)
        await _require_there(app, [one for one in ids if one not in gone])
        return gone

    gone = in_store(target, act) or []
    if as_json:
        print_json({"discarded": gone, "count": len(gone)})
        return
    if gone:
        back = step(f"work retry {' '.join(gone)}", target)
        print_text(f"discarded {listed(gone)}; undo with: {back}")
    kept = [one for one in ids if one not in gone]
    if kept:
        tell(f"not waiting, so left as they are: {listed(kept)}")


def purge_items(target: str, *, queue: str, state: ItemState, yes: bool, as_json: bool) -> bool:
    """Remove what had ended so, once a person agreed; whether one did."""
    app = load(target)
    if not app.store_exists():
        tell(nothing_kept(app))
        if as_json:
            print_json({"queue": queue, "state": state, "purged": 0})
        return True
    number = with_open(app, lambda opened: _count(opened, queue, state))
    if (
        number
        and not yes
        and not _agreed(f"Remove {counted(number, f'{state} work item')} of {queue} for good?")
    ):
        tell("nothing was removed")
        return False

    async def act(app: App) -> int:
        with progress("removed") as shown:
            # Up to the number that was agreed to: workers may end more than that meanwhile, without an end.
            while shown.done < number:
                gone = await app.provider.purge(queue, states=[state], limit=min(_PAGE, number - shown.done))
                if not gone:
                    break
                shown.add(gone)
            return shown.done

    purged = with_open(app, act) if number else 0
    if as_json:
        print_json({"queue": queue, "state": state, "purged": purged})
    else:
        print_text(f"removed {counted(purged, f'{state} work item')} of {queue}")
    return True


async def _count(app: App, queue: str, state: ItemState) -> int:
    await require_queue(app, queue)
    return sum(getattr(one, state) for one in await app.provider.counts() if one.queue == queue)


def _agreed(question: str) -> bool:
    """Ask on the terminal. Raises ``SettingError`` where nobody is there."""
    if not sys.stdin.isatty():
        raise SettingError("--yes", f"is needed where nobody can be asked: {question}")
    import typer

    return typer.confirm(question, err=True)


async def _require_there(app: App, ids: Sequence[str]) -> None:
    """Raise ``UnknownName`` for an id that no item has."""
    for one in ids:
        if await app.provider.item(one) is None:
            raise UnknownName("work item", one)
