"""From the command line to a wait: flags are the keys of a ``[waits.NAME]`` block, and are read as it is.

What is given in a file or in ``bide.toml`` comes first; a flag replaces the setting that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bide.config.cadence import POLLING
from bide.config.layers import COUNT, DURATION
from bide.config.report import Place, Report
from bide.config.waits import FOREVER, read_wait
from bide.core.canonical import read_json
from bide.core.declaration import Mistake
from bide.core.wait_declaration import WaitDeclaration
from bide.errors import AnswerError, DeclarationError

_HEADER_EXAMPLE = 'Write it as "X-Api-Key: 123".'

_FLAGS = {
    "url": "URL",
    "command": "COMMAND",
    "method": "--method",
    "headers": "--header",
    "body": "--body",
    "timeout": "--timeout",
    "attempt_timeout": "--attempt-timeout",
    "every": "--every",
    "times_in_row": "--times-in-row",
    "stable_for": "--stable-for",
    "retry_on": "--retry-on",
    "hint_clamp": "--hint-clamp",
    "success.status": "--status",
    "success.condition": "--condition",
    "success.header": "--has-header",
    "success.output": "--output",
    **{f"polling.{setting.key}": setting.flag for setting in POLLING},
}
"""The flag of each place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFlags:
    """The flags of ``bide until`` as they were given; None and empty ones were not."""

    status: Sequence[str] = ()
    condition: str | None = None
    has_header: Sequence[str] = ()
    output: str | None = None
    failed: Sequence[str] = ()
    failed_status: Sequence[str] = ()
    failed_output: Sequence[str] = ()
    retry_status: Sequence[str] = ()
    timeout: str | None = None
    attempt_timeout: str | None = None
    every: str | None = None
    polling: Mapping[str, str | None] = field(default_factory=dict)
    times_in_row: str | None = None
    stable_for: str | None = None
    method: str | None = None
    header: Sequence[str] = ()
    body: str | None = None
    retry_on: Sequence[str] = ()
    hint_clamp: str | None = None


def flags_of(parameters: Mapping[str, Any]) -> WaitFlags:
    """The flags among the parameters of the command; those not given keep their defaults."""
    named = {one.name: parameters.get(one.name) for one in fields(WaitFlags) if one.name != "polling"}
    given = {name: value for name, value in named.items() if value not in (None, [], ())}
    polling = {setting.name: parameters.get(setting.name) for setting in POLLING}
    return WaitFlags(**given, polling=polling)


def wait_of(
    flags: WaitFlags,
    *,
    name: str = "until",
    url: str | None = None,
    command: Sequence[str] | None = None,
    declared: Mapping[str, Any] | None = None,
) -> WaitDeclaration:
    """The wait for ``url`` or ``command``, or the one that was ``declared``, with ``flags``.

    Raises ``DeclarationError`` with every mistake, each at its flag.
    """
    report = Report()
    place = Place(report, "", "wait.key_invalid", "wait.value_invalid")
    table: dict[str, Any] = dict(declared or {})
    table |= {"url": url} if url is not None else {}
    table |= {"command": list(command)} if command is not None else {}
    given = _table(flags, report)
    for key in ("every", "polling"):  # the two ways to say how often: one replaces the other
        if key in given:
            table.pop("polling" if key == "every" else "every", None)
    if isinstance(table.get("polling"), Mapping) and "polling" in given:
        given["polling"] = table["polling"] | given["polling"]
    wait = read_wait(place, name, table | given)
    if report.mistakes or wait is None:
        found = [_at_flag(mistake, given) for mistake in report.mistakes]
        raise DeclarationError(sorted(found, key=lambda mistake: mistake.where))
    return wait


def _table(flags: WaitFlags, report: Report) -> dict[str, Any]:
    """What ``flags`` say, as the keys of a block."""
    table: dict[str, Any] = {}
    success: dict[str, Any] = {
        "status": list(flags.status),
        "condition": flags.condition,
        "output": flags.output,
    }
    success["header"] = dict(_header_wanted(text) for text in flags.has_header)
    success = {part: value for part, value in success.items() if value not in (None, [], {})}
    if success:
        table["success"] = success
    failure: list[Any] = list(flags.failed)
    failure += [{"status": list(flags.failed_status)}] if flags.failed_status else []
    failure += [{"output": output} for output in flags.failed_output]
    if failure:
        table["failure"] = failure
    if flags.retry_status:
        table["retry"] = [{"status": list(flags.retry_status)}]
    if flags.timeout is not None:
        table["timeout"] = FOREVER if flags.timeout == FOREVER else DURATION.of_text(flags.timeout)
    for key in ("attempt_timeout", "every", "stable_for", "hint_clamp"):
        if (text := getattr(flags, key)) is not None:
            table[key] = DURATION.of_text(text)
    if flags.times_in_row is not None:
        table["times_in_row"] = COUNT.of_text(flags.times_in_row)
    polling = {
        setting.key: setting.kind.of_text(text)
        for setting in POLLING
        if (text := flags.polling.get(setting.name)) is not None
    }
    if polling:
        table["polling"] = polling
    if flags.method is not None:
        table["method"] = flags.method
    if flags.header:
        table["headers"] = _headers(flags.header, report)
    if flags.body is not None:
        table["body"] = _body(flags.body)
    if flags.retry_on:
        table["retry_on"] = [word.strip() for words in flags.retry_on for word in words.split(",")]
    return table


def _headers(given: Sequence[str], report: Report) -> dict[str, str]:
    found = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon:
            shown = "the header" if "=" in text else repr(text[:40])  # what is behind it may be secret
            report.add(Mistake("wait.value_invalid", "headers", f"{shown} has no colon", _HEADER_EXAMPLE))
            continue
        found[name.strip()] = value.strip()
    return found


def _header_wanted(text: str) -> tuple[str, str | bool]:
    name, colon, value = text.partition(":")
    return name.strip(), value.strip() if colon else True


def _body(text: str) -> Any:
    """JSON where it is an object or a list, else the text."""
    try:
        value = read_json(text)
    except AnswerError:
        return text
    return value if isinstance(value, dict | list) else text


_KEY = re.compile(r'(\w+) = "([^"]*)"')
"""A key of a block with its value, as next steps name it."""


def _as_flag(found: re.Match[str]) -> str:
    flag = _FLAGS.get(found[1]) or _FLAGS.get(f"polling.{found[1]}")
    return f"{flag} {found[2]}" if flag and flag.startswith("--") else found[0]


def _at_flag(mistake: Mistake, given: Mapping[str, Any]) -> Mistake:
    """``mistake`` at the flag that said it; one of a file stays where it is."""
    where = mistake.where
    if where.startswith("failure[") and "failure" in given:
        part = where.partition("]")[2].partition("[")[0]
        return replace(
            mistake, where={"": "--failed", ".status": "--failed-status"}.get(part, "--failed-output")
        )
    if where.startswith("retry["):
        return replace(mistake, where="--retry-status") if "retry" in given else mistake
    for place, flag in _FLAGS.items():
        key = place.partition(".")[0]
        if where == place or where.startswith((f"{place}.", f"{place}[")):
            is_flag = key in given or key in ("url", "command", "timeout")
            step = (
                _KEY.sub(_as_flag, mistake.suggestion)
                if mistake.suggestion and is_flag
                else mistake.suggestion
            )
            return replace(mistake, where=flag, suggestion=step) if is_flag else mistake
    return mistake
