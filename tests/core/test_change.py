"""What counts as a change: the chosen fields only, in one form, whatever the version of the form."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core import change
from bide.core.change import VERSION, canonical, digest, event_payload, is_change, read_json
from bide.errors import AnswerError


def digest_of(text: str, *fields: str) -> str:
    """The digest of an event made from a JSON text."""
    return digest(event_payload(read_json(text), fields))


def test_a_digest_is_the_version_and_the_sha_256() -> None:
    payload = '{"a":"é"}'
    assert digest(payload) == "1:" + hashlib.sha256(payload.encode()).hexdigest()


def test_json_key_order_and_spelling_are_no_change() -> None:
    one = '{"symbol":"A\\u00e9","price":1.50,"at":"x"}'
    other = '{ "at": "x", "price": 15e-1, "symbol": "Aé" }'
    assert digest_of(one, "symbol", "price") == digest_of(other, "price", "symbol")


def test_json_key_order_fields_that_are_not_chosen_are_no_change() -> None:
    assert digest_of('{"price":1,"at":"now"}', "price") == digest_of('{"price":1.0,"at":"later"}', "price")
    assert digest_of('{"price":1}', "price") != digest_of('{"price":2}', "price")


def test_json_key_order_the_order_of_a_list_is_a_change() -> None:
    assert digest_of('{"a":[1,2]}', "a") != digest_of('{"a":[2,1]}', "a")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.0", "1", True),
        ("1e6", "1000000", True),
        ("-0.0", "0", True),
        ("12345678901234567890", "12345678901234567891", False),
        ("1.01010101010101010101", "1.0101010101010102", False),
        ("1e400", "1e401", False),
        ("0", "null", False),
        ("0", "false", False),
    ],
)
def test_json_numbers_in_the_digest(one: str, other: str, same: bool) -> None:
    assert (digest_of(f'{{"n":{one}}}', "n") == digest_of(f'{{"n":{other}}}', "n")) is same


def test_an_events_payload_holds_its_fields_and_no_others() -> None:
    answer = {"b": Decimal("1.50"), "a": datetime(2026, 11, 30, tzinfo=UTC), "c": "left out", "d": None}
    assert event_payload(answer, ["b", "a", "d"]) == '{"a":"2026-11-30T00:00:00Z","b":1.5,"d":null}'
    assert event_payload(answer, ()) == "{}"


def test_an_events_payload_names_the_field_that_cannot_be_kept() -> None:
    with pytest.raises(AnswerError) as caught:
        event_payload({"a": 1, "b": {"c": [float("inf")]}}, ["a", "b"])
    assert caught.value.where == "b.c[0]"
    with pytest.raises(AnswerError) as caught:
        event_payload({"a": 1}, ["a", "b"])
    assert caught.value.where == "b"


def test_an_events_payload_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "read_json", lambda text: {"a": 2})
    with pytest.raises(AnswerError, match="did not read back"):
        event_payload({"a": 1}, ["a"])


# --- comparing ---------------------------------------------------------------------------------------------

A, B = digest('{"a":1}'), digest('{"a":2}')


def test_the_first_answer_is_a_change() -> None:
    assert is_change(None, None, A)


def test_the_same_digest_is_no_change_and_another_is() -> None:
    assert not is_change(A, '{"a":1}', A)
    assert not is_change(A, None, A)
    assert is_change(A, '{"a":1}', B)
    assert is_change(A, None, B)


def test_back_and_forth_is_a_change_each_time() -> None:
    stored: str | None = None
    changes = 0
    for new in (A, A, B, B, A):
        if is_change(stored, None, new):
            changes, stored = changes + 1, new
    assert changes == 3


@pytest.mark.parametrize("old", ["0:abc", "2:abc", "abc", "", "11:abc"])
def test_a_new_form_is_no_new_data(old: str) -> None:
    assert VERSION == "1"
    assert not is_change(old, '{ "a": 1.0 }', A)
    assert is_change(old, '{"a":2}', A)
    assert not is_change(old, None, A)
    assert not is_change(old, "what no form could read", A)


@settings(deadline=None)
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers() | st.booleans() | st.none()))
def test_an_event_is_no_change_of_itself(answer: dict[str, Any]) -> None:
    payload = event_payload(answer, reversed(answer))
    assert payload == canonical(answer) == canonical(read_json(payload))
    assert not is_change(digest(payload), payload, digest(event_payload(read_json(payload), answer)))
