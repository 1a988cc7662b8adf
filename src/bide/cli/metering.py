"""Serving metrics beside whatever runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bide.app import App


@contextlib.contextmanager
def metered(app: App, host: str, port: int | None) -> Iterator[str | None]:
    """Count what happens in ``app`` and serve it while the block runs; the address, or None without a ``port``.

    Raises ``BideError`` where nothing can be served there, or the library is missing.
    """
    if port is None:
        yield None
        return
    from bide.metrics import Metrics

    metrics = Metrics()
    end = metrics.watch(app)
    try:
        with metrics.serve(port, host) as endpoint:
            yield endpoint.url
    finally:
        end()
