"""Declaring in Python: the same tables as in TOML, and the same mistakes."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bide.config import Compiled, compile_declarations
from bide.core.declaration import Twice
from bide.package import Event, Package
from bide.recorder import Recorder

FILE = """
[app]
provider = "sqlite:///bide.db"
tick = "1m"

[packages.shop]
max_concurrent = 4
[packages.shop.operations.price]
get = "/price"
answer = { symbol = "str", price = "number", fetched_at = "str" }
select = { symbol = "s", price = "data.price", fetched_at = "at" }
[packages.shop.operations.stock]
function = "{module}:stock"
answer = { count = "int", note = "str?" }
deadline = "10s"
[packages.shop.operations.search]
request = { method = "POST", path = "/search", query = { limit = 5 }, body = { text = "${TEXT}" } }
public = true
input = { text = "str" }
changes = true
retry = 0
[packages.shop.events.PriceChanged]
public = true
fields = { symbol = "str", price = "number" }
[packages.shop.events.StockChanged]
public = true
fields = { count = "int" }
[packages.shop.events.Paid]
public = true
wire_name = "order.paid"
fields = { at = "datetime" }
occurred_at = "at"
[packages.shop.polls.price]
call = "price"
every = "1m"
emits = "PriceChanged"
[packages.shop.polls.stock]
call = "stock"
every = "1h30m"
emits = "StockChanged"

[connections.eu]
package = "shop"
base_url = "http://127.0.0.1:9000"
headers = { Authorization = "Bearer ${SHOP_TOKEN}" }
max_concurrent = 2
polls = { price = "5m" }
quiet_after = "1d"
hint_clamp = "1h"
[connections.us]
package = "shop"
base_url = "http://127.0.0.1:9001"
paused = true

[subscribers.audit]
on = "shop.PriceChanged"
webhook = "http://127.0.0.1:9001/hook"
secret = "${AUDIT_SECRET}"
headers = { X-From = "bide" }
within = "1h"
ordered = true
[subscribers.log]
on = "shop.PriceChanged"
command = ["python3", "log.py"]
max_attempts = 3
timeout = "5s"
[subscribers.on_price]
on = "shop.PriceChanged"
function = "{module}:on_price"
max_concurrent = 4

[watches.python_release]
url = "https://api.example.org/releases/latest"
every = "5m"
select = { tag = "tag_name", url = "html_url" }
fields = { tag = "str" }
headers = { Accept = "application/json" }
to = [{ command = ["notify-send", "release"] }, { function = "{module}:on_price" }]
max_concurrent = 1
"""

MODULE = """
async def stock(client):
    return {"count": 1}

async def on_price(delivery):
    pass
"""


def in_python(stock_function: Callable[..., Any], on_price: Callable[..., Any]) -> Recorder:
    """What ``FILE`` declares, in Python's spelling."""
    shop = Package("shop", max_concurrent=4)
    shop.operation(
        "price",
        get="/price",
        answer={"symbol": str, "price": Decimal, "fetched_at": "str"},
        select={"symbol": "s", "price": "data.price", "fetched_at": "at"},
    )
    stock = shop.operation(answer={"count": int, "note": str | None}, deadline=timedelta(seconds=10))
    assert stock(stock_function) is stock_function
    shop.operation(
        "search",
        request={"method": "POST", "path": "/search", "query": {"limit": 5}, "body": {"text": "${TEXT}"}},
        public=True,
        input={"text": str},
        changes=True,
        retry=0,
    )
    changed = Event("PriceChanged", {"symbol": str, "price": float}, public=True)
    stock_changed = shop.event("StockChanged", {"count": int}, public=True)
    shop.event("Paid", {"at": "datetime"}, public=True, wire_name="order.paid", occurred_at="at")
    shop.poll("price", call="price", every="1m", emits=changed)
    shop.poll("stock", call=stock_function, every=5400, emits=stock_changed)

    app = Recorder({"provider": "sqlite:///bide.db", "tick": 60, "retention": None})
    app.connect(
        "eu",
        shop,
        base_url="http://127.0.0.1:9000",
        headers={"Authorization": "Bearer ${SHOP_TOKEN}"},
        max_concurrent=2,
        polls={"price": timedelta(minutes=5)},
        quiet_after="24h",
        hint_clamp=3600.0,
    )
    app.connect("us", shop, base_url="http://127.0.0.1:9001", paused=True)
    app.subscribe(
        changed,
        name="audit",
        webhook="http://127.0.0.1:9001/hook",
        secret="${AUDIT_SECRET}",
        headers={"X-From": "bide"},
        within="1h",
        ordered=True,
    )
    app.subscribe("shop.PriceChanged", name="log", command=["python3", "log.py"], max_attempts=3, timeout=5)
    assert app.subscribe(changed, max_concurrent=4)(on_price) is on_price
    app.watch(
        "python_release",
        url="https://api.example.org/releases/latest",
        every="300s",
        select={"tag": "tag_name", "url": "html_url"},
        fields={"tag": str},
        headers={"Accept": "application/json"},
        to=[{"command": ["notify-send", "release"]}, on_price],
        max_concurrent=1,
    )
    return app


