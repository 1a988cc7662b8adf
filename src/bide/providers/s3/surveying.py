"""What lies in a store, at as few listings as that takes.

Up to a thousand objects are one listing, of everything. Beyond that each part is listed by itself when it is asked
for, and those parts that are read from their beginning only are one page.
"""

from __future__ import annotations

from bide.providers.s3.bucket import Bucket, Listed, Page


class Survey:
    """A look at everything. What it answers is as old as it, or younger."""

    def __init__(self, bucket: Bucket, page: Page) -> None:
        self._bucket = bucket
        self._page = page

    @property
    def is_small(self) -> bool:
        """Whether one listing showed everything."""
        return self._page.whole

    async def all(self, prefix: str) -> list[Listed]:
        """Every object of ``prefix``, in order. Raises ``ProviderError``."""
        return self._of(prefix) if self.is_small else await self._bucket.all(prefix)

    async def first(self, prefix: str) -> list[Listed]:
        """The first objects of ``prefix``, a thousand where there are so many. Raises ``ProviderError``."""
        return self._of(prefix) if self.is_small else list((await self._bucket.page(prefix)).objects)

    def _of(self, prefix: str) -> list[Listed]:
        return [listed for listed in self._page.objects if listed.key.startswith(prefix)]


async def surveyed(bucket: Bucket) -> Survey:
    """Look now. Raises ``ProviderError``."""
    return Survey(bucket, await bucket.page(""))
