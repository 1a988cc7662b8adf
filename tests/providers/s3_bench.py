"""The bench of S3, on a server of the tests'."""

from __future__ import annotations

import itertools
import os

from bide.testing import VirtualClock
from bide.testing.benches import s3
from tests.providers.s3_server import S3Server

_numbers = itertools.count()


class S3Bench(s3.S3Bench):
    """A store under a prefix of its own on ``server``."""

    def __init__(self, server: S3Server, options: str = "", clock: VirtualClock | None = None) -> None:
        super().__init__(server.address(f"{os.getpid()}-{next(_numbers)}", options), clock)
