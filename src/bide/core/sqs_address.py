"""Addresses of SQS, read: a prefix of queue names, a region, and which queue of bide's is which of SQS's.

The queue ``default`` of bide's is the SQS queue that the address names, every other ``{prefix}-{queue}``; what is
dead is in a queue of its own beside it, ``…-dead``. Credentials are never in an address: they are found as every
program of AWS finds them (environment, profile, container, instance).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from bide.core.names import did_you_mean
from bide.errors import SettingError

SCHEME = "sqs"
OPTIONS = ("region", "endpoint", "create", "wait")
DEFAULT_QUEUE = "default"
DEAD = "-dead"

LONGEST_NAME = 80
"""Characters of a queue's name (Amazon SQS, CreateQueue)."""

LONGEST_WAIT_S = 20
"""Seconds that a receive may wait (Amazon SQS, ReceiveMessage)."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
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
_EXAMPLE = "sqs://jobs?region=eu-west-1"


@dataclass(frozen=True, slots=True)
class SqsAddress:
    """An address of SQS. ``region`` and ``endpoint`` None: as the environment of AWS says.

    ``create``: queues that are missing are made. ``wait_s``: how long a receive waits at most, in whole seconds.
    """

    prefix: str
    region: str | None = None
    endpoint: str | None = None
    create: bool = False
    wait_s: int = LONGEST_WAIT_S

    @property
    def place(self) -> str:
        """What is used, for people."""
        where = [part for part in (self.region, self.endpoint) if part]
        return f"sqs://{self.prefix}" + (f" ({', '.join(where)})" if where else "")

    def name_of(self, queue: str) -> str:
        """The SQS queue of a queue of bide's. Raises ``SettingError`` where there can be none."""
        name = self.prefix if queue == DEFAULT_QUEUE else f"{self.prefix}-{queue}"
        if queue.endswith(".fifo"):
            raise SettingError("queue", f"{queue!r} is a FIFO queue's name, and bide does not use those yet")
        if not _NAME.fullmatch(queue):
            raise SettingError("queue", f"{queue!r} cannot be a part of an SQS queue's name; {_LETTERS}")
        if f"-{queue}".endswith(DEAD):
            raise SettingError(
                "queue", f"{queue!r} ends as the queues of dead items do ({DEAD}); name it otherwise"
            )
        if len(name) + len(DEAD) > LONGEST_NAME:
            most = LONGEST_NAME - len(DEAD)
            raise SettingError(
                "queue", f"{name!r} is too long for an SQS queue; {most} characters are the most"
            )
        return name

    def dead_name_of(self, queue: str) -> str:
        """The SQS queue of what is dead in a queue of bide's. Raises ``SettingError`` where there can be none."""
        return f"{self.name_of(queue)}{DEAD}"

    def queue_of(self, name: str) -> str | None:
        """The queue of bide's that the SQS queue ``name`` is; None where it is none, or one of dead items."""
        if name.endswith(DEAD):
            return None
        if name == self.prefix:
            return DEFAULT_QUEUE
        queue = name.removeprefix(f"{self.prefix}-")
        return queue if queue not in {name, "", DEFAULT_QUEUE} and _NAME.fullmatch(queue) else None


_LISTED = ", ".join(OPTIONS)
_LETTERS = "write letters, digits, - and _"


def sqs_address(text: str, setting: str = "provider") -> SqsAddress:
    """``text`` read. Raises ``SettingError``, which shows nothing that could be a password."""
    parts = urlsplit(text)
    if "@" in text:
        raise SettingError(
            setting,
            "an address of SQS has no @: credentials are found as AWS's own programs find them; set "
            f"AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and write {_EXAMPLE}",
        )
    if parts.path.strip("/") or parts.fragment:
        raise SettingError(setting, f"an address of SQS has no path and no #; write it as {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in options:
        if option not in OPTIONS:
            raise SettingError(
                setting,
                f"SQS has no option {option!r}; {did_you_mean(option, OPTIONS) or f'it has {_LISTED}'}",
            )
    return SqsAddress(
        prefix=_prefix(setting, parts.netloc),
        region=_region(setting, options.get("region")),
        endpoint=_endpoint(setting, options.get("endpoint")),
        create=_create(setting, options.get("create", "false")),
        wait_s=_wait_s(setting, options.get("wait", str(LONGEST_WAIT_S))),
    )


def _prefix(setting: str, name: str) -> str:
    if name.endswith(".fifo"):
        raise SettingError(
            setting, f"{name!r} is a FIFO queue, and bide does not use those yet; name a standard queue"
        )
    if not _NAME.fullmatch(name):
        raise SettingError(setting, f"{name!r} cannot name an SQS queue; {_LETTERS}, such as {_EXAMPLE}")
    if name.endswith(DEAD) or len(name) + len(DEAD) > LONGEST_NAME:
        raise SettingError(
            setting,
            f"{name!r} leaves no room for the queue of dead items ({name}{DEAD}); take a name of at most "
            f"{LONGEST_NAME - len(DEAD)} characters that does not end with {DEAD}",
        )
    return name


def _region(setting: str, given: str | None) -> str | None:
    if given is not None and not _REGION.fullmatch(given):
        raise SettingError(setting, f"region cannot be {given!r}; write one of AWS's, such as eu-west-1")
    return given


def _endpoint(setting: str, given: str | None) -> str | None:
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        usable = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and not (parts.query or parts.fragment)
        )
        _ = parts.port  # raises where it is none
    except ValueError:
        usable = False
    if not usable:
        raise SettingError(setting, f"endpoint cannot be {given!r}; write it as http://127.0.0.1:4566")
    return given.rstrip("/")


def _create(setting: str, given: str) -> bool:
    if given.lower() not in _TRUTH:
        raise SettingError(setting, f"create cannot be {given!r}; write true or false")
    return _TRUTH[given.lower()]


def _wait_s(setting: str, given: str) -> int:
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= LONGEST_WAIT_S:
        raise SettingError(
            setting, f"wait cannot be {given!r}; write whole seconds from 1 to {LONGEST_WAIT_S}"
        )
    return int(given)
