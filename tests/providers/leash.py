"""Servers of tests end with the run that started them, however that ends: a process beside it sees to that.

A run that is killed runs no fixture to its end. The process beside it waits for its pipe to be closed, which the
kernel does for the dead too; then it kills what was put on the leash, with all children, and removes the folders.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

import psutil


def leash(process: subprocess.Popen[Any], folder: Path | None = None) -> None:
    """Let ``process`` end with this one, and remove ``folder`` then."""
    pipe = _watcher()
    pipe.write(json.dumps({"pid": process.pid, "folder": folder and str(folder)}) + "\n")
    pipe.flush()


@cache
def _watcher() -> IO[str]:
    """The pipe to the process beside this one. It has a session of its own, so that Ctrl-C does not reach it."""
    watcher = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert watcher.stdin is not None
    _kept.append(watcher)
    return watcher.stdin


_kept: list[subprocess.Popen[str]] = []
"""Kept for as long as this process lives, so that nobody misses its end."""


def _watch(lines: Iterator[str]) -> None:
    held: list[psutil.Process] = []
    folders: list[str] = []
    for line in lines:
        told = json.loads(line)
        with contextlib.suppress(psutil.NoSuchProcess):
            held.append(psutil.Process(told["pid"]))
        if told["folder"]:
            folders.append(told["folder"])
    for process in held:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (*process.children(recursive=True), process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
    psutil.wait_procs(held, timeout=5)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(sys.stdin)
