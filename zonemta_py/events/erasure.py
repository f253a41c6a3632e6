"""Erasure of one person from what event sinks keep on this machine: files of JSON lines, dead letters, rings.

Lines are rewritten with a stand-in, old and compressed files too, each atomically, while a running feed goes on: it
waits for the lock of the file, and then sees that another one has its name. A ring that names the person is removed: a
feed that runs keeps its open one to its end, and the next start reads the journal instead. What is in memory, or has
left the machine, is not changed. With the address goes what an event about that person says besides: metadata, and the
header fields that come with them; also of the acceptance of a message that was for nobody else, if the same file has
another event that says for whom it was. Failures: OSError; what was done before stays done.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
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
Is = Callable[[str], bool]
"""(address) → whether it is the person's."""
_WITH_THEM = ("metadata", "headers")
_SUFFIX = ".erasing"
_RINGS = "ring*"


class _Lines:
    """Lines of one file, each an event, or a letter with one. ids: messages to the person that they tell of."""

    def __init__(self, erase: Erase, is_theirs: Is) -> None:
        self._erase, self._is_theirs = erase, is_theirs
        self.ids = set[str]()

    def names(self, line: bytes) -> bool:
        """Whether it names the person; to be asked of all before any is rewritten."""
        if not self._erase(line)[1]:
            return False
        if (data := _data(line)) is not None and self._is_theirs(str(data.get("recipient", ""))):
            self.ids.add(str(data.get("message", "")))
        return True

    def fresh(self, line: bytes) -> tuple[bytes, int]:
        """What stands there instead, and how much of it is new."""
        count = 0
        if b'"metadata"' in line or b'"headers"' in line:
            line, count = self._without_metadata(line)
        fresh, named = self._erase(line)
        return fresh, named + count

    def _without_metadata(self, line: bytes) -> tuple[bytes, int]:
        row = _parsed(line)
        data = _data_of(row)
        if row is None or data is None:
            return line, 0
        theirs = self._is_theirs(str(data.get("recipient", "")))
        alone = "recipient" not in data and data.get("recipients") == 1 and data.get("message") in self.ids
        count = sum(data.pop(name, None) is not None for name in _WITH_THEM) if theirs or alone else 0
        if not count:
            return line, 0
        made = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return made + b"\n", count


def _data(line: bytes) -> dict[str, Any] | None:
    return _data_of(_parsed(line))


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _data_of(row: Any) -> dict[str, Any] | None:
    """Of an event, also in a letter."""
    event = row.get("event", row) if isinstance(row, dict) else None
    data = event.get("data") if isinstance(event, dict) else None
    return data if isinstance(data, dict) else None


def in_folder(folder: Path, erase: Erase, is_theirs: Is) -> tuple[int, int]:
    """folder: the sink's, events/NAME. How many dead letters were changed, and how many rings removed."""
    lines, rings = _Lines(erase, is_theirs), 0
    for letter in DeadLetters(folder).read():
        lines.names(letter.ready.body)
    letters = DeadLetters(folder).change(lines.fresh)
    for path in folder.glob(_RINGS):
        if path.is_file() and _names(path, erase):
            path.unlink()
            rings += 1
    return letters, rings


def in_files(path: Path, erase: Erase, is_theirs: Is) -> tuple[int, int]:
    """path: of a sink of kind file. How many lines were changed, and in how many files."""
    with _locked(path):
        found = [_in_file(one, _Lines(erase, is_theirs)) for one in _all(path)]
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


def _in_file(path: Path, known: _Lines) -> int:
    with _reading(path) as lines:
        if not sum(known.names(line) for line in lines):  # all of them are looked at
            return 0
    was, count = path.stat(), 0
    with _reading(path) as lines, fresh_file(path, 0o640, _SUFFIX) as file:
        os.fchmod(file.fileno(), was.st_mode & 0o7777)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), was.st_uid, was.st_gid)
        with _writing(path, file) as fresh:
            for line in lines:
                line, found = known.fresh(line)
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
