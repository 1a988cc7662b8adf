"""Commands that are built when they are used: what help shows of them is what they say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from bide.cli.lazily import Entry
from bide.cli.main import ENTRIES, cli

ROOT = typer.main.get_command(cli)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_line_in_the_help_is_the_first_of_the_command(entry: Entry) -> None:
    built = entry.built()
    assert built.name == entry.name
    assert built.help.splitlines()[0] == entry.summary
    assert getattr(built, "rich_help_panel", None) == entry.panel


def test_help_lists_every_command_and_builds_none() -> None:
    code = (
        "import sys; from bide.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('bide.cli.commands')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    listed = [
        line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ") and line[2] != " "
    ]
    assert [word for word in listed if not word.startswith("-")] == [entry.name for entry in ENTRIES]


def test_a_command_that_is_not_there_is_answered_with_the_nearest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bide", "delivries"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Did you mean 'deliveries'" in done.stderr
