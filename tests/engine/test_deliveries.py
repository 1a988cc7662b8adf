"""Deliveries: events brought to webhooks, commands and functions."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from bide.clock import SystemClock
from bide.core.declaration import Command, Function, Subscriber, Target, Webhook
from bide.core.delivery import envelope, sign
from bide.core.http import Headers, Request, Response
from bide.core.template import Template, hiding
from bide.engine.commands import run_command
from bide.engine.deliveries import Delivery, DeliveryHandler
from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded
from bide.errors import CallError
from bide.provider import WorkItem
from bide.slots import Slots
from tests.engine.rig import Rig

PAYLOAD = envelope(
    name="shop.PriceChanged",
    event_id="evt_1",
    seq=7,
    created_at=1_750_000_000_000,
    connection="eu",
    poll="eu.price",
    occurred_at=None,
    payload='{"price":1.10,"symbol":"A"}',
    previous='{"price":1,"symbol":"A"}',
)


def item(payload: str = PAYLOAD, *, attempt: int = 1) -> WorkItem:
    return WorkItem("evt_1.audit", "deliveries", "audit", payload, "token", attempt, 0, 0, None, None)


class Receiver:
    """Stands where the transport is, and answers ``status``."""

    def __init__(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        self.requests: list[Request] = []
        self.same_origin: list[bool] = []
        self.error: Exception | None = None

    async def send(
        self,
        request: Request,
        *,
        timeout: float,
        cap: int,
        redirects: int,
        same_origin: bool,
        shown: str | None,
    ) -> Response:
        self.requests.append(request)
        self.shown = shown
        self.same_origin.append(same_origin)
        if self.error is not None:
            raise self.error
        return Response(self.status, Headers(self.headers.items()), b"", request.url)


async def deliver(
    target: Target,
    *,
    rig: Rig | None = None,
    receiver: Receiver | None = None,
    work: WorkItem | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    real_clock: bool = False,
) -> Outcome:
    rig = rig or Rig.make()
    handler = DeliveryHandler(
        {"audit": Subscriber("audit", "shop.PriceChanged", target)},
        sender=receiver or Receiver(),
        events=rig.provider,
        clock=SystemClock() if real_clock else rig.clock,
        telemetry=rig.telemetry,
        environment=environment if environment is not None else {},
        folder=str(folder) if folder else None,
    )
    return await handler.handle(work or item())


HOOK = Webhook(Template("http://receiver.test/hook"), secret=Template("${AUDIT_SECRET}"))
SECRET = {"AUDIT_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}


# --- webhooks ------------------------------------------------------------------------------------------------


async def test_a_webhook_gets_the_envelope_signed_by_the_standard_scheme() -> None:
    rig, receiver = Rig.make(), Receiver(204)
    assert await deliver(HOOK, rig=rig, receiver=receiver, environment=SECRET) == Succeeded()
    (request,) = receiver.requests
    headers = dict(request.headers)
    assert request.method == "POST"
    assert request.body == PAYLOAD.encode()
    assert headers["webhook-id"] == "evt_1.audit"
    timestamp = int(headers["webhook-timestamp"])
    assert timestamp == rig.clock.utc_ms() // 1000
    assert headers["webhook-signature"] == sign(SECRET["AUDIT_SECRET"], "evt_1.audit", timestamp, PAYLOAD)
    assert receiver.same_origin == [True]
    assert json.loads(request.body)["previous"] == {"price": 1, "symbol": "A"}


async def test_a_webhook_without_a_secret_is_not_signed() -> None:
    receiver = Receiver()
    await deliver(Webhook(Template("http://receiver.test/hook")), receiver=receiver)
    assert "webhook-signature" not in dict(receiver.requests[0].headers)


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
async def test_anything_but_2xx_is_tried_again(status: int) -> None:
    outcome = await deliver(HOOK, receiver=Receiver(status), environment=SECRET)
    assert isinstance(outcome, Retried)
    assert str(status) in outcome.error


async def test_a_receivers_delay_is_honoured() -> None:
    receiver = Receiver(503, {"Retry-After": "120"})
    outcome = await deliver(HOOK, receiver=receiver, environment=SECRET)
    assert isinstance(outcome, Retried)
    assert outcome.delay >= timedelta(seconds=120)


async def test_a_receiver_that_took_the_delivery_and_then_answers_too_much_or_cut_off_has_it() -> None:
    receiver = Receiver()
    receiver.error = CallError("too_large", "more than 1 MiB", status=200)
    assert await deliver(HOOK, receiver=receiver, environment=SECRET) == Succeeded()
    receiver.error = CallError("incomplete", "cut off", status=500)
    assert isinstance(await deliver(HOOK, receiver=receiver, environment=SECRET), Retried)
    receiver.error = CallError("too_large", "more than 1 MiB", status=410)
    assert isinstance(await deliver(HOOK, receiver=receiver, environment=SECRET), Dead)


async def test_a_secret_in_a_webhooks_path_is_not_shown() -> None:
    receiver = Receiver()
    hook = Webhook(Template("https://hooks.test/services/${HOOK_PATH}"))
    await deliver(hook, receiver=receiver, environment={"HOOK_PATH": "T0/B1/xyz"})
    assert receiver.requests[0].url == "https://hooks.test/services/T0/B1/xyz"
    assert receiver.shown == "https://hooks.test/services/${HOOK_PATH}"


async def test_a_delay_of_years_is_cut_to_a_day() -> None:
    receiver = Receiver(503, {"Retry-After": "9999999999"})
    outcome = await deliver(HOOK, receiver=receiver, environment=SECRET)
    assert isinstance(outcome, Retried)
    assert outcome.delay == timedelta(days=1)


async def test_an_item_that_the_store_could_not_read_is_dead_with_that_reason() -> None:
    damaged = dataclasses.replace(item(""), unreadable="not UTF-8")
    outcome = await deliver(HOOK, work=damaged, environment=SECRET)
    assert outcome == Dead("the stored event cannot be read: not UTF-8")


async def test_retries_back_off_with_full_jitter_up_to_an_hour() -> None:
    rig = Rig.make()
    rig.clock.draws = 0.999
    delays = []
    for attempt in (1, 2, 3, 12, 40):
        outcome = await deliver(
            HOOK, rig=rig, receiver=Receiver(500), environment=SECRET, work=item(attempt=attempt)
        )
        assert isinstance(outcome, Retried)
        delays.append(round(outcome.delay.total_seconds()))
    assert delays == [1, 2, 4, 2046, 3596]


async def test_gone_ends_the_subscription_and_the_delivery() -> None:
    rig = Rig.make()
    await rig.subscribe("audit")
    outcome = await deliver(HOOK, rig=rig, receiver=Receiver(410), environment=SECRET)
    assert isinstance(outcome, Dead)
    assert "410" in outcome.error
    (row,) = await rig.provider.subscriptions()
    assert row.ended_at is not None
    assert row.ended_reason is not None
    assert "410" in row.ended_reason


async def test_a_receiver_that_cannot_be_reached_and_a_variable_that_is_missing_are_tried_again() -> None:
    receiver = Receiver()
    receiver.error = CallError("refused", "http://receiver.test/hook refused the connection", retryable=True)
    outcome = await deliver(HOOK, receiver=receiver, environment=SECRET)
    assert isinstance(outcome, Retried)
    assert "refused" in outcome.error
    outcome = await deliver(HOOK)
    assert isinstance(outcome, Retried)
    assert "AUDIT_SECRET" in outcome.error
    assert SECRET["AUDIT_SECRET"] not in outcome.error


# --- functions -----------------------------------------------------------------------------------------------


async def test_an_async_function_gets_the_event_with_exact_numbers() -> None:
    got: list[Delivery] = []

    async def hear(delivery: Delivery) -> None:
        got.append(delivery)

    assert await deliver(Function("test:hear", hear), work=item(attempt=3)) == Succeeded()
    (delivery,) = got
    assert delivery.id == "evt_1.audit"
    assert (delivery.event, delivery.event_id, delivery.seq) == ("shop.PriceChanged", "evt_1", 7)
    assert (delivery.connection, delivery.poll, delivery.attempt) == ("eu", "eu.price", 3)
    assert delivery.data == {"price": Decimal("1.1"), "symbol": "A"}
    assert delivery.previous == {"price": 1, "symbol": "A"}
    assert delivery.created_at.isoformat() == "2025-06-15T15:06:40+00:00"
    assert delivery.occurred_at is None


async def test_a_plain_function_runs_on_a_thread_so_that_it_may_block() -> None:
    names: list[str] = []
    outcome = await deliver(
        Function("test:hear", lambda delivery: names.append(threading.current_thread().name))
    )
    assert outcome == Succeeded()
    assert names != [threading.main_thread().name]


async def test_a_function_that_raises_is_tried_again_with_what_it_raised() -> None:
    def hear(delivery: Delivery) -> None:
        raise ValueError("no such customer")

    outcome = await deliver(Function("test:hear", hear))
    assert isinstance(outcome, Retried)
    assert outcome.error.startswith("ValueError: no such customer (test_deliveries.py:")
    assert outcome.error.endswith(", in hear)")


async def test_a_function_may_be_given_a_time() -> None:
    async def hear(delivery: Delivery) -> None:
        await asyncio.Event().wait()

    outcome = await deliver(Function("test:hear", hear, timeout=timedelta(milliseconds=20)))
    assert isinstance(outcome, Retried)
    assert "0.02 s" in outcome.error


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("the database"), "TimeoutError: the database"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
async def test_whatever_a_function_raises_is_a_failed_attempt_of_its_own(
    raised: BaseException, told: str, plain: bool
) -> None:
    async def hear(delivery: Delivery) -> None:
        raise raised

    def hear_plainly(delivery: Delivery) -> None:
        raise raised

    outcome = await deliver(
        Function("test:hear", hear_plainly if plain else hear, timeout=timedelta(seconds=5))
    )
    assert isinstance(outcome, Retried)
    assert outcome.error.startswith(told)


async def test_a_plain_function_may_raise_stop_iteration() -> None:
    outcome = await deliver(Function("test:hear", lambda delivery: next(iter([]))))
    assert isinstance(outcome, Retried)
    assert "StopIteration" in outcome.error


async def test_a_generator_is_refused_since_no_call_runs_its_body() -> None:
    def hear(delivery: Delivery) -> Iterator[int]:
        yield 1

    outcome = await deliver(Function("test:hear", hear))
    assert isinstance(outcome, Retried)
    assert "generator" in outcome.error


async def test_a_wrapper_that_is_plain_is_called_plainly_though_what_it_wraps_is_async() -> None:
    async def inner(delivery: Delivery) -> None:
        raise AssertionError("its wrapper runs it")

    @functools.wraps(inner)
    def hear(delivery: Delivery) -> None:
        return None

    assert await deliver(Function("test:hear", hear)) == Succeeded()


async def test_as_many_functions_may_block_as_there_are_deliveries_in_hand() -> None:
    together = threading.Barrier(24, timeout=20)
    target = Function("test:hear", lambda delivery: together.wait() and None)
    assert await asyncio.gather(*(deliver(target) for _ in range(24))) == [Succeeded()] * 24


async def test_a_function_that_ran_out_of_time_and_runs_on_is_not_called_beside_itself() -> None:
    rig, released, calls = Rig.make(), threading.Event(), list[int]()

    def hear(delivery: Delivery) -> None:
        calls.append(1)
        released.wait(20)

    subscriber = Subscriber(
        "audit", "shop.PriceChanged", Function("test:hear", hear, timeout=timedelta(milliseconds=20))
    )
    handler = DeliveryHandler(
        {"audit": subscriber},
        sender=Receiver(),
        events=rig.provider,
        clock=rig.clock,
        telemetry=rig.telemetry,
        environment={},
    )
    assert isinstance(await handler.handle(item()), Retried)
    outcome = await handler.handle(item())
    assert isinstance(outcome, GivenBack)
    assert "still running" in outcome.reason
    assert calls == [1]
    released.set()
    async with asyncio.timeout(10):
        while isinstance(outcome, GivenBack):
            await asyncio.sleep(0.01)
            outcome = await handler.handle(item())
    assert outcome == Succeeded()


async def test_what_a_handler_left_running_may_wait_for_a_slot_as_anybody_does() -> None:
    slots, entered = Slots("eu", 1), asyncio.Event()
    held = slots.try_acquire()
    assert held is not None
    left: list[asyncio.Task[None]] = []

    async def later() -> None:
        await entered.wait()
        async with slots.hold():
            return

    async def hear(delivery: Delivery) -> None:
        left.append(asyncio.ensure_future(later()))

    assert await deliver(Function("test:hear", hear)) == Succeeded()
    entered.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not left[0].done()
    slots.release(held)
    await left[0]


async def test_secrets_that_the_other_side_repeats_are_taken_out_of_what_is_kept() -> None:
    receiver = Receiver()
    receiver.error = CallError("status", "answered: bad token S3cret-Value")
    handler = DeliveryHandler(
        {"audit": Subscriber("audit", "shop.PriceChanged", HOOK)},
        sender=receiver,
        events=Rig.make().provider,
        clock=Rig.make().clock,
        telemetry=Rig.make().telemetry,
        environment={"AUDIT_SECRET": "s3cret-value"},
        hide=hiding(["AUDIT_SECRET"], {"AUDIT_SECRET": "s3cret-value"}),
    )
    outcome = await handler.handle(item())
    assert isinstance(outcome, Retried)
    assert outcome.error == "answered: bad token ${AUDIT_SECRET}"


async def test_a_stored_event_that_cannot_be_read_is_dead_and_not_tried_for_ever() -> None:
    async def hear(delivery: Delivery) -> None:
        raise AssertionError("not called")

    for broken in ("", "[]", "{", "{}", '"text"', "null"):
        outcome = await deliver(Function("test:hear", hear), work=item(broken))
        assert isinstance(outcome, Dead), broken
        assert "cannot be read" in outcome.error


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_handler_that_finds_no_free_slot_gives_back_uncounted_for_a_second(swallow: bool) -> None:
    slots = Slots("eu", 1)
    held = slots.try_acquire()
    assert held is not None

    async def hear(delivery: Delivery) -> None:
        try:
            async with slots.hold():
                raise AssertionError("no slot is free")
        except Exception:
            if not swallow:
                raise

    outcome = await deliver(Function("test:hear", hear))
    assert isinstance(outcome, GivenBack)
    assert "eu" in outcome.reason
    assert outcome.delay == timedelta(seconds=1)
    slots.release(held)
    assert slots.in_use == 0


# --- commands ------------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, pathlib, sys
event = json.load(sys.stdin)
pathlib.Path("heard.json").write_text(json.dumps([event["data"], os.environ["BIDE_DELIVERY_ID"], sys.argv[1:]]))
"""


