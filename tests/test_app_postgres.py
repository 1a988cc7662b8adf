"""The whole of it on PostgreSQL: a fleet that polls once and delivers once, and shows no password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bide import App, Delivery, Package, stores
from bide.errors import ProviderError, SettingError
from bide.stores import open_provider
from bide.testing import VirtualClock
from tests.providers.postgres_server import Server, free_port, run_sql
from tests.servers import Answer, RawServer, eventually

CANARY = "hunter2-canary"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


def member(
    address: str | None, api: str, heard: list[Delivery], environment: Mapping[str, str] | None = None
) -> App:
    """One process of a fleet that hears of a price."""
    app = App(address, tick="1s", environment=environment or {})
    shop = Package("shop")
    shop.operation("price", get="/price", answer={"price": "number"})
    changed = shop.event("PriceChanged", {"price": "number"}, public=True)
    shop.poll("price", call="price", every="1h", emits=changed)
    app.connect("eu", shop, base_url=api)
    app.subscribe(changed, name="audit", function=heard.append)
    return app


async def test_a_fleet_calls_once_and_delivers_once(server: Server) -> None:
    heard: list[Delivery] = []
    async with RawServer() as api:
        api.script("/price", Answer.json({"price": 1}), Answer.json({"price": 2}))
        apps = [member(server.address(), api.url(""), heard) for _ in range(4)]
        stopping = asyncio.Event()

        async def run(app: App) -> None:
            async with app.open():
                await app.run(stopping)

        running = [asyncio.create_task(run(app)) for app in apps]
        await eventually(lambda: len(heard) == 1)
        rows = await run_sql(
            server.address(), "UPDATE bide.polls SET due = 0, not_before = NULL RETURNING name"
        )
        assert [row[0] for row in rows] == ["eu.price"]
        await eventually(lambda: len(heard) == 2)
        stopping.set()
        await asyncio.gather(*running)
        assert api.count("/price") == 2
    assert [delivery.data["price"] for delivery in heard] == [1, 2]
    states = await run_sql(server.address(), "SELECT state, count(*) FROM bide.work_items GROUP BY state")
    assert [tuple(row) for row in states] == [("done", 2)]


async def test_the_address_may_be_in_the_environment(server: Server) -> None:
    heard: list[Delivery] = []
    environment = {"STORE": server.address(user=f"bide:{CANARY}", options="?schema=from_variable")}
    async with RawServer() as api:
        api.script("/price", Answer.json({"price": 1}))
        app = member("${STORE}", api.url(""), heard, environment)
        assert app.check().warnings == ()
        assert app.location == f"postgresql://127.0.0.1:{server.port}/postgres (schema from_variable)"
        assert app.store_exists()
        async with app.open():
            assert (await app.tick()).changed == ["eu.price"]
            assert CANARY not in str(await app.plan())
    assert len(heard) == 1


async def test_a_missing_variable_is_said_when_the_store_is_opened() -> None:
    app = member("postgresql://bide:${STORE_PASSWORD}@db/jobs", "http://127.0.0.1:1", [])
    (warning,) = app.check().warnings
    assert (warning.code, "STORE_PASSWORD" in warning.message) == ("environment.variable_missing", True)
    assert app.location == "postgresql://db/jobs"
    with pytest.raises(SettingError, match="STORE_PASSWORD is not set"):
        async with app.open():
            raise AssertionError("it opened")


async def test_variables_work_for_a_file_too(tmp_path: Path) -> None:
    app = member("sqlite:///${FOLDER}/x.db", "http://127.0.0.1:1", [], {"FOLDER": str(tmp_path)})
    assert app.location == str(tmp_path / "x.db")
    async with app.open():
        assert (tmp_path / "x.db").exists()


async def test_a_password_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    address = f"postgresql://bide:{CANARY}@127.0.0.1:{free_port()}/jobs"
    app = member(address, "http://127.0.0.1:1", [])
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError) as raised:
        async with app.open():
            raise AssertionError("it opened")
    for text in (str(raised.value), repr(raised.value), app.location, str(app.plan_offline()), caplog.text):
        assert CANARY not in text


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://bide:12/{CANARY}@db/jobs",
        f"postgresql://bide:12?{CANARY}@db/jobs",
        f"postgresql://bide:12#{CANARY}@db/jobs",
        f"postgresql://bide:{CANARY}@db:none/jobs",
    ],
)
def test_half_a_password_is_not_shown_either(address: str) -> None:
    (mistake,) = member(address, "http://127.0.0.1:1", []).check().mistakes
    assert mistake.where == "app.provider"
    assert CANARY not in str(mistake)


def test_without_the_driver_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def without_asyncpg(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    monkeypatch.setattr(stores, "import_module", without_asyncpg)
    with pytest.raises(SettingError, match=r"PostgreSQL needs .* pip install 'bide\[postgres\]'"):
        open_provider("postgresql://db/jobs", tmp_path, VirtualClock())
