"""What counts as a change: the declared fields of an answer in canonical form, their digest, and comparing it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from bide.core.canonical import canonical, read_json
from bide.errors import AnswerError

__all__ = ["VERSION", "canonical", "digest", "event_payload", "is_change", "read_json"]

VERSION = "1"
"""Version of the canonical form. A digest carries it, so that a new rule is not taken for new data."""


def digest(payload: str) -> str:
    """The digest of a canonical text: version, colon, SHA-256 of its UTF-8 in hexadecimal."""
    return f"{VERSION}:{hashlib.sha256(payload.encode()).hexdigest()}"


def event_payload(answer: Mapping[str, object], fields: Iterable[str]) -> str:
    """The payload of an event: ``fields`` of ``answer`` in canonical form, read back and found the same.

    Raises ``AnswerError``, with the field, for a value that cannot be kept.
    """
    event: dict[str, object] = {}
    for name in fields:
        if name not in answer:
            raise AnswerError(name, "the answer has no such field")
        event[name] = answer[name]
    payload = canonical(event, within=1)  # the envelope, which is read under the same limit
    if canonical(read_json(payload)) != payload:
        raise AnswerError("", "the event did not read back as it was written")
    return payload


def is_change(stored_digest: str | None, stored_payload: str | None, new_digest: str) -> bool:
    """Whether ``new_digest`` stands for other data than what is stored; the first answer always does.

    A digest of another version says nothing: then the stored payload is put into the present form and
    compared. Where that is gone, or cannot be read any more, the new digest is adopted as no change.
    """
    if stored_digest is None:
        return True
    if stored_digest == new_digest:
        return False
    if stored_digest.partition(":")[0] == new_digest.partition(":")[0]:
        return True
    if stored_payload is None:
        return False
    try:
        return digest(canonical(read_json(stored_payload))) != new_digest
    except AnswerError:
        return False
