"""What goes wrong with the file while it is in use: told clearly, and nothing is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.errors import ProviderError
from bide.provider import Schedule
from bide.testing.conformance.bench import answered
from tests.providers.files import ITEM, provider_of


async def test_a_full_disk_loses_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    provider = provider_of(tmp_path / "bide.db")
    await provider.open()
    schedules = [Schedule("eu.price", timedelta(minutes=1))]
    (claim,) = await provider.claim_polls(schedules, 1)
    await provider.enqueue([ITEM])
    write = provider._database.write
    (pages,) = await write(lambda tx, _: tx.row("PRAGMA page_count"), None)
    await write(lambda tx, count: tx.row(f"PRAGMA max_page_count = {count}"), pages)
    big = replace(answered(1, claim), payload=f'"{"x" * 100_000}"')
    asked = [provider.enqueue([replace(ITEM, id=f"i{number}", payload="x" * 50_000)]) for number in range(3)]
    results = await asyncio.gather(
        provider.record_answer(claim, big), *asked, provider.poll_now(["eu.price"]), return_exceptions=True
    )
    for result in results[:4]:
        assert isinstance(result, ProviderError)
        assert result.retryable
        assert "the disk is full" in str(result)
    assert results[4] == ["eu.price"]  # what needs no room is done
    assert [row.id for row in await provider.items("q")] == ["a"]
    assert await provider.events() == []
    await write(lambda tx, _: tx.row("PRAGMA max_page_count = 100000"), None)
    await provider.enqueue([replace(ITEM, id="b", payload="x" * 50_000)])
    await provider.record_answer(claim, answered(1, claim))
    assert [row.id for row in await provider.items("q")] == ["b", "a"]
    assert len(await provider.events()) == 1
    await provider.close()


async def test_a_file_that_was_moved_away_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(ProviderError, match="moved or deleted"):
        await provider.enqueue([ITEM])
    await provider.close()


async def test_a_lock_held_for_long_is_told_and_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 10)
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_PAUSE_S", 0.001)
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ProviderError, match="another process keeps it locked") as raised:
        await provider.enqueue([ITEM])
    assert raised.value.retryable
    assert await provider.items("q") == []  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    await provider.enqueue([ITEM])
    assert len(await provider.items("q")) == 1
    await provider.close()


async def test_a_lock_held_for_a_while_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 1)
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_PAUSE_S", 0.01)
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    enqueueing = asyncio.create_task(provider.enqueue([ITEM]))
    await asyncio.sleep(0.02)
    assert not enqueueing.done()
    other.execute("COMMIT")
    other.close()
    await enqueueing
    await provider.close()
