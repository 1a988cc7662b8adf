"""Each setting of a worker, given in each layer, by what a running worker then does under a virtual clock."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tomllib
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from bide import App, PollingStrategy
from bide.cli.main import cli
from bide.config.options import WorkerRunOptions
from bide.provider import DELIVERIES, Fetched
from bide.providers.memory import MemoryProvider
from bide.telemetry import EngineState, QueuePolled, Record
from bide.testing import VirtualClock

LAYERS = ("code", "file", "environment", "flag")
BASE = {"BIDE_DISPATCHER_LONG_POLL_TIMEOUT": "0"}
"""Without waits in the store the strategy decides when a worker asks; tests of that wait remove it."""


class CountingProvider(MemoryProvider):
    """The reference provider, which notes how it was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked: list[tuple[set[str], timedelta, timedelta]] = []

    async def fetch_work_items(self, queues: Collection[str], *args: Any, **how: Any) -> Fetched:
        self.asked.append((set(queues), how["lock_timeout"], how["poll_timeout"]))
        return await super().fetch_work_items(queues, *args, **how)


@dataclass
class Seen:
    """What could be seen of a worker: when it asked, how, how much it did at a time, how long it took to stop."""

    polls: list[float] = field(default_factory=list)
    asked: list[tuple[set[str], timedelta, timedelta]] = field(default_factory=list)
    running: int = 0
    most: int = 0
    handled: set[str] = field(default_factory=set)
    stopping_at: float = 0.0
    stopped_at: float = 0.0

    @property
    def gaps(self) -> list[float]:
        return [round(after - before, 3) for before, after in pairwise(self.polls)]

    @property
    def stop_took(self) -> float:
        return round(self.stopped_at - self.stopping_at, 1)


