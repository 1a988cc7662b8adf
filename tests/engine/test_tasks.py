"""The handler of tasks: one attempt, and what comes of it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from bide.core.arguments import read_signature
from bide.core.context import Context, Discard, GiveBack, Retry
from bide.core.pacing import Backoff
from bide.core.work import TaskDeclaration
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded
from bide.engine.tasks import TaskHandler
from bide.provider import NewItem, WorkItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import Telemetry
from bide.testing import VirtualClock

SECOND = timedelta(seconds=1)
ZERO = timedelta()
SECRET = "hunter2"


def declare(function: Callable[..., Any], **options: Any) -> TaskDeclaration:
    signature, flaws = read_signature("mail", function)
    assert flaws == []
    assert signature is not None
    return TaskDeclaration("mail", function, "test:mail", signature, **options)


def item(payload: str = "{}", **changes: Any) -> WorkItem:
    made = WorkItem("item-1", "default", "mail", payload, "token", 1, 0, 1_769_850_000_000, None, 5)
    return replace(made, **changes)


def handler(function: Callable[..., Any], clock: VirtualClock | None = None, **options: Any) -> TaskHandler:
    hooks = {name: options.pop(name) for name in ("before", "after", "places") if name in options}
    return TaskHandler(
        {"mail": declare(function, **options)},
        clock=clock or VirtualClock(),
        hide=lambda text: text.replace(SECRET, "***"),
        **hooks,
    )


async def outcome(function: Callable[..., Any], work: WorkItem | None = None, **options: Any) -> Outcome:
    return await handler(function, **options).handle(work or item())


# --- the call -----------------------------------------------------------------------------------------------


async def test_the_function_gets_its_arguments_with_their_types() -> None:
    got: list[Any] = []

    async def mail(to: str, when: datetime, copies: int = 1) -> None:
        got.extend([to, when, copies])

    payload = '{"to":"a@example.org","when":"2026-01-31T09:00:00Z"}'
    assert await outcome(mail, item(payload)) == Succeeded()
    assert got == ["a@example.org", datetime(2026, 1, 31, 9, tzinfo=UTC), 1]


async def test_a_plain_function_runs_on_a_thread_and_what_it_returns_is_awaited_if_it_can_be() -> None:
    threads: list[threading.Thread] = []

    def mail(name: str) -> Awaitable[str]:
        threads.append(threading.current_thread())

        async def rest() -> str:
            threads.append(threading.current_thread())
            return name

        return rest()

    def typed(name: str) -> str:
        return name * 2

    assert await outcome(mail, item('{"name":"x"}')) == Succeeded()
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()
    assert await outcome(typed, item('{"name":"x"}', keeps_result=True)) == Succeeded('"xx"')


async def test_the_context_says_what_the_attempt_is() -> None:
    got: list[Context] = []
    clock = VirtualClock(start_ms=1_769_850_010_000)

    async def mail(to: str, context: Context) -> None:
        got.append(context)

    work = item('{"to":"a"}', attempt=3, queue="letters", expires_at=1_769_850_100_000)
    await outcome(mail, work, clock=clock)
    (context,) = got
    assert (context.id, context.task, context.queue) == ("item-1", "mail", "letters")
    assert (context.attempt, context.max_attempts, context.cancelled) == (3, 5, False)
    assert context.enqueued_at == datetime(2026, 1, 31, 9, tzinfo=UTC)
    assert context.deadline == datetime(2026, 1, 31, 9, 1, 40, tzinfo=UTC)


async def test_the_deadline_is_the_earlier_of_the_timeout_and_the_end_of_the_items_life() -> None:
    deadlines: list[datetime | None] = []

    async def mail(context: Context) -> None:
        deadlines.append(context.deadline)

    clock = VirtualClock(start_ms=1_769_850_010_000)
    await outcome(mail, clock=clock)
    await outcome(mail, clock=clock, timeout=timedelta(seconds=5))
    await outcome(mail, item(expires_at=1_769_850_012_000), clock=clock, timeout=timedelta(seconds=5))
    assert deadlines == [
        None,
        datetime(2026, 1, 31, 9, 0, 15, tzinfo=UTC),
        datetime(2026, 1, 31, 9, 0, 12, tzinfo=UTC),
    ]


# --- how an attempt ends ------------------------------------------------------------------------------------


async def test_a_failure_is_tried_again_by_the_back_off_and_says_where_it_was() -> None:
    async def mail() -> None:
        raise RuntimeError(f"no route with {SECRET}")

    backoff = Backoff(timedelta(seconds=2), timedelta(seconds=60), 3)
    made = await outcome(mail, item(attempt=3), clock=VirtualClock(draws=0.5), retry=backoff)
    assert isinstance(made, Retried)
    assert made.delay == timedelta(seconds=9)
    assert made.error.startswith("RuntimeError: no route with *** (test_tasks.py:")


async def test_a_handler_that_exits_or_cancels_itself_has_failed() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    async def cancels() -> None:
        raise asyncio.CancelledError

    async def fails_oddly() -> None:
        raise BaseExceptionGroup(f"several {SECRET}", [KeyboardInterrupt()])

    def stops() -> None:
        raise StopIteration("end")

    def interrupts() -> None:
        raise KeyboardInterrupt

    for function in (exits, cancels, fails_oddly, stops, interrupts):
        made = await outcome(function)
        assert isinstance(made, Retried)
        assert SECRET not in made.error


async def test_retry_says_when() -> None:
    async def mail(after: str | None) -> None:
        raise Retry(after, f"busy {SECRET}")

    clock = VirtualClock(draws=0.5)
    assert await outcome(mail, item('{"after":"7s"}')) == Retried("busy ***", timedelta(seconds=7))
    assert await outcome(mail, item('{"after":null}'), clock=clock) == Retried("busy ***", SECOND / 2)


async def test_giving_back_has_a_limit_of_its_own() -> None:
    async def mail() -> None:
        raise GiveBack("3s", "no slot")

    given_back = GivenBack("no slot", timedelta(seconds=3))
    assert await outcome(mail, item(given_back=1), max_give_backs=2) == given_back
    assert await outcome(mail, item(given_back=2), max_give_backs=2) == Dead(
        "given back more than 2 times: no slot"
    )
    assert isinstance(await outcome(mail, item(given_back=99)), GivenBack)
    assert isinstance(await outcome(mail, item(given_back=100)), Dead)


async def test_discard_ends_the_item_with_its_reason() -> None:
    def mail() -> None:
        raise Discard(f"{SECRET} is unknown")

    assert await outcome(mail) == Dead("*** is unknown")


async def test_a_wait_that_is_none_is_a_failure_that_names_it() -> None:
    async def mail() -> None:
        raise Retry("soon")

    made = await outcome(mail)
    assert isinstance(made, Retried)
    assert "Retry(after): 'soon' is not a duration" in made.error


# --- arguments that cannot be read, and results that cannot be kept -----------------------------------------


async def test_arguments_of_another_signature_cost_an_attempt_and_name_the_item() -> None:
    async def mail(to: str, subject: str) -> None:
        raise AssertionError("not called")

    made = await outcome(mail, item('{"to":"a","text":"b"}'))
    assert isinstance(made, Retried), "a newer version of the program may read them"
    assert made.error.startswith("item item-1: the stored arguments do not fit mail(to: ")
    assert "subject is missing" in made.error
    assert "there is no parameter 'text'" in made.error


def refuses(value: str) -> str:
    """A validator of the user's that fails in a way of its own, once it is wanted to."""
    if value == "gone":
        raise RuntimeError("no catalogue")
    return value


