"""What examiners of stores share: medians, and errors as findings."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

from bide.clock import Clock
from bide.core.findings import Finding, Judgement
from bide.errors import ProviderError

ROUNDS = 21
"""How often a round trip is made, of which the middle one counts."""


async def median_ms(clock: Clock, once: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """The median time of ``once``, in milliseconds. Raises what it raises."""
    taken = []
    for _ in range(rounds):
        began = clock.monotonic()
        await once()
        taken.append((clock.monotonic() - began) * 1000)
    return statistics.median(taken)


def of_error(subject: str, error: ProviderError, judgement: Judgement = "refused") -> Finding:
    """An error of a provider as a finding, without the place, which is known."""
    place, separator, rest = str(error).partition(": ")
    text, detail = _without_detail(rest if separator else place)
    reason, _, step = text.partition("; ")
    return Finding(subject, judgement, f"{reason}{detail}", step)


def _without_detail(text: str) -> tuple[str, str]:
    """``text`` without what stands in parentheses at its end, and that."""
    depth = 0
    for at in range(len(text) - 1, -1, -1) if text.endswith(")") else ():
        depth += (text[at] == ")") - (text[at] == "(")
        if not depth:
            return text[:at].rstrip(), f" {text[at:]}"
    return text, ""


def in_ms(value: float) -> str:
    """A time as people read it."""
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"
