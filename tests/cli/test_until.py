"""`bide until`: addresses, commands and declared waits, how it ends, and what it says meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from bide.cli.answers import Teller
from bide.cli.main import cli
from bide.cli.waiting import Watched
from bide.core.acceptors import Acceptors
from bide.core.http import Headers, Response
from bide.core.seen import CommandResult
from bide.core.waited import AttemptEnded
from bide.errors import CallError
from bide.testing import VirtualClock
from tests.cli.rig import Ran
from tests.servers import Answer, RawServer, Received, refused_url, server_tls

QUICK = ("--every", "20ms")


def bide_until(*arguments: str) -> Ran:
    """Run the command in this process, as its tests may."""
    result = CliRunner().invoke(cli, ("until", *arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def start_until(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "bide", "until", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[RawServer]:
    """A raw server in a thread of its own, since commands run event loops of theirs."""
    server, ready, loop = RawServer(**settings), threading.Event(), asyncio.new_event_loop()
    closing = asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await closing.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()


@pytest.fixture
def server() -> Iterator[RawServer]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_APP", raising=False)


def states(*words: str) -> list[Answer]:
    return [Answer.json({"state": word}) for word in words]


# --- addresses: how it ends ----------------------------------------------------------------------------------

DONE = ("--condition", "state == `done`", "--failed", "state == `failed`", *QUICK)


def test_a_condition_that_comes_to_hold_ends_with_0_and_prints_the_answer(server: RawServer) -> None:
    server.script("/job", *states("queued", "running", "done"))
    ran = bide_until(server.url("/job"), *DONE, "--status", "200", "--timeout", "10s")
    assert (ran.status, ran.out) == (0, '{"state": "done"}\n')
    assert server.count("/job") == 3
    assert "held after 3 attempts" in ran.err


def test_a_failed_state_ends_with_1_at_once_and_prints_the_answer(server: RawServer) -> None:
    server.script("/job", *states("queued", "failed", "done"))
    ran = bide_until(server.url("/job"), *DONE, "--timeout", "10s")
    assert (ran.status, ran.out) == (1, '{"state": "failed"}\n')
    assert server.count("/job") == 2
    assert "failed after 2 attempts" in ran.err
    assert 'state="failed" (state == `failed`)' in ran.err


def test_a_wait_that_times_out_ends_with_2_and_explains_itself(server: RawServer) -> None:
    server.script("/job", *states("queued"))
    began = time.monotonic()
    ran = bide_until(server.url("/job"), *DONE, "--timeout", "300ms")
    assert time.monotonic() - began < 1.5
    assert (ran.status, ran.out) == (2, "")
    assert re.search(
        r'timed out after \d+ attempts in [23]\d\dms \(.* asking, .* waiting\); last: 200 state="queued"',
        ran.err,
    )


def test_without_a_condition_a_good_status_is_enough(server: RawServer) -> None:
    server.script("/up", Answer(status=503), Answer(status=404), Answer(status=204, framing="none"))
    ran = bide_until(server.url("/up"), *QUICK, "--timeout", "10s")
    assert (ran.status, ran.out, server.count("/up")) == (0, "", 3)


def test_what_is_gone_has_failed_and_a_retry_status_goes_on(server: RawServer) -> None:
    server.script("/gone", Answer(status=410), Answer())
    assert bide_until(server.url("/gone"), *QUICK, "--timeout", "10s").status == 1
    server.script("/gone", Answer(status=410), Answer(body=b"back"))
    ran = bide_until(
        server.url("/gone"), *QUICK, "--timeout", "10s", "--retry-status", "410", "--failed-status", "4xx"
    )
    assert (ran.status, ran.out) == (0, "back\n")


def test_every_way_to_say_what_is_wanted(server: RawServer) -> None:
    server.script(
        "/x",
        Answer(status=202, body=b"a ready"),
        Answer(status=202, headers=(("X-State", "ready"),), body=b"not"),
        Answer(status=202, headers=(("X-State", "ready"), ("X-Id", "1")), body=b"a\nready"),
    )
    wanted = (
        "--status",
        "201",
        "--status",
        "202-203",
        "--output",
        "ready$",
        "--has-header",
        "X-State: ready",
    )
    ran = bide_until(server.url("/x"), *wanted, "--has-header", "X-Id", *QUICK, "--timeout", "10s")
    assert (ran.status, server.count("/x")) == (0, 3)
    ran = bide_until(
        server.url("/x"), "--status", "404", "--failed-output", "^ready", *QUICK, "--timeout", "10s"
    )
    assert ran.status == 1


def test_it_may_have_to_hold_several_times_in_a_row(server: RawServer) -> None:
    server.script("/job", *states("done", "queued", "done", "done", "done"))
    ran = bide_until(server.url("/job"), *DONE, "--times-in-row", "3", "--timeout", "10s")
    assert (ran.status, server.count("/job")) == (0, 5)


def test_it_may_have_to_hold_for_some_time(server: RawServer) -> None:
    server.script("/job", *states("done"))
    began = time.monotonic()
    ran = bide_until(server.url("/job"), *DONE, "--stable-for", "200ms", "--timeout", "10s")
    assert ran.status == 0
    assert time.monotonic() - began >= 0.2


# --- addresses: requests -------------------------------------------------------------------------------------


def test_the_request_is_made_as_it_was_given(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_TOKEN", "s3cret-t0ken")
    server.script("/jobs", Answer())
    body = '{"job": "${JOB_TOKEN}", "at": 1.10}'
    header = ("-H", "Authorization: Bearer ${JOB_TOKEN}", "-H", "X-A:1")
    assert bide_until(server.url("/jobs?a=b"), *header, "--body", body, "--timeout", "5s").status == 0
    assert bide_until(server.url("/jobs"), "-X", "put", "-d", "a=${JOB_TOKEN}", "--timeout", "5s").status == 0
    posted, put = server.requests
    assert (posted.method, posted.query) == ("POST", "a=b")
    assert posted.header("authorization") == "Bearer s3cret-t0ken"
    assert posted.header("x-a") == "1"
    assert posted.header("content-type") == "application/json"
    assert json.loads(posted.body) == {"job": "s3cret-t0ken", "at": 1.1}
    assert (put.method, put.body, put.header("content-type")) == ("PUT", b"a=s3cret-t0ken", None)


def test_secrets_are_not_shown(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_TOKEN", "s3cret-t0ken")

    def echo(request: Received) -> Answer:
        return Answer.json(
            {"you": [request.header("authorization"), request.header("x-key"), request.query]}, status=500
        )

    server.script("/s3cret-t0ken", echo, echo)
    url = server.url("/${JOB_TOKEN}?key=${JOB_TOKEN}")
    secrets = ("-H", "Authorization: Bearer ${JOB_TOKEN}", "-H", "X-Key: literal-k3y")
    ran = bide_until(url, *secrets, *QUICK, "--timeout", "200ms")
    assert ran.status == 2
    assert "${JOB_TOKEN}" in ran.err
    assert "s3cret" not in ran.err
    assert "k3y" not in ran.err
    refused = refused_url("/${JOB_TOKEN}").replace("http://", "http://user:s3cret-t0ken@")
    assert "s3cret" not in bide_until(refused, *QUICK, "--timeout", "200ms", "--retry-on", "tls").err


def test_a_variable_that_is_missing_is_bad_use(server: RawServer) -> None:
    for words in (
        (server.url("/${NO_SUCH}"),),
        (server.url("/x"), "-H", "X: ${NO_SUCH}"),
        (server.url("/x"), "-d", '["${NO_SUCH}"]'),
    ):
        ran = bide_until(*words, "--timeout", "5s")
        assert ran.status == 3
        assert "environment variable NO_SUCH is not set" in ran.err
    assert server.requests == []


def test_redirects_are_followed_and_what_was_meant_for_one_origin_stays_there(server: RawServer) -> None:
    with serving() as other:
        other.script("/there", Answer(body=b"here"))
        server.script("/moved", Answer.redirect(302, other.url("/there")))
        ran = bide_until(server.url("/moved"), "-H", "X-Key: s3cret", "--timeout", "5s")
        assert (ran.status, ran.out) == (0, "here\n")
        assert server.requests[0].header("x-key") == "s3cret"
        assert other.requests[0].header("x-key") is None


def test_a_retry_after_is_honoured_and_clamped(server: RawServer) -> None:
    later = Answer(status=503, headers=(("Retry-After", "1"),))
    server.script("/busy", later, Answer())
    began = time.monotonic()
    assert bide_until(server.url("/busy"), *QUICK, "--timeout", "10s").status == 0
    assert time.monotonic() - began >= 1
    server.script("/busy", Answer(status=503, headers=(("Retry-After", "3600"),)), Answer())
    began = time.monotonic()
    assert bide_until(server.url("/busy"), *QUICK, "--timeout", "10s", "--hint-clamp", "50ms").status == 0
    assert time.monotonic() - began < 5


def test_a_hint_beyond_the_end_ends_the_wait_at_once(server: RawServer) -> None:
    server.script("/busy", Answer(status=429, headers=(("Retry-After", "3600"),)))
    began = time.monotonic()
    ran = bide_until(server.url("/busy"), *QUICK, "--timeout", "1m")
    assert time.monotonic() - began < 5
    assert ran.status == 2
    assert "asked to come back only after its end" in ran.err


def test_a_server_that_is_not_there_yet_is_asked_again(server: RawServer) -> None:
    server.script("/x", Answer.hang_up(abort=True), Answer(body=b"x" * 100, cut=14), Answer(body=b"up"))
    ran = bide_until(server.url("/x"), *QUICK, "--timeout", "10s")
    assert (ran.status, ran.out) == (0, "up\n")
    refused = bide_until(refused_url("/x"), *QUICK, "--timeout", "200ms")
    assert refused.status == 2
    assert "last: connection refused" in refused.err


def test_a_timeout_tells_the_last_trouble_and_the_last_answer(server: RawServer) -> None:
    server.script("/x", *states("queued"), Answer.hang_up(abort=True))
    ran = bide_until(server.url("/x"), *DONE, "--timeout", "200ms")
    assert ran.status == 2
    assert re.search(r'last: the server closed .*; the last answer: 200 state="queued"', ran.err)
    assert ran.err.count("last answer") == 1


def test_kinds_of_failures_to_ask_again_after_are_given(server: RawServer) -> None:
    ran = bide_until(refused_url("/x"), *QUICK, "--timeout", "10s", "--retry-on", "reset,tls")
    assert ran.status == 1
    assert "failed after 1 attempt" in ran.err
    assert "connection refused" in ran.err
    with serving(tls=server_tls(trustme.CA(), "127.0.0.1")) as strange:
        assert bide_until(strange.url("/x"), *QUICK, "--timeout", "10s").status == 1
        assert bide_until(strange.url("/x"), *QUICK, "--timeout", "200ms", "--retry-on", "tls").status == 2


def test_an_answer_without_an_end_is_cut_and_is_a_failure(server: RawServer) -> None:
    server.script("/endless", Answer(endless=b"x" * 65536))
    ran = bide_until(server.url("/endless"), *QUICK, "--timeout", "30s")
    assert ran.status == 1
    assert "more than 10485760 bytes" in ran.err


def test_an_attempt_has_a_limit_of_its_own_and_is_made_again(server: RawServer) -> None:
    server.script("/slow", Answer.silence(), Answer(body=b"ok"))
    ran = bide_until(server.url("/slow"), *QUICK, "--timeout", "10s", "--attempt-timeout", "200ms")
    assert (ran.status, ran.out) == (0, "ok\n")
    server.script("/slow", Answer.silence())
    began = time.monotonic()
    ran = bide_until(server.url("/slow"), *QUICK, "--timeout", "300ms")
    assert ran.status == 2
    assert time.monotonic() - began < 2


# --- what is printed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "outcome"),
    [("/done", 0, "held"), ("/failed", 1, "failed"), ("/queued", 2, "timed_out")],
)
def test_json_tells_all_of_it(server: RawServer, path: str, status: int, outcome: str) -> None:
    server.script(path, *states(path[1:]))
    ran = bide_until(server.url(path), *DONE, "--timeout", "200ms", "--json", "--quiet")
    assert ran.status == status
    told = ran.json
    assert (told["outcome"], told["status"], told["value"]) == (outcome, 200, {"state": path[1:]})
    assert told["attempts"] == server.count(path)
    assert told["elapsed_ms"] >= 0
    assert (told["error"] is None) is (status == 0)


def test_json_keeps_numbers_exact_and_takes_what_is_no_json_as_text(server: RawServer) -> None:
    server.script("/n", Answer(body=b'{"n": 12345678901234567890.123456789}'), Answer(body=b"plain \xff"))
    assert (
        '"value": {"n":12345678901234567890.123456789}'
        in bide_until(server.url("/n"), "--timeout", "5s", "--json").out
    )
    assert bide_until(server.url("/n"), "--timeout", "5s", "--json").json["value"] == "plain \ufffd"
    assert bide_until(refused_url(), "--timeout", "50ms", "--json", "-q").json["value"] is None


def test_the_answer_is_printed_as_it_came(server: RawServer) -> None:
    server.script("/raw", Answer(body=b"\x1b[2J\xff\n"))
    process = start_until(server.url("/raw"), "--timeout", "5s")
    process.wait(30)
    assert process.stdout is not None
    with process:
        assert os.read(process.stdout.fileno(), 100) == b"\x1b[2J\xff\n"


def test_progress_is_told_where_it_changes_and_not_when_quiet(server: RawServer) -> None:
    server.script("/job", *states("queued", "queued", "queued", "running", "running", "done"))
    ran = bide_until(server.url("/job"), *DONE, "--timeout", "10s")
    lines = ran.err.splitlines()
    assert [re.sub(r"\(.*", "", line) for line in lines[:-1]] == [
        'attempt 1: 200 state="queued" ',
        'attempt 4: 200 state="running" ',
    ]
    server.script("/job", *states("queued", "done"))
    quiet = bide_until(server.url("/job"), *DONE, "--timeout", "10s", "--quiet")
    assert (quiet.status, quiet.err, quiet.out) == (0, "", '{"state": "done"}\n')
    server.script("/job", *states("failed"))
    assert bide_until(server.url("/job"), *DONE, "--timeout", "10s", "--quiet").err.startswith(
        "failed after 1 attempt"
    )


def on_a_terminal(*arguments: str, columns: int = 80) -> tuple[int, list[str]]:
    """Run the command on a terminal; how it ended, and each frame that it drew there."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bide", "until", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
    )
    os.close(follower)
    drawn = b""
    with contextlib.suppress(OSError):
        while piece := os.read(leader, 4096):
            drawn += piece
    os.close(leader)
    return process.wait(30), drawn.decode().split("\r\x1b[2K")


