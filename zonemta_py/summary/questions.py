"""Questions about a span of time, answered from summaries: sums of a view's numbers by some of its keys.

Nothing is read but the views that a question needs, and of these only the hours asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import add as plus
from typing import NamedTuple

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.summary.file import SegmentSummary, ViewColumns
from zonemta_py.summary.views import OTHERS, VIEWS, SegmentCounts, no_garbage

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
    for name in ("routes", "owners", "attempts", "senders", "domains"):
        if set(keys) <= set(VIEWS[name].keys):
            return name
    tables = "; ".join(",".join(VIEWS[name].keys) for name in ("attempts", "senders", "domains"))
    raise ValueError(_MIXED.format(keys=", ".join(sorted(keys)), tables=tables))


def sums(sources: Iterable[SegmentSummary | SegmentCounts], view: str, by: Sequence[str], asked: SummarySpan) -> Found:
    """The numbers of the view, in its order, added up by these keys. Raises SummaryUnreadable."""
    found: Found = {}
    with no_garbage():
        for source in sources:
            _add(found, _columns(source, view), view, by, asked)
    return found


def mail(
    sources: Iterable[SegmentSummary | SegmentCounts], by: Sequence[str], asked: SummarySpan
) -> dict[tuple[str | int, ...], dict[str, int]]:
    """By group: attempts, delivered, deferred, bounced, held, and what else the view of these keys has."""
    view = view_of([*by, *asked.only])
    names, keys = VIEWS[view].numbers, VIEWS[view].keys
    if "verdict" not in keys:
        return {group: _named(names, numbers) for group, numbers in sums(sources, view, by, asked).items()}
    more = ("verdict", "class") if "class" in keys else ("verdict",)
    rows: dict[tuple[str | int, ...], dict[str, int]] = {}
    for key, (n, *secure) in sums(sources, view, (*by, *more), asked).items():
        group, verdict = key[: len(by)], str(key[len(by)])
        row = rows.get(group)
        if row is None:
            row = rows[group] = dict.fromkeys(ATTEMPT_NUMBERS if secure else ATTEMPT_NUMBERS[:5], 0)
        row["attempts"] += n
        row[verdict] += n
        if secure:
            row["secure"] += secure[0]
            row["blocked"] += n * (key[-1] in BLOCKED_CLASSES and verdict in ("deferred", "bounced"))
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
    named = [one if key == "hour" else map(view.texts.__getitem__, one) for key, one in zip(by, keys, strict=True)]
    groups: Iterable[tuple[str | int, ...]] = zip(*named, strict=True) if keys else repeat((), len(numbers[0]))
    if len(found) >= GROUPS_MAX:
        groups = [group if group in found else _others(group) for group in groups]
    get = found.get
    if len(numbers) == 1:
        for group, n in zip(groups, numbers[0], strict=True):
            there = get(group)
            if there is None:
                found[group] = [n]
            else:
                there[0] += n
        return
    for group, row in zip(groups, zip(*numbers, strict=True), strict=True):
        there = get(group)
        found[group] = list(row) if there is None else list(map(plus, there, row))


def _others(group: tuple[str | int, ...]) -> tuple[str | int, ...]:
    return tuple([OTHERS if isinstance(one, str) else one for one in group])


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
