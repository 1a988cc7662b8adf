"""`submit`, `work …`, `queues` and `settings`: what is in queues, and mending it."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bide.app import load_app
from bide.cli.main import cli
from bide.cli.mending import purge_items, retry_all
from bide.cli.progress import progress
from bide.telemetry import TaskSettled
from tests.cli.rig import Ran

JOBS = """
from datetime import datetime

from bide import App, Discard

app = App("sqlite:///jobs.db")


@app.task(queue="mail", max_attempts=1, keep_result="1h")
async def send_mail(to: str, subject: str, times: int = 1, at_noon: datetime | None = None) -> str:
    if subject == "bad":
        raise ValueError("no such address")
    return f"sent {times} to {to}"


@app.task
def tidy(days: int = 3) -> None:
    if days > 100:
        raise Discard("that is too long")


app.queue("mail", limit=10, per_key=2)
"""

_numbers = itertools.count()


@dataclass(frozen=True)
class Jobs:
    """A folder with an app of two tasks, and commands for it run in this process."""

    folder: Path
    target: str

    def bide(self, *arguments: str, typed: str | None = None) -> Ran:
        words = [*arguments, "-a", self.target] if "--help" not in arguments else [*arguments]
        result = CliRunner().invoke(cli, words, input=typed)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def submit(self, *arguments: str) -> str:
        done = self.bide("submit", *arguments, "--json")
        assert done.status == 0, done.err
        return str(done.json["id"])

    def items(self, *options: str) -> list[dict[str, Any]]:
        found = self.bide("work", "list", *options, "--json").json["items"]
        return list(found)

    def work(self, seconds: float = 30.0) -> None:
        """Run a worker until nothing that could be had is left."""
        app = load_app(self.target)

        async def until_done() -> None:
            stopping, settled = asyncio.Event(), asyncio.Event()
            app.telemetry.listen(lambda record: settled.set() if isinstance(record, TaskSettled) else None)
            async with app.open(), asyncio.timeout(seconds):
                working = asyncio.ensure_future(app.worker().run(stopping=stopping))
                while any(one.running or one.oldest_ms is not None for one in await app.provider.counts()):
                    await settled.wait()
                    settled.clear()
                stopping.set()
                await working

        asyncio.run(until_done())


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_APP", raising=False)
    name = f"jobs_{next(_numbers)}"  # modules stay in memory, so each test has one of its own
    (tmp_path / f"{name}.py").write_text(JOBS)
    yield Jobs(tmp_path, f"{name}:app")
    sys.modules.pop(name, None)


# --- submit -------------------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_a_worker_gets_the_arguments(jobs: Jobs) -> None:
    done = jobs.bide("submit", "send_mail", "to=a@example.org", "subject=hi", "times=3")
    assert (done.status, done.err) == (0, "")
    jobs.work()
    shown = jobs.bide("work", "show", done.out.strip(), "--json").json
    assert (shown["state"], shown["result"]) == ("done", "sent 3 to a@example.org")
    assert shown["arguments"] == {"to": "a@example.org", "subject": "hi", "times": 3}


def test_arguments_are_texts_json_or_one_object(jobs: Jobs) -> None:
    whole = json.dumps({"to": "a", "subject": "b=c", "times": 2})
    ids = [
        jobs.submit("send_mail", "to=a", "subject=b=c", "times:=2"),
        jobs.submit("send_mail", "to=a", 'subject:="b=c"', "times=2"),
        jobs.submit("send_mail", whole),
    ]
    for one in ids:
        assert jobs.bide("work", "show", one, "--json").json["arguments"] == json.loads(whole)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["send_mail", "to=a"], ["subject is missing"]),
        (["send_mail", "to=a", "subject=b", "times=many"], ["times", "valid integer"]),
        (["send_mail", "to=a", "subject=b", "tims=1"], ["no parameter 'tims'", "Did you mean 'times'"]),
        (["send_mail", "to=a", "subject"], ["'subject' is not NAME=TEXT, NAME:=JSON or a JSON object"]),
        (["send_mail", "to=a", "to=b"], ["to is given twice"]),
        (["send_mail", "to:=a"], ["to is not JSON"]),
        (["send_mail", "{to: 1}"], ["the JSON object is not JSON"]),
        (["tidy", "--delay", "soon"], ["--delay", "'soon' is not a duration"]),
        (["tidy", "--at", "noon"], ["--at", "'noon' is not an instant"]),
        (["tidy", "--at", "2026-01-31T09:00:00"], ["--at", "no offset from UTC; write 2026-01-31T09:00:00Z"]),
        (["tidy", "--within", "-1"], ["--within"]),
        (["tidy", "--key", ""], ["--key"]),
    ],
)
def test_what_is_wrong_with_a_submission_is_said_and_nothing_stored(
    jobs: Jobs, arguments: list[str], told: list[str]
) -> None:
    done = jobs.bide("submit", *arguments)
    assert (done.status, done.out) == (2, "")
    said = " ".join(line.strip("│ ") for line in done.err.splitlines())
    assert not [text for text in told if text not in said], said
    assert jobs.items() == []


def test_a_task_that_is_not_there_is_answered_with_the_nearest(jobs: Jobs) -> None:
    done = jobs.bide("submit", "sendmail")
    assert (done.status, done.err) == (1, "error: no task named 'sendmail'; did you mean 'send_mail'?\n")


def test_options_reach_the_item(jobs: Jobs) -> None:
    one = jobs.submit(
        *("tidy", "--delay", "1h", "--within", "2h", "--priority", "7", "--limit-key", "tenant", "--key", "k")
    )
    shown = jobs.bide("work", "show", one, "--json").json
    assert (shown["priority"], shown["limit_key"], shown["key"]) == (7, "tenant", "k")
    assert shown["enqueued_at"] < shown["visible_at"] < shown["expires_at"]
    later = jobs.bide("work", "show", jobs.submit("tidy", "--at", "2099-01-31T09:00:00+01:00"), "--json").json
    assert later["visible_at"] == "2099-01-31T08:00:00.000Z"


def test_a_key_again_is_the_same_item_and_another_payload_an_error(jobs: Jobs) -> None:
    first = jobs.bide("submit", "tidy", "days=1", "--key", "k", "--json").json
    again = jobs.bide("submit", "tidy", "days=1", "--key", "k", "--json").json
    assert (first["new"], again["new"], again["id"]) == (True, False, first["id"])
    said = jobs.bide("submit", "tidy", "days=1", "--key", "k")
    assert (said.out, said.err) == (f"{first['id']}\n", "it was there already, under the key 'k'\n")
    other = jobs.bide("submit", "tidy", "days=2", "--key", "k")
    assert (other.status, other.out) == (1, "")
    assert first["id"] in other.err


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (["to=a", "subject=b", "key=k"], "write --key in place of it"),
        (["to=a", "subject=b", "limit_key:=1"], "write --limit-key in place of it"),
        (['{"to": "a", "subject": "b", "delay": 3}'], "write --delay in place of it"),
        (["to=a", "subject=b", "transaction=x"], "leave it out"),
        (["to=a", "subject=b", "keep_result=1h"], "leave it out"),
    ],
)
def test_an_argument_that_is_an_option_is_not_taken_for_one(
    jobs: Jobs, arguments: list[str], step: str
) -> None:
    done = jobs.bide("submit", "send_mail", *arguments)
    assert (done.status, done.out) == (2, "")
    assert step in " ".join(done.err.replace("│", "").split())


def test_nothing_is_submitted_to_a_store_that_ends_with_the_command(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / f"{jobs.target.partition(':')[0]}.py"
    path.write_text(JOBS.replace("sqlite:///jobs.db", "memory://"))
    done = jobs.bide("submit", "tidy")
    assert done.status == 1
    assert "nothing outlives the process" in done.err


# --- looking ------------------------------------------------------------------------------------------------


def test_a_list_shows_items_by_queue_state_and_task_newest_first(jobs: Jobs) -> None:
    bad = jobs.submit("send_mail", "to=a", "subject=bad")
    jobs.work()
    first, second = jobs.submit("tidy", "days=5"), jobs.submit("tidy", "days=6")
    waiting = jobs.submit("send_mail", "to=a", "subject=hi", "--delay", "1h")
    assert [item["id"] for item in jobs.items("--queue", "default")] == [second, first]
    assert [item["id"] for item in jobs.items("--state", "dead")] == [bad]
    assert {item["id"] for item in jobs.items("--task", "send_mail")} == {bad, waiting}
    assert len(jobs.items()) == 4
    assert len(jobs.items("-n", "3")) == 3
    (dead,) = jobs.items("--queue", "mail", "--state", "dead", "--task", "send_mail")
    assert (dead["attempts"], dead["max_attempts"], dead["queue"]) == (1, 1, "mail")
    assert "no such address" in dead["error"]
    assert "arguments" not in dead
    human = jobs.bide("work", "list").out
    assert [line.split()[0] for line in human.splitlines()[:2]] == ["work", waiting]
    assert f"{bad}: " in human
    assert "in 59m" in human or "in 1h" in human


def test_a_list_goes_on_behind_an_id(jobs: Jobs) -> None:
    ids = [jobs.submit("tidy", f"days={number}") for number in range(5)]
    page = jobs.bide("work", "list", "-q", "default", "-n", "2", "--json").json
    assert [item["id"] for item in page["items"]] == [ids[4], ids[3]]
    rest = jobs.items("-q", "default", "-n", "10", "--after", page["next_after"])
    assert [item["id"] for item in rest] == [ids[2], ids[1], ids[0]]
    assert jobs.bide("work", "list", "--after", ids[0]).status == 2
    assert jobs.bide("work", "list", "-q", "default", "--after", "nobody").status == 1
    assert f"--after {ids[3]}" in jobs.bide("work", "list", "-q", "default", "-n", "2").err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["work", "list", "--queue", "mial"], "no queue named 'mial'; did you mean 'mail'?"),
        (["work", "list", "--task", "sendmail"], "no task named 'sendmail'; did you mean 'send_mail'?"),
        (["work", "purge", "--queue", "defalt", "--state", "dead"], "did you mean 'default'?"),
        (["work", "retry", "--queue", "malls", "--state", "dead"], "did you mean 'mail'?"),
        (["work", "show", "nothing"], "no work item named 'nothing'; `bide work list` shows"),
        (["work", "discard", "nothing"], "no work item named 'nothing'"),
        (["work", "retry", "nothing"], "no work item named 'nothing'"),
    ],
)
def test_names_that_are_not_there(jobs: Jobs, arguments: list[str], told: str) -> None:
    jobs.submit("tidy")
    done = jobs.bide(*arguments)
    assert (done.status, done.out) == (1, "")
    assert told in done.err


def test_before_anything_is_kept_commands_say_so(jobs: Jobs) -> None:
    for words in (["work", "list"], ["queues"], ["work", "purge", "-q", "mail", "--state", "dead"]):
        done = jobs.bide(*words)
        assert done.status == 0
        assert "nothing is kept yet" in done.err
    assert not (jobs.folder / "jobs.db").exists()
    assert [row["queue"] for row in jobs.bide("queues", "--json").json["queues"]] == ["default", "mail"]


def test_queues_counts_states_and_shows_limits_and_tasks(jobs: Jobs) -> None:
    jobs.submit("send_mail", "to=a", "subject=bad")
    jobs.submit("send_mail", "to=a", "subject=hi")
    jobs.work()
    jobs.submit("send_mail", "to=a", "subject=hi", "--delay", "1h")
    jobs.submit("tidy")
    default, mail = jobs.bide("queues", "--json").json["queues"]
    assert {word: mail[word] for word in ("ready", "running", "done", "dead", "oldest_ms")} == {
        "ready": 1,
        "running": 0,
        "done": 1,
        "dead": 1,
        "oldest_ms": None,
    }
    assert (mail["limit"], mail["per_key"], mail["tasks"], mail["declared"]) == (10, 2, ["send_mail"], True)
    assert (default["queue"], default["ready"], default["limit"], default["tasks"]) == (
        "default",
        1,
        None,
        ["tidy"],
    )
    assert default["oldest_ms"] >= 0
    head, first, second = jobs.bide("queues").out.splitlines()
    assert head.split()[:5] == ["queue", "ready", "running", "done", "dead"]
    assert first.split()[:2] == ["default", "1"]
    assert second.split()[:5] == ["mail", "1", "0", "1", "1"]


def test_check_and_status_speak_of_tasks_and_queues_too(jobs: Jobs) -> None:
    assert "0 subscribers, 2 tasks\n" in jobs.bide("check").out
    assert jobs.bide("status", "--json").json["queues"] == []
    jobs.submit("tidy", "--delay", "1h")
    (queue,) = jobs.bide("status", "--json").json["queues"]
    assert queue == {"queue": "default", "ready": 1, "running": 0, "done": 0, "dead": 0, "oldest_ms": None}
    assert "work        1 ready, 0 running, 0 done, 0 dead, in queue default" in jobs.bide("status").out


def test_a_queue_that_nobody_declares_any_more_is_shown(jobs: Jobs) -> None:
    jobs.submit("tidy")
    path = jobs.folder / f"{jobs.target.partition(':')[0]}.py"
    path.write_text(JOBS.replace("@app.task\ndef", '@app.task(queue="chores")\ndef'))
    sys.modules.pop(path.stem)
    rows = {row["queue"]: row for row in jobs.bide("queues", "--json").json["queues"]}
    assert (rows["default"]["ready"], rows["default"]["declared"]) == (1, False)
    assert rows["chores"]["tasks"] == ["tidy"]
    (item,) = jobs.items("--queue", "default")
    assert "no worker of it takes this" in jobs.bide("work", "show", item["id"]).err


def test_show_has_arguments_and_result_for_people(jobs: Jobs) -> None:
    one = jobs.submit("send_mail", "to=a", "subject=hi")
    jobs.work()
    text = jobs.bide("work", "show", one).out
    assert "sent 1 to a" in text
    assert '"subject": "hi"' in text
    assert "state         done" in text


# --- mending ------------------------------------------------------------------------------------------------


def test_retry_makes_what_ended_ready_again(jobs: Jobs) -> None:
    bad, fine = (
        jobs.submit("send_mail", "to=a", "subject=bad"),
        jobs.submit("send_mail", "to=a", "subject=hi"),
    )
    jobs.work()
    waiting = jobs.submit("tidy")
    done = jobs.bide("work", "retry", bad, waiting, "--json")
    assert (done.status, done.json) == (0, {"retried": [bad], "count": 1})
    assert (jobs.bide("work", "show", bad, "--json").json["state"]) == "ready"
    human = jobs.bide("work", "retry", fine, waiting)
    assert human.out == f"ready again: {fine}\n"
    assert f"left as they are: {waiting}" in human.err


def test_retry_of_a_whole_queue_takes_all_that_had_ended_so(jobs: Jobs) -> None:
    for _ in range(7):
        jobs.submit("send_mail", "to=a", "subject=bad")
    fine = jobs.submit("send_mail", "to=a", "subject=hi")
    jobs.work()
    done = jobs.bide("work", "retry", "--queue", "mail", "--state", "dead", "--task", "send_mail", "--json")
    assert done.json == {"retried": None, "count": 7}
    assert {item["state"] for item in jobs.items("-q", "mail") if item["id"] != fine} == {"ready"}
    assert (
        jobs.bide("work", "retry", "-q", "mail", "--state", "dead").out
        == "0 work items of mail ready again\n"
    )


def test_retry_of_a_task_that_there_is_not_says_so(jobs: Jobs) -> None:
    jobs.submit("tidy")
    done = jobs.bide("work", "retry", "-q", "default", "--state", "dead", "--task", "tidi")
    assert (done.status, done.out) == (1, "")
    assert "no task named 'tidi'; did you mean 'tidy'?" in done.err


def test_retry_of_a_queue_ends_although_a_worker_ends_them_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if each item that is made ready again were dead before the next is looked for."""
    ids = [jobs.submit("tidy", f"days={number}") for number in range(200, 205)]
    jobs.work()
    monkeypatch.setattr("bide.cli.mending._PAGE", 2)
    requeued = list[str]()

    async def requeue_and_bury(provider: Any, wanted: list[str]) -> list[str]:
        made: list[str] = await begun(provider, wanted)
        requeued.extend(made)
        await asyncio.sleep(0.002)  # so that it ends later than the command began
        await provider.discard(made, "again")
        return made

    from bide.providers.sqlite import SqliteProvider

    begun = SqliteProvider.requeue
    monkeypatch.setattr(SqliteProvider, "requeue", requeue_and_bury)
    retry_all(jobs.target, queue="default", state="dead", task=None, as_json=False)
    assert sorted(requeued) == sorted(ids)
    assert capsys.readouterr().out == "5 work items of default ready again\n"


