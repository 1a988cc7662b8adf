"""A real process of an emulator of SQS for tests, on loopback: one for a run, with a clock that tests set.

One that cannot be started fails the tests that need it, loudly: they are never skipped.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.providers.leash import leash

START_S = 60

_LAUNCHER = Path(__file__).with_name("sqs_emulator.py")
_PYTHON = Path(sys.prefix) / "emulator" / "bin" / "python"

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "eu-west-1"}
"""What a process that asks it has in its environment."""


class Emulator:
    """MiniStack on a free port. ``clocked``: with the clock and the side door of ``sqs_emulator``."""

    def __init__(self, *, clocked: bool = True) -> None:
        assert _PYTHON.exists(), "the emulator is needed: make install-emulator"
        self.port = free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        command = [str(_PYTHON), str(_LAUNCHER)] if clocked else [str(_PYTHON), "-m", "ministack"]
        environment = {
            **os.environ,
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "LOG_LEVEL": "WARNING",
        }
        self._process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)
        leash(self._process)
        began = time.monotonic()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() - began > START_S:
                self._log.seek(0)
                raise RuntimeError(
                    f"the emulator did not start:\n{self._log.read().decode(errors='replace')}"
                )
            time.sleep(0.05)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, prefix: str, options: str = "create=true") -> str:
        """The address of a store in it."""
        return f"sqs://{prefix}?region=eu-west-1&endpoint={self.endpoint}&{options}"

    def stop(self) -> None:
        """Stop it and leave nothing."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2):
                return True
        except OSError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
