"""What each kind of store is asked for what bide does with it: requests by the class that they are billed by.

The numbers are those of the providers as they are built, and are held to what is really counted by
``tests/test_estimates_counted.py``. Where a number depends on how many items come together, it is given for one
batch, whatever its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType

Requests = Mapping[str, Decimal]
"""How many requests of each class."""


def _requests(**numbers: str) -> Requests:
    """Numbers as they are written, so that none is rounded."""
    return MappingProxyType({name: Decimal(number) for name, number in numbers.items()})


@dataclass(frozen=True, slots=True)
class Waiting:
    """A fetch waits in the store, for at most ``longest`` in one request, which asks ``besides`` what it asks anyway.

    Meanwhile whoever waits looks every ``look_every`` by itself, in case a hint was lost, which asks ``look``.
    """

    longest: timedelta
    besides: Requests = field(default_factory=dict)
    look_every: timedelta | None = None
    look: Requests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PollRequests:
    """What a poll asks of the store at each call, claim and record together, by what came of it.

    ``minute``: what each process that polls asks once a tick, however many polls there are.
    """

    unchanged: Requests
    changed: Requests
    minute: Requests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestModel:
    """What a kind of store is asked.

    - ``idle_fetch``: by a fetch that found nothing; for each queue by itself where ``per_queue``.
    - ``waiting`` None: no fetch waits in the store.
    - ``idle_minute``: by each worker that has nothing to do, besides its fetches; ``upkeep_minute``: by every one;
      ``store_minute``: by one worker for all of them.
    - ``item``: for each item, from its submission to its end; ``batch``: for each batch of items, which holds at most
      ``largest_batch``.
    - ``polls`` None: the store keeps no polls.
    """

    kind: str
    title: str
    classes: tuple[str, ...]
    idle_fetch: Requests
    batch: Requests
    waiting: Waiting | None = None
    per_queue: bool = False
    idle_minute: Requests = field(default_factory=dict)
    upkeep_minute: Requests = field(default_factory=dict)
    store_minute: Requests = field(default_factory=dict)
    item: Requests = field(default_factory=dict)
    largest_batch: int | None = None
    polls: PollRequests | None = None


_SQLITE = RequestModel(
    kind="sqlite",
    title="SQLite",
    classes=("transaction",),
    waiting=Waiting(
        timedelta(days=1),
        besides=_requests(transaction="1"),  # a last look, when its time is up
        look_every=timedelta(seconds=5),
        look=_requests(transaction="1"),
    ),
    idle_fetch=_requests(transaction="1"),
    upkeep_minute=_requests(transaction="1"),
    batch=_requests(transaction="2"),  # a fetch that waits takes part in what brings the item
    polls=PollRequests(
        _requests(transaction="2"), _requests(transaction="2"), minute=_requests(transaction="3")
    ),
)

_POSTGRESQL = RequestModel(
    kind="postgresql",
    title="PostgreSQL",
    classes=("statement",),
    waiting=Waiting(timedelta(days=1), look_every=timedelta(seconds=30), look=_requests(statement="1")),
    idle_fetch=_requests(statement="1"),
    idle_minute=_requests(statement="1"),  # whether the listening connection still lives
    upkeep_minute=_requests(statement="1"),
    batch=_requests(statement="4"),
    polls=PollRequests(_requests(statement="2"), _requests(statement="9"), minute=_requests(statement="3")),
)

_REDIS = RequestModel(
    kind="redis",
    title="Redis or Valkey",
    classes=("command",),
    waiting=Waiting(timedelta(days=1)),
    idle_fetch=_requests(command="1"),
    upkeep_minute=_requests(command="1"),
    batch=_requests(command="5"),
    polls=PollRequests(_requests(command="2"), _requests(command="2"), minute=_requests(command="3")),
)

_S3 = RequestModel(
    kind="s3",
    title="S3",
    classes=("GET", "PUT", "LIST", "DELETE", "HEAD"),
    idle_fetch=_requests(GET="1"),  # the wake-up marker, by its ETag
    idle_minute=_requests(LIST="1"),  # in case the marker lost something
    upkeep_minute=_requests(GET="0.2", PUT="0.1", LIST="1", HEAD="0.1"),  # pruning, and the store's clock
    store_minute=_requests(GET="0.2", PUT="0.2", LIST="1.2"),  # what crashes left
    item=_requests(GET="1", PUT="3"),
    batch=_requests(PUT="1", DELETE="1"),
    polls=PollRequests(_requests(PUT="2"), _requests(GET="2", PUT="3"), minute=_requests(GET="2", PUT="1")),
)

_SQS = RequestModel(
    kind="sqs",
    title="SQS",
    classes=("receive", "send", "delete", "visibility", "other"),
    waiting=Waiting(timedelta(seconds=20)),
    per_queue=True,
    idle_fetch=_requests(receive="1"),
    batch=_requests(send="1", receive="1", delete="1"),
    largest_batch=10,
)

_MEMORY = RequestModel(
    kind="memory", title="memory", classes=(), idle_fetch={}, batch={}, polls=PollRequests({}, {})
)

MODELS: Mapping[str, RequestModel] = MappingProxyType(
    {model.kind: model for model in (_S3, _SQS, _REDIS, _POSTGRESQL, _SQLITE, _MEMORY)}
)
"""By the kind of store."""
