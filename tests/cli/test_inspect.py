"""`status`, `polls`, `events`, `deliveries` and `subscribers`: looking at what is kept, and mending it."""

from __future__ import annotations

import pytest

from tests.cli.rig import Project

LISTS = (
    (["polls", "list"], "polls"),
    (["events", "list"], "events"),
    (["deliveries", "list"], "deliveries"),
    (["subscribers", "list"], "subscribers"),
)


@pytest.fixture
def ticked(project: Project) -> Project:
    """A project whose price changed three times."""
    for price in ("101.5", "102", "99.25"):
        project.shop.price = price
        project.bide("polls", "now", "eu.price")
        assert project.bide("tick").status == 0
    return project


def change_again(project: Project, price: str) -> None:
    project.shop.price = price
    project.bide("polls", "now", "eu.price")
    project.bide("tick")


# --- before anything ran ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "key"), LISTS)
def test_before_the_first_tick_lists_are_empty_and_make_nothing(
    project: Project, command: list[str], key: str
) -> None:
    listed = project.bide(*command, "--json")
    assert listed.status == 0
    assert all(not entry.get("called_at") for entry in listed.json[key])
    assert project.bide(*command).status == 0
    assert not (project.folder / "bide.db").exists()


def test_status_before_the_first_tick(project: Project) -> None:
    status = project.bide("status", "--json")
    assert status.status == 0
    assert status.json["polls"] == {
        "active": 1,
        "off": 1,
        "paused": 0,
        "undeclared": [],
        "failing": [],
        "last_called_at": None,
    }
    assert status.json["events"] == {"latest_seq": None, "latest_at": None}
    assert "none yet" in project.bide("status").out
    assert not (project.folder / "bide.db").exists()


# --- status ---------------------------------------------------------------------------------------------------


def test_status_counts(ticked: Project) -> None:
    status = ticked.bide("status", "--json").json
    assert status["store"] == str(ticked.folder / "bide.db")
    assert status["polls"]["active"] == 1
    assert status["polls"]["last_called_at"].endswith("Z")
    assert status["events"]["latest_seq"] == 3
    assert status["deliveries"] == {
        "pending": 0,
        "running": 0,
        "succeeded": 3,
        "dead": 0,
        "oldest_pending_ms": None,
    }
    assert status["subscriptions"] == 1
    human = ticked.bide("status").out
    assert "1 active, 1 off" in human
    assert "0 pending, 0 running, 3 succeeded, 0 dead" in human


def test_status_names_what_fails(ticked: Project) -> None:
    ticked.shop.down = True
    change_again(ticked, "1")
    (failing,) = ticked.bide("status", "--json").json["polls"]["failing"]
    assert failing["poll"] == "eu.price"
    assert "503" in failing["error"]


# --- polls ----------------------------------------------------------------------------------------------------


def test_polls_are_listed_with_their_state(ticked: Project) -> None:
    price, stock = ticked.bide("polls", "list", "--json").json["polls"]
    assert (price["name"], price["state"], price["failures"]) == ("eu.price", "active", 0)
    assert price["changed_at"].endswith("Z")
    assert (stock["name"], stock["state"], stock["called_at"]) == ("eu.stock", "off", None)
    human = ticked.bide("polls", "list").out
    assert stock["reason"] in human


def test_polls_page(ticked: Project) -> None:
    page = ticked.bide("polls", "list", "--limit", "1", "--json").json
    assert [poll["name"] for poll in page["polls"]] == ["eu.price"]
    rest = ticked.bide("polls", "list", "--after", page["next_after"], "--json").json
    assert [poll["name"] for poll in rest["polls"]] == ["eu.stock"]
    assert rest["next_after"] is None
    assert "--after eu.price" in ticked.bide("polls", "list", "--limit", "1").err


def test_a_paused_poll_is_not_called_until_it_is_resumed(ticked: Project) -> None:
    paused = ticked.bide("polls", "pause", "eu.price")
    assert "bide polls resume eu.price" in paused.out
    assert ticked.bide("polls", "pause", "eu.price", "--json").json == {"paused": []}
    ticked.bide("polls", "now", "eu.price")
    assert ticked.bide("tick", "--json").json["claimed"] == []
    assert ticked.bide("polls", "list", "--json").json["polls"][0]["state"] == "paused"
    assert ticked.bide("polls", "resume", "eu.price", "--json").json == {"resumed": ["eu.price"]}
    ticked.bide("polls", "now", "eu.price")
    assert ticked.bide("tick", "--json").json["claimed"] == ["eu.price"]


