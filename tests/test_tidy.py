"""The rules of the house as tests: who may import whom, what core may not do, and how long things may get.

Each test collects everything that offends and says where, so that one run shows all of it.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = [
    [unit.strip() for unit in layer.split("|")]
    for layer in reversed(PROJECT["tool"]["importlinter"]["contracts"][0]["layers"])
]
"""From the bottom up, as import-linter reads them: a module imports from its unit and from layers below."""

BACKBONE = ["errors", "core", "clock", "slots", "engine", "app", "cli"]
"""One unit of each layer that the design names, from the bottom up."""

FACADES = {"bide", "bide.__main__"}
"""What stands above every layer: the names that users import, and ``python -m bide``."""

TESTING = "bide.testing"
CORE_STANDARD_LIBRARY = {
    *("__future__", "abc", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "datetime"),
    *("decimal", "difflib", "email", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "http"),
    *("inspect", "itertools", "json", "math", "numbers", "operator", "re", "statistics", "string", "struct"),
    *("types", "typing", "unicodedata", "urllib", "warnings", "zlib", "zoneinfo"),
}
CORE_LIBRARIES = {"cronsim", "jmespath", "pydantic", "pydantic_core"}
CORE_FORBIDDEN_SUBMODULES = {"urllib.request", "http.client", "http.server", "http.cookiejar"}
CLOCK_MODULES = {"time", "random", "secrets", "uuid", "sched", "timeit"}
MAKES_SECRETS = {"bide.cli": {"secrets"}}
"""Where chance decides nothing and only has to be hard to guess."""

READS_THE_CLOCK = {"now", "utcnow", "today"}

LONGEST_FUNCTION = 70
LONGEST_MODULE = 300
LONG_MODULES = {"bide.provider": "the contract is read in one place, and a part of it has no name of its own"}

VAGUE_NAMES = {"utils", "util", "helpers", "common", "types", "models", "base", "manager", "misc"}

ENTRIES = {
    "bide.sync": "users import it as it is",
    "bide.__main__": "python -m bide",
}
"""Modules that no other needs to import."""

STARTERS = SOURCE / "bide" / "cli" / "starters"
"""Files that are copied for users to begin with: theirs, and no modules of the product."""


class Module:
    """One file of the product."""

    def __init__(self, path: Path) -> None:
        self.path = path
        parts = path.relative_to(SOURCE).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text, str(path))
        self.nodes = list(ast.walk(self.tree))

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"

    def imports(self, *, typing_only: bool = False) -> Iterator[tuple[ast.stmt, str]]:
        """Every imported module, wherever the statement stands; those for type checkers only if asked for."""
        hidden = set[ast.AST]()
        if not typing_only:
            for node in self.nodes:
                if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                    hidden.update(below for statement in node.body for below in ast.walk(statement))
        for node in self.nodes:
            if node in hidden:
                continue
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node, name) for name in self._from(node))

    def _from(self, node: ast.ImportFrom) -> Iterator[str]:
        base = node.module or ""
        if node.level:
            parts = self.name.split(".")
            kept = parts[: len(parts) - node.level + self.is_package]
            base = ".".join([*kept, base]) if base else ".".join(kept)
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full in names_of_modules() else base

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    @cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """Every call with what is called, as it is written."""
        return [(node, ast.unparse(node.func)) for node in self.nodes if isinstance(node, ast.Call)]


@cache
def source_files() -> tuple[Path, ...]:
    return tuple(path for path in sorted(SOURCE.rglob("*.py")) if STARTERS not in path.parents)


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path) for path in source_files())


@cache
def names_of_modules() -> frozenset[str]:
    found = set[str]()
    for path in source_files():
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return frozenset(found)


@cache
def project_files() -> tuple[Path, ...]:
    """What git tracks or would; without git (in a source archive) every file that is no by-product."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "tests", "examples", "docs", "benchmarks")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        paths += list(ROOT.glob("*"))
        return tuple(path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return tuple(path for path in (ROOT / name for name in listed if name) if path.is_file())


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    """The files of the project that are text."""
    found = []
    for path in project_files():
        raw = path.read_bytes()
        if b"\0" not in raw:
            found.append((path.relative_to(ROOT), raw.decode("utf-8", "replace")))
    return tuple(found)


def is_within(module: str, unit: str) -> bool:
    return module == unit or module.startswith(f"{unit}.")


def place(module: str) -> tuple[int, str] | None:
    """The layer of ``module`` and its unit there."""
    for rank, layer in enumerate(LAYERS):
        for unit in layer:
            if is_within(module, unit):
                return rank, unit
    return None


def report(offences: list[str]) -> None:
    assert not offences, "\n" + "\n".join(offences)


# --- imports ------------------------------------------------------------------------------------------------


def test_every_module_has_a_layer() -> None:
    report(
        [
            f"{module.name} stands in no layer; give it one in pyproject.toml (importlinter)"
            for module in modules()
            if place(module.name) is None
            and module.name not in FACADES
            and not is_within(module.name, TESTING)
        ]
    )


def test_the_layers_stand_in_the_order_of_the_design() -> None:
    ranks = [place(f"bide.{unit}") for unit in BACKBONE]
    assert [rank[0] for rank in ranks if rank] == sorted({rank[0] for rank in ranks if rank})
    assert None not in ranks


def test_imports_point_one_way() -> None:
    offences = []
    for module in modules():
        here = place(module.name)
        if here is None:
            continue
        for node, imported in module.imports():
            there = place(imported)
            if imported == "bide" and not _asks_the_version(node):
                offences.append(f"{module.at(node)}: imports the whole of bide; import the module meant")
            elif there is not None and (there[0] > here[0] or (there[0] == here[0] and there[1] != here[1])):
                relation = "above it" if there[0] > here[0] else "beside it"
                offences.append(f"{module.at(node)}: {module.name} imports {imported}, which is {relation}")
    report(offences)


def _asks_the_version(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} == {"__version__"}


def test_nothing_imports_the_test_tools_but_the_command_that_tests_a_provider() -> None:
    offences = []
    for module in modules():
        if is_within(module.name, TESTING):
            continue
        lazy = {id(inner) for function in module.functions() for inner in ast.walk(function)}
        for node, imported in module.imports(typing_only=True):
            allowed = is_within(module.name, "bide.cli") and id(node) in lazy
            if is_within(imported, TESTING) and not allowed:
                offences.append(f"{module.at(node)}: {module.name} imports {imported}")
    report(offences)


def test_no_module_is_dead() -> None:
    """Each is imported by another, named as text by one that loads lazily, or an entry of its own."""
    scripts = PROJECT["project"]["scripts"].values()
    used = {target.partition(":")[0] for target in scripts} | ENTRIES.keys() | {"bide"}
    for module in modules():
        used.update(imported for _, imported in module.imports(typing_only=True) if imported != module.name)
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value.partition(":")[0])
    for name in list(used):  # a package lives where anything in it does
        while "." in name:
            name = name.rpartition(".")[0]
            used.add(name)
    report(
        [
            f"{module.path.relative_to(ROOT)}: nothing imports {module.name}"
            for module in modules()
            if module.name not in used and not is_within(module.name, TESTING)
        ]
    )


