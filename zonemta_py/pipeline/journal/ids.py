"""Ids of messages by the column: 16 hexadecimal digits, of which the first 11 are UNIX milliseconds.

Ids of another shape are ids all the same; their day is NO_DAY.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_DAY = date(1970, 1, 1)
_LENGTH = 16
_DAY_MS = 86_400_000
_NONE = 255
_DIGITS = np.full(256, _NONE, dtype=np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)


def octets(ids: pa.ChunkedArray) -> np.ndarray:
    """The first 16 characters of each in ASCII, padded with blanks; shape (rows, 16). Blank if one is not ASCII."""
    plain = pc.if_else(pc.string_is_ascii(ids), ids, "")
    padded = pc.utf8_slice_codeunits(pc.ascii_rpad(plain, _LENGTH), 0, _LENGTH).combine_chunks()
    if not len(padded):
        return np.empty((0, _LENGTH), dtype=np.uint8)
    start, content = padded.offset * _LENGTH, padded.buffers()[2]
    return np.frombuffer(content, dtype=np.uint8)[start : start + len(padded) * _LENGTH].reshape(-1, _LENGTH)


def born(ids: pa.ChunkedArray) -> pa.Array:
    """The UTC day of each id, as date32."""
    digits = _DIGITS[octets(ids)]
    shaped = (digits != _NONE).all(axis=1) & (pc.binary_length(ids).to_numpy() == _LENGTH)
    ms = digits[:, :11].astype(np.int64) @ (16 ** np.arange(10, -1, -1, dtype=np.int64))
    days = np.where(shaped, ms // _DAY_MS, 0).astype(np.int32)
    return pa.array(days).view(pa.date32())


def within(days: Iterable[date]) -> list[tuple[str, str]] | None:
    """Ranges of ids, (first, last), that hold all ids of these days, and few others; None where only all ids do."""
    wanted = sorted(days)
    if NO_DAY in wanted:
        return None
    return [(_first(start), _first(end + timedelta(1))) for start, end in _spans(wanted)]


def _spans(days: list[date]) -> list[tuple[date, date]]:
    """Sorted days as runs of days on end, (first, last)."""
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and runs[-1][1] + timedelta(1) == day:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs


def _first(day: date) -> str:
    """The first id of that day."""
    ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    return f"{ms << 20:016x}"
