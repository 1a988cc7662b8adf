"""Addresses of stores in a bucket, read: ``s3://bucket/prefix?region=…&endpoint=…&shards=…``.

Credentials are never in an address: they come from the environment, a profile's web identity or the machine's role,
where every other program finds them too.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from bide.errors import SettingError

SCHEME = "s3"
OPTIONS = ("region", "endpoint", "shards")
DEFAULT_SHARDS = 4
MOST_SHARDS = 64

_BUCKET = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_PART = re.compile(r"[A-Za-z0-9!_.*'()-]+")
_LONGEST_PREFIX = 200
_EXAMPLE = "s3://bucket/prefix?region=eu-west-1"


@dataclass(frozen=True, slots=True)
class S3Address:
    """Where a store is. ``prefix`` has no slash at either end, and may be empty; there are no secrets in it.

    ``region`` None: what ``AWS_REGION`` or ``AWS_DEFAULT_REGION`` say. ``endpoint`` None: Amazon's own.
    ``shards`` counts where the store is made; later what was said then.
    """

    bucket: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    shards: int = DEFAULT_SHARDS

    @property
    def place(self) -> str:
        """What it is called before people."""
        where = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{where} at {self.endpoint}" if self.endpoint else where


def s3_address(text: str, setting: str = "provider") -> S3Address:
    """``text`` read. Raises ``SettingError``, which shows nothing that could be a secret."""
    try:
        parts = urlsplit(text)
        has_secret = "@" in text or parts.username is not None or parts.port is not None
    except ValueError:
        raise SettingError(setting, f"cannot be read as an address; write it as {_EXAMPLE}") from None
    if has_secret or parts.fragment:
        raise SettingError(
            setting,
            f"an address of S3 has neither credentials nor a port in it; write {_EXAMPLE}, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY in the environment, and give a server of your own as ?endpoint=",
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in given:
        if option not in OPTIONS:
            raise SettingError(setting, _unknown(option))
    return S3Address(
        bucket=_bucket(setting, parts.netloc),
        prefix=_prefix(setting, unquote(parts.path)),
        region=given.get("region") or None,
        endpoint=_endpoint(setting, given["endpoint"]) if "endpoint" in given else None,
        shards=_shards(setting, given.get("shards", str(DEFAULT_SHARDS))),
    )


def _unknown(option: str) -> str:
    near = difflib.get_close_matches(option, OPTIONS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(OPTIONS)}"
    return f"S3 has no option {option!r}{hint}"


def _bucket(setting: str, given: str) -> str:
    if not _BUCKET.fullmatch(given):
        raise SettingError(
            setting,
            f"{given!r} is no name of a bucket (lower-case letters, digits, . and -); write {_EXAMPLE}",
        )
    return given


def _prefix(setting: str, path: str) -> str:
    prefix = path.strip("/")
    parts = prefix.split("/") if prefix else []
    if len(prefix) > _LONGEST_PREFIX or not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        raise SettingError(
            setting,
            f"the prefix cannot be {prefix!r}; write letters, digits, - _ and . between single slashes, "
            f"up to {_LONGEST_PREFIX} of them",
        )
    return prefix


def _endpoint(setting: str, given: str) -> str:
    try:
        parts = urlsplit(given)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        parts.port  # noqa: B018 - raises where it is none
    except ValueError:
        is_good = False
    if not is_good or "@" in given:
        raise SettingError(
            setting,
            "endpoint is the URL of a server, such as http://127.0.0.1:8333, with no path or password",
        )
    return given.rstrip("/")


def _shards(setting: str, given: str) -> int:
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= MOST_SHARDS:
        raise SettingError(
            setting, f"shards cannot be {given!r}; write a whole number from 1 to {MOST_SHARDS}"
        )
    return int(given)
