"""Tasks as users have them: declared, submitted, run by workers, and asked for their results."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bide import (
    App,
    ArgumentError,
    BideError,
    Context,
    DeclarationError,
    Discard,
    GiveBack,
    Handle,
    KeyConflict,
    NoResult,
    ResultError,
    ResultTimeout,
    Retry,
    SettingError,
    Succeeded,
    Task,
    TaskFailed,
    UnknownName,
    WorkerRunOptions,
)
from bide.engine.outcome import Outcome
from bide.provider import NewItem
from bide.telemetry import Record, TaskSettled
from bide.testing import VirtualClock

Make = Callable[..., App]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes apps over one store, in memory (each its own) or in a file (all the same)."""
    address = "memory://" if request.param == "memory" else "sqlite:///work.db"

    def make(clock: VirtualClock | None = None, **options: Any) -> App:
        return App(address, folder=tmp_path, clock=clock or VirtualClock(), environment={}, **options)

    return make


def clock_of(app: App) -> VirtualClock:
    assert isinstance(app.clock, VirtualClock)
    return app.clock


@asynccontextmanager
async def opened(*apps: App) -> AsyncIterator[None]:
    """Open ``apps``; their clocks stand still while a store's thread is at work."""
    for app in apps:
        clock_of(app).busy_while(lambda app=app: getattr(app._provider, "pending", 0))  # type: ignore[misc]
    async with asyncio.timeout(60):
        async with AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(app.open())
            yield


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[None]:
    """A worker of an open app, running meanwhile."""
    stopping = asyncio.Event()
    running = asyncio.ensure_future(app.worker(**options).run(stopping=stopping))
    await clock_of(app).advance(0)
    try:
        yield
    finally:
        stopping.set()
        app.stop_now()
        await clock_of(app).advance(0)
        await running


# --- declared and called -----------------------------------------------------------------------------------------


def test_a_task_is_still_the_function(make: Make) -> None:
    app = make()

    @app.task
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    @app.task(name="other", queue="slow")
    async def shout(text: str) -> str:
        return text.upper()

    assert isinstance(double, Task)
    assert double(4) == 8
    assert (double.name, double.__doc__) == ("double", "Twice the number.")
    assert asyncio.run(shout("hi")) == "HI"
    assert shout.name == "other"
    assert double(double.function(1)) == 4


def test_one_function_may_be_several_tasks(make: Make) -> None:
    app = make()

    @app.task(name="gently", priority=-5)
    @app.task(name="at_once", priority=5)
    def send(to: str) -> None: ...

    tasks = app.declarations.tasks
    assert {name: task.priority for name, task in tasks.items()} == {"gently": -5, "at_once": 5}
    assert tasks["gently"].function is tasks["at_once"].function


def test_mistakes_wait_for_the_check_with_all_others(make: Make) -> None:
    app = make()

    @app.task(queue="deliveries", max_attempts=0, quue="x")  # type: ignore[call-overload, untyped-decorator]  # a slip
    def send(delay: int) -> None: ...

    assert [mistake.where for mistake in app.check().mistakes] == [
        *("tasks.send.function", "tasks.send.max_attempts", "tasks.send.queue", "tasks.send.quue"),
    ]
    assert "Did you mean 'queue'?" in str(app.check().mistakes)
    with pytest.raises(TypeError, match=r"@app.task\(name=...\)"):
        app.task("send")  # type: ignore[call-overload]  # another slip


def test_nothing_heavy_is_imported_by_declaring_tasks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from bide import App, Context, Retry\n"
        "app = App('memory://')\n"
        "@app.task(every='1h')\n"
        "def tidy() -> None: ...\n"
        "heavy = {'pydantic', 'pydantic_core', 'cronsim', 'zoneinfo'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "app.check()\n"
        "assert 'pydantic_core' in sys.modules\n"
    )
    subprocess.run([sys.executable, str(program)], check=True)


# --- submitted, handled, and asked for results ---------------------------------------------------------------------


