"""What went wrong with a call, in the closed set of kinds, said so that a reader knows what to do.

The client library's own errors name the whole address with its query and user; nothing of theirs is passed on
but causes known here, and they are not chained, so that no traceback shows a secret.
"""

from __future__ import annotations

from typing import Literal

from pyreqwest.exceptions import (
    BuilderError,
    ClientClosedError,
    ConnectError,
    DecodeError,
    DetailedPyreqwestError,
    RequestTimeoutError,
)

from bide.connection.decoding import BodyError
from bide.errors import CallError

CallErrorKind = Literal[
    "refused",
    "unresolved",
    "tls",
    "timeout",
    "reset",
    "incomplete",
    "too_large",
    "encoding",
    "redirects",
    "protocol",
    "status",
    "environment",
    "address",
    "function",
]
"""Every ``CallError.kind`` that comes from here:

- ``refused``: no connection to the server (refused, no route)
- ``unresolved``: the name in the address does not resolve
- ``tls``: the server's certificate is not trusted, has expired or is for another name, or it speaks no TLS
- ``timeout``: no connection, or no whole answer, or no free slot, in time
- ``reset``: the connection ended before an answer began
- ``incomplete``: the answer was cut off
- ``too_large``: the body is larger than its cap, decoded or on the wire
- ``encoding``: the body's coding is unknown or damaged
- ``redirects``: a redirect that is not followed: too many, to a forbidden place, to nowhere
- ``protocol``: what came is not HTTP, or not what HTTP allows here
- ``status``: a whole answer, whose status is no success
- ``environment``: a variable that the declaration needs is missing, or holds what cannot be sent
- ``address``: the address cannot be one
- ``function``: an operation's function raised
"""

RETRYABLE: frozenset[CallErrorKind] = frozenset({"refused", "unresolved", "timeout", "reset", "incomplete"})
"""Kinds where asking again may help by itself. Statuses are judged apart."""


def failure(
    kind: CallErrorKind, subject: str, reason: str, *, sent: bool = True, status: int | None = None
) -> CallError:
    """A ``CallError`` about ``subject`` (``"GET http://host/path"``, as it may be shown)."""
    retryable = kind in RETRYABLE or (status is not None and is_passing(status))
    return CallError(kind, f"{subject}: {reason}", retryable=retryable, sent=sent, status=status)


def is_passing(status: int) -> bool:
    """Whether an answer of ``status`` may be another when asked again: 408, 429 (RFC 6585) and 5xx."""
    return status in (408, 429) or status >= 500


def failure_of(error: Exception, subject: str, *, allowed: str, status: int | None = None) -> CallError:
    """The failure that ``error`` of the client library, or of the body's decoding, stands for.

    ``allowed`` is the time that the call had, as text; ``status`` is that of the answer, where it is known (the
    client library hands out an answer only once it has the first 64 KiB of its body, or all of a shorter one).
    """
    if isinstance(error, BodyError):
        answered = (
            "the answer" if status is None or 200 <= status < 400 else f"the answer with status {status}"
        )
        return failure(error.kind, subject, f"{answered} {error.reason}", status=status)
    causes = _causes(error)
    in_body = status is not None or "request or response body error" in causes
    if isinstance(error, RequestTimeoutError):
        return _timeout(subject, causes, allowed, in_body=in_body, status=status)
    if in_body:
        return _body_failure(error, subject, causes, status)
    if "client error (Connect)" in causes:
        return _connect_failure(subject, causes)
    match error:
        case ConnectError():
            return failure("reset", subject, "the server closed the connection without an answer")
        case BuilderError() | ValueError():
            return failure("address", subject, f"cannot be asked for: {_last(causes, error)}", sent=False)
        case DecodeError():
            return failure("protocol", subject, f"what came is not an HTTP answer: {_last(causes, error)}")
        case ClientClosedError():
            return CallError("reset", f"{subject}: the client was closed meanwhile")
        case _:
            return failure("reset", subject, f"the connection broke: {_last(causes, error)}")


def _timeout(
    subject: str, causes: list[str], allowed: str, *, in_body: bool, status: int | None
) -> CallError:
    if "client error (Connect)" in causes:
        reason = "no connection in time; is the server up and reachable?"
        return failure("timeout", subject, reason, sent=False)
    got = "not the whole answer" if in_body else "no answer"
    return failure("timeout", subject, f"{got} within {allowed}", status=status)


def _body_failure(error: Exception, subject: str, causes: list[str], status: int | None) -> CallError:
    if "nvalid" in causes[-1]:
        reason = f"the answer's body is not HTTP: {_last(causes, error)}"
        return failure("protocol", subject, reason, status=status)
    return failure("incomplete", subject, "the answer was cut off before its end", status=status)


_CERTIFICATE = "invalid peer certificate: "

_CERTIFICATE_FAULTS = (
    ("UnknownIssuer", "is signed by nobody trusted here; trust its authority (SSL_CERT_FILE), if you do"),
    ("certificate expired", "has expired; its owner must renew it"),
    ("certificate not valid yet", "is not valid yet; is the clock of this machine right?"),
    ("certificate not valid for name", "is for another name than the address"),
    ("certificate revoked", "was revoked"),
    ("Revoked", "was revoked"),
)
"""What rustls says of a certificate, and what that means."""

_HANDSHAKE_FAULTS = (
    ("received corrupt message", "the server speaks no TLS on this port; is it an http:// address?"),
    ("tls handshake eof", "the server broke off the TLS handshake"),
    ("received fatal alert", "the server refused the TLS handshake"),
    ("peer is incompatible", "the server and this client have no TLS version or cipher in common"),
)


def _connect_failure(subject: str, causes: list[str]) -> CallError:
    """A failure before anything was sent."""
    if "dns error" in causes:
        reason = "the name of the host does not resolve; is it spelt right, and is the network up?"
        return failure("unresolved", subject, reason, sent=False)
    last = causes[-1]
    if last.startswith(_CERTIFICATE):
        said = last.removeprefix(_CERTIFICATE)
        fault = next((means for known, means in _CERTIFICATE_FAULTS if known in said), "is invalid")
        return failure("tls", subject, f"the server's certificate {fault}", sent=False)
    for known, means in _HANDSHAKE_FAULTS:
        if known in last:
            return failure("tls", subject, means, sent=False)
    if "tcp connect error" not in causes or "reset by peer" in last:  # also of one reset as it was made
        return failure("reset", subject, "the connection broke while it was being made", sent=False)
    if "Connection refused" in last:
        reason = "connection refused; is the server running, and is the port right?"
        return failure("refused", subject, reason, sent=False)
    return failure("refused", subject, f"no connection: {_plain(last)}", sent=False)


def _causes(error: Exception) -> list[str]:
    """The causes that the client library gives, outermost first; the first one names the whole address."""
    if not isinstance(error, DetailedPyreqwestError):
        return [str(error)]
    return [cause["message"] for cause in error.details.get("causes") or ()] or [error.message]


def _last(causes: list[str], error: Exception) -> str:
    """The innermost cause, unless it could hold an address; then the kind of error."""
    last = _plain(causes[-1])
    return type(error).__name__ if "://" in last or "url (" in last else last


def _plain(cause: str) -> str:
    return cause.partition(" (os error")[0]
