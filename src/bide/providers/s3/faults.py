"""The one place where errors of the object store become errors of bide: what happened, where, and one next step."""

from __future__ import annotations

import re

from obstore import exceptions

from bide.errors import ProviderError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")

_BY_CODE: dict[str, tuple[bool, str]] = {
    "NoSuchBucket": (False, "there is no such bucket; make it, or correct its name in the address"),
    "SlowDown": (True, "the store asks to be asked less often; asking again later may help"),
    "InvalidAccessKeyId": (False, "the store does not know the access key; check AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (
        False,
        "the store refused the signature; check AWS_SECRET_ACCESS_KEY and the region in the address",
    ),
    "ExpiredToken": (False, "the credentials have expired; get new ones"),
    "RequestTimeTooSkewed": (False, "the clock of this machine is wrong by minutes; set it"),
    "PermanentRedirect": (False, "the bucket is in another region; correct ?region= in the address"),
    "AuthorizationHeaderMalformed": (
        False,
        "the bucket is in another region; correct ?region= in the address",
    ),
}
"""By the error code of the answer: whether asking again may help, and what to say."""

_BY_STATUS: dict[int, tuple[bool, str]] = {
    301: (False, "the bucket is in another region; correct ?region= in the address"),
    400: (False, "the store refused the request"),
    401: (False, "the store wants other credentials; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    403: (
        False,
        "access is denied; check the credentials in the environment, and that they may GetObject, PutObject, "
        "DeleteObject and ListBucket here",
    ),
    404: (False, "there is no such bucket; make it, or correct its name in the address"),
    429: (True, "the store asks to be asked less often; asking again later may help"),
    500: (True, "the store failed; asking again may help"),
    501: (False, "the store cannot do that; use one that honours conditional writes"),
    503: (True, "the store is busy or away; asking again later may help"),
}

FAULTS = (exceptions.BaseError, OSError, ValueError)
"""Everything that goes wrong with a store or on the way to it."""

_AWAY = (True, "the store cannot be reached; check that it runs, and the endpoint in the address")
_NO_CREDENTIALS = (
    False,
    "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role",
)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that the store answered, where it answered."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def code_of(error: BaseException) -> str | None:
    """The error code in the body of the answer, such as ``SlowDown``."""
    found = _CODE.search(str(error))
    return found[1] if found else None


def explained(error: BaseException, place: str) -> ProviderError:
    """``error`` as an error of the provider whose store is at ``place``."""
    status, code = status_of(error), code_of(error)
    retryable, message = _judged(error, status, code)
    detail = " ".join(filter(None, (f"HTTP {status}" if status else "", code or "")))
    return ProviderError(f"{place}: {message} ({detail or type(error).__name__})", retryable=retryable)


def _judged(error: BaseException, status: int | None, code: str | None) -> tuple[bool, str]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status is not None:
        return _BY_STATUS.get(status, (status >= 500, "the store refused the request"))
    if "169.254.169.254" in str(error) or "redential" in str(error):
        return _NO_CREDENTIALS
    return _AWAY
