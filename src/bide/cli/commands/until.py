"""``until``: wait for an address, a command or a declared wait."""

from __future__ import annotations

import typer

from bide.cli.flags import IntervalFlag, MaxIntervalFlag, MinIntervalFlag, MultiplierFlag, StrategyFlag
from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption
from bide.cli.until_flags import (
    AttemptTimeoutFlag,
    BodyFlag,
    ConditionFlag,
    EveryFlag,
    FailedFlag,
    FailedOutputFlag,
    FailedStatusFlag,
    FileFlag,
    HasHeaderFlag,
    HeaderFlag,
    HintClampFlag,
    MethodFlag,
    OutputFlag,
    QuietFlag,
    RetryOnFlag,
    RetryStatusFlag,
    StableForFlag,
    StatusFlag,
    TimeoutFlag,
    TimesInRowFlag,
    WhatArgument,
)
from bide.cli.usage import COMMAND
from bide.core.names import is_name


def until(
    ctx: typer.Context,
    what: WhatArgument = None,
    *,
    timeout: TimeoutFlag = None,
    status: StatusFlag = None,
    condition: ConditionFlag = None,
    output: OutputFlag = None,
    has_header: HasHeaderFlag = None,
    failed: FailedFlag = None,
    failed_status: FailedStatusFlag = None,
    failed_output: FailedOutputFlag = None,
    retry_status: RetryStatusFlag = None,
    times_in_row: TimesInRowFlag = None,
    stable_for: StableForFlag = None,
    attempt_timeout: AttemptTimeoutFlag = None,
    every: EveryFlag = None,
    strategy: StrategyFlag = None,
    interval: IntervalFlag = None,
    min_interval: MinIntervalFlag = None,
    max_interval: MaxIntervalFlag = None,
    backoff_multiplier: MultiplierFlag = None,
    method: MethodFlag = None,
    header: HeaderFlag = None,
    body: BodyFlag = None,
    retry_on: RetryOnFlag = None,
    hint_clamp: HintClampFlag = None,
    file: FileFlag = None,
    target: TargetOption = DEFAULT_TARGET,
    quiet: QuietFlag = False,
    as_json: JsonOption = False,
) -> None:
    """Wait until an address answers, or a command writes, what is wanted.

    Prints the last answer. Exit status: 0 it holds, 1 it never will, 2 timed out, 3 called wrongly.
    """
    from bide.cli.until import run_until, wait_in_file, wait_named
    from bide.cli.waits import flags_of, wait_of

    flags = flags_of(ctx.params)
    command: list[str] | None = ctx.meta.get(COMMAND)
    word = _one_word(what or [], command, file)
    if command is not None:
        ended = run_until(lambda: wait_of(flags, command=command), quiet=quiet, as_json=as_json)
    elif file is not None:
        ended = run_until(lambda: wait_in_file(file, flags), quiet=quiet, as_json=as_json)
    elif "://" in word:
        ended = run_until(lambda: wait_of(flags, url=word), quiet=quiet, as_json=as_json)
    else:
        ended = run_until(lambda: wait_named(target, word, flags), quiet=quiet, as_json=as_json)
    raise typer.Exit(ended)


def _one_word(words: list[str], command: list[str] | None, file: str | None) -> str:
    """The address or name; empty where a command or a file is waited for. Raises ``typer.BadParameter``."""
    ways = bool(words) + (command is not None) + (file is not None)
    if command == [] or (not ways and command is None):
        raise typer.BadParameter(
            "what is waited for? Give an address, a name of bide.toml, or -- and a command."
        )
    if ways > 1 or len(words) > 1:
        example = (
            f"bide until … -- {' '.join(words)}" if command is None and file is None else "only one of them"
        )
        raise typer.BadParameter(
            f"one thing is waited for at a time, and a command stands behind --: {example}"
        )
    if not words:
        return ""
    if "://" not in words[0] and not is_name(words[0]):
        raise typer.BadParameter(
            f"{words[0]!r} is neither an address, which begins with http:// or https://, nor a name"
        )
    return words[0]
