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
Tests of a promise carry its number. They need pytest with pytest-asyncio in auto mode.
"""

from bide.testing.conformance.answers import AnswersSuite
from bide.testing.conformance.bench import Bench
from bide.testing.conformance.clocks import ClocksSuite
from bide.testing.conformance.events import EventsSuite
from bide.testing.conformance.inspecting import InspectingSuite
from bide.testing.conformance.joining import JoiningSuite
from bide.testing.conformance.keeping import KeepingSuite
from bide.testing.conformance.keys import KeysSuite
from bide.testing.conformance.limits import LimitsSuite
from bide.testing.conformance.locking import LockingSuite
from bide.testing.conformance.occurring import OccurringSuite
from bide.testing.conformance.polls import PollsSuite
from bide.testing.conformance.queues import QueuesSuite
from bide.testing.conformance.waiting import WaitingSuite

__all__ = ["Bench", "ProviderSuite"]


class ProviderSuite(
    WaitingSuite,
    LockingSuite,
    ClocksSuite,
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
):
    """All of it. Subclasses give the fixture ``bench``."""
