"""What ``check`` does: every mistake at once, for people or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.opening import load
from bide.cli.printing import counted, print_json, print_text
from bide.config.shape import step_of
from bide.core.declaration import Mistake
from bide.errors import DeclarationError, SettingError, UnknownName

if TYPE_CHECKING:
    from bide.core.declaration import Declarations


def check_target(target: str, *, strict: bool, as_json: bool) -> bool:
    """Print what is wrong with ``target``; whether nothing is. Also for what cannot be read at all."""
    declarations: Declarations | None = None
    warnings: Sequence[Mistake] = ()
    try:
        compiled = load(target).check(strict=strict)
        mistakes: Sequence[Mistake] = compiled.mistakes
        declarations, warnings = compiled.declarations, compiled.warnings
    except DeclarationError as error:
        mistakes = error.mistakes
    except UnknownName as error:
        mistakes = (Mistake("config.value_invalid", target, str(error)),)
    except SettingError as error:
        message = error.reason.partition("; ")[0]
        mistakes = (Mistake("config.value_invalid", error.setting, message, step_of(error)),)
    if as_json:
        print_json(
            {
                "ok": not mistakes,
                "mistakes": [_as_json(mistake) for mistake in mistakes],
                "warnings": [_as_json(warning) for warning in warnings],
            }
        )
        return not mistakes
    for mistake in mistakes:
        print_text(str(mistake))
    for warning in warnings:
        print_text(f"warning: {warning}")
    print_text(_verdict(target, declarations, mistakes))
    return not mistakes


def _as_json(mistake: Mistake) -> dict[str, Any]:
    return {
        "code": mistake.code,
        "where": mistake.where,
        "message": mistake.message,
        "suggestion": mistake.suggestion,
    }


def _verdict(target: str, declarations: Declarations | None, mistakes: Sequence[Mistake]) -> str:
    if mistakes or declarations is None:
        return f"{target}: {counted(len(mistakes), 'mistake')}"
    polls = declarations.polls.values()
    tasks = f", {counted(len(declarations.tasks), 'task')}" if declarations.tasks else ""
    lines = [
        f"{target} is right: {counted(len(declarations.connections), 'connection')}, "
        f"{counted(len(polls), 'poll')} ({sum(poll.active for poll in polls)} active), "
        f"{counted(len(declarations.subscribers), 'subscriber')}{tasks}"
    ]
    for connection in declarations.connections.values():
        if connection.max_concurrent is not None:
            calls = counted(connection.max_concurrent, "call")
            lines.append(f"connection {connection.name}: at most {calls} at once in each instance")
    return "\n".join(lines)
