"""Everything that is refused in a subscriber, each at its place, and what subscribers mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from bide.config import Compiled
from bide.core.declaration import Command, Function, Webhook
from bide.core.template import Template

AUDIT = "subscribers.audit"
KEY, VALUE = "subscriber.key_invalid", "subscriber.value_invalid"


def on_price(delivery: object) -> None:
    """Hears prices."""


def hears(**target: object) -> dict[str, object]:
    """A subscriber with this target and no other."""
    return {"on": "shop.PriceChanged", **target}


REFUSED = {
    "block": ({"subscribers": "audit"}, VALUE, "subscribers", "must be a table, not text", "block"),
    "subscriber-is-no-table": ({AUDIT: 1}, VALUE, AUDIT, "must be a table, not 1", "block"),
    "name": (
        {"subscribers": {"a.b": hears(command=["x"])}},
        KEY,
        'subscribers."a.b"',
        "cannot be the name",
        "no dots",
    ),
    "unknown-key": ({f"{AUDIT}.secrt": "x"}, KEY, f"{AUDIT}.secrt", "not known", "'secret'"),
    "missing-on": ({f"{AUDIT}.on": None}, KEY, f"{AUDIT}.on", "is missing", 'on = "python_release.Changed"'),
    "on-no-text": (
        {f"{AUDIT}.on": ["shop.PriceChanged"]},
        VALUE,
        f"{AUDIT}.on",
        "must be text, not a list",
        "quotes",
    ),
    "unknown-event": (
        {f"{AUDIT}.on": "shop.PriceChangd"},
        VALUE,
        f"{AUDIT}.on",
        "no event 'shop.PriceChangd'",
        "'shop.PriceChanged'",
    ),
    "event-without-its-package": (
        {f"{AUDIT}.on": "PriceChanged"},
        VALUE,
        f"{AUDIT}.on",
        "no event",
        "'shop.PriceChanged'",
    ),
    "event-without-its-package-nearly": (
        {f"{AUDIT}.on": "PriceChange"},
        VALUE,
        f"{AUDIT}.on",
        "no event",
        "'shop.PriceC",
    ),
    "event-of-another-package": (
        {f"{AUDIT}.on": "shp.PriceChanged"},
        VALUE,
        f"{AUDIT}.on",
        "no event",
        "'shop.PriceC",
    ),
    "event-like-no-other": (
        {f"{AUDIT}.on": "zzz"},
        VALUE,
        f"{AUDIT}.on",
        "no event",
        "Known here: python_release.Changed",
    ),
    "event-not-public": (
        {"packages.shop.events.Private": {"fields": {"price": "number"}}, f"{AUDIT}.on": "shop.Private"},
        VALUE,
        f"{AUDIT}.on",
        "shop.Private is not public",
        "public = true at packages.shop.events.Private",
    ),
    "no-target": (
        {f"{AUDIT}.webhook": None, f"{AUDIT}.secret": None},
        KEY,
        AUDIT,
        "and has none",
        "webhook =",
    ),
    "two-targets": ({f"{AUDIT}.command": ["x"]}, KEY, AUDIT, "has webhook and command", "remove the other."),
    "three-targets": (
        {f"{AUDIT}.command": ["x"], f"{AUDIT}.function": on_price},
        KEY,
        AUDIT,
        "has webhook and command and function",
        "remove the others.",
    ),
    "webhook-scheme": (
        {f"{AUDIT}.webhook": "mailto:a@b.org"},
        VALUE,
        f"{AUDIT}.webhook",
        "http:// or https://",
        "https",
    ),
    "webhook-no-host": ({f"{AUDIT}.webhook": "https://"}, VALUE, f"{AUDIT}.webhook", "has no host", "https"),
    "webhook-empty": ({f"{AUDIT}.webhook": ""}, VALUE, f"{AUDIT}.webhook", "is empty", "Fill it in"),
    "secret-empty": ({f"{AUDIT}.secret": " "}, VALUE, f"{AUDIT}.secret", "is empty", "leave the key out"),
    "secret-not-base64": (
        {f"{AUDIT}.secret": "whsec_***"},
        VALUE,
        f"{AUDIT}.secret",
        "not Base64",
        "whole secret",
    ),
    "secret-of-a-command": (
        {AUDIT: hears(command=["x"], secret="s")},
        KEY,
        f"{AUDIT}.secret",
        "is for webhooks",
        "Remove",
    ),
    "headers-of-a-function": (
        {AUDIT: hears(function=on_price, headers={"A": "b"})},
        KEY,
        f"{AUDIT}.headers",
        "this is a function",
        "Remove headers",
    ),
    "header": (
        {f"{AUDIT}.headers": {"A b": "c"}},
        KEY,
        f'{AUDIT}.headers."A b"',
        "not the name of a header",
        "X-Api-Key",
    ),
    "command-as-text": (
        {AUDIT: hears(command="python3 audit.py")},
        VALUE,
        f"{AUDIT}.command",
        "must be a list of texts, not text",
        '["python3", "audit.py"]',
    ),
    "command-empty": (
        {AUDIT: hears(command=[])},
        VALUE,
        f"{AUDIT}.command",
        "is an empty list",
        "what to run",
    ),
    "command-empty-text": (
        {AUDIT: hears(command="")},
        VALUE,
        f"{AUDIT}.command",
        "a list of texts",
        "such as [",
    ),
    "command-of-numbers": (
        {AUDIT: hears(command=["sleep", 3])},
        VALUE,
        f"{AUDIT}.command[1]",
        "not 3",
        "quotes",
    ),
    "command-without-a-program": (
        {AUDIT: hears(command=["", "a"])},
        VALUE,
        f"{AUDIT}.command[0]",
        "is empty",
        "Fill",
    ),
    "function-malformed": (
        {AUDIT: hears(function="my.module.fn")},
        VALUE,
        f"{AUDIT}.function",
        "not module:name",
        '"my.m',
    ),
    "function-not-there": (
        {AUDIT: hears(function="math:copysin")},
        VALUE,
        f"{AUDIT}.function",
        "has no copysin",
        "'copysign'",
    ),
    "function-no-function": (
        {AUDIT: hears(function="math:pi")},
        VALUE,
        f"{AUDIT}.function",
        "is a float",
        "function",
    ),
    "function-an-int": (
        {AUDIT: hears(function="sys:maxsize")},
        VALUE,
        f"{AUDIT}.function",
        "is an int, not",
        "function",
    ),
    "function-no-module": (
        {AUDIT: hears(function="no_such_module:f")},
        VALUE,
        f"{AUDIT}.function",
        "no module",
        "Put it",
    ),
    "function-a-number": (
        {AUDIT: hears(function=3)},
        VALUE,
        f"{AUDIT}.function",
        "must be a function, not 3",
        "module:",
    ),
    "within-zero": ({f"{AUDIT}.within": 0}, VALUE, f"{AUDIT}.within", "zero", "1ms"),
    "within-not-a-number": ({f"{AUDIT}.within": math.nan}, VALUE, f"{AUDIT}.within", "nan", "5s"),
    "ordered": ({f"{AUDIT}.ordered": 1}, VALUE, f"{AUDIT}.ordered", "true or false, not 1", "without quotes"),
    "max-attempts": (
        {f"{AUDIT}.max_attempts": 0},
        VALUE,
        f"{AUDIT}.max_attempts",
        "at least 1, not 0",
        "1 or more",
    ),
    "max-attempts-true": (
        {f"{AUDIT}.max_attempts": True},
        VALUE,
        f"{AUDIT}.max_attempts",
        "not true",
        "1 or more",
    ),
    "max-concurrent": (
        {f"{AUDIT}.max_concurrent": 0.5},
        VALUE,
        f"{AUDIT}.max_concurrent",
        "not 0.5",
        "1 or more",
    ),
    "timeout": ({f"{AUDIT}.timeout": "-1s"}, VALUE, f"{AUDIT}.timeout", "negative", "5s"),
}

Check = Callable[..., Compiled]


@pytest.mark.parametrize(("changes", "code", "where", "says", "suggests"), REFUSED.values(), ids=REFUSED)
def test_refused_in_a_subscriber(
    check: Check, *, changes: dict[str, object], code: str, where: str, says: str, suggests: str
) -> None:
    compiled = check(changes)
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == [(code, where)]
    assert says in compiled.mistakes[0].message
    assert suggests in (compiled.mistakes[0].suggestion or "")


def target_of(check: Check, block: dict[str, object]) -> object:
    declarations = check({AUDIT: block}).declarations
    assert declarations is not None
    return declarations.subscribers["audit"].target


def test_the_three_targets(check: Check) -> None:
    url, secret = Template("https://${HOST}/hook"), Template("whsec_c2VjcmV0")
    seconds = timedelta(seconds=30)
    assert target_of(check, hears(webhook=url.text, secret=secret.text, headers={"A": "b"})) == Webhook(
        url, {"A": Template("b")}, secret, seconds
    )
    assert target_of(check, hears(command=["a", "b c"], timeout="5s")) == Command(
        ("a", "b c"), timedelta(seconds=5)
    )
    assert target_of(check, hears(function=on_price)) == Function(f"{__name__}:on_price", on_price, None)


def test_functions_without_a_name_of_their_own(check: Check) -> None:
    function = partial(on_price)
    assert target_of(check, hears(function=function)) == Function("functools:partial", function, None)


def test_a_reference_is_followed(check: Check) -> None:
    target = target_of(check, hears(function="os.path:join", timeout=2))
    assert isinstance(target, Function)
    assert target.reference == "os.path:join"
    assert target.function is not None
    assert target.timeout == timedelta(seconds=2)


def test_options(check: Check) -> None:
    options = {"within": "90m", "ordered": True, "max_attempts": 7, "max_concurrent": 3}
    declarations = check({AUDIT: hears(command=["x"], **options)}).declarations
    assert declarations is not None
    audit = declarations.subscribers["audit"]
    assert (audit.within, audit.ordered, audit.max_attempts, audit.max_concurrent) == (
        timedelta(hours=1.5),
        True,
        7,
        3,
    )


def test_defaults(check: Check) -> None:
    declarations = check({AUDIT: hears(command=["x"])}).declarations
    assert declarations is not None
    audit = declarations.subscribers["audit"]
    assert (audit.within, audit.ordered, audit.max_attempts, audit.max_concurrent) == (
        timedelta(days=3),
        False,
        None,
        1,
    )


def test_an_event_that_the_api_sends_itself_may_be_heard(check: Check) -> None:
    wired = {"public": True, "wire_name": "order.paid", "fields": {"id": "str"}}
    assert check({"packages.shop.events.Paid": wired, f"{AUDIT}.on": "shop.Paid"}).mistakes == ()


def test_only_events_that_polls_may_emit_and_subscribers_may_hear_are_offered(check: Check) -> None:
    others = {
        "packages.shop.events.PriceChange": {"fields": {"price": "number"}},
        "packages.shop.events.PriceChanges": {
            "public": True,
            "wire_name": "x",
            "fields": {"price": "number"},
        },
    }
    (mistake,) = check({**others, f"{AUDIT}.on": "shop.PriceChang"}).mistakes
    assert mistake.suggestion == "Did you mean 'shop.PriceChanged'?"
    (mistake,) = check({**others, f"{AUDIT}.on": "nothing like it"}).mistakes
    assert mistake.suggestion == "Known here: python_release.Changed, shop.PriceChanged."


def test_of_too_many_targets_every_wrong_one_is_reported(check: Check) -> None:
    found = check({AUDIT: hears(webhook="ftp://example.org", command="rm -r", function="no_module:f")})
    assert {mistake.where for mistake in found.mistakes} == {
        AUDIT,
        f"{AUDIT}.webhook",
        f"{AUDIT}.command",
        f"{AUDIT}.function",
    }