@pytest.mark.parametrize(
    "words", [[], ["--queue", "mail"], ["--state", "dead"], ["some-id", "--queue", "mail", "--state", "dead"]]
)
def test_retry_wants_ids_or_a_queue_and_a_state(jobs: Jobs, words: list[str]) -> None:
    done = jobs.bide("work", "retry", *words)
    assert (done.status, done.out) == (2, "")


def test_discard_keeps_the_reason_and_can_be_undone(jobs: Jobs) -> None:
    one = jobs.submit("tidy")
    done = jobs.bide("work", "discard", one, "--reason", "not needed")
    assert done.out == f"discarded {one}; undo with: bide work retry {one} -a {jobs.target}\n"
    (item,) = jobs.items("--state", "dead")
    assert item["error"] == "not needed"
    again = jobs.bide("work", "discard", one)
    assert (again.status, again.out) == (0, "")
    assert f"not waiting, so left as they are: {one}" in again.err
    assert jobs.bide("work", "discard", one, "--reason", " ").status == 1


def test_purge_says_how_many_and_asks(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        jobs.submit("send_mail", "to=a", "subject=bad")
    jobs.submit("send_mail", "to=a", "subject=hi")
    jobs.work()
    nobody = jobs.bide("work", "purge", "-q", "mail", "--state", "dead")
    assert (
        nobody.status,
        "--yes: is needed where nobody can be asked: Remove 3 dead work items" in nobody.err,
    ) == (
        1,
        True,
    )
    asked = list[str]()

    def answered(question: str, *, err: bool) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("bide.cli.mending.sys.stdin", _Terminal())
    monkeypatch.setattr("typer.confirm", answered)
    assert purge_items(jobs.target, queue="mail", state="dead", yes=False, as_json=False) is False
    assert asked == ["Remove 3 dead work items of mail for good?"]
    assert len(jobs.items("--state", "dead")) == 3
    done = jobs.bide("work", "purge", "-q", "mail", "--state", "dead", "--yes", "--json")
    assert done.json == {"queue": "mail", "state": "dead", "purged": 3}
    assert [item["state"] for item in jobs.items()] == ["done"]
    assert (
        jobs.bide("work", "purge", "-q", "mail", "--state", "done", "-y").out
        == "removed 1 done work item of mail\n"
    )


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_purge_of_many_goes_in_steps(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(7):
        jobs.submit("send_mail", "to=a", "subject=bad")
    jobs.work()
    monkeypatch.setattr("bide.cli.mending._PAGE", 2)
    assert jobs.bide("work", "purge", "-q", "mail", "--state", "dead", "-y", "--json").json["purged"] == 7


def test_long_work_shows_on_a_terminal_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Screen()
    monkeypatch.setattr("bide.cli.progress.sys.stderr", terminal)
    with progress("removed") as shown:
        shown.add(500)
        shown.add(734)
    assert "removed: 500 so far" in terminal.getvalue()
    assert "removed: 1,234 so far" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_long_work_that_is_interrupted_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with progress("removed") as shown:
            shown.add(500)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err == "removed: 500 done before this\n"


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- settings ----------------------------------------------------------------------------------------------------


def test_settings_shows_each_value_with_its_layer(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_POLLING_MAX_INTERVAL_MS", "900")
    monkeypatch.setenv("BIDE_WORKER_QUEUES", "mail,default")
    (jobs.folder / "bide.toml").write_text(
        '[worker]\nconcurrency = 5\n[worker.polling]\nmin_interval = "50ms"\n'
    )
    result = CliRunner().invoke(cli, ["settings", "--json"])
    rows = {row.pop("name"): row for row in json.loads(result.stdout)["settings"]}
    assert rows["max_interval_ms"] == {
        "value": 900,
        "layer": "environment",
        "from": "BIDE_POLLING_MAX_INTERVAL_MS",
    }
    assert rows["min_interval_ms"] == {"value": 50, "layer": "file", "from": "worker.polling.min_interval"}
    assert rows["concurrency"] == {"value": 5, "layer": "file", "from": "worker.concurrency"}
    assert rows["queues"]["value"] == ["mail", "default"]
    assert rows["grace_ms"] == {"value": 30_000, "layer": "default", "from": None}
    lines = CliRunner().invoke(cli, ["settings"]).stdout.splitlines()
    assert lines[0].split() == ["setting", "value", "from"]
    assert "BIDE_POLLING_MAX_INTERVAL_MS (environment)" in "\n".join(lines)


def test_a_queue_of_another_service_in_the_environment_stops_a_worker_and_nothing_else(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_WORKER_QUEUES", "mial")
    jobs.submit("tidy")
    assert jobs.bide("queues").status == 0
    for command in (["worker"], ["run", "--no-live"]):
        refused = jobs.bide(*command)
        assert refused.status == 1
        assert "no queue named 'mial'; did you mean 'mail'?" in refused.err


def test_settings_and_check_refuse_what_is_wrong_in_the_environment(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_POLLING_STRATGY", "fixed")
    for command in ("settings", "check"):
        done = jobs.bide(command)
        assert done.status == 1
        assert "Did you mean 'BIDE_POLLING_STRATEGY'?" in done.out + done.err
