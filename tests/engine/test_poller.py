"""The polling machine under way, in virtual time: one request at a time, whatever is called when."""

# ruff: noqa: PT012 - loops are what is tested

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide import Poller, PollingState, PollOne, QuitPolling, RetryAfter, SettingError
from bide.engine.poller import MOST_WAITING
from bide.testing import VirtualClock


class Api:
    """Answers in turn (the last for ever), and sees how many requests are out at once."""

    def __init__(self, clock: VirtualClock, *answers: Any, takes: float = 1.0) -> None:
        self.clock = clock
        self.answers = answers
        self.takes = takes
        self.times: list[float] = []
        self.out = 0
        self.most_out = 0
        self.cancelled = 0

    async def __call__(self) -> Any:
        self.times.append(self.clock.monotonic())
        answer = self.answers[min(len(self.times), len(self.answers)) - 1]
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            await self.clock.sleep(self.takes)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.out -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def decide(outcome: Any) -> Any:
    match outcome:
        case "again":
            return PollOne()
        case "quit":
            return QuitPolling()
        case int():
            return RetryAfter(outcome)
        case _:
            return RetryAfter()


async def taken(messages: Poller[Any]) -> list[Any]:
    return [message async for message in messages]


@asynccontextmanager
async def running(
    api: Api, clock: VirtualClock
) -> AsyncIterator[tuple[Poller[Any], asyncio.Task[list[Any]]]]:
    """A poller under way, and a task that takes its messages."""
    async with Poller(api, decide, clock=clock) as poller:
        taking = asyncio.ensure_future(taken(poller))
        await clock.advance(0)
        yield poller, taking
        taking.cancel()
        await asyncio.wait({taking})


async def test_it_polls_by_its_decisions_and_ends_with_quit_polling() -> None:
    clock = VirtualClock(autojump=True)
    api = Api(clock, "again", "later", OSError("x"), "later", 3, "again", "later", "quit")
    async with Poller(api, decide, clock=clock) as messages:
        seen = await taken(messages)
        assert messages.state is PollingState.NotPolling
    # At once, 10 s, 20 s, 40 s, 3 s as given, at once and the back-off forgotten, 10 s.
    assert api.times == [0, 1, 12, 33, 74, 78, 79, 90]
    assert [str(each) for each in seen] == ["again", "later", "x", "later", "3", "again", "later", "quit"]
    assert api.most_out == 1


async def test_messages_are_what_create_message_makes() -> None:
    clock = VirtualClock(autojump=True)
    async with Poller(
        Api(clock, 1, OSError("x"), "quit"), decide, lambda outcome: f"<{outcome}>", clock=clock
    ) as messages:
        assert await taken(messages) == ["<1>", "<x>", "<quit>"]


async def test_a_graceful_stop_lets_the_request_finish_and_yields_its_message() -> None:
    clock = VirtualClock()
    api = Api(clock, "later")
    async with running(api, clock) as (poller, taking):
        await clock.advance(0.5)
        poller.stop()
        state: PollingState = poller.state
        assert state is PollingState.QuittingPolling
        poller.start()  # ignored
        await clock.advance(0.4)
        assert not taking.done()
        await clock.advance(0.1)
        assert await taking == ["later"]
        assert (poller.state, api.times, clock.sleeping) == (PollingState.NotPolling, [0], 0)


async def test_a_stop_in_mid_wait_ends_it_at_once() -> None:
    clock = VirtualClock()
    api = Api(clock, "later")
    async with running(api, clock) as (poller, taking):
        await clock.advance(5)
        assert poller.state is PollingState.Waiting
        poller.stop()
        state: PollingState = poller.state
        assert state is PollingState.NotPolling
        assert await taking == ["later"]
        await clock.advance(1000)
        assert api.times == [0]


async def test_stop_now_cancels_the_request_and_yields_nothing_of_it() -> None:
    clock = VirtualClock()
    api = Api(clock, "later")
    async with running(api, clock) as (poller, taking):
        await clock.advance(0.5)
        poller.stop_now()
        assert poller.state is PollingState.NotPolling
        assert await taking == []
        assert api.cancelled == 1


