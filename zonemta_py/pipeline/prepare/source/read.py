"""A list as rows: CSV, JSON lines, Parquet, a folder of one of them, or a Spark table.

Every row gets `raw` (the address as it stands), `row` (its field values as JSON, without the array's brackets), `marks`
(bit i: field i has no value; bit 62: control characters were replaced), `inside` (the segment's condition), `line`
(where it stands: file, block and record, which orders rows alike however Spark splits the files) and `broken` (the text
of a row that is none, such as one of Parquet with a value that is no UTF-8).
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.mail.addresses.written import SPACES
from zonemta_py.mail.fields import CONTROLS
from zonemta_py.pipeline.prepare.settings import FIELDS_MAX, PlanRefused, Settings
from zonemta_py.pipeline.prepare.source import sound
from zonemta_py.pipeline.prepare.source.dialect import dialect_of, files, is_nested, kind_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BROKEN = "_broken"
CLEANED = FIELDS_MAX
VALUES_MAX = 1_000
_NESTED = frozenset(("array", "map", "struct"))
_GLOB = re.compile(r"[\[\]{}*?\\]")
_SCHEME = re.compile("^file:/+")
"""Spark writes the same file in two ways: with one slash and with three."""
_CONTROLS = f"[{CONTROLS}]+"  # the node takes none in a field
_SPECIAL = rf"[{CONTROLS}\"\\]"  # these too, and what JSON escapes


def read(spark: SparkSession, list_: str, settings: Settings) -> DataFrame:
    """list_: path of a file or folder, or a table's name. Raises PlanRefused."""
    frame, kind = _load(spark, list_, settings.multiline)
    _check_columns(frame, list_, settings)
    return shape(frame, kind, settings)


def columns(spark: SparkSession, list_: str, multiline: bool = False) -> list[str]:
    """Names of the list's columns. Raises PlanRefused."""
    frame, _ = _load(spark, list_, multiline)
    return [name for name in frame.columns if name != BROKEN]


def values(spark: SparkSession, list_: str, column: str, multiline: bool = False) -> dict[str, int]:
    """Values of a column → rows that have it, the most frequent first; of very many only these. Raises PlanRefused."""
    from pyspark.sql import functions as F

    frame, _ = _load(spark, list_, multiline)
    value = F.trim(F.coalesce(_column(column).cast("string"), F.lit(""))).alias("value")
    found = frame.select(value).groupBy("value").count().orderBy(F.desc("count"), "value").limit(VALUES_MAX)
    return {row["value"]: row["count"] for row in found.collect()}


def look(list_: str, multiline: bool = False, local: bool = True, encoding: str = "") -> None:
    """What can be seen of a list without Spark. local: a path that names no other place is one of this machine.
    encoding: as of `dialect_of`.

    Raises PlanRefused for one of no known kind, or whose beginning is wrong; FileNotFoundError, and OSError.
    """
    kind, named = kind_of(list_), Path(list_)
    if (found := files(list_)) or not local:
        sound.begins(found, kind, multiline, encoding)
    elif (kind != "table" or "/" in list_) and not named.exists() and "://" not in list_ and not _GLOB.search(list_):
        raise FileNotFoundError(errno.ENOENT, "there is no such list", list_)


def fingerprint(spark: SparkSession, list_: str, settings: Settings) -> str:
    """Hex digest of the list's content. Of local files their bytes; else of all rows, in whatever order.

    Raises PlanRefused for files that are not sound.
    """
    found = files(list_)
    if found:
        sound.check(found, kind_of(list_), settings.multiline)
        digest = hashlib.sha256()
        for file in found:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()
    from pyspark.sql import functions as F

    frame, _ = _load(spark, list_, settings.multiline)
    row = F.xxhash64(*frame.columns).cast("decimal(38,0)")
    counted = frame.agg(F.count("*"), F.sum(row)).first()
    return hashlib.sha256(str(counted).encode()).hexdigest()


def _load(spark: SparkSession, list_: str, multiline: bool) -> tuple[DataFrame, str]:
    from pyspark.errors import AnalysisException

    kind = kind_of(list_)
    paths = [_GLOB.sub(r"\\\g<0>", str(file)) for file in files(list_)] or [list_]
    try:
        if kind == "table":
            return spark.table(list_), kind
        if kind == "parquet":
            return spark.read.parquet(*paths), kind
        if kind == "csv":
            separator = dialect_of(files(list_)[0]).separator if files(list_) else ","
            return _csv(spark, paths, multiline, sound.plain_header(files(list_), multiline), separator), kind
        return _json(spark, paths), kind
    except AnalysisException as error:
        said = (error.getMessage() or str(error)).splitlines()[0]
        if error.getCondition() == "COLUMN_ALREADY_EXISTS":
            name = (error.getMessageParameters() or {}).get("columnName", "").strip("`")
            remedy = "rename or remove one of them (case does not distinguish names)"
            raise PlanRefused(f"{list_}: it has the column {name!r} twice; {remedy}") from None
        raise PlanRefused(f"{list_}: {said}; name a file, a folder or a table") from None


def _csv(spark: SparkSession, paths: list[str], multiline: bool, names: list[str], separator: str) -> DataFrame:
    """RFC 4180 in UTF-8, first row the header. Without column pruning, or short rows would pass unseen.

    names: the columns, where they are known; asking Spark takes it a second or two.
    """
    reader = spark.read.option("header", True).option("escape", '"').option("columnPruning", False)
    reader = reader.option("multiLine", multiline).option("mode", "PERMISSIVE").option("sep", separator)
    names = names or [name.strip(SPACES) for name in reader.csv(paths[:1]).columns]
    fields = ", ".join(f"`{name.replace('`', '``')}` string" for name in [*names, BROKEN])
    return reader.option("columnNameOfCorruptRecord", BROKEN).schema(fields).csv(paths)


