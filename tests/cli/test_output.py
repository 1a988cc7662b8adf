"""Standard output that is full, closed or of another encoding: no traceback, and an exit status that tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bide.cli.outside import ascii_json, safe, safe_json, safe_line
from tests.cli.rig import Project

COMMANDS = (["--help"], ["plan"], ["plan", "--json"], ["check"], ["status"], ["status", "--json"], ["tick"])


def bide(
    project: Project, *arguments: str, out: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-W", "error", "-m", "bide", *arguments],
        cwd=project.folder,
        env=os.environ | environment,
        stdout=out,  # type: ignore[call-overload]  # a file or a number of subprocess
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_device_is_one_line_and_exit_status_one(project: Project, command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = bide(project, *command, out=full)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: standard output cannot be written: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_a_reader_that_left_needs_no_message(project: Project, command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = bide(project, *command, out=closed)
    assert (done.returncode, done.stderr) == (1, "")


def test_ascii_output_escapes_and_its_json_stays_json(project: Project) -> None:
    project.shop.symbol = "Bäume → \U0001f332"
    project.bide("tick")
    for form in ([], ["--json"]):
        done = bide(project, "events", "list", *form, out=subprocess.PIPE, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
    assert json.loads(done.stdout)["events"][0]["data"]["symbol"] == project.shop.symbol


def test_what_is_unsafe_is_escaped_and_nothing_else() -> None:
    plain = "Bäume → 🌲 101.5\tx\ny"
    assert safe(plain) == plain
    assert safe("\x1b[0m\x7f\x85\u202e\ud800") == "\\x1b[0m\\x7f\\x85\\u202e\\ud800"
    assert safe_line("a\tb\nc") == "a\\tb\\nc"


def test_escaped_json_is_the_same_value() -> None:
    value = {"a": "\x7f\x9b\u202e\u2028🌲\ud800"}
    text = json.dumps(value, indent=2, ensure_ascii=False)
    assert json.loads(safe_json(text)) == value
    assert json.loads(ascii_json(text)) == value
    assert "\x9b" not in safe_json(text)
    assert ascii_json(text).isascii()
