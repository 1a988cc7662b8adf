"""The ``tasks`` and ``queues`` blocks: what is refused in them, and what comes of those that are right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bide import App, Context
from bide.config import Compiled
from bide.core.pacing import Backoff
from bide.core.periodic import Cron, Every
from bide.core.work import QueueDeclaration, TaskDeclaration

KEY, VALUE = "task.key_invalid", "task.value_invalid"
QUEUE_KEY, QUEUE_VALUE = "queue.key_invalid", "queue.value_invalid"


def mail(to: str, subject: str = "hi") -> None: ...


def tidy() -> None: ...


def takes_an_option(delay: int) -> None: ...


def takes_anything(*args: Any, **kwargs: Any) -> None: ...


def generates() -> Iterator[int]:
    yield 1


def two_contexts(one: Context, two: Context) -> None: ...


class Strange: ...


def makes_an_object() -> Strange: ...  # type: ignore[empty-body]  # only its annotation counts


def broken(when: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037 - what a user may write


REFUSED: dict[str, tuple[dict[str, object], str, str, str, str]] = {
    "block": ({"tasks": [1]}, VALUE, "tasks", "must be a table", "block of keys"),
    "name": (
        {"tasks": {"send.mail": {"function": mail}}},
        KEY,
        'tasks."send.mail"',
        "cannot be the name",
        "no dots",
    ),
    "no-function": ({"tasks.mail": {}}, KEY, "tasks.mail.function", "is missing", "my.module:name"),
    "not-a-function": ({"tasks.mail.function": 3}, VALUE, "tasks.mail.function", "not 3", "my.module:name"),
    "nowhere": (
        {"tasks.mail.function": "no_such_module:mail"},
        VALUE,
        "tasks.mail.function",
        "no module no_such_module",
        "Put it in",
    ),
    "unknown-key": ({"tasks.mail.quue": "x"}, KEY, "tasks.mail.quue", "not known", "'queue'"),
    "queue-reserved": (
        {"tasks.mail.queue": "deliveries"},
        VALUE,
        "tasks.mail.queue",
        "of deliveries",
        "another",
    ),
    "queue-name": (
        {"tasks.mail.queue": "a b"},
        KEY,
        "tasks.mail.queue",
        "cannot be the name of a queue",
        "no dots",
    ),
    "queue-empty": ({"tasks.mail.queue": ""}, VALUE, "tasks.mail.queue", "is empty", "leave the key out"),
    "max-attempts": (
        {"tasks.mail.max_attempts": 0},
        VALUE,
        "tasks.mail.max_attempts",
        "at least 1",
        "1 or more",
    ),
    "lock-timeout": ({"tasks.mail.lock_timeout": 0}, VALUE, "tasks.mail.lock_timeout", "is zero", "1ms"),
    "within": ({"tasks.mail.within": "soon"}, VALUE, "tasks.mail.within", "'soon'", "5s"),
    "priority": ({"tasks.mail.priority": 1.5}, VALUE, "tasks.mail.priority", "not 1.5", "10 for urgent"),
    "priority-huge": (
        {"tasks.mail.priority": -(10**7)},
        VALUE,
        "tasks.mail.priority",
        "up to 1000000",
        "10 for urgent",
    ),
    "priority-true": (
        {"tasks.mail.priority": True},
        VALUE,
        "tasks.mail.priority",
        "not true",
        "10 for urgent",
    ),
    "max-concurrent": (
        {"tasks.mail.max_concurrent": 0},
        VALUE,
        "tasks.mail.max_concurrent",
        "at least 1",
        "1 or",
    ),
    "timeout": ({"tasks.mail.timeout": "-1s"}, VALUE, "tasks.mail.timeout", "negative", "5s"),
    "give-backs": (
        {"tasks.mail.max_give_backs": -1},
        VALUE,
        "tasks.mail.max_give_backs",
        "at least 0",
        "0 or",
    ),
    "keep-result": (
        {"tasks.mail.keep_result": "for ever"},
        VALUE,
        "tasks.mail.keep_result",
        "'for ever'",
        "5s",
    ),
    "keep-what": (
        {"tasks.mail": {"function": makes_an_object, "keep_result": "1h"}},
        VALUE,
        "tasks.mail.keep_result",
        "what the function returns is annotated with what pydantic cannot read",
        "JSON can carry",
    ),
    "retry": (
        {"tasks.mail.retry": "1s"},
        VALUE,
        "tasks.mail.retry",
        "must be a table, not text",
        "initial =",
    ),
    "retry-key": ({"tasks.mail.retry": {"max": "1h"}}, KEY, "tasks.mail.retry.max", "not known", "'maximum'"),
    "retry-factor": (
        {"tasks.mail.retry": {"factor": 0.5}},
        VALUE,
        "tasks.mail.retry.factor",
        "0.5",
        "example 2",
    ),
    "retry-order": (
        {"tasks.mail.retry": {"initial": "1h", "maximum": "1m"}},
        VALUE,
        "tasks.mail.retry.maximum",
        "1m is shorter than initial",
        "at least as long",
    ),
    "every-short": (
        {"tasks.tidy.every": "500ms"},
        VALUE,
        "tasks.tidy.every",
        "shorter than a second",
        '"1s"',
    ),
    "every-unreadable": ({"tasks.tidy.every": "daily"}, VALUE, "tasks.tidy.every", "'daily'", "5s"),
    "cron": (
        {"tasks.tidy.cron": "0 25 * * *"},
        VALUE,
        "tasks.tidy.cron",
        "its hour cannot be '25'",
        "0 9 * * MON",
    ),
    "cron-word": ({"tasks.tidy.cron": "0 9 * * MOO"}, VALUE, "tasks.tidy.cron", "'MOO'", "'MON'"),
    "cron-no-text": ({"tasks.tidy.cron": 5}, VALUE, "tasks.tidy.cron", "must be text, not 5", "quotes"),
    "timezone": (
        {"tasks.tidy": {"function": tidy, "cron": "0 9 * * *", "timezone": "Europe/Berln"}},
        VALUE,
        "tasks.tidy.timezone",
        "no time zone 'Europe/Berln'",
        "'Europe/Berlin'",
    ),
    "timezone-alone": ({"tasks.tidy.timezone": "UTC"}, KEY, "tasks.tidy.timezone", "is for cron", "add cron"),
    "both": (
        {"tasks.tidy": {"function": tidy, "cron": "0 9 * * *", "every": "1h"}},
        KEY,
        "tasks.tidy",
        "has every and cron",
        "Remove one",
    ),
    "periodic-arguments": (
        {"tasks.mail.every": "1h"},
        VALUE,
        "tasks.mail.every",
        "it needs to",
        "Give to a default",
    ),
    "option": (
        {"tasks.mail.function": takes_an_option},
        VALUE,
        "tasks.mail.function",
        "'delay', which is an option of submit",
        "another name",
    ),
    "generator": ({"tasks.mail.function": generates}, VALUE, "tasks.mail.function", "a generator", "Return"),
    "contexts": (
        {"tasks.mail.function": two_contexts},
        VALUE,
        "tasks.mail.function",
        "2 parameters",
        "Keep one",
    ),
    "annotation": ({"tasks.mail.function": broken}, VALUE, "tasks.mail.function", "NameError", "Import what"),
    "queues": ({"queues": 3}, QUEUE_VALUE, "queues", "must be a table", "block of keys"),
    "queue-key": ({"queues.mail": {"limt": 3}}, QUEUE_KEY, "queues.mail.limt", "not known", "'limit'"),
    "limit": (
        {"queues.mail": {"limit": 0}},
        QUEUE_VALUE,
        "queues.mail.limit",
        "at least 1, not 0",
        "1 or more",
    ),
    "workers-queue": (
        {"worker.queues": ["default", "mial"], "queues.mail": {"limit": 2}},
        "config.value_invalid",
        "worker.queues",
        "no queue is named 'mial'",
        "'mail'",
    ),
    "per-key": (
        {"queues.mail": {"limit": 2, "per_key": 5}},
        QUEUE_VALUE,
        "queues.mail.per_key",
        "more than the whole queue may have, which is 2",
        "2 or less",
    ),
    "deliveries": (
        {"queues": {"deliveries": {"limit": 2}}},
        QUEUE_KEY,
        "queues.deliveries",
        "'deliveries' is the queue of deliveries",
        "another name",
    ),
}


@pytest.fixture
def good(good: dict[str, Any]) -> dict[str, Any]:
    """The tables of a file with no mistake in it, two tasks among them."""
    return good | {"tasks": {"mail": {"function": mail}, "tidy": {"function": tidy}}}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_with_its_place_and_one_next_step(
    case: str, check: Callable[..., Compiled]
) -> None:
    changes, code, where, message, suggestion = REFUSED[case]
    (mistake,) = check(changes).mistakes
    assert (mistake.code, mistake.where) == (code, where)
    assert message in mistake.message
    assert suggestion in (mistake.suggestion or "")
    assert not (mistake.suggestion or "").endswith(("?.", ".."))


def test_all_mistakes_are_told_at_once(check: Callable[..., Compiled]) -> None:
    changes = {
        "tasks.mail.function": takes_anything,
        "tasks.mail.max_attempts": "many",
        "tasks.tidy.cron": "x",
        "tasks.tidy.timezone": "Nowhere",
        "queues.mail": {"limit": "all"},
        "app.tick": 0,
    }
    assert [mistake.where for mistake in check(changes).mistakes] == [
        *("app.tick", "queues.mail.limit", "tasks.mail.function", "tasks.mail.function"),
        *("tasks.mail.max_attempts", "tasks.tidy.cron", "tasks.tidy.timezone"),
    ]


def test_workers_may_be_for_queues_that_a_task_or_a_block_names(check: Callable[..., Compiled]) -> None:
    changes = {
        "worker.queues": ["letters", "slow"],
        "tasks.mail.queue": "letters",
        "queues.slow": {"limit": 1},
    }
    assert check(changes).mistakes == ()


def compiled(check: Callable[..., Compiled], changes: dict[str, object]) -> dict[str, TaskDeclaration]:
    found = check(changes)
    assert found.mistakes == ()
    assert found.declarations is not None
    return dict(found.declarations.tasks)


def test_defaults(check: Callable[..., Compiled]) -> None:
    task = compiled(check, {})["mail"]
    assert (task.name, task.queue, task.function, task.reference) == (
        *("mail", "default", mail),
        f"{__name__}:mail",
    )
    assert (task.max_attempts, task.priority, task.max_give_backs) == (5, 0, 100)
    assert (task.lock_timeout, task.within, task.timeout, task.keep_result) == (None, None, None, None)
    assert (task.max_concurrent, task.rule) == (None, None)
    assert task.retry == Backoff(timedelta(seconds=1), timedelta(hours=1), 2.0)


def test_every_setting_arrives(check: Callable[..., Compiled]) -> None:
    task = compiled(
        check,
        {
            "tasks.mail": {
                "function": mail,
                "queue": "letters",
                "max_attempts": 7,
                "lock_timeout": "2m",
                "within": "1d",
                "priority": -3,
                "max_concurrent": 4,
                "timeout": "30s",
                "retry": {"initial": "5s", "maximum": "1m", "factor": 3},
                "max_give_backs": 0,
                "keep_result": 60,
            }
        },
    )["mail"]
    assert (task.queue, task.max_attempts, task.priority, task.max_concurrent) == ("letters", 7, -3, 4)
    assert (task.lock_timeout, task.within) == (timedelta(minutes=2), timedelta(days=1))
    assert (task.timeout, task.keep_result) == (timedelta(seconds=30), timedelta(minutes=1))
    assert task.retry == Backoff(timedelta(seconds=5), timedelta(minutes=1), 3)
    assert task.max_give_backs == 0


def test_a_back_off_is_completed_by_the_default(check: Callable[..., Compiled]) -> None:
    assert compiled(check, {"tasks.mail.retry": {"initial": "2h"}})["mail"].retry == Backoff(
        timedelta(hours=2), timedelta(hours=2), 2.0
    )
    own = Backoff(timedelta(seconds=3), timedelta(seconds=9))
    assert compiled(check, {"tasks.mail.retry": own})["mail"].retry is own


def test_rules(check: Callable[..., Compiled]) -> None:
    hourly = compiled(check, {"tasks.tidy.every": "1h"})["tidy"].rule
    assert isinstance(hourly, Every)
    assert hourly.every_ms == 3_600_000
    weekly = {"function": tidy, "cron": "0 9 * * mon", "timezone": "Europe/Berlin"}
    rule = compiled(check, {"tasks.tidy": weekly})["tidy"].rule
    assert isinstance(rule, Cron)
    assert (rule.expression, rule.timezone) == ("0 9 * * MON", "Europe/Berlin")


def test_queues_with_and_without_limits(check: Callable[..., Compiled]) -> None:
    found = check({"queues": {"mail": {"limit": 10, "per_key": 2}, "other": {}}})
    assert found.declarations is not None
    assert found.declarations.queues == {
        "mail": QueueDeclaration("mail", 10, 2),
        "other": QueueDeclaration("other"),
    }


def test_a_function_named_in_a_file_may_be_a_task_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs_in_a_module.py").write_text(
        "from bide import App\n"
        "app = App('memory://')\n"
        "@app.task(max_attempts=9)\n"
        "def send(to: str) -> None: ...\n"
    )
    (tmp_path / "bide.toml").write_text(
        '[app]\nprovider = "memory://"\n[tasks.send_mail]\nfunction = "jobs_in_a_module:send"\n'
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    app = App.from_file(tmp_path / "bide.toml")
    task = app.declarations.tasks["send_mail"]
    assert task.function is sys.modules["jobs_in_a_module"].send.function
    assert (task.reference, task.max_attempts) == ("jobs_in_a_module:send", 5)
    assert task.signature.parameters == ("to",)


def test_code_and_file_add_up_and_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    app = App("memory://", folder=tmp_path)
    app.include({"tasks": {"mail": {"function": mail}}, "queues": {"mail": {"limit": 3}}})
    app.task(tidy)
    app.queue("other", per_key=1)
    assert set(app.declarations.tasks) == {"mail", "tidy"}
    assert set(app.declarations.queues) == {"mail", "other"}
    app.task(name="mail")(tidy)
    app.queue("mail")
    assert [(mistake.where, mistake.message) for mistake in app.check().mistakes] == [
        ("queues.mail", "is declared more than once"),
        ("tasks.mail", "is declared more than once"),
    ]