async def test_a_validator_that_fails_when_arguments_are_read_costs_an_attempt() -> None:
    async def mail(to: Annotated[str, AfterValidator(refuses)]) -> None: ...

    assert await outcome(mail, item('{"to":"here"}')) == Succeeded()
    made = await outcome(mail, item('{"to":"gone"}'))
    assert isinstance(made, Retried)
    assert made.error.startswith("RuntimeError: no catalogue (test_tasks.py:")


async def test_arguments_that_are_no_json_are_dead_at_once() -> None:
    async def mail() -> None: ...

    made = await outcome(mail, item('{"to":'))
    assert isinstance(made, Dead)
    assert made.error.startswith("item item-1: the stored arguments cannot be read: no JSON")
    made = await outcome(mail, item("", unreadable="no UTF-8"))
    assert made == Dead("the stored arguments of item item-1 cannot be read: no UTF-8")


async def test_a_result_is_kept_only_where_the_item_keeps_one() -> None:
    async def mail() -> dict[str, int]:
        return {"sent": 3}

    assert await outcome(mail) == Succeeded()
    assert await outcome(mail, item(keeps_result=True)) == Succeeded('{"sent":3}')


async def test_a_result_that_cannot_be_kept_is_dead_with_a_reason_and_not_made_again() -> None:
    async def mail():  # type: ignore[no-untyped-def]  # as a user may write it
        return object()

    assert await outcome(mail) == Succeeded(), "nobody asked for it"
    made = await outcome(mail, item(keeps_result=True))
    assert isinstance(made, Dead)
    assert made.error.startswith("what mail returned cannot be kept as JSON")


