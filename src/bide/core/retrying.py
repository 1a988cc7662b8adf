"""Which exceptions of a probe mean "not yet", and which end the wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from bide.core.polling import RetryAfter
from bide.errors import SettingError

RetryRule = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], "bool | RetryAfter"]
"""How callers say what is retried: a class, several, or a function that is asked about each exception."""

PROGRAMMING_ERRORS: tuple[type[Exception], ...] = (
    TypeError,
    AttributeError,
    NameError,
    AssertionError,
    NotImplementedError,
    ImportError,
    SyntaxError,
    RecursionError,
)
"""Mistakes of the program, which no waiting mends: never retried unless named themselves."""

_RIGHT = "write for example retry_on=(ConnectionError, TimeoutError), or retry_on=() to retry nothing"


class Retries:
    """``retry_on``, read.

    A programming error (:data:`PROGRAMMING_ERRORS`) is retried only where its class, or a class below it, is
    named: ``Exception`` and other classes above it do not name it, and a function is not asked about it.
    Raises :class:`~bide.errors.SettingError` for anything that is no :data:`RetryRule`.
    """

    __slots__ = ("_asked", "_classes")

    def __init__(self, retry_on: object) -> None:
        self._asked: Callable[[Exception], bool | RetryAfter] | None = None
        self._classes: tuple[type[Exception], ...] = ()
        if isinstance(retry_on, type):
            self._classes = (_checked(retry_on),)
        elif isinstance(retry_on, tuple | list | set | frozenset):
            self._classes = tuple(_checked(each) for each in retry_on)
        elif callable(retry_on):
            self._asked = retry_on
        else:
            raise SettingError("retry_on", f"{retry_on!r} is neither exceptions nor a function; {_RIGHT}")

    def answer(self, error: Exception) -> bool | RetryAfter:
        """Whether to ask again after ``error``; a :class:`RetryAfter` says how soon."""
        if self._asked is not None:
            if isinstance(error, PROGRAMMING_ERRORS):
                return False
            answer: Any = self._asked(error)
            return answer if isinstance(answer, RetryAfter) else bool(answer)
        return any(isinstance(error, named) and not _too_wide(named, error) for named in self._classes)


def retries(retry_on: object) -> Retries:
    """``retry_on``, read; one object for all waits with the same classes."""
    return _kept(retry_on) if isinstance(retry_on, type | tuple) else Retries(retry_on)


_kept = lru_cache(maxsize=64)(Retries)


def _checked(named: object) -> type[Exception]:
    if isinstance(named, type) and issubclass(named, Exception):
        return named
    if isinstance(named, type) and issubclass(named, BaseException):
        raise SettingError(
            "retry_on", f"{named.__name__} ends a program or a wait, and is never retried; {_RIGHT}"
        )
    raise SettingError("retry_on", f"{named!r} is no class of exceptions; {_RIGHT}")


def _too_wide(named: type[Exception], error: Exception) -> bool:
    """Whether ``named`` takes in ``error`` only because it takes in a whole kind of programming errors."""
    return any(
        isinstance(error, mistake) and named is not mistake and issubclass(mistake, named)
        for mistake in PROGRAMMING_ERRORS
    )
