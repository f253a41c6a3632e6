"""Questions about a span of time, answered from summaries: sums of a view's numbers by some of its keys.

Nothing is read but the views that a question needs, and of these only the hours asked for.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import add as plus
from typing import NamedTuple

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.summary.file import SegmentSummary, ViewColumns
from zonemta_py.summary.views import OTHERS, VIEWS, SegmentCounts

GROUPS_MAX = 500_000
"""Groups that are kept apart; what comes after them is added up under OTHERS."""
_MIXED = "there is no table of {keys} together; --by takes some of {tables}"

Found = dict[tuple[str | int, ...], list[int]]
"""Numbers by group."""


class SummarySpan(NamedTuple):
    """UNIX hours from `since` to before `until`. only: values that a key must have."""

    since: int
    until: int
    only: Mapping[str, Collection[str]] = {}


class ReplyCount(NamedTuple):
    """Attempts that a reply of that shape has deferred or bounced; example: one of them as it was."""

    provider: str
    verdict: str
    kind: str
    n: int
    example: str


def view_of(keys: Collection[str]) -> str:
    """The view that has all of these keys. Raises ValueError."""
    for name in ("attempts", "senders", "domains", "replies"):
        if set(keys) <= set(VIEWS[name].keys):
            return name
    tables = "; ".join(",".join(VIEWS[name].keys) for name in ("attempts", "senders", "domains"))
    raise ValueError(_MIXED.format(keys=", ".join(sorted(keys)), tables=tables))


def sums(sources: Iterable[SegmentSummary | SegmentCounts], view: str, by: Sequence[str], asked: SummarySpan) -> Found:
    """The numbers of the view, in its order, added up by these keys. Raises SummaryUnreadable."""
    found: Found = {}
    for source in sources:
        _add(found, _columns(source, view), view, by, asked)
    return found


def mail(
    sources: Iterable[SegmentSummary | SegmentCounts], by: Sequence[str], asked: SummarySpan
) -> dict[tuple[str | int, ...], dict[str, int]]:
    """By group: attempts, delivered, deferred, bounced, held, and what else the view of these keys has."""
    view = view_of([*by, *asked.only])
    if view != "attempts":
        names = VIEWS[view].numbers
        return {group: _named(names, numbers) for group, numbers in sums(sources, view, by, asked).items()}
    rows: dict[tuple[str | int, ...], dict[str, int]] = {}
    for (*group, verdict, kind), (n, secure) in sums(sources, view, (*by, "verdict", "class"), asked).items():
        row = rows.setdefault(tuple(group), dict.fromkeys(ATTEMPT_NUMBERS, 0))
        row["attempts"] += n
        row[str(verdict)] += n
        row["blocked"] += n * (kind in BLOCKED_CLASSES and verdict in ("deferred", "bounced"))
        row["secure"] += secure
    return rows


ATTEMPT_NUMBERS = ("attempts", "delivered", "deferred", "bounced", "held", "blocked", "secure")


def _named(names: Sequence[str], numbers: Sequence[int]) -> dict[str, int]:
    row = dict(zip(names, numbers, strict=True))
    return {"attempts": sum(row[name] for name in ("delivered", "deferred", "bounced", "held"))} | row


def replies(
    sources: Sequence[SegmentSummary | SegmentCounts], verdicts: Collection[str], asked: SummarySpan
) -> list[ReplyCount]:
    """By provider, verdict, class and shape; the most frequent first, then by their names."""
    found = sums(sources, "replies", ("provider", "verdict", "class", "shape"), asked)
    wanted = {key[3] for key in found if key[1] in verdicts}
    examples: dict[str, str] = {}
    for source in sources:
        for shape, text in (source.examples() if isinstance(source, SegmentSummary) else source.examples).items():
            if shape in wanted and (shape not in examples or text < examples[shape]):
                examples[shape] = text
    rows = [
        ReplyCount(str(provider), str(verdict), str(kind), numbers[0], examples.get(str(shape), str(shape)))
        for (provider, verdict, kind, shape), numbers in found.items()
        if verdict in verdicts
    ]
    return sorted(rows, key=lambda row: (-row.n, row.provider, row.kind, row.example))


def _columns(source: SegmentSummary | SegmentCounts, view: str) -> ViewColumns:
    if isinstance(source, SegmentSummary):
        return source.view(view)
    form, rows = VIEWS[view], source.views[view]
    texts: dict[str, int] = {}
    columns: dict[str, array[int]] = {}
    for at, name in enumerate(form.keys):
        values = [key[at] for key in rows]
        columns[name] = array("I", values if name == "hour" else [texts.setdefault(one, len(texts)) for one in values])
    for at, name in enumerate(form.numbers):
        columns[name] = array("Q", [numbers[at] for numbers in rows.values()])
    return ViewColumns(list(texts), columns)


def _add(found: Found, view: ViewColumns, name: str, by: Sequence[str], asked: SummarySpan) -> None:
    columns, form = view.columns, VIEWS[name]
    keys: list[Sequence[int]] = [columns[key] for key in by]
    numbers: list[Sequence[int]] = [columns[number] for number in form.numbers]
    which = _which(view, asked)
    if which is not None:
        keys, numbers = [list(compress(one, which)) for one in keys], [list(compress(one, which)) for one in numbers]
    if not numbers[0]:
        return
    groups = list(zip(*keys, strict=True)) if keys else [()] * len(numbers[0])
    local: dict[tuple[int, ...], tuple[int, ...]] = {}
    get = local.get
    if len(numbers) == 1:
        counter: Counter[tuple[int, ...]] = Counter()
        for group, n in zip(groups, numbers[0], strict=True):
            counter[group] += n
        local = {group: (n,) for group, n in counter.items()}
    else:
        for group, row in zip(groups, zip(*numbers, strict=True), strict=True):
            there = get(group)
            local[group] = row if there is None else tuple(map(plus, there, row))
    texts = view.texts
    hours = [key == "hour" for key in by]
    for places, sum_ in local.items():
        key = tuple([one if hour else texts[one] for one, hour in zip(places, hours, strict=True)])
        before = found.get(key)
        if before is None:
            if len(found) >= GROUPS_MAX:
                key = tuple(OTHERS if not hour else one for one, hour in zip(key, hours, strict=True))
                before = found.setdefault(key, [0] * len(sum_))
            else:
                found[key] = list(sum_)
                continue
        for at, n in enumerate(sum_):
            before[at] += n


def _which(view: ViewColumns, asked: SummarySpan) -> list[bool] | None:
    """The rows that are asked for; None: all of them."""
    hours = view.columns["hour"]
    if not hours:
        return None
    tests: list[Iterator[bool]] = []
    if min(hours) < asked.since or max(hours) >= asked.until:
        tests.append(asked.since <= hour < asked.until for hour in hours)
    for key, values in asked.only.items():
        wanted = {place for place, text in enumerate(view.texts) if text in values}
        tests.append(place in wanted for place in view.columns[key])
    if not tests:
        return None
    return [all(row) for row in zip(*tests, strict=True)]