# --- timeouts and threads -----------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    clock, seen = VirtualClock(), list[str]()

    async def mail(context: Context) -> None:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            seen.append(f"cancelled {context.cancelled}")
            raise

    handling = asyncio.ensure_future(handler(mail, clock, timeout=timedelta(seconds=5)).handle(item()))
    await clock.advance(4.9)
    assert not handling.done()
    await clock.advance(0.2)
    made = await handling
    assert isinstance(made, Retried)
    assert made.error == "no end after 5s"
    assert seen == ["cancelled True"]


async def test_a_time_out_of_the_functions_own_is_a_failure_like_any_other() -> None:
    async def mail() -> None:
        raise TimeoutError("upstream")

    made = await outcome(mail, timeout=timedelta(seconds=5))
    assert isinstance(made, Retried)
    assert made.error.startswith("TimeoutError: upstream")


async def test_a_thread_sees_that_it_is_cancelled_and_one_that_goes_on_is_told_of() -> None:
    clock, contexts = VirtualClock(), list[Context]()
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def mail(context: Context) -> str:
        contexts.append(context)
        started.set()
        go_on.wait(30)
        ended.set()
        return "too late"

    tasks = handler(mail, clock, timeout=timedelta(seconds=5), places=1)
    handling = asyncio.ensure_future(tasks.handle(item()))
    await clock.advance(0)
    assert await asyncio.to_thread(started.wait, 30)
    assert [context.cancelled for context in contexts] == [False]
    await clock.advance(5.1)
    assert [context.cancelled for context in contexts] == [True]
    await clock.advance(1.1)
    made = await handling
    assert isinstance(made, Retried)
    assert made.error == "no end after 5s; its thread goes on, and what it returns is discarded"

    again = await tasks.handle(item(attempt=2))
    assert again == GivenBack("threads of its attempts that were given up are still running", SECOND)

    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    for _ in range(1000):  # the thread's last word comes in by the event loop
        await asyncio.sleep(0.001)
        if not isinstance(made := await tasks.handle(item(attempt=2, keeps_result=True)), GivenBack):
            break
    assert made == Succeeded('"too late"')


async def test_a_thread_that_ends_when_it_is_cancelled_is_given_no_more_time() -> None:
    clock = VirtualClock()
    started = threading.Event()

    def mail(context: Context) -> None:
        started.set()
        while not context.cancelled:
            pass

    clock.busy_while(lambda: not started.is_set())
    handling = asyncio.ensure_future(handler(mail, clock).handle(item()))
    assert await asyncio.to_thread(started.wait, 30)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling


# --- hooks --------------------------------------------------------------------------------------------------

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


@pytest.mark.parametrize("plain", [False, True])
async def test_hooks_are_called_around_each_attempt_in_their_order(plain: bool) -> None:
    calls: list[Any] = []

    def before(context: Context) -> None:
        calls.append(("before", context.id, context.attempt))
        WHO.set("the hook")

    async def before_too(context: Context) -> None:
        calls.append("before too")

    async def after(context: Context, outcome: Outcome) -> None:
        calls.append(("after", outcome))

    def note() -> int:
        calls.append(WHO.get())
        return 3

    async def note_too() -> int:
        return note()

    made = await outcome(
        note if plain else note_too, item(keeps_result=True), before=[before, before_too], after=[after]
    )
    assert calls == [("before", "item-1", 1), "before too", "the hook", ("after", Succeeded("3"))]
    assert made == Succeeded("3")


async def test_what_a_hook_before_raises_is_what_the_attempt_raised() -> None:
    told: list[Outcome] = []

    async def mail() -> None:
        raise AssertionError("not called")

    def refuse(context: Context) -> None:
        raise Discard("not on Sundays")

    def fail(context: Context) -> None:
        raise RuntimeError("no database")

    def after(context: Context, outcome: Outcome) -> None:
        told.append(outcome)

    assert await outcome(mail, before=[refuse], after=[after]) == Dead("not on Sundays")
    assert isinstance(await outcome(mail, before=[fail], after=[after]), Retried)
    assert [type(each) for each in told] == [Dead, Retried]


@pytest.mark.parametrize("error", [RuntimeError("hook"), SystemExit(1), asyncio.CancelledError()])
async def test_what_a_hook_after_raises_is_logged_and_changes_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    async def mail() -> None: ...

    def fails(context: Context, outcome: Outcome) -> None:
        raise error

    with caplog.at_level(logging.ERROR, "bide"):
        made = await outcome(mail, after=[fails, lambda context, outcome: called.append("next")])
    assert made == Succeeded()
    assert called == ["next"]
    assert "a hook failed after task mail" in caplog.text


