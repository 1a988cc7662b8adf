"""Addresses of stores that are servers, by scheme: who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from bide.core.addresses import SCHEMES as POSTGRES
from bide.core.addresses import postgres_address
from bide.core.redis_address import SCHEMES as REDIS
from bide.core.redis_address import redis_address
from bide.core.s3_address import SCHEME as S3
from bide.core.s3_address import s3_address
from bide.core.sqs_address import SCHEME as SQS
from bide.core.sqs_address import sqs_address


class ServerAddress(Protocol):
    """Where a store is on a server."""

    @property
    def place(self) -> str:
        """For people; it shows no secret."""
        ...


SERVERS: Mapping[str, Callable[[str], ServerAddress]] = MappingProxyType(
    {
        **dict.fromkeys(POSTGRES, postgres_address),
        **dict.fromkeys(REDIS, redis_address),
        S3: s3_address,
        SQS: sqs_address,
    }
)
"""Each raises :class:`~bide.errors.SettingError` for an address that cannot be read."""
