"""Waits: what is refused in them, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import pytest

from bide.app import App
from bide.config import Compiled
from bide.connection.failures import RETRYABLE, CallErrorKind
from bide.core.acceptors import Acceptors
from bide.core.http import Headers, Response
from bide.core.pacing import PollingStrategy
from bide.core.seen import CommandResult
from bide.core.template import Template
from bide.core.verdict import Failure, NotYet, Success
from bide.core.wait_declaration import FAILURES, PASSING, Address, Program, WaitDeclaration

WAIT = "waits.job"
KEY, VALUE = "wait.key_invalid", "wait.value_invalid"

Check = Callable[..., Compiled]


def address(**changes: object) -> dict[str, object]:
    """A wait of the least that one needs, with ``changes``."""
    return {"url": "https://api.example.org/jobs/7", "timeout": "10m", **changes}


def command(**changes: object) -> dict[str, object]:
    return {"command": ["test", "-f", "ready"], "timeout": "10m", **changes}


REFUSED = {
    "block": ({"waits": []}, VALUE, "waits", "must be a table", "block"),
    "wait-is-no-table": ({WAIT: "https://x.org"}, VALUE, WAIT, "must be a table, not text", "block"),
    "name": ({"waits.a b": address()}, KEY, 'waits."a b"', "cannot be the name of a wait", "letter"),
    "unknown-key": ({WAIT: address(timout="1m")}, KEY, f"{WAIT}.timout", "not known", "'timeout'"),
    "neither": ({WAIT: {"timeout": "1m"}}, KEY, WAIT, "exactly one of url or command", "url ="),
    "both": ({WAIT: address(command=["a"])}, KEY, WAIT, "has url and command", "Keep one"),
    "url": ({WAIT: address(url="ftp://x")}, VALUE, f"{WAIT}.url", "must begin with http", "https"),
    "command-as-text": (
        {WAIT: command(command="test -f x")},
        VALUE,
        f"{WAIT}.command",
        "list",
        '"test", "-f"',
    ),
    "timeout-missing": ({WAIT: {"url": "https://x.org"}}, KEY, f"{WAIT}.timeout", "missing", '"10m"'),
    "timeout-zero": ({WAIT: address(timeout=0)}, VALUE, f"{WAIT}.timeout", "is zero", "1ms"),
    "timeout-word": ({WAIT: address(timeout="never")}, VALUE, f"{WAIT}.timeout", "not a duration", "5s"),
    "attempt_timeout": (
        {WAIT: address(attempt_timeout=-1)},
        VALUE,
        f"{WAIT}.attempt_timeout",
        "negative",
        "5s",
    ),
    "attempt_timeout-beyond": (
        {WAIT: address(attempt_timeout="11m")},
        VALUE,
        f"{WAIT}.attempt_timeout",
        "longer than the timeout of the whole wait, 10m",
        "shorter",
    ),
    "method": ({WAIT: address(method="GTE")}, VALUE, f"{WAIT}.method", "not a method", "'GET'"),
    "headers": (
        {WAIT: address(headers={"a b": "1"})},
        KEY,
        f'{WAIT}.headers."a b"',
        "name of a header",
        "letters",
    ),
    "body": (
        {WAIT: address(body={"at": float("nan")})},
        VALUE,
        f"{WAIT}.body.at",
        "JSON does not have",
        "finite",
    ),
    "method-of-a-command": (
        {WAIT: command(method="GET")},
        KEY,
        f"{WAIT}.method",
        "this is a command",
        "Remove",
    ),
    "retry_on-of-a-command": (
        {WAIT: command(retry_on=[])},
        KEY,
        f"{WAIT}.retry_on",
        "this is a command",
        "Remove",
    ),
    "times_in_row": ({WAIT: address(times_in_row=0)}, VALUE, f"{WAIT}.times_in_row", "at least 1", "1"),
    "stable_for": ({WAIT: address(stable_for="soon")}, VALUE, f"{WAIT}.stable_for", "not a duration", "5s"),
    "hint_clamp": ({WAIT: address(hint_clamp=True)}, VALUE, f"{WAIT}.hint_clamp", "not a duration", "5s"),
    "retry_on": ({WAIT: address(retry_on="tls")}, VALUE, f"{WAIT}.retry_on", "must be a list", "refused"),
    "retry_on-word": ({WAIT: address(retry_on=["tsl"])}, VALUE, f"{WAIT}.retry_on[0]", "'tsl'", "'tls'"),
    "retry_on-number": ({WAIT: address(retry_on=[5])}, VALUE, f"{WAIT}.retry_on[0]", "5 is no kind", "Known"),
    "acceptors": (
        {WAIT: address(success=1.5)},
        VALUE,
        f"{WAIT}.success",
        "must be a list of acceptors",
        "state",
    ),
    "acceptor": ({WAIT: address(success=[True])}, VALUE, f"{WAIT}.success[0]", "must be a table", "block"),
    "acceptor-of-nothing": ({WAIT: address(failure=[{}])}, VALUE, f"{WAIT}.failure[0]", "no part", "status"),
    "part": ({WAIT: address(retry=[{"stauts": 1}])}, KEY, f"{WAIT}.retry[0].stauts", "not known", "'status'"),
    "condition": (
        {WAIT: address(success=["state = 'done'"])},
        VALUE,
        f"{WAIT}.success[0]",
        "not a JMESPath expression",
        "path",
    ),
    "function": (
        {WAIT: address(success=[{"condition": "lenght(a)"}])},
        VALUE,
        f"{WAIT}.success[0].condition",
        "calls lenght()",
        "'length'",
    ),
    "status": (
        {WAIT: address(success=["a", 600])},
        VALUE,
        f"{WAIT}.success[1]",
        "not an HTTP status",
        "100 to 599",
    ),
    "status-of-a-command": (
        {WAIT: command(failure=[{"status": "2xx"}])},
        VALUE,
        f"{WAIT}.failure[0].status",
        "not an exit status",
        "0 to 255",
    ),
    "status-word": (
        {WAIT: address(failure={"status": "bad"})},
        VALUE,
        f"{WAIT}.failure.status",
        "is not a status",
        '"2xx"',
    ),
    "header": (
        {WAIT: address(success=[{"header": {"X-A": 1}}])},
        VALUE,
        f"{WAIT}.success[0].header.X-A",
        "number 1 is neither",
        "X-State",
    ),
    "header-name": (
        {WAIT: address(success=[{"header": {"X A": "1"}}])},
        VALUE,
        f'{WAIT}.success[0].header."X A"',
        "not the name of a header",
        "X-State",
    ),
    "header-empty": (
        {WAIT: address(success=[{"header": {}}])},
        VALUE,
        f"{WAIT}.success[0].header",
        "names no header",
        "X-State",
    ),
    "header-text": (
        {WAIT: address(success=[{"header": "X-A"}])},
        VALUE,
        f"{WAIT}.success[0].header",
        "must be a table",
        "block",
    ),
    "header-of-a-command": (
        {WAIT: command(success=[{"header": {"X-A": "1"}}])},
        KEY,
        f"{WAIT}.success[0].header",
        "is for an address",
        "Remove",
    ),
    "output": (
        {WAIT: command(success=[{"output": "(ready"}])},
        VALUE,
        f"{WAIT}.success[0].output",
        "not a regular expression",
        "Mend",
    ),
    "every": ({WAIT: address(every="often")}, VALUE, f"{WAIT}.every", "not a duration", "5s"),
    "every-and-polling": (
        {WAIT: address(every="5s", polling={})},
        KEY,
        f"{WAIT}.every",
        "polling is given too",
        "Keep one",
    ),
    "polling": ({WAIT: address(polling="fast")}, VALUE, f"{WAIT}.polling", "must be a table", "block"),
    "strategy": (
        {WAIT: address(polling={"strategy": "adaptiv"})},
        VALUE,
        f"{WAIT}.polling.strategy",
        "not a polling strategy",
        "'adaptive'",
    ),
    "fixed-without-interval": (
        {WAIT: address(polling={"strategy": "fixed"})},
        KEY,
        f"{WAIT}.polling.interval",
        "is missing",
        '"5s"',
    ),
    "of-the-other-strategy": (
        {WAIT: address(polling={"interval_ms": 500})},
        KEY,
        f"{WAIT}.polling.interval_ms",
        "belongs to the fixed strategy",
        'strategy = "fixed"',
    ),
    "of-the-other-strategy-too": (
        {WAIT: address(polling={"strategy": "fixed", "interval": "1s", "max_interval": "1s"})},
        KEY,
        f"{WAIT}.polling.max_interval",
        "belongs to the adaptive strategy",
        'strategy = "adaptive"',
    ),
    "bounds": (
        {WAIT: address(polling={"min_interval": "10s"})},
        VALUE,
        f"{WAIT}.polling.max_interval",
        "5s is shorter than min_interval, 10s",
        "as long",
    ),
    "multiplier": (
        {WAIT: address(polling={"backoff_multiplier": 1})},
        VALUE,
        f"{WAIT}.polling.backoff_multiplier",
        "above 1",
        "write for example 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_at_its_place_with_a_next_step(case: str, check: Check) -> None:
    changes, code, where, message, step = REFUSED[case]
    compiled = check(changes)
    assert compiled.declarations is None
    found = [mistake for mistake in compiled.mistakes if mistake.where == where]
    assert len(found) == 1, compiled.mistakes
    assert len(compiled.mistakes) == 1
    assert found[0].code == code
    assert message in found[0].message
    assert step.lower() in (found[0].suggestion or "").lower()


def test_every_mistake_is_told_at_once(check: Check) -> None:
    wrong = {
        "url": "x",
        "timeout": -1,
        "success": ["a ==", {"status": 1, "condition": "b =="}],
        "polling": {"strategy": "fix"},
        "times_in_row": "2",
        "evry": 1,
    }
    places = {mistake.where.removeprefix(f"{WAIT}.") for mistake in check({WAIT: wrong}).mistakes}
    assert places == {
        "url",
        "timeout",
        "success[0]",
        "success[1].status",
        "success[1].condition",
        "polling.strategy",
        "times_in_row",
        "evry",
    }


# --- what they mean ------------------------------------------------------------------------------------------


def compiled(check: Check, wait: dict[str, object]) -> WaitDeclaration:
    declarations = check({WAIT: wait}).declarations
    assert declarations is not None
    return declarations.waits["job"]


def target_of(wait: WaitDeclaration) -> Address:
    assert isinstance(wait.target, Address)
    return wait.target


def test_the_least_that_a_wait_needs(check: Check) -> None:
    wait = compiled(check, address())
    target = target_of(wait)
    assert (target.connection.base_url.text, target.request.path.text) == (
        "https://api.example.org",
        "/jobs/7",
    )
    assert (target.request.method, target.request.body, target.text) == ("GET", None, None)
    assert wait.acceptors == Acceptors()
    assert wait.timeout == timedelta(minutes=10)
    assert wait.attempt_timeout is None
    assert wait.strategy == PollingStrategy.adaptive()
    assert (wait.times_in_row, wait.stable_for) == (1, None)
    assert wait.retry_on == set(PASSING)
    assert wait.hint_clamp == timedelta(days=1)


def test_a_command_is_run_as_its_words_stand(check: Check) -> None:
    wait = compiled(check, command())
    assert wait.target == Program(("test", "-f", "ready"))
    assert wait.attempt_timeout is None
    assert compiled(check, command(attempt_timeout=5)).attempt_timeout == timedelta(seconds=5)


def test_every_setting_arrives(check: Check) -> None:
    wait = compiled(
        check,
        address(
            method="put",
            headers={"Authorization": "Bearer ${SHOP_TOKEN}"},
            body={"job": 7},
            timeout="forever",
            attempt_timeout="5s",
            times_in_row=3,
            stable_for="1m",
            retry_on=["tls", "reset"],
            hint_clamp=0,
            polling={"min_interval_ms": 200, "max_interval": "2s", "backoff_multiplier": 3},
        ),
    )
    target = target_of(wait)
    assert (target.request.method, target.request.body) == ("PUT", {"job": 7})
    assert target.connection.headers == {"Authorization": Template("Bearer ${SHOP_TOKEN}")}
    assert (wait.timeout, wait.attempt_timeout) == (None, timedelta(seconds=5))
    assert (wait.times_in_row, wait.stable_for) == (3, timedelta(minutes=1))
    assert wait.retry_on == {"tls", "reset"}
    assert wait.hint_clamp == timedelta()
    assert wait.strategy == PollingStrategy.adaptive("200ms", "2s", 3)


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({"every": "5s"}, PollingStrategy.fixed("5s")),
        ({"polling": {"strategy": "fixed", "interval_ms": 500}}, PollingStrategy.fixed("500ms")),
        ({"polling": {"max_interval": "1m"}}, PollingStrategy.adaptive("100ms", "1m")),
        ({"polling": {}}, PollingStrategy.adaptive()),
    ],
)
def test_how_often_it_asks(check: Check, given: dict[str, Any], strategy: PollingStrategy) -> None:
    assert compiled(check, address(**given)).strategy == strategy


def test_a_body_makes_a_post_and_text_is_sent_as_it_is(check: Check) -> None:
    target = target_of(compiled(check, address(body="job=${SHOP_TOKEN}")))
    assert (target.request.method, target.request.body) == ("POST", None)
    assert target.text == Template("job=${SHOP_TOKEN}")


def test_acceptors_are_those_of_the_library(check: Check) -> None:
    parts = {"status": [200, "202-204"], "header": {"X-State": "ready", "X-Id": True}, "output": "done"}
    wait = compiled(
        check,
        address(
            success=["state == `done`", parts], failure="state == 'failed'", retry=[404, {"status": "5xx"}]
        ),
    )
    assert [str(one) for one in wait.acceptors.success] == [
        "state == `done`",
        "status 200 or 202-204 and header X-State is 'ready' and header X-Id is there and output 'done'",
    ]
    answers = {200: b'{"state": "done"}', 404: b'{"state": "failed"}', 201: b'{"state": "failed"}'}
    verdicts = {
        status: wait.acceptors(Response(status, Headers(), body, "")) for status, body in answers.items()
    }
    assert [type(verdict) for verdict in verdicts.values()] == [Success, NotYet, Failure]


def test_acceptors_of_a_command_are_of_its_exit_status_and_output(check: Check) -> None:
    acceptors = compiled(check, command(success={"output": "^ready"}, failure=[3])).acceptors
    assert isinstance(acceptors(CommandResult(0, b"is\nready")), Success)
    assert isinstance(acceptors(CommandResult(1, b"ready")), NotYet)
    assert isinstance(acceptors(CommandResult(3, b"ready")), Failure)


def test_a_variable_that_is_missing_is_a_warning(check: Check) -> None:
    compiled = check(
        {WAIT: address(url="${JOBS_URL}/7", headers={"X-Key": "${JOBS_KEY}"}, body="${JOBS_BODY}")}
    )
    assert [warning.where for warning in compiled.warnings] == [
        f"{WAIT}.body",
        f"{WAIT}.headers.X-Key",
        f"{WAIT}.url",
    ]
    assert compiled.declarations is not None


def test_an_app_has_the_waits_of_its_file(tmp_path: Any) -> None:
    path = tmp_path / "bide.toml"
    path.write_text('[waits.job]\nurl = "https://api.example.org/jobs/7"\ntimeout = "1m"\n')
    assert set(App.from_file(path).declarations.waits) == {"job"}


def test_the_kinds_of_failures_are_those_of_calls() -> None:
    assert set(PASSING) == RETRYABLE
    assert set(FAILURES) == set(get_args(CallErrorKind)) - {"status", "environment", "address", "function"}
