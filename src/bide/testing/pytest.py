"""A pytest plugin: ``pytest_plugins = ["bide.testing.pytest"]`` in ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bide.testing.instant import InstantPolling, instant


@pytest.fixture
def instant_polling() -> Iterator[InstantPolling]:
    """Waits take no time in this test, and their attempts are counted: ``instant_polling.attempts``."""
    with instant() as polling:
        yield polling
