"""All rows of a list that were rejected, in one CSV file: where they stand, why, and what stands there."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.prepare.source.lines import Walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_rejects(
    refused: DataFrame, target: Path, settings: Settings, files: Sequence[Path], name: Callable[[str], str]
) -> None:
    """refused: rows as `validate` leaves them. files: those of the list. name: a path as people know it.

    Columns: file, line (nothing where it is not known), problem, those of the list that are used; of a row that is
    none its text stands in the first of these. Rows come in the order of the list, a partition at a time.
    """
    from pyspark.sql import functions as F

    text = F.coalesce("broken", "raw").alias("text")
    rows = refused.orderBy("line").select("reason", text, F.col("broken").isNotNull().alias("none"), "row", "line")
    with os.fdopen(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline=""
    ) as out:
        writer, walk = csv.writer(out, lineterminator="\n"), Walk(files)
        writer.writerow(["file", "line", "problem", settings.email, *settings.fields.values()])
        for row in rows.toLocalIterator():
            line = walk.line(row.line.file, row.line.block, row.text or "")
            file = name(str(files[row.line.file])) if row.line.file < len(files) else ""
            values = [] if row.none else json.loads(f"[{row.row}]")
            writer.writerow([file, line or "", row.reason, row.text or "", *values])
