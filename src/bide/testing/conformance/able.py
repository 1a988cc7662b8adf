"""Tests of what a store is unable to do: skipped where the provider says so itself, by refusing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, cast

import pytest

from bide.core.abilities import Ability
from bide.errors import Unsupported
from bide.testing.conformance.bench import Bench
from bide.testing.conformance.promises import NOT_KEPT

Test = Callable[..., Awaitable[None]]

_WRAPPED = "as_far_as_able"


def is_test(name: str) -> bool:
    """Whether an attribute of this name is one of the suite's tests."""
    return name.startswith("test_")


def as_far_as_able(test: Test) -> Test:
    """The same test, skipped where the provider refuses what the bench says that it lacks.

    A refusal of anything else fails it: what is lacking has to be declared.
    """
    if hasattr(test, _WRAPPED):
        return test

    @wraps(test)
    async def tried(self: object, bench: Bench, **fixtures: Any) -> None:
        try:
            await test(self, bench, **fixtures)
        except Unsupported as error:
            ability = cast("Ability", error.ability)
            if ability not in bench.lacks:
                raise
            pytest.skip(NOT_KEPT + bench.lacks[ability])

    setattr(tried, _WRAPPED, True)
    return tried
