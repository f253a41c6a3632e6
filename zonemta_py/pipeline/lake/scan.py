"""Rows of some record types out of files of bronze, as Arrow tables; reading no more than needed.

Row groups that by their statistics hold none of the types, or none of the ids, are skipped; those that hold nothing
else are taken as they are. Failures: OSError and Arrow's for a file that is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zonemta_py.pipeline.journal.schema import ROWS

FEW_VALUES = (
    "type", "zone", "campaign", "tenant", "verdict", "enhanced", "stage", "class", "rule", "remote", "tls", "source",
    "site", "provider", "reason", "node",
)  # fmt: skip
"""Columns of texts that repeat: read as dictionaries."""
_FIELDS = pa.schema(
    (field.name, pa.dictionary(pa.int32(), pa.string()) if field.name in FEW_VALUES else field.type) for field in ROWS
)

Between: TypeAlias = Sequence[tuple[str, str]] | None
"""Ids from the first to the last of each pair, both inside; None: all ids."""


class Scan(NamedTuple):
    """What is read: these columns of records of these types. first: only one row of each record."""

    types: tuple[str, ...]
    columns: tuple[str, ...]
    first: bool = False

    def blank(self) -> pa.Table:
        """Its columns without a row."""
        return pa.schema([_FIELDS.field(name) for name in self.columns]).empty_table()


Tables: TypeAlias = dict[str, pa.Table]
"""Rows by name of the scan."""


def read(files: Sequence[Path], scans: Mapping[str, Scan], between: Between = None) -> Tables:
    """The rows of each scan; those without an id are left out."""
    found = {name: [scan.blank()] for name, scan in scans.items()}
    for path in files:
        with _opened(path) as file:
            for group in range(file.num_row_groups):
                for name, scan in scans.items():
                    if _has(file, group, scan, between):
                        names = [*{*scan.columns, "id", "type", "part"}.intersection(file.schema_arrow.names)]
                        rows = file.read_row_group(group, names, use_threads=False)
                        found[name].append(_wanted(rows, scan, between))
    return {name: joined(tables) for name, tables in found.items()}


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(FEW_VALUES))
    except KeyError:  # of an earlier version, with fewer columns
        there = pq.read_schema(path).names
        return pq.ParquetFile(path, read_dictionary=[name for name in FEW_VALUES if name in there])


def chosen(rows: pa.Table, scans: Mapping[str, Scan]) -> Tables:
    """The same of rows that have been read already."""
    return {name: joined([scan.blank(), _wanted(rows, scan, None)]) for name, scan in scans.items()}


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of all, with one dictionary for each column; `tables` is empty afterwards."""
    whole = pa.concat_tables(tables, promote_options="default")
    tables.clear()
    return whole.unify_dictionaries().combine_chunks()


def _has(file: pq.ParquetFile, group: int, scan: Scan, between: Between) -> bool:
    """Whether a row group may have a row of the scan."""
    types, ids = (_bounds(file, group, name) for name in ("type", "id"))
    if types and not any(types[0] <= name <= types[1] for name in scan.types):
        return False
    return ids is None or between is None or any(first <= ids[1] and ids[0] <= last for first, last in between)


def _bounds(file: pq.ParquetFile, group: int, name: str) -> tuple[str, str] | None:
    """The least and the greatest value of a column, where the file says them."""
    said = file.metadata.row_group(group).column(file.schema_arrow.get_field_index(name)).statistics
    return (said.min, said.max) if said is not None and said.has_min_max else None


def _wanted(rows: pa.Table, scan: Scan, between: Between) -> pa.Table:
    kept = np.asarray(rows["id"].is_valid()) & np.asarray(pc.is_in(_text(rows["type"]), pa.array(scan.types)))
    if scan.first:
        kept &= rows["part"].to_numpy() == 0
    if between is not None:
        kept &= _inside(rows["id"], between)
    rows = rows if kept.all() else rows.filter(pa.array(kept))
    names = [name for name in scan.columns if name in rows.column_names]
    return pa.table([_like(rows[name], _FIELDS.field(name).type) for name in names], names)


def _like(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """As that type; what comes as text may have to become a dictionary."""
    if column.type == kind:
        return column
    return column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, pa.string())


def _inside(ids: pa.ChunkedArray, between: Sequence[tuple[str, str]]) -> np.ndarray:
    kept = np.zeros(len(ids), dtype=bool)
    for first, last in between:
        kept |= np.asarray(pc.and_(pc.greater_equal(ids, first), pc.less_equal(ids, last)).fill_null(False))
    return kept
