"""A large body in a file of its own: `bodies/<id>`, written once as it streams in, deleted when the message ends.

In the store a body is written to the log, then to tables, and its bytes stay there, dead, until a compaction reaches
them; that is right for many small bodies and wasteful for large ones. So keys and values are separated (WiscKey, FAST
'16): the store says that the message exists and where its body is, the file has the bytes.

Promise: after `finish` the bytes and the file's name are on stable storage. A chunk that is read is the one that was
written: each has a checksum that also covers the message's id and the chunk's number.

Failures: OSError from the disk as it comes; BodyDamaged where the file is missing, too short, too long, or has other
bytes. The format is in FORMAT.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from zonemta_py.disk.files import sync
from zonemta_py.mail.limits import CHUNK_BYTES

FOLDER = "bodies"
_ID = re.compile("[0-9a-f]{16}")
_HEAD = b"zonemta body 1 %s\n"
_FRAME = struct.Struct("<II")
"""Before each chunk: its checksum, the bytes it is kept in."""
_COUNT = struct.Struct("<I")
_KEPT_MAX = CHUNK_BYTES + 1024
"""A chunk that begins like a frame is stored as one, which may make it a little larger."""
_WRITEBACK_BYTES = 1024 * 1024
_SYNC_FILE_RANGE_WRITE = 2
_NOT_YET, _CLOSED = -1, -2
_LIBC = ctypes.CDLL(None, use_errno=True)


class BodyDamaged(Exception):
    """One sentence: what is wrong with the file."""


class BodyFile:
    """A file that is being written, by any thread; the first write makes it."""

    def __init__(self, folder: Path, message_id: str) -> None:
        self._path, self._id = folder / message_id, message_id.encode()
        self._lock = threading.Lock()
        self._lengths: list[int] = []
        self._bytes = self._begun = 0
        self._file = _NOT_YET

    @property
    def chunks(self) -> int:
        return len(self._lengths)

    def write(self, chunks: list[bytes]) -> None:
        """Adds chunks in the form in which they are kept. Raises OSError; then there is nothing left but `abort`."""
        with self._lock:
            pieces: list[bytes] = []
            if self._file == _NOT_YET:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                pieces.append(_HEAD % self._id)
            for chunk in chunks:
                self._lengths.append(len(chunk))
                pieces += (_FRAME.pack(_checksum(self._id, len(self._lengths), chunk), len(chunk)), chunk)
            self._put(pieces)
            if self._bytes - self._begun >= _WRITEBACK_BYTES:  # so that the sync at the end finds little to do
                start, length = ctypes.c_int64(self._begun), ctypes.c_int64(self._bytes - self._begun)
                _LIBC.sync_file_range(self._file, start, length, _SYNC_FILE_RANGE_WRITE)
                self._begun = self._bytes

    def finish(self) -> int:
        """The body is complete: it is on stable storage with its name. Returns the file's bytes. Raises OSError."""
        with self._lock:
            self._put([_foot(self._id, self._lengths)])
            os.fdatasync(self._file)
            os.close(self._file)
            self._file = _CLOSED
        sync(self._path.parent)
        return self._bytes

    def abort(self) -> None:
        """The message is given up: deletes the file. Idempotent; nothing can be written afterwards."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = _CLOSED
            self._path.unlink(missing_ok=True)

    def _put(self, pieces: list[bytes]) -> None:
        if self._file < 0:
            raise OSError(errno.EBADF, "it was abandoned", str(self._path))
        size = sum(map(len, pieces))
        done = os.writev(self._file, pieces)
        if done < size:  # the disk is nearly full: the next write says so
            rest = memoryview(b"".join(pieces))[done:]
            while rest:
                rest = rest[os.write(self._file, rest) :]
        self._bytes += size


def read(folder: Path, message_id: str, chunks: int, first: int, most: int) -> list[bytes]:
    """Up to `most` chunks from `first` on, as they are kept; none after the end. chunks: how many the message has.

    Raises BodyDamaged, OSError.
    """
    with _opened(folder, message_id) as file:
        ident = message_id.encode()
        lengths = _lengths(file, ident, chunks)
        last = min(first + most - 1, chunks)
        at = len(_HEAD % ident) + sum(lengths[: first - 1]) + (first - 1) * _FRAME.size
        found: list[bytes] = []
        for number in range(first, last + 1):
            framed = os.pread(file, _FRAME.size + lengths[number - 1], at)
            at += len(framed)
            found.append(_unframed(ident, number, lengths[number - 1], framed))
        return found


def fault(folder: Path, message_id: str, chunks: int) -> str:
    """What is wrong with a body, as a sentence's end; "" if nothing is. Reads all of it. Raises OSError."""
    try:
        for first in range(1, chunks + 1, 16):
            read(folder, message_id, chunks, first, 16)
    except BodyDamaged as damaged:
        return str(damaged)
    return ""


def ids(folder: Path) -> list[str]:
    """Of all files there are, in their order."""
    try:
        return sorted(name for name in os.listdir(folder) if _ID.fullmatch(name))
    except FileNotFoundError:
        return []


def remove(folder: Path, message_id: str) -> None:
    """The message has ended; harmless where there is no file. Raises OSError."""
    (folder / message_id).unlink(missing_ok=True)


def keep(folder: Path, message_id: str, place: Path, name: str = "body") -> None:
    """A hard link to the file in a quarantine case, which takes no space; does nothing where there is no file.

    Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        os.link(folder / message_id, place / name)
        sync(place)


@contextlib.contextmanager
def _opened(folder: Path, message_id: str) -> Iterator[int]:
    try:
        file = os.open(folder / message_id, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BodyDamaged(f"the file of its body, {folder / message_id}, is gone") from None
    try:
        yield file
    finally:
        os.close(file)


def _lengths(file: int, ident: bytes, chunks: int) -> list[int]:
    """Of the chunks as they are kept; they and the file's own length have to agree."""
    size, table = os.fstat(file).st_size, chunks * _COUNT.size
    data = os.pread(file, table + _COUNT.size, max(0, size - table - _COUNT.size))
    lengths = list(struct.unpack(f"<{chunks}I", data[:table])) if len(data) == table + _COUNT.size else []
    whole = len(_HEAD % ident) + sum(lengths) + chunks * _FRAME.size + len(data)
    if not lengths or data != _foot(ident, lengths) or whole != size or max(lengths) > _KEPT_MAX:
        raise BodyDamaged("the file of its body is not what was written")
    return lengths


def _unframed(ident: bytes, number: int, length: int, framed: bytes) -> bytes:
    chunk = framed[_FRAME.size :]
    if len(framed) != _FRAME.size + length or framed[: _FRAME.size] != _FRAME.pack(
        _checksum(ident, number, chunk), length
    ):
        raise BodyDamaged(f"chunk {number} of its body is not what was written")
    return chunk


def _foot(ident: bytes, lengths: list[int]) -> bytes:
    table = struct.pack(f"<{len(lengths)}I", *lengths)
    return table + _COUNT.pack(_checksum(ident, 0, table))


def _checksum(ident: bytes, number: int, data: bytes) -> int:
    seed: int = google_crc32c.value(ident + _COUNT.pack(number))
    return int(google_crc32c.extend(seed, data))
