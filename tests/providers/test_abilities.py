"""The table of what stores are unable to do is that of the providers: the suite proves the rest of each."""

from __future__ import annotations

import pytest

from bide.core.abilities import KINDS, StoreKind
from bide.testing.benches.memory import MemoryBench
from bide.testing.benches.postgres import PostgresBench
from bide.testing.benches.redis import RedisBench
from bide.testing.benches.s3 import S3Bench
from bide.testing.benches.sqlite import SqliteBench
from bide.testing.conformance import Bench
from tests.providers.sqs_bench import SqsBench

BENCHES: dict[str, type[Bench]] = {
    "SQLite": SqliteBench,
    "memory": MemoryBench,
    "PostgreSQL": PostgresBench,
    "Redis": RedisBench,
    "S3": S3Bench,
    "SQS": SqsBench,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_what_a_kind_lacks_is_what_its_bench_says(kind: StoreKind) -> None:
    assert set(BENCHES[kind.title].lacks) == set(kind.lacks)