async def test_a_task_is_submitted_handled_and_its_result_fetched(make: Make) -> None:
    app = make()

    @app.task(keep_result="1h")
    async def price(symbol: str, amount: Decimal) -> dict[str, Decimal]:
        return {symbol: amount * 2}

    async with opened(app), working(app):
        handle = await price.submit("OAK", amount="1.05")
        assert handle.new
        result = asyncio.ensure_future(handle.result(timeout="5s"))
        await clock_of(app).advance(1)
        assert await result == {"OAK": Decimal("2.10")}
        again = await app.handle(handle.id).result()
        assert again == {"OAK": Decimal("2.10")}
        row = await handle.status()
        assert row is not None
        assert (row.state, row.name, row.attempts) == ("done", "price", 1)


async def test_odd_texts_and_numbers_come_through_as_they_are(make: Make) -> None:
    odd = ["", "\0", "\ufdd0", "\\u0000", "\u2028", "𝄞", "'\"\\", "a\tb\nc", "%s $1 {}", "x" * 100_000]
    app = make()

    @app.task(keep_result="1h")
    async def echo(text: str, number: int) -> tuple[str, int]:
        return text, number

    async with opened(app), working(app):
        handles = await echo.submit_many([(each, 10**30) for each in odd])
        await clock_of(app).advance(1)
        assert [await handle.result() for handle in handles] == [(each, 10**30) for each in odd]


async def test_without_keep_result_nothing_is_left_behind(make: Make) -> None:
    app = make()

    @app.task
    async def note(text: str) -> str:
        return text

    async with opened(app):
        handle = await note.submit("x")
        waiting = await handle.status()
        assert waiting is not None
        assert waiting.state == "ready"
        async with working(app):
            await clock_of(app).advance(1)
        assert await handle.status() is None
        with pytest.raises(NoResult, match="submitted without keep_result"):
            await handle.result()
        with pytest.raises(NoResult, match="nothing is kept of it"):
            await app.handle(handle.id).result()


async def test_keep_result_may_be_asked_for_by_one_submit(make: Make) -> None:
    app = make()

    @app.task
    async def note(text: str) -> str:
        return text

    async with opened(app), working(app):
        handle = await note.submit("x", keep_result="1m")
        await clock_of(app).advance(1)
        assert await handle.result() == "x"


async def test_a_result_that_never_comes_is_waited_for_no_longer_than_asked(make: Make) -> None:
    app = make()

    @app.task(keep_result="1h")
    async def note() -> None: ...

    async with opened(app):
        handle = await note.submit()
        began = app.clock.monotonic()
        waiting = asyncio.ensure_future(handle.result(timeout=3))
        await clock_of(app).advance(10)
        with pytest.raises(ResultTimeout, match="has no result after 3 s; it is ready and goes on"):
            await waiting
        assert app.clock.monotonic() - began == 10
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0)


async def test_a_dead_item_says_why(make: Make) -> None:
    app = make()

    @app.task(keep_result="1h", max_attempts=2, retry={"initial": "1s"})
    async def fails() -> None:
        raise RuntimeError("no route")

    @app.task(keep_result="1h")
    async def discards() -> None:
        raise Discard("no such customer")

    async with opened(app), working(app):
        handles = [await fails.submit(), await discards.submit()]
        await clock_of(app).advance(60)
        with pytest.raises(TaskFailed, match="gave up after 2 attempts: RuntimeError: no route") as failed:
            await handles[0].result()
        assert failed.value.task == "fails"
        with pytest.raises(TaskFailed) as discarded:
            await handles[1].result()
        assert discarded.value.reason == "no such customer"
        row = await handles[0].status()
        assert row is not None
        assert row.attempts == 2


