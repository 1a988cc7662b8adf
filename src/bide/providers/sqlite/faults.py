"""The one place where errors of SQLite become errors of bide: what happened, to which file, and one next step."""

from __future__ import annotations

from pathlib import Path

import apsw

from bide.errors import ProviderCorrupt, ProviderError

_DAMAGED = "it was left as it is; restore it from a backup, or move it away and start with a new one"

_MESSAGES: tuple[tuple[type[apsw.Error], type[ProviderError], bool, str], ...] = (
    (apsw.BusyError, ProviderError, True, "another process keeps it locked; asking again may help"),
    (apsw.LockedError, ProviderError, True, "it is locked; asking again may help"),
    (apsw.FullError, ProviderError, True, "the disk is full; make room, nothing that was kept is lost"),
    (apsw.NoMemError, ProviderError, True, "there is no memory left"),
    (apsw.InterruptError, ProviderError, True, "the statement was interrupted"),
    (apsw.NotADBError, ProviderCorrupt, False, f"it is not an SQLite database; {_DAMAGED}"),
    (apsw.CorruptError, ProviderCorrupt, False, f"the database is damaged; {_DAMAGED}"),
    (
        apsw.ReadOnlyError,
        ProviderError,
        False,
        "it cannot be written; check the permissions of the file and of its folder, "
        "and that neither is mounted read-only",
    ),
    (
        apsw.CantOpenError,
        ProviderError,
        False,
        "it cannot be opened; check that its folder exists and that this user may write there",
    ),
    (
        apsw.PermissionsError,
        ProviderError,
        False,
        "access was refused; check the permissions of the file and of its folder",
    ),
    (apsw.IOError, ProviderError, True, "reading or writing failed; check the disk and the system's log"),
)
"""By kind of error: which error of ours, whether asking again may help, and what to say."""


def moved(path: Path) -> ProviderError:
    """The file is not where it was opened: what would be written now could not be found again."""
    return ProviderError(
        f"{path}: it was moved or deleted while it was in use; put it back, or start again with a new one"
    )


def explained(error: apsw.Error, path: Path) -> ProviderError:
    """``error`` as an error of the provider that keeps its data in ``path``."""
    for kind, made, retryable, message in _MESSAGES:
        if isinstance(error, kind):
            return made(f"{path}: {message} (SQLite: {error})", retryable=retryable)
    return ProviderError(f"{path}: SQLite refused a statement ({type(error).__name__}: {error})")
