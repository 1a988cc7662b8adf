"""What ``provider test`` does: have the suite run, and say promise by promise what was found."""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from bide.cli.printing import add_row, counted, new_table, print_json, print_table, tell
from bide.cli.progress import progress
from bide.stores import filled, location_of

MISSING_TOOLS = 3
"""Exit status where the suite cannot be run because what runs it is not installed."""

_TOOLS = {"pytest": "pytest", "pytest_asyncio": "pytest-asyncio"}


def is_ready() -> bool:
    """Whether what the suite is run with is installed; says what is missing where not."""
    missing = [name for module, name in _TOOLS.items() if find_spec(module) is None]
    if missing:
        tell(
            f"error: the suite is run by pytest, and {' and '.join(missing)} cannot be imported here; "
            f"run pip install {' '.join(_TOOLS.values())}"
        )
    return not missing


def put_to_the_test(url: str, promises: Collection[int], *, as_json: bool) -> bool:
    """Run the suite against the provider at ``url`` and print what was found; whether every promise is kept.

    ``promises`` are the numbers of those to try; none: all, and the rest of the contract.
    """
    from bide.testing.scratch import scratch_of
    from bide.testing.trial import is_kept, try_out

    folder = Path.cwd()
    scratch = scratch_of(filled(url, os.environ), folder)
    tell(f"testing in {scratch.place}; nothing else is touched, and it is removed afterwards")
    with progress("tests") as shown:
        verdicts = try_out(scratch, promises, heard=lambda _: shown.add(1))
    if as_json:
        place = location_of(url, folder, os.environ)
        print_json(
            {"provider": place, "kept": is_kept(verdicts), "promises": [one.as_json() for one in verdicts]}
        )
        return is_kept(verdicts)
    table = new_table("", "", "tests", "promise", right=("", "tests"), fold="promise")
    for verdict in verdicts:
        number = "" if verdict.number is None else str(verdict.number)
        add_row(table, number, verdict.word, str(len(verdict.tried)), verdict.promise)
        for line in verdict.told():
            add_row(table, "", "", "", f"  {line}")
    print_table(table)
    broken = [verdict for verdict in verdicts if verdict.word == "broken"]
    tests = sum(len(verdict.tried) for verdict in verdicts)
    tell(f"{counted(tests, 'test')}: {f'{len(broken)} broken' if broken else 'nothing is broken'}")
    return not broken
