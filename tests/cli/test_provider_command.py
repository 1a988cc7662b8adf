"""``bide provider test``: promise by promise, in a place of its own, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner

from bide.cli import trial
from bide.cli.main import cli
from bide.testing.conformance import PROMISES
from tests.cli.rig import Ran
from tests.providers.postgres_server import VERSIONS, Server, run_sql


def run(folder: Path, *arguments: str) -> Ran:
    """The command as a user has it: a process of its own, since it runs pytest."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "bide", "provider", "test", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def kept_in(path: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute("SELECT id, state, payload FROM work_items"))
    finally:
        connection.close()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that are not installed."""
    missing: set[str] = set()
    monkeypatch.setattr(trial, "find_spec", lambda name: None if name in missing else object())
    return missing


def test_each_promise_has_its_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "memory://")
    assert ran.status == 0, ran.out + ran.err
    lines = ran.out.splitlines()
    for number, promise in PROMISES.items():
        (line,) = [line for line in lines if line.endswith(promise)]
        assert line.split()[:2] == [str(number), "kept"]
    assert lines[-1].split()[0] == "kept"
    assert "the memory of this process" in ran.err
    assert "nothing is broken" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_tested_beside_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "work.db"
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE work_items (id, state, payload)")
    connection.execute("INSERT INTO work_items VALUES ('mine', 'precious', 'data')")
    connection.close()
    before = file.read_bytes()
    # What the user's own tests are configured with does not count.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\nasyncio_mode = strict\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('imported')\n")
    ran = run(tmp_path, "sqlite:///work.db?synchronous=normal", "--json")
    assert ran.status == 0, ran.out + ran.err
    assert f"{tmp_path}/bide_test_" in ran.err
    assert file.read_bytes() == before
    assert kept_in(file) == [("mine", "precious", "data")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conftest.py", "pytest.ini", "work.db"]
    told = json.loads(ran.out)
    assert told["kept"] is True
    assert told["provider"] == str(file)
    assert [one["number"] for one in told["promises"]] == [*PROMISES, None]
    assert {one["verdict"] for one in told["promises"]} == {"kept"}
    assert sum(one["tests"] for one in told["promises"]) > 300
    assert not any(one["broken"] for one in told["promises"])


def test_a_database_is_tested_in_a_schema_that_is_gone_afterwards(tmp_path: Path) -> None:
    server, few = Server(VERSIONS[0]), [f"-p{number}" for number in (3, 8, 16)]
    try:
        server.start()
        ran = run(tmp_path, server.address(options="?pool=3"), *few, "--json")
        schemas = asyncio.run(
            run_sql(server.address(), "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bide%'")
        )
    finally:
        server.remove()
    told = json.loads(ran.out)
    assert [(one["number"], one["verdict"]) for one in told["promises"]] == [
        (3, "kept"),
        (8, "kept"),
        (16, "kept"),
    ]
    assert ran.status == 0
    assert "(schema bide_test_" in ran.err
    assert schemas == []


def test_a_store_that_cannot_be_had_is_one_error(tmp_path: Path) -> None:
    for address, reason in {
        "sqlite:///none/work.db": "no folder for the test can be made",
        "postgresql://secret:word@127.0.0.1:1/none": "cannot be reached",
        "mysql://localhost": "is no kind of store",
        "redis://:secretword@127.0.0.1:1": "host and port in the address",
        "sqlite:///work.db?speed=high": "no option",
    }.items():
        ran = run(tmp_path, address)
        assert (ran.status, ran.out) == (1, "")
        assert ran.err.splitlines()[-1].startswith("error: ")
        assert reason in ran.err
        assert "word" not in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["pytest", "pytest_asyncio"])
def test_what_is_missing_is_said_in_one_sentence(module: str, without: set[str]) -> None:
    without.add(module)
    result = CliRunner().invoke(cli, ["provider", "test", "memory://"])
    ran = Ran(result.exit_code, result.stdout, result.stderr)
    assert (ran.status, ran.out) == (3, "")
    (line,) = ran.err.splitlines()
    assert "pip install pytest pytest-asyncio" in line
    assert module.replace("_", "-") in line
