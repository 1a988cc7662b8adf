"""``bide cost --observed``: counts that processes left, and metrics that they serve."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bide import App
from bide.cli.tallying import folder_of, kept_counts, tallied
from bide.core.observed import Counted, read_counts
from bide.testing import VirtualClock
from tests.cli.rig import Project, open_shop, stop
from tests.servers import eventually

HOUR = 3_600_000
BEGAN = 1_796_000_000_000


def leave(folder: Path, number: int, **changed: Any) -> Path:
    """Counts of a process on S3 that ran for two hours, as it would leave them in ``folder``."""
    given: dict[str, Any] = {
        "kind": "s3",
        "place": "s3://bucket",
        "since": BEGAN,
        "until": BEGAN + 2 * HOUR,
        "requests": {"GET": 7200, "LIST": 120},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:032x}.json"
    path.write_text(Counted(**given | changed).as_json())
    return path


# --- what processes leave ---------------------------------------------------------------------------------------


@asynccontextmanager
async def running(folder: Path, clock: VirtualClock) -> Any:
    app = App("sqlite:///work.db", folder=folder, clock=clock, environment={})
    async with app.open():
        provider: Any = app.provider
        clock.busy_while(lambda: provider.pending)
        async with tallied(app):
            yield app


def counts_in(folder: Path) -> list[Counted]:
    return [read_counts(path.read_text()) for path in kept_counts(folder)]


async def test_a_process_keeps_its_counts_every_minute_and_at_its_end(tmp_path: Path) -> None:
    clock = VirtualClock()
    began = clock.utc_ms()
    async with running(tmp_path, clock) as app:
        folder = folder_of(app)
        assert folder == tmp_path / ".bide" / "requests"
        await app.provider.counts()
        await clock.advance(61)
        await eventually(lambda: counts_in(folder)[0].until >= began + 60_000)  # a thread writes
        (kept,) = counts_in(folder)
        assert kept.requests == {"transaction": 1}
        assert (kept.kind, kept.place, kept.since) == ("sqlite", str(tmp_path / "work.db"), began)
        await app.provider.counts()
    (kept,) = counts_in(folder)
    assert kept.requests == {"transaction": 2}
    assert (tmp_path / ".bide" / ".gitignore").read_text() == "*\n"
    assert [path.suffix for path in folder.iterdir()] == [".json"]


async def test_counts_older_than_a_month_are_removed(tmp_path: Path) -> None:
    clock = VirtualClock()
    folder = tmp_path / ".bide" / "requests"
    old, young = leave(folder, 1), leave(folder, 2)
    strange = folder / "notes.json"
    strange.write_text("mine")
    now_s = clock.utc_ms() / 1000
    for path, days in ((old, 36), (young, 34), (strange, 90)):
        os.utime(path, (now_s, now_s - days * 86_400))
    async with running(tmp_path, clock):
        pass
    assert not old.exists()
    assert young.exists()
    assert strange.exists()


async def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".bide").write_text("a file where a folder should be")
    clock = VirtualClock()
    with caplog.at_level(logging.WARNING, "bide"):
        async with running(tmp_path, clock):
            for _ in range(3):
                await clock.advance(61)
    (warning,) = [record for record in caplog.records if "requests are not kept" in record.getMessage()]
    assert str(tmp_path / ".bide") in warning.getMessage()


async def test_nothing_is_kept_of_a_store_that_nothing_is_asked_of(tmp_path: Path) -> None:
    app = App("memory://", folder=tmp_path, clock=VirtualClock(), environment={})
    async with app.open(), tallied(app):
        pass
    assert not (tmp_path / ".bide").exists()


def test_a_worker_and_its_counts_by_file_and_by_metrics(project: Project) -> None:
    (project.folder / "work.py").write_text(
        "from bide import App\napp = App('sqlite:///work.db')\n@app.task\ndef hello() -> None: ...\n"
    )
    worker = project.start("worker", "work:app", "--metrics-port", "0", "--log-format", "json")
    assert worker.stderr is not None
    served = json.loads(worker.stderr.readline())["metrics"]
    time.sleep(0.3)
    ran = project.bide("cost", "-a", "work:app", "--observed", served, "--json")
    (store,) = ran.json["stores"]
    assert (store["kind"], store["store"]) == ("sqlite", None)
    (request,) = store["requests"]
    assert request["class"] == "transaction"
    assert request["counted"] >= 1
    assert stop(worker, signal.SIGINT).status == 0
    (store,) = project.bide("cost", "-a", "work:app", "--observed", "--json").json["stores"]
    assert store["store"] == str(project.folder / "work.db")
    assert store["requests"][0]["counted"] >= request["counted"]


def test_a_run_keeps_its_counts(project: Project) -> None:
    run = project.start("run", "--no-live")
    folder = project.folder / ".bide" / "requests"
    deadline = time.monotonic() + 20
    while not folder.exists() or not list(kept_counts(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert stop(run).status == 0
    assert project.bide("cost", "--observed").status == 0


# --- what is said of them --------------------------------------------------------------------------------------


def test_what_was_counted_is_scaled_to_a_month(project: Project) -> None:
    leave(project.folder / ".bide" / "requests", 1)
    ran = project.bide("cost", "--observed")
    assert ran.status == 0
    assert "counted: requests to s3://bucket by 1 process over 2h" in ran.out
    table = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line[:1].isupper()}
    assert table["GET"] == ["7,200", "2,592,000", "0.40", "$1.04"]
    assert table["LIST"] == ["120", "43,200", "5.00", "$0.22"]
    assert "as of 2026-" in ran.out
    (store,) = project.bide("cost", "--observed", "--json").json["stores"]
    assert store["covered_ms"] == 2 * HOUR
    assert store["total"] == {"requests": 2_635_200, "dollars": pytest.approx(1.2528), "unpriced": []}


def test_several_sources_are_summed_and_stores_told_apart(project: Project, tmp_path: Path) -> None:
    for host in ("one", "two"):
        leave(tmp_path / host, 1)
    alone = leave(tmp_path / "three", 7, kind="sqs", place="sqs://mail", requests={"receive": 360})
    sources = (str(tmp_path / "one"), str(tmp_path / "two"), str(alone))
    s3, sqs = project.bide("cost", "--observed", *sources, "--json").json["stores"]
    assert (s3["processes"], s3["requests"][0]["counted"]) == (2, 14_400)
    assert sqs["store"] == "sqs://mail"
    assert sqs["total"]["dollars"] == 0
    assert sqs["included"][0]["requests"] == 129_600
    printed = project.bide("cost", "--observed", *sources).out
    assert printed.count("counted: ") == 2


def test_a_short_time_and_one_with_pauses_are_said_to_be_so(project: Project) -> None:
    folder = project.folder / ".bide" / "requests"
    leave(folder, 1, until=BEGAN + 60_000)
    assert "1m says little of a month" in project.bide("cost", "--observed").out
    leave(folder, 2, since=BEGAN + 10 * HOUR, until=BEGAN + 12 * HOUR)
    said = project.bide("cost", "--observed").out
    assert "says little" not in said
    assert "something ran for 2h1m of these 12h" in said


def test_a_class_without_a_price_and_an_unknown_kind_are_said_to_be_so(project: Project) -> None:
    folder = project.folder / ".bide" / "requests"
    leave(folder, 1, requests={"OPTIONS": 5})
    leave(folder, 2, kind="floppy", place="floppy://a", requests={"seek": 5})
    said = project.bide("cost", "--observed").out
    assert "no price is known of OPTIONS" in said
    assert "no price is known of seek" in said


def test_without_counts_it_says_who_counts(project: Project) -> None:
    ran = project.bide("cost", "--observed")
    assert ran.status == 1
    assert "nothing was counted" in ran.err
    assert "bide worker" in ran.err


def test_a_price_list_may_be_chosen_for_what_was_counted(project: Project) -> None:
    leave(project.folder / ".bide" / "requests", 1)
    told = project.bide("cost", "--observed", "--price-list", "r2", "--json").json["stores"][0]
    assert told["prices"]["list"] == "r2"
    ran = project.bide("cost", "--observed", "--price-list", "r22")
    assert (ran.status, "Did you mean 'r2'?" in ran.err) == (1, True)


METRICS = """\
bide_provider_requests_total{class="GET",provider="s3"} 60.0
bide_provider_requests_created{class="GET",provider="s3"} 1.796e+09
"""


def test_a_file_of_metrics_counts_until_it_was_written(project: Project) -> None:
    path = project.folder / "metrics.txt"
    path.write_text(METRICS)
    os.utime(path, (1.796e9, 1.796e9 + 3600))
    (store,) = project.bide("cost", "--observed", "metrics.txt", "--json").json["stores"]
    assert store["covered_ms"] == HOUR
    assert store["requests"][0]["requests"] == 60 * 720


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.json", None, "there is no such file"),
        ("x.json", "{", "x.json"),
        ("x.json", '{"format": 9}', "it is not a file of counts"),
        ("x.txt", "bide_polls_total 3\n", "there are no counts of requests in it"),
        ("x.txt", METRICS.splitlines()[0], "since when"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(
    project: Project, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        (project.folder / name).write_text(text)
    ran = project.bide("cost", "--observed", name)
    assert ran.status == 1
    assert ran.err.startswith(f"error: {name}: ")
    assert said in ran.err


def test_a_source_that_is_no_text_is_named(project: Project) -> None:
    (project.folder / "x.bin").write_bytes(b"\xff\xfe\x00")
    assert "it is no text" in project.bide("cost", "--observed", "x.bin").err


def test_an_address_that_serves_no_metrics_is_named(project: Project) -> None:
    with open_shop() as other:
        ran = project.bide("cost", "--observed", f"{other.url}/price")
        assert "there are no counts of requests in it" in ran.err or "it is not a file of counts" in ran.err
        other.down = True
        ran = project.bide("cost", "--observed", f"{other.url}/price")
        assert re.search(r"it answered 503, and no metrics; they are at /metrics", ran.err)
    ran = project.bide("cost", "--observed", f"{other.url}/metrics")
    assert ran.status == 1
    assert "--metrics-port" in ran.err
