"""Who is told of every attempt of every wait in the process: logs, metrics, and tests that count."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bide.core.waited import AttemptEnded, AttemptHook

_hooks: list[AttemptHook] = []


def on_every_attempt(hook: AttemptHook) -> Callable[[], None]:
    """Call ``hook`` after each attempt of every wait from now on; call the answer to end that.

    Hooks are called where the wait runs, must be quick, and harm nobody by raising: that is logged.
    """
    _hooks.append(hook)
    return lambda: _hooks.remove(hook)


def is_heard(own: AttemptHook | None) -> bool:
    """Whether anybody would be told."""
    return own is not None or bool(_hooks)


def tell(own: AttemptHook | None, ended: AttemptEnded) -> None:
    """Tell the wait's ``own`` hook, and those of the process."""
    for hook in _hooks if own is None else (own, *_hooks):
        try:
            hook(ended)
        except Exception:
            logging.getLogger("bide").exception("a hook failed on an attempt of %s", ended.probe)
