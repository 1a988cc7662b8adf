"""Addresses of PostgreSQL, read: what is for the driver, what is for bide, and what may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from bide.errors import SettingError

SCHEMES = ("postgresql", "postgres")

OPTIONS = ("schema", "pool", "listen")
"""Options of bide's own."""

DRIVER_OPTIONS = (
    *("application_name", "host", "passfile", "password", "port", "sslcert", "sslcrl", "sslkey", "sslmode"),
    *("sslpassword", "sslrootcert", "target_session_attrs", "user"),
)
"""Options that are handed on to the driver."""

DEFAULT_SCHEMA = "bide"
DEFAULT_POOL = 8
MOST_CONNECTIONS = 1000

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_TRUTH = {
    "true": True,
    "on": True,
    "1": True,
    "yes": True,
    "false": False,
    "off": False,
    "0": False,
    "no": False,
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """An address of PostgreSQL. ``dsn`` is for the driver only, since it may hold a password.

    ``listen`` False: through a pooler of transactions, which carries neither LISTEN nor prepared statements.
    """

    dsn: str
    place: str
    schema: str = DEFAULT_SCHEMA
    pool: int = DEFAULT_POOL
    listen: bool = True

    def __repr__(self) -> str:
        return (
            f"PostgresAddress({self.place!r}, schema={self.schema!r}, pool={self.pool}, listen={self.listen})"
        )

    __str__ = __repr__


def postgres_address(text: str, setting: str = "provider") -> PostgresAddress:
    """``text`` read. Raises ``SettingError``, which shows nothing that could be a password."""
    try:
        parts = urlsplit(text)
        if "@" in f"{parts.path}{parts.query}" or parts.fragment:  # of a password that was cut in two
            raise ValueError
        hosts = _hosts(parts.netloc)
    except ValueError:
        raise SettingError(
            setting,
            f"cannot be read as an address; write it as {_EXAMPLE}, with / ? # @ of a password as %2F %3F %23 %40",
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in given:
        if option not in OPTIONS and option not in DRIVER_OPTIONS:
            raise SettingError(
                setting, f"PostgreSQL has no option {option!r}; bide's own are {', '.join(OPTIONS)}"
            )
    ours = {option: given.pop(option) for option in OPTIONS if option in given}
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(given), ""))
    hosts = hosts or given.get("host", "localhost")
    database = unquote(parts.path.removeprefix("/"))
    place = f"postgresql://{hosts}/{database}"
    if ours.get("schema", DEFAULT_SCHEMA) != DEFAULT_SCHEMA:
        place += f" (schema {ours['schema']})"
    return PostgresAddress(
        dsn=dsn,
        place=place,
        schema=_schema(setting, ours.get("schema", DEFAULT_SCHEMA)),
        pool=_pool(setting, ours.get("pool", str(DEFAULT_POOL))),
        listen=_listen(setting, ours.get("listen", "true")),
    )


_EXAMPLE = "postgresql://user:password@host:5432/database"


def _hosts(netloc: str) -> str:
    """Hosts and ports of an address, without the user and the password."""
    hosts = netloc.rpartition("@")[2]
    for host in hosts.split(","):
        urlsplit(f"//{host}").port  # noqa: B018 - raises where it is none
    return hosts


def _schema(setting: str, given: str) -> str:
    if not _SCHEMA.fullmatch(given) or given.startswith("pg_"):
        raise SettingError(
            setting,
            f"schema cannot be {given!r}; write lower-case letters, digits and _, such as {DEFAULT_SCHEMA!r}",
        )
    return given


def _pool(setting: str, given: str) -> int:
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= MOST_CONNECTIONS:
        raise SettingError(
            setting, f"pool cannot be {given!r}; write how many connections a process may have, such as 8"
        )
    return int(given)


def _listen(setting: str, given: str) -> bool:
    if given.lower() not in _TRUTH:
        raise SettingError(setting, f"listen cannot be {given!r}; write true or false")
    return _TRUTH[given.lower()]
