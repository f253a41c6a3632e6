"""Sudden changes of a source IP at a provider, against its own history, and the block lists that replies name.

The test. Of each window of five minutes a share is known: attempts deferred, blocked or bounced. The windows before it
that were quiet, up to a week's worth of `Bounds.history`, say what is usual: their pooled share p, and how far the
windows differ among themselves (s). A share is a change if it lies `z` times sqrt(p(1-p)/n + s²) above p, n being
the window's attempts, and also at least `rise` above p, whatever the statistics say. Windows with few attempts are
joined until they have `least`. A change lasts until two windows in a row are back below p + rise/2; its windows are
not counted as history, so a block that lasts does not become usual. With z = 5 a false alarm comes once in
some million windows if shares were normal; they are not, hence `rise`. Nothing is fitted.
A pair without history is compared with a share of 5 %, give or take 15 %: four fifths refused are a change.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from zonemta_py.pipeline.findings.windows import KINDS, WINDOW_S, Counted, answered, of_pairs, windows

EXAMPLES_MAX = 5
BLOCKS = (
    "source string, provider string, kind string, list string, since timestamp, until timestamp, before double,"
    " after double, attempts bigint, refused bigint, explanation string,"
    " evidence array<struct<at: timestamp, reply: string, replies: bigint>>"
)
"""kind: of windows.KINDS, or "listed". list: the block list's name then, else "". until: null if it goes on."""

LISTS = (
    "abusix", "abuseat", "backscatterer", "barracuda", "blocklist.de", "cloudmark", "dnswl", "fortinet", "gbudb",
    "hostkarma", "invaluement", "mailspike", "mcafee", "njabl", "nixspam", "proofpoint", "psbl", "senderscore", "sorbs",
    "spamcannibal", "spamcop", "spameatingmonkey", "spamhaus", "surbl", "surriel", "symantec", "talosintelligence",
    "trendmicro", "uceprotect", "uribl", "wpbl",
)  # fmt: skip
"""Names that stand in replies, alone or within a host name. The first one found in a reply is its list."""
SHORT = ("zen", "sbl", "xbl", "pbl", "css", "dbl")
"""Spamhaus's lists, where a reply names nothing longer."""


def _any_of(names: Sequence[str]) -> str:
    return r"(?i)(?<![a-z0-9])(" + "|".join(re.escape(name) for name in names) + r")(?![a-z])"


_NAMED, _NAMED_SHORT = _any_of(LISTS), _any_of(SHORT)
_URL = r"(?i)(https?://[^\s<>\"'()]+)"
_LISTED = r"(?i)\b(?:(?:black|block|deny)[ -]?list|blocklisted|dnsbl|rbl|listed (?:on|in|at|by|with)|is listed|listing)"


class Bounds(NamedTuple):
    """least: attempts in a window. history: quiet windows remembered. history_least: attempts in them, else none."""

    least: int = 30
    z: float = 5.0
    rise: float = 0.15
    history: int = 2016
    history_least: int = 200


class Usual(NamedTuple):
    """share: pooled; spread: standard deviation between windows; attempts: how many that is known from."""

    share: float
    spread: float
    attempts: int


NO_HISTORY = Usual(0.05, 0.15, 0)
_UNIT = 1 << 96


class Episode(NamedTuple):
    """Times are UNIX s; until None: it goes on. before and after: shares, 0 … 1."""

    kind: str
    since: float
    until: float | None
    before: Usual
    attempts: int
    refused: int
    examples: tuple[tuple[float, str, int], ...]
    z: float

    @property
    def after(self) -> float:
        return self.refused / self.attempts

    @property
    def explanation(self) -> str:
        usual = f"{self.before.share:.1%} of {self.before.attempts} attempts" if self.before.attempts else "no history"
        return f"{self.kind} {self.after:.1%} of {self.attempts} attempts; before: {usual}; z = {self.z:.1f}"


