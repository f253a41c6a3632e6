"""Erasure of one person from the lake: every Parquet file of every table, day and version, plans, and text beside them.

A file that names the person is rewritten, row group by row group, beside the old one, put on stable storage, and
atomically replaces it; its rows, their order and its schema stay. Metadata go with the recipient that they are of. So
versions that `table` keeps for active readers are covered like live ones, and no day changes its version: what was made
from a day need not be made again. From plans of campaigns (columns chunk, n, body) the recipient is removed altogether:
nothing is to be sent there. The caller holds `table.locked`. Failures: OSError, and pyarrow's for damaged files, as a
FileProof with `damage`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zonemta_py.disk.files import sync, write_file
from zonemta_py.logs.causes import cause
from zonemta_py.pipeline.erasure.archive import FileProof
from zonemta_py.pipeline.erasure.person import DataSubject

_SUFFIX = ".erasing"
_PLAN = {"chunk", "n", "body"}


def erase_lake(lake: Path, person: DataSubject) -> Iterator[FileProof]:
    """A FileProof for each file that named the person, or cannot be read."""
    for left in lake.rglob(f"*{_SUFFIX}"):
        left.unlink()
    for path in _files(lake):
        place = _parquet(path, person) if _is_parquet(path) else _plain(path, person)
        if place.entries or place.damage:
            yield place


def search(path: Path, person: DataSubject) -> tuple[int, int]:
    """(how many rows or files name the person, bytes looked at): the raw bytes, and Parquet's columns decompressed."""
    data = path.read_bytes()
    found, size = int(person.found(data)), len(data)
    if _is_parquet(path):
        try:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    found += sum(_rows_naming(column, person) for column in rows.columns)
                    size += rows.nbytes
        except (pa.ArrowException, OSError):
            return found, size  # a damaged file: its raw bytes have been searched
    return found, size


def files_of(lake: Path) -> list[Path]:
    """All files to search."""
    return list(_files(lake))


def _files(lake: Path) -> Iterator[Path]:
    return (path for path in sorted(lake.rglob("*")) if path.is_file() and path.name != "lock" and not _is_crc(path))


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _is_crc(path: Path) -> bool:
    """Hadoop's checksums of a file beside it."""
    return path.name.startswith(".") and path.suffix == ".crc"


def _parquet(path: Path, person: DataSubject) -> FileProof:
    place = FileProof("lake", str(path))
    try:
        with pq.ParquetFile(path) as file:
            if not any(_touched(file.read_row_group(group), person) for group in range(file.num_row_groups)):
                return place
            place.before = _digest(path)
            fresh = path.with_name(path.name + _SUFFIX)
            _write(file, fresh, person, place)
    except (pa.ArrowException, OSError) as error:
        place.damage.append(f"cannot be read as Parquet: {cause(error)}")
        return place
    _swap(fresh, path)
    place.after = _digest(path)
    return place


def _write(file: pq.ParquetFile, fresh: Path, person: DataSubject, place: FileProof) -> None:
    old_times = any(file.schema.column(i).physical_type == "INT96" for i in range(len(file.schema)))
    compression = file.metadata.row_group(0).column(0).compression.lower()
    writer = pq.ParquetWriter(
        fresh,
        file.schema_arrow,
        compression="none" if compression == "uncompressed" else compression,
        use_deprecated_int96_timestamps=old_times,
    )
    with writer:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            if _touched(rows, person):
                rows = _without(rows, person, place)
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))


def _without(rows: pa.Table, person: DataSubject, place: FileProof) -> pa.Table:
    """The row group with the stand-in; counts rows and replacements."""
    hit: set[int] = set()
    if set(rows.column_names) >= _PLAN:
        rows = _without_recipient(rows, person, place, hit)
    rows = _without_metadata(rows, person, place, hit)
    for index, name in enumerate(rows.column_names):
        column = rows.column(index)
        if not _column_touched(column, person):
            continue
        values = column.to_pylist()
        for row, value in enumerate(values):
            values[row], count = person.erased(value)
            place.replaced += count
            hit |= {row} if count else set()
        fresh = pa.chunked_array([pa.array(_as_maps(values, column.type), type=column.type)])
        rows = rows.set_column(index, rows.schema.field(name), fresh)
    place.entries += len(hit)
    return rows


