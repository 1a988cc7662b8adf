"""New work items as rows for functions, what came of them, tokens, and items as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from bide.core.durations import format_duration, to_ms
from bide.errors import KeyConflict
from bide.provider import ZERO, Enqueued, ItemRow, ItemState, NewItem, WorkItem
from bide.providers.redis.rows import (
    Row,
    all_packed,
    int_if_any,
    number,
    shown,
    shown_if_any,
    stored,
    stored_if_any,
    unpacked,
)

TAKEN_WIDTH = 11
SHOWN_WIDTH = 21


def new_rows(items: Iterable[NewItem]) -> bytes:
    """What functions take new items as. Raises ``ProviderError`` for what cannot be stored."""
    return all_packed(map(_new_row, items))


def _new_row(item: NewItem) -> Sequence[bytes | None]:
    within = item.within
    return (
        stored(item.id),
        stored(item.queue),
        stored(item.name),
        stored(item.payload),
        number(item.priority) if item.priority else None,
        number(to_ms(item.delay)) if item.delay is not ZERO and item.delay else None,
        None if item.max_attempts is None else number(item.max_attempts),
        None if within is None else number(to_ms(within)),
        None if within is None else within_text(within),
        stored_if_any(item.order_key),
        None if item.at is None else number(item.at),
        stored_if_any(item.key),
        stored_if_any(item.limit_key),
        None if item.keep_result is None else number(to_ms(item.keep_result)),
    )


def within_text(within: timedelta) -> bytes:
    """A life as the reason of its end names it: functions cannot write durations."""
    return format_duration(timedelta(milliseconds=to_ms(within))).encode()


def enqueued_of(answer: Row, items: Sequence[NewItem]) -> list[Enqueued] | KeyConflict:
    """What became of ``items``, or which of them has a key of another payload."""
    told, place, holder = answer
    if told is None:
        return conflict_of(items[int(place or 0) - 1], holder or b"")
    return [Enqueued(shown(id or b""), new=is_new is not None) for id, is_new in unpacked(told, 2)]


def conflict_of(item: NewItem, holder: bytes) -> KeyConflict:
    """The error of an item whose key ``holder`` has with another payload."""
    return KeyConflict(item.queue, item.name, item.key or "", shown(holder))


def token_parts(token: str) -> tuple[bytes, bytes] | None:
    """The id of a token's item, and the nonce of the fetch that took it; None where it can be no token."""
    nonce, colon, id = token.partition(":")
    try:
        return (id.encode(), nonce.encode()) if nonce and colon else None
    except UnicodeEncodeError:
        return None


def taken_items(blob: bytes, nonce: str) -> tuple[WorkItem, ...]:
    """What a fetch took."""
    return tuple([_work_item(row, nonce) for row in unpacked(blob, TAKEN_WIDTH)])


def _work_item(row: Row, nonce: str) -> WorkItem:
    id, queue, name, kept, attempt, deaths, enqueued_at, expires_at, most, given_back, keep = row
    payload, unreadable = readable(kept)
    text = shown(id or b"")
    return WorkItem(
        text,
        _SHOWN[queue or b""],
        _SHOWN[name or b""],
        payload,
        f"{nonce}:{text}",
        int(attempt or 0),
        int(deaths or 0),
        int(enqueued_at or 0),
        int_if_any(expires_at),
        int_if_any(most),
        unreadable,
        int(given_back or 0),
        keep is not None,
    )


def readable(kept: bytes | None) -> tuple[str, str | None]:
    """A kept payload, and what is wrong with it where it cannot be read; it is empty then."""
    if kept is None:
        return "", "its payload is gone"
    try:
        return kept.decode(), None
    except UnicodeDecodeError as error:
        return "", f"its payload is damaged ({error})"


def item_row(row: Row, now: int) -> ItemRow:
    """An item as people see it at the instant ``now``: an expired lock holds nothing."""
    (queue, name, payload, attempts, deaths, enqueued_at, visible_at, expires_at, ended_at) = row[:9]
    (error, most, priority, key, limit_key, given_back, result, token, locked_until, ended, _, id) = row[9:]
    holds = token is not None and int(locked_until or 0) > now
    return ItemRow(
        id=shown(id or b""),
        queue=shown(queue or b""),
        name=shown(name or b""),
        state="running" if holds else _ENDS.get(ended or b"", "ready"),
        payload=shown(payload or b""),
        attempts=int(attempts or 0),
        deaths=int(deaths or 0),
        enqueued_at=int(enqueued_at or 0),
        visible_at=int(visible_at or enqueued_at or 0),
        expires_at=int_if_any(expires_at),
        ended_at=int_if_any(ended_at),
        error=shown_if_any(error),
        max_attempts=int_if_any(most),
        priority=int(priority or 0),
        key=shown_if_any(key),
        limit_key=shown_if_any(limit_key),
        given_back=int(given_back or 0),
        result=shown_if_any(result),
    )


_ENDS: dict[bytes, ItemState] = {b"done": "done", b"dead": "dead"}


class _Shown(dict[bytes, str]):
    """Names that were seen, as they are shown: of a batch they are nearly always the same few."""

    def __missing__(self, kept: bytes) -> str:
        if len(self) > 10_000:
            self.clear()
        text = self[kept] = shown(kept)
        return text


_SHOWN = _Shown()