@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_has_one_line_that_is_written_over(server: RawServer, columns: int) -> None:
    text = "\x1b[31m" + "long " * 100
    answers = [Answer(status=503, body=text.encode()), *states("queued")]
    server.script("/job", *answers)
    status, frames = on_a_terminal(
        server.url("/job"), *DONE[:4], "--every", "300ms", "--timeout", "1s", columns=columns
    )
    assert status == 2
    begun, ended = frames[:-1], frames[-1]
    assert begun[0] == ""
    assert begun[1] == "attempt 1 (1.0s left), asking"
    assert all("\n" not in frame and "\x1b" not in frame and len(frame) < columns for frame in begun)
    if columns == 80:  # a narrow one has no room for it
        assert any(re.search(r"^attempt 1.*left\), next in 0\.\ds$", frame) for frame in begun)
    assert any('200 state="queued"' in frame for frame in begun)
    assert ended.startswith("timed out after ")


def test_what_an_answer_holds_cannot_move_the_cursor_of_a_terminal(server: RawServer) -> None:
    server.script("/raw", Answer(body=b"\x1b[2Jok"))
    status, frames = on_a_terminal(server.url("/raw"), "--timeout", "5s", "--quiet")
    assert (status, frames) == (0, ["\\x1b[2Jok\r\n"])


