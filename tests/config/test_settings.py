"""The ``[app]`` block: what is refused in it, its defaults, and stores that cannot keep events."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from bide.config import Compiled
from bide.core.declaration import Declarations

KEY, VALUE = "config.key_invalid", "config.value_invalid"

REFUSED = {
    "block": ({"app": "sqlite"}, VALUE, "app", "must be a table, not text", "block"),
    "stray-block": ({"conections": {}}, KEY, "conections", "not known", "'connections'"),
    "stray-key": ({"provider": "sqlite:///x.db"}, KEY, "provider", "not known", "Known here: app"),
    "unknown-key": ({"app.tik": "1m"}, KEY, "app.tik", "not known", "'tick'"),
    "tick-too-short": ({"app.tick": "999ms"}, VALUE, "app.tick", "shorter than a second", '"1s"'),
    "tick-zero": ({"app.tick": 0}, VALUE, "app.tick", "zero", "1ms"),
    "tick-true": ({"app.tick": True}, VALUE, "app.tick", "True", "5s"),
    "tick-not-a-number": ({"app.tick": math.nan}, VALUE, "app.tick", "nan", "5s"),
    "tick-unreadable": ({"app.tick": "minutely"}, VALUE, "app.tick", "'minutely'", "5s"),
    "retention": ({"app.retention": "-1d"}, VALUE, "app.retention", "negative", "5s"),
    "failure-retry": ({"app.failure_retry": 0}, VALUE, "app.failure_retry", "zero", "1ms"),
    "concurrency": ({"app.concurrency": 0}, VALUE, "app.concurrency", "at least 1, not 0", "1 or more"),
    "concurrency-true": ({"app.concurrency": True}, VALUE, "app.concurrency", "not true", "1 or more"),
    "max-calls": ({"app.max_calls": 1.5}, VALUE, "app.max_calls", "not 1.5", "1 or more"),
    "provider-no-text": (
        {"app.provider": {"url": "x"}},
        VALUE,
        "app.provider",
        "must be text, not a table",
        "quotes",
    ),
    "provider-empty": ({"app.provider": ""}, VALUE, "app.provider", "is empty", "leave the key out"),
    "provider-unknown": (
        {"app.provider": "sqllite:///x"},
        VALUE,
        "app.provider",
        "not the address of",
        "'sqlite'",
    ),
    "provider-like-no-other": (
        {"app.provider": "mysql://x"},
        VALUE,
        "app.provider",
        "not the address of",
        "Known here: memory, postgres, postgresql, redis, rediss, s3, sqlite, sqs, valkey, valkeys.",
    ),
    "provider-a-path": (
        {"app.provider": "bide.db"},
        VALUE,
        "app.provider",
        "not the address of",
        "sqlite:///bide.db",
    ),
    "sqlite-two-slashes": (
        {"app.provider": "sqlite://x.db"},
        VALUE,
        "app.provider",
        "too few slashes",
        "sqlite:///",
    ),
    "sqlite-no-file": (
        {"app.provider": "sqlite:///"},
        VALUE,
        "app.provider",
        "names no file",
        "sqlite:///bide.db",
    ),
    "sqlite-memory": (
        {"app.provider": "sqlite:///:memory:"},
        VALUE,
        "app.provider",
        "names no file",
        "memory://",
    ),
    "sqlite-option": (
        {"app.provider": "sqlite:///x?sync=full"},
        VALUE,
        "app.provider",
        "'sync'",
        "synchronous",
    ),
    "sqlite-option-value": (
        {"app.provider": "sqlite:///x?synchronous=off"},
        VALUE,
        "app.provider",
        "'off'",
        "full",
    ),
    "provider-no-variable": (
        {"app.provider": "sqlite:///${1}/x.db"},
        VALUE,
        "app.provider",
        "no variable's name",
        "${NAME}",
    ),
    "memory-of-what": (
        {"app.provider": "memory://x"},
        VALUE,
        "app.provider",
        "nothing behind",
        '"memory://"',
    ),
    "postgresql-option": (
        {"app.provider": "postgresql://u:secret@db/x?shema=a"},
        VALUE,
        "app.provider",
        "no option 'shema'",
        "schema, pool, listen",
    ),
    "postgresql-schema": (
        {"app.provider": "postgres://db/x?schema=My-Own"},
        VALUE,
        "app.provider",
        "schema cannot be 'My-Own'",
        "lower-case",
    ),
    "postgresql-pool": (
        {"app.provider": "postgresql://db/x?pool=0"},
        VALUE,
        "app.provider",
        "pool cannot be '0'",
        "such as 8",
    ),
    "postgresql-listen": (
        {"app.provider": "postgresql://db/x?listen=maybe"},
        VALUE,
        "app.provider",
        "listen cannot be 'maybe'",
        "true or false",
    ),
    "postgresql-port": (
        {"app.provider": "postgresql://u:secret@db:port/x"},
        VALUE,
        "app.provider",
        "cannot be read",
        "%2F",
    ),
    "postgresql-half-a-password": (
        {"app.provider": "postgresql://u:12/34@db/x"},
        VALUE,
        "app.provider",
        "cannot be read",
        "%2F",
    ),
    "redis-option": (
        {"app.provider": "rediss://db?prefx=a"},
        VALUE,
        "app.provider",
        "has no option 'prefx'",
        "prefix",
    ),
    "s3-credentials": (
        {"app.provider": "s3://key:secret@bucket/x"},
        VALUE,
        "app.provider",
        "neither credentials nor a port",
        "AWS_ACCESS_KEY_ID",
    ),
}

Check = Callable[..., Compiled]


@pytest.mark.parametrize(("changes", "code", "where", "says", "suggests"), REFUSED.values(), ids=REFUSED)
def test_refused_in_the_settings(
    check: Check, *, changes: dict[str, object], code: str, where: str, says: str, suggests: str
) -> None:
    compiled = check(changes)
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == [(code, where)]
    assert says in compiled.mistakes[0].message
    assert suggests in (compiled.mistakes[0].suggestion or "")
    assert not (compiled.mistakes[0].suggestion or "").endswith(("?.", ".."))


def test_a_store_that_cannot_keep_events_is_refused_at_each_connection_that_needs_it(check: Check) -> None:
    compiled = check({"app.provider": "sqs://queue"})
    assert [(found.code, found.where) for found in compiled.mistakes] == [
        ("config.value_invalid", "app.provider"),
        ("event.store_required", "connections.eu"),
        ("event.store_required", "watches.python_release"),
    ]
    assert "shop.PriceChanged (heard by audit), and SQS cannot keep events" in compiled.mistakes[1].message
    assert "sqlite:///bide.db" in (compiled.mistakes[1].suggestion or "")


def test_what_nobody_hears_needs_no_store(check: Check) -> None:
    compiled = check({"app.provider": "sqs://queue", "subscribers": None, "watches": None})
    assert [found.where for found in compiled.mistakes] == ["app.provider"]


def declared(check: Check, changes: dict[str, object]) -> Declarations:
    declarations = check(changes).declarations
    assert declarations is not None
    return declarations


def test_defaults(check: Check) -> None:
    declarations = declared(check, {"app": None})
    assert declarations.provider == "sqlite:///bide.db"
    assert declarations.tick == timedelta(minutes=1)
    assert declarations.retention == timedelta(days=30)
    assert declarations.failure_retry == timedelta(minutes=1)
    assert (declarations.concurrency, declarations.max_calls) == (20, 200)


def test_settings(check: Check) -> None:
    app = {
        "provider": "memory://",
        "tick": 1,
        "retention": "7d",
        "failure_retry": "30s",
        "concurrency": 3,
        "max_calls": 5,
    }
    declarations = declared(check, {"app": app})
    assert declarations.provider == "memory://"
    assert declarations.tick == timedelta(seconds=1)
    assert declarations.retention == timedelta(days=7)
    assert declarations.failure_retry == timedelta(seconds=30)
    assert (declarations.concurrency, declarations.max_calls) == (3, 5)


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////var/lib/bide.db",
        "sqlite:///a/b.db?synchronous=normal",
        "postgresql://bide:secret@db.example.org:5433/jobs?schema=own&pool=20&listen=false&sslmode=require",
        "postgres://one:5432,two:5433/jobs?target_session_attrs=read-write",
        "postgresql:///jobs?host=/var/run/postgresql",
    ],
)
def test_addresses_of_stores(check: Check, address: str) -> None:
    assert declared(check, {"app.provider": address}).provider == address


@pytest.mark.parametrize(
    "address",
    [
        "${STORE}",
        "sqlite:///${STORE}/x.db",
        "sqlite:///x.db?synchronous=${STORE}",
        "postgresql://bide:${STORE}@db:${STORE}/jobs?schema=${STORE}&pool=${STORE}",
    ],
)
def test_a_variable_of_the_provider_that_is_missing_is_a_warning(check: Check, address: str) -> None:
    compiled = check({"app.provider": address})
    assert compiled.declarations is not None
    assert compiled.declarations.provider == address
    (warning,) = [warning for warning in compiled.warnings if "STORE" in warning.message]
    assert (warning.code, "app.provider" in warning.message) == ("environment.variable_missing", True)


def test_a_shorter_tick_allows_shorter_intervals_down_to_a_second(check: Check) -> None:
    intervals = {"packages.shop.polls.price.every": "1s", "connections.eu.polls.price": "2s"}
    assert declared(check, {"app.tick": "1s", **intervals}).polls["eu.price"].every == timedelta(seconds=2)


def test_no_interval_is_refused_for_a_tick_that_is_wrong_itself(check: Check) -> None:
    compiled = check({"app.tick": "soon", "packages.shop.polls.price.every": "5s"})
    assert [found.where for found in compiled.mistakes] == ["app.tick"]
    compiled = check({"app.tick": "soon", "packages.shop.polls.price.every": "0.5s"})
    assert [found.where for found in compiled.mistakes] == ["app.tick", "packages.shop.polls.price.every"]
