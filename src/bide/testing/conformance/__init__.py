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
:attr:`Bench.absent` with the reason, an ability that it has not in :attr:`Bench.lacks`. They need pytest with
pytest-asyncio in auto mode, and nothing else of ours.
"""

import pytest

from bide.testing.conformance.able import as_far_as_able, is_test
from bide.testing.conformance.bench import Absent, Bench
from bide.testing.conformance.promises import NOT_KEPT, PROMISES, promise_of
from bide.testing.conformance.suites.answers import AnswersSuite
from bide.testing.conformance.suites.clocks import ClocksSuite
from bide.testing.conformance.suites.counting import CountingSuite
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
    CountingSuite,
    OpeningSuite,
):
    """All of it. Subclasses give the fixture ``bench``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in filter(is_test, dir(cls)):
            setattr(cls, name, as_far_as_able(getattr(cls, name)))

    @pytest.fixture(autouse=True)
    def made_promises_only(self, request: pytest.FixtureRequest, bench: Bench) -> None:
        """Skip what proves a promise that the provider does not make, with its reason."""
        for name in (name for name in bench.absent if isinstance(name, str)):
            assert hasattr(self, name), f"{name} is absent, and there is no test of that name"
        test = request.function.__name__
        for made in (promise_of(test), test):
            if made is not None and made in bench.absent:
                pytest.skip(NOT_KEPT + bench.absent[made])
