"""``bide cost``: from settings to dollars, in tables and in JSON."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bide.config.prices import price_lists
from bide.core.requests import MODELS, Requests
from tests.cli.rig import Project


def rows(table: str) -> dict[str, str]:
    """The last column by the first two, of a printed table."""
    found = {}
    name = ""
    for line in table.splitlines():
        if parts := re.match(r"(\w+)?\s+(\w[\w ]*?)?\s{2,}([\d,]+)\s.*(\S+)$", line):
            name = parts[1] or name
            found[f"{name} {parts[2] or ''}".strip()] = line.split()[-1]
    return found


@pytest.fixture
def empty(project: Project) -> Project:
    """A folder without a bide.toml."""
    (project.folder / "bide.toml").unlink()
    return project


def test_a_store_may_be_asked_about_before_there_is_a_file(empty: Project) -> None:
    ran = empty.bide("cost", "--provider", "s3", "--workers", "3", "--items", "100000/day")
    assert ran.status == 0
    assert "an estimate" in ran.out
    assert "Amazon S3 Standard (us-east-1)" in ran.out
    assert "prices of Amazon S3 Standard (us-east-1) as of 2026-" in ran.out
    assert "https://aws.amazon.com/s3/pricing/" in ran.out
    assert "storage and traffic are not counted" in ran.out
    assert rows(ran.out)["PUT items"] == "$60.00"


def test_tables_and_json_say_the_same(empty: Project) -> None:
    command = (
        "cost",
        "-p",
        "s3",
        "--workers",
        "2",
        "--busy",
        "10%",
        "--items",
        "5000/hour",
        "--polls",
        "5000/5m",
    )
    printed = rows(empty.bide(*command).out)
    told = empty.bide(*command, "--json").json
    assert told["estimate"] is True
    for request in told["requests"]:
        dollars = request["dollars"]
        shown = "<$0.01" if 0 < dollars < 0.01 else f"${dollars:,.2f}"
        assert printed[f"{request['class']} {request['for']}"] == shown
    assert sum(request["requests"] for request in told["requests"]) == pytest.approx(
        told["total"]["requests"], abs=3
    )
    assert sum(request["dollars"] for request in told["requests"]) == pytest.approx(told["total"]["dollars"])
    assert told["workload"]["items_a_day"] == 120_000
    assert told["workload"]["poll_calls_a_day"] == 1_440_000


def test_without_a_file_or_a_store_it_says_what_to_do(empty: Project) -> None:
    ran = empty.bide("cost")
    assert ran.status == 1
    assert "bide init" in ran.err


def test_the_store_and_the_polls_of_the_app_are_the_default(project: Project) -> None:
    told = project.bide("cost", "--json").json
    assert told["kind"] == "sqlite"
    assert told["workload"]["poll_calls_a_day"] == 24  # one poll is heard, once an hour
    assert told["total"]["dollars"] == 0
    printed = project.bide("cost").out
    assert "requests are free; the machine is not, and is not counted" in printed


def test_the_polls_of_the_app_can_be_left_out(project: Project) -> None:
    assert project.bide("cost", "--polls", "none", "--json").json["workload"]["poll_calls_a_day"] == 0


def test_the_settings_of_the_file_and_flags_make_the_strategy(project: Project) -> None:
    project.declare('\n[worker.polling]\nstrategy = "fixed"\ninterval = "2s"\n')
    of_file = project.bide("cost", "-p", "s3", "--json").json["workload"]["strategy"]
    assert of_file == {"strategy": "fixed", "interval_ms": 2000}
    flags = ("--polling-interval", "500ms")
    of_flag = project.bide("cost", "-p", "s3", *flags, "--json").json["workload"]["strategy"]
    assert of_flag == {"strategy": "fixed", "interval_ms": 500}


def test_a_fixed_strategy_of_half_a_second_costs_what_the_choice_of_strategies_says(empty: Project) -> None:
    printed = rows(empty.bide("cost", "-p", "s3", "--poll-interval", "500ms").out)
    assert printed["GET idle fetches"] == "$2.07"


def test_queues_are_those_of_the_tasks(empty: Project) -> None:
    text = "from bide import App\napp = App('sqlite:///x.db')\n"
    for queue in ("mail", "default"):
        text += f"@app.task(queue={queue!r})\ndef of_{queue}() -> None: ...\n"
    (empty.folder / "twoqueues.py").write_text(text)
    told = empty.bide("cost", "-a", "twoqueues:app", "-p", "sqs", "--json").json
    assert told["workload"]["queues"] == 2
    assert told["total"]["requests"] == 2 * 3 * 43_200


def test_what_is_free_is_a_line_of_its_own(empty: Project) -> None:
    ran = empty.bide("cost", "-p", "sqs", "--workers", "10")
    assert rows(ran.out)["included free each month"] == "-$0.40"
    assert rows(ran.out)["total"] == "$0.12"


def test_a_store_without_polls_says_that_they_are_left_out(project: Project) -> None:
    assert "SQS keeps no polls: they are left out" in project.bide("cost", "-p", "sqs").out


def test_a_comparison_marks_a_store_without_polls(project: Project) -> None:
    ran = project.bide("cost", "--compare")
    (sqs,) = [line for line in ran.out.splitlines() if "Amazon SQS" in line]
    assert sqs.startswith("- ")
    assert "- keeps no polls: they are left out" in ran.out


def test_a_server_of_ones_own_is_not_taken_for_amazons(empty: Project) -> None:
    ran = empty.bide("cost", "-p", "s3://bucket?endpoint=http://minio:9000")
    assert "a server of its own" in ran.out
    assert "--price-list" in ran.out


def test_stores_and_strategies_can_be_compared(empty: Project) -> None:
    ran = empty.bide("cost", "--compare", "-p", "s3", "--workers", "50")
    lines = ran.out.splitlines()
    fixed = next(line for line in lines if "Amazon S3" in line and "fixed 500ms" in line)
    own = next(line for line in lines if line.startswith("*"))
    assert "adaptive 100ms to 5s" in own
    assert fixed.split()[-1] == "$126.93"
    for store in ("Cloudflare R2", "Amazon SQS", "ElastiCache", "PostgreSQL", "SQLite"):
        assert sum(store in line for line in lines) >= 1
    assert any("waits in the store" in line and "PostgreSQL" in line for line in lines)


def test_a_comparison_in_json_has_the_same_numbers(project: Project) -> None:
    told = project.bide("cost", "--compare", "--json").json["comparison"]
    by_name = {(one["list"], str(one["strategy"])): one for one in told}
    assert len(by_name) == len(told)
    (chosen,) = [one for one in told if one["chosen"]]
    assert chosen["list"] == "sqlite"
    alone = project.bide("cost", "-p", "s3", "--json").json["total"]
    s3 = next(one for one in told if one["list"] == "s3" and one["strategy"]["strategy"] == "adaptive")
    assert (s3["requests"], s3["dollars"]) == (alone["requests"], alone["dollars"])
    assert {one["list"] for one in told if not one["keeps_polls"]} == {"sqs"}


PRICES = """
[lists.s3]
region = "here"
as_of = 2026-11-30
tariffs = [{ classes = ["GET", "PUT", "LIST", "DELETE"], per_million = 100 }]
"""


def test_a_file_of_prices_replaces_them(empty: Project) -> None:
    (empty.folder / "ours.toml").write_text(PRICES)
    command = ("cost", "-p", "s3", "--poll-interval", "1s")
    ran = empty.bide(*command, "--prices", "ours.toml")
    assert "Amazon S3 Standard (here) as of 2026-11-30" in ran.out
    assert rows(ran.out)["GET idle fetches"] == "$259.20"


def test_a_file_of_prices_may_be_named_in_the_declarations(project: Project) -> None:
    (project.folder / "ours.toml").write_text(PRICES)
    project.declare('\n[cost]\nprices = "ours.toml"\n')
    assert project.bide("check").status == 0
    assert "(here)" in project.bide("cost", "-p", "s3").out


def test_a_wrong_file_of_prices_is_refused_with_its_place(empty: Project) -> None:
    (empty.folder / "ours.toml").write_text(PRICES.replace("per_million", "per_milion"))
    ran = empty.bide("cost", "-p", "s3", "--prices", "ours.toml")
    assert ran.status == 1
    assert "ours.toml: lists.s3.tariffs[0].per_milion" in ran.err
    assert "Did you mean 'per_million'?" in ran.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("-p", "dynamodb"), 1, "known are memory, postgresql, redis, s3, sqlite, sqs"),
        (("-p", "sqlit"), 1, "Did you mean 'sqlite'?"),
        (("-p", "s3", "--price-list", "sqs"), 1, "lists for it: r2, s3"),
        (("-p", "s3", "--price-list", "elasticach"), 1, "Did you mean 'elasticache'?"),
        (("-p", "s3", "--items", "100"), 2, "100/day"),
        (("-p", "s3", "--busy", "10"), 2, "Write 10%."),
        (("-p", "s3", "--workers", "0"), 2, "--workers"),
        (("-p", "s3", "--polling-strategy", "fxied"), 2, "Did you mean 'fixed'?"),
        (("http://127.0.0.1:1/metrics",), 2, "is for --observed"),
    ],
)
def test_a_slip_is_told_with_a_step(
    empty: Project, arguments: tuple[str, ...], status: int, said: str
) -> None:
    ran = empty.bide("cost", *arguments)
    assert ran.status == status
    assert said in " ".join(ran.err.replace("│", "").split())
    assert ran.out == ""


def test_another_list_of_prices_can_be_named(empty: Project) -> None:
    told: Any = empty.bide("cost", "-p", "s3", "--price-list", "r2", "--json").json
    assert told["prices"]["title"] == "Cloudflare R2 Standard"
    assert Path("bide.toml").exists() is False


# --- the page about costs ----------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "cost.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("command", "output"), re.findall(r"```console\n\$ bide (cost (?!--observed).*)\n((?:.*\n)*?)```", PAGE)
)
def test_the_examples_of_the_page_are_what_is_printed(empty: Project, command: str, output: str) -> None:
    assert empty.bide(*command.split()).out == output


def test_the_file_of_prices_on_the_page_is_right(empty: Project) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (empty.folder / "ours.toml").write_text(text)
    ran = empty.bide("cost", "-p", "s3", "--prices", "ours.toml", "--price-list", "ours")
    assert "MinIO in our cellar" in ran.out
    assert "eu-central-1" in empty.bide("cost", "-p", "s3", "--prices", "ours.toml").out


def test_the_page_says_of_each_store_what_it_is_asked(empty: Project) -> None:
    def said(*several: Requests) -> str:
        total: dict[str, Decimal] = {}
        for requests in several:
            for name, number in requests.items():
                total[name] = total.get(name, Decimal(0)) + number
        return ", ".join(f"{number.normalize():f} {name}" for name, number in total.items()) or "–"

    for model in MODELS.values():
        if model.kind == "memory":
            continue
        fetch = said(model.idle_fetch, model.waiting.besides if model.waiting else {})
        cells = [
            fetch + (", for each queue" if model.per_queue else ""),
            said(model.idle_minute, model.upkeep_minute),
            said(model.store_minute),
            said(model.item),
            said(model.batch),
            said(model.polls.unchanged) if model.polls else "keeps none",
            said(model.polls.changed) if model.polls else "keeps none",
        ]
        assert f"| {model.title} | {' | '.join(cells)} |" in PAGE
        assert f"| `{model.kind}` | {', '.join(f'`{name}`' for name in model.classes)} |" in PAGE


def test_the_page_names_every_list_of_prices(empty: Project) -> None:
    names = PAGE.rpartition("bide's own lists are ")[2]
    assert set(re.findall(r"`(\w+)`", names)) == set(price_lists())