async def test_a_kept_result_of_another_type_than_is_declared_now(tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = (App("sqlite:///work.db", folder=tmp_path, clock=clock, environment={}) for _ in range(2))

    @old.task(name="count", keep_result="1h")
    async def count() -> int:
        return 3

    @new.task(name="count", keep_result="1h")
    async def counts() -> list[int]:
        return [3]

    async with opened(old, new), working(old):
        handle = await count.submit()
        await clock.advance(1)
        assert await handle.result() == 3
        with pytest.raises(ResultError, match="is not what count returns: input should be a valid array"):
            await new.handle(handle.id).result()


async def test_retry_and_giving_back_end_to_end(make: Make) -> None:
    app = make()
    attempts: list[tuple[float, int]] = []

    @app.task(max_attempts=3)
    async def retries(context: Context) -> None:
        attempts.append((app.clock.monotonic(), context.attempt))
        raise Retry("10s", "not yet")

    @app.task(max_attempts=1, max_give_backs=3)
    async def gives_back(context: Context) -> None:
        attempts.append((app.clock.monotonic(), context.attempt))
        raise GiveBack("5s", "no slot")

    async with opened(app), working(app):
        handle = await retries.submit()
        await clock_of(app).advance(60)
        assert attempts == [(0, 1), (10, 2), (20, 3)]
        with pytest.raises(TaskFailed, match="gave up after 3 attempts: not yet"):
            await app.handle(handle.id).result()
        attempts.clear()
        handle = await gives_back.submit()
        await clock_of(app).advance(60)
        assert attempts == [(60, 1), (65, 1), (70, 1), (75, 1)]
        with pytest.raises(TaskFailed, match="given back more than 3 times: no slot"):
            await app.handle(handle.id).result()


# --- options of submit --------------------------------------------------------------------------------------------


async def test_an_item_begins_at_the_later_of_delay_and_instant(make: Make) -> None:
    app = make()
    handled: list[tuple[str, float]] = []

    @app.task
    async def note(name: str) -> None:
        handled.append((name, app.clock.monotonic()))

    async with opened(app), working(app):
        now = datetime.fromtimestamp(app.clock.utc_ms() / 1000, UTC)
        await note.submit("delayed", delay="10s")
        await note.submit("at", at=now + timedelta(seconds=20))
        await note.submit("both", delay=30, at=now + timedelta(seconds=5))
        await note.submit("past", at=now - timedelta(days=3))
        await clock_of(app).advance(60)
    assert handled == [("past", 0), ("delayed", 10), ("at", 20), ("both", 30)]


async def test_priority_goes_first_and_within_bounds_the_whole_life(make: Make) -> None:
    app = make()
    handled: list[str] = []

    @app.task(within="1h")
    async def note(name: str) -> None:
        handled.append(name)

    async with opened(app):
        short = await note.submit("short", within="1m")
        await note.submit("usual")
        await note.submit("urgent", priority=3)
        await clock_of(app).advance(120)
        async with working(app, concurrency=1):
            await clock_of(app).advance(1)
        assert handled == ["urgent", "usual"]
        row = await short.status()
        assert row is not None
        assert row.state == "dead"


async def test_a_key_is_one_item_and_another_payload_an_error(make: Make) -> None:
    app = make()
    handled: list[str] = []

    @app.task
    async def note(text: str) -> None:
        handled.append(text)

    async with opened(app):
        first = await note.submit("a", key="order-7")
        again = await note.submit("a", key="order-7")
        assert (first.new, again.new, again.id) == (True, False, first.id)
        async with working(app):
            await clock_of(app).advance(1)
        assert (await note.submit(text="a", key="order-7")).id == first.id
        with pytest.raises(KeyConflict, match="order-7"):
            await note.submit("b", key="order-7")
        with pytest.raises(KeyConflict):
            await note.submit_many([("c",), ("b",)], keys=[None, "order-7"])
        async with working(app):
            await clock_of(app).advance(1)
        assert handled == ["a"]
        await clock_of(app).advance(25 * 3600)
        assert (await note.submit("b", key="order-7")).new


async def test_many_are_submitted_in_one_go_or_not_at_all(make: Make) -> None:
    app = make()
    handled: list[tuple[str, int]] = []

    @app.task(keep_result="1h")
    async def note(text: str, number: int = 0) -> int:
        handled.append((text, number))
        return number

    async with opened(app), working(app):
        assert await note.submit_many([]) == []
        handles = await note.submit_many([{"text": "a", "number": 1}, ("b", 2), ["c"]], keys=["x", None, "y"])
        assert [handle.new for handle in handles] == [True] * 3
        await clock_of(app).advance(1)
        assert sorted(handled) == [("a", 1), ("b", 2), ("c", 0)]
        assert [await handle.result() for handle in handles] == [1, 2, 0]
        with pytest.raises(ArgumentError, match="call 1: number: input should be a valid integer"):
            await note.submit_many([("d", 1), ("e", "many")])
        with pytest.raises(SettingError, match="2 for 1 calls"):
            await note.submit_many([("f",)], keys=["a", "b"])
        await clock_of(app).advance(1)
        assert len(handled) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": "soon"}, "delay: 'soon' is not a duration"),
        ({"delay": -1}, "delay: -1 is negative"),
        ({"at": datetime(2026, 1, 31)}, "at: 2026-01-31 00:00:00 has no time zone"),  # noqa: DTZ001
        ({"at": 1_769_850_000}, "at: 1769850000 is not a datetime; for a duration from now use delay"),
        ({"priority": 1.5}, "priority: 1.5 is not a whole number"),
        ({"priority": 10**9}, "priority: 1000000000 is not a whole number up to 1000000"),
        ({"priority": True}, "priority: True is not a whole number"),
        ({"within": 0}, "within: 0 is zero"),
        ({"keep_result": "for ever"}, "keep_result: 'for ever' is not a duration"),
        (
            {"within": "1h", "delay": "1h"},
            "delay: 1h is not shorter than the whole life of the item, 1h (within)",
        ),
        ({"key": ""}, "key: must be printable text of 1 to 500 characters, not ''; leave it out"),
        ({"key": 7}, "key: must be printable text of 1 to 500 characters, not 7; give it as text"),
        (
            {"key": "x" * 501},
            "key: must be printable text of 1 to 500 characters, not 501 of them; use a shorter",
        ),
        (
            {"limit_key": "a\0b"},
            "limit_key: must be printable text of 1 to 500 characters, not 'a\\x00b'; leave",
        ),
    ],
)
async def test_an_option_that_it_cannot_have_is_named(options: dict[str, Any], message: str) -> None:
    app = App("memory://", clock=VirtualClock(), environment={})

    @app.task
    async def note() -> None: ...

    async with opened(app):
        with pytest.raises(SettingError) as caught:
            await note.submit(**options)
        assert str(caught.value).startswith(message)
        assert await app.provider.counts() == []


