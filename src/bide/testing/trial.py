"""Putting a provider on trial: the conformance suite run in a scratch place, with a verdict for each promise."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from bide.errors import ProviderError
from bide.testing.scratch import Scratch

Outcome = Literal["passed", "failed", "skipped"]
Word = Literal["kept", "weaker", "broken", "absent"]

_SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""

_SUITE = "bide.testing.trial_suite"
_LONGEST_REASON = 400


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one test. ``reason`` says why it failed, or why it proves nothing here."""

    test: str
    outcome: Outcome
    reason: str = ""

    @property
    def promise(self) -> int | None:
        """The number of the promise that it is a part of; None for the rest of the contract."""
        from bide.testing.conformance import promise_of

        return promise_of(self.test)

    @property
    def not_kept(self) -> bool:
        """Whether it is of what the provider says that it does not keep."""
        from bide.testing.conformance.promises import NOT_KEPT

        return self.outcome == "skipped" and self.reason.startswith(NOT_KEPT)

    @property
    def why(self) -> str:
        """Why it failed or proves nothing, as it follows the name of the test."""
        if self.not_kept:
            return self.reason
        return f"{'fails' if self.outcome == 'failed' else 'does not apply'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one promise, or (``number`` None) of the rest of the contract."""

    number: int | None
    promise: str
    tried: tuple[Tried, ...]

    @property
    def word(self) -> Word:
        """``broken``: a test failed; ``absent``: none could be made; ``weaker``: of some the provider says itself
        that it does not keep them; else ``kept``."""
        outcomes = {tried.outcome for tried in self.tried}
        if "failed" in outcomes:
            return "broken"
        if "passed" not in outcomes:
            return "absent"
        return "weaker" if any(tried.not_kept for tried in self.tried) else "kept"

    def told(self) -> list[str]:
        """What is to be said of those that failed or prove nothing, those of one reason together."""
        told: dict[str, list[str]] = {}
        for tried in (*self.of("failed"), *self.of("skipped")):
            told.setdefault(tried.why, []).append(tried.test)
        return [f"{_named(tests)} {why}" for why, tests in told.items()]

    def of(self, outcome: Outcome) -> list[Tried]:
        """The tests that ended so."""
        return [tried for tried in self.tried if tried.outcome == outcome]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "number": self.number,
            "promise": self.promise,
            "verdict": self.word,
            "tests": len(self.tried),
            "broken": [{"test": tried.test, "reason": tried.reason} for tried in self.of("failed")],
            "absent": [{"test": tried.test, "reason": tried.reason} for tried in self.of("skipped")],
        }


def try_out(
    scratch: Scratch, promises: Collection[int] = (), *, heard: Callable[[Tried], None] = lambda tried: None
) -> list[Verdict]:
    """Run the suite in ``scratch`` and judge: promises by number, then the rest of the contract.

    ``promises`` are the numbers of those to try, by default everything; ``heard`` is called after each test. The
    scratch place is gone at the end. Raises ``ProviderError`` where it cannot be had, or where the suite did not
    come to its end.
    """
    jury = _Jury(scratch, heard)
    try:
        asyncio.run(scratch.prepare())
        with tempfile.TemporaryDirectory() as folder, _alone():
            ended = pytest.main(_arguments(Path(folder), promises), plugins=[jury])
    except BaseException:
        with suppress(ProviderError):
            asyncio.run(scratch.remove())
        raise
    asyncio.run(scratch.remove())
    if ended not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise ProviderError(f"the suite did not come to its end (pytest ended with {ended!r})")
    return _verdicts(jury.tried)


def is_kept(verdicts: list[Verdict]) -> bool:
    """Whether nothing was broken."""
    return all(verdict.word != "broken" for verdict in verdicts)


class _Jury:
    """What pytest tells, and the fixture that its tests ask for."""

    def __init__(self, scratch: Scratch, heard: Callable[[Tried], None]) -> None:
        self._scratch = scratch
        self._heard = heard
        self.tried: dict[str, Tried] = {}

    @pytest.fixture(scope="session")
    def scratch(self) -> Scratch:
        return self._scratch

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.tried.get(report.nodeid)
        if report.when != "call" and report.passed:
            return
        if before is not None and before.outcome == "failed":
            return
        test = report.nodeid.rpartition("::")[2]
        tried = Tried(test, report.outcome, _reason(report))
        self.tried[report.nodeid] = tried
        self._heard(tried)


def _arguments(folder: Path, promises: Collection[int]) -> list[str]:
    """What pytest is called with; its settings are in ``folder``."""
    settings = folder / "pytest.ini"
    settings.write_text(_SETTINGS, encoding="utf-8")
    named = " or ".join(f"test_{number:02}_" for number in promises)
    return [
        *("-c", str(settings), "--rootdir", str(folder), "--noconftest", "-W", "ignore"),
        *("-p", "no:terminal", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin"),
        *("-k", named, "--pyargs", _SUITE),
    ]


@contextmanager
def _alone() -> Iterator[None]:
    """Without the plugins and options that are meant for the user's own tests."""
    ours: Mapping[str, str | None] = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": None}
    before = {name: os.environ.get(name) for name in ours}
    _set(ours)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _reason(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = (
        report.longreprtext if crash is None else f"{crash.message} ({Path(crash.path).name}:{crash.lineno})"
    )
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _named(tests: list[str]) -> str:
    return tests[0] if len(tests) == 1 else f"{tests[0]} and {len(tests) - 1} more:"


def _verdicts(tried: Mapping[str, Tried]) -> list[Verdict]:
    from bide.testing.conformance import PROMISES

    named: list[tuple[int | None, str]] = [*PROMISES.items(), (None, "the rest of the contract")]
    verdicts = [
        Verdict(number, promise, tuple(one for one in tried.values() if one.promise == number))
        for number, promise in named
    ]
    return [verdict for verdict in verdicts if verdict.tried]
