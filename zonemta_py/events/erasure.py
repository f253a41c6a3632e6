"""Erasure of one person from what event sinks keep on this machine: files of JSON lines, dead letters, rings.

Lines are rewritten with a stand-in, old and compressed files too, each atomically, while a running feed goes on: it
waits for the lock of the file, and then sees that another one has its name. A ring that names the person is removed: a
feed that runs keeps its open one to its end, and the next start reads the journal instead. What is in memory, or has
left the machine, is not changed. Failures: OSError; what was done before stays done.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from zonemta_py.disk.files import fresh_file
from zonemta_py.events.dead_letters import DeadLetters

Erase = Callable[[bytes], tuple[bytes, int]]
"""(bytes) → the same with the stand-in, and how often it was put."""
_SUFFIX = ".erasing"
_RINGS = "ring*"


def in_folder(folder: Path, erase: Erase) -> tuple[int, int]:
    """folder: the sink's, events/NAME. How many dead letters were changed, and how many rings removed."""
    letters, rings = DeadLetters(folder).change(erase), 0
    for path in folder.glob(_RINGS):
        if path.is_file() and _names(path, erase):
            path.unlink()
            rings += 1
    return letters, rings


def in_files(path: Path, erase: Erase) -> tuple[int, int]:
    """path: of a sink of kind file. How many lines were changed, and in how many files."""
    with _locked(path):
        found = [_in_file(one, erase) for one in _all(path)]
    return sum(found), sum(map(bool, found))


def _all(path: Path) -> list[Path]:
    """It, and the old ones: NAME.1, NAME.2.gz …"""
    old = [one for one in path.parent.glob(f"{path.name}.*") if one.name[len(path.name) + 1 :].split(".")[0].isdigit()]
    return [one for one in (path, *sorted(old)) if one.is_file() and one.suffix != _SUFFIX]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nothing is written to the file that has the name, and nothing rotated."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file))):
            raise BlockingIOError(0, "it is being rotated; run this again", str(path))
        yield
    finally:
        os.close(file)


def _in_file(path: Path, erase: Erase) -> int:
    with _reading(path) as lines:
        if not any(erase(line)[1] for line in lines):
            return 0
    was, count = path.stat(), 0
    with _reading(path) as lines, fresh_file(path, 0o640, _SUFFIX) as file:
        os.fchmod(file.fileno(), was.st_mode & 0o7777)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), was.st_uid, was.st_gid)
        with _writing(path, file) as fresh:
            for line in lines:
                line, found = erase(line)
                count += bool(found)
                fresh.write(line)
        file.flush()
        os.utime(file.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))
    return count


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file) as lines:
                yield lines  # type: ignore[misc]
        elif path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as packed:
                yield io.BufferedReader(packed)
        else:
            yield file


@contextmanager
def _writing(path: Path, file: Any) -> Iterator[Any]:
    if path.suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6) as packed:
            yield packed
    elif path.suffix == ".zst":
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
            yield packed
    else:
        yield file


def _names(path: Path, erase: Erase) -> bool:
    """Events are in a ring as they are sent, each whole within a page."""
    return erase(path.read_bytes())[1] > 0
