"""What a message says: a work item with the counts that SQS cannot keep for it, as JSON.

SQS counts how often a message was received and never forgets it. So whatever is not done is sent anew, with its
counts in its text, and the old message is deleted: what a message was received for a second time is then a death.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bide.errors import ProviderError
from bide.providers.reasons import storable

VERSION = 1
"""Of the text. One of a newer version is handed on as it is."""

LONGEST_ERROR = 2048
"""Bytes that an error takes of a message."""

RESERVED = 4096
"""Bytes of a message that no new item may take: for the counts and the error of its later life."""

_FORBIDDEN = re.compile("[\ufffe\uffff]")
"""What SQS takes in no text and JSON does not escape (Amazon SQS, SendMessage)."""

_COUNTS = ("attempts", "deaths", "back", "passed")
_OPTIONAL = ("sent", "within", "most", "not_before")
_TEXTS = ("id", "name")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A work item as a message carries it; instants and durations are milliseconds.

    ``sent_at`` is when it was enqueued, None where this message is the first. ``attempts``, ``deaths`` and
    ``given_back`` are what came before this message; ``passed`` how often workers passed it on that do not know its
    name. ``not_before`` is an instant that lies further ahead than SQS can delay a message. ``payload`` is any JSON:
    one that is no text was damaged.
    """

    id: str
    name: str
    payload: object
    sent_at: int | None = None
    within_ms: int | None = None
    max_attempts: int | None = None
    attempts: int = 0
    deaths: int = 0
    given_back: int = 0
    passed: int = 0
    not_before: int | None = None
    error: str | None = None

    @property
    def unreadable(self) -> str | None:
        """Why the payload cannot be read, where it cannot."""
        return None if isinstance(self.payload, str) else "its payload was damaged"

    def text(self) -> str:
        """As a message's text."""
        fields: dict[str, Any] = {"bide": VERSION, "id": self.id, "name": self.name, "payload": self.payload}
        counts = zip(_COUNTS, (self.attempts, self.deaths, self.given_back, self.passed), strict=True)
        fields |= {key: count for key, count in counts if count}
        optional = zip(
            _OPTIONAL, (self.sent_at, self.within_ms, self.max_attempts, self.not_before), strict=True
        )
        fields |= {key: value for key, value in optional if value is not None}
        if self.error is not None:
            fields["error"] = clipped(self.error)
        return _dumped(fields)


@dataclass(frozen=True, slots=True)
class Newer:
    """A message that a newer version of bide wrote: to be left for one."""

    fields: Mapping[str, Any]

    @property
    def passed(self) -> int:
        passed = self.fields.get("passed")
        return passed if isinstance(passed, int) else 0

    def text(self) -> str:
        """The same, passed on once more."""
        return _dumped({**self.fields, "passed": self.passed + 1})


@dataclass(frozen=True, slots=True)
class Foreign:
    """A message that is no work item: somebody else's, or damaged. ``reason`` quotes nothing of it."""

    reason: str


Read = Envelope | Newer | Foreign


def read(text: str) -> Read:
    """What a message's ``text`` says."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return Foreign("it is no work item of bide's: its text is no JSON")
    if not isinstance(fields, dict) or not isinstance(version := fields.get("bide"), int):
        return Foreign("it is no work item of bide's: somebody else sent it to this queue")
    if version > VERSION:
        return Newer(fields)
    if not all(isinstance(fields.get(key), str) and fields[key] for key in _TEXTS):
        return Foreign("it was damaged: it has no id or no name")
    if not all(_is_count(fields.get(key, 0)) for key in (*_COUNTS, *_OPTIONAL)):
        return Foreign("it was damaged: what it counts is no number")
    error = fields.get("error")
    attempts, deaths, given_back, passed = (fields.get(key, 0) for key in _COUNTS)
    sent_at, within_ms, max_attempts, not_before = (fields.get(key) for key in _OPTIONAL)
    return Envelope(
        id=fields["id"],
        name=fields["name"],
        payload=fields.get("payload"),
        sent_at=sent_at,
        within_ms=within_ms,
        max_attempts=max_attempts,
        attempts=attempts,
        deaths=deaths,
        given_back=given_back,
        passed=passed,
        not_before=not_before,
        error=error if isinstance(error, str) else None,
    )


def begun_anew(envelope: Envelope) -> Envelope:
    """The same item as if it had just been enqueued."""
    return replace(
        envelope, sent_at=None, attempts=0, deaths=0, given_back=0, passed=0, not_before=None, error=None
    )


def clipped(error: str) -> str:
    """``error`` so that it takes no more of a message than is reserved for it."""
    kept = storable(error)
    while len(json.dumps(kept, ensure_ascii=False).encode()) > LONGEST_ERROR:
        kept = f"{kept[: len(kept) * 3 // 4]}…"
    return kept


def refuse_unstorable(*texts: str | None) -> None:
    """Raise ``ProviderError`` where a text cannot be kept."""
    try:
        for text in texts:
            (text or "").encode()
    except UnicodeEncodeError as error:
        raise ProviderError(f"text with a lone surrogate cannot be stored ({error})") from error


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _dumped(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return _FORBIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
