"""The whole of it, on SQLite and over real sockets: declared, polled, changed, delivered."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from bide import App, Delivery, Event, Package
from bide.errors import BideError, DeclarationError, SettingError, UnknownName
from bide.slots import SlotId
from bide.telemetry import PollAnswered, Record
from tests.servers import Answer, RawServer, Received, Resource

CANARY = "canary-3f9a"

HOURLY = 'polls = { price = "1h" }\n'
"""A line for the connection: the poll is not due again while the test runs, at whatever second that is."""


def declare(folder: Path, server: RawServer, more: str = "", **environment: str) -> App:
    """An app as a file declares it, polling ``/price`` of ``server``."""
    (folder / "bide.toml").write_text(
        dedent(f"""
        [app]
        tick = "1s"
        failure_retry = "1s"

        [packages.shop.operations.price]
        get = "/price"
        answer = {{ symbol = "str", price = "number", fetched_at = "str" }}
        select = {{ symbol = "s", price = "data.price", fetched_at = "at" }}
        [packages.shop.events.PriceChanged]
        public = true
        fields = {{ symbol = "str", price = "number" }}
        [packages.shop.polls.price]
        call = "price"
        every = "1s"
        emits = "PriceChanged"

        [connections.eu]
        package = "shop"
        base_url = "{server.url("")}"
        headers = {{ Authorization = "Bearer ${{SHOP_TOKEN}}" }}
        """)
        + dedent(more)
    )
    app = App.from_file(folder / "bide.toml")
    app.environment = {"SHOP_TOKEN": CANARY, "PATH": "/usr/bin:/bin", **environment}
    return app


def answer(price: object, at: str = "now") -> Answer:
    return Answer.json({"s": "A", "data": {"price": price}, "at": at})


def hook(name: str, server: RawServer, rest: str = "") -> str:
    return f"""
    [subscribers.{name}]
    on = "shop.PriceChanged"
    webhook = "{server.url("/" + name)}"
    {rest}
    """


async def ticks(app: App, count: int) -> list[dict[str, list[str]]]:
    """So many ticks, each when the poll is due again."""
    reports = []
    async with app.open():
        for _ in range(count):
            report = await app.tick()
            reports.append({"changed": report.changed, "unchanged": report.unchanged})
            await app.provider.poll_now(["eu.price"])
    return reports


async def test_a_change_reaches_a_webhook_a_command_and_a_function(tmp_path: Path) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1.10), answer(1.1, "later"), answer(2))
        server.script("/audit", Answer(status=204))
        command = [
            sys.executable,
            "-c",
            "import sys; open('heard.jsonl', 'a').write(sys.stdin.read() + '\\n')",
        ]
        app = declare(
            tmp_path,
            server,
            hook("audit", server, 'secret = "${AUDIT_SECRET}"')
            + f"""
            [subscribers.file]
            on = "shop.PriceChanged"
            command = {json.dumps(command)}
            """,
            AUDIT_SECRET="whsec_" + base64.b64encode(b"k" * 32).decode(),
        )
        heard: list[Delivery] = []
        app.subscribe("shop.PriceChanged", name="python", function=heard.append)
        reports = await ticks(app, 3)
        assert [report["changed"] for report in reports] == [["eu.price"], [], ["eu.price"]]
        assert [report["unchanged"] for report in reports] == [[], ["eu.price"], []]

        assert [delivery.data["price"] for delivery in heard] == [heard[0].data["price"], 2]
        assert str(heard[0].data["price"]) == "1.1"
        assert heard[1].previous == heard[0].data
        assert [delivery.seq for delivery in heard] == [1, 2]

        lines = [json.loads(line) for line in (tmp_path / "heard.jsonl").read_text().splitlines()]
        assert [line["data"] for line in lines] == [
            {"price": 1.1, "symbol": "A"},
            {"price": 2, "symbol": "A"},
        ]

        posts = [request for request in server.requests if request.path == "/audit"]
        assert len(posts) == 2
        for post in posts:
            assert signed(post, b"k" * 32)
        assert {post.header("webhook-id") for post in posts} == {f"{d.event_id}.audit" for d in heard}


def signed(post: Received, key: bytes) -> bool:
    """Whether the signature is that of the Standard Webhooks scheme, worked out independently."""
    content = f"{post.header('webhook-id')}.{post.header('webhook-timestamp')}.".encode() + post.body
    digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return post.header("webhook-signature") == f"v1,{digest}"


async def test_unchanged_answers_are_asked_for_conditionally_and_tables_read_with_plain_sql(
    tmp_path: Path,
) -> None:
    body = json.dumps({"s": "A", "data": {"price": 3}, "at": "x"}).encode()
    async with RawServer() as server:
        server.script("/price", Resource(body))
        server.script("/audit", Answer(status=200))
        reports = await ticks(declare(tmp_path, server, hook("audit", server)), 3)
        assert [report["changed"] for report in reports] == [["eu.price"], [], []]
        asked = [request.header("if-none-match") for request in server.requests if request.path == "/price"]
        assert asked[0] is None
        assert asked[1] is not None
        assert asked[1:] == [asked[1]] * 2
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "print(c.execute('SELECT name, failures, every_ms FROM polls').fetchall(),"
        " c.execute('SELECT count(*) FROM events').fetchone(),"
        " c.execute('SELECT state, count(*) FROM work_items GROUP BY 1').fetchall(),"
        " c.execute('SELECT name FROM subscriptions').fetchall())"
    )
    reading = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "bide.db"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await reading.communicate()
    assert out.decode().strip() == "[('eu.price', 0, 1000)] (1,) [('done', 1)] [('audit',)]"
    assert sqlite3.sqlite_version  # another process reads: one SQLite library to a process


async def test_a_failed_poll_keeps_everything_and_names_itself(tmp_path: Path) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1), Answer(status=500), answer(1))
        server.script("/audit", Answer(status=200))
        app = declare(tmp_path, server, hook("audit", server))
        async with app.open():
            await app.tick()
            await app.provider.poll_now(["eu.price"])
            before = server.count("/price")
            server.script("/price", Answer(status=404))
            report = await app.tick()
            assert [failed.poll for failed in report.failed] == ["eu.price"]
            assert "404" in report.failed[0].error
            assert server.count("/price") > before
            server.script("/price", answer(1))
            await app.provider.poll_now(["eu.price"])
            report = await app.tick()
            assert report.unchanged == ["eu.price"]
            assert len(await app.provider.events()) == 1


async def test_nobody_hears_so_nobody_is_called_and_the_plan_says_so(tmp_path: Path) -> None:
    async with RawServer() as server:
        app = declare(tmp_path, server)
        async with app.open():
            report = await app.tick()
            assert report.claimed == []
            (poll,) = (await app.plan()).polls
            assert not poll.active
            assert "shop.PriceChanged" in poll.reason
        assert server.requests == []


async def test_the_last_subscriber_that_is_gone_ends_the_calls_and_its_state_is_kept(tmp_path: Path) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1))
        server.script("/audit", Answer(status=410))
        app = declare(tmp_path, server, hook("audit", server))
        async with app.open():
            report = await app.tick()
            assert report.deliveries["dead"] == 1
            await app.provider.poll_now(["eu.price"])
            report = await app.tick()
            assert report.claimed == []
            assert [row.name for row in await app.provider.poll_rows()] == ["eu.price"]
            (row,) = await app.provider.subscriptions()
            assert row.ended_reason is not None


async def test_while_two_versions_run_the_old_ones_changes_reach_the_new_ones_subscribers(
    tmp_path: Path,
) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1), answer(2))
        for name in ("audit", "mail"):
            server.script(f"/{name}", Answer(status=200))
        old = declare(tmp_path, server, HOURLY + hook("audit", server))
        async with old.open():
            await old.tick()
            new = declare(tmp_path, server, HOURLY + hook("audit", server) + hook("mail", server))
            async with new.open():
                await new.tick()
                await new.provider.poll_now(["eu.price"])
                report = await old.tick()
                assert report.changed == ["eu.price"]
                assert server.count("/mail") == 0, "the old version does not know how"
                await new.tick()
                assert server.count("/mail") == 1


async def test_no_secret_reaches_logs_errors_plan_events_or_the_store(tmp_path: Path) -> None:
    told: list[Record] = []
    async with RawServer() as server:
        server.script("/price", answer(1), Answer(status=500))
        server.script("/audit", Answer(status=500))
        app = declare(
            tmp_path, server, hook("audit", server, 'secret = "${AUDIT_SECRET}"'), AUDIT_SECRET=CANARY
        )
        app.telemetry.listen(told.append)
        async with app.open():
            reports = [await app.tick()]
            await app.provider.poll_now(["eu.price"])
            reports.append(await app.tick())
            plan = await app.plan()
            rows = [await app.provider.poll_rows(), await app.provider.items("deliveries")]
        assert any(CANARY in (request.header("authorization") or "") for request in server.requests)
    for shown in (told, reports, plan, rows, app.declarations, app.check()):
        assert CANARY not in repr(shown)
        assert CANARY not in str(shown)
    assert all(CANARY.encode() not in kept for kept in files_of(tmp_path))


def files_of(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.glob("bide.db*")]


async def test_running_delivers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    async with RawServer() as server:
        prices = iter(range(1000))
        server.script("/price", lambda request: answer(next(prices)))
        server.script("/audit", Answer(status=200))
        app = declare(tmp_path, server, hook("audit", server))
        stopping = asyncio.Event()
        async with app.open():
            running = asyncio.ensure_future(app.run(stopping))
            await until(lambda: server.count("/audit") >= 2)
            stopping.set()
            await asyncio.wait_for(running, 10)
            assert all(item.state == "done" for item in await app.provider.items("deliveries"))
            assert not any(row.outstanding for row in await app.provider.poll_rows())


async def test_slots_and_claims_are_at_rest_after_a_stop_in_the_middle_of_calls(tmp_path: Path) -> None:
    async with RawServer() as server:
        server.script("/price", Answer.silence())
        server.script("/audit", Answer(status=204))
        app = declare(tmp_path, server, "max_concurrent = 1\n" + dedent(hook("audit", server)))
        stopping = asyncio.Event()
        async with app.open(grace="100ms"):
            running = asyncio.ensure_future(app.run(stopping))
            await until(lambda: server.count("/price") >= 1)
            slots = app.slots.of("eu", 1)
            assert slots.in_use == 1
            stopping.set()
            await asyncio.wait_for(running, 10)
            assert (slots.in_use, slots.waiting) == (0, 0)


async def until(holds: Callable[[], bool], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - another process or a socket is waited for
            await asyncio.sleep(0.02)


async def test_a_function_operation_is_called_through_the_connection(tmp_path: Path) -> None:
    shop = Package("shop")

    @shop.operation(answer={"total": "number"})
    async def total(client) -> dict[str, object]:  # type: ignore[no-untyped-def]
        first = await client.get("/a")
        second = await client.get("/b")
        return {"total": first.json()["n"] + second.json()["n"]}

    changed = Event("TotalChanged", public=True, fields={"total": "number"})
    shop.poll("total", call=total, every="1m", emits=changed)
    heard: list[Delivery] = []
    async with RawServer() as server:
        server.script("/a", Answer.json({"n": 0.1}))
        server.script("/b", Answer.json({"n": 0.2}))
        app = App("memory://", folder=tmp_path)
        app.connect("eu", shop, base_url=server.url(""))
        app.subscribe(changed, function=heard.append, name="hear")
        async with app.open():
            report = await app.tick()
    assert report.changed == ["eu.total"], report
    assert str(heard[0].data["total"]) == "0.3", "exact, as decimals are"


async def test_a_handler_calls_out_through_a_connection_and_is_given_back_when_its_slots_are_out(
    tmp_path: Path,
) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1))
        server.script("/detail", Answer.json({"ok": True}))
        app = declare(tmp_path, server, "max_concurrent = 1\n")
        seen: list[object] = []

        @app.subscribe("shop.PriceChanged")
        async def enrich(delivery: Delivery) -> None:
            seen.append((await app.connection("eu").get("/detail")).json())

        slots = app.slots.of("eu", 1)
        held: list[SlotId | None] = []

        def take_the_slot(record: Record) -> None:
            if isinstance(record, PollAnswered):
                held.append(slots.try_acquire())

        app.telemetry.listen(take_the_slot)
        async with app.open():
            report = await app.tick()
            assert report.deliveries["given_back"] >= 1
            assert report.deliveries["retried"] == 0
            (item,) = await app.provider.items("deliveries")
            assert (item.state, item.attempts) == ("ready", 0)
            assert held[0] is not None
            slots.release(held[0])
            await asyncio.sleep(1.05)
            report = await app.tick()
            assert report.deliveries["succeeded"] == 1
            assert seen == [{"ok": True}]


async def test_every_mistake_is_told_at_once_before_anything_is_opened(tmp_path: Path) -> None:
    app = App("sqlite:///made.db", tick="soon", folder=tmp_path)
    app.connect("eu", "nowhere:nothing", base_url="gopher://x")
    with pytest.raises(DeclarationError) as caught:
        async with app.open():
            raise AssertionError("not opened")
    assert len(caught.value.mistakes) >= 3
    assert not (tmp_path / "made.db").exists()


async def test_one_app_does_one_thing_at_a_time(tmp_path: Path) -> None:
    app = App("memory://", folder=tmp_path)
    async with app.open(grace="1s"):
        with pytest.raises(BideError, match="open already"):
            async with app.open():
                raise AssertionError("not opened")
        stopping = asyncio.Event()
        running = asyncio.ensure_future(app.run(stopping))
        await asyncio.sleep(0)
        with pytest.raises(BideError, match="running already"):
            await app.tick()
        stopping.set()
        await running
        await app.tick()
    with pytest.raises(SettingError, match="grace"):
        async with app.open(grace="soon"):
            raise AssertionError("not opened")


async def test_what_is_declared_after_a_check_counts(tmp_path: Path) -> None:
    app = App("memory://", folder=tmp_path)
    assert app.check().declarations is not None
    app.connect("eu", "nowhere:nothing", base_url="http://127.0.0.1:1")
    with pytest.raises(DeclarationError):
        async with app.open():
            raise AssertionError("not opened")


@pytest.mark.parametrize(("status", "delivered"), [(301, 0), (302, 0), (303, 0), (307, 1), (308, 1)])
async def test_a_redirect_of_a_webhook_never_loses_the_event_on_the_way(
    tmp_path: Path, status: int, delivered: int
) -> None:
    async with RawServer() as server:
        server.script("/price", answer(1))
        server.script("/audit", Answer.redirect(status, "/moved"))
        server.script("/moved", Answer(status=200))
        app = declare(tmp_path, server, hook("audit", server))
        async with app.open():
            report = await app.tick()
        assert report.deliveries["succeeded"] == delivered
        moved = [request for request in server.requests if request.path == "/moved"]
        assert [request.method for request in moved] == ["POST"] * delivered
        assert all(json.loads(request.body)["data"] == {"price": 1, "symbol": "A"} for request in moved)


async def test_a_secret_that_the_api_repeats_is_not_kept_or_told(tmp_path: Path) -> None:
    told: list[Record] = []
    async with RawServer() as server:
        said = f'{{"{CANARY}": 1, "{CANARY}": 2}}'.encode()
        server.script("/price", Answer(status=200, body=said))
        app = declare(tmp_path, server, hook("audit", server))
        app.telemetry.listen(told.append)
        async with app.open():
            report = await app.tick()
            rows = await app.provider.poll_rows()
    assert "${SHOP_TOKEN}" in report.failed[0].error
    for shown in (report, rows, told):
        assert CANARY not in repr(shown)
    assert all(CANARY.encode() not in kept for kept in files_of(tmp_path))


async def test_what_needs_an_open_app_says_so(tmp_path: Path) -> None:
    app = App("memory://", folder=tmp_path)
    for use in (lambda: app.provider, lambda: app.connection("eu")):
        with pytest.raises(BideError, match=r"async with app\.open"):
            use()
    with pytest.raises(BideError, match=r"async with app\.open"):
        await app.tick()
    async with app.open():
        with pytest.raises(UnknownName, match="no connection named 'eu'"):
            app.connection("eu")
