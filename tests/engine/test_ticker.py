"""The ticker: who is called when, over clocks that step, processes that stall and hosts that fail."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import timedelta

import pytest

from bide.core.conditional import Validators
from bide.core.http import Headers, Response
from bide.engine.ticker import Ticker
from bide.errors import CallError, ProviderError, UnknownName
from bide.provider import Claim, Recorded
from bide.telemetry import PollAnswered, PollFailed, PollQuiet, ProviderDown, ProviderUp
from bide.testing import VirtualClock
from tests.engine.rig import MINUTE, Answer, Rig, not_modified, price

HOUR = timedelta(hours=1)


def ticker(
    rig: Rig, *names: str, every: timedelta = MINUTE, max_calls: int = 200, tick: timedelta = MINUTE
) -> Ticker:
    return Ticker(
        rig.provider,
        rig.polls(*names, every=every),
        tick=tick,
        max_calls=max_calls,
        clock=rig.clock,
        telemetry=rig.telemetry,
    )


class running:
    """Runs a ticker in the background while the test moves the clock."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker, self.stopping = ticker, asyncio.Event()

    async def __aenter__(self) -> running:
        self.task = asyncio.ensure_future(self.ticker.run(self.stopping))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        self.ticker.stop_now()
        await self.task


async def test_one_pass_calls_what_is_due_once_and_tells_by_name() -> None:
    rig = Rig.make()
    await rig.subscribe()
    first = ticker(rig, "eu.b", "eu.a")
    told = await first.pass_once()
    assert [(each.poll, isinstance(each, PollAnswered) and each.outcome) for each in told] == [
        ("eu.a", "changed"),
        ("eu.b", "changed"),
    ]
    assert await first.pass_once() == []
    assert await ticker(rig, "eu.a", "eu.b").pass_once() == [], "another process at the same moment"
    assert len(rig.api.calls) == 2


async def test_a_pass_a_tick_later_finds_every_poll_due_that_is_as_frequent_as_the_tick() -> None:
    rig = Rig.make()
    names = [f"eu.{index}" for index in range(50)]
    for _ in range(5):
        assert len(await ticker(rig, *names).pass_once()) == 50
        await rig.clock.advance(60)


async def test_a_pass_tries_a_failed_poll_again_at_the_next_tick_and_not_within_it() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: CallError("refused", "connection refused")
    failing = ticker(rig, "eu.price", every=HOUR)
    assert [type(told) for told in await failing.pass_once()] == [PollFailed]
    assert await failing.pass_once() == []
    await rig.clock.advance(60)
    assert len(await failing.pass_once()) == 1


async def test_running_calls_each_poll_once_an_interval() -> None:
    rig = Rig.make()
    names = [f"eu.{index}" for index in range(20)]
    async with running(ticker(rig, *names)):
        await rig.clock.advance(60 * 60)
    counts = Counter(name for _, name, _ in rig.api.calls)
    assert set(counts) == set(names)
    assert all(59 <= count <= 62 for count in counts.values()), counts


async def test_two_instances_make_one_call_an_interval_between_them() -> None:
    one = Rig.make()
    two = Rig.make(one.clock, one.provider)
    async with running(ticker(one, "eu.price")), running(ticker(two, "eu.price")):
        await one.clock.advance(100 * 60)
    calls = sorted(one.api.times() + two.api.times())
    assert 99 <= len(calls) <= 102
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(calls))


@pytest.mark.parametrize("step", [-8 * 365 * 86400.0, -3600.0, -1.0, 1.0, 3600.0, 8 * 365 * 86400.0])
async def test_a_wall_clock_that_steps_neither_stops_polling_nor_makes_a_burst(step: float) -> None:
    rig = Rig.make()
    every = timedelta(seconds=20)
    async with running(ticker(rig, "eu.price", every=every)):
        await rig.clock.advance(65)
        rig.clock.step_wall(step)
        before = len(rig.api.calls)
        await rig.clock.advance(300)
    after = rig.api.times()[before:]
    assert 10 <= len(after) <= 17, "one call every 20 s in 300 s, and at most one look of a tick lost or won"


