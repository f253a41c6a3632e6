"""What the lake says about a scope, in few rows: the results of `queries`, combined.

Raises table.Missing where a table has not been made yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.report import queries, warmups
from zonemta_py.pipeline.report.feedback import facts as returned
from zonemta_py.pipeline.report.queries import BINS_PER_DECADE, SETS
from zonemta_py.pipeline.report.rows import (
    AttemptCounts,
    Bin,
    Cause,
    Cell,
    Domain,
    Facts,
    Left,
    Moment,
    Pair,
    Said,
    Totals,
    Tried,
)  # fmt: skip
from zonemta_py.pipeline.report.scope import DAY_S, HOUR_S, Kind, ReportScope
from zonemta_py.pipeline.spark.little_data import tuned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

EXAMPLE_MAX = 300
"""Characters of a reply that are shown."""
_SETTINGS = {"spark.sql.adaptive.enabled": "false"}
"""Little is shuffled, whatever the size of the lake: half as many Spark jobs a page."""


class Span(NamedTuple):
    """When a campaign was. first: its first recipient was accepted; last: something happened; UNIX seconds."""

    name: str
    first: int
    last: int


def gather(spark: SparkSession, lake: Path, scope: ReportScope, providers: Mapping[str, str] | None = None) -> Facts:
    """All that a page shows. The queries run concurrently: each is small, and most of its time is planning. providers:
    of recipient domains, for what went to a smart host."""
    read = _Reader(spark, lake, scope)
    with tuned(spark, _SETTINGS), ThreadPoolExecutor(max_workers=4) as pool:
        asked = pool.submit(lambda: Counts(queries.attempts(read("deliverability", compared=True), scope).collect()))
        people = pool.submit(lambda: Accepted(queries.recipients(read("outcomes", compared=True), scope).collect()))
        replies = pool.submit(lambda: queries.replies(read("deliveries"), scope).collect())
        domains = pool.submit(lambda: queries.domains(read("outcomes"), scope).collect())
        warm = pool.submit(lambda: warmups.gather(spark, lake, scope))
        back = pool.submit(lambda: returned.gather(spark, lake, scope, read("outcomes"), providers or {}))
        changes = queries.burn_down(read("outcomes"), scope).collect() if scope.kind is Kind.CAMPAIGN else []
    counts, accepted = asked.result(), people.result()
    left = burnt(sorted((row.at, row.first, row.came, row.got, row.went) for row in changes))
    return Facts(
        now=accepted.totals(True, counts.attempts(True)),
        before=accepted.totals(False, counts.attempts(False)),
        moments=every_step(counts.moments(), scope),
        cells=counts.cells(),
        pairs=counts.pairs(),
        domains=[Domain(*row) for row in domains.result()],
        causes=counts.causes(),
        said=[Said(row["class"], row.kind, row.shape, row.n, row.example[:EXAMPLE_MAX]) for row in replies.result()],
        latency=accepted.bins(True),
        tried=accepted.tried(),
        warm=warm.result(),
        left=left,
        returned=back.result(),
        ends=end_of(left),
    )


def spans(spark: SparkSession, lake: Path) -> list[Span]:
    """All campaigns of the lake, the oldest first."""
    rows = queries.campaigns(table.read(spark, lake, "outcomes")).collect()
    return sorted((Span(row.campaign, row.first, row.last) for row in rows), key=lambda span: (span.first, span.name))


def names(spark: SparkSession, lake: Path, kind: Kind) -> list[str]:
    """All sources, providers, zones or campaigns that the lake has attempts of."""
    column = queries.named(kind.value, queries.nobody(kind)).alias("name")
    rows = table.read(spark, lake, "deliverability").filter("grain = 'day'").select(column).distinct().collect()
    return sorted(row.name for row in rows if row.name)


def last_day(lake: Path) -> int | None:
    """Midnight of the newest day with attempts, UNIX seconds; None: there is none. Needs no Spark."""
    days = table.manifest(lake, "deliverability").days
    return int(datetime.fromisoformat(max(days)).replace(tzinfo=UTC).timestamp()) if days else None


def of_campaign(
    found: Sequence[Span], name: str, start: int | None = None, end: int | None = None
) -> ReportScope | None:
    """The whole of it, or between two moments; the one that began before it is its rival. None: no such campaign."""
    order = [span.name for span in found]
    if name not in order:
        return None
    at = order.index(name)
    first, last = found[at].first // HOUR_S * HOUR_S, (found[at].last // HOUR_S + 1) * HOUR_S
    begins = first if start is None else start
    ends = max(last if end is None else end, begins + HOUR_S)
    return ReportScope(Kind.CAMPAIGN, name, begins, ends, order[at - 1] if at else "", found[at].last - found[at].first)


class _Reader:
    """Reads of a table the days that can matter."""

    def __init__(self, spark: SparkSession, lake: Path, scope: ReportScope) -> None:
        self._spark, self._lake, self._scope = spark, lake, scope

    def __call__(self, name: str, compared: bool = False) -> DataFrame:
        """compared: with the days of what the scope is compared with."""
        if self._scope.rival and compared:
            return table.read(self._spark, self._lake, name)
        first = self._scope.before if compared else self._scope.start
        days = {_date(at) for at in range(first // DAY_S * DAY_S, self._scope.end, DAY_S)}
        if name == "outcomes":
            days.add("1970-01-01")  # where messages are whose id says no day
        return table.read(self._spark, self._lake, name, days)


class Counts:
    """Rows of `queries.attempts`, asked by set."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._sets: list[dict[tuple[Any, ...], tuple[AttemptCounts, int]]] = [{} for _ in SETS]
        self._before = AttemptCounts()
        for row in rows:
            one = AttemptCounts()._replace(**{row.kind: row.n})
            if not row.now:
                self._before = self._before.plus(one) if row.set == 0 else self._before
                continue
            key = (*(row[name] for name in SETS[row.set]), *([row.kind] if row.set == 4 else []))
            attempts, secure = self._sets[row.set].get(key, (AttemptCounts(), 0))
            self._sets[row.set][key] = attempts.plus(one), secure + row.secure

    def rows(self, number: int) -> list[tuple[tuple[Any, ...], tuple[AttemptCounts, int]]]:
        found = sorted(self._sets[number].items())
        return [row for row in found if number != 4 or row[0][1] != "delivered"]

    def attempts(self, now: bool) -> AttemptCounts:
        return self._sets[0].get((), (AttemptCounts(), 0))[0] if now else self._before

    def moments(self) -> list[Moment]:
        return [Moment(key[0], attempts) for key, (attempts, _) in self.rows(1)]

    def cells(self) -> list[Cell]:
        return [Cell(key[0], key[1], attempts) for key, (attempts, _) in self.rows(2)]

    def pairs(self) -> list[Pair]:
        return [Pair(key[0], key[1], attempts, secure) for key, (attempts, secure) in self.rows(3)]

    def causes(self) -> list[Cause]:
        return [Cause(key[0], key[1], attempts.total) for key, (attempts, _) in self.rows(4)]


