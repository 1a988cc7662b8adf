"""The one place where errors of Redis become errors of bide: what happened, where, and one next step."""

from __future__ import annotations

import ssl

from redis import exceptions

from bide.errors import ProviderError

_KINDS: tuple[tuple[type[BaseException], bool, str], ...] = (
    (
        exceptions.AuthenticationError,
        False,
        "the server refused the user or the password; check both in the address",
    ),
    (exceptions.AuthorizationError, False, "the user may not connect; check the user in the address"),
    (
        exceptions.NoPermissionError,
        False,
        "the user may not do that; give it the commands and keys that docs/providers.md names (ACL SETUSER)",
    ),
    (exceptions.BusyLoadingError, True, "the server reads its data from disk; asking again may help"),
    (
        exceptions.ReadOnlyError,
        True,
        "the server takes no writes (a replica, or a primary that was replaced); "
        "name the primary in the address if this stays",
    ),
    (
        exceptions.OutOfMemoryError,
        True,
        "the server is out of memory; raise its maxmemory, nothing that was kept is lost",
    ),
    (exceptions.MasterDownError, True, "the replica has lost its primary; asking again may help"),
    (
        exceptions.MovedError,
        False,
        "the server is one of a cluster, and the keys are on another; add ?cluster=true to the address",
    ),
    (
        exceptions.AskError,
        True,
        "the keys are being moved to another server of the cluster; asking again may help",
    ),
    (exceptions.TryAgainError, True, "the keys are being moved within the cluster; asking again may help"),
    (exceptions.ClusterDownError, True, "the cluster is down; asking again may help"),
    (
        exceptions.RedisClusterException,
        True,
        "the cluster cannot be reached; check that it runs, and whether it is one",
    ),
    (exceptions.MaxConnectionsError, True, "no connection was free in time; raise ?pool= in the address"),
    (exceptions.TimeoutError, True, "the server did not answer in time; asking again may help"),
    (
        exceptions.InvalidResponse,
        True,
        "the answer is none of Redis; check host and port, and rediss:// for a server that wants TLS",
    ),
    (
        exceptions.ConnectionError,
        True,
        "the connection failed; check that the server runs, and host and port in the address",
    ),
    (TimeoutError, True, "the server did not answer in time; asking again may help"),
    (OSError, True, "the server cannot be reached; check that it runs, and host and port in the address"),
)
"""By kind of error, the narrower before the wider: whether asking again may help, and what to say."""

_CODES: dict[str, tuple[bool, str]] = {
    "BUSY": (True, "a script of somebody's keeps the server busy; asking again may help"),
    "MISCONF": (True, "the server cannot write its data to disk; look at its log and its disk"),
    "NOREPLICAS": (True, "too few replicas take part (min-replicas-to-write); asking again may help"),
    "LOADING": (True, "the server reads its data from disk; asking again may help"),
    "WRONGTYPE": (False, "a key is of another program's; choose another prefix with ?prefix="),
    "NOPERM": (False, "the user may not do that; give it what docs/providers.md names (ACL SETUSER)"),
    "unknown": (False, "the server has no such command; bide needs Redis 7 or Valkey"),
    "ACL": (False, "the user may not do that; give it what docs/providers.md names (ACL SETUSER)"),
    "NOAUTH": (False, "the server wants a password; write it in the address"),
    "OOM": (True, "the server is out of memory; raise its maxmemory, nothing that was kept is lost"),
    "READONLY": (
        True,
        "the server takes no writes (a replica?); name the primary in the address if this stays",
    ),
}
"""What errors begin with that the driver has no kind for."""

FAULTS = (exceptions.RedisError, OSError, TimeoutError)
"""Everything that goes wrong with a server or on the way to it."""


def explained(error: BaseException, place: str) -> ProviderError:
    """``error`` as an error of the provider whose server is at ``place``."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return ProviderError(
            f"{place}: its certificate is not trusted; name the authority's with ?ca= ({_detail(error)})"
        )
    for kind, retryable, message in _KINDS:
        if isinstance(error, kind):
            return ProviderError(f"{place}: {message} ({_detail(error)})", retryable=retryable)
    words = text.split()
    for word in (*words[:1], *(words[1:2] if words[:1] == ["ERR"] else ())):
        if word in _CODES:
            retryable, message = _CODES[word]
            return ProviderError(f"{place}: {message} ({_detail(error)})", retryable=retryable)
    return ProviderError(f"{place}: the server refused a command ({_detail(error)})")


def _detail(error: BaseException) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
