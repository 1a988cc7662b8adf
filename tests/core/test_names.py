"""Names: the rule, and suggestions for slips."""

from __future__ import annotations

import pytest

from bide.core.names import did_you_mean, is_name, nearest


@pytest.mark.parametrize("text", ["a", "_", "price", "Price2", "eu-west_1", "_x", "A-"])
def test_names(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize(
    "text", ["", "1a", "-a", "a.b", "a b", "é", "prix€", "a\n", " a", "a/b", "${A}", "аdmin", "a²"]
)
def test_not_names(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("prise", "price"),
        ("prices", "price"),
        ("PRICE", "price"),
        ("pirce", "price"),
        ("price", "price"),
        ("shop.PriceChange", "shop.PriceChanged"),
        ("max_concurent", "max_concurrent"),
    ],
)
def test_the_nearest_name(slip: str, meant: str) -> None:
    known = ["price", "stock", "shop.PriceChanged", "shop.StockChanged", "max_concurrent"]
    assert nearest(slip, known) == meant
    assert did_you_mean(slip, known) == f"Did you mean {meant!r}?"


@pytest.mark.parametrize("slip", ["", "x", "zzzzzz", "completely different"])
def test_no_suggestion_where_none_is_near(slip: str) -> None:
    assert nearest(slip, ["price", "stock"]) is None
    assert did_you_mean(slip, ["price", "stock"]) is None
    assert nearest(slip, []) is None


def test_the_suggestion_does_not_depend_on_the_order_of_what_is_known() -> None:
    known = ["Price", "price", "pride", "prime"]
    assert nearest("prine", known) == nearest("prine", reversed(known))
    assert nearest("price", iter(["stock", "price"])) == "price"