async def test_after_a_stall_of_hours_there_is_one_call_and_not_one_for_each_missed() -> None:
    rig = Rig.make()
    names = ("eu.a", "eu.b")
    assert len(await ticker(rig, *names, every=HOUR).pass_once()) == 2
    await rig.clock.advance(8 * 3600)
    late = ticker(rig, *names, every=HOUR)
    told = await late.pass_once()
    assert len(told) == 2
    assert all(isinstance(each, PollAnswered) and each.lag_ms > 6 * 3_600_000 for each in told), (
        "late, and told so"
    )
    assert await late.pass_once() == []


async def test_polls_of_one_host_that_are_due_together_are_spread_at_the_first_start() -> None:
    rig = Rig.make()
    names = [f"eu.{index}" for index in range(600)]
    async with running(ticker(rig, *names)):
        await rig.clock.advance(300)
    seconds = Counter(int(at) for at in rig.api.times())
    even = 600 / 60
    assert max(seconds.values()) <= 2 * even + 10, "twice the even rate, and a burst of ten"
    assert len({name for _, name, _ in rig.api.calls}) == 600
    first_minute = sum(count for second, count in seconds.items() if second < 60)
    assert first_minute >= 600, "everything was called within one interval"
    later = [seconds[second] for second in range(120, 300)]
    assert max(later) <= 3 * even, "phases by a stable hash: no second has them all"


async def test_very_many_polls_start_faster_than_their_even_rate_and_at_most_twice_as_fast() -> None:
    rig = Rig.make()
    async with running(ticker(rig, *(f"eu.{index}" for index in range(12_000)))):
        await rig.clock.advance(10)
    seconds = Counter(int(at) for at in rig.api.times())
    even = 12_000 / 60
    assert all(1.5 * even < seconds[second] <= 2 * even for second in range(10))


async def test_polls_stay_spread_after_the_host_was_away_for_ten_minutes() -> None:
    rig = Rig.make()
    names = [f"eu.{index}" for index in range(300)]
    down = CallError("refused", "connection refused")
    rig.api.script = lambda name, validators: down if 180 <= rig.clock.monotonic() < 780 else price(1)
    async with running(ticker(rig, *names)):
        await rig.clock.advance(1200)
    seconds = Counter(int(at) for at in rig.api.times())
    assert max(seconds[second] for second in range(60, 1200)) <= 4 * 300 / 60
    answered = [told for told in rig.told_of(PollAnswered) if told.failures]
    assert len(answered) == 300, "each recovered by itself"


async def test_an_outage_of_fifty_rounds_disables_nothing() -> None:
    rig = Rig.make()
    await rig.subscribe()
    names = [f"eu.{index}" for index in range(20)]
    portal = Response(
        200, Headers([("Content-Type", "text/html")]), b"<html>pay here</html>", "http://shop.test"
    )
    errors: list[Answer] = [
        CallError("unresolved", "no such host"),
        CallError("refused", "connection refused"),
        CallError("tls", "certificate expired"),
        portal,
    ]
    rounds = 0

    def script(name: str, validators: Validators) -> Answer:
        return errors[rounds % 4] if rounds < 50 else price(1)

    rig.api.script = script
    async with running(ticker(rig, *names)):
        for rounds in range(51):  # noqa: B007 - read by the script
            await rig.clock.advance(60)
        await rig.clock.advance(120)
    assert {row.failures for row in await rig.provider.poll_rows()} == {0}
    assert len(await rig.events()) == 20


