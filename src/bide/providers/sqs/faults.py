"""The one place where errors of SQS become errors of bide: what happened, where, and one next step."""

from __future__ import annotations

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as Unreachable

from bide.errors import ProviderError

FAULTS = (BotoCoreError, ClientError, aiohttp.ClientError, OSError, TimeoutError)
"""Everything that goes wrong with SQS or on the way to it."""

MISSING = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
"""Codes of a queue that is not there."""

STALE = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")
"""Codes of a receipt handle that does not hold its message any more, as an entry of a batch."""

_LATER = "asking again may help"
_CREDENTIALS = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
_KEYS = "check the credentials (aws sts get-caller-identity)"
_KMS = "SQS could not use the key that encrypts the queue; allow kms:GenerateDataKey and kms:Decrypt on it"

_BY_CODE: dict[str, tuple[bool, str]] = {
    **dict.fromkeys(MISSING, (False, "there is no such queue; create it, or add create=true to the address")),
    "QueueDeletedRecently": (True, "the queue was deleted less than a minute ago; it can be made again soon"),
    "QueueNameExists": (False, "a queue of that name has other attributes; use it as it is, or another name"),
    "AccessDenied": (
        False,
        "the credentials may not do that; allow the actions that docs/providers.md lists",
    ),
    "AccessDeniedException": (
        False,
        "the credentials may not do that; allow the actions that docs/providers.md lists",
    ),
    "InvalidClientTokenId": (False, f"AWS does not know the access key; {_KEYS}"),
    "UnrecognizedClientException": (False, f"AWS does not know the access key; {_KEYS}"),
    "InvalidSecurity": (
        False,
        f"AWS refused the signature; {_KEYS}, and that the clock of this machine is right",
    ),
    "SignatureDoesNotMatch": (False, f"the secret key is not that of the access key; {_KEYS}"),
    "IncompleteSignature": (False, f"the credentials are incomplete; {_KEYS}"),
    "ExpiredToken": (
        True,
        "the session's token has expired; renew it (aws sso login), the next try reads it",
    ),
    "ExpiredTokenException": (True, "the session's token has expired; renew it (aws sso login)"),
    "RequestExpired": (False, "AWS finds the request too old; set the clock of this machine right"),
    "OptInRequired": (False, "the account has no SQS in this region; enable the region, or name another"),
    "OverLimit": (
        True,
        "120,000 messages of the queue are in flight, the most there may be; settle some first",
    ),
    "KmsThrottled": (True, f"KMS asks to go slower; {_LATER}"),
    "KmsAccessDenied": (False, _KMS),
    "KmsDisabled": (False, _KMS),
    "KmsInvalidKeyUsage": (False, _KMS),
    "KmsInvalidState": (False, _KMS),
    "KmsNotFound": (False, _KMS),
    "KmsOptInRequired": (False, _KMS),
}
"""By the code that SQS answers: whether asking again may help, and what to say."""

_THROTTLED = (
    "RequestThrottled",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
)

_BY_KIND: tuple[tuple[type[BaseException], bool, str], ...] = (
    (NoRegionError, False, "no region is set; add region=… to the address, or set AWS_REGION"),
    (NoCredentialsError, False, f"no credentials were found; {_CREDENTIALS}"),
    (PartialCredentialsError, False, f"the credentials are incomplete; {_CREDENTIALS}"),
    (ProfileNotFound, False, "the profile of AWS_PROFILE does not exist; correct it"),
    (TokenRetrievalError, True, "the session has ended; log in again (aws sso login)"),
    (CredentialRetrievalError, True, f"credentials could not be fetched; {_LATER}"),
    (ReadTimeoutError, True, f"SQS did not answer in time; {_LATER}"),
    (
        ConnectTimeoutError,
        True,
        "SQS cannot be reached; check the network, and region and endpoint in the address",
    ),
    (
        Unreachable,
        True,
        "SQS cannot be reached; check the network, and region and endpoint in the address",
    ),
    (
        HTTPClientError,
        True,
        "SQS cannot be reached; check the network, and region and endpoint in the address",
    ),
    (BotoCoreError, False, "the request could not be made; check region and endpoint in the address"),
    (TimeoutError, True, f"SQS did not answer in time; {_LATER}"),
    (aiohttp.ClientError, True, f"the connection was lost; {_LATER}"),
    (OSError, True, f"the connection was lost; {_LATER}"),
)
"""By kind of error, the narrower before the wider: whether asking again may help, and what to say."""


def code_of(error: BaseException) -> str:
    """The code that SQS answered; empty where it answered none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def is_missing(error: BaseException) -> bool:
    """Whether it says that there is no such queue."""
    return code_of(error) in MISSING


def is_denied(error: BaseException) -> bool:
    """Whether it says that the credentials may not do it."""
    return code_of(error) in {"AccessDenied", "AccessDeniedException"}


def explained(error: BaseException, place: str, doing: str) -> ProviderError:
    """``error`` as an error of the provider at ``place``, which was ``doing`` something (``"ReceiveMessage"``).

    Texts of the library are left out where they may quote an address or a file.
    """
    if isinstance(error, ClientError):
        code = code_of(error)
        retryable, message = judged(code, _status_of(error))
        return ProviderError(f"{place}: {message} ({doing}: {code or 'no code'})", retryable=retryable)
    for kind, retryable, message in _BY_KIND:
        if isinstance(error, kind):
            return ProviderError(f"{place}: {message} ({doing}: {type(error).__name__})", retryable=retryable)
    return ProviderError(f"{place}: SQS could not be asked ({doing}: {type(error).__name__})")


def judged(code: str, status: int = 400) -> tuple[bool, str]:
    """Whether asking again may help after this code and status of HTTP, and what to say."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code in _THROTTLED or status == 429:
        return True, f"SQS asks to go slower; {_LATER}"
    if status >= 500:
        return True, f"SQS has trouble of its own; {_LATER}"
    return False, "SQS refused the request; check the queue's attributes and its policy"


def _status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