async def test_arguments_are_checked_before_anything_is_stored(make: Make) -> None:
    app = make()

    @app.task
    async def mail(to: str, copies: int = 1) -> None: ...

    async with opened(app):
        with pytest.raises(ArgumentError) as caught:
            await mail.submit(too="a", copies="many")
        assert caught.value.problems == (
            "to is missing",
            "copies: input should be a valid integer, unable to parse string as an integer",
            "there is no parameter 'too' (Did you mean 'to'?)",
        )
        assert await app.provider.counts() == []


async def test_a_transaction_decides_whether_it_is_stored(make: Make) -> None:
    app = make()

    @app.task
    async def note(text: str) -> None: ...

    async with opened(app):
        async with app.transaction() as transaction:
            kept = await note.submit("kept", transaction=transaction)
            await note.submit_many([("too",)], transaction=transaction)
        dropped: list[Handle] = []

        async def change_its_mind() -> None:
            async with app.transaction() as transaction:
                dropped.append(await note.submit("dropped", transaction=transaction))
                raise RuntimeError("changed my mind")

        with pytest.raises(RuntimeError, match="changed my mind"):
            await change_its_mind()
        assert await kept.status() is not None
        assert await dropped[0].status() is None
        assert len(await app.provider.items("default")) == 2
        with pytest.raises(TypeError, match="object is no transaction of this store"):
            await note.submit("x", transaction=object())


