"""The provider contract as tests: every provider passes them, and none is named in them.

::

    class TestMine(ProviderSuite):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[Bench]:
            bench = MyBench(...)
            await bench.provider.open()
            yield bench
            await bench.provider.close()

A :class:`Bench` holds the provider and the side door: letting its clock run, damaging an item, opening it again.
Tests of a promise carry its number (:data:`PROMISES`); a promise that a provider does not make is named in
:attr:`Bench.absent` with the reason. They need pytest with pytest-asyncio in auto mode, and nothing else of ours.
"""

import pytest

from bide.testing.conformance.bench import Absent, Bench
from bide.testing.conformance.promises import PROMISES, promise_of
from bide.testing.conformance.suites.answers import AnswersSuite
from bide.testing.conformance.suites.clocks import ClocksSuite
from bide.testing.conformance.suites.events import EventsSuite
from bide.testing.conformance.suites.inspecting import InspectingSuite
from bide.testing.conformance.suites.joining import JoiningSuite
from bide.testing.conformance.suites.keeping import KeepingSuite
from bide.testing.conformance.suites.keys import KeysSuite
from bide.testing.conformance.suites.limits import LimitsSuite
from bide.testing.conformance.suites.locking import LockingSuite
from bide.testing.conformance.suites.occurring import OccurringSuite
from bide.testing.conformance.suites.opening import OpeningSuite
from bide.testing.conformance.suites.polls import PollsSuite
from bide.testing.conformance.suites.queues import QueuesSuite
from bide.testing.conformance.suites.waiting import WaitingSuite
from bide.testing.conformance.suites.workers import WorkersSuite

__all__ = ["PROMISES", "Absent", "Bench", "ProviderSuite", "promise_of"]


class ProviderSuite(
    WaitingSuite,
    LockingSuite,
    ClocksSuite,
    WorkersSuite,
    KeysSuite,
    QueuesSuite,
    LimitsSuite,
    PollsSuite,
    AnswersSuite,
    EventsSuite,
    JoiningSuite,
    OccurringSuite,
    KeepingSuite,
    InspectingSuite,
    OpeningSuite,
):
    """All of it. Subclasses give the fixture ``bench``."""

    @pytest.fixture(autouse=True)
    def made_promises_only(self, request: pytest.FixtureRequest, bench: Bench) -> None:
        """Skip what proves a promise that the provider does not make, with its reason."""
        number = promise_of(request.function.__name__)
        if number is not None and number in bench.absent:
            pytest.skip(bench.absent[number])