# --- commands ------------------------------------------------------------------------------------------------


def counting(then: str) -> tuple[str, ...]:
    """A shell command that knows in $n which attempt it is."""
    return ("sh", "-c", f"echo >> tries; n=$(wc -l < tries); {then}")


def test_a_command_is_run_until_it_succeeds_and_its_output_is_printed() -> None:
    ran = bide_until("--timeout", "10s", *QUICK, "--", *counting("echo $n; test $n -ge 3"))
    assert (ran.status, ran.out.strip()) == (0, "3")
    assert "attempt 1: exit status 1: 1" in ran.err


def test_its_exit_statuses_are_named() -> None:
    wanted = ("--status", "7", "--failed-status", "9")
    assert bide_until("--timeout", "10s", *QUICK, *wanted, "--", *counting("exit $((n + 5))")).status == 0
    ran = bide_until("--timeout", "10s", *QUICK, *wanted, "--", "sh", "-c", "echo broken >&2; exit 9")
    assert (ran.status, ran.out) == (1, "")
    assert "exit status 9: broken (status 9)" in ran.err
    killed = bide_until("--timeout", "10s", "--status", "143", "--", "sh", "-c", "kill $$")
    assert killed.status == 0


def test_its_output_is_searched_and_read() -> None:
    ran = bide_until(
        "--timeout",
        "10s",
        *QUICK,
        "--output",
        "^pod.*Running$",
        "--",
        *counting("echo pod$n; test $n -lt 2 || echo pod Running"),
    )
    assert (ran.status, ran.out) == (0, "pod2\npod Running\n")
    Path("tries").unlink()
    ran = bide_until(
        "--timeout", "10s", *QUICK, "--condition", "n >= `2`", "--", *counting('echo "{\\"n\\": $n}"')
    )
    assert (ran.status, ran.json) == (0, {"n": 2})
    ran = bide_until(
        "--timeout",
        "10s",
        *QUICK,
        "--failed",
        "n == `3`",
        "--condition",
        "x",
        "--",
        *counting('echo "{\\"n\\": $n}"'),
    )
    assert (ran.status, ran.json) == (1, {"n": 3})