class Accepted:
    """Rows of `queries.recipients`."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)

    def totals(self, now: bool, attempts: AttemptCounts) -> Totals:
        states: dict[str, int] = {}
        for row in self._rows:
            if row.now == now:
                states[row.state] = states.get(row.state, 0) + row.n
        bins, suppressed = self.bins(now), states.pop("suppressed", 0)
        median, p95, p99 = (quantile(bins, at) for at in (0.5, 0.95, 0.99))
        return Totals(
            sum(states.values()), states.get("delivered", 0), states.get("bounced", 0),
            states.get("waiting", 0) + states.get("held", 0), attempts, median, p95, p99,
            removed=states.get("removed", 0), held=states.get("held", 0), suppressed=suppressed,
            deleted=states.get("deleted", 0),
        )  # fmt: skip

    def bins(self, now: bool) -> list[Bin]:
        counts: dict[int, int] = {}
        for row in self._rows:
            if row.now == now and row.bin is not None:
                counts[row.bin] = counts.get(row.bin, 0) + row.n
        return [Bin(_edge(at), _edge(at + 1), counts[at]) for at in sorted(counts)]

    def tried(self) -> list[Tried]:
        counts: dict[tuple[int, str], int] = {}
        for row in self._rows:
            if row.now and row.state != "suppressed":
                counts[row.attempts, row.state] = counts.get((row.attempts, row.state), 0) + row.n
        return [Tried(*key, count) for key, count in sorted(counts.items())]


def quantile(bins: Sequence[Bin], share: float) -> float | None:
    """Of sorted bins; inside one the logarithms are taken as evenly spread. None without any."""
    rank = share * sum(row.n for row in bins)
    for row in bins:
        if rank <= row.n:
            return float(row.low_s * (row.high_s / row.low_s) ** (rank / row.n))
        rank -= row.n
    return None


def every_step(moments: Sequence[Moment], scope: ReportScope) -> list[Moment]:
    """Also those steps of the scope at which nothing was tried."""
    found = {row.at: row for row in moments}
    first = scope.start // scope.step_s * scope.step_s
    return [found.get(at, Moment(at, AttemptCounts())) for at in range(first, scope.end, scope.step_s)] if found else []


def burnt(changes: Iterable[tuple[int, int, int, int, int]]) -> list[Left]:
    """(moment, first of these, accepted, delivered, ended since the one before) → sums so far, from the first on."""
    rows, accepted, delivered, waiting = list[Left](), 0, 0, 0
    for at, first, came, got, went in changes:
        if not rows:
            rows.append(Left(first, 0, 0, 0))
        accepted, delivered, waiting = accepted + came, delivered + got, waiting + came - went
        rows.append(Left(at, accepted, delivered, waiting))
    return rows


def end_of(rows: Sequence[Left]) -> int | None:
    """When none will be waiting, at the rate of the last quarter of the time. None: none is, or nothing is
    delivered."""
    if not rows or not rows[-1].waiting:
        return None
    last, since = rows[-1], rows[-1].at - max(1, (rows[-1].at - rows[0].at) // 4)
    base = max((row for row in rows if row.at <= since), default=Left(since, 0, 0, 0), key=lambda row: row.at)
    gone = (last.accepted - last.waiting) - (base.accepted - base.waiting)
    return last.at + math.ceil(last.waiting * (last.at - base.at) / gone) if gone else None


def _edge(number: int) -> float:
    return float(10 ** (number / BINS_PER_DECADE))


def _date(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
