"""Where a redirect leads, and what may go there (RFC 9110, 15.4).

Decided with the client library's own reading of addresses, so that what is compared is what is called. A
permanent redirect is followed like any other and remembered nowhere: the declared address stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyreqwest.http import Url

from bide.connection.failures import failure
from bide.core.http import READS, Request, shown_url

STATUSES = frozenset({301, 302, 303, 307, 308})
"""Redirects that are followed. 300 has no one target, 304 to 306 are none."""

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Never sent to another origin than the one that they were meant for."""

_OF_CONTENT = frozenset(
    {"content-type", "content-encoding", "content-language", "content-location", "digest"}
)
"""They describe the body, and go with it (RFC 9110, 15.4)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """The next request of a call that is redirected, and its address as it may be shown."""

    request: Request
    shown: str


def next_hop(
    request: Request,
    status: int,
    location: str | None,
    *,
    shown: str,
    hidden: bool,
    bound: frozenset[str],
    same_origin: bool,
) -> Hop:
    """What to send after ``request`` was answered by a redirect of ``status`` to ``location``.

    ``bound`` are the lower-case names of headers meant for the first origin only, besides the usual credentials.
    ``hidden``: paths of this call may hold secrets, so of the new address only its origin is shown.
    Raises ``CallError`` (``"redirects"``) where it is not followed: no Location, or one that is no http or https
    address, from https to http, another origin where ``same_origin`` forbids it, or with a body for another origin.
    """

    def refusal(reason: str) -> Exception:
        return failure("redirects", f"{request.method} {shown}", f"answered {status} {reason}", status=status)

    if location is None:
        raise refusal("without saying where to (it has no readable Location)")
    here = Url(request.url)
    try:
        there = here.join(location).with_fragment(None)
    except ValueError:
        raise refusal("with a Location that is no address") from None
    if there.scheme not in ("http", "https"):
        raise refusal(f"to a {there.scheme}: address; only http and https are followed")
    target = there.origin_ascii if hidden else shown_url(str(there))
    if here.scheme == "https" and there.scheme == "http":
        raise refusal(f"from https to {target}; secure calls are not continued in the clear")
    same = there.origin_ascii == here.origin_ascii
    if same_origin and not same:
        raise refusal(
            f"to {target}, on another origin, which is not followed here; declare that address itself"
        )
    method, body, headers = request.method, request.body, request.headers
    if same_origin and method not in READS and status not in (307, 308):
        raise refusal(
            f"to {target}, which would turn {method} into GET and lose what is sent; answer 307 or 308"
        )
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = tuple(pair for pair in headers if pair[0].lower() not in _OF_CONTENT)
    if not same:
        if body is not None:
            raise refusal(
                f"to {target}, on another origin, which is not sent the body; declare that address itself"
            )
        headers = tuple(pair for pair in headers if pair[0].lower() not in bound | _CREDENTIALS)
    return Hop(Request(method, str(there), headers, body), target)
