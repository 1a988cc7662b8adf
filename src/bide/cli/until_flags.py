"""Flags of ``until``: texts, which are read where the settings of waits are (:mod:`bide.config.waits`)."""

from __future__ import annotations

from typing import Annotated

import typer

_WHEN, _HOW_LONG, _POLLING, _REQUEST = "What is waited for", "How long", "Polling", "The request"

Texts = list[str] | None

WhatArgument = Annotated[
    Texts,
    typer.Argument(
        metavar="URL | NAME | -- COMMAND...", help="An address, a wait of bide.toml, or a command."
    ),
]
TimeoutFlag = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        "-t",
        metavar="DURATION",
        help="Of the whole wait, or forever. Needed.",
        rich_help_panel=_HOW_LONG,
    ),
]
StatusFlag = Annotated[
    Texts,
    typer.Option(
        "--status",
        "-s",
        metavar="STATUS",
        help="200, 2xx, 200-204; the exit status of a command.",
        rich_help_panel=_WHEN,
    ),
]
ConditionFlag = Annotated[
    str | None,
    typer.Option(
        "--condition",
        "-c",
        metavar="JMESPATH",
        help="On the JSON that is answered or written.",
        rich_help_panel=_WHEN,
    ),
]
OutputFlag = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="REGEX", help="Found in what is answered or written.", rich_help_panel=_WHEN
    ),
]
HasHeaderFlag = Annotated[
    Texts,
    typer.Option(
        "--has-header", metavar="NAME[: TEXT]", help="A header of the answer.", rich_help_panel=_WHEN
    ),
]
FailedFlag = Annotated[
    Texts,
    typer.Option(
        "--failed", "-f", metavar="JMESPATH", help="Ends the wait where it holds.", rich_help_panel=_WHEN
    ),
]
FailedStatusFlag = Annotated[
    Texts,
    typer.Option("--failed-status", metavar="STATUS", help="So does this status.", rich_help_panel=_WHEN),
]
FailedOutputFlag = Annotated[
    Texts, typer.Option("--failed-output", metavar="REGEX", help="So does this text.", rich_help_panel=_WHEN)
]
RetryStatusFlag = Annotated[
    Texts,
    typer.Option("--retry-status", metavar="STATUS", help="But never this one.", rich_help_panel=_WHEN),
]
TimesInRowFlag = Annotated[
    str | None,
    typer.Option(
        "--times-in-row",
        metavar="NUMBER",
        help="Holds only where it does so often.",
        rich_help_panel=_HOW_LONG,
    ),
]
StableForFlag = Annotated[
    str | None,
    typer.Option(
        "--stable-for",
        metavar="DURATION",
        help="Holds only where it does for so long.",
        rich_help_panel=_HOW_LONG,
    ),
]
AttemptTimeoutFlag = Annotated[
    str | None,
    typer.Option("--attempt-timeout", metavar="DURATION", help="Of one attempt.", rich_help_panel=_HOW_LONG),
]
EveryFlag = Annotated[
    str | None,
    typer.Option(
        "--every",
        "-e",
        metavar="DURATION",
        help="The fixed strategy with this interval.",
        rich_help_panel=_POLLING,
    ),
]
MethodFlag = Annotated[
    str | None,
    typer.Option(
        "--method", "-X", metavar="METHOD", help="GET, or POST with a body.", rich_help_panel=_REQUEST
    ),
]
HeaderFlag = Annotated[
    Texts,
    typer.Option(
        "--header", "-H", metavar="NAME: TEXT", help="May hold ${VARIABLES}.", rich_help_panel=_REQUEST
    ),
]
BodyFlag = Annotated[
    str | None,
    typer.Option(
        "--body",
        "-d",
        metavar="TEXT",
        help="JSON or any text. May hold ${VARIABLES}.",
        rich_help_panel=_REQUEST,
    ),
]
RetryOnFlag = Annotated[
    Texts,
    typer.Option(
        "--retry-on", metavar="KIND", help="Failed calls after which it asks again.", rich_help_panel=_REQUEST
    ),
]
HintClampFlag = Annotated[
    str | None,
    typer.Option(
        "--hint-clamp", metavar="DURATION", help="The longest Retry-After believed.", rich_help_panel=_REQUEST
    ),
]
FileFlag = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="A TOML file with the keys of one wait.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; say only what went wrong.")]