# --- core is pure, and only the clock tells time ------------------------------------------------------------


def test_core_imports_nothing_that_waits_or_reaches_out() -> None:
    offences = []
    for module in modules():
        if not is_within(module.name, "bide.core"):
            continue
        for node, imported in module.imports():
            top = imported.partition(".")[0]
            if top == "bide":
                continue
            if top not in CORE_STANDARD_LIBRARY | CORE_LIBRARIES or imported in CORE_FORBIDDEN_SUBMODULES:
                offences.append(f"{module.at(node)}: core imports {imported}, which it has no use for")
    report(offences)


def test_core_neither_waits_nor_reads_nor_prints() -> None:
    offences = []
    for module in modules():
        if not is_within(module.name, "bide.core"):
            continue
        offences += [
            f"{module.at(node)}: core is not asynchronous"
            for node in module.nodes
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        ]
        for call, called in module.calls:
            if called in {"open", "print", "input", "exec", "eval", "__import__"}:
                offences.append(f"{module.at(call)}: core calls {called}()")
    report(offences)


def test_only_the_clock_tells_time_or_draws_chance() -> None:
    offences = []
    for module in modules():
        if module.name == "bide.clock":
            continue
        for node, imported in module.imports():
            top = imported.partition(".")[0]
            excused = any(
                is_within(module.name, unit) and top in MAKES_SECRETS[unit] for unit in MAKES_SECRETS
            )
            if top in CLOCK_MODULES and not excused:
                offences.append(f"{module.at(node)}: imports {imported}; use the clock it is given")
        for call, called in module.calls:
            owner, _, method = called.rpartition(".")
            reads = method in READS_THE_CLOCK and owner.rpartition(".")[2] in {"datetime", "date"}
            loop_time = method == "time" and "loop" in owner
            if reads or loop_time or called == "os.urandom":
                offences.append(f"{module.at(call)}: calls {called}(); use the clock it is given")
            if called == "asyncio.sleep" and not is_within(module.name, TESTING) and not _is_zero(call):
                offences.append(f"{module.at(call)}: sleeps by asyncio; use the clock it is given")
    report(offences)


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


