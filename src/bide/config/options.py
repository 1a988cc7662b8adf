"""What code says about how one worker runs: the lowest of the layers of settings above the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from bide.core.durations import Duration, parse_duration, parse_ms
from bide.core.pacing import PollingStrategy
from bide.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRunOptions:
    """Settings of ``worker.run(options)``; those left out are the defaults of :mod:`bide.config.worker`.

    What the file, the environment or a flag says of the same setting replaces it.

    - ``polling``: how long to wait while there is nothing, ``PollingStrategy.fixed(...)`` or ``.adaptive(...)``.
    - ``lock_timeout`` (30 s): how long an item is locked for a task that does not say; it is renewed meanwhile.
    - ``long_poll_timeout`` (30 s): how long a fetch may block in the store; 0 never blocks.
    - ``min_poll_interval`` (100 ms): the least time between two fetches that found nothing.
    - ``grace`` (30 s): for handlers under way at a stop; 0 gives them back at once.
    - ``poll_interval`` (seconds, or any duration) or ``poll_interval_ms``: an older word for a fixed strategy.

    Raises :class:`~bide.errors.SettingError`, naming the setting, for a value that it cannot have, and for
    ``poll_interval`` in both spellings or beside ``polling``.
    """

    polling: PollingStrategy | None = None
    lock_timeout: Duration | None = None
    long_poll_timeout: Duration | None = None
    min_poll_interval: Duration | None = None
    grace: Duration | None = None
    poll_interval: Duration | None = None
    poll_interval_ms: int | None = None

    def __post_init__(self) -> None:
        if self.polling is not None and not isinstance(self.polling, PollingStrategy):
            raise SettingError(
                "polling",
                f'{self.polling!r} is not a polling strategy; write for example PollingStrategy.fixed("1s")',
            )
        for name in ("lock_timeout", "min_poll_interval", "poll_interval"):
            self._keep(name, zero=False)
        for name in ("long_poll_timeout", "grace"):
            self._keep(name, zero=True)
        if self.poll_interval_ms is None:
            older = "poll_interval" if self.poll_interval is not None else None
        else:
            older = "poll_interval_ms"
            if self.poll_interval is not None:
                raise SettingError(
                    "poll_interval", "given twice, as poll_interval and as poll_interval_ms; leave one out"
                )
            object.__setattr__(self, "poll_interval", parse_ms(self.poll_interval_ms, older))
        if older is not None and self.polling is not None:
            raise SettingError(
                older, "means a fixed polling strategy, and polling is given too; leave one out"
            )

    def _keep(self, name: str, *, zero: bool) -> None:
        value = getattr(self, name)
        if value is not None:
            object.__setattr__(self, name, parse_duration(value, name, zero=zero))
