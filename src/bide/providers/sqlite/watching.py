"""Wake-ups between processes on one file: a knock at the write-ahead log, heard through inotify.

Who has made work eligible opens and closes the write-ahead log after its commit, which changes nothing, and every
process in which a fetch waits has an inotify watch on just that. Watching for writes would wake too often, for each
commit of anything, and too early: the log is written before the commit can be seen. (The database itself must not
be opened and closed: that would drop the locks that SQLite holds on it.)

A knock is a hint and never more. Where inotify is not to be had, or nobody knocks, waiting fetches look by
themselves.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bide.clock import Clock
from bide.core.pacing import PollingStrategy
from bide.providers.longpoll import LOOK_AGAIN_S

KNOCKS_AT_ONCE = 50
"""So many knocks in a row that led to nothing are each heard at once."""

REST_MS = 20
"""After more of them, milliseconds in which no other is heard."""

CALM_MS = 1000
"""After so long without a knock they are counted from the beginning."""

_IN_ATTRIB = 0x4
_IN_CLOSE_NOWRITE = 0x10
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_WANTED = _IN_CLOSE_NOWRITE | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
_EVENT = struct.Struct("iIII")
"""``struct inotify_event`` without its name (Linux, inotify(7)): watch, mask, cookie, length of the name."""

_BUFFER = 64 * 1024

_LOG = logging.getLogger("bide.sqlite")


class Inotify:
    """A thin wrapper of inotify(7) for one file at a time. Raises ``OSError``."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, "inotify is a part of Linux")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, path: Path) -> None:
        """Watch ``path`` for being opened and closed, removed or moved."""
        self._checked(self._libc.inotify_add_watch(self.fd, os.fsencode(path), _WANTED))

    def read(self) -> int:
        """What happened since the last time, all masks in one; 0: nothing."""
        try:
            events = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return 0
        masks, at = 0, 0
        while at < len(events):
            _, mask, _, length = _EVENT.unpack_from(events, at)
            masks |= mask
            at += _EVENT.size + length
        return masks

    def close(self) -> None:
        os.close(self.fd)

    def _checked(self, answer: int) -> int:
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer


def knock(log: Path) -> None:
    """Wake every process in which a fetch waits on the database of this write-ahead log."""
    with suppress(OSError):
        os.close(os.open(log, os.O_RDONLY | os.O_CLOEXEC))


class Watch:
    """One watch for all fetches of a provider that wait. It begins with the first of them."""

    def __init__(self, log: Path, clock: Clock, ring: Callable[[], None]) -> None:
        self._log = log
        self._clock = clock
        self._ring = ring
        self._lock = threading.Lock()
        self._waiting = 0
        self._ear: Ear | None = None
        self._refused = False

    @contextmanager
    def waiter(self) -> Iterator[Waiter]:
        """For one fetch that may wait."""
        waiter = Waiter(self, self._clock)
        try:
            yield waiter
        finally:
            if waiter.is_waiting:
                self._leave()

    def close(self) -> None:
        """End it; it begins anew should a fetch wait again."""
        with self._lock:
            ear, self._ear = self._ear, None
            self._refused = False
        if ear is not None:
            ear.close()

    def useful(self) -> None:
        """A fetch that waited found something: what knocks is worth hearing."""
        ear = self._ear
        if ear is not None:
            ear.knocks = 0

    def will_look(self) -> None:
        """What was told until now is seen by the look that follows."""
        with self._lock:
            if self._ear is not None and not self._waiting:
                self._ear.drop()

    def wait(self, *, first: bool) -> bool | None:
        """Somebody waits (``first``: and did not before). True: knocks are heard; False: from now on; None: not."""
        with self._lock:
            self._waiting += first
            if self._ear is None and not self._refused:
                self._ear = self._opened()
                return None if self._ear is None else False
            return None if self._ear is None else self._ear.listen()

    def _leave(self) -> None:
        with self._lock:
            self._waiting -= 1
            if not self._waiting and self._ear is not None:
                self._ear.pause()

    def _opened(self) -> Ear | None:
        try:
            return Ear(self._log, self._ring)
        except OSError as error:
            self._refused = True
            level = logging.WARNING if sys.platform.startswith("linux") else logging.DEBUG
            _LOG.log(
                level,
                "%s: what other processes enqueue is looked for at intervals of up to 5 s, since inotify is not to "
                "be had (%s)",
                self._log,
                error,
            )
            return None


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


class Ear:
    """The thread that hears knocks, while somebody waits. Raises ``OSError`` where there is no inotify."""

    def __init__(self, log: Path, ring: Callable[[], None]) -> None:
        self.knocks = 0
        """Those in a row that led to nothing."""
        self._log = log
        self._ring = ring
        self._inotify = Inotify()
        self._watched: tuple[int, int] | None = None
        self._ending = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended = False
        self._listening = threading.Event()
        try:
            self._watch_log()
        except BaseException:
            self._close_files()
            raise
        self._listening.set()
        self._thread = threading.Thread(target=self._serve, name=f"bide-sqlite-watch-{log.name}", daemon=True)
        self._thread.start()

    def listen(self) -> bool | None:
        """From now on; as :meth:`Watch.wait` answers."""
        try:
            is_new = self._watch_log()
        except OSError:  # removed: another one will be made
            return None
        self._listening.set()
        return not is_new

    def pause(self) -> None:
        """Nobody waits. What knocks now is heard by the next who does, unless it is dropped."""
        self._listening.clear()

    def drop(self) -> None:
        """Forget what was not heard yet."""
        self._inotify.read()

    def close(self) -> None:
        self._ended = True
        self._listening.set()
        os.eventfd_write(self._ending, 1)
        self._thread.join()
        self._close_files()

    def _watch_log(self) -> bool:
        """Watch the log that is at its path now; whether that is another one than before."""
        found = os.stat(self._log)
        identity = found.st_dev, found.st_ino
        if identity == self._watched:
            return False
        self._watched = None
        self._inotify.watch(self._log)
        self._watched = identity
        return True

    def _serve(self) -> None:
        poll, rest = select.poll(), select.poll()
        poll.register(self._inotify.fd, select.POLLIN)
        poll.register(self._ending, select.POLLIN)
        rest.register(self._ending, select.POLLIN)
        while True:
            self._listening.wait()
            heard = poll.poll(CALM_MS if self.knocks else None)
            if self._ended:
                return
            if not heard:
                self.knocks = 0
            elif self._listening.is_set() and self._inotify.read():
                self._ring()
                self.knocks += 1
                if self.knocks > KNOCKS_AT_ONCE:
                    rest.poll(REST_MS)

    def _close_files(self) -> None:
        self._inotify.close()
        os.close(self._ending)
