"""A test run that is killed leaves no server and no folder behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

LONGEST_S = 30

_STARTS = {
    "valkey": "from tests.providers.redis_server import Server as S; s = S(); s.start(); print(s.folder)",
    "sqs": "from tests.providers.sqs_server import Emulator as E; e = E(); print('')",
    "s3": "from tests.providers.s3_server import S3Server as S; s = S('seaweedfs'); s.start(); print(s.folder)",
    "postgres": "from tests.providers.postgres_server import Server as S, VERSIONS; s = S(VERSIONS[0]); s.start(); "
    "print(s._folder)",
}


@pytest.mark.parametrize("kind", _STARTS)
def test_a_killed_run_leaves_no_server(kind: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", f"{_STARTS[kind]}; import sys; sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    folder = run.stdout.readline().strip()
    started = psutil.Process(run.pid).children(recursive=True)
    try:
        assert len(started) >= 2, "the server, and what watches it"
        assert not folder or Path(folder).exists()
        run.kill()
        run.wait()
        _, alive = psutil.wait_procs(started, timeout=LONGEST_S)
        assert not alive
        until = time.monotonic() + LONGEST_S
        while folder and Path(folder).exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not folder or not Path(folder).exists()
    finally:
        run.kill()
        run.communicate()
