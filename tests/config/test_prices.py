"""Price lists: those that come with bide, files over them, and what is wrong in such a file."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from bide.config import compile_declarations
from bide.config.prices import price_lists
from bide.core.requests import MODELS
from bide.errors import DeclarationError


def test_every_kind_of_store_has_a_list_of_its_name() -> None:
    for kind in MODELS:
        assert price_lists()[kind].kind == kind


def test_every_list_with_a_price_says_as_of_when_and_where_it_is_published() -> None:
    for prices in price_lists().values():
        if any(tariff.per_million for tariff in prices.tariffs):
            assert prices.as_of is not None
            assert date(2026, 1, 1) <= prices.as_of
            assert re.match(r"https://(aws\.amazon|developers\.cloudflare)\.com/.*pricing/$", prices.source)
        assert prices.note


def test_prices_of_aws_are_those_of_its_price_pages() -> None:
    lists = price_lists()
    s3 = {name: lists["s3"].per_million(name) for name in MODELS["s3"].classes}
    assert s3 == {"GET": Decimal("0.4"), "HEAD": Decimal("0.4"), "PUT": 5, "LIST": 5, "DELETE": 0}
    (sqs,) = lists["sqs"].tariffs
    assert sqs.per_million == Decimal("0.4")
    assert sqs.free == 1_000_000


def read(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text)
    return path


def test_a_file_replaces_single_keys_of_a_list(tmp_path: Path) -> None:
    path = read(
        tmp_path,
        """
        [lists.s3]
        region = "eu-central-1"
        as_of = 2026-11-30
        tariffs = [
          { classes = ["PUT", "LIST"], per_thousand = 0.0054 },
          { classes = ["GET"], per_million = 0.43, free = 5 },
        ]
        """,
    )
    s3 = price_lists(path)["s3"]
    assert (s3.title, s3.region, s3.as_of, s3.source) == (
        "Amazon S3 Standard",
        "eu-central-1",
        date(2026, 11, 30),
        "",
    )
    assert [tariff.per_million for tariff in s3.tariffs] == [Decimal("5.4"), Decimal("0.43")]
    assert s3.tariffs[1].free == 5
    assert price_lists(path)["sqs"] == price_lists()["sqs"]


def test_a_region_alone_leaves_prices_and_their_day(tmp_path: Path) -> None:
    s3 = price_lists(read(tmp_path, '[lists.s3]\nregion = "us-west-2"\n'))["s3"]
    own = price_lists()["s3"]
    assert (s3.tariffs, s3.as_of, s3.source) == (own.tariffs, own.as_of, own.source)


def test_a_day_that_a_list_has_does_not_hold_for_other_prices(tmp_path: Path) -> None:
    text = '[lists.s3]\ntariffs = [{ classes = ["GET"], per_million = 1 }]\n'
    assert price_lists(read(tmp_path, text))["s3"].as_of is None


def test_a_file_adds_lists(tmp_path: Path) -> None:
    text = '[lists.minio]\nkind = "s3"\ntariffs = [{ classes = ["GET", "PUT", "LIST"], per_million = 0 }]\n'
    lists = price_lists(read(tmp_path, text))
    assert (lists["minio"].title, lists["minio"].kind) == ("minio", "s3")
    assert lists["s3"] == price_lists()["s3"]


WRONG = {
    "": ("lists", "is missing"),
    "list = 3": ("list", "Did you mean 'lists'?"),
    "lists = 3": ("lists", "must be a table, not 3"),
    "[lists.s3]\nregoin = 'x'": ("lists.s3.regoin", "Did you mean 'region'?"),
    "[lists]\ns3 = 3": ("lists.s3", "must be a table"),
    "[lists.s3]\nkind = 's4'": ("lists.s3.kind", "is no kind of store"),
    "[lists.new]\ntariffs = []": ("lists.new.kind", "is missing"),
    "[lists.new]\nkind = 's3'": ("lists.new.tariffs", "is missing"),
    "[lists.s3]\ntariffs = 3": ("lists.s3.tariffs", "must be a list of tables"),
    "[lists.s3]\ntariffs = [3]": ("lists.s3.tariffs[0]", "must be a table"),
    "[lists.s3]\ntariffs = [{ classes = ['GET'] }]": ("lists.s3.tariffs[0]", "per_million or per_thousand"),
    "[lists.s3]\ntariffs = [{ per_million = 1 }]": ("lists.s3.tariffs[0].classes", "is missing"),
    "[lists.s3]\ntariffs = [{ classes = ['GETS'], per_million = 1 }]": (
        "lists.s3.tariffs[0].classes[0]",
        "Did you mean 'GET'?",
    ),
    "[lists.s3]\ntariffs = [{ classes = ['GET', 'GET'], per_million = 1 }]": (
        "lists.s3.tariffs[0].classes[1]",
        "has a price already",
    ),
    "[lists.s3]\ntariffs = [{ classes = 'GET', per_million = 1 }]": (
        "lists.s3.tariffs[0].classes",
        "must be a list of classes",
    ),
    "[lists.s3]\ntariffs = [{ classes = ['GET'], per_million = -1 }]": (
        "lists.s3.tariffs[0].per_million",
        "of nothing or more, not -1",
    ),
    "[lists.s3]\ntariffs = [{ classes = ['GET'], per_million = nan }]": (
        "lists.s3.tariffs[0].per_million",
        "of nothing or more, not nan",
    ),
    "[lists.s3]\ntariffs = [{ classes = ['GET'], per_million = '5' }]": (
        "lists.s3.tariffs[0].per_million",
        "must be dollars, not text",
    ),
    "[lists.s3]\ntariffs = [{ classes = ['GET'], per_million = 1, free = -1 }]": (
        "lists.s3.tariffs[0].free",
        "whole number of at least 0",
    ),
    "[lists.s3]\nas_of = '2026-01-01'": ("lists.s3.as_of", "must be a day, not text"),
    "[lists.s3]\nas_of = 2026-01-01T00:00:00Z": ("lists.s3.as_of", "must be a day"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = read(tmp_path, text)
    with pytest.raises(DeclarationError) as caught:
        price_lists(path)
    where, said = WRONG[text]
    assert f"{path}: {where}: " in str(caught.value)
    assert said in str(caught.value)
    assert "\n    " in str(caught.value)  # one next step


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = "[lists.s3]\nregoin = 'x'\n[lists.sqs]\nas_of = 3\n"
    with pytest.raises(DeclarationError) as caught:
        price_lists(read(tmp_path, text))
    assert len(caught.value.mistakes) == 2


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="there is no such file"):
        price_lists(tmp_path / "none.toml")


@pytest.mark.parametrize(("block", "where"), [({"price": "x"}, "cost.price"), ({"prices": 3}, "cost.prices")])
def test_the_block_in_a_bide_toml_is_checked(tmp_path: Path, block: dict[str, object], where: str) -> None:
    compiled = compile_declarations({"cost": block}, folder=tmp_path, environment={})
    assert [mistake.where for mistake in compiled.mistakes] == [where]


def test_a_right_block_is_no_mistake(tmp_path: Path) -> None:
    assert not compile_declarations(
        {"cost": {"prices": "ours.toml"}}, folder=tmp_path, environment={}
    ).mistakes