# --- size and names -----------------------------------------------------------------------------------------


def test_a_function_fits_a_screen() -> None:
    offences = []
    for module in modules():
        for function in module.functions():
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > LONGEST_FUNCTION:
                offences.append(f"{module.at(function)}: {function.name} has {length} lines")
    report(offences)


def test_a_module_is_one_idea() -> None:
    offences = []
    for module in modules():
        length = len(module.text.splitlines())
        if length > LONGEST_MODULE and module.name not in LONG_MODULES:
            offences.append(f"{module.path.relative_to(ROOT)}: {length} lines")
    report(offences)


def test_no_module_has_a_vague_name() -> None:
    report(
        [
            f"{module.path.relative_to(ROOT)}: says nothing of what it holds"
            for module in modules()
            if VAGUE_NAMES & set(module.name.split("."))
        ]
    )


def test_what_is_public_is_documented() -> None:
    offences = []
    for module in modules():
        if module.tree.body and not ast.get_docstring(module.tree):
            offences.append(f"{module.path.relative_to(ROOT)}: the module has no docstring")
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            overloads = [ast.unparse(each) for each in node.decorator_list] == ["overload"]
            if not node.name.startswith("_") and not overloads and not ast.get_docstring(node):
                offences.append(f"{module.at(node)}: {node.name} is public and has no docstring")
    report(offences)


def test_public_names_can_be_imported() -> None:
    """Also those that are loaded lazily."""
    offences = []
    for name in ("bide", "bide.testing"):
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            try:
                getattr(module, public)
            except (AttributeError, ImportError) as error:
                offences.append(f"{name}.{public}: {error}")
    report(offences)


# --- what is left behind
# --------------------------------------------------------------------------------------


def test_only_the_command_line_prints() -> None:
    report(
        [
            f"{module.at(call)}: prints"
            for module in modules()
            if not is_within(module.name, "bide.cli")
            for call, called in module.calls
            if called in {"print", "sys.stdout.write", "sys.stderr.write"}
        ]
    )


LEFT_BEHIND = {
    "an unfinished thought": re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b"),
    "a path of one machine": re.compile(r"(?<![\w.])/(" + "|".join(["wo" + "rk", "ro" + "ot"]) + r")/\w"),
    "a package registry": re.compile(
        "|".join(
            [
                "index" + r"-url\b",
                r"https?://[^\s\"')]+/sim" + r"ple\b",
                "python" + "hosted",
                "artif" + "actory",
            ]
        )
    ),
}


@pytest.mark.parametrize("kind", LEFT_BEHIND)
def test_nothing_is_left_behind(kind: str) -> None:
    offences = []
    for path, text in texts():
        for number, line in enumerate(text.splitlines(), 1):
            if LEFT_BEHIND[kind].search(line):
                offences.append(f"{path}:{number}: {kind}: {line.strip()[:100]}")
    report(offences)


def test_the_scan_sees_the_whole_product() -> None:
    names = names_of_modules()
    assert {"bide", "bide.errors", "bide.clock", "bide.core", "bide.core.claim", "bide.slots"} <= names
    assert "bide.core.claim" in {name for module in modules() for _, name in module.imports()}
    assert ROOT / "pyproject.toml" in project_files()
