"""What came back and nobody understood, kept for an operator: a file for each in `feedback/` of the queue's folder.

A file is on stable storage before its record is, and is named by what makes that the same when it comes again. There
are `return_path.unread` of them at most, RAW_BYTES_MAX each: the oldest make room. Failures: OSError when one cannot be
written; what cannot be read is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zonemta_py.disk.files import replace_file

FOLDER = "feedback"
RAW_BYTES_MAX = 65_536
_SUFFIX = ".eml"


class UnreadFiles:
    """All of a queue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._count = -1
        """-1: nobody has looked."""

    def save(self, name: str, raw: bytes, most: int) -> None:
        """most: how many there may be then. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._path(name)
        if self._count < 0:
            self._count = len(self._oldest())
        self._count += not path.exists()
        replace_file(path, raw[:RAW_BYTES_MAX], 0o600)
        if self._count > most:
            gone = self._oldest()[: max(0, self._count - most)]
            self._remove(gone)
            self._count = -1

    def read(self, name: str) -> bytes:
        """b"" if it is not there any more."""
        try:
            return self._path(name).read_bytes()
        except OSError:
            return b""

    def drop(self, names: Iterable[str]) -> int:
        """Returns how many there were."""
        there = [path for path in map(self._path, names) if path.exists()]
        self._remove(there)
        return len(there)

    def drop_all(self) -> int:
        """Returns how many there were."""
        there = self._oldest()
        self._remove(there)
        return len(there)

    def drop_naming(self, who: str) -> int:
        """Those in which an address stands, in any case. Returns how many."""
        word = who.lower().encode()
        found = [path for path in self._oldest() if word in _bytes(path).lower()]
        self._remove(found)
        return len(found)

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)
        self._count = -1

    def _path(self, name: str) -> Path:
        """name: as of `names`: a message and a hash."""
        return self._folder / f"{name.rpartition(' ')[2]}{_SUFFIX}"

    def _oldest(self) -> list[Path]:
        """The oldest first."""
        return sorted(self._folder.glob(f"*{_SUFFIX}"), key=_ms)


def _ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
