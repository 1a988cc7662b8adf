"""Standard output and error as they may be: closed, full, or unable to write every character."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TextIO

from bide.cli.outside import ascii_json, safe
from bide.errors import BideError


class OutputLost(BideError):
    """Standard output cannot be written. ``closed``: whoever read it has left, so nobody needs to be told."""

    def __init__(self, error: OSError) -> None:
        self.closed = error.errno == errno.EPIPE
        super().__init__(f"standard output cannot be written: {error.strerror or error}")


def write_out(text: str) -> None:
    """Write lines of the result. Raises :class:`OutputLost`."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error) from error


def write_bytes(data: bytes) -> None:
    """Write a result as it came, with a line end behind it; on a terminal as text that cannot move the cursor.

    Raises :class:`OutputLost`.
    """
    if sys.stdout.isatty():
        write_out(safe(data.decode("utf-8", "replace").removesuffix("\n")))
        return
    try:
        sys.stdout.buffer.write(data if data.endswith(b"\n") or not data else data + b"\n")
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error) from error


def write_json(text: str) -> None:
    """Write JSON, escaping what the encoding of standard output lacks. Raises :class:`OutputLost`."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = ascii_json(text)
    write_out(text)


def write_err(text: str) -> None:
    """Write lines beside the result; where that cannot be done there is nobody to tell."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{safe(text)}\n")
        sys.stderr.flush()


def take_streams() -> None:
    """Let characters that the encodings of standard output and error lack come out escaped.

    A stream that was closed before the program began takes everything and keeps nothing.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> bool:
    """Flush what is left; whether all was written. What was not is dropped, so that the exit says nothing of it."""
    fine = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            fine = False
            _drop(stream)
    return fine


def _drop(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
