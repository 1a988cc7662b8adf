"""Estimates: what is idle, what work and polls ask, and the laws that no number may break."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.config.prices import price_lists
from bide.core.estimates import Estimate, PollLoad, Workload, estimate
from bide.core.kinds import KINDS, kind_of
from bide.core.pacing import PollingStrategy
from bide.core.requests import MODELS, RequestModel

MONTH_MINUTES = 43_200
IDLE = Workload(PollingStrategy.adaptive())
S3, SQS, POSTGRESQL = MODELS["s3"], MODELS["sqs"], MODELS["postgresql"]


def of_cause(made: Estimate, cause: str) -> dict[str, Decimal]:
    return {share.name: share.requests for share in made.shares if share.cause == cause}


def dollars(workload: Workload, model: RequestModel) -> Decimal:
    return price_lists()[model.kind].bill(estimate(workload, model).requests).dollars


def test_an_idle_worker_on_s3_asks_a_get_for_each_fetch_and_a_list_a_minute() -> None:
    made = estimate(replace(IDLE, strategy=PollingStrategy.fixed("500ms")), S3)
    assert abs(of_cause(made, "idle fetches")["GET"] - 5_184_000) < 1000
    assert of_cause(made, "idle time")["LIST"] <= MONTH_MINUTES


def test_the_cost_table_of_fixed_polling_is_that_of_gets_and_not_of_lists() -> None:
    """A poll that lists sixteen shards would be 200 times as dear: $415 a month."""
    assert abs(
        dollars(replace(IDLE, strategy=PollingStrategy.fixed("500ms")), S3) - Decimal("2.33")
    ) < Decimal("0.01")


def test_an_idle_worker_on_sqs_receives_three_times_a_minute_for_each_queue() -> None:
    made = estimate(replace(IDLE, workers=2, queues=3), SQS)
    assert made.requests == {"receive": 3 * MONTH_MINUTES * 2 * 3}


def test_a_shorter_long_poll_than_the_store_allows_is_what_counts() -> None:
    made = estimate(replace(IDLE, long_poll_timeout=timedelta(seconds=10)), SQS)
    assert made.requests == {"receive": 6 * MONTH_MINUTES}


def test_queues_that_one_fetch_serves_cost_nothing_more() -> None:
    assert estimate(replace(IDLE, queues=9), S3) == estimate(IDLE, S3)


def test_a_store_in_which_no_fetch_may_wait_is_asked_by_the_strategy() -> None:
    made = estimate(replace(IDLE, long_poll_timeout=timedelta()), POSTGRESQL)
    waiting = estimate(IDLE, POSTGRESQL)
    assert of_cause(made, "idle fetches")["statement"] > 5 * of_cause(waiting, "idle fetches")["statement"]


def test_items_cost_by_the_item_and_by_the_batch() -> None:
    one_by_one = estimate(replace(IDLE, items_a_day=Decimal(1000)), S3)
    assert of_cause(one_by_one, "items") == {"GET": 30_000, "PUT": 120_000, "DELETE": 30_000}
    by_ten = estimate(replace(IDLE, items_a_day=Decimal(1000), batch=10), S3)
    assert of_cause(by_ten, "items") == {"GET": 30_000, "PUT": 93_000, "DELETE": 3_000}


def test_a_store_takes_no_larger_batches_than_it_can() -> None:
    made = estimate(replace(IDLE, items_a_day=Decimal(1000), batch=500), SQS)
    assert made.batch == 10
    assert of_cause(made, "items")["send"] == 3_000


def test_work_that_comes_evenly_leaves_short_stretches_in_which_a_strategy_does_not_rest() -> None:
    busy = replace(IDLE, items_a_day=Decimal(86_400))
    made = estimate(busy, S3)
    assert made.stretch == timedelta(seconds=1)
    quiet = of_cause(estimate(IDLE, S3), "idle fetches")["GET"]
    assert of_cause(made, "idle fetches")["GET"] > 10 * quiet


def test_what_one_worker_does_for_all_is_not_multiplied() -> None:
    def upkeep(workers: int) -> Decimal:
        return of_cause(estimate(replace(IDLE, workers=workers), S3), "upkeep")["PUT"]

    alone, ten = upkeep(1), upkeep(10)
    assert ten - alone == 9 * MONTH_MINUTES * Decimal("0.1")
    assert alone == MONTH_MINUTES * Decimal("0.3")


def test_each_loop_of_a_worker_fetches_for_itself() -> None:
    both = of_cause(estimate(replace(IDLE, loops=2), S3), "idle fetches")["GET"]
    assert both == 2 * of_cause(estimate(IDLE, S3), "idle fetches")["GET"]


def test_polls_cost_by_what_comes_of_them_and_changes_are_delivered() -> None:
    load = PollLoad(Decimal(1000), Decimal("0.1"), deliveries=2)
    made = estimate(replace(IDLE, polls=load), S3)
    assert of_cause(made, "polls")["PUT"] == 27_000 * 2 + 3_000 * 3 + MONTH_MINUTES
    assert of_cause(made, "deliveries")["PUT"] == 6_000 * 4
    assert not of_cause(made, "items")


def test_a_process_that_polls_looks_at_its_polls_once_a_minute() -> None:
    load = PollLoad(Decimal(1), Decimal(0))
    made = estimate(replace(IDLE, workers=2, polls=load), POSTGRESQL)
    assert of_cause(made, "polls")["statement"] == 30 * 2 + 2 * MONTH_MINUTES * 3


def test_a_store_that_keeps_no_polls_is_asked_for_none() -> None:
    load = PollLoad(Decimal(1000), Decimal(1))
    assert estimate(replace(IDLE, polls=load), SQS) == estimate(IDLE, SQS)


def test_a_worker_that_is_always_busy_makes_no_idle_requests() -> None:
    for model in MODELS.values():
        made = estimate(replace(IDLE, busy=Decimal(1), items_a_day=Decimal(1000)), model)
        assert of_cause(made, "idle fetches") == of_cause(made, "idle time") == {}


def test_nothing_is_asked_of_memory() -> None:
    assert estimate(replace(IDLE, items_a_day=Decimal(5)), MODELS["memory"]).shares == ()


@pytest.mark.parametrize("scheme", [*KINDS, *MODELS])
def test_every_scheme_of_addresses_means_a_kind_that_is_known(scheme: str) -> None:
    assert kind_of(scheme) in MODELS


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_name_only_classes_that_their_store_has_and_each_has_a_price(model: RequestModel) -> None:
    named = {
        *model.idle_fetch,
        *model.idle_minute,
        *model.upkeep_minute,
        *model.store_minute,
        *model.item,
        *model.batch,
    }
    if model.waiting is not None:
        named |= {*model.waiting.besides, *model.waiting.look}
    if model.polls is not None:
        named |= {*model.polls.unchanged, *model.polls.changed, *model.polls.minute}
    assert named <= set(model.classes)
    for prices in price_lists().values():
        if prices.kind == model.kind:
            assert all(prices.per_million(name) is not None for name in model.classes)


shares = st.decimals(0, 1, places=3)
workloads = st.builds(
    Workload,
    strategy=st.sampled_from([PollingStrategy.fixed("500ms"), PollingStrategy.adaptive()]),
    long_poll_timeout=st.sampled_from([timedelta(), timedelta(seconds=5), timedelta(seconds=30)]),
    workers=st.integers(1, 500),
    queues=st.integers(1, 5),
    loops=st.integers(1, 2),
    busy=shares,
    items_a_day=st.decimals(0, 10**8, places=2),
    batch=st.integers(1, 100),
    polls=st.builds(PollLoad, st.decimals(0, 10**6, places=2), shares, st.integers(1, 5)),
)
models = st.sampled_from(list(MODELS.values()))
ROUNDED = Decimal("1e-12")


@given(workloads, models)
def test_nothing_is_ever_negative(workload: Workload, model: RequestModel) -> None:
    assert all(share.requests > 0 for share in estimate(workload, model).shares)
    assert dollars(workload, model) >= 0


@given(workloads, models, st.integers(1, 50))
def test_more_workers_never_cost_less(workload: Workload, model: RequestModel, more: int) -> None:
    grown = replace(workload, workers=workload.workers + more)
    assert dollars(grown, model) >= dollars(workload, model) - ROUNDED


@given(workloads, models, st.integers(1, 60_000))
def test_a_strategy_that_sleeps_longer_never_costs_more(
    workload: Workload, model: RequestModel, more_ms: int
) -> None:
    own, more = workload.strategy, timedelta(milliseconds=more_ms)
    made: Any = (
        PollingStrategy.fixed(own.min_interval + more)
        if own.kind == "fixed"
        else PollingStrategy.adaptive(own.min_interval, own.max_interval + more)
    )
    assert dollars(replace(workload, strategy=made), model) <= dollars(workload, model)


@given(workloads, models)
def test_larger_batches_never_ask_more_for_the_same_items(workload: Workload, model: RequestModel) -> None:
    doubled = estimate(replace(workload, batch=workload.batch * 2), model)
    before = estimate(workload, model)
    for name, number in of_cause(doubled, "items").items():
        assert number <= of_cause(before, "items")[name] + ROUNDED
