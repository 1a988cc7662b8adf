"""`init`, `check` and `plan`: what is declared, without running it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.rig import Project


def test_init_writes_a_file_that_is_right(project: Project) -> None:
    made = project.bide("init", "first.toml")
    assert made.status == 0
    assert "bide check -a first.toml" in made.out
    checked = project.bide("check", "-a", "first.toml", "--strict")
    assert (checked.status, checked.err) == (0, "")
    assert checked.out.startswith("first.toml is right: 1 connection, 1 poll (1 active), 1 subscriber")


def test_init_keeps_a_file_that_is_there(project: Project) -> None:
    before = (project.folder / "bide.toml").read_text()
    refused = project.bide("init")
    assert refused.status == 1
    assert "bide.toml" in refused.err
    assert "--force" in refused.err
    assert (project.folder / "bide.toml").read_text() == before
    assert project.bide("init", "--force").status == 0
    assert (project.folder / "bide.toml").read_text() != before


def test_init_says_why_it_cannot_write(project: Project) -> None:
    refused = project.bide("init", "no/such/folder/bide.toml")
    assert refused.status == 1
    assert "cannot be written: No such file or directory" in refused.err


def test_check_says_every_mistake_at_once(project: Project) -> None:
    project.declare('polls = { prize = "1h" }\n', without='\n[subscribers.audit]\non = "shop.PriceChanged"')
    text = (project.folder / "bide.toml").read_text().replace('every = "1h"', 'every = "soon"', 1)
    (project.folder / "bide.toml").write_text(text)
    checked = project.bide("check", "--json")
    assert checked.status == 1
    assert checked.json["ok"] is False
    assert checked.json["warnings"] == []
    assert len(checked.json["mistakes"]) >= 2
    for mistake in checked.json["mistakes"]:
        assert set(mistake) == {"code", "where", "message", "suggestion"}
    assert "packages.shop.polls.price.every" in {mistake["where"] for mistake in checked.json["mistakes"]}
    human = project.bide("check")
    assert human.status == 1
    assert all(mistake["message"] in human.out for mistake in checked.json["mistakes"])
    assert human.out.rstrip().endswith("mistakes")


@pytest.mark.parametrize(
    ("text", "code"), [("[app\n", "config.syntax_invalid"), (None, "config.file_unreadable")]
)
def test_check_of_what_cannot_be_read_is_json_too(project: Project, text: str | None, code: str) -> None:
    file = project.folder / "bide.toml"
    file.unlink() if text is None else file.write_text(text)
    checked = project.bide("check", "--json")
    assert checked.status == 1
    assert checked.json["ok"] is False
    (mistake,) = checked.json["mistakes"]
    assert mistake["code"] == code
    assert "bide.toml" in mistake["where"]


def test_a_missing_variable_is_a_warning_and_a_mistake_when_strict(project: Project) -> None:
    project.declare('secret = "${NOT_SET_ANYWHERE}"\n')
    checked = project.bide("check", "--json")
    assert (checked.status, checked.json["ok"]) == (0, True)
    assert [warning["code"] for warning in checked.json["warnings"]] == ["environment.variable_missing"]
    assert "NOT_SET_ANYWHERE" in project.bide("check").out
    strict = project.bide("check", "--strict", "--json")
    assert (strict.status, strict.json["ok"]) == (1, False)


def test_check_and_plan_make_no_database(project: Project) -> None:
    for command in ("check", "plan"):
        assert project.bide(command).status == 0
    assert [path.name for path in project.folder.iterdir()] == ["bide.toml"]


def test_plan_says_what_runs_and_what_does_not_and_why(project: Project) -> None:
    plan = project.bide("plan", "--json").json
    assert set(plan) == {"polls", "connections", "events"}
    price, stock = plan["polls"]
    assert price == {
        "name": "eu.price",
        "every_ms": 3_600_000,
        "active": True,
        "reason": price["reason"],
        "next_due": None,
    }
    assert (stock["name"], stock["active"], stock["next_due"]) == ("eu.stock", False, None)
    assert stock["reason"]
    assert plan["connections"] == [{"name": "eu", "max_concurrent": 2, "scope": "instance"}]
    assert {event["name"] for event in plan["events"]} == {"PriceChanged", "StockChanged"}
    human = project.bide("plan").out
    assert stock["reason"] in human
    assert "at most 2 calls at once, per instance" in human


def test_plan_knows_when_a_called_poll_is_due(project: Project) -> None:
    assert project.bide("tick").status == 0
    price = project.bide("plan", "--json").json["polls"][0]
    assert price["next_due"].endswith("Z")
    assert "in " in project.bide("plan").out


MODULE = """
from bide import App, Package

shop = Package("shop")
shop.operation("price", get="/price", answer={{"symbol": str, "price": "number"}}, retry=0)
changed = shop.event("PriceChanged", {{"symbol": str, "price": "number"}}, public=True)
shop.poll("price", call="price", every="1h", emits=changed)
app = App(tick="1s")
app.connect("eu", shop, base_url="{url}")

@app.subscribe(changed)
def tell(delivery):
    print("told of", delivery.data["price"])
