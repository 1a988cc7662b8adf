"""From what is declared to a request that can be sent: variables filled, addresses joined, header fields merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from pyreqwest.http import Url

from bide.connection.failures import failure
from bide.core.canonical import canonical
from bide.core.declaration import Connection, Operation, RequestTemplate
from bide.core.http import Request, shown_url
from bide.core.template import Template
from bide.errors import AnswerError, CallError

Fields = tuple[tuple[str, str], ...]

QueryValue = str | int | float | Decimal | bool | None
"""One value of a query parameter; truth values are written ``true`` and ``false``, None leaves it out."""

Query = Mapping[str, QueryValue | Sequence[QueryValue]]

_JSON = ("Content-Type", "application/json")
_ACCEPT = ("Accept", "application/json, */*;q=0.5")


@dataclass(frozen=True, slots=True)
class Base:
    """What every request of a connection begins with. ``bound``: names of headers meant for its origin only."""

    connection: str
    url: str
    origin: str
    headers: Fields
    bound: frozenset[str]
    shown: str | None
    """The address without what variables filled in; None where it holds none."""

    def __repr__(self) -> str:
        return f"Base({self.connection})"  # the rest may be secret


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and how it may be shown where its real address may not."""

    request: Request
    bound: frozenset[str]
    shown: str | None


def base_of(connection: Connection, environment: Mapping[str, str]) -> Base:
    """Fill the connection's address and headers. Raises ``CallError`` (``"environment"``, ``"address"``)."""
    fill = _Filling(f"connection {connection.name}", environment)
    headers = fill.headers(connection.headers)
    url = fill.text(connection.base_url)
    names = ", ".join(connection.base_url.variables)
    subject = f"{fill.owner}, base_url" + (f" (from {names})" if names else "")
    return Base(
        connection=connection.name,
        url=url,
        origin=_origin(url, subject),
        headers=headers,
        bound=frozenset(name.lower() for name, _ in headers),
        shown=_shown_base(connection.base_url),
    )


def prepared_operation(base: Base, operation: Operation, environment: Mapping[str, str]) -> Prepared:
    """The request that ``operation`` declares. Raises ``CallError`` (``"environment"``, ``"address"``)."""
    template = operation.request
    assert template is not None
    owner = f"operation {operation.name} of connection {base.connection}"
    fill = _Filling(owner, environment)
    query = {name: fill.text(value) for name, value in template.query.items()}
    url = joined(base.url, fill.text(template.path), query)
    _origin(url, owner)
    headers = fill.headers(template.headers)
    secret = frozenset(name.lower() for name, value in template.headers.items() if value.variables)
    body, of_body = _json_body(fill.data(template.body)) if template.body is not None else (None, ())
    return Prepared(
        request=Request(
            template.method.upper(), url, merged((_ACCEPT, *of_body), base.headers, headers), body
        ),
        bound=base.bound | secret,
        shown=_shown(base, template),
    )


def prepared_request(
    base: Base,
    method: str,
    path: str,
    *,
    query: Query | None,
    headers: Mapping[str, str] | None,
    json: object,
    body: bytes | str | None,
) -> Prepared:
    """A request as a caller words it. ``path`` may also be a whole address of the connection's own origin.

    Raises ``CallError`` (``"address"``) for another origin, which must not get the connection's headers, and
    ``ValueError`` for a ``json`` that has no JSON form, or beside a ``body``.
    """
    owner = f"connection {base.connection}"
    is_whole = path.lower().startswith(("http://", "https://"))
    url = joined(path, "", query or {}) if is_whole else joined(base.url, path, query or {})
    if _origin(url, owner) != base.origin:
        reason = f"does not ask another origin ({shown_url(url)}); declare another connection for it"
        raise failure("address", owner, reason, sent=False)
    given = tuple((headers or {}).items())
    _check_headers(owner, given)
    content, of_body = _content(json, body)
    return Prepared(
        request=Request(method.upper(), url, merged((_ACCEPT, *of_body), base.headers, given), content),
        bound=base.bound | {name.lower() for name, _ in given},
        shown=None if base.shown is None or is_whole else base.shown + _shown_path(path),
    )


