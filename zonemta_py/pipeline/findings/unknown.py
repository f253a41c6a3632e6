"""Replies that no rule matched, except rules of a code alone, grouped by shape, the commonest first.

In SQL each reply loses what changes from one to the next: addresses, URLs, hosts, IP addresses, identifiers and numbers
become marks such as <host>, and equal shapes are counted. Of these, few, shapes that share most of their words
(`near`) become one cluster in plain Python. `rule_proposal` makes rules of the clusters.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    import pandas

WORDS_MAX = 60
SHAPES_MAX = 2_000
"""The commonest shapes that are looked at for clusters."""
EXAMPLES_MAX = 5
REPLY_CHARACTERS_MAX = 1_000
NEAR = 0.75
"""Shared part of the words of two shapes (Dice's coefficient over their words in order) from which on they are one."""
VAGUE = r"^(?:code-.*|status-x\.\d(?:\.opinion)?)?$"
"""Names of the shipped rules that match by code alone, after all others, with a second opinion or without."""

_SOFTENED = r"^server refused to talk to us: [45]\d\d ?(?:[45]\.\d{1,3}\.\d{1,3} )?"
_HOST = (
    r"(?i)(?<![\w.@-])(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.){1,8}(?:[a-z]{2,18}|xn--[a-z0-9-]{2,59})"
    r"(?![\w-])(?!\.[a-z])"
)
_MARKS = (
    (r"(?i)\bhttps?://[^\s<>\"'()]+", "<url>"),
    (r"[^\s<>\[\]()\"',;:@]{1,64}@[^\s<>\[\]()\"',;:@]{1,255}", "<address>"),
    (r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])", "<ip>"),
    (r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f:]{0,4}(?![\w:])", "<ip>"),
    (_HOST, "<host>"),
    (r"(?i)(?<![\w<])(?=[\w.+/=-]*\d)(?=[\w.+/=-]*[a-z])[\w.+/=-]{6,200}", "<id>"),
    (r"(?<![\w<])\d+(?:[.,:]\d+)*(?![\w>])", "<n>"),
)  # fmt: skip
"""In this order: what is more particular comes first. Java and Python read them alike."""

UNKNOWN = (
    "cluster int, shape string, replies bigint, shapes bigint, codes array<int>, enhanced array<string>,"
    " stages array<string>, providers array<string>, first_at timestamp, last_at timestamp, examples array<string>"
)
"""shape: the commonest one's. examples: "code enhanced text", of different shapes first."""


class Shape(NamedTuple):
    """Equal replies but for the marks. Times are UNIX s."""

    shape: str
    replies: int
    codes: tuple[int, ...]
    enhanced: tuple[str, ...]
    stages: tuple[str, ...]
    providers: tuple[str, ...]
    first: float
    last: float
    examples: tuple[str, ...]


