"""``bide doctor``: findings as they come, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from bide import stores
from bide.cli import doctoring
from bide.clock import Clock
from bide.core.findings import Finding
from bide.providers.memory import examining
from tests.cli.rig import Project, stop

Examine = Callable[[str, Path, Clock], AsyncGenerator[Finding, None]]

GOOD = Finding("round trip", "good", "1 ms", "", 1.0, "ms")
DOUBTFUL = Finding("persistence", "doubtful", "nothing is written to disk", "set appendonly yes")
REFUSED = Finding("conditions", "refused", "the server ignores If-None-Match", "use another server")
UNKNOWN = Finding("policy", "unknown", "the user may not read it", "grant it")


def finds(*findings: Finding) -> Examine:
    async def examine(address: str, folder: Path, clock: Clock) -> AsyncGenerator[Finding, None]:
        for finding in findings:
            yield finding

    return examine


@pytest.mark.parametrize(
    ("findings", "statuses", "verdict"),
    [
        ((GOOD,), (0, 0), "bide runs on it, and nothing is doubtful"),
        ((GOOD, UNKNOWN), (0, 0), "bide runs on it, and nothing is doubtful"),
        ((GOOD, DOUBTFUL), (0, 1), "bide runs on it; doubtful: persistence"),
        ((DOUBTFUL, REFUSED), (1, 1), "bide does not run on it: conditions"),
    ],
)
def test_it_ends_as_the_findings_are(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    findings: tuple[Finding, ...],
    statuses: tuple[int, int],
    verdict: str,
) -> None:
    monkeypatch.setattr(examining, "examine", finds(*findings))
    ran = project.bide("doctor", "memory://")
    assert ran.status == statuses[0]
    assert ran.out.splitlines()[-1] == verdict
    for finding in findings:
        assert finding.found in ran.out
        assert finding.step in ran.out
    assert project.bide("doctor", "memory://", "--strict").status == statuses[1]


def test_json_has_the_same_findings(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "examine", finds(GOOD, REFUSED))
    ran = project.bide("doctor", "memory://", "--json")
    assert ran.status == 1
    assert ran.json == {
        "store": "memory",
        "usable": False,
        "findings": [
            {
                "subject": "round trip",
                "judgement": "good",
                "found": "1 ms",
                "step": None,
                "value": 1.0,
                "unit": "ms",
            },
            {
                "subject": "conditions",
                "judgement": "refused",
                "found": "the server ignores If-None-Match",
                "step": "use another server",
                "value": None,
                "unit": None,
            },
        ],
    }


def test_without_an_address_the_store_of_the_app_is_examined(project: Project) -> None:
    ran = project.bide("doctor")
    assert ran.status == 0
    assert str(project.folder / "bide.db") in ran.out
    assert not (project.folder / "bide.db").exists()
    assert [path.name for path in project.folder.iterdir()] == ["bide.toml"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlte:///x.db", "not the address of a store that is known"),
        ("sqlite://x.db", "too few slashes"),
        ("postgresql://u:canary@h/d?pol=3", "pol"),
        ("${NOT_SET_HERE}", "NOT_SET_HERE is not set"),
    ],
)
def test_an_address_that_is_wrong_is_told_and_nothing_is_examined(
    project: Project, url: str, said: str
) -> None:
    ran = project.bide("doctor", url)
    assert ran.status == 1
    assert said in ran.err
    assert "canary" not in ran.err + ran.out
    assert ran.out == ""


def test_a_server_that_is_away_is_a_finding_and_no_traceback(project: Project) -> None:
    ran = project.bide("doctor", "postgresql://u:canary@127.0.0.1:1/d")
    assert ran.status == 1
    assert "postgresql://127.0.0.1:1/d" in ran.out
    assert "-> check that it runs" in ran.out
    assert "canary" not in ran.err + ran.out


def test_an_examiner_that_hangs_is_ended_and_said_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    async def examine(address: str, folder: Path, clock: Clock) -> AsyncGenerator[Finding, None]:
        try:
            yield GOOD
            await asyncio.sleep(3600)
        finally:
            closed.append(True)

    monkeypatch.setattr(examining, "examine", examine)
    monkeypatch.setattr(doctoring, "LONGEST_S", 0.05)
    ran = project.bide("doctor", "memory://")
    assert ran.status == 1
    assert "nothing more was found out" in ran.out
    assert closed == [True]


def test_text_from_a_server_cannot_move_the_cursor(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "examine", finds(Finding("version", "good", "9\x1b[2Jx")))
    assert "9\\x1b[2Jx" in project.bide("doctor", "memory://").out


def test_a_long_finding_is_one_line_for_grep(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "examine", finds(Finding("version", "good", "word " * 100)))
    (line,) = [line for line in project.bide("doctor", "memory://").out.splitlines() if "version" in line]
    assert line.count("word") == 100


def test_a_driver_that_is_missing_is_named_with_what_installs_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    monkeypatch.setattr(stores, "import_module", missing)
    ran = project.bide("doctor", "postgresql://h/d")
    assert ran.status == 1
    assert "pip install 'bide[postgres]'" in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_left_behind(project: Project, number: int) -> None:
    hang = (
        "import asyncio, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # of whoever runs the tests without it
        "from bide.providers.sqlite import examining\n"
        "async def slow(*_):\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(3600)\n"
        "examining.median_ms = slow\n"
        "from bide.cli.main import run\n"
        "sys.argv = ['bide', 'doctor', 'sqlite:///work.db']\n"
        "run()\n"
    )
    (project.folder / "hang.py").write_text(hang)
    process = subprocess.Popen(
        [sys.executable, "hang.py"],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        pass
    assert any(path.name.startswith(".bide-doctor-") for path in project.folder.iterdir())
    assert stop(process, signal.Signals(number)).status == 128 + number
    left = {path.name for path in project.folder.iterdir()}
    assert left == {"bide.toml", "hang.py"}
