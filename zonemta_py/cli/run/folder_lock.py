"""Whether an MTA has a folder, from its first moment to its last: `zonemta run` keeps a lock on the file `supervisor`
there, which ends with the process however that ends.

Failures: what cannot be made or read is as if no MTA were there.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from zonemta_py.processes import privileges

NAME = "supervisor"
_LOCK = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, process."""


def announce(folder: Path, who: privileges.Identity | None) -> None:
    """This process is the MTA's until it ends. who: root will become that user."""
    with suppress(OSError):
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if who is not None:
            os.fchown(file, who.uid, who.gid)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the file stays open, as the lock ends with it
        os.utime(file)


def since_s(folder: Path) -> float:
    """UNIX seconds: since when the MTA has the folder, whatever became of its processes since. Raises OSError."""
    return (folder / NAME).stat().st_mtime


def there(folder: Path) -> bool:
    """Whether an MTA has the folder, ready or not."""
    try:
        file = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(_LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(file)
