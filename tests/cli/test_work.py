"""`tick` and `run`: one pass, and going on until a signal."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import apsw
import pytest

from bide.cli.stopping import ECHO_S
from tests.cli.rig import Project, stop


def test_a_tick_reports_what_it_did(project: Project) -> None:
    first = project.bide("tick", "--json")
    assert (first.status, first.err) == (0, "")
    assert first.json == {
        "claimed": ["eu.price"],
        "changed": ["eu.price"],
        "unchanged": [],
        "failed": [],
        "deliveries": {"succeeded": 1, "retried": 0, "dead": 0, "given_back": 0, "lost": 0},
        "failed_deliveries": [],
    }
    assert [event["data"] for event in project.shop.received] == [{"price": 101.5, "symbol": "OAK"}]
    second = project.bide("tick", "--json")
    assert (second.status, second.json["claimed"]) == (0, [])
    assert project.bide("tick").out == "no poll was due\n"


def test_a_failed_delivery_is_reported_with_its_subscriber_and_reason(project: Project) -> None:
    project.shop.hook_status = 503
    first = project.bide("tick", "--json")
    assert first.status == 0
    (failed,) = first.json["failed_deliveries"]
    assert set(failed) == {"subscriber", "delivery", "outcome", "error"}
    assert (failed["subscriber"], failed["outcome"]) == ("audit", "retried")
    assert failed["delivery"].endswith(".audit")
    assert "503" in failed["error"]
    project.shop.hook_status = 410
    project.bide("deliveries", "discard", failed["delivery"])
    project.bide("deliveries", "retry", failed["delivery"])
    human = project.bide("tick")
    assert f"dead     {failed['delivery']} to audit: " in human.err
    assert "410" in human.err


def test_a_tick_that_has_nothing_to_do_by_its_declaration_says_so(project: Project) -> None:
    project.bide("tick")
    project.bide("subscribers", "end", "audit")
    assert "no poll is active; bide plan says why" in project.bide("tick").err
    heard = (project.folder / "bide.toml").read_text()
    (project.folder / "bide.toml").write_text(heard.partition("[subscribers.audit]")[0])
    nobody = project.bide("tick")
    assert nobody.status == 0
    assert "no poll is active; bide plan says why" in nobody.err
    (project.folder / "bide.toml").write_text("")
    assert "no connection has a poll" in project.bide("tick").err


def test_an_unchanged_answer_is_no_event(project: Project) -> None:
    project.bide("tick")
    project.bide("polls", "now", "eu.price")
    project.shop.price = "101.50"
    ticked = project.bide("tick", "--json")
    assert (ticked.json["changed"], ticked.json["unchanged"]) == ([], ["eu.price"])
    assert len(project.shop.received) == 1


def test_a_failed_poll_is_reported_and_the_exit_status_is_one(project: Project) -> None:
    project.shop.down = True
    failed = project.bide("tick", "--json")
    assert failed.status == 1
    (failure,) = failed.json["failed"]
    assert failure["poll"] == "eu.price"
    assert "503" in failure["error"]
    project.bide("polls", "now", "eu.price")
    human = project.bide("tick")
    assert human.status == 1
    assert human.out.startswith("1 poll called: 0 changed, 0 unchanged, 1 failed")
    assert "eu.price" in human.err
    assert "eu.price" in project.bide("status").out


def test_a_database_of_a_newer_version_is_left_alone(project: Project) -> None:
    project.bide("tick")
    database = apsw.Connection(str(project.folder / "bide.db"))
    database.execute("UPDATE meta SET schema_version = schema_version + 1000, written_by = '9.9'")
    database.close()
    for command in (["tick"], ["status"], ["polls", "list"]):
        refused = project.bide(*command)
        assert refused.status == 1
        assert "written by bide 9.9" in refused.err


def test_a_file_that_is_no_database_is_said_so(project: Project) -> None:
    (project.folder / "bide.db").write_bytes(b"this is not a database, however long it may be. " * 100)
    refused = project.bide("tick")
    assert (refused.status, refused.out) == (1, "")
    assert "bide.db" in refused.err


def waited(folder: Path, log: list[dict[str, object]], event: str, lines: object) -> None:
    """Read log lines until one of ``event``."""
    for line in lines:  # type: ignore[attr-defined]  # a text stream
        log.append(json.loads(line))
        if log[-1]["event"] == event:
            return
    raise AssertionError(f"no {event} in {log}, {list(folder.iterdir())}")


def test_run_logs_json_and_stops_gracefully(project: Project) -> None:
    process = project.start("run", "--no-live")
    log: list[dict[str, object]] = []
    waited(project.folder, log, "delivery.succeeded", process.stderr)
    ended = stop(process)
    log += [json.loads(line) for line in ended.err.splitlines()]
    assert (ended.status, ended.out) == (0, "")
    words = [line["event"] for line in log]
    assert words[0] == "engine.running"
    assert words[-3:] == ["engine.stopping", "engine.stopped", "run.ended"]
    assert "poll.changed" in words
    assert "1 changed" in str(log[-1]["message"])
    assert log[-1]["succeeded"] == 1
    assert len(project.shop.received) == 1


def test_run_goes_on_where_the_last_process_was_killed(project: Project) -> None:
    project.shop.hook_status = 503
    process = project.start("run", "--no-live")
    waited(project.folder, [], "delivery.failing", process.stderr)
    assert stop(process, signal.SIGKILL).status == -signal.SIGKILL
    project.shop.hook_status = 204
    process = project.start("run", "--no-live")
    log: list[dict[str, object]] = []
    waited(project.folder, log, "delivery.succeeded", process.stderr)
    assert stop(process, signal.SIGINT).status == 0
    assert len({event["id"] for event in project.shop.received}) == 1


SLOW = """
[subscribers.slow]
on = "shop.PriceChanged"
command = ["sleep", "600"]
timeout = "1h"
"""


def test_a_second_signal_does_not_wait(project: Project) -> None:
    project.declare(SLOW)
    process = project.start("run", "--no-live")
    waited(project.folder, [], "delivery.succeeded", process.stderr)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    waited(project.folder, [], "engine.stopping", process.stderr)
    time.sleep(2 * ECHO_S)
    assert stop(process, signal.SIGTERM).status == 0
    assert time.monotonic() - began < 25  # the grace of 30 s was cut short
    pending = project.bide("deliveries", "list", "-s", "slow", "--json").json["deliveries"]
    assert [delivery["state"] for delivery in pending] == ["pending"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_tick_and_gives_back_what_was_under_way(project: Project, number: int) -> None:
    begun = project.folder / "begun"
    project.declare(SLOW.replace('["sleep", "600"]', f'["sh", "-c", "echo $$ > {begun}; exec sleep 600"]'))
    process = project.start("tick")
    while not (begun.exists() and begun.read_text().endswith("\n")):
        time.sleep(0.02)
        assert process.poll() is None
    assert stop(process, number).status == 130
    (slow,) = project.bide("deliveries", "list", "-s", "slow", "--json").json["deliveries"]
    assert (slow["state"], slow["attempts"]) == ("pending", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


def test_run_warns_once_while_a_poll_fails(project: Project) -> None:
    project.shop.down = True
    process = project.start("run", "--no-live", "--log-level", "warning")
    log: list[dict[str, object]] = []
    waited(project.folder, log, "poll.failing", process.stderr)
    ended = stop(process)
    assert ended.status == 0
    assert [line["event"] for line in log] == ["poll.failing"]
    assert "503" in str(log[0]["error"])