def blocks(deliveries: DataFrame, bounds: Bounds = Bounds()) -> DataFrame:  # noqa: B008 an immutable value
    """BLOCKS: changes and lists. deliveries: the lake's table, at least a day of it before what is to be found."""
    return changes(windows(deliveries), bounds).unionByName(listed(deliveries))


def changes(found: DataFrame, bounds: Bounds = Bounds()) -> DataFrame:  # noqa: B008
    """BLOCKS of windows.KINDS. found: `windows`; plain Python looks at each pair's in their order."""

    def rows(every: list[Counted]) -> Iterator[tuple[Any, ...]]:
        return (_row(each) for kind in KINDS for each in episodes(every, kind, bounds))

    flat = of_pairs(found, bounds.least, rows, _FLAT)
    evidence = F.from_json("evidence", "array<struct<at: double, reply: string, replies: bigint>>")
    told = F.transform(
        evidence,
        lambda each: F.struct(
            _time(each["at"]).alias("at"), each["reply"].alias("reply"), each["replies"].alias("replies")
        ),
    )
    return flat.select(
        "source", "provider", "kind", F.lit("").alias("list"), _time(F.col("since")).alias("since"),
        _time(F.col("until")).alias("until"), "before", "after", "attempts", "refused", "explanation",
        told.alias("evidence"),
    )  # fmt: skip


def listed(deliveries: DataFrame) -> DataFrame:
    """BLOCKS of kind "listed": replies that name a list, per pair and list; after: share of the pair's attempts."""
    rows = answered(deliveries)
    totals = rows.groupBy("source", "provider").agg(F.count("*").alias("attempts"))
    name, short = (F.lower(F.regexp_extract("said", pattern, 1)) for pattern in (_NAMED, _NAMED_SHORT))
    link = F.regexp_extract("said", _URL, 1)
    named = (
        F.when(name != "", name).when(short != "", short).when(link != "", F.lower(F.parse_url(link, F.lit("HOST"))))
    )
    by_list = rows.where(_names_a_list()).withColumn("list", F.coalesce(named, F.lit("not named")))
    same = by_list.groupBy("source", "provider", "list", "said").agg(
        F.min("at").alias("first"), F.max("at").alias("last"), F.count("*").alias("replies")
    )
    example = F.struct(F.col("last").alias("at"), F.col("said").alias("reply"), "replies")
    lists = same.groupBy("source", "provider", "list").agg(
        F.min("first").alias("since"), F.max("last").alias("until"), F.sum("replies").alias("refused"),
        F.slice(F.sort_array(F.collect_list(example), asc=False), 1, EXAMPLES_MAX).alias("evidence"),
    )  # fmt: skip
    said = F.format_string("%d replies of %d name the list %s", "refused", "attempts", "list")
    return lists.join(F.broadcast(totals), ["source", "provider"]).select(
        "source", "provider", F.lit("listed").alias("kind"), "list", "since", "until",
        F.lit(None).cast("double").alias("before"), (F.col("refused") / F.col("attempts")).alias("after"), "attempts",
        "refused", said.alias("explanation"), "evidence",
    )  # fmt: skip


