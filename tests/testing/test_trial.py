"""The suite finds what is broken: providers that break one promise each, put on trial.

Each is the memory provider with one fault, of the kind that real ones had.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bide.testing.conformance import PROMISES, ProviderSuite, promise_of
from bide.testing.conformance.bench import Bench

BROKEN = Path(__file__).with_name("broken.py")


def test_every_promise_has_tests_and_every_number_is_a_promise() -> None:
    numbers = Counter(promise_of(name) for name in dir(ProviderSuite) if name.startswith("test_"))
    assert set(numbers) == {*PROMISES, None}
    assert sorted(PROMISES) == list(range(1, 17))


def test_no_test_hides_another() -> None:
    names = Counter(
        name for suite in ProviderSuite.__mro__ for name in vars(suite) if name.startswith("test_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_suite_names_no_provider() -> None:
    folder = Path(sys.modules[Bench.__module__].__file__ or "").parent
    for file in folder.rglob("*.py"):
        text = file.read_text(encoding="utf-8").lower()
        assert not [word for word in ("sqlite", "postgres", "redis", "memoryprovider") if word in text], file


FAULTS = [
    ("Deaf", 1),
    ("Late", 1),
    ("GreedyWhenCancelled", 2),
    ("LockFromTheWait", 3),
    ("EmptyForContended", 4),
    ("ImmortalTokens", 5),
    ("HalfAnAck", 6),
    ("UncountedDeaths", 7),
    ("DelayAsLock", 8),
    ("OwnClock", 9),
    ("ForgetfulKeys", 10),
    ("KeysLookedUpFirst", 10),
    ("AnyName", 11),
    ("LimitsOfOneProcess", 12),
    ("UnfairKeys", 12),
    ("NoFanOut", 13),
    ("SilentDamage", 14),
    ("EverythingIsRetryable", 15),
    ("EmptyAfterRestart", 16),
]


@pytest.mark.parametrize(("fault", "number"), FAULTS)
def test_a_broken_promise_is_found(fault: str, number: int) -> None:
    done = subprocess.run(
        [sys.executable, str(BROKEN), fault, str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.startswith(f"{number} broken test_"), done.stdout + done.stderr


def test_every_promise_is_broken_by_somebody() -> None:
    assert {number for _, number in FAULTS} == set(PROMISES)
