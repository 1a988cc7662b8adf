"""Text from outside as it may go to a terminal: what would move the cursor or hide other text is escaped."""

from __future__ import annotations

import json
import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that reorder text, further line ends, lone surrogates."""

_BREAKS = re.compile("[\t\n]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def safe(text: str) -> str:
    r"""``text`` with what is unsafe escaped as in ``\x1b``; line feeds and tabs stay."""
    return _UNSAFE.sub(_escaped, text)


def safe_line(text: str) -> str:
    """As :func:`safe`, on one line."""
    return _BREAKS.sub(_escaped, safe(text))


def safe_json(text: str) -> str:
    r"""JSON text with what is unsafe in its strings escaped as in ``\u009b``: the same value."""
    return _UNSAFE.sub(lambda found: _json_escaped(found) if found[0] > "\x1f" else found[0], text)


def ascii_json(text: str) -> str:
    """JSON text in ASCII only: the same value."""
    return _NOT_ASCII.sub(_json_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def _json_escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"