def test_options_of_the_command_are_its_own() -> None:
    ran = bide_until("--timeout", "5s", "--", "echo", "--timeout", "--", "-q", "--json")
    assert (ran.status, ran.out) == (0, "--timeout -- -q --json\n")


def test_a_command_that_cannot_be_run_is_bad_use(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for argv, said in (
        (["no-such-command"], "was not found"),
        (["./plain"], "could not be started"),
        (["a\0b"], "error: "),
    ):
        ran = bide_until("--timeout", "10s", "--", *argv)
        assert ran.status == 3
        assert said in ran.err


def test_a_command_that_writes_without_an_end_is_ended() -> None:
    ran = bide_until("--timeout", "30s", "--", "yes")
    assert ran.status == 1
    assert "wrote more than 10485760 bytes" in ran.err


def test_a_command_that_times_out_tells_what_it_wrote_last() -> None:
    ran = bide_until("--timeout", "100ms", *QUICK, "--", "sh", "-c", "echo no luck >&2; exit 1")
    assert ran.status == 2
    assert "last: exit status 1: no luck" in ran.err


def test_a_command_that_cannot_start_now_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho up\n")
    program.chmod(0o755)
    with program.open("a"):  # what is open for writing is not run
        ran = bide_until("--timeout", "100ms", *QUICK, "--", "./program")
        assert ran.status == 2
        assert "could not be started: Text file busy" in ran.err
    assert bide_until("--timeout", "5s", *QUICK, "--", "./program").out == "up\n"


def test_what_a_command_leaves_behind_does_not_hold_it_up() -> None:
    began = time.monotonic()
    ran = bide_until("--timeout", "10s", "--", "sh", "-c", "sleep 3 & echo up")
    assert (ran.status, ran.out) == (0, "up\n")
    assert time.monotonic() - began < 2


# --- commands: nothing is left over --------------------------------------------------------------------------

HANGS = "echo $$ > pids; (sleep 300 & echo $! >> pids; wait) & echo $! >> pids; wait"
STUBBORN = f"trap '' TERM INT; {HANGS}"


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for what a process should soon do; where it does not, say what it wrote."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"it did not begin: {process.communicate()}")


def pids() -> list[int]:
    """The processes of the command, as far as they have begun."""
    with contextlib.suppress(FileNotFoundError):
        return [int(line) for line in Path("pids").read_text().split()]
    return []


def are_gone(numbers: list[int]) -> bool:
    for _ in range(100):
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in numbers):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("command", [HANGS, STUBBORN])
def test_at_the_timeout_a_command_and_its_children_are_ended(command: str) -> None:
    began = time.monotonic()
    ran = bide_until("--timeout", "500ms", "--", "sh", "-c", command)
    assert ran.status == 2
    assert time.monotonic() - began < 2
    assert len(pids()) == 3
    assert are_gone(pids())