def joined(base_url: str, path: str, query: Query) -> str:
    """``path`` behind ``base_url``, with one slash between, and the queries of all three in that order."""
    base, _, base_query = base_url.partition("#")[0].partition("?")
    path, _, path_query = path.partition("#")[0].partition("?")
    if path:
        base = f"{base.rstrip('/')}/{path.removeprefix('/')}"
    whole = "&".join(part for part in (base_query, path_query, urlencode(_pairs(query))) if part)
    return f"{base}?{whole}" if whole else base


def merged(*layers: Iterable[tuple[str, str]]) -> Fields:
    """Header fields of all ``layers``; a later one replaces those of the same name."""
    fields = {name.lower(): (name, value) for layer in layers for name, value in layer}
    return tuple(fields.values())


def _pairs(query: Query) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        pairs += [(name, _query_text(each)) for each in values if each is not None]
    return pairs


def _query_text(value: QueryValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _content(json: object, body: bytes | str | None) -> tuple[bytes | None, Fields]:
    if json is not None and body is not None:
        raise ValueError("a request has json or a body, not both")
    if json is not None:
        return _json_body(json)
    return (body.encode() if isinstance(body, str) else body), ()


def _json_body(value: object) -> tuple[bytes, Fields]:
    try:
        return canonical(value).encode(), (_JSON,)
    except AnswerError as error:
        raise ValueError(f"the JSON body of the request: {error}") from None


def _origin(url: str, owner: str) -> str:
    """Scheme, host and port of ``url``. Raises ``CallError`` (``"address"``) where it is no http(s) address."""
    try:
        parsed = Url(url)
    except ValueError as error:
        raise failure("address", owner, f"is not an address that can be asked: {error}", sent=False) from None
    if parsed.scheme not in ("http", "https"):
        reason = "must be an address that begins with http:// or https://"
        raise failure("address", owner, reason, sent=False)
    return parsed.origin_ascii


# --- filling ---------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header field (RFC 9110, 5.6.2)."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What no header field may hold (RFC 9110, 5.5)."""


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills templates of ``owner`` and words what is wrong; never shows what a variable holds."""

    owner: str
    environment: Mapping[str, str]

    def text(self, template: Template) -> str:
        missing = template.missing(self.environment)
        if missing:
            names = ", ".join(missing)
            reason = f"needs the environment variable {names}, which is not set"
            raise failure("environment", self.owner, reason, sent=False)
        return template.fill(self.environment)

    def headers(self, templates: Mapping[str, Template]) -> Fields:
        fields = tuple((name, self.text(template)) for name, template in templates.items())
        _check_headers(self.owner, fields)
        return fields

    def data(self, value: Any) -> Any:
        """JSON data with its texts filled."""
        match value:
            case str():
                return self.text(Template(value))
            case Mapping():
                return {name: self.data(member) for name, member in value.items()}
            case list() | tuple():
                return [self.data(element) for element in value]
            case _:
                return value


def _check_headers(owner: str, fields: Fields) -> None:
    for name, value in fields:
        if not _TOKEN.fullmatch(name):
            raise _bad_header(owner, repr(name), "is not a name that a header may have")
        if _CONTROL.search(value):
            reason = (
                "holds a line break or another control character; is there one at the end of its variable?"
            )
            raise _bad_header(owner, name, reason)


def _bad_header(owner: str, name: str, reason: str) -> CallError:
    return failure("environment", owner, f"the header {name} {reason}", sent=False)


# --- showing ---------------------------------------------------------------------------------------------------

_AUTHORITY = re.compile(r"[A-Za-z]+://[^/?#]*")


def _shown_base(template: Template) -> str | None:
    """The address with its variables as they are written; None where it has none."""
    return shown_url(template.text) if template.variables else None


def _shown(base: Base, template: RequestTemplate) -> str | None:
    path = _shown_path(template.path.text)
    if base.shown is None and "${" not in path:
        return None
    return (base.shown or shown_url(base.url)).rstrip("/") + path


def _shown_path(path: str) -> str:
    path = re.split(r"[?#]", path, maxsplit=1)[0]
    return f"/{path.removeprefix('/')}" if path else ""
