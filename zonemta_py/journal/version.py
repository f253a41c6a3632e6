"""Which version of the format a queue was last written in: one that this program does not know is left alone.

A SEGMENT record says it for the bodies of records and the values of the store (`FORMAT`), the kind of each fragment for
the framing. A program that took a newer queue for damaged would repair it. Failures: OSError.
"""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c

from zonemta_py.disk import frame
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import FORMAT, Type

_HEADER = struct.Struct("<IHB")


class StoreTooNew(StoreError):
    """One sentence with the remedy."""


def check(folder: Path) -> None:
    """Of the queue's folder. Raises StoreTooNew."""
    for path in [*reversed(segments.files(folder / "journal")), *reversed(segments.files(folder / "archive"))]:
        with path.open("rb") as file:
            data = file.read(frame.BLOCK_BYTES)
        if _framing(data) > frame.VERSION:
            raise StoreTooNew(_sentence(folder, "its journal is framed in a way that this one does not know"))
        first = next(frame.parse(data, []), None)
        if first is not None and first.type == Type.SEGMENT:
            found = int(unpack(first.body).get("version", 1))
            if found > FORMAT:
                raise StoreTooNew(_sentence(folder, f"its format is {found}, this one knows {FORMAT}"))
            return


def _framing(data: bytes) -> int:
    """The version in the first fragment, if that is whole; 0: it is not."""
    if len(data) < _HEADER.size:
        return 0
    crc, length, kind = _HEADER.unpack_from(data)
    whole = google_crc32c.value(data[6 : _HEADER.size + length]) == crc
    return kind >> 4 if whole else 0


def _sentence(folder: Path, why: str) -> str:
    return (
        f"{folder}: this queue was last used by a newer version of zonemta-py ({why}); nothing was changed: install"
        " that version again, or restore a backup from before"
    )
