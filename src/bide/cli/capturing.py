"""Running a command for what it writes, never through a shell, and ending all of it when it is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO

from bide.cli.outside import safe
from bide.core.seen import CommandResult
from bide.errors import BideError

CAP = 10 * 1024 * 1024
"""Most bytes that a command may write, as of an answer's body."""

_LOOK_S = 0.1
"""Seconds between two looks at how much was written."""

_TERM_GRACE_S = 0.5
"""Seconds between asking a command to end (SIGTERM) and ending it (SIGKILL)."""

_TAIL = 400
"""Characters of standard error that are kept."""


_SHORT_OF = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Why a command may not start now and may in a moment."""


class NotRun(BideError):
    """The command cannot be run at all, or, where that is ``passing``, not now."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        self.passing = passing
        super().__init__(message)


class WroteTooMuch(BideError):
    """The command wrote more than is kept."""


async def captured(argv: Sequence[str]) -> CommandResult:
    """Run ``argv`` without input to its end, and answer how it ended and what it wrote.

    When the caller is cancelled, the command and its children are asked to end, and soon ended. Raises
    :class:`NotRun` and :class:`WroteTooMuch`.
    """
    # Files, not pipes: a command that leaves a child behind holds no pipe open.
    with TemporaryFile() as out, TemporaryFile() as err:
        process = await _started(argv, out, err)
        try:
            ending = asyncio.ensure_future(process.wait())
            while not ending.done():
                await asyncio.wait({ending}, timeout=_LOOK_S)
                if _size(out) > CAP or _size(err) > CAP:
                    raise WroteTooMuch(f"command {argv[0]!r} wrote more than {CAP} bytes")
        finally:
            ending.cancel()
            await _end(process)
        status = process.returncode or 0
        out.seek(0)
        return CommandResult(status if status >= 0 else 128 - status, out.read(), _tail(err))


async def _started(argv: Sequence[str], out: IO[bytes], err: IO[bytes]) -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    )
    passing = False
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # it may be there in a moment, and nobody would end it
        with contextlib.suppress(OSError, ValueError):
            await _end(await starting)
        raise
    except FileNotFoundError:
        reason = f"command {argv[0]!r} was not found; give its whole path or mend PATH"
    except OSError as error:
        passing = error.errno in _SHORT_OF
        reason = f"command {argv[0]!r} could not be started: {error.strerror}"
    except ValueError as error:
        reason = f"command {argv[0]!r} could not be started: {error}"
    raise NotRun(reason, passing=passing)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that the whole process group is gone, unless the command ended by itself."""
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({ended}, timeout=_TERM_GRACE_S)
    finally:
        _signal(process, signal.SIGKILL)  # also what the command began and left behind
    await ended


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _tail(err: IO[bytes]) -> str:
    err.seek(max(0, err.seek(0, os.SEEK_END) - 4 * _TAIL))
    return safe(err.read().decode(errors="replace").strip()[-_TAIL:])
