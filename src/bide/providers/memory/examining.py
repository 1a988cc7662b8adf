"""What there is to say of a store in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from bide.clock import Clock
from bide.core.findings import Finding


async def examine(address: str, folder: Path, clock: Clock) -> AsyncGenerator[Finding, None]:
    """The one thing to know."""
    yield Finding(
        "persistence",
        "doubtful",
        "nothing outlives the process, and no other process sees it",
        'for more than tests and trying out use "sqlite:///bide.db"',
    )
