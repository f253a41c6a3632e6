"""Where in the list a bad row stands: file and line, for files that have lines; and all bad
rows in one CSV file."""

from __future__ import annotations

import csv
import json
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.prepare.validate import BAD_ROW, REASONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EDGES = b"\r\n,;\t| \"'"
_WITH_LINES = (".csv", ".tsv", ".tab", ".txt", ".jsonl", ".ndjson", ".json")
EXAMPLES = 20
"""Of each reason, at most."""
_AT_ONCE = 50_000
"""So many rejected rows are sorted by one task; for more, Spark first looks how to divide them."""
_MISSES_MAX = 100
"""Texts that are not in a file as they were read (escaped, say); each costs a walk to its end."""


def locate(examples: list[dict[str, Any]], files: list[Path]) -> list[dict[str, Any]]:
    """Examples with `file` and `block` → the same with `file` (path, "" unknown) and `line` (from 1, 0 unknown)."""
    by_file: dict[int, list[dict[str, Any]]] = {}
    for example in examples:
        by_file.setdefault(example["file"], []).append(example)
    found = []
    for number, group in sorted(by_file.items()):
        path = files[number] if number < len(files) else None
        lines = _lines(path, group) if path and path.suffix.lower() in _WITH_LINES else {}
        for example in group:
            place = {"file": str(path or ""), "line": lines.get(example["text"], 0)}
            found.append({key: value for key, value in example.items() if key not in ("file", "block")} | place)
    return sorted(found, key=lambda one: (one["file"], one["line"], one["reason"]))


class Walk:
    """Finds lines of texts that come in the order of the list: each file is gone through once."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files, self._number = files, -1
        self._content: mmap.mmap | None = None
        self._offset = self._line = self._misses = 0

    def line(self, file: int, block: int, text: str) -> int:
        """From 1; 0 where it cannot be told."""
        if file != self._number:
            self._open(file)
        if self._content is None or not text or self._misses > _MISSES_MAX:
            return 0
        found = _find(self._content, text.encode(), max(self._offset, block))
        if found < 0:
            self._misses += 1
            return 0
        self._line += _newlines(self._content, self._offset, found)
        self._offset = found
        line, self._offset = self._line, found + 1
        return line

    def _open(self, file: int) -> None:
        path = self._files[file] if file < len(self._files) else None
        self._number, self._content, self._offset, self._line, self._misses = file, None, 0, 1, 0
        if path and path.suffix.lower() in _WITH_LINES and path.stat().st_size:
            with path.open("rb") as content:
                self._content = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ)


def _lines(path: Path, examples: list[dict[str, Any]]) -> dict[str, int]:
    if not path.stat().st_size:
        return {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        offsets = {one["text"]: _find(content, one["text"].encode(), one["block"]) for one in examples if one["text"]}
        lines, line, last = {}, 1, 0
        for text, offset in sorted(offsets.items(), key=lambda pair: pair[1]):
            if offset >= 0:
                line += _newlines(content, last, offset)
                lines[text], last = line, offset
    return lines


def _find(content: mmap.mmap, text: bytes, start: int) -> int:
    """Offset of the text as a field or a whole line, from its block on; -1 if it is not there as it is."""
    at = content.find(text, start)
    while at >= 0:
        before, after = content[max(0, at - 1) : at], content[at + len(text) : at + len(text) + 1]
        if before in _EDGES and after in _EDGES:
            return at
        at = content.find(text, at + 1)
    return -1


def _newlines(content: mmap.mmap, start: int, end: int) -> int:
    step = 1 << 24
    return sum(content[at : min(at + step, end)].count(b"\n") for at in range(start, end, step))


def write_rejects(
    people: DataFrame,
    rejected: int,
    target: Path,
    settings: Settings,
    files: Sequence[Path],
    name: Callable[[str], str],
) -> list[dict[str, Any]]:
    """people: what `plan.people` gives, among them so many rejected rows. files: those of the list. name: a path as
    people know it.

    Columns: file, line (nothing where it is not known), problem, those of the list that are used; of a row that is
    none its text stands in the first of these. Rows come in the order of the list, a partition at a time. Returns some
    examples of each reason, which stand for all: reason, text, n, and file and block they stand in.
    """
    from pyspark.sql import functions as F

    rows = people.where(F.col("reason").isin(*REASONS))
    kind = F.pmod(F.xxhash64("raw"), F.lit(EXAMPLES)).alias("kind")
    rows = rows.select("reason", F.col("raw").alias("text"), "row", "line", kind)
    rows = rows.orderBy("line") if rejected > _AT_ONCE else rows.coalesce(1).sortWithinPartitions("line")
    examples: dict[tuple[str, int], dict[str, Any]] = {}
    with os.fdopen(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline=""
    ) as out:
        writer, walk = csv.writer(out, lineterminator="\n"), Walk(files)
        writer.writerow(["file", "line", "problem", settings.email, *settings.fields.values()])
        for row in rows.toLocalIterator():
            (number, block, _), text = row.line, row.text or ""
            line = walk.line(number, block, text)
            file = name(str(files[number])) if number < len(files) else ""
            values = [] if row.reason == BAD_ROW else json.loads(f"[{row.row}]")
            writer.writerow([file, line or "", row.reason, text, *values])
            example = {"reason": row.reason, "text": text, "n": 0, "file": number, "block": block}
            examples.setdefault((row.reason, row.kind), example)["n"] += 1
    return sorted(examples.values(), key=lambda one: str(one["reason"]))
