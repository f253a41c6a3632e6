"""How fast a source IP may send to a provider: the highest rate that did not cause deferrals, from past attempts.

Per window of five minutes: attempts a second, and the share of them answered by "slower" (classes.THROTTLING). A window
is clean at most `clean_max` of them were, bad from `bad_min` on.
  clean: the highest rate for which `least_windows` clean windows, at 80 % of it or more, stand, and hardly a bad one.
  accepted: the median of what was taken (attempts less those throttled) in bad windows: what gets through a limit.
  bad_from: the rate below which only a tenth of the bad windows lie.
The rate is the higher of clean and accepted, but never above bad_from. A provider that refuses everything once a limit
is passed has a low `accepted`, and then `clean` decides. No bad window, or too few: nothing is proposed, for the limit
has not been seen. Where `clean` and `accepted` are near each other and from many windows the confidence is high.
A day goes well by the measures of a warm-up (config.sources.Warmup); `next_day` is what the next day may bring, by the
step of the shipped schedule. Pure; nothing is changed by itself: `proposal` and `warmup_proposal` write configurations.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.pipeline.findings.warmup_proposal import CAPS
from zonemta_py.pipeline.findings.windows import WINDOW_S, Counted, answered, of_pairs, windows

_CURVE = (
    "source string, provider string, windows bigint, attempts bigint, clean double, accepted double, bad_from double,"
    " bad_windows bigint, proposed double, confidence string, reason string"
)
_DAYS = "good_days bigint, best_day bigint, last_day_good boolean, next_day bigint, since timestamp, until timestamp"
RATES = f"{_CURVE}, {_DAYS}"
"""Rates are recipients per second, null where nothing is known; next_day: recipients, null behind the last cap."""

DEFERRED_MAX, BLOCKED_MAX, DAY_LEAST = 0.1, 0.01, 20


class Measures(NamedTuple):
    """Shares 0 … 1. least: attempts of a window that counts. least_windows: clean, and bad, ones without which there is
    no proposal."""

    clean_max: float = 0.005
    bad_min: float = 0.02
    least: int = 30
    least_windows: int = 6
    many_windows: int = 24


class Curve(NamedTuple):
    """As in RATES."""

    windows: int
    attempts: int
    clean: float | None
    accepted: float | None
    bad_from: float | None
    bad_windows: int
    proposed: float | None
    confidence: str
    reason: str


def rates(deliveries: DataFrame, measures: Measures = Measures(), caps: Sequence[int] = CAPS) -> DataFrame:  # noqa: B008
    """RATES, one row for each source and provider with `least` attempts or more."""
    return curves(windows(deliveries), measures).join(days(deliveries, caps), ["source", "provider"], "left")


def curves(found: DataFrame, measures: Measures = Measures()) -> DataFrame:  # noqa: B008
    """The first columns of RATES. found: `windows.windows`."""
    return of_pairs(found, measures.least, lambda every: [curve(every, measures)], _CURVE)


def curve(every: Sequence[Counted], measures: Measures = Measures()) -> Curve:  # noqa: B008
    """What the windows of one pair say. Pure."""
    telling = [window for window in every if window.attempts >= measures.least]
    bad = [window for window in telling if window.throttled / window.attempts >= measures.bad_min]
    clean = _clean_rate(telling, measures)
    taken = statistics.median((w.attempts - w.throttled) / WINDOW_S for w in bad) if bad else None
    bad_from = _low_tenth([_rate(window) for window in bad]) if bad else None
    known = (len(telling), sum(window.attempts for window in every), clean, taken, bad_from, len(bad))
    if taken is None or bad_from is None or len(bad) < measures.least_windows:
        return Curve(*known, None, "none", _unseen(clean, len(bad)))
    proposed = min(max(clean or 0.0, taken), bad_from)
    reason = f"{len(bad)} windows were throttled, at {bad_from:.3g}/s and above, and accepted {taken:.3g}/s; "
    reason += f"clean up to {clean:.3g}/s" if clean else "no rate was clean often enough"
    return Curve(*known, proposed, _confidence(clean, proposed, len(bad), len(telling), measures), reason)


def _clean_rate(telling: Sequence[Counted], measures: Measures) -> float | None:
    """From the highest rate down: the first that enough clean windows stand for, and hardly a bad one."""
    by_rate = sorted(telling, key=_rate)
    speeds = [_rate(window) for window in by_rate]
    clean = [window.throttled / window.attempts <= measures.clean_max for window in by_rate]
    below = [0, *accumulate(clean)]  # clean windows among so many of the slowest
    for top, speed in reversed(list(enumerate(speeds))):
        start, end = bisect_left(speeds, 0.8 * speed), bisect_right(speeds, speed)
        good = below[end] - below[start]
        if clean[top] and good >= measures.least_windows and end - start - good <= (end - start) // 20:
            return speed
    return None


def _confidence(clean: float | None, proposed: float, bad: int, telling: int, measures: Measures) -> str:
    agree = clean is not None and 0.75 * proposed <= clean <= 1.25 * proposed
    many = bad >= measures.many_windows and telling - bad >= measures.many_windows
    return "high" if agree and many else "medium" if agree or many else "low"


def _unseen(clean: float | None, bad: int) -> str:
    so_far = f"clean up to {clean:.3g}/s" if clean else "too few windows with enough mail"
    return f"{so_far}; " + (f"only {bad} windows were throttled" if bad else "never throttled, so its limit is unknown")


def _low_tenth(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def _rate(window: Counted) -> float:
    return window.attempts / WINDOW_S


def days(deliveries: DataFrame, caps: Sequence[int] = CAPS) -> DataFrame:
    """source, provider and the last columns of RATES: how many days went well, and what follows for the next one."""
    rows = answered(deliveries)
    refused = F.col("verdict") != "delivered"
    blocked = refused & F.col("class").isin(*sorted(BLOCKED_CLASSES))
    daily = rows.groupBy("source", "provider", F.to_date("at").alias("day")).agg(
        F.count("*").alias("attempts"),
        F.count_if(blocked).alias("blocked"),
        F.count_if((F.col("verdict") == "deferred") & ~blocked).alias("deferred"),
        F.min("at").alias("first"), F.max("at").alias("last"),
    )  # fmt: skip
    well = (F.col("deferred") <= DEFERRED_MAX * F.col("attempts")) & (
        F.col("blocked") <= BLOCKED_MAX * F.col("attempts")
    )
    telling = daily.withColumn("good", F.when(F.col("attempts") >= DAY_LEAST, well))
    totals = telling.groupBy("source", "provider").agg(
        F.count_if("good").alias("good_days"),
        F.max(F.when(F.col("good"), F.col("attempts"))).alias("best_day"),
        F.max_by("good", F.when(F.col("good").isNotNull(), F.col("day"))).alias("last_day_good"),
        F.min("first").alias("since"), F.max("last").alias("until"),
    )  # fmt: skip
    following = F.array_min(F.filter(F.lit(list(caps)).cast("array<bigint>"), lambda cap: cap > F.col("best_day")))
    held = F.array_max(F.filter(F.lit(list(caps)).cast("array<bigint>"), lambda cap: cap <= F.col("best_day")))
    step = F.when(F.col("last_day_good"), following).otherwise(F.coalesce(held, F.lit(caps[0]).cast("bigint")))
    return totals.select(
        "source", "provider", "good_days", "best_day", "last_day_good", step.alias("next_day"), "since", "until"
    )