# --- workers --------------------------------------------------------------------------------------------------------


async def test_an_unknown_name_waits_for_a_worker_that_knows_it(tmp_path: Path) -> None:
    clock, handled = VirtualClock(), list[str]()
    old, new = (App("sqlite:///work.db", folder=tmp_path, clock=clock, environment={}) for _ in range(2))

    @old.task(name="known")
    @new.task(name="known")
    async def known(text: str) -> None:
        handled.append(text)

    @new.task
    async def added(text: str) -> None:
        handled.append(text)

    async with opened(old, new):
        handle = await added.submit("new")
        await known.submit("old")
        async with working(old):
            await clock.advance(600)
        assert handled == ["old"]
        row = await handle.status()
        assert row is not None
        assert (row.state, row.attempts, row.given_back) == ("ready", 0, 0)
        async with working(new):
            await clock.advance(1)
        assert handled == ["old", "new"]


async def test_an_item_that_cannot_be_read_is_told_of_counted_and_buried_and_nothing_is_lost(
    make: Make,
) -> None:
    app = make()
    told: list[Record] = []
    app.telemetry.listen(told.append)

    @app.task(max_attempts=2, retry={"initial": "1s"})
    async def mail(to: str) -> None: ...

    async with opened(app):
        await app.provider.enqueue(
            [
                NewItem("old", "default", "mail", '{"recipient":"a"}', max_attempts=2),
                NewItem("torn", "default", "mail", '{"to":', max_attempts=2),
            ]
        )
        await mail.submit("good")
        async with working(app):
            await clock_of(app).advance(30)
        rows = {row.id: row for row in await app.provider.items("default", states=["dead"])}
    assert {id: (row.state, row.attempts) for id, row in rows.items()} == {
        "old": ("dead", 2),
        "torn": ("dead", 1),
    }
    assert rows["old"].payload == '{"recipient":"a"}'
    settled = [record for record in told if isinstance(record, TaskSettled)]
    assert sorted((record.item, record.outcome) for record in settled if record.item in rows) == [
        *(("old", "dead"), ("old", "retried"), ("torn", "dead")),
    ]
    assert all(record.item in (record.error or "") for record in settled if record.error)
    assert [record.outcome for record in settled if record.item not in rows] == ["succeeded"]


async def test_hooks_of_the_app_are_called_around_every_task(make: Make) -> None:
    app = make()
    calls: list[Any] = []

    @app.before_task
    async def begin(context: Context) -> None:
        calls.append(("begin", context.task))

    @app.after_task
    def end(context: Context, outcome: Outcome) -> None:
        calls.append(("end", context.task, outcome))

    @app.task
    async def note() -> None:
        calls.append("note")

    async with opened(app), working(app):
        await note.submit()
        await clock_of(app).advance(1)
    assert calls == [("begin", "note"), "note", ("end", "note", Succeeded())]


async def test_limits_of_a_queue_and_of_its_keys_hold(make: Make) -> None:
    app = make()
    app.queue("mail", limit=3, per_key=1)
    running: list[str] = []
    most: list[int] = []

    @app.task(queue="mail")
    async def send(to: str) -> None:
        running.append(to)
        most.append(len(running))
        assert len(running) == len(set(running)), "one of each key"
        await app.clock.sleep(10)
        running.remove(to)

    async with opened(app), working(app):
        for to in "aabbccdd":
            await send.submit(to, limit_key=to)
        await clock_of(app).advance(120)
        assert max(most) == 3
        assert len(most) == 8
        assert await app.provider.items("mail", states=["dead", "ready", "running"]) == []


