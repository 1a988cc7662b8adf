"""What ``worker`` does: tasks until a signal, with logs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bide.cli.instants import span
from bide.cli.logs import JsonFormatter, LogListener, PlainFormatter, write_logs
from bide.cli.looping import run_quickly
from bide.cli.metering import metered
from bide.cli.opening import is_in_memory, load, require_known
from bide.cli.printing import counted, listed, tell
from bide.cli.queues import declared
from bide.cli.shown_settings import in_one_line, in_words, settings_with_flags
from bide.cli.stopping import stop_on_signals
from bide.cli.tallying import tallied
from bide.config.worker import WorkerSettings
from bide.core.names import nearest
from bide.errors import BideError
from bide.telemetry import Record, TaskSettled

if TYPE_CHECKING:
    from bide.app import App

_OUTCOMES = ("succeeded", "retried", "dead", "given_back", "lost")


@dataclass(frozen=True, slots=True)
class Logging:
    """The least level logged, and how; ``form`` None: plain on a terminal, else JSON lines."""

    level: str
    form: str | None

    def begin(self) -> None:
        """Write every logger's lines to standard error from now on."""
        plain = self.form == "plain" if self.form is not None else sys.stderr.isatty()
        write_logs(self.level, PlainFormatter() if plain else JsonFormatter())


def work_until_stopped(
    target: str, flags: Mapping[str, str | None], *, logs: Logging, metrics_at: tuple[str, int | None]
) -> None:
    """Run the tasks of ``target`` until SIGINT or SIGTERM, then say what came of it.

    Raises ``typer.BadParameter`` for a flag that is wrong, ``UnknownName`` for a queue that no task is in, and
    ``BideError`` where there is no task.
    """
    app = load(target)
    settings = settings_with_flags(app, flags)
    app.flags = flags
    queues = _queues(app, settings, target)
    if is_in_memory(app):
        tell('with provider "memory://" this worker gets only what its own tasks submit')
    settled = Counter[str]()

    def count(record: Record) -> None:
        if isinstance(record, TaskSettled):
            settled[record.outcome] += 1

    async def work() -> None:
        stopping, began = asyncio.Event(), app.clock.monotonic()
        logs.begin()
        app.telemetry.listen(LogListener(app.clock))
        app.telemetry.listen(count)
        with stop_on_signals(stopping, app.stop_now):
            async with app.open():
                with metered(app, *metrics_at) as served:
                    _log_start(app, settings, queues, served)
                    async with tallied(app):
                        await app.worker().run(stopping=stopping)
        _log_end(settled, app.clock.monotonic() - began)

    run_quickly(work)


def _queues(app: App, settings: WorkerSettings, target: str) -> dict[str, list[str]]:
    """The tasks of each queue that is worked on."""
    tasks: dict[str, list[str]] = {queue: [] for queue in sorted(declared(app))}
    for task in app.declarations.tasks.values():
        tasks[task.queue].append(task.name)
    for queue in settings.queues or ():
        if queue not in tasks and nearest(queue, tasks) is None:
            raise BideError(
                f"queue {queue!r} is not declared, and no task is in it; to work on what is left there, declare it: "
                f'app.queue("{queue}"), or a block [queues.{queue}]'
            )
    require_known("queue", settings.queues or (), tasks)
    chosen = {queue: tasks[queue] for queue in settings.queues or tasks}
    if not any(chosen.values()):
        where = f"queue {listed(settings.queues)}" if settings.queues else target
        raise BideError(
            f"no task is declared in {where}, so there is nothing for a worker to do; see @app.task"
        )
    return chosen


def _log_start(
    app: App, settings: WorkerSettings, queues: Mapping[str, list[str]], served: str | None
) -> None:
    fields: dict[str, Any] = {
        "store": app.location,
        "queues": {queue: sorted(tasks) for queue, tasks in queues.items()},
        "settings": {name: _plain(value) for name, value, _ in settings.rows()},
        "metrics": served,
    }
    tasks = "; ".join(f"{queue}: {', '.join(sorted(tasks)) or 'no task'}" for queue, tasks in queues.items())
    metrics = f"; metrics at {served}" if served else ""
    message = f"worker of {app.location}; {tasks}; {in_one_line(settings)}{metrics}"
    _log("worker.started", message, fields)


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return list(value)
        case None | int() | float() | str():
            return value
        case _:
            return in_words(value)


def _log_end(settled: Mapping[str, int], seconds: float) -> None:
    numbers = {outcome: settled.get(outcome, 0) for outcome in _OUTCOMES}
    words = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in numbers.items())
    message = f"stopped after {span(seconds * 1000)}: {counted(sum(numbers.values()), 'attempt')}, {words}"
    _log("worker.ended", message, numbers)


def _log(event: str, message: str, fields: Mapping[str, Any]) -> None:
    logging.getLogger("bide").info(message, extra={"bide_event": event, "bide_fields": fields})