def test_both_spellings_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "both_spellings_of_a_shop"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    by_file = compile_declarations(tomllib.loads(FILE.replace("{module}", name)), folder=tmp_path)
    assert by_file.mistakes == ()
    module = sys.modules.pop(name)
    by_code = compile_declarations(in_python(module.stock, module.on_price).raw(), folder=tmp_path)
    assert by_code.mistakes == ()
    assert by_code.declarations == by_file.declarations
    assert [warning.message for warning in by_code.warnings] == [
        warning.message for warning in by_file.warnings
    ]
    assert by_file.declarations is not None
    assert len(by_file.declarations.polls) == 5


def check(app: Recorder) -> Compiled:
    return compile_declarations(app.raw(), folder=Path.cwd(), environment={})


def places(app: Recorder) -> list[str]:
    return [mistake.where for mistake in check(app).mistakes]


def shop_and_event() -> tuple[Package, Event]:
    shop = Package("shop")
    shop.operation("price", get="/price", answer={"price": float})
    changed = shop.event("PriceChanged", {"price": float}, public=True)
    shop.poll("price", call="price", every="1m", emits=changed)
    return shop, changed


def connected() -> tuple[Recorder, Event]:
    app = Recorder()
    shop, changed = shop_and_event()
    app.connect("eu", shop, base_url="http://127.0.0.1:9000")
    return app, changed


