"""The project that commands are run in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.rig import Project, open_shop


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_APP", raising=False)
    with open_shop() as shop:
        made = Project(tmp_path, shop)
        made.declare()
        yield made
