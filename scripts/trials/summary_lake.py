"""Whether summaries answer as the lake does: the same questions to both, of the same archives."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.journal.records.orders import WAITED
from zonemta_py.summary import questions
from zonemta_py.summary.questions import SummarySpan
from zonemta_py.summary.shelf import SummaryShelf
from zonemta_py.summary.views import EXAMPLE_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS = SummarySpan(0, 1 << 31)
VERDICTS = ("delivered", "deferred", "bounced", "held")
SHAPE = r"\S*[0-9@]\S*"


def compare(folder: Path, spark: SparkSession | None = None) -> list[str]:
    """Of the MTA's folder: a sentence for each answer that differs. Makes a lake, and removes it."""
    from zonemta_py.pipeline.lake import bronze, update
    from zonemta_py.pipeline.spark.session import session

    spark = spark or session()
    with tempfile.TemporaryDirectory(prefix="lake-") as place:
        bronze.ingest(spark, folder / "archive", Path(place))
        update.update(spark, Path(place), ["deliveries"])
        lakes = of_lake(spark, Path(place))
    ours = of_summaries(folder)
    return [one for name in lakes for one in differences(name, ours[name], lakes[name])]


def differences(name: str, ours: Mapping[Any, Any], lakes: Mapping[Any, Any]) -> list[str]:
    wrong = [key for key in ours.keys() | lakes.keys() if ours.get(key) != lakes.get(key)]
    if not wrong:
        return []
    key = min(wrong, key=str)
    return [f"{name}: {len(wrong)} of {len(lakes)} rows differ; {key}: {ours.get(key)}, in the lake {lakes.get(key)}"]


def of_summaries(folder: Path) -> dict[str, dict[Any, Any]]:
    """Answers by question: numbers by group."""
    shelf = SummaryShelf([folder / "archive"])
    places = shelf.within(0, 1 << 62)
    shelf.make(shelf.lacking(places))
    sources = [one for place in places if (one := shelf.holds(place)) is not None]

    def numbers(*by: str) -> dict[Any, Any]:
        return {key: tuple(row[one] for one in VERDICTS) for key, row in questions.mail(sources, by, ALWAYS).items()}

    owners = questions.mail(sources, ("tenant", "campaign", "user", "sender"), ALWAYS)
    return {
        "attempts": numbers("hour", "zone", "source", "provider", "class"),
        "tenants": numbers("tenant", "campaign"),
        "domains": numbers("provider", "domain"),
        "senders": {key: tuple(row[one] for one in VERDICTS) for key, row in owners.items()},
        "accepted": {
            key: (row["messages"], row["accepted"], row["bytes"]) for key, row in owners.items() if row["messages"]
        },
        "replies": {
            (row.provider, row.verdict, row.kind, row.example): row.n
            for row in questions.replies(sources, ("deferred", "bounced"), ALWAYS)
        },
        "limits": {key: tuple(row) for key, row in questions.sums(sources, "limits", ["limit"], ALWAYS).items()},
    }


def of_lake(spark: SparkSession, lake: Path) -> dict[str, dict[Any, Any]]:
    """The same of the lake: from its table of attempts, and from the journal's rows."""
    from zonemta_py.pipeline.lake import table

    table.read(spark, lake, "deliveries").createOrReplaceTempView("attempts_")
    spark.read.parquet(str(lake / "bronze")).createOrReplaceTempView("rows_")
    spark.sql(
        "select id, first(coalesce(user, ''), false) as user from (select * from rows_ where type = 'ENVELOPE' "
        "order by seq) group by id"
    ).createOrReplaceTempView("users_")
    ends = ", ".join(f"count_if(verdict = '{one}')" for one in VERDICTS)

    def grouped(keys: str, source: str = "attempts_") -> dict[Any, Any]:
        rows = spark.sql(f"select {keys}, {ends} from {source} group by all").collect()
        return {tuple(row[: -len(VERDICTS)]): tuple(row[-len(VERDICTS) :]) for row in rows}

    def text(name: str) -> str:
        return f"coalesce({name}, '') as {name}"

    domain = (
        "case when instr(sender, '@') > 0 then lower(substring_index(sender, '@', -1)) "
        "else lower(coalesce(sender, '')) end"
    )
    hour = "cast(floor(unix_seconds(at) / 3600) as int)"
    owner = f"{text('tenant')}, {text('campaign')}, coalesce(user, '') as user, {domain} as sender_domain"
    firsts = ", ".join(f"min_by({name}, seq) {name}" for name in ("tenant", "campaign", "user", "sender", "size"))
    accepted = spark.sql(
        f"select {owner}, count(*), sum(n), sum(size) from (select id, {firsts}, count(distinct part) n from rows_ "
        "where type = 'ENVELOPE' group by id) group by all"
    ).collect()
    said = spark.sql(
        f"select provider, verdict, class, min(said), sum(n) from (select {text('provider')}, verdict, "
        f"{text('class')}, concat_ws(' ', code, nullif(enhanced, ''), reply) as said, count(*) n from attempts_ "
        "where verdict in ('deferred', 'bounced') group by all) "
        f"group by provider, verdict, class, regexp_replace(said, r'{SHAPE}', '#')"
    ).collect()
    limits = spark.sql(
        f"select name, sum(get_json_object(value, '$.ms')), sum(get_json_object(value, '$.times')) from rows_ "
        f"where type = 'STANDING' and what = '{WAITED}' group by name"
    ).collect()
    joined = "attempts_ left join users_ using (id)"
    return {
        "attempts": grouped(f"{hour}, zone, {text('source')}, {text('provider')}, {text('class')}"),
        "tenants": grouped(f"{text('tenant')}, {text('campaign')}"),
        "domains": grouped(f"{text('provider')}, domain"),
        "senders": grouped(owner, joined),
        "accepted": {tuple(row[:4]): (row[4], row[5], row[6] or 0) for row in accepted},
        "replies": _examples(said),
        "limits": {(row[0],): (int(row[1]), int(row[2])) for row in limits},
    }


def _examples(rows: list[Any]) -> dict[Any, Any]:
    """The example is of all mail with that shape, wherever it went, as summaries keep one of each."""
    shapes: dict[str, str] = {}
    for *_, said, _n in rows:
        shape = _shape(said)
        shapes[shape] = min(shapes.get(shape, said), said)
    return {(*row[:3], shapes[_shape(row[3])][:EXAMPLE_MAX]): row[4] for row in rows}


def _shape(said: str) -> str:
    return re.sub(SHAPE, "#", said, flags=re.ASCII)
