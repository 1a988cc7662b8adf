"""Acceptors: what an answer has to be for a wait to succeed, to fail, or to go on, as data.

An acceptor names parts of an answer: its status, header fields, a JMESPath condition on its JSON, a regular
expression for its text. It fits where all that it names hold. :class:`Acceptors` are three lists of them, judged in
one order: what fits ``retry`` is asked again whatever else it fits, then ``failure`` ends the wait, then ``success``
does, and everything else is not yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bide.core.hints import retry_after
from bide.core.http import Headers
from bide.core.seen import Kind, Seen, seen
from bide.core.selection import Selection
from bide.core.shown import shown_text, shown_value
from bide.core.statuses import Statuses, statuses
from bide.core.verdict import Failure, NotYet, Success, Verdict
from bide.errors import AnswerError, SettingError

__all__ = ["Acceptor", "Acceptors", "Failure", "NotYet", "Success", "Verdict"]

PARTS = ("status", "header", "condition", "output")
"""What an acceptor may name."""

HeaderWanted = str | bool
"""The text that a field has, or whether it is there."""

_GOOD = {Kind.HTTP: Statuses(((200, 299),), "2xx"), Kind.COMMAND: Statuses(((0, 0),), "0")}
"""Statuses of a success that names none."""

_GONE = 410
"""Says that what is asked for is not there and will not be again (RFC 9110, 15.5.11)."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Acceptor:
    """Parts of an answer; it fits where all that are given hold, and at least one is.

    - ``status``: an HTTP status or the exit status of a command: ``200``, ``"2xx"``, ``"200-204"``, or a list.
    - ``header``: fields by name, each with the text that it has, True for one that is there, or False.
    - ``condition``: JMESPath on the JSON of the answer (or on a plain value). It holds where JMESPath counts the
      result as true: not null, false, or empty.
    - ``output``: a regular expression that is found somewhere in the body of an answer, or in what a command wrote.

    Raises :class:`~bide.errors.SettingError`, which names the part, for what cannot be one.
    """

    status: Statuses | None
    header: Mapping[str, HeaderWanted]
    condition: Selection | None
    output: re.Pattern[str] | None

    def __init__(
        self,
        *,
        status: object = None,
        header: Mapping[str, HeaderWanted] | None = None,
        condition: str | None = None,
        output: str | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "status", None if status is None else statuses(status, "status"))
        put(self, "header", wanted_header(header, "header"))
        put(self, "condition", None if condition is None else Selection(condition, "condition"))
        put(self, "output", None if output is None else pattern(output, "output"))
        if status is condition is output is None and not self.header:
            raise SettingError("acceptor", f"names no part of an answer; give one of {', '.join(PARTS)}")

    def missing(self, answer: Seen, *, good: Statuses | None = None) -> str | None:
        """What of it does not hold for ``answer``, in a few words; None where it fits.

        ``good`` are the statuses that count where it names none.
        """
        wanted = self.status or good
        if wanted is not None and (answer.status is None or answer.status not in wanted):
            shown = "there is no status" if answer.status is None else f"status {answer.status}"
            return f"{shown}, not {wanted}"
        for name, text in self.header.items():
            if not _has(answer.headers, name, text):
                return _said(name, text, holds=False)
        if self.condition is not None and (why := _unmet(self.condition, answer)) is not None:
            return why
        if self.output is not None and self.output.search(answer.text()) is None:
            return f"nothing fits {shown_text(self.output.pattern, 60)}"
        return None

    def __str__(self) -> str:
        told = [] if self.status is None else [f"status {self.status}"]
        told += [_said(name, text, holds=True) for name, text in self.header.items()]
        told += [] if self.condition is None else [self.condition.expression]
        told += [] if self.output is None else [f"output {shown_text(self.output.pattern, 60)}"]
        return " and ".join(told)

    def __repr__(self) -> str:
        return f"Acceptor({self})"


AcceptorLike = Acceptor | Mapping[str, Any] | str | int
"""An acceptor; its parts as a mapping; a condition as text; or a status as a number."""


