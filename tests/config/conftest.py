"""One good ``bide.toml``, and a check of it with changes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bide.config import Compiled, compile_declarations

GOOD = """
[app]
provider = "sqlite:///bide.db"
tick = "1m"

[packages.shop]
max_concurrent = 4
[packages.shop.operations.price]
get = "/price"
answer = { symbol = "str", price = "number", fetched_at = "str" }
select = { symbol = "s", price = "data.price", fetched_at = "at" }
[packages.shop.events.PriceChanged]
public = true
fields = { symbol = "str", price = "number" }
[packages.shop.polls.price]
call = "price"
every = "1m"
emits = "PriceChanged"

[connections.eu]
package = "shop"
base_url = "http://127.0.0.1:9000"
headers = { Authorization = "Bearer ${SHOP_TOKEN}" }
max_concurrent = 2
polls = { price = "5m" }

[subscribers.audit]
on = "shop.PriceChanged"
webhook = "http://127.0.0.1:9001/hook"
secret = "${AUDIT_SECRET}"
within = "1h"

[watches.python_release]
url = "https://api.example.org/releases/latest"
every = "5m"
select = { tag = "tag_name", url = "html_url" }
to = [{ command = ["notify-send", "release"] }]
"""

ENVIRONMENT = {"SHOP_TOKEN": "t0ken", "AUDIT_SECRET": "s3cret"}

Check = Callable[..., Compiled]


@pytest.fixture
def good() -> dict[str, Any]:
    """The tables of a file with no mistake in it."""
    return tomllib.loads(GOOD)


@pytest.fixture
def check(good: dict[str, Any], tmp_path: Path) -> Check:
    """Checks the good tables with ``changes``: values by dotted path; None takes the entry away."""

    def check(changes: Mapping[str, object], environment: Mapping[str, str] = ENVIRONMENT) -> Compiled:
        tables = deepcopy(good)
        for path, value in changes.items():
            _change(tables, path.split("."), value)
        return compile_declarations(tables, folder=tmp_path, environment=environment)

    return check


def _change(table: Any, path: list[str], value: object) -> None:
    *parents, key = path
    for name in parents:
        table = table[int(name)] if isinstance(table, list) else table.setdefault(name, {})
    if value is None:
        del table[key]
    else:
        table[key] = value