def _without_metadata(rows: pa.Table, person: DataSubject, place: FileProof, hit: set[int]) -> pa.Table:
    """Of rows about the person: each is about one recipient."""
    there = [name for name in ("metadata", "headers") if name in rows.column_names]
    if not there or "recipient" not in rows.column_names:
        return rows
    mine = [row for row, who in enumerate(rows.column("recipient").to_pylist()) if who and person.is_(who)]
    for name in there:
        values = rows.column(name).to_pylist()
        said = [row for row in mine if values[row] is not None]
        for row in said:
            values[row] = None
        if said:
            field = rows.schema.field(name)
            rows = rows.set_column(rows.column_names.index(name), field, pa.array(values, type=field.type))
            place.replaced += len(said)
            hit |= {*said}
    return rows


def _without_recipient(rows: pa.Table, person: DataSubject, place: FileProof, hit: set[int]) -> pa.Table:
    """A plan's chunks: the request's recipient goes, and `n` says one less."""
    counts, bodies = rows.column("n").to_pylist(), rows.column("body").to_pylist()
    for row, body in enumerate(bodies):
        if not body or not person.found(body):
            continue
        request: dict[str, Any] = json.loads(body)
        kept = [each for each in request.get("recipients", []) if not person.is_(each[0])]
        gone = len(request.get("recipients", [])) - len(kept)
        if gone:
            fresh = json.dumps(request | {"recipients": kept}, ensure_ascii=False, separators=(",", ":"))
            bodies[row] = fresh.encode() if isinstance(body, bytes) else fresh
            counts[row] -= gone
            place.replaced += gone
            hit.add(row)
    for name, values in (("n", counts), ("body", bodies)):
        index = rows.column_names.index(name)
        field = rows.schema.field(name)
        rows = rows.set_column(index, field, pa.array(values, type=field.type))
    return rows


def _as_maps(values: list[Any], kind: pa.DataType) -> list[Any]:
    """pyarrow gives maps as lists of pairs, and takes them so; `erased` has kept the pairs."""
    return [list(value) if pa.types.is_map(kind) and value is not None else value for value in values]


def _touched(rows: pa.Table, person: DataSubject) -> bool:
    return any(_column_touched(column, person) for column in rows.columns)


def _column_touched(column: pa.ChunkedArray, person: DataSubject) -> bool:
    return _rows_naming(column, person) > 0


def _rows_naming(column: pa.ChunkedArray, person: DataSubject) -> int:
    kind = column.type
    if _is_text(kind):
        text = column if not pa.types.is_dictionary(kind) else column.cast(kind.value_type)
        maybe = text.filter(pc.match_substring_regex(text, person.loose, ignore_case=True))
        return sum(map(person.found, maybe.to_pylist()))
    if pa.types.is_nested(kind) and _holds_text(kind):
        return sum(map(person.found, column.to_pylist()))
    return 0


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def _holds_text(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return _is_text(kind)
    return any(_holds_text(kind.field(i).type) for i in range(kind.num_fields))


def _plain(path: Path, person: DataSubject) -> FileProof:
    """JSON, CSV and other text; binary files are searched byte by byte."""
    place = FileProof("lake", str(path))
    data = path.read_bytes()
    fresh, count = person.erased(data)
    if count:
        place.entries, place.replaced, place.before = 1, count, hashlib.sha256(data).hexdigest()
        beside = path.with_name(path.name + _SUFFIX)
        write_file(beside, fresh)
        _swap(beside, path)
        place.after = hashlib.sha256(fresh).hexdigest()
    return place


def _swap(fresh: Path, path: Path) -> None:
    """The old checksum goes first: without one, Hadoop reads a file as it is."""
    was = path.stat()
    os.chmod(fresh, was.st_mode & 0o7777)
    sync(fresh)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    fresh.replace(path)
    sync(path.parent)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
