"""What ``doctor`` does: has a store examined, and prints each finding as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bide.cli.interrupting import Interrupted, unless_interrupted
from bide.cli.opening import load
from bide.cli.output import write_out
from bide.cli.outside import safe
from bide.cli.printing import console, print_json, print_text
from bide.clock import Clock, SystemClock
from bide.core.findings import Finding, Judgement, is_usable
from bide.stores import examined, filled

if TYPE_CHECKING:
    from bide.app import App

LONGEST_S = 60.0
"""Seconds that an examiner may take for one finding; it bounds itself more closely where it can."""

_SLOW_S = 1.0
_CLEARED = "\r\x1b[2K"
_STYLES: dict[Judgement, str] = {
    "good": "green",
    "doubtful": "yellow",
    "refused": "bold red",
    "unknown": "dim",
}
_JUDGEMENT, _SUBJECT = 10, 23
"""Columns of each."""
_NARROWEST = 20


def examine_store(url: str | None, target: str, *, strict: bool, as_json: bool) -> bool:
    """Print what is found of a store; whether bide runs on it, and with ``strict`` whether nothing is doubtful.

    Raises ``DeclarationError`` and ``SettingError`` for an address that is wrong, and ``typer.Exit`` for a signal.
    """
    app = _app_of(url, target)
    address = filled(app.declarations.provider, app.environment)
    clock = SystemClock()
    findings: list[Finding] = []

    async def look() -> None:
        async with contextlib.aclosing(_bounded(examined(address, app.folder, clock), clock)) as found:
            async for finding in found:
                findings.append(finding)
                if not as_json:
                    _print(finding)

    if not as_json:
        print_text(f"{app.location}\n")
    try:
        asyncio.run(unless_interrupted(look()))
    except Interrupted as interrupted:
        raise typer.Exit(interrupted.status) from None
    if as_json:
        print_json(
            {
                "store": app.location,
                "usable": is_usable(findings),
                "findings": [_as_json(finding) for finding in findings],
            }
        )
    else:
        print_text(f"\n{_verdict(findings)}")
    return is_usable(findings) and not (strict and any(one.judgement == "doubtful" for one in findings))


def _app_of(url: str | None, target: str) -> App:
    if url is None:
        return load(target)
    from bide.app import App

    return App(url, folder=Path.cwd(), environment=os.environ)


async def _bounded(findings: AsyncIterator[Finding], clock: Clock) -> AsyncGenerator[Finding, None]:
    """``findings``, of which none takes too long; a terminal is told where one takes a while."""
    coming = aiter(findings)
    try:
        while True:
            with _saying_so(clock):
                async with asyncio.timeout(LONGEST_S):
                    finding = await anext(coming)
            yield finding
    except StopAsyncIteration:
        return
    except TimeoutError:
        yield Finding(
            "time",
            "refused",
            f"nothing more was found out in {LONGEST_S:.0f} s",
            "see whether the store answers at all, and look again",
        )
    finally:
        close: Any = getattr(coming, "aclose", None)
        if close is not None:
            await close()


@contextlib.contextmanager
def _saying_so(clock: Clock) -> Iterator[None]:
    """Say on a terminal for how long something goes on, once it is long."""
    if not sys.stderr.isatty():
        yield
        return
    shown = False

    async def tell() -> None:
        nonlocal shown
        began = clock.monotonic()
        while True:
            await clock.sleep(_SLOW_S)
            shown = True
            _write(f"{_CLEARED}looking, {clock.monotonic() - began:.0f} s")

    telling = asyncio.ensure_future(tell())
    try:
        yield
    finally:
        telling.cancel()
        if shown:
            _write(_CLEARED)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _print(finding: Finding) -> None:
    """The finding in a line or a few, wrapped beside its subject where a terminal is narrow."""
    from rich.text import Text

    to = console()
    head = Text.assemble(
        (f"{finding.judgement:<{_JUDGEMENT}}", _STYLES[finding.judgement]), f"{finding.subject:<{_SUBJECT}}  "
    )
    width = max(_NARROWEST, to.width - len(head))
    said = [safe(finding.found)] + ([f"-> {safe(finding.step)}"] if finding.step else [])
    lines = [line for part in said for line in textwrap.wrap(part, width, break_on_hyphens=False)]
    with to.capture() as captured:
        for at, line in enumerate(lines):
            to.print(Text.assemble(head if not at else " " * len(head), line), soft_wrap=True)
    write_out(captured.get().rstrip("\n"))


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "judgement": finding.judgement,
        "found": finding.found,
        "step": finding.step or None,
        "value": finding.value,
        "unit": finding.unit or None,
    }


def _verdict(findings: list[Finding]) -> str:
    refused = [one.subject for one in findings if one.judgement == "refused"]
    doubtful = [one.subject for one in findings if one.judgement == "doubtful"]
    if refused:
        return f"bide does not run on it: {', '.join(refused)}"
    if doubtful:
        return f"bide runs on it; doubtful: {', '.join(doubtful)}"
    return "bide runs on it, and nothing is doubtful"