async def test_a_command_gets_the_event_on_standard_input_and_no_shell_reads_its_words(
    tmp_path: Path,
) -> None:
    command = Command((sys.executable, "-c", SCRIPT, "$(touch pwned); `id`"))
    outcome = await deliver(command, folder=tmp_path, real_clock=True)
    assert outcome == Succeeded()
    data, delivery, words = json.loads((tmp_path / "heard.json").read_text())
    assert data == {"price": 1.1, "symbol": "A"}
    assert delivery == "evt_1.audit"
    assert words == ["$(touch pwned); `id`"]
    assert not (tmp_path / "pwned").exists()


async def test_a_command_that_fails_is_tried_again_with_its_status_and_last_words(tmp_path: Path) -> None:
    command = Command((sys.executable, "-c", "import sys; sys.exit('disk is full')"))
    outcome = await deliver(command, folder=tmp_path, real_clock=True)
    assert isinstance(outcome, Retried)
    assert "status 1" in outcome.error
    assert "disk is full" in outcome.error


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    outcome = await deliver(Command(("no-such-program-here",)), folder=tmp_path, real_clock=True)
    assert isinstance(outcome, Retried)
    assert "'no-such-program-here' was not found" in outcome.error


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('pid').write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    command = Command((sys.executable, "-c", code), timeout=timedelta(seconds=1.5))
    outcome = await deliver(command, folder=tmp_path, real_clock=True)
    assert isinstance(outcome, Retried)
    assert "1.5 s" in outcome.error
    child = Path("/proc") / (tmp_path / "pid").read_text()
    for _ in range(100):
        if not child.exists() or "Z" in (child / "stat").read_text().split(")")[1]:
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("the child lives on")


async def test_a_command_that_ignores_its_input_and_leaves_a_child_behind_succeeds(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '3'])"
    error = await run_command(
        (sys.executable, "-c", code),
        b"x" * 1_000_000,
        environment={"PATH": "/usr/bin:/bin"},
        folder=str(tmp_path),
        limit_s=20,
        clock=SystemClock(),
    )
    assert error is None


async def test_a_cancelled_delivery_ends_its_command(tmp_path: Path) -> None:
    code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    delivering = asyncio.ensure_future(
        deliver(Command((sys.executable, "-c", code)), folder=tmp_path, real_clock=True)
    )
    pid = tmp_path / "pid"
    for _ in range(500):
        if pid.exists() and pid.read_text():
            break
        await asyncio.sleep(0.01)
    delivering.cancel()
    await asyncio.wait({delivering})
    assert delivering.cancelled()
    assert not (Path("/proc") / pid.read_text()).exists()