def _json(spark: SparkSession, paths: list[str]) -> DataFrame:
    reader = spark.read.option("columnNameOfCorruptRecord", BROKEN)
    schema = reader.option("primitivesAsString", True).json(paths).schema
    if BROKEN not in schema.fieldNames():
        schema = schema.add(BROKEN, "string")
    return reader.schema(schema).json(paths)


def _check_columns(frame: DataFrame, list_: str, settings: Settings) -> None:
    names = [name for name in frame.columns if name != BROKEN]
    for wanted in (settings.email, *settings.fields.values()):
        if wanted not in names:
            raise PlanRefused(f"{list_}: there is no column {wanted!r}; it has {', '.join(names)}; map one with --map")
        if frame.schema[wanted].dataType.typeName() in _NESTED:
            raise PlanRefused(f"{list_}: {is_nested(wanted)}")


def shape(frame: DataFrame, kind: str, settings: Settings) -> DataFrame:
    """The columns named above, of a list with any columns. Raises PlanRefused for a segment that is not a condition."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    inside = F.coalesce(F.expr(settings.where), F.lit(False)) if settings.where else F.lit(True)
    values = [f"v{number}" for number in range(len(settings.fields))]
    texts = {name: _column(name).cast("string") for name in (settings.email, *settings.fields.values())}
    broken = F.col(BROKEN) if BROKEN in frame.columns else F.lit(None).cast("string")
    if kind in ("parquet", "table"):  # the text of the others was looked at whole
        broken, texts = _broken(frame, texts), {name: F.make_valid_utf8(text) for name, text in texts.items()}
    given = zip(values, settings.fields.values(), strict=True)
    fields = [F.coalesce(texts[column], F.lit("")).alias(value) for value, column in given]
    try:
        rows = frame.select(
            texts[settings.email].alias("raw"),
            inside.alias("inside"),
            _line(frame, kind).alias("line"),
            broken.alias("broken"),
            *fields,
        )
    except (AnalysisException, ParseException) as error:
        said = " ".join((error.getMessage() or str(error)).split())[:300]
        raise PlanRefused(f"--where {settings.where!r}: {said}; write SQL over the list's columns") from None
    return _packed(rows, values)


def _packed(rows: DataFrame, values: Sequence[str]) -> DataFrame:
    """`row` and `marks` of the columns `values`. JSON is made by putting quotes around what needs no escapes."""
    from pyspark.sql import functions as F

    if not values:
        return rows.select(
            "raw", F.lit("").alias("row"), F.lit(0).cast("bigint").alias("marks"), "inside", "line", "broken"
        )
    rows = rows.withColumn("plain", F.concat(*values)).withColumn("special", F.col("plain").rlike(_SPECIAL))
    rows = rows.withColumn("unclean", F.col("special") & F.col("plain").rlike(_CONTROLS))
    cleaned = F.to_json(F.array(*(F.regexp_replace(value, _CONTROLS, " ") for value in values)))
    escaped = F.expr("substring(cleaned, 2, length(cleaned) - 2)")
    rows = rows.withColumn("cleaned", F.when(F.col("special"), cleaned))
    simple = F.concat(F.lit('"'), F.concat_ws('","', *values), F.lit('"'))
    row = F.when(F.col("special"), escaped).otherwise(simple)
    return rows.select("raw", row.alias("row"), _marks(values).alias("marks"), "inside", "line", "broken")


def _broken(frame: DataFrame, texts: Mapping[str, Column]) -> Column:
    """The first value that is no UTF-8, with signs of replacement; else null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType

    made_of_bytes = [
        text for name, text in texts.items() if isinstance(frame.schema[name].dataType, BinaryType | StringType)
    ]
    wrong = [F.when(~F.is_valid_utf8(text), F.make_valid_utf8(text)) for text in made_of_bytes]
    return F.coalesce(*wrong, F.lit(None).cast("string"))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name.replace('`', '``')}`")


def _marks(values: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    conditions = [(F.trim(value) == "", 1 << i) for i, value in enumerate(values)] + [(F.col("unclean"), 1 << CLEANED)]
    bits = [F.when(condition, F.lit(bit).cast("bigint")).otherwise(F.lit(0)) for condition, bit in conditions]
    return reduce(lambda a, b: a.bitwiseOR(b), bits)


def _line(frame: DataFrame, kind: str) -> Column:
    from pyspark.sql import functions as F

    if kind == "table":  # rows without a place: their content orders them
        return F.struct(F.lit(0).alias("file"), F.lit(0).cast("bigint").alias("block"), F.xxhash64("*").alias("record"))
    places = {_SCHEME.sub("file:/", path): number for number, path in enumerate(sorted(frame.inputFiles()))}
    record = F.monotonically_increasing_id()
    if kind == "parquet":
        block, record = F.lit(0).cast("bigint"), F.col("_metadata.row_index")
    else:
        block = F.col("_metadata.file_block_start")
    return F.struct(_file(places).alias("file"), block.alias("block"), record.alias("record"))


def _file(places: Mapping[str, int]) -> Column:
    from pyspark.sql import functions as F

    if len(places) <= 1:
        return F.lit(0)
    path = F.regexp_replace("_metadata.file_path", _SCHEME.pattern, "file:/")
    return F.array_position(F.lit(list(places)), path).cast("int") - 1
