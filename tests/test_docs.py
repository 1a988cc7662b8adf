"""The README and the examples do what they say, and the reference leaves nothing out.

Blocks of the README run in their order in one folder, as a reader would: Python blocks become the file that their
first line names, TOML blocks are checked, console blocks are typed in. A command that ends in ``&`` goes on in the
background; ``...`` in an output stands for anything.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from bide.cli.main import cli
from bide.config import compile_declarations, read_file
from bide.config.worker import SETTINGS as WORKER_SETTINGS
from bide.core.declaration import Code
from bide.core.durations import parse_duration
from bide.errors import DeclarationError

ROOT = Path(__file__).parent.parent
DOCS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/reference.md",
    "docs/tasks.md",
    "docs/until.md",
    "docs/choosing-a-strategy.md",
    "docs/cost.md",
    "docs/glossary.md",
    "docs/design.md",
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in found]


@dataclass(frozen=True)
class Typed:
    """One command of a console block, and what should come of it."""

    command: str
    output: str


def typed_of(block: Block) -> list[Typed]:
    assert block.text.startswith("$ ")
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Typed(*part.split("\n", 1)) for part in parts]


# --- the README, run ------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Reader:
    """Somebody who does what the README says, in a folder of their own and on a port that is free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self._background: list[subprocess.Popen[bytes]] = []
        (folder / "bin").mkdir()
        for name, words in (("bide", "-m bide "), ("python3", "")):
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            program.chmod(0o755)
        self._environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        self._environment.pop("BIDE_APP", None)

    def follow(self, block: Block) -> None:
        match block.language:
            case "python":
                name = re.match(r"# (\w+\.py)\n", block.text)
                assert name is not None, f"line {block.line}: no file name"
                (self.folder / name[1]).write_text(self._ported(block.text))
            case "toml":
                self._check(block)
            case "console":
                for typed in typed_of(block):
                    self._type(typed, block)
            case language:
                raise AssertionError(f"line {block.line}: no way to run {language!r}")

    def end(self) -> None:
        for process in self._background:
            process.terminate()
            process.wait(timeout=30)

    def _ported(self, text: str) -> str:
        return text.replace("9000", self.port)

    def _check(self, block: Block) -> None:
        path = self.folder / "checked.toml"
        path.write_text(block.text)
        compiled = compile_declarations(read_file(path), folder=self.folder, environment={})
        wrong = re.match(r"# mistakes: (.*)\n", block.text)
        expected = wrong[1].split(", ") if wrong else []
        assert [mistake.where for mistake in compiled.mistakes] == expected, f"line {block.line}"
        for comment in re.findall(r"# (Did you mean .*)$", block.text, re.MULTILINE):
            assert comment in {mistake.suggestion for mistake in compiled.mistakes}

    def _type(self, typed: Typed, block: Block) -> None:
        command = typed.command.split("  #")[0].rstrip()
        if command == "bide init":  # the reader's own file begins another walk
            self._begin_anew()
        if command.endswith("&"):
            self._start(command.removesuffix("&"))
            return
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        if command == "bide init":
            written = self.folder / "bide.toml"
            written.write_text(self._ported(written.read_text()))
        checker = doctest.OutputChecker()
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert checker.check_output(typed.output, done.stdout, flags), (
            f"line {block.line}: $ {command}\nexpected:\n{typed.output}\ngot:\n{done.stdout}"
        )

    def _begin_anew(self) -> None:
        for database in self.folder.glob("bide.db*"):
            database.unlink()

    def _start(self, command: str) -> None:
        command = command.replace("bide sample", f"exec bide sample --port {self.port}")
        process = subprocess.Popen(command, shell=True, cwd=self.folder, env=self._environment)
        self._background.append(process)
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(self.port)), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError(f"{command} does not listen")


def test_every_block_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for block in blocks_of("README.md"):
            reader.follow(block)
    finally:
        reader.end()


@pytest.mark.parametrize("page", DOCS)
def test_json_blocks_are_json(page: str) -> None:
    for block in blocks_of(page):
        if block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", DOCS)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not link.startswith("http"):
            assert ((ROOT / page).parent / link).exists(), f"{page}: {link}"


# --- the examples ---------------------------------------------------------------------------------------------


