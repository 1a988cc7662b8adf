"""SQLite, the default store: one file, safe for several processes on one machine, readable with plain SQL."""

from bide.providers.sqlite.provider import SqliteProvider

__all__ = ["SqliteProvider"]