async def test_a_start_in_mid_wait_asks_now_and_one_while_a_request_is_out_is_ignored() -> None:
    clock = VirtualClock()
    api = Api(clock, "later")
    async with running(api, clock) as (poller, _):
        poller.start()
        await clock.advance(5)
        poller.start()
        poller.start()
        await clock.advance(0.5)
        assert api.times == [0, 5]
        await clock.advance(25)  # 20 s after its end at 6
        assert api.times == [0, 5, 26]
        assert api.most_out == 1


async def test_a_new_start_waits_for_the_end_of_a_request_that_was_cancelled() -> None:
    clock = VirtualClock()

    class Slow(Api):
        async def __call__(self) -> Any:
            self.out += 1
            self.most_out = max(self.most_out, self.out)
            self.times.append(self.clock.monotonic())
            try:
                await self.clock.sleep(1)
            except asyncio.CancelledError:
                await self.clock.sleep(5)  # its clean-up takes its time
                raise
            finally:
                self.out -= 1
            return "later"

    api = Slow(clock)
    async with running(api, clock) as (poller, taking):
        await clock.advance(0.5)
        poller.stop_now()
        poller.start()
        state: PollingState = poller.state
        assert state is PollingState.Polling
        await clock.advance(10)
        assert (api.times, api.most_out) == ([0, 5.5], 1)
        assert not taking.done()  # the same iterator goes on


async def test_a_start_that_is_stopped_while_it_waits_for_that_end_lets_no_other_overtake_it() -> None:
    clock = VirtualClock()

    class Slow(Api):
        async def __call__(self) -> Any:
            try:
                return await super().__call__()
            except asyncio.CancelledError:
                self.out += 1
                await asyncio.shield(asyncio.ensure_future(self.clock.sleep(5)))  # its clean-up
                self.out -= 1
                raise

    api = Slow(clock, "later")
    async with running(api, clock) as (poller, _):
        for _ in range(3):
            await clock.advance(0.1)
            poller.stop_now()
            poller.start()
        await clock.advance(4)
        assert (len(api.times), api.out) == (1, 1)
        await clock.advance(3)
        assert (len(api.times), api.most_out) == (2, 1)


async def test_it_can_be_started_and_iterated_again() -> None:
    clock = VirtualClock(autojump=True)
    api = Api(clock, "later", "quit", "again", "quit")
    async with Poller(api, decide, clock=clock) as messages:
        assert await taken(messages) == ["later", "quit"]
        messages.start()
        assert await taken(messages) == ["again", "quit"]


async def test_leaving_the_block_cancels_what_is_out_and_leaves_nothing() -> None:
    clock = VirtualClock()
    api = Api(clock, "later")
    async with Poller(api, decide, clock=clock) as messages:
        await clock.advance(0.5)
        assert messages.state is PollingState.Polling
    assert api.cancelled == 1
    async with Poller(api, decide, clock=clock):
        await clock.advance(5)
    await clock.advance(0)
    assert clock.sleeping == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_outside_of_its_block_it_does_not_start() -> None:
    clock = VirtualClock(autojump=True)
    poller = Poller(Api(clock, "quit"), decide, clock=clock)
    with pytest.raises(RuntimeError, match="inside of its block"):
        poller.start()
    poller.stop()
    poller.stop_now()
    async with poller:
        with pytest.raises(RuntimeError, match="in use"):
            await poller.__aenter__()


@pytest.mark.parametrize("wrong", [None, True, "again", PollOne])
async def test_a_decision_that_is_none_ends_the_polling_and_is_raised_to_the_reader(wrong: Any) -> None:
    clock = VirtualClock(autojump=True)
    async with Poller(Api(clock, 1), lambda outcome: wrong, clock=clock) as messages:
        with pytest.raises(TypeError, match="is no decision"):
            await taken(messages)
        assert messages.state is PollingState.NotPolling
        assert await taken(messages) == []


async def test_what_decide_and_create_message_raise_is_raised_after_what_came_before() -> None:
    clock = VirtualClock(autojump=True)
    seen: list[str] = []
    async with Poller(Api(clock, 1, "boom"), decide, lambda v: {1: "one"}[v], clock=clock) as messages:
        with pytest.raises(KeyError):
            async for message in messages:
                seen += [message]
    assert seen == ["one"]


