"""The one place where errors of PostgreSQL become errors of bide: what happened, where, and one next step."""

from __future__ import annotations

import asyncpg

from bide.errors import ProviderError

_SQL_ERRORS: tuple[tuple[type[BaseException], bool, str], ...] = (
    (
        asyncpg.InvalidPasswordError,
        False,
        "the server refused the user or the password; check both in the address",
    ),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        False,
        "the server refused the connection; check the user in the address, and pg_hba.conf of the server",
    ),
    (
        asyncpg.InvalidCatalogNameError,
        False,
        "there is no such database; create it (createdb), or correct the name in the address",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        False,
        "the user may not do that; let it CREATE in the database, or make it the owner of the schema",
    ),
    (
        asyncpg.TooManyConnectionsError,
        True,
        "the server has no connection left; lower ?pool= in the address, or raise max_connections",
    ),
    (
        asyncpg.CannotConnectNowError,
        True,
        "the server is starting up or shutting down; asking again may help",
    ),
    (asyncpg.AdminShutdownError, True, "the server ended the connection; asking again may help"),
    (asyncpg.CrashShutdownError, True, "the server crashed and recovers; asking again may help"),
    (asyncpg.DeadlockDetectedError, True, "others held what was needed; asking again may help"),
    (asyncpg.SerializationError, True, "another transaction was first; asking again may help"),
    (asyncpg.LockNotAvailableError, True, "it is locked; asking again may help"),
    (asyncpg.QueryCanceledError, True, "the statement was cancelled or took too long; asking again may help"),
    (asyncpg.DiskFullError, True, "the disk of the server is full; make room, nothing that was kept is lost"),
    (asyncpg.InsufficientResourcesError, True, "the server is out of memory or of another resource"),
    (
        asyncpg.ReadOnlySQLTransactionError,
        True,
        "the server takes no writes (a standby?); name the primary in the address, "
        "or add target_session_attrs=read-write",
    ),
    (
        asyncpg.UndefinedTableError,
        False,
        "tables of the store are gone; start again to make them, or restore a backup",
    ),
    (
        asyncpg.UndefinedFunctionError,
        False,
        "functions of the store are gone; restore a backup, or use another schema",
    ),
    (
        asyncpg.InvalidSchemaNameError,
        False,
        "the schema is gone; start again to make it, or restore a backup",
    ),
    (
        asyncpg.PostgresConnectionError,
        True,
        "the connection was lost; asking again may help",
    ),
    (
        asyncpg.ClientConfigurationError,
        False,
        "the address cannot be used; write it as postgresql://user:password@host:5432/database",
    ),
    (asyncpg.InterfaceError, True, "the connection was lost; asking again may help"),
    (asyncpg.InternalClientError, True, "the connection was lost; asking again may help"),
    (TimeoutError, True, "the server did not answer in time; asking again may help"),
    (ConnectionResetError, True, "the connection was lost; asking again may help"),
    (BrokenPipeError, True, "the connection was lost; asking again may help"),
    (
        OSError,
        True,
        "the server cannot be reached; check that it runs, and host and port in the address",
    ),
)
"""By kind of error, the narrower before the wider: whether asking again may help, and what to say."""

PASSING = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""A transaction that ended by one of these did nothing, and can be run again at once."""

LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver raises where a connection was lost in the middle of something; it is of no use any more."""

FAULTS = (asyncpg.PostgresError, *LOST, OSError, TimeoutError)
"""Everything that goes wrong with a server or on the way to it."""


def explained(error: BaseException, place: str) -> ProviderError:
    """``error`` as an error of the provider whose database is at ``place``."""
    for kind, retryable, message in _SQL_ERRORS:
        if isinstance(error, kind):
            return ProviderError(f"{place}: {message} ({_detail(error)})", retryable=retryable)
    return ProviderError(f"{place}: PostgreSQL refused a statement ({_detail(error)})")


def _detail(error: BaseException) -> str:
    """What the server or the system said. The driver's own words may quote the address, and are left out."""
    if isinstance(error, asyncpg.ClientConfigurationError):
        return type(error).__name__
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
