"""From a provider's address to the provider; drivers are imported only when their address is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from bide.clock import Clock
from bide.core.addresses import postgres_address
from bide.core.findings import Finding
from bide.core.kinds import kind_of
from bide.core.s3_address import s3_address
from bide.core.sqs_address import SCHEME as SQS
from bide.core.sqs_address import sqs_address
from bide.core.template import Template
from bide.errors import SettingError
from bide.provider import Provider

SYNCHRONOUS = ("full", "normal")


def open_provider(address: str, folder: Path, clock: Clock) -> Provider:
    """The provider of ``address``, not opened yet. Relative paths are beside ``folder``. Raises ``SettingError``."""
    scheme = urlsplit(address).scheme
    if scheme not in _MAKERS:
        raise SettingError(
            "provider", f"{scheme!r} is no kind of store; known are {', '.join(sorted(_MAKERS))}"
        )
    return _MAKERS[scheme](address, folder, clock)


def filled(declared: str, environment: Mapping[str, str]) -> str:
    """An address with its variables filled. Raises ``SettingError`` where one is missing."""
    address = Template(declared)
    for name in address.missing(environment):
        raise SettingError(
            "app.provider",
            f"the environment variable {name} is not set, and the address of the store needs it; set it",
        )
    return address.fill(environment)


def location_of(declared: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Where a store is, as people would look for it; shows no password. Missing variables stay as they are."""
    if Template(declared).missing(environment):
        scheme, separator, rest = declared.partition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"
    address = filled(declared, environment)
    if urlsplit(address).scheme in _POSTGRES:
        return postgres_address(address).place
    if urlsplit(address).scheme == "s3":
        return s3_address(address).place
    if urlsplit(address).scheme == SQS:
        return sqs_address(address).place
    place = file_of(address, folder)
    return "memory" if place is None else str(place)


def may_exist(address: str, folder: Path) -> bool:
    """Whether the store may have been made already: of a server nobody knows without asking it."""
    place = file_of(address, folder)
    return urlsplit(address).scheme in (*_POSTGRES, "s3", SQS) if place is None else place.exists()


def file_of(address: str, folder: Path) -> Path | None:
    """The file that a store is in, or None where it is in none."""
    parts = urlsplit(address)
    if parts.scheme != "sqlite":
        return None
    # sqlite:///bide.db is beside the folder, sqlite:////var/lib/bide.db is absolute.
    return folder / unquote(parts.path.removeprefix("/"))


def _sqlite(address: str, folder: Path, clock: Clock) -> Provider:
    from bide.providers.sqlite import SqliteProvider

    place = file_of(address, folder)
    assert place is not None
    options = parse_qs(urlsplit(address).query, keep_blank_values=True)
    synchronous = options.pop("synchronous", ["full"])[-1].lower()
    if synchronous not in SYNCHRONOUS:
        raise SettingError("provider", f"synchronous is full or normal, not {synchronous!r}")
    if options:
        raise SettingError("provider", f"sqlite has no option {next(iter(options))!r}; it has synchronous")
    return SqliteProvider(place, clock=clock, synchronous=synchronous.upper())


def _memory(address: str, folder: Path, clock: Clock) -> Provider:
    from bide.providers.memory import MemoryProvider

    return MemoryProvider(clock)


def _postgres(address: str, folder: Path, clock: Clock) -> Provider:
    try:
        from bide.providers.postgres import PostgresProvider
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise SettingError(
            "provider", "PostgreSQL needs a driver that is not installed; run pip install 'bide[postgres]'"
        ) from error
    return PostgresProvider(address, clock=clock)


def _s3(address: str, folder: Path, clock: Clock) -> Provider:
    try:
        from bide.providers.s3 import S3Provider
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise SettingError(
            "provider", "S3 needs a driver that is not installed; run pip install 'bide[s3]'"
        ) from error
    return S3Provider(address, clock=clock)


def _sqs(address: str, folder: Path, clock: Clock) -> Provider:
    sqs_address(address)  # what is wrong with it is said before what is not installed
    try:
        from bide.providers.sqs import SqsProvider
    except ModuleNotFoundError as error:
        if error.name not in {"aiobotocore", "botocore", "aiohttp"}:
            raise
        raise SettingError(
            "provider", "SQS needs a driver that is not installed; run pip install 'bide[sqs]'"
        ) from error
    return SqsProvider(address, clock=clock)


def examined(address: str, folder: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What there is to say of the store of ``address``, one finding after the other. Raises ``SettingError``."""
    scheme = urlsplit(address).scheme
    if scheme not in _EXAMINERS:
        raise SettingError(
            "provider", f"{scheme!r} is no kind of store; known are {', '.join(sorted(_EXAMINERS))}"
        )
    try:
        examiner: Examiner = import_module(_EXAMINERS[scheme]).examine
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bide"):
            raise
        raise SettingError(
            "provider",
            f"{scheme} needs {error.name}, which is not installed; "
            f"run pip install 'bide[{_EXTRAS[kind_of(scheme)]}]'",
        ) from error
    return examiner(address, folder, clock)


Examiner = Callable[[str, Path, Clock], AsyncIterator[Finding]]

_POSTGRES = ("postgresql", "postgres")

_MAKERS: dict[str, Callable[[str, Path, Clock], Provider]] = {
    "sqlite": _sqlite,
    "memory": _memory,
    **dict.fromkeys(_POSTGRES, _postgres),
    "s3": _s3,
    SQS: _sqs,
}

_EXAMINERS: dict[str, str] = {
    "sqlite": "bide.providers.sqlite.examining",
    "memory": "bide.providers.memory.examining",
    **dict.fromkeys(_POSTGRES, "bide.providers.postgres.examining"),
    "s3": "bide.providers.s3.examining",
    SQS: "bide.providers.sqs.examining",
}
"""The module of each kind of store that examines one: its ``examine`` is an :data:`Examiner`."""

_EXTRAS = {"postgresql": "postgres", "redis": "redis", "s3": "s3", "sqs": "sqs"}
"""What to install for a kind of store whose driver does not come with bide."""
