"""Receipts: what was acknowledged last, written apart from the store, so that damage to the store cannot hide it.

A message is on stable storage with the store's batch; its ENVELOPE record reaches the journal within a tenth of a
second, and in between only the newest batch has the message. So the thread that has synced a batch writes its receipt
before it is acknowledged: the batch's number and the ENVELOPE records to come. The write is not synced, as it is not
part of the promise: it survives the end of the process, and after a power cut the batch itself is there.

There are two files by turns, in the journal's framing: a record's number is the batch's, its type is ENVELOPE, its body
an array of ENVELOPE bodies. A file is emptied when all that it names is in the journal: when the other is full, or when
a person is erased. Failures: none; a receipt that the disk refuses matters only if the store is damaged too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgpack

from zonemta_py.disk import packing
from zonemta_py.disk.frame import Record, frame, parse
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import EnvelopeRecord

FOLDER = "receipts"
FILE_BYTES = 1024 * 1024
_NOBODY = msgpack.packb([])


class Receipts:
    """The writer. `write` is for the store's thread, `turn` for others between two of its jobs, `forget` any time."""

    def __init__(self, folder: Path) -> None:
        """Two new files, created at the first write; those that are there stay until `forget`."""
        self._folder = folder
        self._before = _paths(folder)
        self._paths: list[Path] = []
        self._files = [-1, -1]
        self._current = self._bytes = self._number = 0
        self.turns_asked = 0
        """So often the files are to be switched though they are not full."""
        self._named_until = [0, 0]
        """By file: the journal's record number up to which it must be stable before the file may be emptied."""

    def write(self, number: int, envelopes: list[bytes]) -> None:
        """The batch of that number is on stable storage, and holds these messages."""
        body = msgpack.Packer().pack_array_header(len(envelopes)) + b"".join(envelopes)
        data = frame([Record(number, 0, Type.ENVELOPE, body)], self._bytes)
        with contextlib.suppress(OSError):
            if not self._paths:
                self._begin()
            self._bytes += os.write(self._files[self._current], data)
            self._number = number

    def _begin(self) -> None:
        (self._folder / FOLDER).mkdir(exist_ok=True)
        life = max((int(path.stem) for path in _paths(self._folder)), default=0) + 1
        paths = [self._folder / FOLDER / f"{life}.{side}" for side in "ab"]
        self._files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) for path in paths]
        self._paths = paths

    def turn(self, last_seq: int, stable_seq: int) -> None:
        """Switches to the other file when this one is full.

        last_seq: the journal's last record; all that was acknowledged has its ENVELOPE by now. stable_seq: on stable
        storage up to here.
        """
        other = 1 - self._current
        if (self._bytes < FILE_BYTES and not self.turns_asked) or stable_seq < self._named_until[other]:
            return
        self._named_until[self._current] = last_seq
        with contextlib.suppress(OSError):
            os.ftruncate(self._files[other], 0)
            os.lseek(self._files[other], 0, os.SEEK_SET)
            self._current, self._bytes = other, 0
            if self.turns_asked:  # which batch was the last stays known
                self._bytes = os.write(self._files[other], frame([Record(self._number, 0, Type.ENVELOPE, _NOBODY)], 0))
                self.turns_asked -= 1

    def ask_empty(self) -> None:
        """Until `turns_asked` is 0 again: the next turns empty both files, each once the journal has what it names."""
        self.turns_asked = len(self._paths)

    def close(self) -> None:
        """Nothing is written any more."""
        while self._paths:
            self._paths.pop()
            os.close(self._files.pop())

    def forget(self) -> None:
        """What the files of earlier runs say is in the journal now. Raises OSError."""
        while self._before:
            self._before.pop().unlink(missing_ok=True)


def _paths(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).glob("*.[ab]") if path.stem.isdecimal()]


def read(folder: Path, after: int = 0) -> Iterator[tuple[int, list[EnvelopeRecord]]]:
    """Number of a batch later than `after`, and its messages; in no order. Raises OSError."""
    for path in _paths(folder):
        for record in parse(path.read_bytes(), []):
            if record.seq <= after:
                continue
            with contextlib.suppress(ValueError):
                yield record.seq, [EnvelopeRecord.of(fields) for fields in packing.unpack(record.body)]


def last(folder: Path) -> int:
    """The number of the last batch that was acknowledged, as far as the files know. Raises OSError."""
    return max((record.seq for path in _paths(folder) for record in parse(path.read_bytes(), [])), default=0)
