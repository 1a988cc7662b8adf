"""Wake-ups between processes on one file: a knock at the write-ahead log, heard through inotify.

Who has made work eligible opens and closes the write-ahead log after its commit, which changes nothing, and every
process in which a fetch waits has an inotify watch on just that. Watching for writes would wake too often, for each
commit of anything, and too early: the log is written before the commit can be seen. (The database itself must not
be opened and closed: that would drop the locks that SQLite holds on it.)

A knock is a hint and never more. Where inotify is not to be had, or nobody knocks, waiting fetches look by
themselves.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bide.clock import Clock
from bide.core.durations import format_duration
from bide.core.pacing import DEFAULT_MAX_INTERVAL, PollingStrategy

LOOK_AGAIN_S = 5.0
"""A waiting fetch that hears knocks looks so often all the same: somebody may have died before knocking."""

KNOCKS_AT_ONCE = 50
"""So many knocks in a row that led to nothing are each heard at once."""

REST_S = 0.02
"""After more of them, seconds in which no other is heard."""

CALM_S = 1.0
"""After so long without a knock they are counted from the beginning."""

_IN_ATTRIB = 0x4
_IN_CLOSE_NOWRITE = 0x10
_IN_OPEN = 0x20
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_IGNORED = 0x8000
_WANTED = _IN_OPEN | _IN_CLOSE_NOWRITE | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
"""Opening too, which parts one closing from the next: equal events that follow each other become one."""

_EVENT = struct.Struct("iIII")
"""``struct inotify_event`` without its name (Linux, inotify(7)): watch, mask, cookie, length of the name."""

_BUFFER = 64 * 1024

_IS_LINUX = sys.platform.startswith("linux")

_LOG = logging.getLogger("bide.sqlite")


class Inotify:
    """A thin wrapper of inotify(7) for one file at a time. Raises ``OSError``."""

    def __init__(self) -> None:
        if not _IS_LINUX:
            raise OSError(errno.ENOSYS, "inotify is a part of Linux")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watched: tuple[int, int] | None = None

    def watch(self, path: Path) -> bool:
        """Watch the file that is at ``path`` now; whether that is another one than before."""
        before, self._watched = self._watched, None
        found = os.stat(path)
        identity = found.st_dev, found.st_ino
        if identity == before:
            self._watched = before
            return False
        self._checked(self._libc.inotify_add_watch(self.fd, os.fsencode(path), _WANTED))
        self._watched = identity
        return True

    def read(self) -> list[int]:
        """The masks of what happened since the last time."""
        try:
            events = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return []
        masks, at = [], 0
        while at < len(events):
            _, mask, _, length = _EVENT.unpack_from(events, at)
            masks.append(mask)
            if mask & _IN_IGNORED:
                self._watched = None
            at += _EVENT.size + length
        return masks

    def __del__(self) -> None:
        """The last event loop that heard it has gone."""
        if hasattr(self, "fd"):
            os.close(self.fd)

    def _checked(self, answer: int) -> int:
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer


class Watch:
    """One watch for all fetches of a provider that wait, on whatever event loops. It begins with the first."""

    def __init__(self, log: Path, clock: Clock, ring: Callable[[], None]) -> None:
        self._log = log
        self._clock = clock
        self._ring = ring
        self._lock = threading.Lock()
        self._inotify: Inotify | None = None
        self._refused = False
        self._waiting: Counter[asyncio.AbstractEventLoop] = Counter()
        self._hearing: set[asyncio.AbstractEventLoop] = set()
        self._own_knocks = 0
        """Those that were not heard yet."""
        self._in_vain = 0
        """Knocks in a row that led to nothing."""
        self._heard_at = 0.0

    def knock(self) -> None:
        """Wake every other process in which a fetch waits. From any thread."""
        if not _IS_LINUX:
            return
        with self._lock, suppress(OSError):
            os.close(os.open(self._log, os.O_RDONLY | os.O_CLOEXEC))
            self._own_knocks += 1

    @contextmanager
    def waiter(self) -> Iterator[Waiter]:
        """For one fetch that may wait."""
        waiter = Waiter(self, self._clock)
        try:
            yield waiter
        finally:
            if waiter.is_waiting:
                self._leave(asyncio.get_running_loop())

    def close(self) -> None:
        """End it; it begins anew should a fetch wait again."""
        with self._lock:
            inotify, self._inotify = self._inotify, None
            loops, self._hearing = self._hearing, set()
            self._refused = False
        if inotify is None:
            return
        for loop in loops:
            with suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(_stop_hearing, loop, inotify)

    def useful(self) -> None:
        """A fetch that waited found something: what knocks is worth hearing."""
        self._in_vain = 0

    def will_look(self) -> None:
        """What was told until now is seen by the look that follows; who is between a look and a wait is rung."""
        with self._lock:
            if self._inotify is None or self._hearing or not self._others_knocked(self._inotify):
                return
        self._ring()

    def wait(self, *, first: bool) -> bool | None:
        """Somebody waits (``first``: and did not before). True: knocks are heard; False: from now on; None: not."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._waiting[loop] += first
            if self._refused:
                return None
            try:
                self._inotify = self._inotify or Inotify()
                is_new = self._inotify.watch(self._log)
                if is_new:
                    self._own_knocks = 0
                if loop not in self._hearing:
                    loop.add_reader(self._inotify.fd, self._hear, loop, self._inotify)
                    self._hearing.add(loop)
            except FileNotFoundError:  # the log was removed; there will be another one
                return None
            except (OSError, NotImplementedError) as error:
                self._refuse(error)
                return None
        return not is_new

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._waiting[loop] -= 1
            if self._waiting[loop] > 0:
                return
            del self._waiting[loop]
            if loop in self._hearing and self._inotify is not None:
                self._hearing.discard(loop)
                loop.remove_reader(self._inotify.fd)

    def _refuse(self, error: Exception) -> None:
        """There will be no knocks to hear: say so once."""
        self._refused = True
        self._inotify = None
        _LOG.log(
            logging.WARNING if _IS_LINUX else logging.DEBUG,
            "%s: what others enqueue is looked for at intervals of up to %s, since inotify cannot be had (%s)",
            self._log,
            format_duration(DEFAULT_MAX_INTERVAL),
            error,
        )

    def _hear(self, loop: asyncio.AbstractEventLoop, inotify: Inotify) -> None:
        """Something happened to the log; called on ``loop``."""
        with self._lock:
            if not self._others_knocked(inotify):
                return
        if self._clock.monotonic() - self._heard_at > CALM_S:
            self._in_vain = 0
        self._heard_at = self._clock.monotonic()
        self._in_vain += 1
        self._ring()
        if self._in_vain > KNOCKS_AT_ONCE:
            loop.remove_reader(inotify.fd)
            loop.call_later(REST_S, self._hear_again, loop, inotify)

    def _hear_again(self, loop: asyncio.AbstractEventLoop, inotify: Inotify) -> None:
        with self._lock:
            if loop in self._hearing and self._inotify is inotify:
                loop.add_reader(inotify.fd, self._hear, loop, inotify)

    def _others_knocked(self, inotify: Inotify) -> bool:
        """Whether others did, since the last time. Those who wait here were woken when we did."""
        masks = inotify.read()
        own, self._own_knocks = self._own_knocks, 0
        knocks = sum(mask == _IN_CLOSE_NOWRITE for mask in masks)
        return knocks > own or any(mask not in {_IN_OPEN, _IN_CLOSE_NOWRITE} for mask in masks)


def _stop_hearing(loop: asyncio.AbstractEventLoop, inotify: Inotify) -> None:
    """On ``loop``. Until then ``inotify`` is kept, lest its number be another file's by now."""
    loop.remove_reader(inotify.fd)


class Waiter:
    """A fetch that may wait: how long until it looks by itself."""

    def __init__(self, watch: Watch, clock: Clock) -> None:
        self.is_waiting = False
        self._watch = watch
        self._clock = clock
        self._strategy = PollingStrategy.adaptive()
        self._interval = self._strategy.initial_interval()

    def look_again_s(self) -> float:
        """It waits now. Seconds until it looks by itself: at intervals where no knock is heard."""
        first, self.is_waiting = not self.is_waiting, True
        heard = self._watch.wait(first=first)
        if heard is not None:
            return LOOK_AGAIN_S if heard else 0
        wait = self._strategy.jittered(self._interval, self._clock.draw())
        self._interval = self._strategy.next_interval(self._interval, found=False)
        return wait.total_seconds()
