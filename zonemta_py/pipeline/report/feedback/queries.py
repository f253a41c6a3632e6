"""Queries of what came back: DataFrame → DataFrame of few rows, as the other `queries` of a report.

`came` reads the table `feedback` alone, whose rows know their delivery; `delivered` the outcomes, of which rates are
taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from zonemta_py.pipeline.findings.engagement import PROXY_S
from zonemta_py.pipeline.report import queries
from zonemta_py.pipeline.report.feedback.rows import FIGURES
from zonemta_py.pipeline.report.queries import NO_CLASS
from zonemta_py.pipeline.report.rows import NO_PROVIDER
from zonemta_py.pipeline.report.scope import Kind, ReportScope

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_DELIVERY = "not known"
"""Provider of what came back of mail whose attempts the lake has not."""
NO_CAMPAIGN = "no campaign"
AT_ONCE = "open at once"
"""Kind of an open within PROXY_S of the delivery."""
CAME: tuple[tuple[str, ...], ...] = (
    (), ("provider",), ("campaign",), ("cohort",), ("arrival",), ("class", "provider", "campaign"),
)  # fmt: skip
"""What `came` groups by; its column `set` is the place in this tuple."""
DELIVERED: tuple[tuple[str, ...], ...] = ((), ("provider",), ("campaign",), ("cohort",))
"""The same of `delivered`."""
_ALWAYS = ("now", "kind", "genuine")


def came(feedback: DataFrame, scope: ReportScope, newest: int, step_s: int) -> DataFrame:
    """set, now, kind, genuine, provider, campaign, cohort, arrival, class, n: one row per group of each of CAME.

    A recipient of a message counts once for each kind: at the first time that is genuine, else at the first. cohort:
    the step in which the message was accepted, arrival: that in which it came back (of `step_s`). newest: the end of
    what the lake knows: of what the scope is compared with, only that counts which had come at the age that the scope
    has then. Rows of these, and those that nothing proves, have null in place of all but now, kind and genuine.
    """
    single = _single(_placed(feedback, scope, newest)).filter(F.col("kind").isin(*FIGURES, AT_ONCE, *_OTHER))
    counted = F.col("now") & F.col("genuine") & F.col("kind").isin(*FIGURES)
    split = {
        "provider": F.col("provider"),
        "campaign": queries.named("campaign", NO_CAMPAIGN),
        "cohort": _step("place", scope.cohort_s),
        "arrival": _step("at", step_s),
        "class": F.when(F.col("kind") == "bounce", queries.named("class", NO_CLASS)),
    }
    columns = [F.when(counted, value).alias(name) for name, value in split.items()]
    fine = single.select(*_ALWAYS, *columns).groupBy(*_ALWAYS, *split).agg(F.count("*").alias("n"))
    return queries.in_sets(fine, _ALWAYS, CAME, ("n",))


_OTHER = ("delay", "challenge", "other")
"""Kinds of which pages tell only how many came."""


def delivered(outcomes: DataFrame, scope: ReportScope, opens: Collection[str], clicks: Collection[str]) -> DataFrame:
    """set, provider, campaign, cohort, n, opens, clicks: recipients delivered, of those accepted in the period, and
    those of them whose campaigns are among `opens`, and among `clicks`; one row per group of each of DELIVERED."""
    at, campaign = queries.accepted_at(), queries.named("campaign", NO_CAMPAIGN)
    rows = outcomes.filter((F.col("state") == "delivered") & queries.is_now(scope, at))
    split = {
        "provider": queries.named("provider", NO_PROVIDER),
        "campaign": campaign,
        "cohort": F.floor(at / scope.cohort_s) * scope.cohort_s,
    }
    sums = {"opens": campaign.isin(*opens), "clicks": campaign.isin(*clicks)}
    groups = rows.groupBy(*(value.alias(name) for name, value in split.items()))
    fine = groups.agg(F.count("*").alias("n"), *(F.count_if(value).alias(name) for name, value in sums.items()))
    return queries.in_sets(fine, (), DELIVERED, ("n", *sums))


def at_home(rows: DataFrame, domains: Mapping[str, str]) -> DataFrame:
    """With the provider of the recipient's domain where the attempt had none, as behind a smart host. domains: domain,
    and all below it, → provider; the longest counts."""
    sorts: dict[tuple[int, str], list[str]] = {}
    for name, provider in domains.items():
        sorts.setdefault((-name.count("."), provider), []).append(name)
    own = F.lit(None).cast("string")
    for (dots, provider), names in sorted(sorts.items(), reverse=True):
        suffix = F.substring_index("domain", ".", dots - 1)
        own = F.when(suffix.isin(names), F.lit(provider)).otherwise(own)
    return rows.withColumn("provider", F.coalesce(F.nullif("provider", F.lit("")), own))


def _placed(feedback: DataFrame, scope: ReportScope, newest: int) -> DataFrame:
    """Rows of the scope (`now`) and of what it is compared with, with `place`: when the message was accepted, else
    when the row came. A campaign's are its own, however late and of whichever mail."""
    known = F.col("received_at").isNotNull() | F.col("site").isNotNull()
    at = F.unix_seconds("at")
    came = F.least(at, F.lit(scope.end - 1)) if scope.kind is Kind.CAMPAIGN else at
    place = F.coalesce(F.unix_seconds("received_at"), F.unix_seconds("delivered_at"), came)
    nobody = {"provider": NO_PROVIDER, "source": queries.NO_SOURCE}
    names = {name: F.when(known, queries.named(name, none)).otherwise(NO_DELIVERY) for name, none in nobody.items()}
    soon = F.col("at").cast("double") - F.col("delivered_at").cast("double") <= PROXY_S
    said = F.when((F.col("kind") == "open") & soon, AT_ONCE).otherwise(F.col("kind"))
    columns = {
        "at": at, "place": place, "kind": said, "genuine": F.coalesce("genuine", F.lit("")) != "",
        "apart": F.when(~known, F.col("seq")), **names,
    }  # fmt: skip
    rows = feedback.withColumns(columns).withColumn("now", queries.is_now(scope, F.col("place")))
    return rows.filter(F.col("now") | (~F.col("now") & (F.col("at") - F.col("place") < newest - scope.start)))


def _single(rows: DataFrame) -> DataFrame:
    """One row for each recipient of a message and kind; each for itself where the message is not known."""
    first = F.struct(~F.col("genuine"), F.col("at"), F.col("seq"))
    told = F.struct("genuine", "at", "place", "provider", "campaign", "class")
    groups = rows.groupBy("now", "id", "recipient", "apart", "kind").agg(F.min_by(told, first).alias("told"))
    return groups.select("now", "kind", "told.*")


def _step(name: str, width_s: int) -> Column:
    return F.floor(F.col(name) / width_s) * width_s
