"""The bench of PostgreSQL, on a server of the tests'."""

from __future__ import annotations

from bide.testing import VirtualClock
from bide.testing.benches import postgres
from tests.providers.postgres_server import Server


class PostgresBench(postgres.PostgresBench):
    """A store in a schema of its own on ``server``, emptied; ``options`` are more of those of its address."""

    def __init__(
        self,
        server: Server,
        schema: str = "shifted",
        options: str = "",
        clock: VirtualClock | None = None,
    ) -> None:
        address = server.address(options=f"?schema={schema}&application_name={schema}{options}")
        super().__init__(address, clock)
