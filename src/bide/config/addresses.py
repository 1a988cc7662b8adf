"""Addresses: of APIs, of webhooks, and the paths of requests."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from bide.config.report import Place
from bide.config.shape import template
from bide.core.template import Template

_VARIABLE = re.compile(r"\$\{[^}]*\}")
_SPLIT = re.compile(r"(https?://[^/?#]+|\$\{[^}]*\}[^/?#]*)([^#]*)", re.IGNORECASE)
_SPACE = re.compile(r"\s")


def http_url(place: Place, value: object) -> Template | None:
    """An absolute http or https address with a host. What begins with a variable is checked when used."""
    made = template(place, value)
    if made is None or made.text.startswith("${"):
        return made
    problem = _problem(_VARIABLE.sub("1", made.text))  # 1 is right as a host, as a port and in a path
    if problem is None:
        return made
    place.refuse(problem, 'Write an address such as "https://api.example.org".')
    return None


def base_url(place: Place, value: object) -> Template | None:
    """As :func:`http_url`, without a fragment. A path in it stays in front of those of operations."""
    made = http_url(place, value)
    if made is None or "#" not in made.text:
        return made
    place.refuse("has a #, and what follows it is never sent", "End it before the #.")
    return None


def request_path(place: Place, value: object) -> Template | None:
    """The path of a request, put behind the connection's ``base_url``; may have a query of its own."""
    made = template(place, value)
    if made is None:
        return None
    if not made.text.startswith("/"):
        place.refuse(
            "must be a path that begins with /",
            'Write the path only, such as "/price"; the host is the base_url of the connection.',
        )
        return None
    if _SPACE.search(made.text) or "#" in made.text:
        place.refuse(
            "has a space or a #, which a path cannot have", "Write %20 for a space, and %23 for a #."
        )
        return None
    return made


def split_url(url: Template) -> tuple[Template, Template]:
    """``url`` as the base that a connection has, and the path (with its query) that is put behind it."""
    found = _SPLIT.match(url.text)
    base, rest = (found[1], found[2]) if found else (url.text, "")
    if not rest.startswith("/") and (rest or not base.startswith("${")):
        rest = f"/{rest}"
    return Template(base), Template(rest)


def _problem(url: str) -> str | None:
    if _SPACE.search(url):
        return "has a space in it"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is not an address: {str(error)[:1].lower()}{str(error)[1:]}"
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    return None if host else "has no host"