async def test_a_worker_takes_only_its_queues_and_no_more_than_its_places(make: Make) -> None:
    app = make()
    handled: list[str] = []
    running: list[int] = [0, 0]

    async def work(name: str) -> None:
        running[0] += 1
        running[1] = max(running)
        await app.clock.sleep(1)
        running[0] -= 1
        handled.append(name)

    mail = app.task(name="mail", queue="mail")(work)
    other = app.task(name="other")(work)
    async with opened(app):
        await mail.submit_many([("mail",)] * 6)
        await other.submit("other")
        async with working(app, queues=["mail"], concurrency=2):
            await clock_of(app).advance(30)
        assert handled == ["mail"] * 6
        assert running[1] == 2


async def test_settings_of_a_worker_come_from_its_options_too(make: Make) -> None:
    app = make()

    @app.task
    async def note(context: Context) -> None:
        await app.clock.sleep(1000)

    async with opened(app):
        await note.submit()
        stopping = asyncio.Event()
        options = WorkerRunOptions(grace="7s")
        running = asyncio.ensure_future(app.worker().run(options, stopping=stopping))
        await clock_of(app).advance(1)
        stopping.set()
        await clock_of(app).advance(6.9)
        assert not running.done()
        await clock_of(app).advance(0.2)
        await running
        (row,) = await app.provider.items("default")
        assert (row.state, row.attempts, row.given_back) == ("ready", 0, 1)


async def test_what_a_worker_cannot_do_is_said(make: Make) -> None:
    app = make()
    async with opened(app):
        with pytest.raises(BideError, match="no task is declared"):
            await app.worker().run()

    @app.task(queue="mail")
    async def note() -> None: ...

    with pytest.raises(BideError, match="the app is not open"):
        await app.worker().run()
    with pytest.raises(BideError, match="the app is not open"):
        await note.submit()
    async with opened(app):
        with pytest.raises(UnknownName, match="no queue named 'mial'; did you mean 'mail'"):
            await app.worker(queues=["mial"]).run()
        with pytest.raises(DeclarationError, match="at least 1"):
            await app.worker(concurrency=0).run()
        worker, stopping = app.worker(), asyncio.Event()
        running = asyncio.ensure_future(worker.run(stopping=stopping))
        await clock_of(app).advance(1)
        with pytest.raises(BideError, match="runs already"):
            await worker.run()
        stopping.set()
        await clock_of(app).advance(1)
        await running
        with pytest.raises(UnknownName, match="no task named 'nota'; did you mean 'note'"):
            app.task_named("nota")

        @app.task
        async def too_late() -> None: ...

        with pytest.raises(BideError, match="'too_late' was declared after the app was opened"):
            await too_late.submit()


async def test_a_task_of_a_file_is_submitted_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "jobs_of_a_file.py").write_text(
        "heard = []\nasync def send(to: str) -> None:\n    heard.append(to)\n"
    )
    (tmp_path / "bide.toml").write_text(
        '[app]\nprovider = "memory://"\n'
        "[queues.mail]\nlimit = 3\n"
        '[tasks.send_mail]\nfunction = "jobs_of_a_file:send"\nqueue = "mail"\n'
    )
    app = App.from_file(tmp_path / "bide.toml")
    app.clock, app.environment = VirtualClock(), {}
    async with opened(app), working(app):
        handle = await app.task_named("send_mail").submit(to="a@example.org")
        assert isinstance(handle, Handle)
        await clock_of(app).advance(1)
    assert sys.modules["jobs_of_a_file"].heard == ["a@example.org"]


async def test_a_plain_function_submits_from_its_thread(make: Make) -> None:
    app = make()
    handled: list[str] = []
    done = threading.Event()

    @app.task
    async def second(text: str) -> None:
        handled.append(text)
        done.set()

    @app.task
    def first() -> None:
        handled.append("first")
        assert second.submit_from_thread("second", key="once").new

    async with opened(app):
        with pytest.raises(BideError, match=r"use `await task\.submit"):
            second.submit_from_thread("x")
        await first.submit()
        async with working(app):
            while not done.is_set():  # its thread takes real time
                await clock_of(app).advance(0.2)
                await asyncio.sleep(0.001)
    assert handled == ["first", "second"]
    with pytest.raises(BideError, match="the app is not open"):
        second.submit_from_thread("x")


