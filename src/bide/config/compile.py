"""From what was declared to what the engine runs, or to every mistake in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bide.config.connections import ConnectionShape, Packages, read_connections
from bide.config.cost import read_prices_file
from bide.config.needs import check_needs
from bide.config.packages import EventShape, read_packages
from bide.config.polls import check_store, compile_polls
from bide.config.queues import read_queues
from bide.config.report import Compiled, Place, Report
from bide.config.settings import Settings, read_settings
from bide.config.shape import Table, read_table
from bide.config.subscribers import SubscriberShape, read_subscribers
from bide.config.tasks import read_tasks
from bide.config.waits import read_waits
from bide.config.watches import read_watches
from bide.config.worker import WORKER_BLOCKS, check_queues, check_worker
from bide.core.declaration import Declarations
from bide.core.wait_declaration import WaitDeclaration
from bide.core.work import QueueDeclaration, TaskDeclaration

BLOCKS = (
    "app",
    "packages",
    "connections",
    "subscribers",
    "watches",
    "tasks",
    "queues",
    "waits",
    "cost",
    *WORKER_BLOCKS,
)


def compile_declarations(
    raw: Mapping[str, object], *, folder: Path, environment: Mapping[str, str] | None = None
) -> Compiled:
    """Check ``raw``, nested tables shaped as ``bide.toml``, and compile it.

    ``folder`` is where references such as ``"my.module:shop"`` are looked for first; following them imports
    the user's modules, and nothing else is touched: no network, no store. Every mistake is reported, whatever
    else is wrong, in the order of places. ``environment`` (by default the process's) makes warnings of variables
    that are missing, and mistakes of those that set a worker wrongly. ``raw`` may hold what Python can say and
    TOML cannot: functions, ``timedelta`` and :class:`bide.core.declaration.Twice`.
    """
    report = Report()
    place = Place(report, "", "config.key_invalid", "config.value_invalid")
    root = read_table(place, raw, BLOCKS) or Table(place, {})
    settings = read_settings(root)
    environment = os.environ if environment is None else environment
    check_worker(root, environment)
    read_prices_file(root)
    packages = Packages(read_packages(root, folder, settings.least_every), folder, settings.least_every)
    connections = list(read_connections(root, packages, settings.least_every))
    events = {event.name: event for package in packages.by_name.values() for event in package.events.values()}
    taken = {*packages.by_name, *(connection.name for connection in connections)}
    watches = list(read_watches(root, taken, _names(root), folder, settings.least_every))
    events |= {watch.event.name: watch.event for watch in watches}
    subscribers = [
        *read_subscribers(root, events, folder),
        *(subscriber for watch in watches for subscriber in watch.subscribers),
    ]
    connections += [watch.connection for watch in watches]
    heard = _heard(subscribers)
    check_store(connections, heard, settings.kind)
    check_needs(root, settings.kind)
    tasks, queues = list(read_tasks(root, folder)), list(read_queues(root))
    if not report.mistakes:  # what is wrong with a task may be its queue
        check_queues(root, {*(queue.name for queue in queues), *(task.queue for task in tasks)})
    waits = list(read_waits(root))
    declarations = (
        _declare(
            settings, connections, events, subscribers, heard=heard, tasks=tasks, queues=queues, waits=waits
        )
        if not report.mistakes
        else None
    )
    return Compiled(declarations, report.mistakes, report.warnings(environment))


def _declare(
    settings: Settings,
    connections: Sequence[ConnectionShape],
    events: Mapping[str, EventShape],
    subscribers: Sequence[SubscriberShape],
    *,
    heard: Mapping[str, Sequence[str]],
    tasks: Sequence[TaskDeclaration],
    queues: Sequence[QueueDeclaration],
    waits: Sequence[WaitDeclaration],
) -> Declarations:
    polls = [poll for connection in connections for poll in compile_polls(connection, heard)]
    return Declarations(
        provider=settings.provider,
        tick=settings.tick,
        retention=settings.retention,
        failure_retry=settings.failure_retry,
        connections={shape.name: shape.connection for shape in connections if shape.connection is not None},
        polls={poll.name: poll for poll in sorted(polls, key=lambda poll: poll.name)},
        events={name: events[name].event_type() for name in sorted(events)},
        subscribers={shape.name: shape.subscriber for shape in subscribers if shape.subscriber is not None},
        concurrency=settings.concurrency,
        max_calls=settings.max_calls,
        tasks={task.name: task for task in sorted(tasks, key=lambda task: task.name)},
        queues={queue.name: queue for queue in queues},
        waits={wait.name: wait for wait in waits},
    )


def _heard(subscribers: Sequence[SubscriberShape]) -> dict[str, list[str]]:
    """Who hears each event, by name."""
    heard: dict[str, list[str]] = {}
    for subscriber in subscribers:
        if subscriber.event is not None:
            heard.setdefault(subscriber.event, []).append(subscriber.name)
    return {event: sorted(names) for event, names in heard.items()}


def _names(root: Table) -> set[str]:
    """Names that the ``subscribers`` block uses."""
    block = root.entries.get("subscribers")
    return {name for name in block if isinstance(name, str)} if isinstance(block, Mapping) else set()
