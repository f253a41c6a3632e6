"""A campaign's list as `check` and `preview` look at it: CSV, JSON lines or Parquet, row by row, without Spark."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from zonemta_py.cli.errors import Exit, Stop

Row = dict[str, str]
ADDRESS_COLUMNS = ("email", "address", "recipient")
_JSON = (".jsonl", ".ndjson", ".json")


def columns(file: Path) -> list[str]:
    """Names a template may use. Raises Stop."""
    if file.suffix.lower() == ".parquet":
        names: list[str] = _parquet(file).schema_arrow.names
    elif file.suffix.lower() in _JSON:
        names = list(dict.fromkeys(name for _, row in _json_rows(file) for name in row))
    else:
        names = _csv_columns(file)
    for name in names:
        if not name.isidentifier():
            raise Stop(Exit.DATA, f"{file}:1: a template cannot name the column {name!r}; use letters, digits and _")
    for at, name in enumerate(names):
        if name.lower() in map(str.lower, names[:at]):
            raise Stop(Exit.DATA, f"{file}:1: the column {name!r} is there twice; rename one of them, or take it out")
    return names


def rows(file: Path) -> Iterator[tuple[int, Row]]:
    """Line (of Parquet: number) and fields of each row; what is missing is "". Raises Stop."""
    if file.suffix.lower() == ".parquet":
        yield from _parquet_rows(file)
    elif file.suffix.lower() in _JSON:
        names = columns(file)
        for line, row in _json_rows(file):
            yield line, {name: _text(row.get(name)) for name in names}
    else:
        yield from _csv_rows(file)


def address_column(file: Path) -> str:
    """Raises Stop."""
    names = columns(file)
    for name in ADDRESS_COLUMNS:
        if name in names:
            return name
    raise Stop(Exit.DATA, f"{file}:1: no column says who the recipient is; name one of them email")


def row_of(file: Path, recipient: str) -> Row:
    """The recipient's row, the first if recipient is "". Raises Stop."""
    column = address_column(file)
    for _, row in rows(file):
        if not recipient or row[column].strip().lower() == recipient.strip().lower():
            return row
    raise Stop(
        Exit.DATA, f"{file}: {recipient or 'nobody'} is not in the list; take an address from its column {column}"
    )


def _csv_columns(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        try:
            return next(csv.reader(lines), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise Stop(Exit.DATA, f"{file}: this is not CSV in UTF-8 ({error}); save it as such") from None


def _csv_rows(file: Path) -> Iterator[tuple[int, Row]]:
    names = columns(file)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines)
        try:
            for values in islice(reader, 1, None):
                if values and len(values) != len(names):
                    sentence = f"the row has {len(values)} fields, the header {len(names)}; mend its commas and quotes"
                    raise Stop(Exit.DATA, f"{file}:{reader.line_num}: {sentence}")
                if values:
                    yield reader.line_num, dict(zip(names, values, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise Stop(Exit.DATA, f"{file}:{reader.line_num + 1}: {error}; save it as CSV in UTF-8") from None


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8-sig") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                row = json.loads(line) if line.strip() else {}
                if not isinstance(row, dict):
                    raise ValueError("the line is no object {…}")
                if row:
                    yield number, row
        except ValueError as error:  # of the JSON or the UTF-8
            raise Stop(Exit.DATA, f"{file}:{number}: {error}; write one JSON object on each line, in UTF-8") from None


def _parquet(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise Stop(
            Exit.UNAVAILABLE, "Parquet is read with pyarrow; `pip install 'zonemta-py[pipeline]'` brings it"
        ) from None
    try:
        return pa.parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise Stop(Exit.DATA, f"{file}: {str(error).splitlines()[0]}; name a Parquet file") from None


def _parquet_rows(file: Path) -> Iterator[tuple[int, Row]]:
    number = 0
    for batch in _parquet(file).iter_batches():
        for row in batch.to_pylist():
            number += 1
            try:
                yield number, {name: _text(value) for name, value in row.items()}
            except UnicodeDecodeError:
                raise Stop(Exit.DATA, f"{file}:{number}: a value is not UTF-8; write text into its column") from None


def _text(value: object) -> str:
    """As Spark makes text of it."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