async def test_run_runs_tasks_and_periodic_ones_beside_everything_else(make: Make) -> None:
    app = make()
    handled: list[str] = []

    @app.task
    async def note() -> None:
        handled.append("note")

    @app.task(every="1h")
    async def tidy() -> None:
        handled.append("tidy")

    async with opened(app):
        stopping = asyncio.Event()
        running = asyncio.ensure_future(app.run(stopping))
        await note.submit()
        await clock_of(app).advance(3 * 3600)
        stopping.set()
        await clock_of(app).advance(1)
        await running
    assert sorted(handled) == ["note", "tidy", "tidy", "tidy"]


async def test_workers_of_a_fleet_run_a_periodic_task_once(tmp_path: Path) -> None:
    clock, handled = VirtualClock(), list[float]()
    apps = [App("sqlite:///work.db", folder=tmp_path, clock=clock, environment={}) for _ in range(3)]

    async def tidy() -> None:
        handled.append(clock.monotonic())

    for app in apps:
        app.task(name="tidy", cron="0 * * * *", timezone="Europe/Berlin")(tidy)
    async with opened(*apps):
        stopping = asyncio.Event()
        running = [asyncio.ensure_future(app.worker().run(stopping=stopping)) for app in apps]
        await clock.advance(5 * 3600)
        stopping.set()
        await clock.advance(1)
        await asyncio.wait(running)
        assert [worker.result() for worker in running] == [None] * 3
    assert len(handled) == 5
    assert all(later - earlier >= 3600 for earlier, later in pairwise(handled))


async def test_a_worker_of_some_queues_enqueues_only_their_periodic_tasks(make: Make) -> None:
    app = make()
    handled: list[str] = []

    @app.task(queue="night", every="1h")
    async def tidy() -> None:
        handled.append("tidy")

    @app.task(every="1h")
    async def other() -> None:
        handled.append("other")

    async with opened(app):
        async with working(app, queues=["night"]):
            await clock_of(app).advance(3600)
        assert handled == ["tidy"]
        assert await app.provider.items("default") == []


@pytest.mark.parametrize("everything", [False, True])
async def test_without_long_polls_what_is_submitted_here_is_begun_at_once(
    make: Make, everything: bool
) -> None:
    app = make()
    app.include({"runtime": {"dispatcher_long_poll_timeout": 0}, "worker": {"poll_interval": 60}})
    handled: list[float] = []

    @app.task
    async def note() -> None:
        handled.append(app.clock.monotonic())

    async with opened(app):
        stopping = asyncio.Event()
        run = app.run(stopping) if everything else app.worker().run(stopping=stopping)
        running = asyncio.ensure_future(run)
        await clock_of(app).advance(10)
        await note.submit()
        await clock_of(app).advance(1)
        assert handled == [10]
        async with app.transaction() as transaction:
            await note.submit(transaction=transaction)
        await clock_of(app).advance(60)
        assert len(handled) == 2, "found by polling"
        stopping.set()
        await clock_of(app).advance(1)
        await running


async def test_other_event_loops_of_the_process_submit_too(make: Make) -> None:
    """As a web framework does that runs plain handlers on threads, each with a loop of its own."""
    app = make()
    handled: list[int] = []

    @app.task
    async def note(number: int) -> None:
        handled.append(number)

    async with opened(app), working(app):
        await asyncio.gather(
            *(asyncio.to_thread(lambda n=n: asyncio.run(note.submit(n))) for n in range(8))  # type: ignore[misc]
        )
        while len(handled) < 8:  # the threads took real time
            await clock_of(app).advance(0.2)
            await asyncio.sleep(0.001)
    assert sorted(handled) == list(range(8))
