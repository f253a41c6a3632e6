"""Removes who must not get mail: hard bounces, complaints, unsubscribes, with the source of each.

An entry is for an address, or stands for many (`mail.addresses.entries`): domains and hashes are joined as
addresses are, each only if the list has any; patterns are compared in Python, with the queue's own index.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.mail.addresses.entries import BELOW, DOMAIN, HASH, PATTERN
from zonemta_py.mail.addresses.patterns import PATTERNS_MAX
from zonemta_py.mail.list_id import list_name, list_scope
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.nodes.nodes import Nodes
from zonemta_py.pipeline.prepare.normalise import NEEDLESS_QUOTES, normalise
from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source import sound
from zonemta_py.pipeline.prepare.source.dialect import DOMAINS, dialect_of, listed_column, opened
from zonemta_py.pipeline.spark.little_data import small

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SUPPRESSED = "suppressed"
COLUMNS = "address string, kind string, since_ms bigint, by string"
_EVERYBODYS = frozenset(("all", "campaigns"))
"""Scopes of every campaign."""
_NO_ADDRESS = r"^\s*(@|[sS][hH][aA]256:|pattern:|[0-9a-fA-F]{64}\s*$)|[*]"
"""What a list of its own has beside addresses."""
_SENT_TO_ALL_MAX = 200_000
"""Domains of a list that every worker gets, so that nobody is moved."""


def without_suppressed(people: DataFrame, suppressed: DataFrame | None) -> DataFrame:
    """suppressed: COLUMNS. Adds `kind`, `since_ms`, `by` (null: not suppressed); the reason is "suppressed"."""
    from pyspark.sql import functions as F

    if suppressed is None:
        nothing = [F.lit(None).cast(kind).alias(name) for name, kind in _columns() if name != "address"]
        return people.select("*", *nothing)
    known = suppressed.groupBy(folded("address").alias("key")).agg(
        F.min_by("kind", "since_ms").alias("kind"), F.min("since_ms").alias("since_ms"),
        F.min_by("by", "since_ms").alias("by"),
    )  # fmt: skip
    found = people.join(known.withColumn("found", F.lit(True)), "key", "left")
    for covering in _coverings(suppressed):
        found = _covered(found, known, covering)
    reason = F.when(F.col("reason").isNull() & F.col("found"), SUPPRESSED).otherwise(F.col("reason"))
    return found.withColumn("reason", reason).drop("found")


def folded(column: str) -> Column:
    """An address as the keys of people are."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.lower(F.trim(column)), NEEDLESS_QUOTES, "$1@")


class _Covering(NamedTuple):
    """Entries that begin so. key: of a recipient, as such an entry is spelled. few: they are sent to every worker."""

    begins: str
    key: Column
    few: bool = False


def _coverings(suppressed: DataFrame) -> list[_Covering]:
    """What is to be looked at beside the address. Raises PlanRefused."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    from zonemta_py.pipeline.prepare.covering import fitting

    address, domain = F.col("address"), F.substring_index("key", "@", -1)
    labels = F.size(F.split(F.substring(address, len(BELOW) + 1, 1_000), "[.]"))
    is_below, is_pattern = address.startswith(BELOW), address.startswith(PATTERN)
    counted = suppressed.where(address.rlike(f"^({DOMAIN}|{HASH}|{PATTERN})")).agg(
        F.count_if(address.startswith(DOMAIN)).alias("domains"), F.count_if(address.startswith(HASH)).alias("hashes"),
        F.count_distinct(F.when(is_pattern, address)).alias("patterns"),
        F.collect_set(F.when(is_below, labels)).alias("labels"),
    ).first()  # fmt: skip
    assert counted is not None
    found = list[_Covering]()
    if counted.domains:
        few = counted.domains <= _SENT_TO_ALL_MAX
        found.append(_Covering(DOMAIN, F.concat(F.lit(DOMAIN), domain), few))
        for many in sorted(counted.labels, reverse=True):
            parent = F.concat(F.lit(BELOW), F.substring_index(domain, ".", -many))
            found.append(_Covering(BELOW, F.when(F.size(F.split(domain, "[.]")) > many, parent), few))
    if counted.patterns > PATTERNS_MAX:
        raise PlanRefused(
            f"the suppression list has {counted.patterns:,} patterns; at most {PATTERNS_MAX:,} are compared: write "
            "domains (@example.com) or addresses instead"
        )
    if counted.patterns:
        rows = suppressed.where(is_pattern).select("address").distinct().collect()
        fits = arrow_udf(fitting(row.address for row in rows), "string")  # type: ignore[call-overload]
        found.append(_Covering(PATTERN, fits(F.col("key")), True))
    if counted.hashes:
        found.append(_Covering(HASH, F.concat(F.lit(HASH), F.sha2("key", 256))))
    return found


def _covered(found: DataFrame, known: DataFrame, covering: _Covering) -> DataFrame:
    """Whom an earlier step has found keeps what that says."""
    from pyspark.sql import functions as F

    those = known.where(F.col("key").startswith(covering.begins)).select(
        F.col("key").alias("cover"), F.col("kind").alias("cover_kind"), F.col("since_ms").alias("cover_since"),
        F.col("by").alias("cover_by"), F.lit(True).alias("covered"),
    )  # fmt: skip
    found = found.withColumn("cover", covering.key).join(F.broadcast(those) if covering.few else those, "cover", "left")
    for name, other in (("kind", "cover_kind"), ("since_ms", "cover_since"), ("by", "cover_by")):
        found = found.withColumn(name, F.when(F.col("found"), F.col(name)).otherwise(F.col(other)))
    found = found.withColumn("found", F.coalesce("found", "covered"))
    return found.drop("cover", "cover_kind", "cover_since", "cover_by", "covered")


def read(spark: SparkSession, file: str) -> DataFrame:
    """A list of its own: CSV with a header, or Parquet; a column address (or sha256, or domain), and kind, since_ms and
    by if there are such. Raises PlanRefused."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    from zonemta_py.pipeline.prepare.covering import spelled

    try:
        frame = spark.read.parquet(file) if file.endswith(".parquet") else _csv(spark, file)
    except AnalysisException as error:
        raise PlanRefused(f"{file}: {str(error).splitlines()[0]}; name a CSV or Parquet file") from None
    names = {name.lower(): name for name in reversed(frame.columns)}
    column = listed_column([*names])
    address = "address" if "address" in frame.columns else names.get(column, "")
    if not address:
        raise PlanRefused(f"{file}: there is no column address; name the column of addresses so")
    raw = F.col(f"`{address}`")
    if column in DOMAINS:
        raw = F.when(raw.startswith(DOMAIN), raw).otherwise(F.concat(F.lit(DOMAIN), raw))
    frame = normalise(frame.withColumn("raw", raw))
    other = F.when(F.col("raw").rlike(_NO_ADDRESS), F.col("raw"))
    frame = frame.withColumn("entry", arrow_udf(spelled, "string")(other))  # type: ignore[call-overload]
    whom = F.coalesce(
        "entry", "address", "raw", F.lit("")
    )  # where it may be null, Spark asks that first, and judges twice
    known = {"address": whom, "kind": F.lit("listed"), "since_ms": F.lit(None), "by": F.lit(Path(file).name)}
    chosen = {name: F.col(name) if name in frame.columns and name != "address" else known[name] for name in known}
    return frame.select(*(chosen[name].cast(kind).alias(name) for name, kind in _columns()))