@dataclass(frozen=True, slots=True, init=False)
class Acceptors:
    """A condition made of acceptors; of each list it is enough that one fits.

    What fits ``retry`` is not yet, also where it would be a failure or a success. Then what fits ``failure`` has
    failed, and what fits ``success`` is there. A success that names no status needs a good one: 2xx, or exit status
    0. Without any ``success`` such a status is enough; for plain values, that they are true in Python. An answer of
    410 (gone) that nothing fits has failed. All the rest is not yet, with the delay of its Retry-After as a hint.

    It judges responses of connections, of other clients whose responses have ``status_code``, ``headers`` and
    ``content`` (requests, httpx), results of commands, and plain values, where only a condition or an output can fit.
    Lists hold acceptors, mappings of their parts, texts (conditions) or whole numbers (statuses); one alone need not
    stand in a list. Raises :class:`~bide.errors.SettingError` for what cannot be one, with its place.
    """

    success: tuple[Acceptor, ...]
    failure: tuple[Acceptor, ...]
    retry: tuple[Acceptor, ...]

    def __init__(
        self,
        success: Sequence[AcceptorLike] | AcceptorLike = (),
        failure: Sequence[AcceptorLike] | AcceptorLike = (),
        retry: Sequence[AcceptorLike] | AcceptorLike = (),
    ) -> None:
        for name, given in (("success", success), ("failure", failure), ("retry", retry)):
            object.__setattr__(self, name, _listed(given, name))

    def __call__(self, answer: object) -> Verdict:
        """What ``answer`` means. A Retry-After that is a date counts only beside a Date."""
        return self.judge(answer)

    def judge(self, answer: object, *, now_ms: int | None = None) -> Verdict:
        """What ``answer`` means at ``now_ms`` (milliseconds since the epoch), to which a Retry-After may refer."""
        looked_at = seen(answer)
        for acceptor in self.retry:
            if acceptor.missing(looked_at) is None:
                return NotYet(_hint(looked_at.headers, now_ms), f"{acceptor}, which is asked again")
        for acceptor in self.failure:
            if acceptor.missing(looked_at) is None:
                return Failure(str(acceptor))
        missing = self._unsuccessful(looked_at)
        if missing is None:
            return Success(answer)
        if looked_at.kind is Kind.HTTP and looked_at.status == _GONE:
            return Failure(f"status {_GONE}: it is gone, and will not be there again")
        return NotYet(_hint(looked_at.headers, now_ms), missing)

    def _unsuccessful(self, answer: Seen) -> str | None:
        """Why it is no success, by the first acceptor; None where it is one."""
        good = _GOOD.get(answer.kind)
        missing = [acceptor.missing(answer, good=good) for acceptor in self.success]
        if self.success:
            return None if None in missing else missing[0]
        if good is None:
            return None if answer.value else f"it is {shown_value(answer.value)}"
        return None if answer.status in good else f"status {answer.status}, not {good}"


def pattern(value: object, setting: str) -> re.Pattern[str]:
    """A regular expression, in which ``^`` and ``$`` fit at every line. Raises ``SettingError`` for what is none."""
    if not isinstance(value, str) or not value:
        raise SettingError(
            setting, f"{shown_value(value)} is not a regular expression; write for example 'ready'"
        )
    try:
        return re.compile(value, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingError(setting, f"{shown_text(value, 60)} is not a regular expression: {error}") from None


_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110, 5.6.2)."""


def wanted_header(value: object, setting: str) -> dict[str, HeaderWanted]:
    """Fields by name, each with its text, or whether it is there. Raises ``SettingError`` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SettingError(setting, f"{shown_value(value)} is not a table of header fields")
    for name, text in value.items():
        if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name):
            raise SettingError(setting, f"{shown_value(name)} is not the name of a header")
        if not isinstance(text, str | bool):
            raise SettingError(
                f"{setting}.{name}", f"{shown_value(text)} is neither the text of a header nor true or false"
            )
    return dict(value)


def _listed(given: object, setting: str) -> tuple[Acceptor, ...]:
    if isinstance(given, Acceptor | Mapping | str | int):
        return (_acceptor(given, setting),)
    if not isinstance(given, Sequence):
        raise SettingError(setting, f"{shown_value(given)} is not a list of acceptors")
    return tuple(_acceptor(item, f"{setting}[{index}]") for index, item in enumerate(given))


def _acceptor(item: object, setting: str) -> Acceptor:
    try:
        match item:
            case Acceptor():
                return item
            case str():
                return Acceptor(condition=item)
            case int():
                return Acceptor(status=item)
            case Mapping():
                odd = next((key for key in item if key not in PARTS), None)
                if odd is None:
                    return Acceptor(**item)
                raise SettingError("acceptor", f"has no part {odd!r}; it has {', '.join(PARTS)}")
            case _:
                raise SettingError("acceptor", f"{shown_value(item)} is no acceptor")
    except SettingError as error:
        part = "" if error.setting == "acceptor" else f".{error.setting}"
        raise SettingError(f"{setting}{part}", error.reason) from None


def _unmet(condition: Selection, answer: Seen) -> str | None:
    """Why ``condition`` does not hold; None where it does."""
    try:
        result = condition.of(answer.json())
    except AnswerError as error:
        return error.reason
    # What JMESPath counts as false: null, false, and what is empty; 0 is not.
    if result is None or result is False or result in ("", [], {}):
        return f"{condition.expression} is {'false' if result is False else shown_value(result)}"
    return None


def _has(headers: Headers, name: str, wanted: HeaderWanted) -> bool:
    if isinstance(wanted, bool):
        return (name in headers) is wanted
    return any(value.strip() == wanted.strip() for value in headers.all(name))


def _said(name: str, wanted: HeaderWanted, *, holds: bool) -> str:
    if isinstance(wanted, bool):
        return f"header {name} is {'' if wanted is holds else 'not '}there"
    return f"header {name} is {'' if holds else 'not '}{shown_text(wanted, 40)}"


def _hint(headers: Headers, now_ms: int | None) -> Any:
    if now_ms is None:
        if "date" not in headers:
            counted = (value.strip() for value in headers.all("retry-after"))
            headers = Headers(("retry-after", value) for value in counted if value.isdecimal())
        now_ms = 0
    return retry_after(headers, now_ms=now_ms)
