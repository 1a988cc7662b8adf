"""Real servers that speak S3, for tests: SeaweedFS, the emulator, and one that ignores conditions.

All from wheels. A server that cannot be started fails the tests that need it, loudly: they are never skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tests.providers.leash import leash
from tests.providers.postgres_server import free_port

START_S = 60
BUCKET = "jobs"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}
"""What the servers take. Tests set them in the environment, where users have theirs."""


class S3Server:
    """A server with a folder of its own, on free ports of this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.metrics_port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"bide-{name}-"))
        self._command, self._environment = _COMMANDS[name](self)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, prefix: str = "bide", options: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?region=us-east-1&endpoint={self.endpoint}{options}"

    def start(self) -> None:
        """Start, wait until it answers, and make the bucket."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self._environment},
            )
        leash(self._process, self.folder)
        began = time.monotonic()
        while not self._makes_bucket():
            if self._process.poll() is not None or time.monotonic() - began > START_S:
                raise RuntimeError(f"{self.name} did not start:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Stop it, by default as a crash does; what it had kept is there when it starts again."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for each in (*process.children(recursive=True), process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(how)
        self._process.wait(timeout=START_S)

    def remove(self) -> None:
        """Stop, and leave nothing."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _makes_bucket(self) -> bool:
        from obstore.store import S3Store

        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        with contextlib.suppress(OSError):
            request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=5).close()
        try:
            store.put("ready", b"")
            store.delete("ready")
        except Exception:
            return False
        return True


def _seaweedfs(server: S3Server) -> tuple[Sequence[str], dict[str, str]]:
    ports = (
        *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
        *("filer.port", "filer.port.grpc", "s3.port.grpc"),
    )
    given = [f"-{name}={free_port()}" for name in ports]
    return (
        _program("weed"),
        *("-logtostderr", "-v=0", "mini", f"-dir={server.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-master.telemetry=false", "-admin.ui=false", "-webdav=false", "-s3.iam=false"),
        *(
            f"-s3.port={server.port}",
            f"-metricsPort={server.metrics_port}",
            "-metricsIp=127.0.0.1",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=true",
        ),
        *given,
    ), {}


def _ministack(server: S3Server) -> tuple[Sequence[str], dict[str, str]]:
    program = Path(sys.executable).parent.parent / "emulator" / "bin" / "ministack"
    return (str(program),), {"GATEWAY_PORT": str(server.port), "BIND_HOST": "127.0.0.1", "SERVICES": "s3"}


def _nanio(server: S3Server) -> tuple[Sequence[str], dict[str, str]]:
    (server.folder / BUCKET).mkdir()
    command = (
        _program("nanio"),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(server.port),
        "--data-dir",
        str(server.folder),
    )
    return (*command, "--log-level", "error", "--no-access-log"), {
        "NANIO_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "NANIO_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


_COMMANDS: dict[str, Callable[[S3Server], tuple[Sequence[str], dict[str, str]]]] = {
    "seaweedfs": _seaweedfs,
    "ministack": _ministack,
    "nanio": _nanio,
}
