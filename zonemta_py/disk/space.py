"""Free space on the queue's disk: mail is refused with 452 before LevelDB meets the end of the disk.

LevelDB handles ENOSPC badly (later writes were acknowledged and lost), so the reserve keeps that from happening in
normal operation; `disk.leveldb.store` deals with it when it happens anyway.
"""

from __future__ import annotations

import os
from pathlib import Path

LEAST_BYTES = 16 * 1024 * 1024
"""What a queue keeps free, whatever is configured: ends of mail are written too, and LevelDB compacts, before any space
is free again."""


class Space:
    """Looks at the disk at most once in `every_s` seconds of the caller's clock."""

    def __init__(self, folder: Path, reserve_bytes: int, every_s: float = 0.5) -> None:
        self._folder, self._reserve, self._every = folder, reserve_bytes, every_s
        self._looked, self._room = -1e9, 0

    def configure(self, reserve_bytes: int) -> None:
        """So much is kept free from now on."""
        self._reserve, self._looked = reserve_bytes, -1e9

    @property
    def reserve(self) -> int:
        """Bytes that are kept free."""
        return self._reserve

    def short(self, now: float) -> bool:
        """True while less than the reserve is free. `now`: monotonic seconds."""
        return self.room(now) < 0

    def room(self, now: float) -> int:
        """Bytes that may still be filled; below 0 the reserve is being used."""
        if now - self._looked >= self._every:
            self._looked = now
            self._room = free_bytes(self._folder) - self._reserve
        return self._room

    def fill(self, size: int) -> None:
        """Bytes that are being written: counted until the next look, since many can be written in between."""
        self._room -= size


def free_bytes(folder: Path) -> int:
    """Bytes that an unprivileged process could still write there."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
