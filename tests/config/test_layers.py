"""Settings of workers out of their layers: what counts, what is refused, and that a refusal names where it came from.

What they do to a running worker is in ``tests/cli/test_worker_settings.py``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bide.config import compile_declarations
from bide.config.layers import Origin, Setting
from bide.config.options import WorkerRunOptions
from bide.config.worker import SETTINGS, WorkerSettings, worker_settings
from bide.core.declaration import Mistake
from bide.core.pacing import PollingStrategy
from bide.errors import DeclarationError, SettingError

FIXED = '[worker.polling]\nstrategy = "fixed"\n'


def settled(file: str = "", environment: Mapping[str, str] | None = None, **more: Any) -> WorkerSettings:
    return worker_settings(tomllib.loads(file), environment or {}, **more)


def refused(
    file: str | dict[str, Any] = "", environment: Mapping[str, str] | None = None, **more: Any
) -> list[Mistake]:
    """The mistakes in settings; ``file`` is its text, or its tables where TOML has no word for what is in them."""
    raw = tomllib.loads(file) if isinstance(file, str) else file
    with pytest.raises(DeclarationError) as caught:
        worker_settings(raw, environment or {}, **more)
    return list(caught.value.mistakes)


def in_block(block: str, entries: dict[str, Any]) -> dict[str, Any]:
    for name in reversed(block.split(".")):
        entries = {name: entries}
    return entries


def checked(raw: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> list[tuple[str, str]]:
    found = compile_declarations(raw, folder=folder, environment=environment).mistakes
    return [(mistake.where, f"{mistake.message} {mistake.suggestion}") for mistake in found]


# --- defaults and origins -----------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_design() -> None:
    found = settled()
    assert found.strategy == PollingStrategy.adaptive("100ms", "5s", 2.0)
    assert (found.queues, found.concurrency) == (None, 20)
    assert (found.lock_timeout, found.grace) == (timedelta(seconds=30), timedelta(seconds=30))
    assert found.long_poll_timeout == timedelta(seconds=30)
    assert found.min_poll_interval == timedelta(milliseconds=100)
    assert {origin for _, _, origin in found.rows()} == {Origin("default")}


def test_each_setting_knows_its_layer_and_its_name_there() -> None:
    found = settled(
        '[worker]\ngrace = "1s"\nconcurrency = 5',
        {"BIDE_WORKER_CONCURRENCY": "6", "BIDE_DISPATCHER_MIN_POLL_INTERVAL_MS": "200"},
        flags={"lock_timeout": "1m"},
        options=WorkerRunOptions(grace="2s", long_poll_timeout="3s"),
        queues=["mail"],
    )
    assert {name: str(origin) for name, _, origin in found.rows() if origin.name} == {
        "grace": "worker.grace (file)",
        "concurrency": "BIDE_WORKER_CONCURRENCY (environment)",
        "min_poll_interval": "BIDE_DISPATCHER_MIN_POLL_INTERVAL_MS (environment)",
        "lock_timeout": "--lock-timeout (flag)",
        "long_poll_timeout": "WorkerRunOptions(long_poll_timeout=…) (code)",
        "queues": "app.worker(queues=…) (code)",
    }
    assert (found.grace, found.concurrency) == (timedelta(seconds=1), 6)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        settled().concurrency = 3  # type: ignore[misc]  # what must not work


def test_queues_are_split_at_commas_and_named_once() -> None:
    assert settled(flags={"queues": " mail, default,mail"}).queues == ("mail", "default")
    assert settled(environment={"BIDE_WORKER_QUEUES": "mail"}).queues == ("mail",)


def test_a_variable_that_is_empty_counts_as_not_set() -> None:
    assert settled(environment={"BIDE_POLLING_STRATEGY": "", "BIDE_WORKER_CONCURRENCY": " "}) == settled()


def test_variables_that_kubernetes_sets_for_a_service_are_left_alone() -> None:
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR")
    assert settled(environment={f"BIDE_WORKER_{name}": "10.0.0.1" for name in names}) == settled()


# --- the strategy over layers -----------------------------------------------------------------------------------


def test_a_setting_of_the_strategy_not_chosen_names_both_with_their_layers() -> None:
    (mistake,) = refused('[worker.polling]\nstrategy = "adaptive"', {"BIDE_POLLING_INTERVAL_MS": "500"})
    assert mistake.where == "BIDE_POLLING_INTERVAL_MS"
    assert mistake.message == (
        "BIDE_POLLING_INTERVAL_MS (environment) belongs to the fixed strategy, "
        "and worker.polling.strategy (file) chooses the adaptive one"
    )
    assert mistake.suggestion == "Leave it out, or choose the fixed one with BIDE_POLLING_STRATEGY=fixed."


@pytest.mark.parametrize(
    ("file", "environment", "flags", "where", "named"),
    [
        ("[worker.polling]\ninterval = 1", {}, {}, "worker.polling.interval", "the default"),
        (
            FIXED + "interval_ms = 5\nmax_interval_ms = 9",
            {},
            {},
            "worker.polling.max_interval_ms",
            "worker.polling.strategy (file)",
        ),
        (
            "[worker.polling]\nbackoff_multiplier = 3",
            {"BIDE_POLL_INTERVAL": "1"},
            {},
            "worker.polling.backoff_multiplier",
            "BIDE_POLL_INTERVAL (environment)",
        ),
        (
            "[worker]\npoll_interval = 1",
            {},
            {"strategy": "adaptive"},
            "worker.poll_interval",
            "--polling-strategy (flag)",
        ),
        (
            "",
            {"BIDE_POLLING_MIN_INTERVAL_MS": "5"},
            {"poll_interval": "1"},
            "BIDE_POLLING_MIN_INTERVAL_MS",
            "--poll-interval (flag)",
        ),
    ],
)
def test_whichever_layers_are_at_odds(
    file: str, environment: dict[str, str], flags: dict[str, str], where: str, named: str
) -> None:
    (mistake,) = refused(file, environment, flags=flags)
    assert mistake.where == where
    assert f"{where} (" in mistake.message
    assert named in mistake.message


@pytest.mark.parametrize(
    ("file", "environment", "flags", "where", "step"),
    [
        (FIXED, {}, {}, "worker.polling.strategy", "interval_ms = 500 under [worker.polling]"),
        ("", {"BIDE_POLLING_STRATEGY": "fixed"}, {}, "BIDE_POLLING_STRATEGY", "BIDE_POLLING_INTERVAL_MS=500"),
        ("", {}, {"strategy": "fixed"}, "--polling-strategy", "--polling-interval 500ms"),
    ],
)
def test_a_fixed_strategy_needs_an_interval(
    file: str, environment: dict[str, str], flags: dict[str, str], where: str, step: str
) -> None:
    (mistake,) = refused(file, environment, flags=flags)
    assert (mistake.where, mistake.suggestion) == (where, f"Add {step}.")


def test_its_interval_may_come_from_another_layer() -> None:
    code = WorkerRunOptions(polling=PollingStrategy.fixed("9s"))
    for found in (
        settled(FIXED, {"BIDE_POLLING_INTERVAL_MS": "500"}),
        settled("[worker]\npoll_interval = 3", flags={"interval": "500ms"}),
        settled("[worker.polling]\ninterval_ms = 500", options=code),
    ):
        assert found.strategy == PollingStrategy.fixed("500ms")
    assert settled(FIXED, options=code).strategy == PollingStrategy.fixed("9s")


def test_bounds_in_the_wrong_order_name_both_with_their_layers() -> None:
    (mistake,) = refused("[worker.polling]\nmin_interval_ms = 900", {"BIDE_POLLING_MAX_INTERVAL": "0.5"})
    assert mistake.where == "BIDE_POLLING_MAX_INTERVAL"
    assert "500ms of BIDE_POLLING_MAX_INTERVAL (environment)" in mistake.message
    assert "900ms of worker.polling.min_interval_ms (file)" in mistake.message
    (alone,) = refused("[worker.polling]\nmin_interval = 10")
    assert alone.where == "worker.polling.min_interval"
    assert "5s of the default" in alone.message


def test_a_strategy_made_in_code_is_one_value() -> None:
    adaptive = WorkerRunOptions(polling=PollingStrategy.adaptive("1s", "9s", 3))
    assert settled(options=adaptive).strategy == PollingStrategy.adaptive("1s", "9s", 3)
    replaced = settled(environment={"BIDE_POLL_INTERVAL_MS": "700"}, options=adaptive)
    assert replaced.strategy == PollingStrategy.fixed("700ms")
    older = WorkerRunOptions(poll_interval=7)
    assert settled(options=older).strategy == PollingStrategy.fixed(7)
    above = settled('[worker.polling]\nstrategy = "adaptive"', options=older)
    assert above.strategy == PollingStrategy.adaptive()


def test_the_older_setting_alone_means_fixed_and_nothing_of_polling_may_be_beside_it() -> None:
    assert settled("[worker]\npoll_interval = 1.5").strategy == PollingStrategy.fixed(1.5)
    (mistake,) = refused(
        '[worker]\npoll_interval_ms = 100\n[worker.polling]\nstrategy = "fixed"\ninterval = 1'
    )
    assert mistake.where == "worker.poll_interval_ms"
    assert "worker.polling.strategy and worker.polling.interval are given too" in mistake.message
    (mistake,) = refused(environment={"BIDE_POLL_INTERVAL": "1", "BIDE_POLLING_MAX_INTERVAL": "2"})
    assert "BIDE_POLLING_MAX_INTERVAL is given too" in mistake.message
    with pytest.raises(SettingError, match="poll_interval: means a fixed polling strategy, and polling"):
        WorkerRunOptions(poll_interval=1, polling=PollingStrategy.fixed(1))


# --- what is refused --------------------------------------------------------------------------------------------

DURATIONS = [setting for setting in SETTINGS if setting.kind.in_ms]


@pytest.mark.parametrize("setting", DURATIONS, ids=lambda setting: setting.name)
def test_both_spellings_in_one_layer_are_a_mistake(setting: Setting) -> None:
    place = f"{setting.block}.{setting.key}"
    mistakes = refused(in_block(setting.block, {setting.key: "1s", f"{setting.key}_ms": 1000}))
    assert f"is given twice, as {place} and as {place}_ms" in {
        mistake.message for mistake in mistakes if mistake.where == f"{place}_ms"
    }
    name = setting.variable
    mistakes = refused(environment={name: "1s", f"{name}_MS": "1000"})
    assert f"is given twice, as {name} and as {name}_MS" in {
        mistake.message for mistake in mistakes if mistake.where == f"{name}_MS"
    }


def test_the_older_setting_in_both_spellings_is_a_mistake_in_code_too() -> None:
    with pytest.raises(SettingError, match="given twice, as poll_interval and as poll_interval_ms"):
        WorkerRunOptions(poll_interval=1, poll_interval_ms=1000)


NONSENSE = [math.nan, math.inf, -math.inf, -1, True, "soon", "", 1e-12, 1e18, [1], None]
MAY_BE_ZERO = {"grace", "long_poll_timeout"}


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize("setting", DURATIONS, ids=lambda setting: setting.name)
def test_nonsense_for_a_duration_is_refused_with_the_name_of_the_setting(
    setting: Setting, value: object
) -> None:
    def places(mistakes: list[Mistake]) -> set[str]:
        return {mistake.where for mistake in mistakes}

    assert f"{setting.block}.{setting.key}" in places(refused(in_block(setting.block, {setting.key: value})))
    if value not in ("", None):
        assert setting.variable in places(refused(environment={setting.variable: str(value)}))
        assert setting.flag in places(refused(flags={setting.name: str(value)}))


@pytest.mark.parametrize("setting", DURATIONS, ids=lambda setting: setting.name)
def test_zero_is_refused_where_a_loop_would_spin(setting: Setting) -> None:
    if setting.name in MAY_BE_ZERO:
        assert getattr(settled(flags={setting.name: "0"}), setting.name) == timedelta()
        return
    (mistake,) = refused(flags={setting.name: "0"})
    assert (mistake.where, "zero" in mistake.message) == (setting.flag, True)


@pytest.mark.parametrize("value", [0, 1, 0.5, -2, math.nan, math.inf, True, "twice"], ids=repr)
def test_nonsense_for_the_growth_is_refused_in_each_layer(value: object) -> None:
    (mistake,) = refused({"worker": {"polling": {"backoff_multiplier": value}}})
    assert mistake.where == "worker.polling.backoff_multiplier"
    if value is not True:
        (mistake,) = refused(environment={"BIDE_POLLING_BACKOFF_MULTIPLIER": str(value)})
        assert (mistake.where, "above 1" in mistake.message) == ("BIDE_POLLING_BACKOFF_MULTIPLIER", True)
        (mistake,) = refused(flags={"backoff_multiplier": str(value)})
        assert mistake.where == "--polling-backoff-multiplier"


@pytest.mark.parametrize("value", [0, -1, 1.5, True, math.nan, "many"], ids=repr)
def test_nonsense_for_the_concurrency_is_refused_in_each_layer(value: object) -> None:
    (mistake,) = refused({"worker": {"concurrency": value}})
    assert mistake.where == "worker.concurrency"
    (mistake,) = refused(concurrency=value)
    assert mistake.where == "app.worker().concurrency"
    if value is not True:
        (mistake,) = refused(environment={"BIDE_WORKER_CONCURRENCY": str(value)})
        assert mistake.where == "BIDE_WORKER_CONCURRENCY"
        (mistake,) = refused(flags={"concurrency": str(value)})
        assert mistake.where == "--concurrency"


@pytest.mark.parametrize("value", ["mail", [], [""], [3], True, {"mail": 1}], ids=repr)
def test_nonsense_for_queues_is_refused(value: object) -> None:
    (mistake,) = refused({"worker": {"queues": value}})
    assert (mistake.where, "a list of names" in mistake.message) == ("worker.queues", True)


def test_no_worker_takes_deliveries() -> None:
    (mistake,) = refused(flags={"queues": "mail,deliveries"})
    assert (mistake.where, "bide run" in mistake.message) == ("--queues", True)


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize(
    "name", ["lock_timeout", "long_poll_timeout", "min_poll_interval", "grace", "poll_interval"]
)
def test_nonsense_in_code_is_refused_where_it_is_written(name: str, value: Any) -> None:
    if value is None:
        return  # stands for what is not given
    with pytest.raises(SettingError) as caught:
        WorkerRunOptions(**{name: value})
    assert caught.value.setting == name


def test_a_strategy_in_code_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match=r"polling: 'fixed' is not a polling strategy; write for example"):
        WorkerRunOptions(polling="fixed")  # type: ignore[arg-type]  # what must be refused


@pytest.mark.parametrize(
    ("word", "near"), [("adaptve", "'adaptive'"), ("FIXD", "'fixed'"), ("fast", "fixed or adaptive")]
)
def test_an_unknown_strategy_is_refused_with_the_nearest(word: str, near: str) -> None:
    for found in (
        refused(f'[worker.polling]\nstrategy = "{word}"'),
        refused(environment={"BIDE_POLLING_STRATEGY": word}),
        refused(flags={"strategy": word}),
    ):
        (mistake,) = found
        assert word in mistake.message
        assert near in (mistake.suggestion or "")


# --- a check ----------------------------------------------------------------------------------------------------


def test_a_check_finds_every_mistake_of_file_and_environment_at_once(tmp_path: Path) -> None:
    raw = tomllib.loads(
        '[worker]\nconcurency = 3\ngrace = "-1s"\n[worker.polling]\nmin_intervall = 1\nstrategy = "fixt"\n'
        "[runtime]\ndispatcher_long_poll_timout = 0"
    )
    environment = {"BIDE_POLLING_MAX_INTERVALL_MS": "5", "BIDE_WORKER_CONCURRENCY": "0", "BIDE_APP": "x"}
    found = checked(raw, environment, tmp_path)
    assert [where for where, _ in found] == [
        "BIDE_POLLING_MAX_INTERVALL_MS",
        "BIDE_WORKER_CONCURRENCY",
        "runtime.dispatcher_long_poll_timout",
        "worker.concurency",
        "worker.grace",
        "worker.polling.min_intervall",
        "worker.polling.strategy",
    ]
    told = dict(found)
    assert "'BIDE_POLLING_MAX_INTERVAL_MS'" in told["BIDE_POLLING_MAX_INTERVALL_MS"]
    assert "'dispatcher_long_poll_timeout'" in told["runtime.dispatcher_long_poll_timout"]
    assert "'concurrency'" in told["worker.concurency"]
    assert "'min_interval'" in told["worker.polling.min_intervall"]


@pytest.mark.parametrize("block", ["worker", "runtime", "worker.polling"])
def test_a_block_that_is_no_table_is_refused(block: str, tmp_path: Path) -> None:
    raw: dict[str, Any] = {"worker": {"polling": 3}} if block == "worker.polling" else {block: 3}
    assert [where for where, _ in checked(raw, {}, tmp_path)] == [block]


def test_a_check_leaves_to_the_worker_what_code_may_complete(tmp_path: Path) -> None:
    for file, environment in (
        (FIXED, {}),
        ("[worker.polling]\ninterval = 1", {}),
        ("", {"BIDE_POLLING_MIN_INTERVAL": "10"}),
    ):
        assert checked(tomllib.loads(file), environment, tmp_path) == []
        refused(file, environment)


def test_a_check_finds_what_no_code_can_mend(tmp_path: Path) -> None:
    file = '[worker.polling]\nstrategy = "adaptive"\nmin_interval = 3\nmax_interval = 2'
    assert [where for where, _ in checked(tomllib.loads(file), {"BIDE_POLLING_INTERVAL": "1"}, tmp_path)] == [
        "BIDE_POLLING_INTERVAL",
        "worker.polling.max_interval",
    ]