class History:
    """The quiet windows that are remembered, as sums: each that comes or goes costs the same, however many there are.

    The sums are whole numbers, so what is forgotten leaves no rounding error behind.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._windows: deque[tuple[int, int]] = deque()
        self._attempts = self._refused = 0
        self._squares = 0
        """Of refused**2 / attempts, in units of 1 / _UNIT."""

    def add(self, attempts: int, refused: int) -> None:
        self._windows.append((attempts, refused))
        self._count(attempts, refused, 1)
        if len(self._windows) > self._bounds.history:
            self._count(*self._windows.popleft(), -1)

    def _count(self, attempts: int, refused: int, sign: int) -> None:
        self._attempts += sign * attempts
        self._refused += sign * refused
        self._squares += sign * (refused * refused * _UNIT // attempts)

    def usual(self) -> Usual:
        n, refused = self._attempts, self._refused
        if n < self._bounds.history_least:
            return NO_HISTORY
        # The share is a/b; attempts * (refused/attempts - a/b)**2, summed over the windows and multiplied out.
        a, b = 2 * refused + 1, 2 * n + 2
        squares = self._squares - (2 * a * b * refused - a * a * n) * _UNIT // (b * b)
        return Usual(a / b, math.sqrt(max(squares, 0) / (_UNIT * n)), n)


def episodes(every: Sequence[Counted], kind: str, bounds: Bounds = Bounds()) -> list[Episode]:  # noqa: B008
    """The changes of one pair, in order. Pure."""
    found: list[Episode] = []
    quiet = History(bounds)
    going: list[list[Counted]] = []
    calm, usual, reached = 0, NO_HISTORY, 0.0
    for group in _joined(every, bounds.least):
        attempts, refused = _counts(group, kind)
        if not going:
            usual = quiet.usual()
            score = _score(attempts, refused, usual)
            if attempts >= bounds.least and score >= bounds.z and refused / attempts - usual.share >= bounds.rise:
                going, calm, reached = [group], 0, score
            else:
                quiet.add(attempts, refused)
            continue
        going.append(group)
        calm = calm + 1 if refused / attempts < usual.share + bounds.rise / 2 else 0
        if calm == 2:
            found.append(_episode(kind, going[:-2], going[-2][0].at, usual, reached))
            for each in going[-2:]:
                quiet.add(*_counts(each, kind))
            going = []
    return [*found, _episode(kind, going[: len(going) - calm], None, usual, reached)] if going else found


def _joined(every: Sequence[Counted], least: int) -> list[list[Counted]]:
    """Windows with few attempts together with those that follow within the hour."""
    groups: list[list[Counted]] = []
    for window in every:
        if (
            groups
            and sum(each.attempts for each in groups[-1]) < least
            and window.at - groups[-1][0].at < 12 * WINDOW_S
        ):
            groups[-1].append(window)
        else:
            groups.append([window])
    return groups


def _counts(group: Sequence[Counted], kind: str) -> tuple[int, int]:
    return sum(each.attempts for each in group), sum(getattr(each, kind) for each in group)


def _score(attempts: int, refused: int, usual: Usual) -> float:
    deviation = math.sqrt(usual.share * (1 - usual.share) / attempts + usual.spread**2)
    return (refused / attempts - usual.share) / deviation


def _episode(kind: str, groups: Sequence[Sequence[Counted]], until: float | None, usual: Usual, z: float) -> Episode:
    flat = [window for group in groups for window in group]
    attempts, refused = _counts(flat, kind)
    firsts = [first for window in flat if (first := window.first_at[kind]) is not None]
    said: Counter[str] = Counter()
    latest: dict[str, float] = {}
    for window in flat:
        if reply := window.reply[kind]:
            said[reply] += 1
            latest[reply] = float(window.at)
    examples = tuple((latest[reply], reply, count) for reply, count in said.most_common(EXAMPLES_MAX))
    return Episode(kind, min(firsts, default=float(flat[0].at)), until, usual, attempts, refused, examples, z)


_FLAT = (
    "source string, provider string, kind string, since double, until double, before double, after double,"
    " attempts bigint, refused bigint, explanation string, evidence string"
)


def _row(each: Episode) -> tuple[Any, ...]:
    evidence = json.dumps([{"at": at, "reply": reply, "replies": count} for at, reply, count in each.examples])
    return (
        each.kind, each.since, each.until, each.before.share, each.after, each.attempts, each.refused,
        each.explanation, evidence,
    )  # fmt: skip


def _time(seconds: Column) -> Column:
    return F.timestamp_micros((seconds * 1_000_000).cast("bigint"))


def _names_a_list() -> Column:
    """Names are looked for only where a reply speaks of lists, or the rules took it for a block: "zen" is a word."""
    said = F.col("said").rlike(_LISTED) | ((F.col("class") == "blocked-ip") & F.col("said").rlike(_NAMED))
    return (F.col("verdict") != "delivered") & said
