"""Texts as PostgreSQL can keep them, and statements for the schema that a store has.

PostgreSQL keeps no NUL in a text. It is written as U+FDD0, which stands for no character, and ``0``; U+FDD0 itself
as U+FDD0 and ``1``. Nearly every text has neither and is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from bide.errors import ProviderError

ESCAPE = "\ufdd0"
"""What begins an escape; it stands for no character."""

BETWEEN = f"{ESCAPE},"
"""What stands between texts that are sent as one; no text that is kept has it."""

_ESCAPED = re.compile(f"{ESCAPE}(.?)", re.DOTALL)
_MEANINGS = {"0": "\0", "1": ESCAPE}
_SCHEMA = re.compile(r"\bbide\.")


def stored(text: str) -> str:
    """``text`` as it is kept. Raises ``ProviderError`` for lone surrogates, which no store takes."""
    _refuse_surrogates(text)
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")
    return text


def stored_if_any(text: str | None) -> str | None:
    """As :func:`stored`, where there is one."""
    return None if text is None else stored(text)


def packed(texts: Sequence[str]) -> str:
    """``texts``, at least one, as they are kept and as one text, which the SQL function ``unpacked`` takes apart.

    A driver takes one text a good deal quicker than an array of them.
    """
    together = BETWEEN.join(texts)
    if "\0" in together or together.count(ESCAPE) >= len(texts):
        return BETWEEN.join(map(stored, texts))
    _refuse_surrogates(together)
    return together


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProviderError(f"text with a lone surrogate cannot be stored ({error})") from error


def readable(kept: str) -> tuple[str, str | None]:
    """A kept text, and what is wrong with it where it cannot be read; it is empty then."""
    if ESCAPE not in kept:
        return kept, None
    for found in _ESCAPED.finditer(kept):
        if found[1] not in _MEANINGS:
            return "", f"its payload is damaged (an escape that means nothing at character {found.start()})"
    return shown(kept), None


def shown(kept: str) -> str:
    """A kept text as well as it can be read."""
    if ESCAPE not in kept:
        return kept
    return _ESCAPED.sub(lambda found: _MEANINGS.get(found[1], "\ufffd"), kept)


def shown_if_any(kept: str | None) -> str | None:
    """As :func:`shown`, where there is one."""
    return None if kept is None else shown(kept)


@lru_cache(maxsize=500)
def for_schema(statement: str, schema: str) -> str:
    """``statement``, in which ``bide.`` stands for the schema, as it is for ``schema``."""
    return _SCHEMA.sub(f'"{schema}".', statement)