"""


def test_an_app_in_a_module_is_a_target_too(project: Project) -> None:
    module = project.folder / "shop_module.py"
    module.write_text(MODULE.format(url=project.shop.url))
    ticked = project.bide("tick", "--app", "shop_module:app")
    assert ticked.status == 0
    assert "told of 101.5" in ticked.out


def test_a_module_or_attribute_that_is_not_there_is_named(project: Project) -> None:
    (project.folder / "other_module.py").write_text("from bide import App\napp = App()\n")
    missing = project.bide("plan", "-a", "no_such_module:app")
    assert (missing.status, missing.out) == (1, "")
    assert "no_such_module" in missing.err
    wrong = project.bide("plan", "-a", "other_module:ap")
    assert wrong.status == 1
    assert "id you mean 'app'" in wrong.err
    checked = project.bide("check", "-a", "other_module:ap", "--json")
    assert (checked.status, checked.json["ok"]) == (1, False)


def test_the_target_may_come_from_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (project.folder / "bide.toml").rename(tmp_path / "sub" / "other.toml")
    monkeypatch.setenv("BIDE_APP", "sub/other.toml")
    assert project.bide("check").status == 0


@pytest.mark.parametrize("command", [["tick"], ["run", "--no-live"], ["status"], ["polls", "list"]])
def test_mistakes_are_said_by_every_command_without_a_traceback(project: Project, command: list[str]) -> None:
    project.declare("[connections.us]\n")
    wrong = project.bide(*command)
    assert (wrong.status, wrong.out) == (1, "")
    assert "connections.us" in wrong.err
    assert "Traceback" not in wrong.err


def test_help_loads_nothing_that_it_does_not_need() -> None:
    heavy = ["apsw", "pyreqwest", "pydantic", "jmespath", "asyncio", "rich.live", "bide.app", "bide.config"]
    program = (
        "import json, sys; import bide.cli.main; "
        f"print(json.dumps([name for name in {heavy!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_version_and_a_wrong_command_line(project: Project) -> None:
    version = project.bide("--version")
    assert (version.status, version.out) == (0, "bide 0.1.0\n")
    assert project.bide("--no-such-option").status == 2
    assert project.bide("polls", "forget").status == 2


@pytest.mark.parametrize(
    ("target", "says"),
    [("", "a file such as bide.toml"), ("bide.toml:", "-a bide.toml"), ("shop:", "-a shop:app")],
)
def test_a_target_that_names_nothing_is_said_so(project: Project, target: str, says: str) -> None:
    for command in ("plan", "status", "tick"):
        wrong = project.bide(command, "-a", target)
        assert (wrong.status, wrong.out) == (1, "")
        assert says in wrong.err
    checked = project.bide("check", "-a", target, "--json")
    (mistake,) = checked.json["mistakes"]
    assert (checked.status, mistake["where"]) == (1, "--app")
    assert says in mistake["suggestion"] or says in mistake["message"]


@pytest.mark.parametrize(
    "command", [["plan"], ["run"], ["polls"], ["polls", "list"], ["init"], ["check"], []]
)
def test_help_shows_switches_without_a_value(project: Project, command: list[str]) -> None:
    shown = project.bide(*command, "--help")
    assert shown.status == 0
    assert "bool" not in shown.out


def test_paths_in_printed_commands_are_quoted(project: Project) -> None:
    made = project.bide("init", "my polls.toml")
    assert "bide check -a 'my polls.toml'" in made.out
    project.bide("tick")
    (project.folder / "bide.toml").rename(project.folder / "two words.toml")
    paused = project.bide("polls", "pause", "eu.price", "-a", "two words.toml")
    assert "bide polls resume eu.price -a 'two words.toml'" in paused.out


def test_a_poll_whose_only_subscriptions_have_ended_is_off(project: Project) -> None:
    project.bide("tick")
    project.bide("subscribers", "end", "audit")
    price = project.bide("plan", "--json").json["polls"][0]
    why = "audit ended: ended by hand; `bide subscribers resume audit`"
    assert (price["active"], price["reason"], price["next_due"]) == (False, why, None)
    listed = project.bide("polls", "list", "--json").json["polls"][0]
    assert (listed["state"], listed["reason"]) == ("off", why)
    assert why in project.bide("polls", "list").out
    counts = project.bide("status", "--json").json["polls"]
    assert (counts["active"], counts["off"]) == (0, 2)
    project.bide("subscribers", "resume", "audit")
    assert project.bide("plan", "--json").json["polls"][0]["active"] is True


def test_a_poll_with_one_living_subscription_of_two_is_active(project: Project) -> None:
    project.declare('[subscribers.other]\non = "shop.PriceChanged"\ncommand = ["true"]\n')
    project.bide("tick")
    project.bide("subscribers", "end", "audit")
    assert project.bide("plan", "--json").json["polls"][0]["active"] is True


def test_an_ended_subscription_with_a_new_target_counts_as_living(project: Project) -> None:
    project.bide("tick")
    project.bide("subscribers", "end", "audit")
    text = (project.folder / "bide.toml").read_text().replace("/hook", "/elsewhere")
    (project.folder / "bide.toml").write_text(text)
    assert project.bide("plan", "--json").json["polls"][0]["active"] is True


def test_who_paused_a_poll_is_said(project: Project) -> None:
    project.bide("tick")
    project.bide("polls", "pause", "eu.price")
    assert project.bide("plan", "--json").json["polls"][0]["reason"] == "paused by hand"
    project.bide("polls", "resume", "eu.price")
    project.shop.gone = True
    project.bide("polls", "now", "eu.price")
    assert project.bide("tick").status == 1
    why = "paused: the server answered 410 Gone; `bide polls resume eu.price`"
    assert project.bide("plan", "--json").json["polls"][0]["reason"] == why
    assert why in project.bide("polls", "list").out