async def test_failures_in_a_row_are_tried_again_after_one_minute_then_two_up_to_the_interval() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: CallError("refused", "connection refused")
    async with running(ticker(rig, "eu.price", every=timedelta(minutes=10))):
        await rig.clock.advance(3600)
    gaps = [later - earlier for earlier, later in itertools.pairwise(rig.api.times())]
    assert [round(gap / 60) for gap in gaps] == [1, 2, 4, 8, 10, 10, 10, 10]
    failed = rig.told_of(PollFailed)
    assert [each.failures for each in failed] == list(range(1, len(failed) + 1))
    assert failed[0].poll == "eu.price"
    assert "refused" in failed[0].error


async def test_a_servers_delay_is_kept_to_and_clamped() -> None:
    rig = Rig.make()
    limited = CallError("status", "answered 429", status=429, hint_ms=5 * 60_000)
    rig.api.script = lambda name, validators: limited if len(rig.api.calls) == 1 else price(1)
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(15 * 60)
    assert rig.api.times()[1] - rig.api.times()[0] >= 300

    rig = Rig.make()
    for_ever = CallError("status", "answered 503", status=503, hint_ms=10**12)
    rig.api.script = lambda name, validators: for_ever if len(rig.api.calls) == 1 else price(1)
    heard = {"eu.price": rig.heard("eu.price", hint_clamp=timedelta(hours=2))}
    polling = Ticker(rig.provider, heard, tick=MINUTE, max_calls=20, clock=rig.clock, telemetry=rig.telemetry)
    async with running(polling):
        await rig.clock.advance(3 * 3600)
    assert 2 * 3600 <= rig.api.times()[1] <= 2 * 3600 + 61


async def test_a_delay_asked_for_by_a_good_answer_is_kept_to_but_never_shortens_the_interval() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: price(1, Retry_After="150")
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(600)
    gaps = [later - earlier for earlier, later in itertools.pairwise(rig.api.times())]
    assert gaps
    assert all(gap >= 150 for gap in gaps)

    rig = Rig.make()
    rig.api.script = lambda name, validators: price(1, Cache_Control="max-age=1")
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(600)
    assert 9 <= len(rig.api.calls) <= 12


async def test_a_poll_whose_call_is_under_way_is_not_called_again() -> None:
    rig = Rig.make()
    rig.api.seconds = 25.0
    every = timedelta(seconds=10)
    async with running(ticker(rig, "eu.price", every=every, tick=timedelta(seconds=1))):
        await rig.clock.advance(300)
    times = rig.api.times()
    assert len(times) >= 8
    assert all(later - earlier >= 25 for earlier, later in itertools.pairwise(times))


async def test_a_connection_has_no_more_calls_under_way_than_its_cap_and_holds_up_no_other() -> None:
    rig = Rig.make()
    rig.api.seconds = 20.0
    heard = {f"slow.{i}": rig.heard(f"slow.{i}", max_concurrent=2) for i in range(30)}
    heard |= {f"eu.{i}": rig.heard(f"eu.{i}") for i in range(5)}
    polling = Ticker(rig.provider, heard, tick=MINUTE, max_calls=10, clock=rig.clock, telemetry=rig.telemetry)
    async with running(polling):
        await rig.clock.advance(1)
        assert sum(name.startswith("slow") for _, name, _ in rig.api.calls) == 2
        assert sum(name.startswith("eu") for _, name, _ in rig.api.calls) == 5
        await rig.clock.advance(400)
    assert {name for _, name, _ in rig.api.calls} == set(heard)


async def test_two_hosts_that_hang_leave_room_for_one_that_does_not() -> None:
    rig = Rig.make()
    hung = {"bad": 30.0, "worse": 30.0}

    async def slow(name: str) -> None:
        await rig.clock.sleep(hung.get(name.split(".", maxsplit=1)[0], 0.0))

    rig.api.wait = slow
    heard = {f"{host}.{i}": rig.heard(f"{host}.{i}") for host in hung for i in range(300)}
    heard["fine.price"] = rig.heard("fine.price", every=timedelta(seconds=10))
    polling = Ticker(
        rig.provider, heard, tick=MINUTE, max_calls=200, clock=rig.clock, telemetry=rig.telemetry
    )
    async with running(polling):
        await rig.clock.advance(600)
    times = rig.api.times("fine.price")
    assert len(times) >= 40
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 45


