"""Days of table `deliveries` in partitions that fit a worker's memory: each has all attempts of some kinds of mail.

A day of common size is one partition. Those of a large day all read it, a file at a time, and keep their own rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from zonemta_py.pipeline.lake import deliveries
from zonemta_py.pipeline.lake.scan import FEW_VALUES

SHARE_BYTES = 150 << 20
"""Of Parquet files, with all their columns: some 3 million attempts."""


@dataclass(frozen=True)
class Share:
    """Share `number` of `of` of these files of a day. by: columns whose values one share has all attempts of."""

    files: tuple[Path, ...]
    by: tuple[str, ...]
    number: int = 0
    of: int = 1

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Its attempts; texts are dictionaries where they have few values."""
        few = [name for name in columns if name in FEW_VALUES]
        form = ds.ParquetFileFormat(dictionary_columns=few)
        fields = pa.schema(
            (name, pa.dictionary(pa.int32(), pa.string()) if name in few else deliveries.SCHEMA.field(name).type)
            for name in columns
        )
        found = [ds.dataset(str(file), fields, form).to_table(use_threads=False) for file in self.files]
        mine = [self._mine(rows) for rows in found] if self.of > 1 else found
        return pa.concat_tables(mine).unify_dictionaries().combine_chunks()

    def _mine(self, rows: pa.Table) -> pa.Table:
        hashed = np.zeros(len(rows), dtype=np.int64)
        for name in self.by:
            column = rows[name].combine_chunks()
            values = [zlib.crc32((value or "").encode()) for value in [*column.dictionary.to_pylist(), None]]
            hashed += np.array(values)[column.indices.fill_null(len(values) - 1).to_numpy()]
        return rows.filter(pa.array(hashed % self.of == self.number))


def shares(files: Sequence[Path], by: Sequence[str]) -> Iterator[Share]:
    """Of the files of one day."""
    of = max(1, -(-sum(file.stat().st_size for file in files) // SHARE_BYTES))
    for number in range(of):
        yield Share(tuple(files), tuple(by), number, of)