def unknown(deliveries: DataFrame) -> DataFrame:
    """UNKNOWN, the commonest first. deliveries: the lake's table."""

    def merged(frames: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        import pandas

        every = [each for frame in frames for each in _shapes_of(frame)]
        rows = [_row(number, cluster) for number, cluster in enumerate(clusters(every))]
        yield pandas.DataFrame(rows, columns=[part.split()[0] for part in _FLAT.split(", ")])

    flat = shapes(deliveries).coalesce(1).mapInPandas(merged, _FLAT)
    return flat.withColumns({name: F.timestamp_seconds(name) for name in ("first_at", "last_at")}).orderBy("cluster")


def shapes(deliveries: DataFrame) -> DataFrame:
    """One row for each shape of a reply that no rule knew: the fields of Shape."""
    undefined = F.coalesce("class", F.lit("")).isin("", "undefined") | F.coalesce("rule", F.lit("")).rlike(VAGUE)
    refused = F.col("verdict").isin("deferred", "bounced") & (F.col("code") >= 400)
    text = F.regexp_replace(F.substring("reply", 1, REPLY_CHARACTERS_MAX), _SOFTENED, "")
    said = F.concat_ws(" ", "code", F.nullif("enhanced", F.lit("")), "reply")
    named = F.nullif("provider", F.lit(""))
    found = deliveries.where(undefined & refused & (F.trim("reply") != "")).groupBy(shape_of(text).alias("shape")).agg(
        F.count("*").alias("replies"),
        *(F.array_sort(F.collect_set(column)).alias(name) for name, column in (
            ("codes", F.col("code")), ("enhanced", F.nullif("enhanced", F.lit(""))), ("stages", F.col("stage")),
            ("providers", named),
        )),
        F.min(F.col("at").cast("double")).alias("first"), F.max(F.col("at").cast("double")).alias("last"),
        F.array(F.min(said), F.max(said)).alias("examples"),
    )  # fmt: skip
    return found.orderBy(F.desc("replies"), "shape").limit(SHAPES_MAX)


def shape_of(text: Column) -> Column:
    """The text with marks, in lower case, its blanks single."""
    for pattern, mark in _MARKS:
        text = F.regexp_replace(text, pattern, mark)
    return F.lower(F.trim(F.regexp_replace(text, r"\s+", " ")))


def shape(text: str) -> str:
    """The same in Python, ASCII classes as Java has them."""
    text = re.sub(_SOFTENED, "", text[:REPLY_CHARACTERS_MAX], flags=re.ASCII)
    for pattern, mark in _MARKS:
        text = re.sub(pattern, mark, text, flags=re.ASCII)
    return re.sub(r"\s+", " ", text, flags=re.ASCII).strip().lower()


def clusters(found: Sequence[Shape], near: float = NEAR) -> list[list[Shape]]:
    """Each shape with the first cluster whose commonest shape it is near to, replies of one class (4xx, 5xx) only.

    The commonest cluster first. Pure; as many comparisons as shapes times clusters.
    """
    made: list[tuple[_Words, list[Shape]]] = []
    for each in sorted(found, key=lambda one: (-one.replies, one.shape)):
        words = _Words.of(each.shape)
        for leading, members in made:
            if members[0].codes[0] // 100 == each.codes[0] // 100 and words.likeness(leading, near) >= near:
                members.append(each)
                break
        else:
            made.append((words, [each]))
    return sorted((members for _, members in made), key=lambda members: -sum(one.replies for one in members))


class _Words(NamedTuple):
    every: list[str]
    distinct: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Words:
        words = text.split()[:WORDS_MAX]
        return cls(words, frozenset(words))

    def likeness(self, other: _Words, least: float) -> float:
        """Twice the longest common subsequence over all words, 0 … 1; 0 where it cannot reach `least`."""
        both = len(self.every) + len(other.every)
        at_most = len(self.distinct & other.distinct) + len(self.every) - len(self.distinct)
        if not both or 2 * at_most / both < least:
            return 0.0
        return 2 * len(common(self.every, other.every)) / both


def common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Longest common subsequence."""
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            same = one[i] == other[j]
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if same else max(lengths[i + 1][j], lengths[i][j + 1])
    i = j = 0
    words: list[str] = []
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            words.append(one[i])
            i, j = i + 1, j + 1
        else:
            i, j = (i + 1, j) if lengths[i + 1][j] >= lengths[i][j + 1] else (i, j + 1)
    return words


_FLAT = UNKNOWN.replace("timestamp", "double")


def _shapes_of(frame: pandas.DataFrame) -> list[Shape]:
    lists = ("codes", "enhanced", "stages", "providers", "examples")
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return [Shape._make(tuple(row[n]) if n in lists else row[n] for n in Shape._fields) for row in rows]


def _row(number: int, members: Sequence[Shape]) -> tuple[object, ...]:
    def every(name: str) -> list[object]:
        return sorted({value for one in members for value in getattr(one, name)})

    said = list(dict.fromkeys([one.examples[0] for one in members] + [one.examples[-1] for one in members]))
    return (
        number, members[0].shape, sum(one.replies for one in members), len(members), every("codes"), every("enhanced"),
        every("stages"), every("providers"), min(one.first for one in members), max(one.last for one in members),
        said[:EXAMPLES_MAX],
    )  # fmt: skip


def since(row: dict[str, object]) -> str:
    """ "2026-01-02 to 2026-01-05": the days of a cluster."""
    first, last = row["first_at"], row["last_at"]
    assert isinstance(first, datetime.datetime)
    assert isinstance(last, datetime.datetime)
    return f"{first:%Y-%m-%d}" if first.date() == last.date() else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
