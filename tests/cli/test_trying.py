"""`sample` and `demo` as a newcomer runs them: processes of their own, without a terminal and without a network."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.cli.rig import Project, ended, stop


async def test_sample_serves_prices_until_a_signal(project: Project) -> None:
    process = project.start("sample", "--port", "0")
    assert process.stdout is not None
    url = process.stdout.readline().split()[2].rstrip(",")
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert (await response.json())["s"] == "OAK"
    done = stop(process, signal.SIGINT)
    assert done.status == 0
    assert done.out.endswith("GET /price 200\n")
    assert done.err == ""


async def test_sample_ends_quietly_where_nobody_reads_it_any_more(project: Project) -> None:
    process = project.start("sample", "--port", "0")
    assert process.stdout is not None
    url = process.stdout.readline().split()[2].rstrip(",")
    process.stdout.close()
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
    assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_sample_says_that_its_port_is_taken(project: Project) -> None:
    taken = project.bide("sample", "--port", project.shop.url.rpartition(":")[2])
    assert taken.status == 1
    assert "cannot be used" in taken.err
    assert "--port" in taken.err


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-W", "error", "-m", "bide", "demo", "--seconds", "4"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return folder / "demo-run", done


def test_the_demo_ends_by_itself_and_says_what_it_did(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = demo
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout
    assert "0 retried, 0 dead" in done.stdout
    assert "signatures verified by the receiver, 0 refused" in done.stdout
    assert str(folder / "bide.db") in done.stdout
    for subscriber in ("audit", "ledger", "notice", "bargain"):
        assert f"{subscriber} " in done.stdout
    assert "eu.oak changed" in done.stderr
    assert "mkdir ../my-polls && cd ../my-polls && python -m bide init" in done.stdout
    assert "!" not in done.stderr


def test_every_subscriber_of_the_demo_got_every_event(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = demo

    def bide(*arguments: str) -> str:
        command = [sys.executable, "-m", "bide", *arguments, "-a", "prices:app"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    events = json.loads(bide("events", "list", "--json", "--limit", "1000"))["events"]
    deliveries = json.loads(bide("deliveries", "list", "--json", "--limit", "1000"))["deliveries"]
    prices = {event["id"] for event in events if event["type"] == "shop.PriceChanged"}
    assert len(prices) >= 3
    for subscriber in ("audit", "ledger", "notice"):
        told = {one["event_id"] for one in deliveries if one["subscriber"] == subscriber}
        assert told == prices
    assert {one["state"] for one in deliveries} == {"succeeded"}
    kept = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in kept] == sorted(line["seq"] for line in kept)
    assert {line["id"] for line in kept} == prices


def test_the_demo_ends_on_a_signal_and_keeps_files_that_are_there(project: Project) -> None:
    folder = project.folder / "mine"
    folder.mkdir()
    (folder / "ledger.py").write_text("import sys\nsys.stdin.read()\n")
    process = project.start("demo", "--folder", "mine", "--seconds", "600")
    assert process.stderr is not None
    for line in process.stderr:
        if "delivered to ledger" in line:
            break
    done = stop(process, signal.SIGINT)
    assert done.status == 0
    assert "mine/ledger.jsonl has no lines" in done.out
    assert "cd mine" in done.out


def test_the_demo_says_that_its_folder_cannot_be_used(project: Project) -> None:
    (project.folder / "taken").write_text("a file")
    refused = ended(project.start("demo", "--folder", "taken"))
    assert refused.status == 1
    assert "--folder" in refused.err


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300", "100000"])
def test_a_time_that_is_none_is_refused(project: Project, seconds: str) -> None:
    for command in (["demo", "--seconds", seconds], ["sample", "--port", "0", "--step", seconds]):
        refused = project.bide(*command)
        assert (refused.status, refused.out) == (2, "")
    assert not (project.folder / "demo-run").exists()


def test_on_a_terminal_there_is_a_live_view(project: Project) -> None:
    """The same under a terminal of 80 by 24, as its lines come."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-W", "error", "-m", "bide", "run"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm-256color"
    process = subprocess.Popen(
        command, cwd=project.folder, env=environment, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    seen, stopped = "", False
    with suppress(OSError):  # the terminal is gone with its last user
        while select.select([master], [], [], 60)[0] and (read := os.read(master, 65536)):
            seen += read.decode(errors="replace")
            if not stopped and "price 101.5" in seen and "succeeded" in seen:
                stopped = True
                process.send_signal(signal.SIGINT)
    os.close(master)
    assert process.wait(timeout=60) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    for part in ("eu.price", "symbol OAK", "audit", "webhook", "Ctrl-C stops", "1 changed"):
        assert part in plain
    assert all(len(line.rstrip()) <= 80 for line in plain.replace("\r", "\n").split("\n")[:-5])
    assert "1 poll called in" in plain
