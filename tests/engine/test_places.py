"""Places: who makes the calls, and in which context."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

from bide.engine.places import Places
from bide.testing import VirtualClock

mark: ContextVar[str] = ContextVar("mark", default="untouched")


@dataclass
class Call:
    name: str
    connection: str = "eu"
    gives_up_at: float = 1e9
    alone: bool = False


def places(
    make: Callable[[Call], Awaitable[None]], clock: VirtualClock, most: int = 1, caps: int = 1
) -> tuple[Places[Call], list[str]]:
    dropped: list[str] = []
    made = Places[Call](
        most, {"eu": caps, "us": caps}, make=make, dropped=lambda call: dropped.append(call.name), clock=clock
    )
    return made, dropped


async def made_all(made: Places[Call], calls: list[Call]) -> None:
    made.start(calls)
    await made.wait_for_all()


async def test_a_call_that_runs_foreign_code_shares_its_context_with_no_other() -> None:
    seen: list[str] = []

    async def make(call: Call) -> None:
        seen.append(mark.get())
        mark.set(call.name)
        made.over(call)

    made, _ = places(make, VirtualClock())
    await made_all(made, [Call(name, alone=True) for name in "abc"])
    assert seen == ["untouched"] * 3


async def test_a_call_that_fails_as_none_should_is_told_of_and_harms_no_later_one() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    seen: list[str] = []

    async def make(call: Call) -> None:
        seen.append(call.name)
        if call.name == "a":
            raise error
        made.over(call)

    error = RuntimeError("a fault of ours")
    made, dropped = places(make, VirtualClock())
    await asyncio.wait_for(made_all(made, [Call(name) for name in "abc"]), 5)
    assert seen == ["a", "b", "c"]
    assert (dropped, told) == (["a"], [error])


async def test_a_call_that_cancels_its_own_task_harms_no_later_one() -> None:
    seen: list[str] = []

    async def make(call: Call) -> None:
        seen.append(call.name)
        task = asyncio.current_task()
        assert task is not None
        if call.name == "a":
            task.cancel()
            await asyncio.sleep(0)
        made.over(call)

    made, dropped = places(make, VirtualClock())
    await made_all(made, [Call(name) for name in "abc"])
    assert seen == ["a", "b", "c"]
    assert dropped == ["a"]


async def test_what_waited_until_its_claim_may_be_anothers_is_dropped() -> None:
    clock = VirtualClock()
    called: list[str] = []

    async def make(call: Call) -> None:
        called.append(call.name)
        await clock.sleep(10)
        made.over(call)

    made, dropped = places(make, clock)
    made.start([Call("a"), Call("late", gives_up_at=5.0), Call("b")])
    await clock.advance(30)
    assert called == ["a", "b"]
    assert dropped == ["late"]
    assert "late" not in made


async def test_connections_take_turns_at_the_places() -> None:
    called: list[str] = []

    async def make(call: Call) -> None:
        called.append(call.name)
        made.over(call)

    made, _ = places(make, VirtualClock(), most=1, caps=5)
    await made_all(
        made, [*(Call(f"eu.{at}") for at in range(3)), *(Call(f"us.{at}", "us") for at in range(3))]
    )
    assert sorted(called[:2]) == ["eu.0", "us.0"]
    assert sorted(called[2:4]) == ["eu.1", "us.1"]