class TestPackage:
    def test_what_is_not_given_is_not_recorded(self) -> None:
        assert Package("shop").raw() == {}
        shop, _ = shop_and_event()
        assert shop.raw() == {
            "operations": {"price": {"get": "/price", "answer": {"price": "number"}}},
            "events": {"PriceChanged": {"fields": {"price": "number"}, "public": True}},
            "polls": {"price": {"call": "price", "every": "1m", "emits": "PriceChanged"}},
        }

    def test_operations_by_decorator(self) -> None:
        shop = Package("shop")

        @dataclass
        class Price:
            symbol: str
            price: Decimal

        @shop.operation(answer=Price, retry=1)
        async def price(client: Any) -> Price:
            return Price("EU", Decimal(1))

        @shop.operation("named")
        async def another(client: Any) -> Price:
            return Price("EU", Decimal(1))

        assert shop.raw()["operations"] == {
            "price": {"answer": {"symbol": "str", "price": "number"}, "retry": 1, "function": price},
            "named": {"function": another},
        }

    def test_an_operation_that_was_left_without_a_way_to_ask_is_found(self) -> None:
        app, _ = connected()
        shop = Package("other")
        shop.operation("price", answer={"price": float})
        app.connect("other", shop, base_url="http://127.0.0.1:9000")
        assert places(app) == ["packages.other.operations.price"]

    def test_a_path_and_a_function_are_one_too_many(self) -> None:
        shop = Package("shop")

        @shop.operation(get="/price", answer={"price": float})
        async def price(client: Any) -> dict[str, Any]:
            return {}

        app = Recorder()
        app.connect("eu", shop, base_url="http://127.0.0.1:9000")
        assert places(app) == ["packages.shop.operations.price"]

    def test_polls_call_operations_functions_and_names(self) -> None:
        shop = Package("shop")

        async def elsewhere(client: Any) -> dict[str, Any]:
            return {}

        @shop.operation("price_by_function", answer={"price": float})
        async def price(client: Any) -> dict[str, Any]:
            return {}

        declared = shop.operation("declared", get="/price", answer={"price": float})
        changed = Event("PriceChanged", {"price": float}, public=True)
        calls: dict[str, Any] = {"a": price, "b": declared, "c": "price", "d": elsewhere}
        for name, call in calls.items():
            shop.poll(name, call=call, every="1m", emits=changed)
        assert {name: poll["call"] for name, poll in shop.raw()["polls"].items()} == {
            "a": "price_by_function",
            "b": "declared",
            "c": "price",
            "d": "elsewhere",
        }
        assert list(shop.raw()["events"]) == ["PriceChanged"]

    def test_an_event_of_another_package_cannot_be_emitted(self) -> None:
        _, foreign = shop_and_event()
        other = Package("other")
        other.operation("price", get="/price", answer={"price": float})
        other.event("PriceChanged", {"price": float}, public=True)
        other.poll("price", call="price", every="1m", emits=foreign)
        app = Recorder()
        app.connect("eu", other, base_url="http://127.0.0.1:9000")
        assert places(app) == ["packages.other.polls.price.emits"]

    def test_names_given_twice_are_found(self) -> None:
        shop, _ = shop_and_event()
        shop.operation("price", get="/prices", answer={"price": float})
        shop.event("PriceChanged", {"price": float}, public=True)
        shop.poll("price", call="price", every="2m", emits="PriceChanged")
        app = Recorder()
        app.connect("eu", shop, base_url="http://127.0.0.1:9000")
        app.connect("eu", shop, base_url="http://127.0.0.1:9001")
        app.watch("w", url="http://127.0.0.1", every="1m")
        app.watch("w", url="http://127.0.0.1", every="2m")
        app.subscribe("w.Changed", name="s", command=["x"])
        app.subscribe("w.Changed", name="s", command=["y"])
        assert places(app) == [
            "connections.eu",
            "packages.shop.events.PriceChanged",
            "packages.shop.operations.price",
            "packages.shop.polls.price",
            "subscribers.s",
            "watches.w",
        ]

    def test_two_packages_of_one_name(self) -> None:
        app, _ = connected()
        app.connect("other", Package("shop"), base_url="http://127.0.0.1:9000")
        assert isinstance(app.raw()["packages"]["shop"], Twice)
        assert places(app) == ["packages.shop"]

    def test_wrong_calls_are_ordinary_errors(self) -> None:
        shop = Package("shop")
        with pytest.raises(TypeError, match="parentheses"):

            @shop.operation  # type: ignore[arg-type]  # the slip that is tested
            async def price(client: Any) -> dict[str, Any]:
                return {}

        with pytest.raises(TypeError, match="evry"):
            shop.poll("price", call="price", evry="1m", emits="E")  # type: ignore[call-arg]  # so is this one
        operation = shop.operation(answer={"price": float})
        operation(shop_and_event)
        with pytest.raises(TypeError, match="has a function already"):
            operation(connected)

    def test_wrong_values_are_found_by_the_check(self) -> None:
        shop = Package("shop", max_concurrent=0)
        shop.operation("price", get="/price", answer={"price": complex})
        shop.poll("price", call="price", every=0, emits="Nothing")
        app = Recorder({"tick": True})
        app.connect("eu", shop, base_url="nowhere", polls={"prices": -1})
        assert places(app) == [
            "app.tick",
            "connections.eu.base_url",
            "connections.eu.polls.prices",
            "connections.eu.polls.prices",
            "packages.shop.max_concurrent",
            "packages.shop.operations.price.answer.price",
            "packages.shop.polls.price.emits",
            "packages.shop.polls.price.every",
        ]

    def test_representations(self) -> None:
        shop, changed = shop_and_event()
        assert repr(shop) == "Package('shop')"
        assert repr(changed) == "Event('shop.PriceChanged')"
        assert repr(Event("Loose", {"a": int})) == "Event('Loose')"
        assert repr(shop.operation("a", get="/")) == "Operation('a')"
        assert repr(Recorder().subscribe(changed)) == "Subscription(None, on='shop.PriceChanged')"


