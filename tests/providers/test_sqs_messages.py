"""What a message says, and what its counts mean: without SQS."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.providers.reasons import LOCK_EXPIRED
from bide.providers.sqs.batches import split
from bide.providers.sqs.catching import passing_delay_s
from bide.providers.sqs.envelope import LONGEST_ERROR, Envelope, Foreign, Newer, clipped, read
from bide.providers.sqs.fetching import allot
from bide.providers.sqs.messages import (
    Early,
    Fit,
    FromNewer,
    Message,
    Over,
    Unknown,
    Unwanted,
    Verdict,
    judge,
)
from bide.providers.sqs.server_clock import ServerClock

NOW = 1_750_000_000_000
ITEM = Envelope("a", "n", "{}")
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def message(text: str, *, receives: int = 1, first_at: int = NOW) -> Message:
    return Message("q", "jobs-q", "m1", "r1", text, NOW - 5000, first_at, receives, 30, 30.0, read(text))


def judged(item: Envelope, *, receives: int = 1, first_at: int = NOW) -> Verdict:
    return judge(message(item.text(), receives=receives, first_at=first_at), {"n"}, NOW)


@given(_TEXT.filter(bool), _TEXT, st.none() | st.integers(0, 2**40), st.integers(0, 99))
def test_what_is_written_is_read_back(id: str, payload: str, number: int | None, count: int) -> None:
    item = Envelope(id, "n", payload, number, number, number, count, count, count, count, number)
    assert read(item.text()) == item
    forbidden = {char for char in item.text() if ord(char) < 0x20 or char in "\ufffe\uffff"}
    assert not forbidden  # SQS refuses a message with any of them


@pytest.mark.parametrize(
    "text",
    ["", "{'}", "[]", '"bide"', "{}", '{"bide":"1"}', '{"bide":1}', '{"bide":1,"id":"","name":"n"}'],
)
def test_what_is_no_item_is_foreign_and_quoted_nowhere(text: str) -> None:
    said = read(text)
    assert isinstance(said, Foreign)
    assert not text or text not in said.reason


def test_counts_that_are_no_numbers_are_damage() -> None:
    for bad in ("x", -1, True, 1.5):
        text = json.dumps({"bide": 1, "id": "a", "name": "n", "payload": "", "attempts": bad})
        assert isinstance(read(text), Foreign)


def test_a_newer_version_is_passed_on_with_all_that_it_says() -> None:
    said = read('{"bide":2,"id":"a","shape":"new"}')
    assert isinstance(said, Newer)
    assert isinstance(judge(message('{"bide":2,"id":"a"}'), {"n"}, NOW), FromNewer)
    again = read(said.text())
    assert isinstance(again, Newer)
    assert again.fields == {"bide": 2, "id": "a", "shape": "new", "passed": 1}


def test_the_first_receive_is_the_first_attempt() -> None:
    assert judged(ITEM) == Fit(replace(ITEM, sent_at=NOW - 5000, attempts=1))


def test_every_receive_before_was_a_death() -> None:
    verdict = judged(replace(ITEM, attempts=4), receives=3)
    assert verdict == Fit(replace(ITEM, sent_at=NOW - 5000, attempts=7, deaths=2, error=LOCK_EXPIRED))


def test_the_third_death_is_the_last_wherever_it_was_counted() -> None:
    for item, receives in ((ITEM, 4), (replace(ITEM, deaths=2), 2), (replace(ITEM, deaths=3), 1)):
        verdict = judged(item, receives=receives)
        assert isinstance(verdict, Over)
        assert verdict.item.error == "the worker died 3 times while handling it"


def test_a_receive_before_its_instant_is_no_death() -> None:
    late = replace(ITEM, not_before=NOW - 1)
    assert judged(late, receives=2, first_at=NOW - 5000) == Fit(
        replace(late, sent_at=NOW - 5000, attempts=1, deaths=0)
    )
    assert isinstance(judged(replace(ITEM, not_before=NOW + 1)), Early)


def test_attempts_and_life_end_at_the_fetch() -> None:
    spent = judged(replace(ITEM, max_attempts=1), receives=2)
    assert isinstance(spent, Over)
    assert spent.item.error == f"gave up after 1 attempt: {LOCK_EXPIRED}"
    expired = judged(replace(ITEM, within_ms=5000, error="no route"))
    assert isinstance(expired, Over)
    assert expired.item.error == "not done within 5s: no route"


def test_others_names_and_foreign_messages_are_told_apart() -> None:
    assert isinstance(judge(message(ITEM.text()), {"other"}, NOW), Unwanted)
    assert isinstance(judge(message("x"), {"n"}, NOW), Unknown)


def test_an_error_never_outgrows_what_is_reserved_for_it() -> None:
    for error in ("é" * 5000, '"' * 5000, "\ud800" * 3000, "short"):
        assert len(json.dumps(clipped(error), ensure_ascii=False).encode()) <= LONGEST_ERROR
    assert clipped("short") == "short"


@given(st.lists(st.integers(1, 100), max_size=60))
def test_a_batch_has_ten_entries_and_a_message_of_bytes_at_most(sizes: list[int]) -> None:
    batches = list(split(range(len(sizes)), lambda index: sizes[index], 100))
    assert [index for batch in batches for index in batch] == list(range(len(sizes)))
    assert all(len(batch) <= 10 and sum(sizes[index] for index in batch) <= 100 for batch in batches)


@given(st.integers(1, 200), st.integers(1, 6), st.sampled_from([1, 4]))
def test_receives_never_ask_for_more_than_there_is_room_for(room: int, queues: int, parallel: int) -> None:
    names = [f"q{number}" for number in range(queues)]
    asks = list(allot(room, names, parallel))
    assert 1 <= sum(most for _, most in asks) <= room
    assert all(1 <= most <= 10 for _, most in asks)
    assert asks[0][0] == "q0"


def test_what_is_passed_on_is_put_off_for_longer_each_time() -> None:
    assert [passing_delay_s(passed, 900) for passed in (0, 1, 2, 9, 10, 1000)] == [1, 2, 4, 512, 900, 900]


def test_the_servers_clock_is_followed_by_dates_of_whole_seconds() -> None:
    hour = ServerClock()
    assert not hour.is_known
    hour.heard({}, 0.0, 0.0)
    assert not hour.is_known
    stamps = [("Sun, 15 Jun 2025 15:06:40 GMT", 10.2), ("Sun, 15 Jun 2025 15:06:41 GMT", 10.4)]
    for date, at in stamps:  # the second began between the two
        hour.heard({"date": date}, at, at + 0.05)
    assert abs(hour.now_ms(10.45) - 1_750_000_001_000) <= 250
    hour.heard({"date": "Sun, 15 Jun 2025 14:06:41 GMT"}, 11.0, 11.1)  # set back by an hour
    assert abs(hour.now_ms(11.1) - 1_749_996_401_000) <= 1100