def _csv(spark: SparkSession, file: str) -> DataFrame:
    """As any spreadsheet writes it: an address missed because of a semicolon would get mail."""
    if not Path(file).is_file():
        return spark.read.option("header", True).csv(file)
    form = dialect_of(Path(file))
    if form.plain():
        reader = spark.read.option("header", True).option("escape", '"').option("sep", form.separator)
        names = sound.plain_header([Path(file)], multiline=False)  # asking Spark takes it a second or two
        return reader.schema(", ".join(f"`{name}` string" for name in names)).csv(file) if names else reader.csv(file)
    try:
        with opened(Path(file), form) as text:
            header, *rows = filter(None, csv.reader(text, delimiter=form.separator))
    except UnicodeError:
        raise PlanRefused(f"{file}: it is not {str(form).partition(',')[0]}; save it as CSV in UTF-8") from None
    except (ValueError, csv.Error) as error:
        raise PlanRefused(f"{file}: it cannot be read as {form} ({error}); save it as CSV in UTF-8") from None
    width = len(header)
    values = [(row + [""] * width)[:width] for row in rows]
    return small(spark, values, ", ".join(f"`{name.replace('`', '``')}` string" for name in header))


def from_nodes(spark: SparkSession, target: NodeAccess, folder: Path, scopes: Collection[str]) -> DataFrame | None:
    """What `of_nodes` gives, by way of a file in `folder`. Raises NodeRefused, NodeGone."""
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([(name, pa.int64() if kind == "bigint" else pa.string()) for name, kind in _columns()])
    file = folder / "suppressed.parquet"
    n = 0
    with pa.parquet.ParquetWriter(file, schema) as writer:
        for found in of_nodes(target, scopes):
            rows = [{name: row.get(name) for name in schema.names} for row in found]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            n += len(rows)
    return spark.read.schema(COLUMNS).parquet(str(file)) if n else None


def scopes_of(tenant: str, list_ids: Collection[str]) -> frozenset[str]:
    """Which entries keep a campaign's mail from somebody at all nodes: those for all mail or all campaigns, for its
    tenant's, and for its list. list_ids: of its templates, "" none."""
    own = {f"tenant:{tenant}", f"campaigns:{tenant}"} if tenant else set[str]()
    return _EVERYBODYS | own | {list_scope(name, tenant) for name in map(list_name, list_ids) if name}


def of_nodes(target: NodeAccess, scopes: Collection[str]) -> Iterator[list[dict[str, Any]]]:
    """What any of the nodes has on its list in these scopes: who complained at one gets nothing from the others either.
    For the other scopes they look themselves, when the mail comes. Raises NodeRefused, NodeGone."""
    with Nodes(target) as nodes:
        for node in nodes.nodes:
            for page in node.suppressions():
                yield [row for row in page if row.get("scope", "all") in scopes]


def _columns() -> list[tuple[str, str]]:
    pairs = (column.split() for column in COLUMNS.split(", "))
    return [(name, kind) for name, kind in pairs]
