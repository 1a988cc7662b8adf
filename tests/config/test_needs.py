"""What a declaration needs of its store, refused where a store of that kind cannot do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bide.config import Compiled

Check = Callable[..., Compiled]

SQS = "sqs://queue?region=eu-west-1"
S3 = "s3://bucket/prefix?region=eu-west-1"
DIGEST = "hashlib:sha256"

NEEDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "limit": (S3, {"queues.mail": {"limit": 3}}, "queues.mail.limit", "limit what runs of a queue"),
    "per-key": (S3, {"queues.mail": {"per_key": 3}}, "queues.mail.per_key", "limit what runs of a queue"),
    "ordered": (S3, {"subscribers.audit.ordered": True}, "subscribers.audit.ordered", "deliver in order"),
    "every": (SQS, {"tasks.sweep": {"function": DIGEST, "every": "1h"}}, "tasks.sweep.every", "periodic"),
    "cron": (SQS, {"tasks.sweep": {"function": DIGEST, "cron": "0 9 * * *"}}, "tasks.sweep.cron", "periodic"),
    "results": (
        SQS,
        {"tasks.sweep": {"function": DIGEST, "keep_result": "1h"}},
        "tasks.sweep.keep_result",
        "keep results",
    ),
    "priority": (SQS, {"tasks.sweep": {"function": DIGEST, "priority": 5}}, "tasks.sweep.priority", "urgent"),
}


@pytest.mark.parametrize(("provider", "changes", "where", "says"), NEEDS.values(), ids=NEEDS)
def test_refused_where_the_store_is_unable(
    check: Check, *, provider: str, changes: dict[str, object], where: str, says: str
) -> None:
    compiled = check({"app.provider": provider, **changes})
    (mistake,) = [found for found in compiled.mistakes if found.code == "store.unable"]
    assert mistake.where == where
    assert says in mistake.message
    assert "sqlite:///bide.db" in (mistake.suggestion or "")


@pytest.mark.parametrize(("provider", "changes", "where", "says"), NEEDS.values(), ids=NEEDS)
def test_not_refused_where_it_is_able_or_not_known_yet(
    check: Check, *, provider: str, changes: dict[str, object], where: str, says: str
) -> None:
    for able in ("sqlite:///bide.db", "${STORE}"):
        compiled = check({"app.provider": able, **changes})
        assert [found for found in compiled.mistakes if found.code == "store.unable"] == []


def test_what_says_no_needs_nothing(check: Check) -> None:
    compiled = check({"app.provider": S3, "subscribers.audit.ordered": False, "queues.mail": {}})
    assert [found for found in compiled.mistakes if found.code == "store.unable"] == []


def test_a_watch_may_need_it_too(check: Check) -> None:
    to = [{"command": ["true"]}, {"command": ["true"], "ordered": True}]
    compiled = check({"app.provider": S3, "watches.python_release.to": to})
    (mistake,) = [found for found in compiled.mistakes if found.code == "store.unable"]
    assert mistake.where == "watches.python_release.to[1].ordered"
