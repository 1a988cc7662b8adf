"""Kinds of stores, and what not every one of them is able to do.

Every provider keeps work items; the rest is in this table, so that a declaration can be refused before anything is
opened, with the name of a store that is able. That it is true of each provider is tested beside the contract's suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from bide.errors import Unsupported

Ability = Literal[
    "polls",
    "events",
    "ordered",
    "limits",
    "periodic",
    "keys",
    "results",
    "priorities",
    "transactions",
    "inspection",
]
"""What a store may be unable to do."""

ABILITIES: Mapping[Ability, str] = MappingProxyType(
    {
        "polls": "keep polls",
        "events": "keep events",
        "ordered": "deliver in order",
        "limits": "limit what runs of a queue over the fleet",
        "periodic": "run a periodic task once over the fleet",
        "keys": "keep the keys of items",
        "results": "keep results",
        "priorities": "put urgent items first",
        "transactions": "enqueue within a transaction of the caller's",
        "inspection": "list its items",
    }
)
"""What each is, as it follows *can* and *cannot*."""


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store. ``title`` is for people, ``address`` an example; ``lacks`` is what it is unable to do."""

    title: str
    address: str
    lacks: frozenset[Ability] = frozenset()


SQLITE = StoreKind("SQLite", "sqlite:///bide.db")
MEMORY = StoreKind("memory", "memory://")
POSTGRES = StoreKind("PostgreSQL", "postgresql://host/database")
REDIS = StoreKind("Redis", "redis://host")
S3 = StoreKind("S3", "s3://bucket/prefix?region=…", frozenset({"ordered", "limits"}))
SQS = StoreKind("SQS", "sqs://queue?region=…", frozenset(ABILITIES))

KINDS = (SQLITE, POSTGRES, REDIS, S3, SQS, MEMORY)
"""All of them, what is recommended first."""

BY_SCHEME: Mapping[str, StoreKind] = MappingProxyType(
    {
        "sqlite": SQLITE,
        "memory": MEMORY,
        "postgresql": POSTGRES,
        "postgres": POSTGRES,
        "redis": REDIS,
        "rediss": REDIS,
        "valkey": REDIS,
        "valkeys": REDIS,
        "s3": S3,
        "sqs": SQS,
    }
)
"""By the scheme of a provider's address."""


def cannot(kind: StoreKind, ability: Ability) -> str:
    """``"SQS cannot keep polls"``."""
    return f"{kind.title} cannot {ABILITIES[ability]}"


def able(ability: Ability) -> str:
    """The kinds of store that outlive the process and are able, with their addresses, as one says them."""
    titles = [
        f"{kind.title} ({kind.address})" for kind in KINDS if kind is not MEMORY and ability not in kind.lacks
    ]
    return f"{', '.join(titles[:-1])} and {titles[-1]}"


def unsupported(kind: StoreKind, ability: Ability) -> Unsupported:
    """The error of whoever asks a store of ``kind`` for it all the same."""
    return Unsupported(f"{cannot(kind, ability)}; {able(ability)} can", ability)