@pytest.mark.parametrize(
    "error",
    [
        UnknownName("connection", "x"),
        asyncio.CancelledError(),
        RuntimeError("a fault"),
        ProviderError("no"),
        BaseExceptionGroup("odd", [KeyboardInterrupt()]),
    ],
)
async def test_whatever_a_call_raises_is_a_failure_of_its_poll_and_of_no_other(error: BaseException) -> None:
    rig = Rig.make()

    def script(name: str, validators: Validators) -> Answer:
        if name == "eu.bad":
            raise error
        return price(1)

    rig.api.script = script
    told = await ticker(rig, "eu.bad", "eu.good").pass_once()
    outcomes = {each.poll: each for each in told}
    assert isinstance(outcomes["eu.good"], PollAnswered)
    assert isinstance(outcomes["eu.bad"], PollFailed)


async def test_a_listener_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig.make()

    def listener(record: object) -> None:
        raise RuntimeError("a fault of the listener")

    rig.telemetry.listen(listener)
    assert len(await ticker(rig, "eu.a", "eu.b").pass_once()) == 2
    assert "a fault of the listener" in caplog.text


async def test_a_provider_that_is_away_is_told_on_the_edges_and_polls_go_on_afterwards() -> None:
    rig = Rig.make()
    claim, away = rig.provider.claim_polls, [True]

    async def flaky(*asked: object, **settings: object) -> list[Claim]:
        if away[0]:
            raise ProviderError("locked", retryable=True)
        return await claim(*asked, **settings)  # type: ignore[arg-type]

    rig.provider.claim_polls = flaky  # type: ignore[method-assign]
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(600)
        assert len(rig.told_of(ProviderDown)) == 1
        assert rig.api.calls == []
        away[0] = False
        await rig.clock.advance(300)
    assert len(rig.told_of(ProviderUp)) == 1
    assert len(rig.api.calls) >= 4


async def test_a_provider_that_refuses_for_good_ends_the_run_with_its_error() -> None:
    rig = Rig.make()

    async def refuse(*asked: object, **settings: object) -> list[Claim]:
        raise ProviderError("the file is damaged")

    rig.provider.claim_polls = refuse  # type: ignore[method-assign]
    with pytest.raises(ProviderError, match="damaged"):
        await ticker(rig, "eu.price").run(asyncio.Event())


async def test_an_answer_that_cannot_be_recorded_for_a_moment_is_recorded_later() -> None:
    rig = Rig.make(VirtualClock(autojump=True))
    record, faults = rig.provider.record_answers, [ProviderError("locked", retryable=True)] * 3

    async def flaky(*asked: object) -> list[Recorded]:
        if faults:
            raise faults.pop()
        return await record(*asked)  # type: ignore[arg-type]

    rig.provider.record_answers = flaky  # type: ignore[method-assign, assignment]
    (told,) = await ticker(rig, "eu.price").pass_once()
    assert isinstance(told, PollAnswered)
    assert told.outcome == "changed"


