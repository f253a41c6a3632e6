"""Parquet files that workers write of Arrow tables, one for each day, and that get their names from the driver.

A task that is repeated, because its worker was lost, leaves files under temporary names; `place` renames those of
completed tasks, and removes the others.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_UNIQUE = ("id", "recipient", "sender", "reply", "size")
_PACKED = ("seq", "at", "started_at", "received_at", "first_at", "first_attempt_at", "ended_at")
"""Columns whose values hardly ever repeat: a dictionary of them costs a third of the writing, and saves nothing."""


class DayFile(NamedTuple):
    """A file in a day's folder: what it is called, and what it shall be called."""

    day: str
    written: str
    name: str


def write(folder: Path, number: int, rows: pa.Table) -> Iterator[DayFile]:
    """Writes rows with a column `day` (date) below `folder`/day=…/, on stable storage. number: of the task."""
    for day in pc.unique(rows["day"]).to_pylist():
        mine = rows.filter(pc.equal(rows["day"], pa.scalar(day, pa.date32()))).drop_columns("day")
        file = DayFile(str(day), f".{uuid.uuid4().hex}.tmp", f"part-{number:05d}.parquet")
        target = folder / f"day={day}"
        target.mkdir(parents=True, exist_ok=True)
        _write(target / file.written, mine)
        yield file


def place(folder: Path, files: Iterable[DayFile]) -> None:
    """Gives the files their names."""
    for file in files:
        (folder / f"day={file.day}" / file.written).replace(folder / f"day={file.day}" / file.name)
    for left in folder.glob("day=*/.*.tmp"):
        left.unlink()


def _write(path: Path, rows: pa.Table) -> None:
    packed = [name for name in rows.column_names if name in _PACKED]
    plain = {*_UNIQUE, *packed}
    with path.open("xb") as file:
        pq.write_table(
            rows, file, compression="zstd", compression_level=1, store_schema=False,
            use_dictionary=[name for name in rows.column_names if name not in plain],
            column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        )  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