def test_at_the_limit_of_an_attempt_a_command_is_ended_and_run_again() -> None:
    hangs_once = counting(f"if test $n -eq 1; then {HANGS}; fi; echo up")
    ran = bide_until("--timeout", "10s", "--attempt-timeout", "400ms", *QUICK, "--", *hangs_once)
    assert (ran.status, ran.out) == (0, "up\n")
    assert "attempt 1: no answer within 4" in ran.err
    assert are_gone(pids())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [HANGS, STUBBORN])
def test_a_signal_ends_it_promptly_with_the_command_and_its_children(number: int, command: str) -> None:
    process = start_until("--timeout", "5m", "--", "sh", "-c", command)
    until(lambda: len(pids()) == 3, process)
    running = pids()
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 2
    assert (process.returncode, out) == (128 + number, "")
    assert signal.Signals(number).name in err
    assert are_gone(running)


def test_a_second_signal_does_not_wait_for_a_stubborn_command() -> None:
    process = start_until("--timeout", "5m", "--", "sh", "-c", STUBBORN)
    until(lambda: len(pids()) == 3, process)
    running = pids()
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert are_gone(running)


@pytest.mark.parametrize("path", ["/silent", "/busy"])
def test_a_signal_ends_a_request_and_a_wait_between_two(server: RawServer, path: str) -> None:
    server.script("/silent", Answer.silence())
    server.script("/busy", Answer(status=503))
    process = start_until(server.url(path), "--timeout", "5m", "--every", "1m")
    until(lambda: server.count(path) > 0, process)
    time.sleep(0.1)
    began = time.monotonic()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert time.monotonic() - began < 2


