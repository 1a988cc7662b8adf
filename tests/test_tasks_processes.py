"""Real workers of one file that die, freeze and are stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bide import App
from bide.provider import ItemRow

PROGRAM = """
import asyncio, os, threading, time
from pathlib import Path
from bide import App, Context

app = App("sqlite:///work.db", folder=Path(__file__).parent)


def say(text):
    with open(Path(__file__).parent / "said", "a") as file:
        file.write(f"{os.getpid()} {text}\\n")


@app.task(lock_timeout="1s")
async def kill() -> None:
    os._exit(1)


@app.task(lock_timeout="1s")
async def good(number: int) -> None:
    say(f"good {number}")


@app.task(lock_timeout="1s", keep_result="1h")
async def slow() -> int:
    say("begins")
    await asyncio.sleep(1.5)
    say("ends")
    return os.getpid()


@app.task(keep_result="1h")
def stubborn(context: Context) -> None:
    say("begins")
    while not context.cancelled:
        time.sleep(0.01)
    say("saw it")
    time.sleep(30)
"""


class Folder:
    """A folder with the program, its store, and what its handlers said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "fleet_of_workers.py").write_text(PROGRAM)
        self.app = App("sqlite:///work.db", folder=path, environment={})
        self.app.include({"tasks": {name: {"function": f"fleet_of_workers:{name}"} for name in NAMES}})

    async def worker(self, *flags: str) -> asyncio.subprocess.Process:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", *sys.path])}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bide", "worker", "fleet_of_workers:app", *flags),
            cwd=self.path,
            env=environment,
            stderr=asyncio.subprocess.DEVNULL,
        )

    def said(self) -> list[str]:
        said = self.path / "said"
        return said.read_text().splitlines() if said.exists() else []

    async def hears(self, text: str) -> None:
        """Wait until ``text`` was said."""
        await within_a_minute(lambda: any(text in line for line in self.said()))

    async def row(self, id: str) -> ItemRow:
        row = await self.app.provider.item(id)
        assert row is not None
        return row

    async def dead(self, id: str) -> ItemRow:
        """Wait until the item is dead."""
        for _ in range(3000):
            if (row := await self.row(id)).state == "dead":
                return row
            await asyncio.sleep(0.02)
        raise AssertionError("it is not dead after a minute")


async def within_a_minute(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do, on a machine that may be busy."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about within a minute")


NAMES = ("kill", "good", "slow", "stubborn")


@asynccontextmanager
async def ended(*workers: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """The workers are gone behind the block, whatever happens in it."""
    try:
        yield
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()


async def test_an_item_that_kills_its_worker_is_dead_after_three_deaths_and_the_others_are_done(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    async with folder.app.open():
        poison = await folder.app.task_named("kill").submit()
        await folder.app.task_named("good").submit_many([(number,) for number in range(10)])
        deaths = 0
        while deaths < 3:
            worker = await folder.worker()
            async with ended(worker):
                assert await asyncio.wait_for(worker.wait(), 60) == 1, "nothing but the item ends it"
                deaths += 1
        last = await folder.worker()
        async with ended(last):
            await within_a_minute(lambda: len(folder.said()) == 10)
            row = await folder.dead(poison.id)
            assert last.returncode is None, "it is buried, and not fetched any more"
    assert row.deaths == 3
    assert row.error is not None
    assert {line.split(" ", 1)[1] for line in folder.said()} == {f"good {number}" for number in range(10)}


async def test_a_frozen_worker_loses_its_item_and_its_result_is_discarded(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    async with folder.app.open():
        handle = await folder.app.task_named("slow").submit(keep_result="1h")
        frozen = await folder.worker()
        other = None
        async with ended(frozen):
            await folder.hears("begins")
            frozen.send_signal(signal.SIGSTOP)
            other = await folder.worker()
            async with ended(other):
                assert await handle.result(timeout="60s") == other.pid
                frozen.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.5)
                frozen.send_signal(signal.SIGTERM)
                assert await frozen.wait() == 0
        assert await handle.result() == other.pid
        row = await folder.row(handle.id)
        assert (row.attempts, row.deaths) == (2, 1)


async def test_a_stop_gives_back_at_once_what_a_thread_will_not_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    async with folder.app.open():
        handle = await folder.app.task_named("stubborn").submit()
        worker = await folder.worker("--grace", "200ms")
        async with ended(worker):
            await folder.hears("begins")
            worker.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await worker.wait() == 0
        assert "saw it" in folder.said()[-1]
        row = await folder.row(handle.id)
        assert (row.state, row.attempts, row.given_back) == ("ready", 0, 1)
        assert "its thread goes on" in (row.error or "")