class Bench:
    """An app with two tasks whose worker is watched, in any of the ways that a worker is started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
        self.clock = VirtualClock()
        self.app = App("memory://", clock=self.clock, environment=environment)
        self.provider = CountingProvider(self.clock)
        self.seen = Seen(asked=self.provider.asked)
        self.items = 0
        self.nap_s = 1.0
        self._driving: asyncio.Task[None] | None = None
        monkeypatch.setattr("bide.app.open_provider", lambda *_: self.provider)
        self.app.task(name="nap", queue="mail")(self.nap)
        self.app.task(name="rest", queue="default")(self.rest)
        self.app.telemetry.listen(self._listen)

    async def nap(self) -> None:
        self.seen.handled.add("mail")
        self.seen.running += 1
        self.seen.most = max(self.seen.most, self.seen.running)
        try:
            await self.clock.sleep(self.nap_s)
        finally:
            self.seen.running -= 1

    async def rest(self) -> None:
        self.seen.handled.add("default")

    def run(
        self,
        *,
        code: Mapping[str, Any],
        flags: list[str],
        monkeypatch: pytest.MonkeyPatch,
        command: tuple[str, ...] = ("worker",),
    ) -> None:
        """Run a worker for a minute: by the command where there are flags, else by ``app.worker``."""
        if not flags:
            asyncio.run(self._run(code))
            return
        monkeypatch.setitem(sys.modules, "uvloop", None)  # the virtual clock needs asyncio's own loop
        module = types.ModuleType("bench")
        module.app = self.app  # type: ignore[attr-defined]  # a module made by hand
        monkeypatch.setitem(sys.modules, "bench", module)
        done = CliRunner().invoke(cli, [*command, "-a", "bench:app", "--log-level", "warning", *flags])
        assert (done.exit_code, done.stdout) == (0, ""), done.output

    async def _run(self, code: Mapping[str, Any]) -> None:
        worker = {name: value for name, value in code.items() if name in ("queues", "concurrency")}
        options = {name: value for name, value in code.items() if name not in worker}
        self.stopping = asyncio.Event()
        async with self.app.open():
            await self.app.worker(**worker).run(WorkerRunOptions(**options), stopping=self.stopping)

    def _listen(self, record: Record) -> None:
        match record:
            case QueuePolled():
                self.seen.polls.append(self.clock.monotonic())
            case EngineState(state="running"):
                self._driving = asyncio.ensure_future(self._drive())
            case EngineState(state="stopping"):
                self.seen.stopping_at = self.clock.monotonic()
            case EngineState(state="stopped"):
                self.seen.stopped_at = self.clock.monotonic()
            case _:
                pass

    async def _drive(self) -> None:
        for _ in range(self.items):
            await self.app.task_named("nap").submit()
        if self.items:
            await self.app.task_named("rest").submit()
        await self.clock.advance(60)
        if hasattr(self, "stopping"):
            self.stopping.set()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        while not self.seen.stopped_at:
            await self.clock.advance(0.1)


@dataclass(frozen=True)
class Case:
    """One setting in each of its layers, and what must be seen of it."""

    code: Mapping[str, Any]
    file: str
    environment: Mapping[str, str]
    flag: list[str]
    check: Callable[[Seen], None]
    items: int = 0
    nap_s: float = 1.0
    base: Mapping[str, str] = field(default_factory=lambda: BASE)


def gaps_begin(*gaps: float) -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert seen.gaps[: len(gaps)] == pytest.approx(gaps, abs=0.002)

    return check


def fetches_ask(lock_timeout: float = 30.0, poll_timeout: float = 0.0) -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert seen.asked
        for _, lock, poll in seen.asked:
            assert (lock, poll) == (timedelta(seconds=lock_timeout), timedelta(seconds=poll_timeout))

    return check


def long_polls_of_seven(seen: Seen) -> None:
    fetches_ask(poll_timeout=7.0)(seen)
    assert seen.gaps[:4] == pytest.approx([7, 7, 7, 7], abs=0.002)


def three_at_a_time(seen: Seen) -> None:
    assert seen.most == 3


def mail_alone(seen: Seen) -> None:
    assert seen.handled == {"mail"}
    assert {frozenset(queues) for queues, _, _ in seen.asked} == {frozenset({"mail"})}


def stops_after_seven(seen: Seen) -> None:
    assert seen.running == 0
    assert 6.9 <= seen.stop_took <= 7.3


def adaptive(**how: Any) -> dict[str, Any]:
    return {"polling": PollingStrategy.adaptive(**how)}


CASES = {
    "fixed interval": Case(
        {"polling": PollingStrategy.fixed("7s")},
        '[worker.polling]\nstrategy = "fixed"\ninterval = "7s"',
        {"BIDE_POLLING_STRATEGY": "fixed", "BIDE_POLLING_INTERVAL": "7s"},
        ["--polling-strategy", "fixed", "--polling-interval", "7s"],
        gaps_begin(7, 7, 7, 7),
    ),
    "fixed interval in milliseconds": Case(
        {"polling": PollingStrategy.fixed(interval_ms=7000)},
        '[worker.polling]\nstrategy = "fixed"\ninterval_ms = 7000',
        {"BIDE_POLLING_STRATEGY": "fixed", "BIDE_POLLING_INTERVAL_MS": "7000"},
        ["--polling-strategy", "fixed", "--polling-interval", "7"],
        gaps_begin(7, 7, 7, 7),
    ),
    "poll_interval": Case(
        {"poll_interval": 7},
        "[worker]\npoll_interval = 7",
        {"BIDE_POLL_INTERVAL": "7"},
        ["--poll-interval", "7"],
        gaps_begin(7, 7, 7, 7),
    ),
    "poll_interval_ms": Case(
        {"poll_interval_ms": 7000},
        "[worker]\npoll_interval_ms = 7000",
        {"BIDE_POLL_INTERVAL_MS": "7000"},
        ["--poll-interval", "7000ms"],
        gaps_begin(7, 7, 7, 7),
    ),
    "adaptive by its name": Case(
        adaptive(),
        '[worker.polling]\nstrategy = "adaptive"',
        {"BIDE_POLLING_STRATEGY": "adaptive"},
        ["--polling-strategy", "adaptive"],
        gaps_begin(0.2, 0.4, 0.8, 1.6, 3.2, 4.75, 4.75),
    ),
    "min_interval": Case(
        adaptive(min_interval="1s"),
        '[worker.polling]\nmin_interval = "1s"',
        {"BIDE_POLLING_MIN_INTERVAL": "1s"},
        ["--polling-min-interval", "1s"],
        gaps_begin(2, 4, 4.75, 4.75),
    ),
    "min_interval_ms": Case(
        adaptive(min_interval_ms=1000),
        "[worker.polling]\nmin_interval_ms = 1000",
        {"BIDE_POLLING_MIN_INTERVAL_MS": "1000"},
        ["--polling-min-interval", "1000ms"],
        gaps_begin(2, 4, 4.75, 4.75),
    ),
    "max_interval": Case(
        adaptive(max_interval="400ms"),
        '[worker.polling]\nmax_interval = "400ms"',
        {"BIDE_POLLING_MAX_INTERVAL": "400ms"},
        ["--polling-max-interval", "400ms"],
        gaps_begin(0.2, 0.38, 0.38, 0.38),
    ),
    "max_interval_ms": Case(
        adaptive(max_interval_ms=400),
        "[worker.polling]\nmax_interval_ms = 400",
        {"BIDE_POLLING_MAX_INTERVAL_MS": "400"},
        ["--polling-max-interval", "0.4"],
        gaps_begin(0.2, 0.38, 0.38, 0.38),
    ),
    "backoff_multiplier": Case(
        adaptive(backoff_multiplier=4),
        "[worker.polling]\nbackoff_multiplier = 4",
        {"BIDE_POLLING_BACKOFF_MULTIPLIER": "4.0"},
        ["--polling-backoff-multiplier", "4"],
        gaps_begin(0.4, 1.6, 4.75, 4.75),
    ),
    "min_poll_interval": Case(
        {"min_poll_interval": "3s"},
        '[runtime]\ndispatcher_min_poll_interval = "3s"',
        {"BIDE_DISPATCHER_MIN_POLL_INTERVAL": "3s"},
        ["--min-poll-interval", "3s"],
        gaps_begin(3, 3, 3, 3, 3.2, 4.75),
    ),
    "long_poll_timeout": Case(
        {"long_poll_timeout": "7s"},
        '[runtime]\ndispatcher_long_poll_timeout = "7s"',
        {"BIDE_DISPATCHER_LONG_POLL_TIMEOUT": "7s"},
        ["--long-poll-timeout", "7s"],
        long_polls_of_seven,
        base={},
    ),
    "no long polls": Case(
        {"long_poll_timeout": 0},
        "[runtime]\ndispatcher_long_poll_timeout_ms = 0",
        {"BIDE_DISPATCHER_LONG_POLL_TIMEOUT_MS": "0"},
        ["--long-poll-timeout", "0"],
        fetches_ask(),
        base={},
    ),
    "lock_timeout": Case(
        {"lock_timeout": "45s"},
        '[worker]\nlock_timeout = "45s"',
        {"BIDE_WORKER_LOCK_TIMEOUT": "45s"},
        ["--lock-timeout", "45s"],
        fetches_ask(lock_timeout=45.0),
    ),
    "concurrency": Case(
        {"concurrency": 3},
        "[worker]\nconcurrency = 3",
        {"BIDE_WORKER_CONCURRENCY": "3"},
        ["--concurrency", "3"],
        three_at_a_time,
        items=12,
    ),
    "queues": Case(
        {"queues": ["mail"]},
        '[worker]\nqueues = ["mail"]',
        {"BIDE_WORKER_QUEUES": "mail"},
        ["--queues", "mail"],
        mail_alone,
        items=2,
    ),
    "grace": Case(
        {"grace": "7s", "lock_timeout": "10m"},
        '[worker]\ngrace = "7s"\nlock_timeout = "10m"',
        {"BIDE_WORKER_GRACE": "7s", "BIDE_WORKER_LOCK_TIMEOUT": "10m"},
        ["--grace", "7s", "--lock-timeout", "10m"],
        stops_after_seven,
        items=1,
        nap_s=500.0,
    ),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", CASES)
def test_a_setting_is_obeyed_by_the_worker_whichever_layer_gives_it(
    name: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    bench = Bench(monkeypatch, {**case.base, **(case.environment if layer == "environment" else {})})
    if layer == "file":
        bench.app.include(tomllib.loads(case.file))
    bench.items, bench.nap_s = case.items, case.nap_s
    bench.run(
        code=case.code if layer == "code" else {},
        flags=case.flag if layer == "flag" else [],
        monkeypatch=monkeypatch,
    )
    case.check(bench.seen)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"adaptive by its name"}))
def test_the_worker_does_otherwise_by_default(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is seen above comes of the setting."""
    case = CASES[name]
    bench = Bench(
        monkeypatch, {**case.base, "BIDE_WORKER_LOCK_TIMEOUT": "10m"} if name == "grace" else case.base
    )
    bench.items, bench.nap_s = case.items, case.nap_s
    bench.run(code={}, flags=[], monkeypatch=monkeypatch)
    with pytest.raises(AssertionError):
        case.check(bench.seen)


