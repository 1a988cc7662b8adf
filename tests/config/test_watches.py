"""The short form: what is refused in it, and what it stands for."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from bide.config import Compiled
from bide.core.declaration import Declarations
from bide.core.http import Headers

WATCH = "watches.python_release"
KEY, VALUE = "watch.key_invalid", "watch.value_invalid"
NO_HEADERS = Headers()


def block(**changes: object) -> dict[str, object]:
    """A watch of the least that one needs, with ``changes``."""
    return {"url": "https://api.example.org/latest", "every": "5m", **changes}


REFUSED = {
    "block": ({"watches": []}, VALUE, "watches", "must be a table, not a list", "block"),
    "watch-is-no-table": ({WATCH: "https://x.org"}, VALUE, WATCH, "must be a table, not text", "block"),
    "name": ({"watches.a b": block()}, KEY, 'watches."a b"', "cannot be the name of a watch", "letter"),
    "name-of-a-package": (
        {"watches.shop": block()},
        KEY,
        "watches.shop",
        "package or connection named 'shop'",
        "another",
    ),
    "name-of-a-connection": (
        {"watches.eu": block()},
        KEY,
        "watches.eu",
        "package or connection named 'eu'",
        "another",
    ),
    "unknown-key": ({f"{WATCH}.evry": "5m"}, KEY, f"{WATCH}.evry", "not known", "'every'"),
    "missing-url": ({f"{WATCH}.url": None}, KEY, f"{WATCH}.url", "is missing", "url ="),
    "missing-every": ({f"{WATCH}.every": None}, KEY, f"{WATCH}.every", "is missing", 'every = "5m"'),
    "url-scheme": (
        {f"{WATCH}.url": "file:///etc/passwd"},
        VALUE,
        f"{WATCH}.url",
        "http:// or https://",
        "https",
    ),
    "url-host": ({f"{WATCH}.url": "https://?a=b"}, VALUE, f"{WATCH}.url", "has no host", "https"),
    "every-below-the-tick": (
        {f"{WATCH}.every": "5s"},
        VALUE,
        f"{WATCH}.every",
        "5s is shorter than the tick",
        '"1m"',
    ),
    "every-true": ({f"{WATCH}.every": True}, VALUE, f"{WATCH}.every", "True", "5s"),
    "every-not-a-number": ({f"{WATCH}.every": math.nan}, VALUE, f"{WATCH}.every", "nan", "5s"),
    "select-nothing": ({f"{WATCH}.select": {}}, VALUE, f"{WATCH}.select", "selects nothing", "tag_name"),
    "select-no-table": ({f"{WATCH}.select": "tag"}, VALUE, f"{WATCH}.select", "must be a table", "block"),
    "select-syntax": (
        {f"{WATCH}.select": {"tag": "a["}},
        VALUE,
        f"{WATCH}.select.tag",
        "at character 3",
        "data.price",
    ),
    "select-function": (
        {f"{WATCH}.select": {"tag": "lenght(a)"}},
        VALUE,
        f"{WATCH}.select.tag",
        "lenght()",
        "'length'",
    ),
    "fields-not-selected": (
        {f"{WATCH}.fields": {"tga": "str"}},
        KEY,
        f"{WATCH}.fields.tga",
        "is selected",
        "'tag'",
    ),
    "fields-type": (
        {f"{WATCH}.fields": {"tag": "srt"}},
        VALUE,
        f"{WATCH}.fields.tag",
        "'srt' is not a type",
        "'str'",
    ),
    "fields-none": ({WATCH: block(fields={})}, VALUE, f"{WATCH}.fields", "names no field", "price"),
    "headers": ({f"{WATCH}.headers": {"A": 1}}, VALUE, f"{WATCH}.headers.A", "must be text, not 1", "quotes"),
    "cap": (
        {f"{WATCH}.max_concurrent": 0},
        VALUE,
        f"{WATCH}.max_concurrent",
        "at least 1, not 0",
        "1 or more",
    ),
    "to-no-list": (
        {f"{WATCH}.to": {"command": ["x"]}},
        VALUE,
        f"{WATCH}.to",
        "a list of targets, not a table",
        "[{",
    ),
    "to-no-table": (
        {f"{WATCH}.to": ["https://x.org"]},
        VALUE,
        f"{WATCH}.to[0]",
        "must be a table, not text",
        "block",
    ),
    "to-unknown-key": (
        {f"{WATCH}.to.0.comand": ["x"]},
        KEY,
        f"{WATCH}.to[0].comand",
        "not known",
        "'command'",
    ),
    "to-hears-no-other": (
        {f"{WATCH}.to.0.on": "shop.PriceChanged"},
        KEY,
        f"{WATCH}.to[0].on",
        "not known",
        "Known here",
    ),
    "to-nobody": ({f"{WATCH}.to": [{"within": "1h"}]}, KEY, f"{WATCH}.to[0]", "and has none", "webhook ="),
    "to-two": (
        {f"{WATCH}.to.0.webhook": "https://x.org"},
        KEY,
        f"{WATCH}.to[0]",
        "webhook and command",
        "remove",
    ),
    "to-webhook": (
        {f"{WATCH}.to": [{"webhook": "x.org"}]},
        VALUE,
        f"{WATCH}.to[0].webhook",
        "http://",
        "https",
    ),
    "to-command": (
        {f"{WATCH}.to": [{"command": "x y"}]},
        VALUE,
        f"{WATCH}.to[0].command",
        "a list",
        '["x", "y"]',
    ),
    "to-within": ({f"{WATCH}.to.0.within": 0}, VALUE, f"{WATCH}.to[0].within", "zero", "1ms"),
    "to-name": ({f"{WATCH}.to.0.name": "a b"}, KEY, f"{WATCH}.to[0].name", "cannot be the name", "letter"),
    "to-name-taken": (
        {f"{WATCH}.to.0.name": "audit"},
        VALUE,
        f"{WATCH}.to[0].name",
        "named 'audit' already",
        "another",
    ),
}

Check = Callable[..., Compiled]


@pytest.mark.parametrize(("changes", "code", "where", "says", "suggests"), REFUSED.values(), ids=REFUSED)
def test_refused_in_a_watch(
    check: Check, *, changes: dict[str, object], code: str, where: str, says: str, suggests: str
) -> None:
    compiled = check(changes)
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == [(code, where)]
    assert says in compiled.mistakes[0].message
    assert suggests in (compiled.mistakes[0].suggestion or "")


def test_names_that_two_watches_give_are_refused(check: Check) -> None:
    compiled = check({"watches.other": block(to=[{"command": ["x"], "name": "python_release-1"}])})
    assert [found.where for found in compiled.mistakes] == ["watches.other.to[0].name"]


def compiled(check: Check, changes: dict[str, object]) -> Declarations:
    declarations = check(changes).declarations
    assert declarations is not None
    return declarations


def test_a_watch_stands_for_every_block(check: Check) -> None:
    to = [{"command": ["a"]}, {"webhook": "https://x.org", "name": "hook", "within": "1h"}]
    declarations = compiled(check, {WATCH: block(headers={"A": "b"}, max_concurrent=2, to=to)})
    connection = declarations.connections["python_release"]
    assert (connection.package, connection.base_url.text) == ("python_release", "https://api.example.org")
    assert (connection.headers["A"].text, connection.max_concurrent) == ("b", 2)
    poll = declarations.polls["python_release.python_release"]
    assert poll.operation.request is not None
    assert (poll.operation.request.method, poll.operation.request.path.text) == ("GET", "/latest")
    assert (poll.every, poll.active, poll.reason) == (
        timedelta(minutes=5),
        True,
        "heard by hook, python_release-1",
    )
    assert poll.event == declarations.events["python_release.Changed"]
    heard = {
        name: (each.event, each.within) for name, each in declarations.subscribers.items() if name != "audit"
    }
    assert heard == {
        "python_release-1": ("python_release.Changed", timedelta(days=3)),
        "hook": ("python_release.Changed", timedelta(hours=1)),
    }


def read(check: Check, body: bytes, **changes: object) -> dict[str, object]:
    """What a watch reads of an answer."""
    poll = compiled(check, {WATCH: block(**changes)}).polls["python_release.python_release"]
    assert set(poll.event.fields) == set(poll.operation.answer)
    return poll.operation.reader.read(body, NO_HEADERS)


def test_the_whole_json_is_watched_where_nothing_is_named(check: Check) -> None:
    assert read(check, b'[1, {"a": null}]') == {"value": [1, {"a": None}]}


def test_fields_without_select_are_read_under_their_names(check: Check) -> None:
    assert read(check, b'{"tag": "v1", "other": 2}', fields={"tag": "str"}) == {"tag": "v1"}


def test_fields_give_types_to_what_is_selected(check: Check) -> None:
    select = {"tag": "data.tag", "size": "data.size"}
    answer = b'{"data": {"tag": "v1", "size": 3}}'
    assert read(check, answer, select=select, fields={"size": "int"}) == {"tag": "v1", "size": 3}


def test_a_watch_without_a_target_is_heard_by_nobody(check: Check) -> None:
    targets: tuple[object, ...] = (None, [])
    for to in targets:
        declarations = compiled(check, {f"{WATCH}.to": to})
        poll = declarations.polls["python_release.python_release"]
        assert (poll.active, poll.reason) == (False, "nobody hears python_release.Changed")


def test_a_watch_is_heard_by_other_subscribers_too(check: Check) -> None:
    declarations = compiled(check, {f"{WATCH}.to": None, "subscribers.audit.on": "python_release.Changed"})
    assert declarations.polls["python_release.python_release"].reason == "heard by audit"


@pytest.mark.parametrize(
    ("url", "base", "path"),
    [
        ("https://x.org", "https://x.org", "/"),
        ("https://x.org:8443/a/b?c=${KEY}&d=/e", "https://x.org:8443", "/a/b?c=${KEY}&d=/e"),
        ("HTTP://x.org?a=b#part", "HTTP://x.org", "/?a=b"),
        ("https://${HOST}/a", "https://${HOST}", "/a"),
        ("${BASE}/a", "${BASE}", "/a"),
        ("${URL}", "${URL}", ""),
    ],
)
def test_the_address_is_split_into_base_and_path(check: Check, url: str, base: str, path: str) -> None:
    declarations = compiled(check, {f"{WATCH}.url": url})
    assert declarations.connections["python_release"].base_url.text == base
    request = declarations.polls["python_release.python_release"].operation.request
    assert request is not None
    assert request.path.text == path
