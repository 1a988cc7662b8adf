"""Addresses of Redis and Valkey, read: what is for the driver, what is for bide, and what may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote, urlsplit

from bide.core.durations import parse_duration
from bide.errors import SettingError

SCHEMES = ("redis", "rediss", "valkey", "valkeys")
"""With ``s`` at the end: over TLS."""

OPTIONS = ("ca", "cert", "cluster", "key", "name", "pool", "prefix", "socket", "timeout", "wake")

DEFAULT_PREFIX = "bide"
DEFAULT_POOL = 8
DEFAULT_PORT = 6379
DEFAULT_TIMEOUT_S = 10.0
MOST_CONNECTIONS = 1000

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")
_TRUTH = {
    **dict.fromkeys(("true", "on", "1", "yes"), True),
    **dict.fromkeys(("false", "off", "0", "no"), False),
}
_EXAMPLE = "redis://user:password@host:6379/0"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """An address of Redis or Valkey.

    ``prefix`` is the hash tag of every key. ``timeout_s`` bounds each command, and making a connection. ``name`` is
    what connections are called in CLIENT LIST. ``wake`` False: no connection that waits for wake-ups. ``ca``,
    ``cert`` and ``key`` are files for TLS. ``socket`` is a Unix socket in place of host and port.
    """

    place: str
    host: str
    port: int
    db: int
    tls: bool
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    prefix: str = DEFAULT_PREFIX
    pool: int = DEFAULT_POOL
    timeout_s: float = DEFAULT_TIMEOUT_S
    name: str = "bide"
    cluster: bool = False
    wake: bool = True
    socket: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def redis_address(text: str, setting: str = "provider") -> RedisAddress:
    """``text`` read. Raises ``SettingError``, which shows nothing that could be a password."""
    try:
        parts = urlsplit(text)
        if "@" in f"{parts.path}{parts.query}" or parts.fragment:  # of a password that was cut in two
            raise ValueError
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise SettingError(
            setting,
            f"cannot be read as an address; write it as {_EXAMPLE}, with / ? # @ of a password as %2F %3F %23 %40",
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    _refuse_unknown(setting, given)
    host = parts.hostname or "localhost"
    db = _database(setting, parts.path.strip("/"))
    prefix = _prefix(setting, given.get("prefix", DEFAULT_PREFIX))
    cluster = _truth(setting, "cluster", given.get("cluster", "false"))
    if cluster and db:
        raise SettingError(setting, f"a cluster has database 0 only, not {db}; leave it out of the address")
    return RedisAddress(
        place=_place(parts.scheme, given.get("socket") or _shown(host, port), db, prefix),
        host=host,
        port=port,
        db=db,
        tls=parts.scheme.endswith("s") and parts.scheme != "redis",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        prefix=prefix,
        pool=_pool(setting, given.get("pool", str(DEFAULT_POOL))),
        timeout_s=_timeout_s(setting, given.get("timeout")),
        name=_name(setting, given.get("name", "bide")),
        cluster=cluster,
        wake=_truth(setting, "wake", given.get("wake", "true")),
        socket=given.get("socket"),
        ca=given.get("ca"),
        cert=given.get("cert"),
        key=given.get("key"),
    )


def _refuse_unknown(setting: str, given: dict[str, str]) -> None:
    for option in given:
        if option not in OPTIONS:
            near = get_close_matches(option, OPTIONS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(OPTIONS)}"
            raise SettingError(setting, f"Redis has no option {option!r}{hint}")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place(scheme: str, server: str, db: int, prefix: str) -> str:
    place = f"{scheme}://{server}/{db}"
    return place if prefix == DEFAULT_PREFIX else f"{place} (prefix {prefix})"


def _database(setting: str, given: str) -> int:
    if given == "":
        return 0
    if not given.isascii() or not given.isdigit() or len(given) > 5:
        raise SettingError(setting, f"the database cannot be {given!r}; write its number, such as /0")
    return int(given)


def _prefix(setting: str, given: str) -> str:
    if not _PREFIX.fullmatch(given):
        raise SettingError(
            setting,
            f"prefix cannot be {given!r}; write up to 100 letters, digits and . _ - / :, such as {DEFAULT_PREFIX!r}",
        )
    return given


def _name(setting: str, given: str) -> str:
    if not _PREFIX.fullmatch(given):
        raise SettingError(setting, f"name cannot be {given!r}; write letters, digits and . _ - / :")
    return given


def _pool(setting: str, given: str) -> int:
    if (
        not given.isascii()
        or not given.isdigit()
        or len(given) > 4
        or not 1 <= int(given) <= MOST_CONNECTIONS
    ):
        raise SettingError(
            setting, f"pool cannot be {given!r}; write how many connections a process may have, such as 8"
        )
    return int(given)


def _timeout_s(setting: str, given: str | None) -> float:
    if given is None:
        return DEFAULT_TIMEOUT_S
    try:
        return parse_duration(given, "timeout").total_seconds()
    except SettingError as error:
        raise SettingError(setting, f"timeout {error.reason}") from None


def _truth(setting: str, option: str, given: str) -> bool:
    if given.lower() not in _TRUTH:
        raise SettingError(setting, f"{option} cannot be {given!r}; write true or false")
    return _TRUTH[given.lower()]