@pytest.mark.parametrize("uppermost", LAYERS)
def test_the_uppermost_layer_counts(uppermost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same setting in every layer up to one: another interval in each."""
    given = LAYERS[: LAYERS.index(uppermost) + 1]
    bench = Bench(monkeypatch, BASE | ({"BIDE_POLLING_INTERVAL": "3"} if "environment" in given else {}))
    if "file" in given:
        bench.app.include(tomllib.loads("[worker.polling]\ninterval = 2"))
    flags = ["--polling-interval", "4"]
    code = {"polling": PollingStrategy.fixed(1)}
    if uppermost == "flag":  # the command gives no options in code
        bench.app.environment = {**bench.app.environment, "BIDE_POLLING_STRATEGY": "fixed"}
        bench.run(code={}, flags=flags, monkeypatch=monkeypatch)
    else:
        bench.run(code=code, flags=[], monkeypatch=monkeypatch)
    gaps_begin(*[float(len(given))] * 3)(bench.seen)


def test_a_layer_replaces_single_settings_and_not_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, BASE | {"BIDE_POLLING_MAX_INTERVAL_MS": "3000"})
    bench.app.include(tomllib.loads("[worker.polling]\nmin_interval_ms = 500\nmax_interval_ms = 9000"))
    bench.run(code=adaptive(backoff_multiplier=3), flags=[], monkeypatch=monkeypatch)
    gaps_begin(1.5, 2.85, 2.85)(bench.seen)  # min of the file, growth of code, max of the environment


def test_code_is_above_the_default_and_below_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another strategy chosen above replaces the one of code with all its intervals."""
    bench = Bench(monkeypatch, BASE | {"BIDE_POLL_INTERVAL_MS": "7000"})
    bench.run(code=adaptive(min_interval="1s", max_interval="9s"), flags=[], monkeypatch=monkeypatch)
    gaps_begin(7, 7, 7)(bench.seen)


@pytest.mark.parametrize("name", ["min_poll_interval", "long_poll_timeout", "lock_timeout", "grace"])
def test_run_has_the_same_flags_for_what_deliveries_obey_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    bench = Bench(monkeypatch, case.base)
    bench.items, bench.nap_s = case.items, case.nap_s
    bench.run(code={}, flags=case.flag, monkeypatch=monkeypatch, command=("run", "--no-live"))
    case.check(bench.seen)


DELIVERING = {
    "file": (
        '[worker]\nlock_timeout = "45s"\n'
        '[runtime]\ndispatcher_long_poll_timeout = 0\ndispatcher_min_poll_interval = "9s"',
        {},
        {},
    ),
    "environment": (
        "",
        {
            "BIDE_WORKER_LOCK_TIMEOUT": "45s",
            "BIDE_DISPATCHER_LONG_POLL_TIMEOUT": "0",
            "BIDE_DISPATCHER_MIN_POLL_INTERVAL": "9s",
        },
        {},
    ),
    "flag": ("", {}, {"lock_timeout": "45s", "long_poll_timeout": "0", "min_poll_interval": "9s"}),
}


@pytest.mark.parametrize("layer", DELIVERING)
async def test_deliveries_are_fetched_by_the_same_settings(
    layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, environment, flags = DELIVERING[layer]
    clock = VirtualClock()
    app = App("memory://", clock=clock, environment=environment)
    app.include(tomllib.loads(file))
    app.flags = flags
    app.watch("w", url="http://127.0.0.1:1/", every="1d", to=[{"function": lambda delivery: None}])
    provider, polls = CountingProvider(clock), list[float]()
    monkeypatch.setattr("bide.app.open_provider", lambda *_: provider)
    app.telemetry.listen(
        lambda record: polls.append(clock.monotonic()) if isinstance(record, QueuePolled) else None
    )
    stopping = asyncio.Event()
    async with app.open():
        running = asyncio.ensure_future(app.run(stopping))
        await clock.advance(40)
        stopping.set()
        while not running.done():
            await clock.advance(0.5)
        await running
    asked = [how for how in provider.asked if how[0] == {DELIVERIES}]
    assert {how[1:] for how in asked} == {(timedelta(seconds=45), timedelta())}
    assert [round(after - before) for before, after in pairwise(polls)][:3] == [9, 9, 9]
