"""Bringing the tables of a schema up to this version.

Migrations are the numbered ``.sql`` files of this folder. Several programs may start at once: an advisory lock lets
one of them apply what is missing, in one transaction, and the others look again after it, so that a schema is either
as it was or wholly migrated. Nothing is written to one that is not ours or that a newer version wrote.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from bide import __version__
from bide.core.addresses import PostgresAddress
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer
from bide.providers.postgres.texts import for_schema

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('bide migrations of ' || $1, 0))"

HAS_SCHEMA = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)"

_TABLES = """
SELECT c.relname::text, EXISTS (SELECT 1 FROM pg_attribute AS a
                                WHERE a.attrelid = c.oid AND a.attname = 'schema_version')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
"""

_KNOWN_TABLES = frozenset({"polls", "subscriptions", "events", "work_items", "schedules", "meta"})


@cache
def migrations() -> dict[int, str]:
    """SQL by schema version, in order."""
    files = [entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".sql")]
    numbered = {int(entry.name.partition("_")[0]): entry.read_text(encoding="utf-8") for entry in files}
    return dict(sorted(numbered.items()))


async def migrate(connection: Any, address: PostgresAddress) -> None:
    """Make the schema where there is none, and its tables as this version needs them. For within a transaction."""
    encoding = await connection.fetchval("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise ProviderError(
            f"{address.place}: the database is encoded as {encoding}, which cannot hold every text; "
            "use a database with ENCODING 'UTF8'"
        )
    newest = max(migrations())
    if await version_of(connection, address) == newest:
        return
    await connection.fetchval(_LOCK, address.schema)
    version = await version_of(connection, address)  # again: another program may have been first
    if version == newest:
        return
    if not await connection.fetchval(HAS_SCHEMA, address.schema):
        await connection.execute(f'CREATE SCHEMA "{address.schema}"')
    for number, script in migrations().items():
        if number > version:
            await connection.execute(for_schema(script, address.schema))
    await connection.execute(for_schema("DELETE FROM bide.meta", address.schema))
    await connection.execute(
        for_schema("INSERT INTO bide.meta VALUES ($1, $2)", address.schema), newest, __version__
    )


async def version_of(connection: Any, address: PostgresAddress) -> int:
    """The last migration of the schema, 0 for one without tables of ours. Refuses what is not for us.

    Raises :class:`~bide.errors.ProviderError` for what is another program's, damaged, or written by a newer version.
    """
    tables = dict(await connection.fetch(_TABLES, address.schema))
    if not tables.get("meta"):
        taken = sorted(tables.keys() & _KNOWN_TABLES)
        if taken:
            raise ProviderError(
                f"{address.place}: its schema {address.schema!r} is another program's (it has a table "
                f"{taken[0]!r} that is not bide's); nothing was changed; choose another with ?schema="
            )
        return 0
    found = await connection.fetchrow(
        for_schema("SELECT schema_version, written_by FROM bide.meta", address.schema)
    )
    if found is None:
        raise ProviderCorrupt(
            f"{address.place}: its table 'meta' is empty, so nobody knows which version wrote it; "
            "it was left as it is; restore a backup, or choose another schema with ?schema="
        )
    version, written_by = found
    newest = max(migrations())
    if version > newest:
        raise ProviderNewer(
            f"{address.place}: it was written by bide {written_by} (schema {version}), and this is bide "
            f"{__version__}, which knows schemas up to {newest}; nothing was changed; "
            f"upgrade to bide {written_by} or newer, or choose another schema with ?schema="
        )
    return int(version)
