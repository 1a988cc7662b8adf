"""How items lie in their objects: one line of JSON, then the payload and the result as they are.

The payload stands apart, so that an item whose payload was damaged still counts attempts and can be buried. Every
body has a nonce: two writes of one content would have one ETag, and a writer whose answer was lost could not tell its
own write from another's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from bide.errors import ProviderCorrupt
from bide.providers.items import Item

_FIELDS = tuple(field.name for field in fields(Item) if field.name not in ("payload", "result", "unreadable"))


@dataclass(slots=True)
class Outbox:
    """Items that exist from the write of their carrier on, and are being made. ``mark`` names that write."""

    mark: str
    items: tuple[Item, ...]


@dataclass(slots=True)
class Record:
    """An item as it is kept. ``raw`` is its payload as it lies there, ``gone``: it is done and leaves nothing."""

    item: Item
    raw: bytes
    nonce: str
    outbox: Outbox | None = None
    gone: bool = False


def record_of(item: Item) -> Record:
    """A new one, not kept yet."""
    return Record(item, item.payload.encode(), "")


def encoded(record: Record) -> bytes:
    """``record`` as the body of its object. Raises ``UnicodeEncodeError`` for what is no text."""
    item = record.item
    result = None if item.result is None else item.result.encode()
    head: dict[str, Any] = {name: getattr(item, name) for name in _FIELDS}
    head |= {
        "nonce": record.nonce,
        "payload_bytes": len(record.raw),
        "result_bytes": None if result is None else len(result),
    }
    if record.outbox is not None:
        head["outbox"] = outbox_json(record.outbox)
    if record.gone:
        head["gone"] = True
    return b"".join((json.dumps(head).encode(), b"\n", record.raw, result or b""))


def decoded(body: bytes, key: str) -> Record:
    """The record of a body. Raises ``ProviderCorrupt`` where its first line cannot be read."""
    line, _, rest = body.partition(b"\n")
    try:
        head = json.loads(line.decode())
        size, result_size = head["payload_bytes"], head["result_bytes"]
        raw, result = rest[:size], rest[size : size + (result_size or 0)]
        item = Item(**{name: head[name] for name in _FIELDS}, payload="")
        item.result = None if result_size is None else result.decode(errors="replace")
        outbox = None if "outbox" not in head else outbox_of(head["outbox"])
        record = Record(item, raw, head["nonce"], outbox, head.get("gone", False))
    except (ValueError, KeyError, TypeError) as error:
        raise ProviderCorrupt(f"the object {key} is no work item ({type(error).__name__})") from error
    try:
        item.payload = raw.decode()
    except UnicodeDecodeError as error:
        item.unreadable = f"its payload is no text ({error.reason} at byte {error.start})"
    return record


def outbox_json(outbox: Outbox) -> dict[str, Any]:
    """``outbox`` as a part of its carrier."""
    return {"mark": outbox.mark, "items": [_item_json(item) for item in outbox.items]}


def outbox_of(read: Any) -> Outbox:
    """The outbox that a carrier has."""
    return Outbox(read["mark"], tuple(item_of(each) for each in read["items"]))


def _item_json(item: Item) -> dict[str, Any]:
    return {"payload": item.payload, **{name: getattr(item, name) for name in _FIELDS}}


def item_of(read: Any) -> Item:
    """The item in an outbox or an entry."""
    return Item(**read)


@dataclass(slots=True)
class KeyEntry:
    """Who has a key: ``item``, whole, since writing this is what enqueues it where there is no ``carrier``.

    ``carrier`` and ``mark`` name the write that enqueues it otherwise, which may never have come; ``at`` is when the
    key was taken. ``closing``: nobody has it any more, and the object is about to go.
    """

    item: Item
    nonce: str
    at: int
    carrier: str | None = None
    mark: str | None = None
    closing: bool = False


def encoded_key(entry: KeyEntry) -> bytes:
    """``entry`` as the body of its object."""
    head = {
        "item": _item_json(entry.item),
        "nonce": entry.nonce,
        "at": entry.at,
        "carrier": entry.carrier,
        "mark": entry.mark,
        "closing": entry.closing,
    }
    return json.dumps(head).encode()


def decoded_key(body: bytes, key: str) -> KeyEntry:
    """The entry of a body. Raises ``ProviderCorrupt``."""
    head = json_of(body, key)
    return KeyEntry(**{**head, "item": item_of(head["item"])})


def json_of(body: bytes, key: str) -> dict[str, Any]:
    """What the first line of an object says. Raises ``ProviderCorrupt`` where it is no JSON object."""
    try:
        head = json.loads(body.partition(b"\n")[0].decode())
        if not isinstance(head, dict):
            raise TypeError
    except (ValueError, TypeError) as error:
        raise ProviderCorrupt(f"the object {key} cannot be read") from error
    return head


def nonce_in(body: bytes) -> str | None:
    """The nonce of any body of this store's."""
    try:
        head = json.loads(body.partition(b"\n")[0].decode())
    except ValueError:
        return None
    return head.get("nonce") if isinstance(head, dict) else None
