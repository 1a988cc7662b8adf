"""From a provider's address to the provider; drivers are imported only when their address is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, unquote, urlsplit

from bide.clock import Clock
from bide.core.abilities import BY_SCHEME
from bide.core.addresses import SCHEMES as POSTGRES
from bide.core.findings import Finding
from bide.core.redis_address import SCHEMES as REDIS
from bide.core.s3_address import SCHEME as S3
from bide.core.server_addresses import SERVERS
from bide.core.sqs_address import SCHEME as SQS
from bide.core.template import Template
from bide.errors import SettingError
from bide.provider import Provider

SYNCHRONOUS = ("full", "normal")

Maker = Callable[[str, Path, Clock], Provider]
Examiner = Callable[[str, Path, Clock], AsyncIterator[Finding]]

PACKAGES: Mapping[str, str] = {
    "sqlite": "sqlite",
    "memory": "memory",
    **dict.fromkeys(POSTGRES, "postgres"),
    **dict.fromkeys(REDIS, "redis"),
    S3: "s3",
    SQS: "sqs",
}
"""The package below :mod:`bide.providers` that a scheme is of; its name is also the extra that brings its driver."""


def open_provider(address: str, folder: Path, clock: Clock) -> Provider:
    """The provider of ``address``, not opened yet. Relative paths are beside ``folder``. Raises ``SettingError``."""
    package = _package_of(address)
    make = _MAKERS.get(package)
    if make is not None:
        return make(address, folder, clock)
    SERVERS[urlsplit(address).scheme](address)  # what is wrong with it is said before what is not installed
    module, name = _PROVIDERS[package]
    provider: Provider = getattr(_imported(module, package), name)(address, clock=clock)
    return provider


def examined(address: str, folder: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What there is to say of the store of ``address``, one finding after the other. Raises ``SettingError``."""
    package = _package_of(address)
    examiner: Examiner = _imported(_EXAMINERS[package], package).examine
    return examiner(address, folder, clock)


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
    if (scheme := urlsplit(address).scheme) in SERVERS:
        return SERVERS[scheme](address).place
    place = file_of(address, folder)
    return "memory" if place is None else str(place)


def may_exist(address: str, folder: Path) -> bool:
    """Whether the store may have been made already: of a server nobody knows without asking it."""
    place = file_of(address, folder)
    return urlsplit(address).scheme in SERVERS if place is None else place.exists()


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


_MAKERS: Mapping[str, Maker] = {"sqlite": _sqlite, "memory": _memory}
"""Of stores that are no servers, by package."""

_PROVIDERS: Mapping[str, tuple[str, str]] = {
    "postgres": ("bide.providers.postgres", "PostgresProvider"),
    "redis": ("bide.providers.redis", "RedisProvider"),
    "s3": ("bide.providers.s3", "S3Provider"),
    "sqs": ("bide.providers.sqs", "SqsProvider"),
}
"""Module and class of a server's provider, by package; it is made of the address and a clock."""

_EXAMINERS: Mapping[str, str] = {
    "sqlite": "bide.providers.sqlite.examining",
    "memory": "bide.providers.memory.examining",
    "postgres": "bide.providers.postgres.examining",
    "redis": "bide.providers.redis.examining",
    "s3": "bide.providers.s3.examining",
    "sqs": "bide.providers.sqs.examining",
}
"""Who examines a store, by package: the module's ``examine`` is an :data:`Examiner`."""


_TITLES = {PACKAGES[scheme]: kind.title for scheme, kind in BY_SCHEME.items()}


def _package_of(address: str) -> str:
    scheme = urlsplit(address).scheme
    if scheme not in PACKAGES:
        raise SettingError(
            "provider", f"{scheme!r} is no kind of store; known are {', '.join(sorted(PACKAGES))}"
        )
    return PACKAGES[scheme]


def _imported(module: str, package: str) -> ModuleType:
    """Raises ``SettingError`` where what ``module`` is driven by is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "bide":
            raise
        raise SettingError(
            "provider",
            f"{_TITLES[package]} needs a driver that is not installed ({error.name}); "
            f"run pip install 'bide[{package}]'",
        ) from error
