"""Bills: exact, linear in the price, never negative, and what is free is free once."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from bide.core.prices import PriceList, Tariff

S3 = PriceList(
    "s3",
    "s3",
    "Amazon S3",
    (
        Tariff(("PUT", "LIST"), Decimal(5)),
        Tariff(("GET",), Decimal("0.4")),
        Tariff(("DELETE",), Decimal(0)),
    ),
    region="us-east-1",
)
SQS = PriceList("sqs", "sqs", "SQS", (Tariff(("receive", "send"), Decimal("0.40"), 1_000_000),))


def test_a_million_of_a_class_costs_its_price() -> None:
    bill = S3.bill({"GET": Decimal(1_000_000), "LIST": Decimal(1_000_000), "DELETE": Decimal(7)})
    assert {line.name: line.dollars for line in bill.lines} == {"GET": Decimal("0.4"), "LIST": 5, "DELETE": 0}
    assert bill.dollars == Decimal("5.4")
    assert bill.requests == 2_000_007


def test_a_list_costs_twelve_and_a_half_times_a_get() -> None:
    get, of_list = (S3.bill({name: Decimal(1000)}).dollars for name in ("GET", "LIST"))
    assert of_list / get == Decimal("12.5")


def test_what_is_included_is_shared_by_the_classes_of_a_tariff() -> None:
    bill = SQS.bill({"receive": Decimal(900_000), "send": Decimal(600_000)})
    (allowance,) = bill.allowances
    assert allowance.requests == 1_000_000
    assert allowance.dollars == Decimal("0.4")
    assert bill.dollars == Decimal("0.2")


def test_no_more_is_included_than_was_asked() -> None:
    bill = SQS.bill({"receive": Decimal(10)})
    assert bill.allowances[0].requests == 10
    assert bill.dollars == 0


def test_nothing_asked_costs_nothing_and_has_no_line() -> None:
    assert SQS.bill({"receive": Decimal(0)}).lines == ()
    assert SQS.bill({}).dollars == 0


def test_a_class_without_a_price_is_named_and_costs_nothing() -> None:
    bill = S3.bill({"HEAD": Decimal(5), "GET": Decimal(5)})
    assert bill.unpriced == ("HEAD",)
    assert S3.per_million("HEAD") is None
    assert bill.dollars == Decimal("0.000002")


def test_a_place_has_its_region_where_it_has_one() -> None:
    assert (S3.place, SQS.place) == ("Amazon S3 (us-east-1)", "SQS")


amounts = st.decimals(0, 10**10, places=6)
asked = st.dictionaries(st.sampled_from(["receive", "send"]), amounts)


@given(asked, st.decimals(0, 1000, places=4), st.integers(0, 10**7))
def test_a_bill_is_never_negative_and_linear_in_the_price(
    requests: dict[str, Decimal], price: Decimal, free: int
) -> None:
    def paid(factor: int) -> Decimal:
        tariffs = (Tariff(("receive", "send"), price * factor, free),)
        return replace(SQS, tariffs=tariffs).bill(requests).dollars

    assert paid(1) >= 0
    assert abs(paid(3) - 3 * paid(1)) < Decimal("0.000001")


@given(asked, amounts)
def test_more_requests_never_cost_less(requests: dict[str, Decimal], more: Decimal) -> None:
    grown = requests | {"receive": requests.get("receive", Decimal(0)) + more}
    assert SQS.bill(grown).dollars >= SQS.bill(requests).dollars
