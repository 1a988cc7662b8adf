"""Validators: kept as a unit, sent back byte for byte, trusted for a day."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bide.core.conditional import (
    DISTRUST,
    Validators,
    conditional_headers,
    may_be_conditional,
    updated,
    validators_of,
)
from bide.core.http import Headers

T = "Mon, 30 Nov 2026 18:00:00 GMT"


def headers(**fields: str) -> Headers:
    return Headers((name.replace("_", "-"), value) for name, value in fields.items())


def ages(ago: timedelta | None, kept: str | None = "d1", validators: Validators | None = None) -> bool:
    return may_be_conditional(
        Validators('"a"') if validators is None else validators,
        kept_declaration=kept,
        declaration="d1",
        validated_ago=ago,
    )


@pytest.mark.parametrize(
    "etag", ['"a"', 'W/"b"', '"a,b"', '""', "unquoted", "'single'", '"with space"', 'w/"x"', '"back\\slash"']
)
def test_stale_validator_pair_an_etag_goes_back_byte_for_byte(etag: str) -> None:
    assert conditional_headers(validators_of(headers(ETag=etag))) == (("If-None-Match", etag),)


def test_stale_validator_pair_both_are_sent_as_they_came() -> None:
    kept = validators_of(headers(ETag='W/"a"', Last_Modified="not even a date"))
    assert conditional_headers(kept) == (("If-None-Match", 'W/"a"'), ("If-Modified-Since", "not even a date"))


def test_stale_validator_pair_a_new_etag_with_the_same_date_is_kept() -> None:
    first = validators_of(headers(ETag='"a"', Last_Modified=T))
    second = validators_of(headers(ETag='"b"', Last_Modified=T))
    assert first == Validators('"a"', T)
    assert second == Validators('"b"', T)


def test_stale_validator_pair_an_answer_without_etag_drops_the_old_one() -> None:
    assert validators_of(headers(Last_Modified=T)) == Validators(None, T)
    assert validators_of(headers()) == Validators()
    assert conditional_headers(Validators()) == ()


def test_stale_validator_pair_a_304_updates_what_it_carries() -> None:
    kept = Validators('"a"', T)
    later = "Mon, 30 Nov 2026 19:00:00 GMT"
    assert updated(kept, headers()) == kept
    assert updated(kept, headers(ETag='"b"')) == Validators('"b"', T)
    assert updated(kept, headers(Last_Modified=later)) == Validators('"a"', later)
    assert updated(kept, headers(ETag='"b"', Last_Modified=later)) == Validators('"b"', later)


@pytest.mark.parametrize("etag", ["*", "", '"\n"', '"é"', '"\x00"', '"' + "x" * 1023 + '"'])
def test_a_validator_that_cannot_be_sent_or_matches_anything_is_not_kept(etag: str) -> None:
    assert validators_of(headers(ETag=etag, Last_Modified=T)) == Validators(None, T)
    assert updated(Validators('"a"'), headers(ETag=etag)) == Validators('"a"')


def test_a_long_validator_is_kept() -> None:
    etag = '"' + "x" * 1022 + '"'
    assert validators_of(headers(ETag=etag)).etag == etag


def test_a_repeated_field_counts_only_where_its_values_agree() -> None:
    agreed = Headers([("ETag", '"a"'), ("etag", '"a"')])
    differing = Headers([("ETag", '"a"'), ("etag", '"b"')])
    assert validators_of(agreed) == Validators('"a"')
    assert validators_of(differing) == Validators()


@pytest.mark.parametrize(
    ("ago", "may"),
    [
        (None, False),
        (timedelta(), True),
        (DISTRUST - timedelta(milliseconds=1), True),
        (DISTRUST, False),
        (timedelta(milliseconds=-1), False),
    ],
)
def test_a_call_is_conditional_while_the_last_whole_answer_is_young(ago: timedelta | None, may: bool) -> None:
    assert ages(ago) is may


@pytest.mark.parametrize("kept", [None, "d0", ""])
def test_a_call_is_not_conditional_under_another_declaration(kept: str | None) -> None:
    assert not ages(timedelta(), kept)


def test_a_call_is_not_conditional_without_validators() -> None:
    assert not ages(timedelta(), validators=Validators())
    assert ages(timedelta(), validators=Validators(last_modified=T))


def test_distrust_can_be_set() -> None:
    def may(distrust: timedelta) -> bool:
        return may_be_conditional(
            Validators('"a"'),
            kept_declaration="d",
            declaration="d",
            validated_ago=timedelta(minutes=5),
            distrust=distrust,
        )

    assert may(timedelta(minutes=6))
    assert not may(timedelta(minutes=5))
    assert not may(timedelta())