class TestRecorder:
    def test_nothing(self) -> None:
        assert Recorder().raw() == {}

    def test_subscribing_a_function(self) -> None:
        app, changed = connected()

        @app.subscribe(changed, within="1h")
        async def on_price(delivery: Any) -> None:
            pass

        app.subscribe("shop.PriceChanged", function=on_price, name="again")
        app.subscribe("shop.PriceChanged", function="math:sqrt", name="by_reference")
        compiled = check(app).declarations
        assert compiled is not None
        assert list(compiled.subscribers) == ["on_price", "again", "by_reference"]
        assert compiled.subscribers["on_price"].within == timedelta(hours=1)
        assert compiled.polls["eu.price"].reason == "heard by again, by_reference, on_price"

    def test_a_subscriber_kept_in_the_store_needs_a_name(self) -> None:
        app, changed = connected()
        targets: list[dict[str, Any]] = [
            {"webhook": "https://x.org"},
            {"command": ["x"]},
            {"function": "a:b"},
        ]
        for target in targets:
            with pytest.raises(TypeError, match="needs name="):
                app.subscribe(changed, **target)

    def test_a_named_subscriber_left_without_a_target_is_found(self) -> None:
        app, changed = connected()
        app.subscribe(changed, name="forgotten")
        assert places(app) == ["subscribers.forgotten"]

    def test_a_subscription_has_one_function(self) -> None:
        app, changed = connected()
        subscription = app.subscribe(changed)
        subscription(shop_and_event)
        with pytest.raises(TypeError, match="has a function already"):
            subscription(connected)

    def test_functions_without_a_usable_name_are_found(self) -> None:
        app, changed = connected()
        app.subscribe(changed, function=lambda delivery: None)
        assert places(app) == ['subscribers."<lambda>"']

    def test_a_package_by_reference(self) -> None:
        app = Recorder()
        app.connect("eu", "no_such_module:shop", base_url="http://127.0.0.1:9000")
        assert places(app) == ["connections.eu.package"]

    def test_tables_of_a_file_are_added_to(self) -> None:
        app = Recorder()
        app.include(
            {"app": {"tick": "30s"}, "subscribers": {"log": {"on": "shop.PriceChanged", "command": ["x"]}}}
        )
        shop, changed = shop_and_event()
        app.connect("eu", shop, base_url="http://127.0.0.1:9000", polls={"price": "3m"})
        app.subscribe(changed, name="other", command=["x"])
        compiled = check(app).declarations
        assert compiled is not None
        assert compiled.tick == timedelta(seconds=30)
        assert set(compiled.subscribers) == {"log", "other"}

    def test_what_file_and_code_both_declare_is_found(self) -> None:
        app = Recorder({"tick": "1m"})
        app.include({"app": {"tick": "2m"}, "watches": {"w": {"url": "http://127.0.0.1", "every": "2m"}}})
        app.watch("w", url="http://127.0.0.1", every="2m")
        assert places(app) == ["app.tick", "watches.w"]

    def test_a_block_of_a_file_that_is_no_table_stays_a_mistake(self) -> None:
        app = Recorder({"tick": "1m"})
        app.include({"app": 3, "watches": "w"})
        app.watch("w", url="http://127.0.0.1", every="2m")
        assert places(app) == ["app", "watches"]
