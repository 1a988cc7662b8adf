"""What ``submit`` does: text of a command line to the arguments of a task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from bide.cli.opening import load, require_kept, with_open
from bide.cli.printing import print_json, print_text, tell
from bide.config.layers import DURATION
from bide.core.arguments import SUBMIT_OPTIONS
from bide.errors import ArgumentError, SettingError

if TYPE_CHECKING:
    from bide.app import App
    from bide.task import Handle

_DURATIONS = ("delay", "within")


def submit_work(
    target: str, task: str, arguments: Sequence[str], options: Mapping[str, Any], *, as_json: bool
) -> None:
    """Submit one work item and print its id.

    Raises ``typer.BadParameter`` for arguments and options that are wrong, ``UnknownName`` for a task that is not
    declared, and ``KeyConflict``.
    """
    app = load(target)
    require_kept(app)
    declared = app.declared_task(task)
    named = _arguments(arguments)
    _refuse_options(named, options)
    given = _options(options)

    async def act(opened: App) -> Handle:
        try:
            return await opened.task_named(task).submit(**given, **named)
        except ArgumentError as error:
            raise typer.BadParameter(str(error)) from error
        except SettingError as error:
            if error.setting not in options:
                raise
            flag = f"--{error.setting.replace('_', '-')}"
            raise typer.BadParameter(error.reason, param_hint=flag) from error

    handle = with_open(app, act)
    if as_json:
        print_json({"id": handle.id, "new": handle.new, "task": declared.name, "queue": declared.queue})
        return
    print_text(handle.id)
    if not handle.new:
        tell(f"it was there already, under the key {options['key']!r}")


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Arguments by name: ``name=text``, ``name:=JSON``, or one JSON object."""
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        return dict(_json(texts[0], "the JSON object"))
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        in_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(
                f"{text!r} is not NAME=TEXT, NAME:=JSON or a JSON object", param_hint="ARGUMENT"
            )
        if name in named:
            raise typer.BadParameter(f"{name} is given twice", param_hint="ARGUMENT")
        named[name] = _json(value, name) if in_json else value
    return named


def _refuse_options(named: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """No task has a parameter called as an option of ``submit``, which would take the argument for its own."""
    for name in named:
        if name in SUBMIT_OPTIONS:
            flag = f"--{name.replace('_', '-')}"
            step = f"write {flag} in place of it" if name in flags else "leave it out"
            raise typer.BadParameter(
                f"{name} is an option of submit, and no argument; {step}", param_hint="ARGUMENT"
            )


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{what} is not JSON: {error}", param_hint="ARGUMENT") from error


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    for name in _DURATIONS:
        if name in given:
            given[name] = DURATION.of_text(given[name])
    if "at" in given:
        given["at"] = _instant(given["at"])
    return given


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not an instant; write for example 2026-01-31T09:00:00Z", param_hint="--at"
        ) from error
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no offset from UTC; write {text}Z", param_hint="--at")
    return at
