"""Acceptors: what an answer means to whoever waits for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.acceptors import Acceptor, Acceptors, wanted_header
from bide.core.http import Headers, Response
from bide.core.seen import CommandResult, Kind, seen
from bide.core.statuses import Statuses, statuses
from bide.core.verdict import Failure, NotYet, Success
from bide.errors import SettingError


def response(
    status: int = 200, value: Any = None, *headers: tuple[str, str], body: bytes | None = None
) -> Response:
    whole = json.dumps(value).encode() if body is None else body
    return Response(status, Headers(headers), whole, "http://127.0.0.1/job")


def is_not_yet(verdict: object, *, saying: str = "") -> bool:
    return isinstance(verdict, NotYet) and saying in verdict.reason


# --- statuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "inside", "outside", "text"),
    [
        (200, [200], [199, 201], "200"),
        ("200", [200], [199, 201], "200"),
        ("2xx", [200, 299], [199, 300], "2xx"),
        ("5XX", [500, 599], [499, 600], "5xx"),
        ("200-204", [200, 204], [199, 205], "200-204"),
        ("200 - 204, 404", [202, 404], [403], "200-204 or 404"),
        ([200, "404", "5xx"], [200, 404, 503], [201], "200 or 404 or 5xx"),
        ([200, 200], [200], [201], "200"),
        (0, [0], [1], "0"),
    ],
)
def test_statuses_are_named_in_every_form(
    given: object, inside: list[int], outside: list[int], text: str
) -> None:
    named = statuses(given, "status")
    assert all(status in named for status in inside)
    assert not any(status in named for status in outside)
    assert str(named) == text
    assert statuses(named, "status") is named


@pytest.mark.parametrize(
    "given", [True, -1, 1000, 2.0, None, "", "2x", "20x", "ok", "200-", "204-200", [], {}, "200,"]
)
def test_what_names_no_status_is_refused(given: object) -> None:
    with pytest.raises(SettingError, match=r"^status: "):
        statuses(given, "status")


def test_statuses_know_whether_they_lie_within_bounds() -> None:
    assert not statuses("2xx,404", "status").outside(100, 599)
    assert statuses("0", "status").outside(100, 599)
    assert statuses("900-999", "status").outside(100, 599)


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 999))
def test_a_range_holds_what_lies_between_its_ends(first: int, last: int, status: int) -> None:
    first, last = sorted((first, last))
    assert (status in statuses(f"{first}-{last}", "status")) is (first <= status <= last)


def test_only_numbers_are_in_statuses() -> None:
    assert "200" not in Statuses(((200, 299),), "2xx")


# --- one acceptor --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acceptor", "fits", "fails", "why"),
    [
        (Acceptor(status="2xx"), response(204), response(404), "status 404, not 2xx"),
        (
            Acceptor(header={"X-State": "done"}),
            response(200, None, ("x-state", "queued"), ("X-State", " done ")),
            response(200, None, ("X-State", "queued")),
            "header X-State is not 'done'",
        ),
        (
            Acceptor(header={"X-Ready": True}),
            response(200, None, ("x-ready", "")),
            response(),
            "header X-Ready is not there",
        ),
        (
            Acceptor(header={"X-Queued": False}),
            response(),
            response(200, None, ("X-Queued", "1")),
            "header X-Queued is there",
        ),
        (
            Acceptor(condition="state == 'done'"),
            response(200, {"state": "done"}),
            response(200, {"state": "queued"}),
            "state == 'done' is false",
        ),
        (
            Acceptor(condition="state == `done`"),
            response(200, {"state": "done"}),
            response(200, {}),
            "state == `done` is false",
        ),
        (
            Acceptor(condition="items"),
            response(200, {"items": [1]}),
            response(200, {"items": []}),
            "items is list",
        ),
        (
            Acceptor(condition="count"),
            response(200, {"count": 0}),
            response(200, {"count": None}),
            "count is null",
        ),
        (Acceptor(condition="a"), response(200, {"a": 1}), response(body=b"<html>"), "not JSON"),
        (
            Acceptor(condition="sum(a)"),
            response(200, {"a": [1]}),
            response(200, {"a": ["x"]}),
            "cannot be worked out",
        ),
        (
            Acceptor(output="^ready$"),
            response(body=b"a\nready\n"),
            response(body=b"not ready"),
            "nothing fits",
        ),
        (Acceptor(status=0), CommandResult(0, b""), CommandResult(1, b""), "status 1, not 0"),
        (Acceptor(output="ok"), "all ok", "bad", "nothing fits"),
        (Acceptor(output='"a":1'), {"a": 1}, {"a": 2}, "nothing fits"),
        (Acceptor(output="object at"), object(), 1, "nothing fits"),
        (Acceptor(condition="price > `1.1`"), {"price": 1.2}, {"price": 1.1}, "is false"),
    ],
)
def test_an_acceptor_fits_where_its_part_holds(
    acceptor: Acceptor, fits: object, fails: object, why: str
) -> None:
    assert acceptor.missing(seen(fits)) is None
    missing = acceptor.missing(seen(fails))
    assert missing is not None
    assert why in missing


def test_all_the_parts_of_an_acceptor_have_to_hold() -> None:
    acceptor = Acceptor(status=200, header={"X-A": "1"}, condition="ok", output="true")
    right = response(200, {"ok": True}, ("X-A", "1"))
    assert acceptor.missing(seen(right)) is None
    for wrong in (
        response(201, {"ok": True}, ("X-A", "1")),
        response(200, {"ok": True}, ("X-A", "2")),
        response(200, {"ok": False, "x": True}, ("X-A", "1")),
        response(200, {"ok": "yes"}, ("X-A", "1")),
    ):
        assert acceptor.missing(seen(wrong)) is not None


def test_an_acceptor_of_a_status_does_not_fit_what_has_none() -> None:
    assert Acceptor(status=200).missing(seen({"status": 200})) == "there is no status, not 200"


def test_an_acceptor_tells_its_parts() -> None:
    acceptor = Acceptor(
        status="5xx", header={"X-A": "1", "X-B": True, "X-C": False}, condition="state == 'x'", output="boom"
    )
    told = "status 5xx and header X-A is '1' and header X-B is there and header X-C is not there"
    assert str(acceptor) == f"{told} and state == 'x' and output 'boom'"
    assert repr(Acceptor(condition="a")) == "Acceptor(a)"


@pytest.mark.parametrize(
    ("parts", "setting"),
    [
        ({}, "acceptor"),
        ({"header": {}}, "acceptor"),
        ({"status": "ok"}, "status"),
        ({"header": ["X-A"]}, "header"),
        ({"header": {"X A": "1"}}, "header"),
        ({"header": {1: "1"}}, "header"),
        ({"header": {"X-A": 1}}, "header.X-A"),
        ({"condition": "state =="}, "condition"),
        ({"condition": "stat(a)"}, "condition"),
        ({"condition": 1}, "condition"),
        ({"output": "("}, "output"),
        ({"output": ""}, "output"),
        ({"output": 1}, "output"),
    ],
)
def test_what_cannot_be_a_part_is_refused_by_its_name(parts: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as refused:
        Acceptor(**parts)
    assert refused.value.setting == setting


def test_no_headers_wanted_are_none() -> None:
    assert wanted_header(None, "header") == {}


# --- three lists of them -------------------------------------------------------------------------------------

JOB = Acceptors(
    success=[{"status": 200, "condition": "state == 'done'"}],
    failure=["state == 'failed'", {"status": "4xx"}],
    retry=[{"status": [404, 429]}, {"header": {"X-Stale": True}}],
)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (response(200, {"state": "done"}), Success),
        (response(200, {"state": "queued"}), NotYet),
        (response(500, {"state": "done"}), NotYet),
        (response(200, {"state": "failed"}), Failure),
        (response(403), Failure),
        (response(404), NotYet),
        (response(404, {"state": "failed"}), NotYet),
        (response(200, {"state": "done"}, ("X-Stale", "1")), NotYet),
    ],
)
def test_retry_goes_before_failure_and_failure_before_success(answer: Response, verdict: type) -> None:
    assert isinstance(JOB(answer), verdict)


def test_the_value_of_a_success_is_the_answer() -> None:
    answer = response(200, {"state": "done"})
    assert JOB(answer) == Success(answer)


def test_a_verdict_says_why() -> None:
    assert JOB(response(200, {"state": "failed"})) == Failure("state == 'failed'")
    assert is_not_yet(JOB(response(503)), saying="status 503, not 200")
    assert is_not_yet(JOB(response(429)), saying="status 404 or 429, which is asked again")


def test_a_success_without_a_status_needs_a_good_one() -> None:
    for acceptors in (Acceptors(success="ok"), Acceptors(success=Acceptor(condition="ok"))):
        assert isinstance(acceptors(response(200, {"ok": 1})), Success)
        assert is_not_yet(acceptors(response(500, {"ok": 1})), saying="status 500, not 2xx")
        assert isinstance(acceptors(CommandResult(0, b'{"ok": 1}')), Success)
        assert is_not_yet(acceptors(CommandResult(3, b'{"ok": 1}')), saying="status 3, not 0")


def test_of_several_successes_one_is_enough_and_the_first_explains() -> None:
    acceptors = Acceptors(success=[200, {"status": 404}])
    assert isinstance(acceptors(response(404)), Success)
    assert is_not_yet(acceptors(response(500)), saying="status 500, not 200")


def test_without_a_success_a_good_status_or_a_true_value_is_one() -> None:
    anything = Acceptors()
    assert isinstance(anything(response(204)), Success)
    assert is_not_yet(anything(response(302)), saying="status 302, not 2xx")
    assert isinstance(anything(CommandResult(0, b"")), Success)
    assert is_not_yet(anything(CommandResult(137, b"")), saying="status 137, not 0")
    assert anything({"a": 1}) == Success({"a": 1})
    assert is_not_yet(anything(None), saying="it is null")


def test_what_is_gone_has_failed_unless_it_is_waited_for_or_asked_again() -> None:
    gone = response(410)
    assert isinstance(Acceptors()(gone), Failure)
    assert isinstance(Acceptors(success=[410])(gone), Success)
    assert isinstance(Acceptors(retry=[410])(gone), NotYet)
    assert isinstance(Acceptors()(CommandResult(410, b"")), NotYet)


# --- hints ---------------------------------------------------------------------------------------------------

LATER = ("Retry-After", "Sun, 06 Nov 1994 08:50:07 GMT")
NOW_MS = 784_111_777_000  # 08:49:37 of that day


@pytest.mark.parametrize(
    ("headers", "now_ms", "hint"),
    [
        ([("Retry-After", "7")], None, 7),
        ([("Retry-After", "soon")], None, None),
        ([("Retry-After", "-1")], None, None),
        ([LATER], None, None),
        ([LATER], NOW_MS, 30),
        ([LATER, ("Date", "Sun, 06 Nov 1994 08:49:57 GMT")], None, 10),
        ([LATER, ("Retry-After", "7")], None, 7),
        ([], NOW_MS, None),
    ],
)
def test_a_retry_after_is_a_hint(
    headers: list[tuple[str, str]], now_ms: int | None, hint: int | None
) -> None:
    for acceptors, status in ((Acceptors(), 503), (Acceptors(retry=[429]), 429)):
        verdict = acceptors.judge(response(status, None, *headers), now_ms=now_ms)
        assert isinstance(verdict, NotYet)
        assert verdict.hint == (None if hint is None else timedelta(seconds=hint))


# --- how they are given --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"success": [{"state": "done"}]}, "success[0]"),
        ({"success": [{"status": 200}, {"status": "ok"}]}, "success[1].status"),
        ({"failure": [{"header": {"X-A": 3}}]}, "failure[0].header.X-A"),
        ({"retry": ["a", "b =="]}, "retry[1].condition"),
        ({"failure": {"output": "("}}, "failure.output"),
        ({"failure": 3.5}, "failure"),
        ({"failure": [3.5]}, "failure[0]"),
        ({"failure": [None]}, "failure[0]"),
        ({"success": [True]}, "success[0].status"),
        ({"success": [{}]}, "success[0]"),
    ],
)
def test_mistakes_are_told_with_their_place(given: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as refused:
        Acceptors(**given)
    assert refused.value.setting == setting


# --- answers of other clients --------------------------------------------------------------------------------


@dataclass
class Foreign:
    """What responses of requests and httpx have in common."""

    status_code: int
    content: Any
    headers: dict[str, str] = field(default_factory=dict)


def test_responses_of_other_clients_are_judged_as_ours() -> None:
    acceptors = Acceptors(success=[{"header": {"X-State": "done"}, "condition": "a == `1.10`"}])
    assert isinstance(acceptors(Foreign(200, b'{"a": 1.1}', {"x-state": "done"})), Success)
    verdict = acceptors(Foreign(503, b"", {"Retry-After": "3"}))
    assert isinstance(verdict, NotYet)
    assert verdict.hint == timedelta(seconds=3)
    assert seen(Foreign(200, "text")).kind is Kind.VALUE
    assert seen(Foreign(200, b"x")).kind is Kind.HTTP


def test_text_that_is_no_utf8_is_looked_at_all_the_same() -> None:
    assert Acceptor(output="ready").missing(seen(response(body=b"\xff ready"))) is None


def test_a_result_shows_neither_what_a_command_wrote() -> None:
    assert repr(CommandResult(3, b"secret")) == "CommandResult(3, 6 bytes)"


# --- properties ----------------------------------------------------------------------------------------------

STATUSES = st.integers(100, 599)
PATTERNS = st.one_of(STATUSES, st.sampled_from(["2xx", "3xx", "4xx", "5xx", "200-204"]))
LISTS = st.lists(PATTERNS.map(lambda status: {"status": status}), max_size=3)


@given(success=LISTS, failure=LISTS, retry=LISTS, status=STATUSES)
def test_every_answer_has_one_verdict_and_the_lists_stand_in_order(
    success: list[Any], failure: list[Any], retry: list[Any], status: int
) -> None:
    def fits(listed: list[Any]) -> bool:
        return any(status in statuses(item["status"], "status") for item in listed)

    verdict = Acceptors(success, failure, retry)(response(status))
    there = fits(success) if success else 200 <= status < 300
    if fits(retry):
        assert isinstance(verdict, NotYet)
    elif fits(failure) or (status == 410 and not there):
        assert isinstance(verdict, Failure)
    elif there:
        assert isinstance(verdict, Success)
    else:
        assert isinstance(verdict, NotYet)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_condition_means_the_same_of_a_value_and_of_its_json(value: Any) -> None:
    acceptors = Acceptors(success=["@", "length(@) > `1`", "a.b == 'c'"])
    of_json = acceptors(response(200, value))
    assert type(acceptors(value)) is type(of_json)


@given(
    body=st.binary(max_size=200),
    status=st.integers(0, 999),
    expression=st.sampled_from(["a", "sum(@)", "@ > `1`"]),
)
def test_no_answer_is_too_odd_to_be_judged(body: bytes, status: int, expression: str) -> None:
    acceptors = Acceptors(success=[{"condition": expression, "output": "a"}], failure=[expression])
    for answer in (response(status, body=body), CommandResult(status, body), body):
        assert isinstance(acceptors(answer), Success | Failure | NotYet)
