"""Files that are replaced as a whole or not at all, whatever ends the process or the machine.

A file's bytes are on stable storage before its name points to them, and its name before it counts as written. A process
killed before that leaves the old file, and a temporary one beside it that is never read and that the next writer
removes. Concurrent writers of the same file need a lock, or a suffix each. Failures: OSError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".new"
_ALL = 0o666
"""The mode less what the umask forbids."""


def replace_file(path: Path, data: bytes, mode: int = _ALL, suffix: str = _SUFFIX) -> None:
    """mode: of a new file, less what the umask forbids."""
    with fresh_file(path, mode, suffix) as file:
        file.write(data)


@contextmanager
def fresh_file(path: Path, mode: int = _ALL, suffix: str = _SUFFIX) -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` at the end of the block; an exception in the block removes it."""
    fresh = path.with_name(path.name + suffix)
    fresh.unlink(missing_ok=True)  # a left-over may have other rights, or be a link
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """For a name that nothing reads yet: its bytes are on stable storage; `sync` its folder when all are there."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def changed(path: Path) -> tuple[int, ...]:
    """What differs once the file has another content; () if there is none. Raises nothing."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size


def sync(path: Path) -> None:
    """A file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(top: Path) -> None:
    """A folder with all that is below it."""
    for path in [*top.rglob("*"), top]:
        sync(path)