# --- declared waits ------------------------------------------------------------------------------------------


def declare(server: RawServer, name: str = "bide.toml", head: str = "[waits.job]") -> None:
    Path(name).write_text(
        f"""{head}
url = "{server.url("/job")}"
success = ["state == 'done'"]
failure = ["state == 'failed'"]
timeout = "10s"
polling = {{ min_interval = "10ms", max_interval = "20ms" }}
"""
    )


def test_a_declared_wait_is_run_by_its_name(server: RawServer) -> None:
    declare(server)
    server.script("/job", *states("queued", "done"))
    ran = bide_until("job")
    assert (ran.status, ran.out) == (0, '{"state": "done"}\n')
    server.script("/job", *states("queued", "failed"))
    assert bide_until("job", "--app", "bide.toml").status == 1


def test_a_file_may_hold_one_wait(server: RawServer) -> None:
    declare(server, "wait.toml", "")
    server.script("/job", *states("queued", "done"))
    assert bide_until("--file", "wait.toml").status == 0


def test_a_flag_replaces_what_is_declared(server: RawServer) -> None:
    declare(server)
    server.script("/job", *states("failed", "queued", "gone"))
    ran = bide_until(
        "job", "--condition", "state == 'gone'", "--failed", "state == 'never'", "--every", "10ms"
    )
    assert (ran.status, server.count("/job")) == (0, 3)
    server.script("/job", *states("queued"))
    assert bide_until("job", "--timeout", "100ms", "--polling-max-interval", "30ms").status == 2


def test_a_name_that_is_not_declared_is_bad_use_with_the_nearest(server: RawServer) -> None:
    declare(server)
    ran = bide_until("jbo")
    assert ran.status == 3
    assert "no wait named 'jbo'; did you mean 'job'?" in ran.err
    assert "-- jbo" in ran.err
    assert bide_until("test", "--app", "no-such.toml").status == 3


def test_mistakes_of_a_file_are_bad_use_at_their_place(server: RawServer) -> None:
    declare(server)
    Path("bide.toml").write_text(Path("bide.toml").read_text().replace("'done'", "'done"))
    ran = bide_until("job")
    assert ran.status == 3
    assert "waits.job.success[0]" in ran.err
    Path("wait.toml").write_text('url = "x"\nsucess = []\n')
    ran = bide_until("--file", "wait.toml", "--timeout", "1")
    assert ran.status == 3
    assert "Did you mean 'success'?" in ran.err


