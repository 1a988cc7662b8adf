"""PostgreSQL, the store of a fleet: any number of machines on one database. Needs ``bide[postgres]``."""

from bide.providers.postgres.provider import PostgresProvider

__all__ = ["PostgresProvider"]