def test_a_poll_can_be_paused_before_its_first_call(project: Project) -> None:
    assert project.bide("polls", "pause", "eu.price", "--json").json == {"paused": ["eu.price"]}
    assert project.bide("tick", "--json").json["claimed"] == []


def test_now_makes_a_poll_due(ticked: Project) -> None:
    assert ticked.bide("tick", "--json").json["claimed"] == []
    assert ticked.bide("polls", "now", "eu.price", "--json").json == {"due": ["eu.price"]}
    assert ticked.bide("tick", "--json").json["claimed"] == ["eu.price"]


def test_forgetting_makes_the_next_answer_a_first_one(ticked: Project) -> None:
    forgotten = ticked.bide("polls", "forget", "eu.price")
    assert forgotten.out.startswith("forgot eu.price; events stay")
    assert ticked.bide("events", "list", "--json").json["events"][-1]["seq"] == 3
    assert ticked.bide("tick", "--json").json["changed"] == ["eu.price"]
    ticked.bide("polls", "forget", "eu.price")
    assert "nothing was kept of eu.price" in ticked.bide("polls", "forget", "eu.price").err


@pytest.mark.parametrize("command", ["pause", "resume", "now", "forget"])
def test_an_unknown_poll_changes_nothing_and_names_the_nearest(ticked: Project, command: str) -> None:
    before = ticked.bide("polls", "list", "--json").json
    wrong = ticked.bide("polls", command, "eu.price", "eu.prise")
    assert (wrong.status, wrong.out) == (1, "")
    assert "no poll named 'eu.prise'; did you mean 'eu.price'?" in wrong.err
    assert ticked.bide("polls", "list", "--json").json == before


