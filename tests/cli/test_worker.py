"""`bide worker` as a process of its own: what it says, what it serves, and how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from bide import App
from bide.cli.stopping import ECHO_S
from bide.provider import ItemRow, NewItem
from tests.cli.rig import ended

JOBS = """
import asyncio
import time
from pathlib import Path

from bide import App

app = App("sqlite:///jobs.db")
here = Path(__file__).parent


@app.task(queue="mail")
async def nap(seconds: float, name: str) -> None:
    (here / f"{name}.begun").touch()
    await asyncio.sleep(seconds)
    (here / f"{name}.done").touch()


@app.task
def block(seconds: float, name: str) -> None:
    (here / f"{name}.begun").touch()
    time.sleep(seconds)
    (here / f"{name}.done").touch()


@app.task(queue="mail", max_attempts=1)
async def fail() -> None:
    raise ValueError("it never works")


@app.task
async def ignore(name: str) -> None:
    (here / f"{name}.begun").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


@app.task
async def ask(name: str) -> None:
    await asyncio.to_thread(block, 3600, name)
"""


@dataclass
class Folder:
    """A folder with the tasks above, its store, and workers as processes."""

    path: Path
    log: list[dict[str, Any]] = field(default_factory=list)

    def submit(self, task: str, queue: str = "mail", **arguments: Any) -> str:
        """Enqueue an item as any process might; answers its id."""
        name, payload = f"{task}-{len(self.rows())}", json.dumps(arguments)
        item = NewItem(
            id=name, queue=queue, name=task, payload=payload, max_attempts=1 if task == "fail" else 5
        )

        async def enqueue() -> None:
            async with self._app().open() as app:
                await app.provider.enqueue([item])

        asyncio.run(enqueue())
        return item.id

    def rows(self) -> dict[str, ItemRow]:
        """Every item that is kept, by its id."""

        async def look() -> dict[str, ItemRow]:
            async with self._app().open() as app:
                return {
                    row.id: row for queue in ("mail", "default") for row in await app.provider.items(queue)
                }

        return asyncio.run(look())

    def _app(self) -> App:
        return App("sqlite:///jobs.db", folder=self.path, environment={})

    def worker(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """A worker of the tasks above."""
        return self.started("worker", "jobs:app", *arguments)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command as a process."""
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "bide", *words],
            cwd=self.path,
            env={name: value for name, value in os.environ.items() if not name.startswith("BIDE_")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def read_until(self, process: subprocess.Popen[str], event: str) -> dict[str, Any]:
        """Read the log until a line of ``event``, which is answered."""
        for line in self._lines(process):
            if line["event"] == event:
                return line
        raise AssertionError(f"no {event} in {self.log}")

    def stop(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
        """Signal a worker and read its log to the end; answers its exit status."""
        process.send_signal(number)
        for _ in self._lines(process):
            pass
        return process.wait(60)

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
        """The lines of the log that were not read yet, for a minute at most."""
        assert process.stderr is not None
        giving_up = threading.Timer(60, process.kill)
        giving_up.start()
        try:
            for line in process.stderr:
                self.log.append(json.loads(line))
                yield self.log[-1]
        finally:
            giving_up.cancel()

    def wait_for(self, name: str) -> None:
        """Wait until a task has left that mark."""
        for _ in range(1500):
            if (self.path / name).exists():
                return
            time.sleep(0.02)
        raise AssertionError(f"{name} never came: {sorted(path.name for path in self.path.iterdir())}")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "jobs.py").write_text(JOBS)
    return Folder(tmp_path)


def test_a_worker_says_what_it_works_on_and_what_came_of_it(folder: Folder) -> None:
    folder.submit("nap", seconds=0, name="one")
    folder.submit("fail")
    with folder.worker("--queues", "mail", "--concurrency", "7", "--polling-max-interval", "2s") as process:
        started = folder.read_until(process, "worker.started")
        assert started["queues"] == {"mail": ["fail", "nap"]}
        assert started["store"] == str(folder.path / "jobs.db")
        assert (started["settings"]["concurrency"], started["settings"]["max_interval"]) == (7, "2s")
        assert started["message"].startswith(
            f"worker of {folder.path / 'jobs.db'}; mail: fail, nap; 7 at a time"
        )
        folder.read_until(process, "task.dead")
        folder.wait_for("one.done")
        assert folder.stop(process) == 0
    log = folder.log
    words = [line["event"] for line in log]
    assert words[-3:] == ["engine.stopping", "engine.stopped", "worker.ended"]
    assert "task.succeeded" in words
    assert {word: log[-1][word] for word in ("succeeded", "dead", "retried")} == {
        "succeeded": 1,
        "dead": 1,
        "retried": 0,
    }
    assert not [line for line in log if "seconds" in str(line) and "nap" in str(line.get("arguments"))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once_though_its_fetch_waits_in_the_store(
    folder: Folder, number: int
) -> None:
    with folder.worker("--long-poll-timeout", "10m") as process:
        folder.read_until(process, "engine.running")
        time.sleep(0.3)
        began = time.monotonic()
        assert folder.stop(process, number) == 0
    assert time.monotonic() - began < 20  # and not ten minutes


@pytest.mark.parametrize("task", ["nap", "block"])
def test_the_first_signal_lets_what_is_under_way_finish_and_takes_in_nothing_more(
    folder: Folder, task: str
) -> None:
    queue = "mail" if task == "nap" else "default"
    first = folder.submit(task, queue, seconds=1.5, name="first")
    with folder.worker("--concurrency", "1") as process:
        folder.wait_for("first.begun")
        second = folder.submit(task, queue, seconds=0, name="second")
        assert folder.stop(process) == 0
    assert (folder.path / "first.done").exists()
    assert not (folder.path / "second.begun").exists()
    rows = folder.rows()
    assert first not in rows  # done, and nothing of it is kept
    assert (rows[second].state, rows[second].attempts) == ("ready", 0)


def test_a_second_signal_cuts_the_grace_short_and_gives_back(folder: Folder) -> None:
    one = folder.submit("nap", seconds=600, name="one")
    with folder.worker("--grace", "10m") as process:
        folder.wait_for("one.begun")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        folder.read_until(process, "engine.stopping")
        time.sleep(2 * ECHO_S)
        assert folder.stop(process, signal.SIGTERM) == 0
    assert time.monotonic() - began < 60  # and not ten minutes
    row = folder.rows()[one]
    assert (row.state, row.attempts, row.deaths) == ("ready", 0, 0)
    assert folder.log[-1]["given_back"] == 1


def test_after_the_grace_handlers_are_cancelled_and_given_back(folder: Folder) -> None:
    one = folder.submit("nap", seconds=600, name="one")
    with folder.worker("--grace", "200ms") as process:
        folder.wait_for("one.begun")
        assert folder.stop(process) == 0
    row = folder.rows()[one]
    assert (row.state, row.attempts) == ("ready", 0)


def test_a_signal_that_is_passed_on_twice_is_one(folder: Folder) -> None:
    """As by ``timeout``, which signals the process and its group, or by Ctrl-C under a manager of processes."""
    one = folder.submit("nap", seconds=1.5, name="one")
    with folder.worker() as worker:
        folder.wait_for("one.begun")
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        assert folder.stop(worker) == 0
    assert (folder.path / "one.done").exists()
    assert one not in folder.rows()


@pytest.mark.parametrize("task", ["ignore", "ask"])
def test_a_function_that_never_ends_does_not_keep_the_process(folder: Folder, task: str) -> None:
    one = folder.submit(task, "default", name="endless")
    with folder.worker("--grace", "0") as worker:
        folder.wait_for("endless.begun")
        began = time.monotonic()
        assert folder.stop(worker) == 0
        assert time.monotonic() - began < 30
    assert folder.log[-1]["event"] == "worker.ended"
    assert folder.rows()[one].state == "ready"


def test_what_a_killed_worker_had_is_done_by_the_next(folder: Folder) -> None:
    folder.submit("nap", seconds=2, name="one")
    with folder.worker("--lock-timeout", "1s") as process:
        folder.wait_for("one.begun")
        assert folder.stop(process, signal.SIGKILL) == -signal.SIGKILL
    with folder.worker() as process:
        folder.wait_for("one.done")
        assert folder.stop(process) == 0


def scraped_until(url: str, series: str, least: float) -> dict[str, float]:
    """Scrape until a series has a value of at least so much."""
    for _ in range(400):
        with urlopen(url, timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
        if values.get(series, -1) >= least:
            return values
        time.sleep(0.05)
    raise AssertionError(f"{series} is no {least} in {values}")


def test_metrics_are_served_while_it_runs(folder: Folder) -> None:
    folder.submit("nap", seconds=0, name="one")
    with folder.worker(
        "--metrics-port", "0", "--poll-interval", "100ms", "--long-poll-timeout", "0"
    ) as process:
        url = folder.read_until(process, "worker.started")["metrics"]
        assert url.startswith("http://127.0.0.1:")
        folder.read_until(process, "task.succeeded")
        labels = '{provider="sqlite",queue="default,mail"}'
        values = scraped_until(url, f"bide_worker_poll_empty_total{labels}", 2)
        assert values[f"bide_worker_poll_interval_seconds{labels}"] == 0.1
        assert values[f"bide_worker_poll_total{labels}"] >= 3
        assert values[f"bide_worker_backoff_total{labels}"] == 0
        assert values['bide_tasks_total{outcome="succeeded",queue="mail",task="nap"}'] == 1
        assert folder.stop(process) == 0
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=10)


def test_run_serves_metrics_and_runs_tasks_too(folder: Folder) -> None:
    folder.submit("nap", seconds=0, name="one")
    with folder.started("run", "-a", "jobs:app", "--no-live", "--metrics-port", "0") as process:
        url = folder.read_until(process, "metrics.served")["url"]
        folder.read_until(process, "task.succeeded")
        done = 'bide_tasks_total{outcome="succeeded",queue="mail",task="nap"}'
        assert scraped_until(url, done, 1)[done] == 1
        assert folder.stop(process) == 0
    assert folder.log[-1]["event"] == "run.ended"
    assert folder.log[-1]["tasks"] == {"succeeded": 1}


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--concurrency", "none"], 2, "--concurrency"),
        (["--polling-strategy", "adaptve"], 2, "Did you mean 'adaptive'?"),
        (["--poll-interval", "1", "--polling-max-interval", "2"], 2, "--polling-max-interval is given too"),
        (["--queues", "mial"], 1, "no queue named 'mial'; did you mean 'mail'?"),
        (["--metrics-port", "0", "--metrics-host", "256.0.0.1"], 1, "metrics cannot be served at 256.0.0.1"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    folder: Folder, arguments: list[str], status: int, told: str
) -> None:
    with folder.worker(*arguments) as process:
        done = ended(process)
    assert (done.status, done.out) == (status, "")
    assert told in " ".join(line.strip("│ ") for line in done.err.splitlines())


def test_a_queue_that_no_task_is_in_any_more_is_worked_on_once_it_is_declared(folder: Folder) -> None:
    """As after a task moved to another queue, of which some items wait in the old one."""
    one = folder.submit("nap", "letters", seconds=0, name="moved")
    with folder.worker("--queues", "letters,mail") as refused:
        assert refused.wait(60) == 1
        assert refused.stderr is not None
        assert 'declare it: app.queue("letters")' in refused.stderr.read()
    with (folder.path / "jobs.py").open("a") as jobs:
        jobs.write('app.queue("letters")\n')
    with folder.worker("--queues", "letters,mail") as worker:
        folder.wait_for("moved.done")
        assert folder.stop(worker) == 0
    assert one not in folder.rows()


def test_an_app_without_tasks_has_nothing_for_a_worker(folder: Folder) -> None:
    (folder.path / "jobs.py").write_text('from bide import App\napp = App("sqlite:///jobs.db")\n')
    with folder.worker() as process:
        done = ended(process)
    assert done.status == 1
    assert done.err == (
        "error: no task is declared in jobs:app, so there is nothing for a worker to do; see @app.task\n"
    )