# --- bad use -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "what is waited for"),
        (["--"], "what is waited for"),
        (["--timeout", "1s", "--"], "what is waited for"),
        (["http://x.org", "--", "true"], "one thing is waited for"),
        (["test", "-f", "x", "y"], "a command stands behind --"),
        (["--file", "a.toml", "--", "true"], "one thing is waited for"),
        (["localhost:8080", "--timeout", "1s"], "begins with http:// or https://"),
        (["--timeout"], "requires an argument"),
        (["http://x.org", "--timout", "1s"], "No such option"),
        (["http://x.org", "--json=yes"], "--json"),
    ],
)
def test_a_wrong_command_line_ends_with_3(arguments: list[str], said: str) -> None:
    ran = bide_until(*arguments)
    assert ran.status == 3
    assert said in " ".join(re.sub(r"[│╭╮╰╯─]", " ", ran.err).split())


@pytest.mark.parametrize(
    ("flags", "flag", "said"),
    [
        ((), "--timeout", "Add --timeout 10m"),
        (("--timeout", "soon"), "--timeout", "not a duration"),
        (("--timeout", "1s", "--status", "999"), "--status", "not an HTTP status"),
        (("--timeout", "1s", "--condition", "a =="), "--condition", "JMESPath"),
        (("--timeout", "1s", "--output", "("), "--output", "regular expression"),
        (("--timeout", "1s", "--has-header", "a b: c"), "--has-header", "name of a header"),
        (("--timeout", "1s", "--failed", "a ==", "--failed", "b"), "--failed", "JMESPath"),
        (("--timeout", "1s", "--failed-status", "5"), "--failed-status", "not an HTTP status"),
        (("--timeout", "1s", "--failed-output", "("), "--failed-output", "regular expression"),
        (("--timeout", "1s", "--retry-status", "x"), "--retry-status", "not a status"),
        (("--timeout", "1s", "--every", "0"), "--every", "zero"),
        (("--timeout", "1s", "--every", "1s", "--polling-interval", "1s"), "--every", "polling is given too"),
        (("--timeout", "1s", "--polling-interval", "1s"), "--polling-interval", "--polling-strategy fixed"),
        (
            ("--timeout", "1s", "--polling-strategy", "fixed"),
            "--polling-interval",
            "Add --polling-interval 5s",
        ),
        (("--timeout", "1s", "--polling-strategy", "fast"), "--polling-strategy", "not a polling strategy"),
        (
            ("--timeout", "1s", "--polling-min-interval", "1m"),
            "--polling-max-interval",
            "shorter than min_interval",
        ),
        (
            ("--timeout", "1s", "--polling-backoff-multiplier", "nan"),
            "--polling-backoff-multiplier",
            "above 1",
        ),
        (("--timeout", "1s", "--times-in-row", "two"), "--times-in-row", "whole number"),
        (("--timeout", "1s", "--stable-for", "-1s"), "--stable-for", "negative"),
        (("--timeout", "1s", "--attempt-timeout", "2s"), "--attempt-timeout", "longer than"),
        (("--timeout", "1s", "--hint-clamp", "x"), "--hint-clamp", "not a duration"),
        (("--timeout", "1s", "--method", "GTE"), "--method", "'GET'"),
        (("--timeout", "1s", "--header", "no colon"), "--header", "colon"),
        (("--timeout", "1s", "--header", "a b: c"), "--header", "name of a header"),
        (("--timeout", "1s", "--body", '["${1}"]'), "--body", "${"),
        (("--timeout", "1s", "--retry-on", "refusd"), "--retry-on", "'refused'"),
    ],
)
def test_a_wrong_value_ends_with_3_and_names_its_flag(flags: tuple[str, ...], flag: str, said: str) -> None:
    ran = bide_until("http://127.0.0.1:9/x", *flags)
    assert ran.status == 3
    assert f"{flag}: " in ran.err
    assert said in ran.err


def test_every_wrong_value_is_told_at_once() -> None:
    ran = bide_until(
        "ftp://x",
        "--status",
        "x",
        "--condition",
        "a ==",
        "--every",
        "0",
        "--failed",
        "b ==",
        "--retry-on",
        "y",
    )
    assert ran.status == 3
    for flag in ("URL", "--status", "--condition", "--every", "--failed", "--retry-on", "--timeout"):
        assert f"{flag}: " in ran.err


