"""A campaign's list as `check`, `preview` and `test` read it, row by row, without Spark; a folder is one list.

Its rows are read as `campaign send` reads them: the same files, separators, characters and columns. A bad row
does not end the reading: it is returned with what is wrong with it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.cli.campaign import settings
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.mail.addresses.written import SPACES, bare
from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source.dialect import (
    ADDRESS_COLUMNS,
    Dialect,
    dialect_of,
    files,
    kind_of,
    name_it,
    named,
    opened,
)

Row = dict[str, str]
_ERRORS = "surrogateescape"
"""Invalid UTF-8 is found by its surrogates, row by row."""
_NAMED = 12
"""Columns that the sentence names."""


class Line(NamedTuple):
    """A row. line: in its file, from 1 (of Parquet: the row's number). wrong: what is wrong with it, "" if nothing.

    values: as they stand there. row: template's names → values.
    """

    file: Path
    line: int
    values: Sequence[str]
    row: Row
    wrong: str = ""


class CampaignList:
    """columns: of the list. fields: template's name → column. address: the template's name of the recipient's column.
    nested: columns whose values are objects or lists.

    said: one sentence, how it was read. Raises CommandError and OSError.
    """

    def __init__(self, path: Path, maps: Iterable[str] = (), encoding: str = "") -> None:
        self.path, self.nested = path, set[str]()
        try:
            other = named(encoding)
            self._kind = kind_of(str(path))
            self._files = files(str(path)) or [path]
            if other and self._kind != "csv":
                raise PlanRefused(f"--encoding: {path} is not CSV; leave it out")
            self._dialects = {
                file: dialect_of(file, other) if self._kind == "csv" else Dialect() for file in self._files
            }
        except PlanRefused as refused:
            raise CommandError(Exit.DATA, str(refused)) from None
        self._alike()
        self.columns = self._columns()
        self.fields = settings.with_recipient(settings.mapping(maps, self.columns), str(path), self.columns)
        if missing := [column for column in self.fields.values() if column not in self.columns]:
            there = ", ".join(self.columns)
            raise CommandError(
                Exit.DATA, f"{path}: there is no column {missing[0]!r}; it has {there}; map another one with --map"
            )
        self.address = next(name for name in ADDRESS_COLUMNS if name in self.fields)
        self.said = understood(
            str(path), self._kind, self._dialects[self._files[0]], self.columns, self.fields[self.address]
        )

    def rows(self) -> Iterator[Line]:
        """Raises CommandError for what has no rows at all."""
        for file in self._files:
            yield from self._rows_of(file)

    def row_of(self, recipient: str) -> Row:
        """The recipient's row, the first if recipient is "". Raises CommandError."""
        for line in self.rows():
            if line.wrong:
                raise CommandError(Exit.DATA, f"{line.file}:{line.line}: {line.wrong}")
            if not recipient or bare(line.row[self.address]).lower() == bare(recipient).lower():
                return line.row
        sentence = f"{self.path}: {recipient or 'nobody'} is not in the list"
        raise CommandError(Exit.DATA, f"{sentence}; use an address from its column {self.fields[self.address]}")

    def _alike(self) -> None:
        first = self._dialects[self._files[0]]
        for file, dialect in self._dialects.items():
            if dialect.separator != first.separator:
                sentence = (
                    f"{file}: it is written in {dialect}, {self._files[0].name} in {first}; save all files the same way"
                )
                raise CommandError(Exit.DATA, sentence)

    def _columns(self) -> list[str]:
        first: list[str] | None = None
        for file in self._files:
            names = self._columns_of(file)
            for at, name in enumerate(names):
                if name and name.lower() in map(str.lower, names[:at]):
                    sentence = f"the column {name!r} appears twice; rename or remove one of them"
                    raise CommandError(Exit.DATA, f"{file}:1: {sentence}")
            if first is not None and self._kind == "csv" and names != first:
                sentence = f"its columns are {', '.join(names)}, but those of {self._files[0].name} {', '.join(first)}"
                raise CommandError(Exit.DATA, f"{file}: {sentence}; give all files the same columns, in the same order")
            first = names if first is None else list(dict.fromkeys(chain(first, names)))
        return first or []

    def _columns_of(self, file: Path) -> list[str]:
        if self._kind == "parquet":
            import pyarrow as pa

            schema = _parquet(file).schema_arrow
            self.nested |= {one.name for one in schema if pa.types.is_nested(one.type)}
            names: list[str] = schema.names
            return names
        if self._kind == "json":
            found = dict[str, None]()
            for _, row in _json_rows(file):
                if isinstance(row, dict):
                    found.update(dict.fromkeys(row))
                    self.nested |= {name for name, value in row.items() if isinstance(value, dict | list)}
            return list(found)
        with opened(file, self._dialects[file], _ERRORS) as text:
            names = []
            try:
                names = next(csv.reader(text, delimiter=self._dialects[file].separator), [])
                "".join(names).encode()
                return [name.strip(SPACES) for name in names]
            except UnicodeError:
                wrong = f"line 1 is not {self._written(file)}"
                raise CommandError(Exit.DATA, f"{file}: {wrong}; {self._remedy(file, names)}") from None
            except csv.Error as error:
                raise CommandError(Exit.DATA, f"{file}: this is not CSV ({error}); save it as CSV in UTF-8") from None

    def _rows_of(self, file: Path) -> Iterator[Line]:
        if self._kind == "csv":
            yield from self._csv_rows(file)
            return
        found = _parquet_rows(file) if self._kind == "parquet" else _json_rows(file)
        for number, row in found:
            if isinstance(row, str):
                yield Line(file, number, (), {}, row)
            else:
                values = [_text(row.get(name)) for name in self.columns]
                yield Line(file, number, values, self._named(values))

    def _csv_rows(self, file: Path) -> Iterator[Line]:
        dialect = self._dialects[file]
        with opened(file, dialect, _ERRORS) as text:
            reader, before = csv.reader(text, delimiter=dialect.separator), int(dialect.announced)
            next(reader, None)
            while True:
                try:
                    values = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield Line(file, reader.line_num + before, (), {}, f"{error}; correct its quotes")
                    continue
                if values:
                    wrong = self._wrong(values, file)
                    yield Line(file, reader.line_num + before, values, {} if wrong else self._named(values), wrong)

    def _written(self, file: Path) -> str:
        return str(self._dialects[file]).partition(",")[0]

    def _remedy(self, file: Path, values: Sequence[str]) -> str:
        if self._written(file) == "UTF-8":
            return name_it(" ".join(values).encode("utf-8", "surrogateescape"))
        return "save the list as UTF-8, or name what it is written in"

    def _wrong(self, values: Sequence[str], file: Path) -> str:
        if any("\udc80" <= character <= "\udcff" for value in values for character in value):
            return f"it is not {self._written(file)}; {self._remedy(file, values)}"
        if len(values) != len(self.columns):
            counts = f"{len(values)} fields, the header {len(self.columns)}"
            return f"the row has {counts}; correct its separators and quotes"
        return ""

    def _named(self, values: Sequence[str]) -> Row:
        by_column = dict(zip(self.columns, values, strict=True))
        return {name: by_column[column] for name, column in self.fields.items()}


def understood(list_: str, kind: str, dialect: Dialect, columns: Sequence[str], address: str) -> str:
    """One sentence: how the list is read."""
    how = {"csv": f"CSV in {dialect}", "json": "JSON lines", "parquet": "Parquet", "table": "a table"}[kind]
    named = ", ".join(columns[:_NAMED]) + (", …" if len(columns) > _NAMED else "")
    return f"{list_}: read as {how}; columns {named}; recipients in {address}"


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    with opened(file, Dialect(), "surrogateescape") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.encode()
                row = json.loads(line) if line.strip() else {}
            except UnicodeError:
                yield number, "it is not UTF-8; save the list as UTF-8"
                continue
            except ValueError as error:
                yield number, f"{error}; write one JSON object per line, in UTF-8"
                continue
            if not isinstance(row, dict):
                yield number, "the line is not a JSON object {…}; write one per line, in UTF-8"
            elif row:
                yield number, row


def _parquet(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise CommandError(
            Exit.UNAVAILABLE, "reading Parquet needs pyarrow; `pip install 'zonemta-py[pipeline]'` installs it"
        ) from None
    try:
        return pa.parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise CommandError(Exit.DATA, f"{file}: {str(error).splitlines()[0]}; name a Parquet file") from None


def _parquet_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    number = 0
    for batch in _parquet(file).iter_batches():
        for row in batch.to_pylist():
            number += 1
            try:
                for value in row.values():
                    _text(value)
            except UnicodeDecodeError:
                yield number, "a value is not UTF-8; write text into its column"
            else:
                yield number, row


def _text(value: object) -> str:
    """The value as text, as Spark converts it."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
