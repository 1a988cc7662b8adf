"""Running a command for a delivery: the event on standard input, never through a shell."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile

from bide.clock import Clock

_TAIL = 400
"""Characters of standard error that are kept to explain a failure."""

_TERM_GRACE_S = 2.0
"""Seconds between asking a command to end (SIGTERM) and ending it (SIGKILL)."""


async def run_command(
    argv: Sequence[str],
    payload: bytes,
    *,
    environment: Mapping[str, str],
    folder: str | None,
    limit_s: float,
    clock: Clock,
) -> str | None:
    """Run ``argv`` with ``payload`` on its standard input; None where it ended with status 0, else why not.

    After ``limit_s`` seconds, or when the caller is cancelled, the command and its children are ended.
    """
    # Files, not pipes: a command that leaves a child behind holds no pipe open, and one that never reads
    # its input blocks nobody.
    with TemporaryFile() as stdin, TemporaryFile() as stderr:
        stdin.write(payload)
        stdin.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        except FileNotFoundError:
            return f"command {argv[0]!r} was not found; give its whole path or mend PATH"
        except OSError as error:
            return f"command {argv[0]!r} could not be started: {error.strerror}"
        if not await _ends_within(process, limit_s, clock):
            return f"command {argv[0]!r} had not ended after {limit_s:g} s"
        if process.returncode == 0:
            return None
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 4 * _TAIL))
        tail = stderr.read().decode(errors="replace").strip()[-_TAIL:]
        return f"command {argv[0]!r} {_ended(process.returncode)}" + (f": {tail}" if tail else "")


async def _ends_within(process: asyncio.subprocess.Process, limit_s: float, clock: Clock) -> bool:
    """Whether it ends by itself within ``limit_s``; it has ended in any case when this returns or raises."""
    ending = asyncio.ensure_future(process.wait())
    limit = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({ending, limit}, return_when=asyncio.FIRST_COMPLETED)
        return ending.done()
    finally:
        limit.cancel()
        ending.cancel()
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that the whole process group is gone."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    ended = asyncio.ensure_future(process.wait())
    await asyncio.wait({ended}, timeout=_TERM_GRACE_S)
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await ended


def _ended(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