@contextmanager
def sample(folder: Path, *arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "bide", "sample", "--port", "0", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[2].removesuffix("/price,")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def run(folder: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_example_files_are_right(path: Path) -> None:
    compiled = compile_declarations(read_file(path), folder=path.parent, environment=os.environ)
    assert compiled.mistakes == ()


def test_the_example_program_runs(tmp_path: Path) -> None:
    with sample(tmp_path) as url:
        out = run(tmp_path, sys.executable, str(ROOT / "examples" / "prices.py"), SHOP_URL=url)
    assert sorted(out.splitlines()) == [
        "2 of 2 polls changed",
        "eu.dearest: OAK at 101.5",
        "eu.price: ELM at 64.2",
    ]


@pytest.mark.parametrize("provider", ["memory://", "sqlite:///work.db"])
def test_the_example_of_tasks_runs(tmp_path: Path, provider: str) -> None:
    out = run(tmp_path, sys.executable, str(ROOT / "examples" / "mail.py"), MAIL_STORE=provider)
    assert out.splitlines() == [
        "to ann@example.org: hello (attempt 1)",
        "to busy@example.org: hello (attempt 2)",
        "days: 29",
        "given up: 'nobody' is no address",
    ]


def test_the_commands_of_the_example_of_tasks_do_what_it_says(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "mail.py", tmp_path)
    bide = (sys.executable, "-m", "bide")
    run(tmp_path, *bide, "submit", "-a", "mail:app", "send_mail", "to=you@example.org")
    with subprocess.Popen(
        [*bide, "worker", "mail:app"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "to you@example.org: hello (attempt 1)\n"
        worker.terminate()


def test_the_example_file_runs_with_signatures(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "shop.toml").read_text()
    with sample(tmp_path, "--secret", "audit") as url:
        (tmp_path / "shop.toml").write_text(text.replace("http://127.0.0.1:9000", url))
        command = (sys.executable, "-m", "bide", "tick", "-a", "shop.toml", "--json")
        report = json.loads(run(tmp_path, *command, AUDIT_SECRET="audit", SHOP_TOKEN="any"))
    assert report["failed"] == []
    assert report["deliveries"]["succeeded"] == 2


def test_the_example_receiver_takes_what_is_genuine(tmp_path: Path) -> None:
    port = str(free_port())
    receiver = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "receiver.py"), port],
        env=os.environ | {"AUDIT_SECRET": "audit"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    text = (ROOT / "examples" / "shop.toml").read_text()
    command = (sys.executable, "-m", "bide", "tick", "-a", "shop.toml", "--json")
    try:
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), timeout=1):
                break
            time.sleep(0.1)
        with sample(tmp_path) as url:
            text = text.replace("http://127.0.0.1:9000/hook", f"http://127.0.0.1:{port}/hook")
            (tmp_path / "shop.toml").write_text(text.replace("http://127.0.0.1:9000", url))
            wrong = json.loads(run(tmp_path, *command, AUDIT_SECRET="another", SHOP_TOKEN="any"))
            assert wrong["deliveries"]["succeeded"] == 1  # the command; the webhook was refused
            (tmp_path / "shop.db").unlink()
            right = json.loads(run(tmp_path, *command, AUDIT_SECRET="audit", SHOP_TOKEN="any"))
            assert right["deliveries"]["succeeded"] == 2
        assert receiver.stdout.readline().startswith("shop.PriceChanged {")
    finally:
        receiver.terminate()
        receiver.communicate(timeout=30)


# --- the reference leaves nothing out ---------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """The reference by heading, code marks removed."""
    parts = re.split(
        r"^#{2,3} (.*)$", (ROOT / "docs" / "reference.md").read_text("utf-8"), flags=re.MULTILINE
    )
    return {title.replace("`", ""): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def commands() -> list[tuple[str, Any]]:
    """Every command that does something, by its whole name."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if not inner:
            yield name, command
            return
        for word, below in inner.items():
            yield from walk(f"{name} {word}", below)

    return list(walk("bide", typer.main.get_command(cli)))


@pytest.mark.parametrize(
    ("name", "command"), commands(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_option_is_in_the_reference(name: str, command: Any) -> None:
    section = sections()[name]
    common = sections()["Commands"]
    assert command.help, "a command says what it does"
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-"):
                assert f"`{option}`" in section + common, f"{name} {option}"
                assert parameter.help, f"{name} {option} has no help"
        if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
            assert f"| {parameter.default:g}" in section, f"{name}: the default {parameter.default}"


def test_the_reference_has_no_command_that_is_not_there() -> None:
    there = {name for name, _ in commands()}
    assert {title for title in sections() if title.startswith("bide ")} == there


SETTINGS = {
    "[app]": ("settings", "APP_KEYS"),
    "[packages.NAME]": ("packages", "PACKAGE_KEYS"),
    "[packages.NAME.operations.NAME]": ("operations", "OPERATION_KEYS"),
    "[packages.NAME.events.NAME]": ("packages", "EVENT_KEYS"),
    "[packages.NAME.polls.NAME]": ("packages", "POLL_KEYS"),
    "[connections.NAME]": ("connections", "CONNECTION_KEYS"),
    "[subscribers.NAME]": ("subscribers", "SUBSCRIBER_KEYS"),
    "[watches.NAME]": ("watches", "WATCH_KEYS"),
    "[tasks.NAME]": ("tasks", "TASK_KEYS"),
    "[queues.NAME]": ("queues", "QUEUE_KEYS"),
    "[waits.NAME]": ("waits", "WAIT_KEYS"),
    "[cost]": ("cost", "COST_KEYS"),
}


@pytest.mark.parametrize("title", SETTINGS)
def test_every_setting_is_in_the_reference_and_no_other(title: str) -> None:
    module, keys = SETTINGS[title]
    known = set(getattr(importlib.import_module(f"bide.config.{module}"), keys))
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", sections()[title], re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == known


def test_every_setting_of_a_worker_is_in_the_reference_in_each_of_its_layers() -> None:
    text = sections()
    layers = text["Settings of workers"]
    for setting in WORKER_SETTINGS:
        assert f"`{setting.variable}`" in layers
        assert f"`{setting.flag}`" in text["bide worker"]
    for block in {setting.block for setting in WORKER_SETTINGS}:
        rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text[f"[{block}]"], re.MULTILINE)
        documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"polling"}
        of_block = [setting for setting in WORKER_SETTINGS if setting.block == block]
        assert documented == {each.key + mark for each in of_block for mark in each.spellings()}


def test_the_costs_of_strategies_are_worked_out_right() -> None:
    page = (ROOT / "docs" / "choosing-a-strategy.md").read_text("utf-8")
    rows = re.findall(r"^\| (?:fixed, |adaptive to )(\d+ m?s).*?\| ([\d,]+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for interval, fetches, dollars in rows:
        count = timedelta(days=30) / parse_duration(interval, "interval")
        assert int(fetches.replace(",", "")) == count
        costs = [float(cost.strip(" $").replace(",", "")) for cost in dollars.split("|")]
        assert costs == [round(count * millionth / 1e6, 2) for millionth in (0.4, 5.0, 16 * 5.0)]


def test_every_code_is_in_the_reference() -> None:
    documented = set(re.findall(r"`(\w+\.\w+)`", sections()["Codes of mistakes"]))
    assert documented == set(get_args(Code))


def test_every_word_of_the_log_is_in_the_reference() -> None:
    folder = ROOT / "src" / "bide" / "cli"
    source = "".join((folder / f"{name}.py").read_text() for name in ("logs", "running", "working"))
    words = set(re.findall(r'"((?:poll|store|subscription|engine|worker|run|metrics)\.\w+)"', source)) | {
        "call"
    }
    for what in ("delivery", "task"):
        endings = re.findall(r"\.what\}\.(\w+)", (folder / "settlements.py").read_text())
        words |= {f"{what}.{ending}" for ending in (*endings, "still_failing", "recovered")}
    assert words <= set(re.findall(r"`([\w.]+)`", sections()["Logs"]))


def test_what_the_reference_says_of_unreadable_files_is_so(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        read_file(tmp_path / "bide.toml")
    assert caught.value.mistakes[0].code == "config.file_unreadable"


def test_no_page_names_a_machine() -> None:
    home = str(Path.home())
    for page in DOCS:
        text = (ROOT / page).read_text("utf-8")
        assert str(ROOT) not in text
        assert home == "/" or home not in text