async def test_a_request_that_is_cancelled_from_elsewhere_does_not_look_like_a_cancellation() -> None:
    clock = VirtualClock(autojump=True)

    async def request() -> None:
        raise asyncio.CancelledError

    async with Poller(request, decide, clock=clock) as messages:
        with pytest.raises(RuntimeError, match="was cancelled from elsewhere"):
            await taken(messages)


async def test_a_plain_request_runs_on_a_thread_and_an_old_answer_moves_nothing() -> None:
    clock = VirtualClock()
    entered, unblock, calls = threading.Semaphore(0), threading.Semaphore(0), [0]
    under_way = [0]
    clock.busy_while(lambda: under_way[0])

    def request() -> str:
        calls[0] += 1
        call = calls[0]
        entered.release()
        unblock.acquire(timeout=60)
        return f"answer {call}"

    async with Poller(request, lambda outcome: QuitPolling(), clock=clock) as messages:
        await asyncio.to_thread(entered.acquire)
        messages.stop_now()
        messages.start()
        await clock.advance(5)
        assert calls == [1]  # the new request waits for the end of the old call
        unblock.release()
        await asyncio.to_thread(entered.acquire)
        unblock.release()
        assert await taken(messages) == ["answer 2"]


async def test_a_reader_that_takes_nothing_stops_the_requests_until_it_does() -> None:
    clock = VirtualClock()
    api = Api(clock, "again", takes=0.2)
    async with Poller(api, decide, clock=clock) as messages:
        await clock.advance(10 * MOST_WAITING)
        assert len(api.times) == MOST_WAITING
        assert await anext(messages) == "again"
        await clock.advance(10)
        assert len(api.times) == MOST_WAITING + 1
        messages.stop()
        assert messages.state is PollingState.NotPolling
        assert len(await taken(messages)) == MOST_WAITING


async def test_answers_that_come_at_once_do_not_spin() -> None:
    clock = VirtualClock()
    api = Api(clock, "again", takes=0)
    async with running(api, clock):
        await clock.advance(1)
    assert len(api.times) == 11


async def test_long_waits_are_waited() -> None:
    clock = VirtualClock(autojump=True)
    api = Api(clock, 86400 * 300, "quit", takes=0)
    async with Poller(api, decide, clock=clock) as messages:
        await taken(messages)
    assert api.times == [0, 86400 * 300]


@pytest.mark.parametrize("setting", ["min_retry_after", "max_retry_after", "back_off_rate", "min_cycle"])
def test_settings_are_refused_by_name(setting: str) -> None:
    options: dict[str, Any] = {setting: 0}
    with pytest.raises(SettingError, match=rf"^{setting}: "):
        Poller(Api(VirtualClock(), 1), decide, **options)


acts = st.lists(
    st.tuples(st.sampled_from(["start", "stop", "stop_now", "wait"]), st.floats(0, 15)), max_size=30
)
answers = st.lists(st.sampled_from(["again", "later", "quit", 0, 4]), min_size=1, max_size=8)


@given(acts=acts, answers=answers, takes=st.sampled_from([0.0, 0.05, 1.0, 7.0]))
@settings(max_examples=150, deadline=None)
def test_any_order_of_calls_keeps_to_one_request_and_a_stop_ends_it(
    acts: list[tuple[str, float]], answers: list[Any], takes: float
) -> None:
    async def play() -> None:
        clock = VirtualClock()
        api = Api(clock, *answers, takes=takes)
        async with running(api, clock) as (poller, _):
            for act, seconds in acts:
                if act != "wait":
                    getattr(poller, act)()
                await clock.advance(seconds)
                assert api.most_out <= 1
                if poller.state in (PollingState.NotPolling, PollingState.Waiting):
                    assert api.out == 0
            poller.stop()
            await clock.advance(takes)
            assert poller.state is PollingState.NotPolling
            await taken(poller)  # whoever read has ended, perhaps, and left messages
            asked = len(api.times)
            await clock.advance(1000)
            assert len(api.times) == asked
            poller.start()  # quitting does not stick
            await clock.advance(0)
            assert len(api.times) == asked + 1

    asyncio.run(play())
