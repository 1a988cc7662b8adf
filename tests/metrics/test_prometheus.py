"""Metrics as a server of them sees them: scraped from a real endpoint."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bide import App, PollingStrategy, WorkerRunOptions
from bide.errors import BideError, SettingError
from bide.metrics import Endpoint, Metrics
from bide.metrics.readings import MOST_SERIES
from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    PollAnswered,
    PollFailed,
    ProviderDown,
    ProviderUp,
    QueueCounted,
    QueuePolled,
    TaskSettled,
)
from bide.testing import VirtualClock

Samples = dict[str, float]


def scraped(endpoint: Endpoint) -> Samples:
    """Every sample under its name and labels, as in ``bide_tasks_total{task="a"}``."""
    with urlopen(endpoint.url, timeout=10) as answer:
        assert answer.status == 200
        return samples(answer.read().decode())


def samples(text: str) -> Samples:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


@pytest.fixture
def app() -> App:
    return App("memory://", environment={})


@pytest.fixture
def metrics(app: App) -> Metrics:
    metrics = Metrics()
    metrics.watch(app)
    return metrics


@pytest.fixture
def endpoint(metrics: Metrics) -> Iterator[Endpoint]:
    with metrics.serve(0) as endpoint:
        yield endpoint


def polled(
    app: App,
    outcome: str,
    interval_s: float,
    *,
    backed_off: bool = False,
    items: int = 0,
    queue: str = "mail,default",
) -> None:
    app.telemetry.emit(QueuePolled(queue, outcome, items, interval_s, backed_off))  # type: ignore[arg-type]  # a literal


MAIL = '{provider="memory",queue="mail,default"}'


def test_the_four_polling_metrics_follow_the_fetches_of_a_worker(app: App, endpoint: Endpoint) -> None:
    for interval in (0.2, 0.4, 0.8):
        polled(app, "empty", interval, backed_off=True)
    first = scraped(endpoint)
    assert first[f"bide_worker_poll_interval_seconds{MAIL}"] == 0.8
    assert first[f"bide_worker_poll_total{MAIL}"] == 3
    assert first[f"bide_worker_poll_empty_total{MAIL}"] == 3
    assert first[f"bide_worker_backoff_total{MAIL}"] == 3
    polled(app, "found", 0.1, items=4)
    polled(app, "contended", 0.2, backed_off=True)
    polled(app, "failed", 0.1, backed_off=True)
    polled(app, "empty", 5.0)
    then = scraped(endpoint)
    assert then[f"bide_worker_poll_interval_seconds{MAIL}"] == 5.0
    assert then[f"bide_worker_poll_total{MAIL}"] == 7
    assert then[f"bide_worker_poll_empty_total{MAIL}"] == 4
    assert then[f"bide_worker_poll_contended_total{MAIL}"] == 1
    assert then[f"bide_worker_poll_failed_total{MAIL}"] == 1
    assert then[f"bide_worker_poll_items_total{MAIL}"] == 4
    assert then[f"bide_worker_backoff_total{MAIL}"] == 5


@pytest.mark.parametrize(
    ("strategy", "backoffs"),
    [
        (PollingStrategy.adaptive(), 6),  # 200, 400, 800 ms, 1.6, 3.2 and 5 s; it stays there
        (PollingStrategy.adaptive(max_interval="1s"), 4),
        (PollingStrategy.fixed("1s"), 0),
    ],
)
async def test_an_idle_worker_backs_off_as_its_strategy_does(
    strategy: PollingStrategy, backoffs: int, metrics: Metrics
) -> None:
    clock = VirtualClock()
    app = App("memory://", environment={"BIDE_DISPATCHER_LONG_POLL_TIMEOUT": "0"}, clock=clock)
    app.task(name="nap", queue="mail")(lambda: None)
    metrics.watch(app)
    stopping = asyncio.Event()
    async with app.open():
        working = asyncio.ensure_future(
            app.worker().run(WorkerRunOptions(polling=strategy), stopping=stopping)
        )
        await clock.advance(60)
        found = samples(generate_latest(metrics.registry).decode())
        stopping.set()
        while not working.done():
            await clock.advance(0.5)
        await working
    labels = '{provider="memory",queue="mail"}'
    assert found[f"bide_worker_backoff_total{labels}"] == backoffs
    assert found[f"bide_worker_poll_empty_total{labels}"] == found[f"bide_worker_poll_total{labels}"] > 10
    assert found[f"bide_worker_poll_interval_seconds{labels}"] == strategy.max_interval.total_seconds()


def test_each_queue_has_its_own_numbers(app: App, endpoint: Endpoint) -> None:
    polled(app, "empty", 0.2, queue="mail")
    polled(app, "empty", 5.0, queue="deliveries")
    polled(app, "empty", 0.4, queue="mail")
    found = scraped(endpoint)
    assert found['bide_worker_poll_interval_seconds{provider="memory",queue="mail"}'] == 0.4
    assert found['bide_worker_poll_interval_seconds{provider="memory",queue="deliveries"}'] == 5.0


def test_the_provider_is_the_kind_of_store_and_shows_no_address(metrics: Metrics) -> None:
    address = "postgres://bide:secret@db.example.org/work"
    fleet = App("${STORE}", environment={"STORE": address})
    end = metrics.watch(fleet)
    polled(fleet, "empty", 0.2, queue="mail")
    text = generate_latest(metrics.registry).decode()
    assert samples(text)['bide_worker_poll_total{provider="postgresql",queue="mail"}'] == 1
    assert "secret" not in text
    assert "example.org" not in text
    end()
    polled(fleet, "empty", 0.2, queue="mail")
    again = samples(generate_latest(metrics.registry).decode())
    assert again['bide_worker_poll_total{provider="postgresql",queue="mail"}'] == 1


def tell_everything(app: App) -> None:
    """One record or two of each kind that is counted."""
    tell = app.telemetry.emit
    polled(app, "empty", 0.2)
    tell(TaskSettled("send_mail", "mail", "1", "succeeded", 1, 12.0, age_ms=200.0))
    tell(TaskSettled("send_mail", "mail", "2", "retried", 1, 700.0, "boom", 1000.0, age_ms=900.0))
    tell(DeliverySettled("audit", "evt_1.audit", "succeeded", 1, 30.0, age_ms=3000.0))
    tell(QueueCounted("mail", ready=7, running=2, done=0, dead=1, oldest_ms=90_000))
    tell(PollAnswered("eu.price", "changed", 40, 12.0))
    tell(PollAnswered("eu.stock", "changed", -5, 12.0))
    tell(PollFailed("eu.price", "refused", "no", 1, 1000.0))
    tell(CallAttempted("eu", "price", "GET", "http://x", 1, "answered", 200, 20.0))
    tell(ProviderDown("mail", "gone", 1))


def test_what_tasks_deliveries_polls_and_calls_came_to_is_counted(app: App, endpoint: Endpoint) -> None:
    tell_everything(app)
    found = scraped(endpoint)
    assert found['bide_tasks_total{outcome="succeeded",queue="mail",task="send_mail"}'] == 1
    assert found['bide_tasks_total{outcome="retried",queue="mail",task="send_mail"}'] == 1
    assert found['bide_task_seconds_sum{queue="mail",task="send_mail"}'] == pytest.approx(0.712)
    assert found['bide_task_seconds_bucket{le="0.025",queue="mail",task="send_mail"}'] == 1
    assert found['bide_deliveries_total{outcome="succeeded",subscriber="audit"}'] == 1
    assert found['bide_delivery_seconds_count{subscriber="audit"}'] == 1
    assert found['bide_polls_total{connection="eu",outcome="changed"}'] == 2
    assert found['bide_polls_total{connection="eu",outcome="failed"}'] == 1
    assert found['bide_poll_lag_seconds_sum{connection="eu"}'] == pytest.approx(0.04)
    assert found['bide_calls_total{connection="eu",outcome="answered"}'] == 1
    assert found['bide_store_down{loop="mail"}'] == 1
    assert found['bide_task_latency_seconds_sum{queue="mail",task="send_mail"}'] == pytest.approx(0.2)
    assert found['bide_task_latency_seconds_count{queue="mail",task="send_mail"}'] == 1
    assert found['bide_delivery_latency_seconds_sum{subscriber="audit"}'] == pytest.approx(3.0)
    assert found['bide_queue_items{queue="mail",state="ready"}'] == 7
    assert found['bide_queue_items{queue="mail",state="dead"}'] == 1
    assert found['bide_queue_oldest_seconds{queue="mail"}'] == 90
    app.telemetry.emit(ProviderUp("mail", 3, 9000.0))
    assert scraped(endpoint)['bide_store_down{loop="mail"}'] == 0


async def test_items_in_hand_and_in_queues_are_told_while_a_worker_runs() -> None:
    clock = VirtualClock()
    app = App("memory://", environment={}, clock=clock)
    begun, let_go = asyncio.Event(), asyncio.Event()

    @app.task(queue="mail")
    async def wait() -> None:
        begun.set()
        await let_go.wait()

    metrics, stopping = Metrics(), asyncio.Event()
    metrics.watch(app, count_every="10s")
    async with app.open():
        await wait.submit_many([{}, {}, {}])
        working = asyncio.ensure_future(app.worker(concurrency=2).run(stopping=stopping))
        await begun.wait()
        await clock.advance(11)
        found = samples(generate_latest(metrics.registry).decode())
        let_go.set()
        await clock.advance(11)
        then = samples(generate_latest(metrics.registry).decode())
        stopping.set()
        while not working.done():
            await clock.advance(0.5)
        await working
    assert found['bide_items_in_hand{queue="mail"}'] == 2
    assert found['bide_queue_items{queue="mail",state="running"}'] == 2
    assert found['bide_queue_items{queue="mail",state="ready"}'] == 1
    assert then['bide_items_in_hand{queue="mail"}'] == 0
    assert then['bide_queue_items{queue="mail",state="ready"}'] == 0
    assert then['bide_task_latency_seconds_count{queue="mail",task="wait"}'] == 3
    assert then['bide_task_latency_seconds_sum{queue="mail",task="wait"}'] == pytest.approx(33, abs=1)


def test_what_is_no_duration_is_refused(app: App, metrics: Metrics) -> None:
    with pytest.raises(SettingError, match="count_every"):
        metrics.watch(app, count_every=-1)
    metrics.watch(app, count_every=None)


async def test_slots_are_read_when_they_are_asked_for(app: App, endpoint: Endpoint) -> None:
    slots = app.slots.of("eu", 1)
    held = await slots.acquire()
    found = scraped(endpoint)
    assert (found['bide_slots_in_use{connection="eu"}'], found['bide_slots_waiting{connection="eu"}']) == (
        1,
        0,
    )
    slots.release(held)
    assert scraped(endpoint)['bide_slots_in_use{connection="eu"}'] == 0


def test_two_apps_with_a_connection_of_one_name_share_its_series(metrics: Metrics, app: App) -> None:
    other = App("memory://", environment={})
    metrics.watch(other)
    for each in (app, other):
        assert each.slots.of("eu", 2).try_acquire() is not None
    text = generate_latest(metrics.registry).decode()
    assert text.count("bide_slots_in_use{") == 1
    assert samples(text)['bide_slots_in_use{connection="eu"}'] == 2


async def test_requests_to_the_store_are_read_when_they_are_asked_for(
    app: App, metrics: Metrics, tmp_path: Path
) -> None:
    fleet = [App(f"sqlite:///{tmp_path}/{name}.db", environment={}) for name in ("one", "two")]
    for one in fleet:
        metrics.watch(one)
    series = 'bide_provider_requests_total{class="transaction",provider="sqlite"}'
    before = samples(generate_latest(metrics.registry).decode())
    assert series not in before  # nothing was opened
    async with fleet[0].open(), fleet[1].open():
        for one in fleet:
            await one.provider.counts()
        text = generate_latest(metrics.registry).decode()
        assert samples(text)[series] == 2
        created = samples(text)[series.replace("_total", "_created")]
        assert created == pytest.approx(fleet[0].clock.utc_ms() / 1000, abs=60)
    closed = samples(generate_latest(metrics.registry).decode())[series]
    async with fleet[0].open():
        await fleet[0].provider.counts()
        assert samples(generate_latest(metrics.registry).decode())[series] >= closed + 1
    assert not [name for name in before if "memory" in name and "requests" in name]


async def test_the_reference_has_every_metric_with_its_labels_and_no_other(
    app: App, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_everything(app)
    app.slots.of("eu", 1)
    monkeypatch.setattr(app, "in_hand", lambda: {"mail": 1})
    monkeypatch.setattr(app, "requested_since", 1)
    monkeypatch.setattr(app, "requests", lambda: {"transaction": 1})
    there: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        there[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    page = Path(__file__).parents[2] / "docs" / "reference.md"
    rows = re.findall(r"^\| (`bide_.*?) \| (.*?) \|", page.read_text("utf-8"), re.MULTILINE)
    documented = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert documented == there


def test_labels_are_bounded(app: App, metrics: Metrics) -> None:
    for number in range(MOST_SERIES + 50):
        app.telemetry.emit(TaskSettled(f"task-{number}", "mail", str(number), "succeeded", 1, 1.0))
    found = samples(generate_latest(metrics.registry).decode())
    series = [name for name in found if name.startswith("bide_tasks_total{")]
    assert len(series) == MOST_SERIES + 1
    assert found['bide_tasks_total{outcome="other",queue="other",task="other"}'] == 50
    assert not [name for name in found if "item" in name and "total" not in name]


def test_metrics_join_the_registry_of_a_program(app: App) -> None:
    registry = CollectorRegistry()
    Metrics(registry).watch(app)
    polled(app, "empty", 0.2)
    assert samples(generate_latest(registry).decode())[f"bide_worker_poll_total{MAIL}"] == 1


def test_an_endpoint_is_for_this_machine_unless_told_otherwise(endpoint: Endpoint) -> None:
    assert endpoint.url == f"http://127.0.0.1:{endpoint.port}/metrics"


def test_a_port_that_is_taken_is_said_so(metrics: Metrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BideError, match=f"metrics cannot be served at 127.0.0.1, port {port}: .*in use"):
            metrics.serve(port)


@pytest.mark.parametrize(("port", "host"), [(70000, "127.0.0.1"), (0, "no such host")])
def test_a_place_that_is_none_is_said_so(metrics: Metrics, port: int, host: str) -> None:
    with pytest.raises(BideError, match="metrics cannot be served at"):
        metrics.serve(port, host)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BideError, match=r"pip install 'bide\[metrics\]'"):
        Metrics()