def test_a_poll_that_is_declared_no_more_is_listed_and_can_be_forgotten(ticked: Project) -> None:
    text = (ticked.folder / "bide.toml").read_text().replace("connections.eu", "connections.uk")
    (ticked.folder / "bide.toml").write_text(text)
    states = {poll["name"]: poll["state"] for poll in ticked.bide("polls", "list", "--json").json["polls"]}
    assert states == {"eu.price": "undeclared", "uk.price": "active", "uk.stock": "off"}
    assert ticked.bide("polls", "forget", "eu.price", "--json").json == {"forgotten": ["eu.price"]}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables come out as on a terminal of 80 columns."""
    monkeypatch.setattr("bide.cli.printing._PIPED_WIDTH", 80)


@pytest.mark.usefixtures("narrow")
def test_at_eighty_columns_failing_polls_keep_their_row(ticked: Project) -> None:
    ticked.shop.down = True
    change_again(ticked, "1")
    lines = ticked.bide("polls", "list").out.splitlines()
    assert lines[1].split()[:3] == ["eu.price", "1h", "failing"]
    assert all(len(line) <= 80 for line in lines[:3])
    assert any(line.startswith("eu.price: GET ") and "503" in line for line in lines)


def test_on_a_pipe_every_row_is_one_line(ticked: Project) -> None:
    ticked.shop.down = True
    change_again(ticked, "1")
    lines = ticked.bide("polls", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["poll", "eu.price", "eu.stock", "eu.price:", "eu.stock:"]


def test_a_paused_poll_is_counted_once(ticked: Project) -> None:
    ticked.bide("polls", "pause", "eu.price", "eu.stock")
    counts = ticked.bide("status", "--json").json["polls"]
    assert (counts["active"], counts["off"], counts["paused"]) == (0, 0, 2)
    assert counts["last_called_at"].endswith("Z")


def test_now_says_which_polls_are_not_called_for_all_that(ticked: Project) -> None:
    ticked.bide("polls", "pause", "eu.price")
    paused = ticked.bide("polls", "now", "eu.price", "eu.stock")
    assert paused.out == ""
    assert "eu.price is not called: paused by hand; `bide polls resume eu.price`" in paused.err
    assert "eu.stock is not called: nobody hears shop.StockChanged; declare a subscriber" in paused.err
    ticked.bide("polls", "resume", "eu.price")
    ticked.bide("subscribers", "end", "audit")
    assert "`bide subscribers resume audit`" in ticked.bide("polls", "now", "eu.price").err


def test_what_nobody_declares_any_more_is_named_with_a_way_out(ticked: Project) -> None:
    ticked.shop.hook_status = 503
    change_again(ticked, "1")
    text = (ticked.folder / "bide.toml").read_text()
    text = text.replace("connections.eu", "connections.uk").replace("subscribers.audit", "subscribers.ledger")
    (ticked.folder / "bide.toml").write_text(text)
    status = ticked.bide("status", "--json").json
    assert status["undeclared"] == [{"subscriber": "audit", "pending": 1}]
    assert status["polls"]["undeclared"] == ["eu.price"]
    human = ticked.bide("status").out
    assert "1 pending to audit, which nobody declares: bide subscribers prune" in human
    assert "bide polls forget eu.price" in human
    assert "`bide polls forget eu.price`" in ticked.bide("polls", "list").out


@pytest.mark.parametrize(
    "command", [["events", "list"], ["status"], ["polls", "list"], ["polls", "now", "eu.price"]]
)
def test_a_store_in_memory_is_said_to_keep_nothing(project: Project, command: list[str]) -> None:
    text = (project.folder / "bide.toml").read_text().replace("[app]", '[app]\nprovider = "memory://"')
    (project.folder / "bide.toml").write_text(text)
    assert "nothing outlives the process" in project.bide(*command).err
    paused = project.bide("polls", "pause", "eu.price")
    assert (paused.status, paused.out) == (1, "")
    assert "nothing outlives the process" in paused.err


# --- text from outside ------------------------------------------------------------------------------------------


def test_control_characters_from_outside_reach_no_terminal(project: Project) -> None:
    project.shop.symbol = "a\x1b[2Jb\x9b31m\r\n\u202ec\x7f\u2028"
    project.bide("tick")
    for command in (["events", "list"], ["events", "list", "--json"], ["deliveries", "list", "--json"]):
        listed = project.bide(*command)
        assert not set(listed.out) & set("\x1b\x9b\r\u202e\x7f\u2028")
    assert "a\\x1b[2Jb\\x9b31m\\r\\n\\u202ec" in project.bide("events", "list").out
    (event,) = project.bide("events", "list", "--json").json["events"]
    assert event["data"]["symbol"] == project.shop.symbol


# --- events ---------------------------------------------------------------------------------------------------


def test_events_are_listed_in_order_with_what_they_say(ticked: Project) -> None:
    listed = ticked.bide("events", "list", "--json").json
    assert [(event["seq"], event["data"]["price"]) for event in listed["events"]] == [
        (1, 101.5),
        (2, 102),
        (3, 99.25),
    ]
    assert listed["events"][0]["type"] == "shop.PriceChanged"
    human = ticked.bide("events", "list").out
    assert "price 99.25, symbol OAK" in human


def test_numbers_of_events_stay_exact(project: Project) -> None:
    project.shop.price = "12345678901234567890.123456789"
    project.bide("tick")
    assert '"price":12345678901234567890.123456789' in project.bide("events", "list", "--json").out
    assert "12345678901234567890.123456789" in project.bide("events", "list").out


def test_events_page_forward_and_show_the_newest_otherwise(ticked: Project) -> None:
    newest = ticked.bide("events", "list", "--limit", "2", "--json").json
    assert [event["seq"] for event in newest["events"]] == [2, 3]
    first = ticked.bide("events", "list", "--after", "0", "--limit", "2", "--json").json
    assert ([event["seq"] for event in first["events"]], first["next_after"]) == ([1, 2], 2)
    rest = ticked.bide("events", "list", "--after", "2", "--limit", "2", "--json").json
    assert ([event["seq"] for event in rest["events"]], rest["next_after"]) == ([3], None)


def test_events_of_one_name(ticked: Project) -> None:
    one = ticked.bide("events", "list", "--event", "shop.PriceChanged", "--json").json
    assert len(one["events"]) == 3
    assert ticked.bide("events", "list", "--event", "shop.StockChanged", "--json").json["events"] == []
    wrong = ticked.bide("events", "list", "--event", "shop.PriceChange")
    assert wrong.status == 1
    assert "did you mean 'shop.PriceChanged'?" in wrong.err


# --- deliveries -----------------------------------------------------------------------------------------------


@pytest.fixture
def stuck(ticked: Project) -> Project:
    """A project with a fourth change that its subscriber does not take."""
    ticked.shop.hook_status = 503
    change_again(ticked, "50")
    return ticked


def ids(project: Project, *arguments: str) -> list[str]:
    listed = project.bide("deliveries", "list", "--json", *arguments).json
    return [delivery["id"] for delivery in listed["deliveries"]]


def test_deliveries_are_listed_newest_first(stuck: Project) -> None:
    listed = stuck.bide("deliveries", "list", "--json").json["deliveries"]
    assert [delivery["state"] for delivery in listed] == ["pending", "succeeded", "succeeded", "succeeded"]
    pending = listed[0]
    assert (pending["subscriber"], pending["event"], pending["poll"]) == (
        "audit",
        "shop.PriceChanged",
        "eu.price",
    )
    assert pending["id"] == f"{pending['event_id']}.audit"
    assert pending["attempts"] == 1
    assert "503" in pending["error"]
    assert pending["next_try_at"].endswith("Z")
    human = stuck.bide("deliveries", "list").out
    assert pending["id"] in human
    assert "503" in human


def test_deliveries_are_filtered_and_page(stuck: Project) -> None:
    everything = ids(stuck)
    assert ids(stuck, "--state", "pending") == everything[:1]
    assert ids(stuck, "--state", "dead") == []
    assert ids(stuck, "--subscriber", "audit", "--limit", "2") == everything[:2]
    assert ids(stuck, "--after", everything[1]) == everything[2:]
    assert "--after" in stuck.bide("deliveries", "list", "--limit", "1").err
    assert stuck.bide("deliveries", "list", "--state", "lost").status == 2
    assert "did you mean 'audit'" in stuck.bide("deliveries", "list", "-s", "audits").err


def test_a_discarded_delivery_is_dead_until_it_is_retried(stuck: Project) -> None:
    (pending,) = ids(stuck, "--state", "pending")
    discarded = stuck.bide("deliveries", "discard", pending)
    assert f"undo with: bide deliveries retry {pending}" in discarded.out
    assert ids(stuck, "--state", "dead") == [pending]
    assert stuck.bide("deliveries", "discard", pending, "--json").json == {"discarded": []}
    stuck.shop.hook_status = 204
    assert stuck.bide("deliveries", "retry", pending, "--json").json == {"retried": [pending]}
    assert stuck.bide("tick", "--json").json["deliveries"]["succeeded"] == 1
    assert stuck.shop.received[-1]["data"] == {"price": 50, "symbol": "OAK"}


def test_an_unknown_delivery_is_an_error(stuck: Project) -> None:
    (pending,) = ids(stuck, "--state", "pending")
    for command in ("retry", "discard"):
        wrong = stuck.bide("deliveries", command, pending.replace("audit", "audits"))
        assert wrong.status == 1
        assert f"did you mean '{pending}'" in wrong.err
    assert ids(stuck, "--state", "pending") == [pending]


def test_replay_delivers_again_under_the_same_id(ticked: Project) -> None:
    before = [event["id"] for event in ticked.shop.received]
    replayed = ticked.bide("deliveries", "replay", "--subscriber", "audit", "--since", "1h", "--json")
    assert replayed.json["replayed"] == 3
    assert replayed.json["since"].endswith("Z")
    ticked.bide("tick")
    again = [event["id"] for event in ticked.shop.received][len(before) :]
    assert sorted(again) == sorted(before)


def test_replay_of_what_is_not_there(ticked: Project) -> None:
    wrong = ticked.bide("deliveries", "replay", "-s", "audits", "--since", "1h")
    assert wrong.status == 1
    assert "did you mean 'audit'" in wrong.err
    for since in ("yesterday", "2026-01-01T00:00:00", "2999-01-01T00:00:00Z"):
        unreadable = ticked.bide("deliveries", "replay", "-s", "audit", "--since", since)
        assert unreadable.status == 2
        assert "--since" in unreadable.err


def test_replay_says_why_nothing_is_replayed(ticked: Project) -> None:
    ticked.bide("subscribers", "end", "audit")
    ended = ticked.bide("deliveries", "replay", "-s", "audit", "--since", "1h")
    assert (ended.status, ended.out) == (0, "")
    assert "the subscription ended: ended by hand; first bide subscribers resume audit" in ended.err
    listed = ticked.bide("deliveries", "replay", "-s", "audit", "--since", "1h", "--json")
    assert listed.json["replayed"] == 0
    more = '\n[subscribers.late]\non = "shop.PriceChanged"\ncommand = ["true"]\n'
    ticked.declare(more)
    assert (
        "declared after the last tick"
        in ticked.bide("deliveries", "replay", "-s", "late", "--since", "1h").err
    )


def test_deliveries_after_an_unknown_one_are_an_error(ticked: Project) -> None:
    wrong = ticked.bide("deliveries", "list", "--after", "evt_unknown.audit")
    assert (wrong.status, wrong.out) == (1, "")
    assert "evt_unknown.audit" in wrong.err


# --- subscribers ----------------------------------------------------------------------------------------------


def states(project: Project) -> dict[str, str]:
    listed = project.bide("subscribers", "list", "--json").json["subscribers"]
    return {subscriber["name"]: subscriber["state"] for subscriber in listed}


def test_subscribers_are_listed(ticked: Project) -> None:
    (audit,) = ticked.bide("subscribers", "list", "--json").json["subscribers"]
    assert (audit["kind"], audit["event"], audit["state"]) == ("webhook", "shop.PriceChanged", "declared")
    assert audit["within_ms"] == 3 * 86_400_000
    assert f"{ticked.shop.url}/hook" in ticked.bide("subscribers", "list").out


def test_an_ended_subscription_hears_nothing_until_it_is_resumed(ticked: Project) -> None:
    ended = ticked.bide("subscribers", "end", "audit")
    assert "undo with: bide subscribers resume audit" in ended.out
    assert states(ticked) == {"audit": "ended"}
    change_again(ticked, "1")
    assert len(ticked.shop.received) == 3
    assert ticked.bide("subscribers", "end", "audit", "--json").json == {"ended": []}
    assert ticked.bide("subscribers", "resume", "audit", "--json").json == {"resumed": ["audit"]}
    change_again(ticked, "2")
    assert len(ticked.shop.received) == 4


@pytest.mark.usefixtures("narrow")
def test_at_eighty_columns_a_long_target_is_whole(ticked: Project) -> None:
    path = "/a/long/way/to/go" * 4
    text = (ticked.folder / "bide.toml").read_text().replace("/hook", path)
    (ticked.folder / "bide.toml").write_text(text)
    ticked.bide("tick")
    assert f"audit: {ticked.shop.url}{path}" in ticked.bide("subscribers", "list").out
    ticked.bide("subscribers", "end", "audit")
    assert "audit ended: ended by hand" in ticked.bide("subscribers", "list").out


def test_ending_says_what_resuming_does_not_bring_back(ticked: Project) -> None:
    ended = ticked.bide("subscribers", "end", "audit").out
    assert "neither those deliveries nor events" in ended
    assert "bide deliveries replay -s audit --since" in ended


def test_prune_ends_what_is_declared_no_more(ticked: Project) -> None:
    assert "nothing to prune" in ticked.bide("subscribers", "prune").out
    text = (ticked.folder / "bide.toml").read_text().replace("subscribers.audit", "subscribers.ledger")
    (ticked.folder / "bide.toml").write_text(text)
    ticked.bide("tick")
    assert states(ticked) == {"audit": "undeclared", "ledger": "declared"}
    assert ticked.bide("subscribers", "prune", "--json").json == {"ended": ["audit"]}
    assert states(ticked) == {"audit": "ended", "ledger": "declared"}


@pytest.mark.parametrize("command", ["end", "resume"])
def test_an_unknown_subscriber_changes_nothing(ticked: Project, command: str) -> None:
    wrong = ticked.bide("subscribers", command, "audit", "nobody-like-it")
    assert (wrong.status, wrong.out) == (1, "")
    assert "no subscriber named 'nobody-like-it'" in wrong.err
    assert states(ticked) == {"audit": "declared"}


# --- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "key"), [*LISTS, (["status"], "store"), (["plan"], "polls")])
def test_json_is_alone_on_standard_output(ticked: Project, command: list[str], key: str) -> None:
    listed = ticked.bide(*command, "--json")
    assert key in listed.json
    assert listed.err == ""


def test_secrets_are_shown_nowhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "hush-hush-1")
    monkeypatch.setenv("SHOP_TOKEN", "hush-hush-2")
    project.declare(
        'secret = "${HOOK_SECRET}"\nheaders = { X-Token = "${SHOP_TOKEN}" }\n',
    )
    text = (project.folder / "bide.toml").read_text()
    text = text.replace("max_concurrent = 2", 'headers = { Authorization = "Bearer ${SHOP_TOKEN}" }')
    (project.folder / "bide.toml").write_text(text)
    commands = [["check"], ["plan"], ["tick"], ["status"], *(command for command, _ in LISTS)]
    for command in commands:
        for more in ([], ["--json"]):
            ran = project.bide(*command, *more)
            assert ran.status == 0, ran.err
            assert "hush" not in ran.out + ran.err


def test_hints_name_the_target_that_was_given(ticked: Project) -> None:
    (ticked.folder / "bide.toml").rename(ticked.folder / "other.toml")
    paused = ticked.bide("polls", "pause", "eu.price", "-a", "other.toml")
    assert "undo with: bide polls resume eu.price -a other.toml" in paused.out
    more = ticked.bide("events", "list", "--after", "0", "--limit", "1", "-a", "other.toml")
    assert more.err == "more: bide events list --after 1 -a other.toml\n"