def test_flags_of_requests_are_wrong_for_a_command() -> None:
    ran = bide_until("--timeout", "1s", "--method", "GET", "--has-header", "X-A", "--", "true")
    assert ran.status == 3
    assert "--method: is for an address" in ran.err
    assert "--has-header: is for an address" in ran.err


def test_an_address_that_cannot_be_asked_is_bad_use() -> None:
    assert bide_until("http://[::1", "--timeout", "1s").status == 3
    assert bide_until("http://a:99999/", "--timeout", "1s").status == 3


def test_the_help_says_how_it_ends() -> None:
    ran = bide_until("--help")
    assert ran.status == 0
    for said in ("0 it holds", "1 it never will", "2 timed out", "3 called wrongly"):
        assert said in " ".join(ran.out.split())


# --- the line ------------------------------------------------------------------------------------------------


def ended(
    number: int = 1, next_in: float | None = 2.0, error: BaseException | None = None, value: Any = None
) -> AttemptEnded:
    wait = None if next_in is None else timedelta(seconds=next_in)
    return AttemptEnded("probe", number, "not_yet", timedelta(), value, error, wait)


@dataclass
class Line:
    """A line under a virtual clock."""

    clock: VirtualClock
    watched: Watched


@pytest.fixture
def line() -> Line:
    clock = VirtualClock()
    return Line(clock, Watched(clock, Teller(Acceptors(), lambda text: text), None, quiet=True))


def test_the_line_tells_the_attempt_what_came_of_it_and_the_next(line: Line) -> None:
    assert line.watched.line(79) == "attempt 1, asking"
    line.watched.heard(ended(value=Response(503, Headers(), b"busy", "")))
    assert line.watched.line(79) == "attempt 1: 503 busy, next in 2.0s"
    line.watched.heard(ended(2, 0.0, value=Response(503, Headers(), b"busy", "")))
    assert line.watched.line(79) == "attempt 3: 503 busy, asking"
    line.watched.heard(ended(3, 100.0, error=TimeoutError("no answer within 1s")))
    assert line.watched.line(79) == "attempt 3: no answer within 1s, next in 1m40s"
    line.watched.heard(ended(4, None, value=Response(200, Headers(), b"", "")))
    assert line.watched.line(79) == "attempt 4: 200"


@given(width=st.integers(1, 200), text=st.text(max_size=300), number=st.integers(1, 10**6))
def test_the_line_is_one_and_never_too_long(width: int, text: str, number: int) -> None:
    clock = VirtualClock()
    watched = Watched(clock, Teller(Acceptors(), lambda text: text), None, quiet=True)
    watched.heard(ended(number, error=ValueError(text)))
    shown = watched.line(width)
    assert cell_len(shown) <= width
    assert "\n" not in shown
    assert "\r" not in shown


TOLD = [
    (
        Response(200, Headers(), b'{"id": 1, "status": {"phase": "up"}, "n": 1.50}', ""),
        '200 status.phase="up" n=1.5',
    ),
    (Response(200, Headers(), b'{"id": 1}', ""), '200 {"id":1}'),
    (Response(502, Headers(), b"<html>\n <b>Bad  gateway", ""), "502 <html> <b>Bad gateway"),
    (CommandResult(1, b"a\nlast\n\n", "warning"), "exit status 1: last"),
    (CommandResult(1, b"", "b\nwarning"), "exit status 1: warning"),
    (CommandResult(0, b""), "exit status 0"),
    (CommandResult(0, b'{"n": 2}'), "exit status 0: n=2"),
]


@pytest.mark.parametrize(("value", "told"), TOLD)
def test_an_answer_is_told_by_what_was_looked_at(value: object, told: str) -> None:
    acceptors = Acceptors(
        success="status.phase == 'up' && n > `1`", failure='!ok || length(x) > `3` || "a b"'
    )
    assert Teller(acceptors, lambda text: text).value(value) == told


def test_a_failed_call_is_told_without_its_address() -> None:
    teller = Teller(Acceptors(), lambda text: text.replace("k3y", "…"))
    assert teller.error(CallError("refused", "GET http://x/y: refused k3y")) == "refused …"
    assert teller.error(CallError("refused", "odd")) == "odd"
    assert len(teller.error(ValueError("x" * 10_000))) == 300
