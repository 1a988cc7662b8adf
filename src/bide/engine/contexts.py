"""A coroutine in a context of its own, without a task of its own.

Items are handled one after the other by coroutines that live long. What a handler binds to context variables is
nevertheless its own, as it is in a task of its own, and the next item never sees it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def in_own_context(
    coroutine: Coroutine[Any, Any, T], suspended: Callable[[], None]
) -> Generator[Any, None, T]:
    """Await ``coroutine`` in a copy of the present context; ``suspended`` is called when it first waits."""
    run = copy_context().run
    try:
        waited_for = run(coroutine.send, None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    suspended()
    while True:
        error: BaseException | None = None
        try:
            yield waited_for
        except GeneratorExit:
            run(coroutine.close)
            raise
        except BaseException as thrown:  # whatever it is, the coroutine is who decides about it
            error = thrown
        try:
            waited_for = run(coroutine.send, None) if error is None else run(coroutine.throw, error)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        finally:
            del error  # it refers to this frame, and the frame to it