async def test_hooks_hear_of_an_attempt_that_was_stopped() -> None:
    told: list[Outcome] = []
    clock = VirtualClock()

    async def mail() -> None:
        await clock.sleep(60)

    tasks = handler(mail, clock, after=[lambda context, outcome: told.append(outcome)])
    handling = asyncio.ensure_future(tasks.handle(item()))
    await clock.advance(1)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert told == [GivenBack("stopped before it was done", ZERO)]


async def test_what_is_done_stays_done_where_a_hook_after_it_is_stopped() -> None:
    clock = VirtualClock()

    async def mail() -> None: ...

    handling = asyncio.ensure_future(
        handler(mail, clock, after=[lambda context, outcome: clock.sleep(60)]).handle(item())
    )
    await clock.advance(1)
    handling.cancel()
    assert await handling == Succeeded()


# --- under the dispatcher -----------------------------------------------------------------------------------


class Rig:
    """A dispatcher of tasks over a store in memory."""

    def __init__(self, function: Callable[..., Any], grace: timedelta, **options: Any) -> None:
        self.clock = VirtualClock()
        self.provider = MemoryProvider(self.clock)
        self.told: list[tuple[Outcome, bool]] = []
        self.stopping = asyncio.Event()
        self.dispatcher = Dispatcher(
            self.provider,
            handler(function, self.clock, **options).handle,
            queues=["default"],
            places={"mail": 10},
            clock=self.clock,
            telemetry=Telemetry(),
            told=lambda item, outcome, lost, elapsed: self.told.append((outcome, lost)),
            settings=DispatcherSettings(grace=grace),
        )

    async def start(self) -> asyncio.Task[None]:
        await self.provider.enqueue([NewItem("item-1", "default", "mail", "{}", max_attempts=5)])
        running = asyncio.ensure_future(self.dispatcher.run(self.stopping))
        await self.clock.advance(0)
        return running

    async def state(self) -> tuple[str, int, int]:
        row = await self.provider.item("item-1")
        assert row is not None
        return row.state, row.attempts, row.given_back


async def test_a_thread_that_outlives_the_grace_is_told_of_and_its_result_is_discarded() -> None:
    started, go_on = threading.Event(), threading.Event()

    def mail(context: Context) -> None:
        started.set()
        go_on.wait(30)

    rig = Rig(mail, grace=timedelta(seconds=2))
    running = await rig.start()
    assert await asyncio.to_thread(started.wait, 30)
    rig.stopping.set()
    await rig.clock.advance(2.1)
    await rig.clock.advance(5)
    await running
    ((made, lost),) = rig.told
    assert isinstance(made, GivenBack)
    assert made.reason == ("stopped before it was done; its thread goes on, and what it returns is discarded")
    assert made.delay == timedelta(seconds=30), "nobody else gets it sooner than after a lock"
    assert not lost
    assert await rig.state() == ("ready", 0, 1)
    go_on.set()
    await asyncio.sleep(0.05)
    assert await rig.state() == ("ready", 0, 1)


async def test_an_async_function_gets_the_grace_and_is_given_back_uncounted() -> None:
    cancelled: list[bool] = []
    clocks: list[VirtualClock] = []

    async def mail(context: Context) -> None:
        try:
            await clocks[0].sleep(60)
        finally:
            cancelled.append(True)

    rig = Rig(mail, grace=timedelta(seconds=2))
    clocks.append(rig.clock)
    running = await rig.start()
    rig.stopping.set()
    await rig.clock.advance(1.9)
    assert cancelled == []
    await rig.clock.advance(0.2)
    await running
    assert cancelled == [True]
    assert await rig.state() == ("ready", 0, 1)


async def test_an_attempt_with_a_timeout_can_be_stopped_too() -> None:
    clocks: list[VirtualClock] = []

    async def mail() -> None:
        await clocks[0].sleep(60)

    rig = Rig(mail, grace=ZERO, timeout=timedelta(seconds=50))
    clocks.append(rig.clock)
    running = await rig.start()
    rig.stopping.set()
    await rig.clock.advance(1)
    await running
    assert await rig.state() == ("ready", 0, 1)


async def test_nothing_is_inspected_for_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mail(to: str, context: Context) -> None: ...

    def forbidden(*args: object, **kwargs: object) -> Any:
        raise AssertionError("inspected for an item")

    tasks = handler(mail)
    for name in ("signature", "iscoroutinefunction", "isawaitable"):
        monkeypatch.setattr(inspect, name, forbidden)
    assert await tasks.handle(item('{"to":"a"}')) == Succeeded()
