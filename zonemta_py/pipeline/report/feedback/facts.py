"""What the lake says came back about a scope's mail: the results of `queries`, combined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.report.feedback import queries
from zonemta_py.pipeline.report.feedback.rows import (
    FIGURES,
    Arrival,
    Cohort,
    Delivered,
    KindCount,
    LaterBounce,
    RatedGroup,
    ReturnCounts,
    Returned,
)
from zonemta_py.pipeline.report.scope import DAY_S, HOUR_S, Kind, ReportScope, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_STEPS_S = ((2 * DAY_S, HOUR_S), (15 * DAY_S, 6 * HOUR_S))
"""Bars of what came back are this wide where it can be of so long a time; a day where it is longer."""


def gather(
    spark: SparkSession, lake: Path, scope: ReportScope, outcomes: DataFrame, domains: Mapping[str, str]
) -> Returned:
    """All that a page shows of it; nothing is asked where nothing has ever come back. outcomes: of the scope's days.
    domains: recipient domain → provider."""
    days = table.manifest(lake, "feedback").days
    if not days:
        return Returned()
    newest = _end([*days, *table.manifest(lake, "deliverability").days])
    step_s = next((step for length, step in _STEPS_S if newest - scope.start <= length), DAY_S)
    feedback = _feedback(spark, lake, scope, days)
    if scope.kind is not Kind.PROVIDER:  # a provider's page is about attempts of its own
        feedback, outcomes = (queries.at_home(rows, domains) for rows in (feedback, outcomes))
    came = Told(queries.came(feedback, scope, newest, step_s).collect())
    tracked = [[name for name, n in came.groups(2) if getattr(n, figure)] for figure in ("opens", "clicks")]
    rows = queries.delivered(outcomes, scope, *tracked).collect() if came.groups(0) else []
    got = [{row[names[0]] if names else "": _delivered(row) for row in rows if row.set == at}
           for at, names in enumerate(queries.DELIVERED)]  # fmt: skip
    return Returned(
        known=True,
        now=dict(came.groups(0)).get("", ReturnCounts()),
        before=came.before,
        delivered=got[0].get("", Delivered()),
        kinds=came.kinds(),
        at_once=came.at_once,
        providers=[RatedGroup(name, *both) for name, both in _joined(got[1], dict(came.groups(1))).items()],
        campaigns=[RatedGroup(name, *both) for name, both in _joined(got[2], dict(came.groups(2))).items()],
        cohorts=[Cohort(at, *both) for at, both in _joined(got[3], dict(came.groups(3))).items()],
        arrivals=[Arrival(at, n) for at, n in came.groups(4)],
        bounces=came.bounces(),
        step_s=step_s,
    )


class Told:
    """Rows of `queries.came`, asked by set."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)
        self.before = self._sum(row for row in self._rows if row.set == 0 and row.genuine and not row.now)
        self._now = [row for row in self._rows if row.now]
        self.at_once = sum(row.n for row in self._now if row.set == 0 and row.kind == queries.AT_ONCE and row.genuine)

    def groups(self, number: int) -> list[tuple[Any, ReturnCounts]]:
        """By the column of the set, what is genuine; sorted."""
        names = queries.CAME[number]
        found: dict[Any, list[Row]] = {}
        for row in self._now:
            key = row[names[0]] if names else ""
            if row.set == number and row.genuine and row.kind in FIGURES and key is not None:
                found.setdefault(key, []).append(row)
        return [(key, self._sum(found[key])) for key in sorted(found)]

    def kinds(self) -> list[KindCount]:
        counts: dict[str, list[int]] = {}
        for row in self._now:
            if row.set == 0 and row.kind != queries.AT_ONCE:
                counts.setdefault(row.kind, [0, 0])[0 if row.genuine else 1] += row.n
        order = [*FIGURES, *sorted(counts)]
        return [KindCount(name, *counts[name]) for name in sorted(counts, key=order.index)]

    def bounces(self) -> list[LaterBounce]:
        rows = [row for row in self._now if row.set == 5 and row["class"] is not None and row.genuine]
        return sorted(LaterBounce(row["class"], row.provider, row.campaign, row.n) for row in rows)

    def _sum(self, rows: Iterable[Row]) -> ReturnCounts:
        came = ReturnCounts()
        for row in rows:
            came = came.plus(ReturnCounts(**{FIGURES[row.kind]: row.n})) if row.kind in FIGURES else came
        return came


def _feedback(spark: SparkSession, lake: Path, scope: ReportScope, days: Iterable[str]) -> DataFrame:
    """The table's rows that can belong to the scope: from its first day on, however late they came."""
    first = datetime.fromtimestamp(scope.before, UTC).date().isoformat()
    rows = table.read(spark, lake, "feedback", None if scope.rival else [day for day in days if day >= first])
    return rows if "received_at" in rows.columns else rows.withColumn("received_at", F.lit(None).cast("timestamp"))


def _joined(
    delivered: dict[Any, Delivered], came: dict[Any, ReturnCounts]
) -> dict[Any, tuple[Delivered, ReturnCounts]]:
    names = sorted(delivered.keys() | came.keys())
    return {name: (delivered.get(name, Delivered()), came.get(name, ReturnCounts())) for name in names}


def _delivered(row: Row) -> Delivered:
    return Delivered(row.n, row.opens, row.clicks)


def _end(days: Iterable[str]) -> int:
    """Of the newest, UNIX seconds."""
    return seconds(date.fromisoformat(max(days))) + DAY_S