@pytest.mark.parametrize("recording", ["record_answers", "record_failure"])
async def test_a_fault_of_the_provider_while_recording_is_told_and_the_poll_goes_on(
    recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig.make()
    if recording == "record_failure":
        rig.api.script = lambda name, validators: CallError("timeout", "no answer")

    async def broken(*asked: object) -> None:
        raise TypeError("a fault")

    monkeypatch.setattr(rig.provider, recording, broken)
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(600)
    failures = rig.told_of(PollFailed)
    assert len(failures) == len(rig.api.calls) > 3
    assert all("a fault" in failed.error for failed in failures)


async def test_what_is_claimed_at_the_moment_of_a_stop_is_called_and_recorded() -> None:
    rig = Rig.make()
    claim = rig.provider.claim_polls

    async def slow(*asked: object, **settings: object) -> list[Claim]:
        claims = await claim(*asked, **settings)  # type: ignore[arg-type]
        await rig.clock.sleep(1)
        return claims

    rig.provider.claim_polls = slow  # type: ignore[method-assign]
    stopping = asyncio.Event()
    run = asyncio.ensure_future(ticker(rig, "eu.price").run(stopping))
    await rig.clock.advance(0.5)
    stopping.set()
    await rig.clock.advance(10)
    assert run.done()
    assert len(rig.api.calls) == 1
    assert [row.outstanding for row in await rig.provider.poll_rows()] == [False]


@pytest.mark.parametrize("answer", ["an error", "none"])
async def test_a_claim_that_comes_to_nothing_at_the_moment_of_a_stop_holds_up_no_stop(answer: str) -> None:
    rig = Rig.make()

    async def away(*asked: object, **settings: object) -> list[Claim]:
        await rig.clock.sleep(1 if answer == "an error" else HOUR.total_seconds())
        raise ProviderError("connection lost", retryable=True)

    rig.provider.claim_polls = away  # type: ignore[method-assign]
    stopping = asyncio.Event()
    run = asyncio.ensure_future(ticker(rig, "eu.price").run(stopping))
    await rig.clock.advance(0.5)
    stopping.set()
    await rig.clock.advance(60)
    assert run.done()
    run.result()


@pytest.mark.parametrize("recording", ["record_answers", "record_failure"])
async def test_after_a_pass_that_was_cancelled_while_it_recorded_the_next_ones_end(
    recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig.make()
    if recording == "record_failure":
        rig.api.script = lambda name, validators: CallError("timeout", "no answer")
    passes = ticker(rig, "eu.price")
    with monkeypatch.context() as patched:
        patched.setattr(rig.provider, recording, lambda *asked: rig.clock.sleep(HOUR.total_seconds()))
        first = asyncio.ensure_future(passes.pass_once())
        await rig.clock.advance(1)
        first.cancel()
        await asyncio.wait({first})
    for seconds, called in (
        (1, []),
        (120, ["eu.price"]),
    ):  # a claim that is never recorded comes round by itself
        await rig.clock.advance(seconds)
        following = asyncio.ensure_future(passes.pass_once())
        await rig.clock.advance(1)
        assert following.done()
        assert [told.poll for told in following.result()] == called


async def test_claims_run_ahead_of_quick_connections_only() -> None:
    rig = Rig.make()
    rig.api.seconds = 20.0
    heard = {f"eu.{i}": rig.heard(f"eu.{i}", max_concurrent=2) for i in range(12)}
    polling = Ticker(rig.provider, heard, tick=MINUTE, max_calls=10, clock=rig.clock, telemetry=rig.telemetry)
    async with running(polling):
        await rig.clock.advance(5)
        assert len(rig.api.calls) == 2
        outstanding = [row for row in await rig.provider.poll_rows() if row.outstanding]
        assert len(outstanding) <= 4
        await rig.clock.advance(30)
        outstanding = [row for row in await rig.provider.poll_rows() if row.outstanding]
        assert len(outstanding) == 2, "nothing more is taken than is called"


async def test_a_claim_of_a_process_that_died_comes_round_after_the_deadline_and_a_minute() -> None:
    rig = Rig.make()
    dying = ticker(rig, "eu.price", every=HOUR)
    rig.api.seconds = 10.0
    crash = asyncio.ensure_future(dying.pass_once())
    await rig.clock.advance(1)
    crash.cancel()  # nothing is recorded, as after a kill
    await asyncio.wait({crash})
    rig.api.seconds = 0.0
    async with running(ticker(rig, "eu.price", every=HOUR)):
        await rig.clock.advance(200)
    assert [round(at) for at in rig.api.times()] == [0, 90]


async def test_validators_are_sent_back_and_distrusted_after_a_day() -> None:
    rig = Rig.make()

    def script(name: str, validators: Validators) -> Answer:
        return not_modified() if validators.etag == 'W/"a,b"' else price(1, etag='W/"a,b"')

    rig.api.script = script
    async with running(ticker(rig, "eu.price", every=HOUR)):
        await rig.clock.advance(30 * 3600)
    sent = [validators.etag for _, _, validators in rig.api.calls]
    assert sent[0] is None
    unconditional = [index for index, etag in enumerate(sent) if etag is None]
    assert len(unconditional) == 2, "the first, and one a day later"
    assert 23 <= unconditional[1] <= 26


async def test_validators_are_not_sent_once_the_declaration_is_another() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: price(1, etag='"a"')
    assert await ticker(rig, "eu.price").pass_once()
    await rig.clock.advance(90)
    changed = {"eu.price": rig.heard("eu.price", fingerprint="GET /price?all=1")}
    polling = Ticker(
        rig.provider, changed, tick=MINUTE, max_calls=9, clock=rig.clock, telemetry=rig.telemetry
    )
    assert await polling.pass_once()
    assert [validators.etag for _, _, validators in rig.api.calls] == [None, None]


async def test_a_304_that_nobody_asked_for_is_a_failure() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: not_modified()
    (told,) = await ticker(rig, "eu.price").pass_once()
    assert isinstance(told, PollFailed)
    assert "304" in told.error


async def test_an_error_or_an_empty_answer_is_never_the_baseline() -> None:
    rig = Rig.make()
    await rig.subscribe()
    page = Headers([("Content-Type", "text/html")])
    html = Response(200, page, b"<html>log in</html>", "http://shop.test/price")
    empty = Response(200, Headers(), b"", "http://shop.test/price")
    wrong = CallError("status", "answered 500", status=500)
    slow = CallError("timeout", "no answer in 30 s")
    answers: list[Answer] = [price(1), wrong, price(1), empty, price(1), html, price(1), slow, price(2)]
    rig.api.script = lambda name, validators: answers[len(rig.api.calls) - 1]
    for _ in answers:
        await ticker(rig, "eu.price").pass_once()
        await rig.clock.advance(120)
    events = await rig.events()
    assert [event.payload for event in events] == ['{"price":1,"symbol":"A"}', '{"price":2,"symbol":"A"}']
    assert events[1].previous_id == events[0].id, (
        "one change, with what was before the failures as the old value"
    )
    assert len(rig.told_of(PollFailed)) == 4


async def test_editing_a_poll_keeps_its_baseline() -> None:
    rig = Rig.make()
    await rig.subscribe()
    await ticker(rig, "eu.price").pass_once()
    await rig.clock.advance(120)
    for every in (timedelta(minutes=5), timedelta(minutes=1), HOUR):
        edited = {"eu.price": rig.heard("eu.price", every=every, fingerprint=f"every {every}")}
        await Ticker(
            rig.provider, edited, tick=MINUTE, max_calls=9, clock=rig.clock, telemetry=rig.telemetry
        ).pass_once()
        await rig.clock.advance(3600)
    assert len(rig.api.calls) >= 3
    assert len(await rig.events()) == 1


async def test_a_there_and_back_again_is_three_events() -> None:
    rig = Rig.make()
    await rig.subscribe()
    answers = [price(1), price(2), price(1)]
    rig.api.script = lambda name, validators: answers[len(rig.api.calls) - 1]
    for _ in answers:
        await ticker(rig, "eu.price").pass_once()
        await rig.clock.advance(120)
    assert [event.payload for event in await rig.events()] == [
        '{"price":1,"symbol":"A"}',
        '{"price":2,"symbol":"A"}',
        '{"price":1,"symbol":"A"}',
    ]


async def test_gone_pauses_the_poll_and_says_how_to_resume_it() -> None:
    rig = Rig.make()
    rig.api.script = lambda name, validators: CallError("status", "answered 410 Gone", status=410)
    async with running(ticker(rig, "eu.price")):
        await rig.clock.advance(3600)
    assert len(rig.api.calls) == 1
    (failed,) = rig.told_of(PollFailed)
    assert "bide polls resume eu.price" in failed.error
    (row,) = await rig.provider.poll_rows()
    assert row.paused


async def test_a_poll_without_change_is_told_to_be_quiet_once_until_it_changes() -> None:
    rig = Rig.make()
    await rig.subscribe()
    rig.api.script = lambda name, validators: price(1 if rig.clock.monotonic() < 5 * 3600 else 2)
    heard = {"eu.price": rig.heard("eu.price", quiet_after=timedelta(hours=2))}
    polling = Ticker(rig.provider, heard, tick=MINUTE, max_calls=9, clock=rig.clock, telemetry=rig.telemetry)
    async with running(polling):
        await rig.clock.advance(8 * 3600)
    quiet = rig.told_of(PollQuiet)
    assert len(quiet) == 2, "once before the change and once after"
    assert all(2 * 3_600_000 <= each.quiet_for_ms < 2.1 * 3_600_000 for each in quiet)


async def test_polls_that_nobody_hears_any_more_are_not_called() -> None:
    rig = Rig.make()
    polls = rig.polls("eu.a", "eu.b")
    polling = ticker(rig, "eu.a", "eu.b")
    async with running(polling):
        await rig.clock.advance(120)
        polling.hear({"eu.a": polls["eu.a"]})
        await rig.clock.advance(1)
        before = len(rig.api.times("eu.b"))
        await rig.clock.advance(600)
        assert len(rig.api.times("eu.b")) == before
        polling.hear(polls)
        await rig.clock.advance(120)
        assert len(rig.api.times("eu.b")) > before
    assert len(rig.api.times("eu.a")) >= 12


async def test_a_paused_poll_waits_until_it_is_resumed_and_one_asked_for_now_is_called_within_a_tick() -> (
    None
):
    rig = Rig.make()
    async with running(ticker(rig, "eu.price", every=HOUR)):
        await rig.clock.advance(10)
        assert len(rig.api.calls) == 1
        await rig.provider.poll_now(["eu.price"])
        await rig.clock.advance(61)
        assert len(rig.api.calls) == 2
        await rig.provider.pause_polls(["eu.price"], True)
        await rig.clock.advance(5 * 3600)
        assert len(rig.api.calls) == 2
        await rig.provider.pause_polls(["eu.price"], False)
        await rig.clock.advance(61)
        assert len(rig.api.calls) == 3


async def test_stopping_lets_what_is_claimed_be_called_and_recorded_and_claims_no_more() -> None:
    rig = Rig.make()
    rig.api.seconds = 5.0
    polling = ticker(rig, "eu.a", "eu.b", "eu.c", max_calls=1)
    stopping = asyncio.Event()
    run = asyncio.ensure_future(polling.run(stopping))
    await rig.clock.advance(1)
    stopping.set()
    await rig.clock.advance(1)
    assert not run.done()
    await rig.clock.advance(10)
    assert run.done()
    await run
    assert len(rig.api.calls) == 1
    assert [row.outstanding for row in await rig.provider.poll_rows()] == [False]


@pytest.mark.parametrize("ticks", range(0, 60, 7))
async def test_a_cancellation_at_any_moment_ends_the_loop(ticks: int) -> None:
    rig = Rig.make()
    run = asyncio.ensure_future(ticker(rig, "eu.price").run(asyncio.Event()))
    for _ in range(ticks):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait({run}, timeout=5)
    assert run.done()
