"""What kind of file system a folder is in, as Linux tells it (proc_pid_mountinfo(5))."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")

_REMOTE = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "ocfs2",
        ),
        *("gfs2", "virtiofs", "vboxsf", "prl_fs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"),
        *("fuse.gcsfuse", "fuse.mount-s3", "fuse.juicefs", "fuse.cephfs", "fuse.vmhgfs-fuse"),
    }
)
_VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system by its kind, such as ``"ext4"``."""

    kind: str

    @property
    def is_remote(self) -> bool:
        """Whether its files are another machine's."""
        return self.kind in _REMOTE

    @property
    def is_volatile(self) -> bool:
        """Whether it is lost when the machine stops."""
        return self.kind in _VOLATILE


def file_system_of(folder: Path, mounts: Path = _MOUNTS) -> FileSystem | None:
    """The file system that ``folder`` is in; None where the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = folder.resolve()
    found: FileSystem | None = None
    longest = -1
    for line in lines:
        before, _, behind = line.partition(" - ")
        fields, kinds = before.split(" "), behind.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        point = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4]))
        if len(point.parts) >= longest and real.is_relative_to(point):  # a later mount hides an earlier one
            found, longest = FileSystem(kinds[0]), len(point.parts)
    return found
