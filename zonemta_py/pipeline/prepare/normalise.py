"""One spelling for each address: trimmed, domain in lower case and in A-labels (IDNA 2008), local part as it came.

Ordinary addresses are matched in the JVM; the few that are not (international, quoted, wrong) go through Python, where
the receivers' own parser judges them. So what is accepted here is what the MTA accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.mail.addresses.written import SPACES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDINARY_CHARACTERS_MAX = 252
_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_LDH = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
ORDINARY = rf"^\.*[{_ATEXT}][.{_ATEXT}]*@{_LDH}(?:\.{_LDH})*\z"
NEEDLESS_QUOTES = rf'^"([.{_ATEXT}]*[{_ATEXT}][.{_ATEXT}]*)"@'
"""Of a local part that is the same without them (`mail.addresses.person`)."""


def normalise(rows: DataFrame) -> DataFrame:
    """Adds `address` (null: not one), `domain` and `key` (one per mailbox: all of the address in lower case)."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    from zonemta_py.pipeline.prepare.spelling import judged

    as_it_came = F.col("raw").rlike(ORDINARY)  # most: trimming costs more than looking
    text = F.when(as_it_came, F.col("raw")).otherwise(F.btrim("raw", F.lit(SPACES)))
    rows = rows.withColumn("as_it_came", as_it_came).withColumn("text", text)
    ordinary = (F.octet_length("text") <= ORDINARY_CHARACTERS_MAX) & (
        F.col("as_it_came") | F.col("text").rlike(ORDINARY)
    )
    rows = rows.withColumn("other", F.when(~ordinary & (F.col("text") != ""), F.col("text")))
    rows = rows.withColumn("lower", F.lower("text"))
    capitals = F.concat_ws("@", F.substring_index("text", "@", 1), F.substring_index("lower", "@", -1))
    own = F.when(F.col("lower") == F.col("text"), F.col("text")).otherwise(capitals)
    rows = rows.withColumn("own", F.when(F.col("other").isNull() & (F.col("text") != ""), own)).drop("text", "lower")
    rows = rows.withColumn("judged", arrow_udf(judged, "string")(F.col("other")))  # type: ignore[call-overload]
    rows = rows.withColumn("address", F.coalesce("own", "judged")).withColumn("lower", F.lower("address"))
    unquoted = F.regexp_replace("lower", NEEDLESS_QUOTES, "$1@")
    return rows.select(
        *(name for name in rows.columns if name not in ("as_it_came", "other", "own", "judged", "lower")),
        F.substring_index("address", "@", -1).alias("domain"),
        F.when(F.col("lower").startswith('"'), unquoted).otherwise(F.col("lower")).alias("key"),
    )
