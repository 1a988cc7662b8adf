"""The store in a bucket: for fleets that have an object store and no database."""

from __future__ import annotations

from collections.abc import Mapping

from bide.clock import Clock
from bide.core.s3_address import s3_address
from bide.errors import ProviderError
from bide.providers.choosing import Turns
from bide.providers.s3.bucket import Bucket
from bide.providers.s3.events import S3Events
from bide.providers.s3.inspection import S3Inspection
from bide.providers.s3.joining import S3Joining
from bide.providers.s3.opening import opened
from bide.providers.s3.parts import Parts
from bide.providers.s3.polls import S3Polls
from bide.providers.s3.work import S3Work


class S3Provider(S3Work, S3Joining, S3Polls, S3Events, S3Inspection):
    """Keeps everything under one prefix of a bucket, by conditional writes alone.

    A fetch answers at once; waiting is the dispatcher's. Items of order keys and limits over the fleet would need
    somebody who sees all that runs, and are refused. Instants are the server's, known to a fraction of a second.
    A provider serves any number of event loops.

    Raises :class:`~bide.errors.SettingError` for an address that cannot be read.
    """

    def __init__(self, address: str, *, clock: Clock, bucket: Bucket | None = None) -> None:
        """``bucket`` stands in for the one of the address: for tests that come between."""
        self._address = s3_address(address)
        self._clock = clock
        self._bucket = bucket or Bucket(self._address, clock)
        self._turns = Turns()
        self._open: Parts | None = None

    async def open(self) -> None:
        """Make the store where there is none, having tried out whether its server honours conditional writes.

        Raises :class:`~bide.errors.ProviderNewer`, :class:`~bide.errors.ProviderCorrupt` or another
        :class:`~bide.errors.ProviderError`, naming the bucket and what to do; then nothing was changed.
        """
        if self._open is not None:
            return
        self._bucket.open()
        try:
            shards = await opened(self._bucket, self._address, self._clock)
        except BaseException:
            self._bucket.close()
            raise
        self._open = Parts.of(self._bucket, self._clock, shards)

    async def close(self) -> None:
        """Say what is not said yet of what was enqueued here, and make no more requests."""
        parts, self._open = self._open, None
        if parts is not None:
            await parts.store.marker.flush()
        self._bucket.close()

    def requests(self) -> Mapping[str, int]:
        """Requests made so far, by class: ``GET``, ``PUT``, ``LIST``, ``DELETE`` and ``HEAD``."""
        return self._bucket.requests()

    @property
    def pending(self) -> int:
        """How many requests are under way at this moment."""
        return self._bucket.pending

    @property
    def shards(self) -> int:
        """How many parts the index of the store has; said when it was made."""
        return self._parts().store.shards

    def distrust_clock(self) -> None:
        """Forget what is known of the server's clock, as after ten minutes: it may have been set."""
        self._parts().store.time.forget()

    def _parts(self) -> Parts:
        if self._open is None:
            raise ProviderError(f"{self._bucket.place}: the provider is not open")
        return self._open
