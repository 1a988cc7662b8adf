"""What stores are unable to do, in words."""

from __future__ import annotations

import pytest

from bide.core.abilities import (
    ABILITIES,
    BY_SCHEME,
    KINDS,
    MEMORY,
    S3,
    SQS,
    Ability,
    able,
    cannot,
    unsupported,
)
from bide.errors import ProviderError


def test_a_refusal_names_the_store_what_it_lacks_and_who_has_it() -> None:
    error = unsupported(SQS, "polls")
    assert isinstance(error, ProviderError)
    assert not error.retryable
    assert error.ability == "polls"
    assert str(error).startswith("SQS cannot keep polls; SQLite (sqlite:///bide.db), PostgreSQL")
    assert "S3 (s3://bucket/prefix?region=…) can" in str(error)


def test_who_is_named_has_the_ability_and_outlives_the_process() -> None:
    assert "S3" not in able("limits")
    assert "SQS" not in able("limits")
    assert "memory" not in able("limits")
    assert cannot(S3, "limits") == "S3 cannot limit what runs of a queue over the fleet"


@pytest.mark.parametrize("ability", ABILITIES)
def test_something_durable_is_able_of_everything(ability: Ability) -> None:
    assert able(ability).startswith("SQLite")


def test_every_kind_has_a_scheme() -> None:
    assert set(BY_SCHEME.values()) == set(KINDS)
    assert MEMORY.lacks == frozenset()
