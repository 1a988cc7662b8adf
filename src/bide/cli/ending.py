"""How the program ends although a thread of its user does not, since no thread can be stopped."""

from __future__ import annotations

import os
import threading

LEAVE_S = 2.0
"""Seconds that what still goes on may take once everything else has ended."""


def leave_surely(status: int) -> None:
    """See to it that the process ends with ``status`` soon, where threads go on that it would wait for."""
    main = threading.main_thread()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not main):
        threading.Thread(target=_leave, args=(status,), name="bide-leaving", daemon=True).start()


def _leave(status: int) -> None:
    threading.Event().wait(LEAVE_S)
    os._exit(status)
