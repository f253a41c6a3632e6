"""The headline: the few figures that matter, each beside what it was in the period before. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.pipeline.report import words
from zonemta_py.pipeline.report.feedback.rows import FEW, MARKS, NAMES, ReturnCounts
from zonemta_py.pipeline.report.rows import AttemptCounts, Facts, Totals
from zonemta_py.pipeline.report.scope import ReportScope
from zonemta_py.pipeline.report.tables import Table

SAME_SHARE, SAME_RATE, SAME_TIME = 0.0005, 0.0001, 0.03
"""Smaller changes are none: of shares half a tenth of a point, of rates of what came back a hundredth, of times as much
as they are exact to."""
RECIPIENTS = {
    "accepted": "recipients", "delivered": "delivered", "bounced": "bounced", "removed": "removed",
    "deleted": "deleted", "waiting": "waiting", "held": "held", "suppressed": "suppressed",
}  # fmt: skip
"""Quantities of recipients (`metrics.quantities`), and the fields of Totals; those held are among those waiting."""
Share = tuple[int, int]
Change = tuple[str, str]
"""What a figure was before, and the mood of its card."""


class Card(NamedTuple):
    """One figure of the headline. mood: "better", "worse", "same"; "" where more is neither good nor bad."""

    label: str
    value: str
    note: str
    change: str
    mood: str
    alarm: str = ""
    """What is wrong with it, whatever it was before."""


def compared(facts: Facts, scope: ReportScope) -> bool:
    """Whether there is something to compare with."""
    return bool(scope.compared_with and (facts.before.recipients or facts.before.attempts.total))


def cards(facts: Facts, scope: ReportScope) -> list[Card]:
    """The figures that matter, each against the period before."""
    now, before = facts.now, facts.before
    known = compared(facts, scope)
    shares = [
        ("Delivered", "of recipients", _share(now, "delivered"), _share(before, "delivered"), True),
        ("Bounced", "of recipients", _share(now, "bounced"), _share(before, "bounced"), False),
        ("Deferred", "of attempts", _tried(now, "deferred"), _tried(before, "deferred"), False),
        ("Blocked", "of attempts", _tried(now, "blocked"), _tried(before, "blocked"), False),
    ]
    return [
        Card(
            "Recipients",
            words.number(now.recipients),
            _waits(now),
            *_ratio(now.recipients, before.recipients, known),
        ),
        *(
            Card(label, words.percent(*a), f"{a[0]:,} {what}", *_points(a, b, known, up))
            for label, what, a, b, up in shares
        ),
        Card("Median time", words.span(now.median_s), "to delivery", *_times(now.median_s, before.median_s, known)),
        Card("p95 time", words.span(now.p95_s), "to delivery", *_times(now.p95_s, before.p95_s, known)),
        *(_came(facts, known) if facts.returned.known else []),
    ]


def _came(facts: Facts, known: bool) -> list[Card]:
    """What matters of what came back, of what was delivered."""
    found = []
    for label, name in (
        ("Complaints", "complaints"),
        ("Unsubscribes", "unsubscribes"),
        ("Bounced later", "bounced_later"),
    ):
        now = getattr(facts.returned.now, name), facts.now.delivered
        before = getattr(facts.returned.before, name), facts.before.delivered
        alarm = _marked(now) if name == "complaints" else ""
        change = _points(now, before, known, up=False, same=SAME_RATE)
        found.append(Card(label, words.percent(*now), f"{now[0]:,} of delivered", *change, alarm))
    return found


def _marked(complaints: Share) -> str:
    """Which of the marks they pass. One complaint of a few people is no rate."""
    count, delivered = complaints
    if delivered < FEW:
        return ""
    passed = [mark for mark in MARKS if 100 * count >= mark * delivered]
    return f"{'not below' if passed[-1] == MARKS[0] else 'at or above'} {passed[-1]}%" if passed else ""


def headline_table(facts: Facts, scope: ReportScope) -> Table:
    rows = [
        *(
            (f"recipients {name}", getattr(facts.now, field), getattr(facts.before, field))
            for name, field in RECIPIENTS.items()
        ),
        *(
            (f"attempts {kind}", getattr(facts.now.attempts, kind), getattr(facts.before.attempts, kind))
            for kind in AttemptCounts._fields
        ),
        ("median time to delivery, s", facts.now.median_s, facts.before.median_s),
        ("p95 time to delivery, s", facts.now.p95_s, facts.before.p95_s),
        ("p99 time to delivery, s", facts.now.p99_s, facts.before.p99_s),
        *(
            (f"recipients, {NAMES[name]}", getattr(facts.returned.now, name), getattr(facts.returned.before, name))
            for name in ReturnCounts._fields
            if facts.returned.known
        ),
    ]
    before = scope.compared_with or "period before"
    return Table("headline", "Headline figures", ["figure", scope.name, before], rows)


def _share(totals: Totals, what: str) -> Share:
    return getattr(totals, what), totals.recipients


def _tried(totals: Totals, kind: str) -> Share:
    return getattr(totals.attempts, kind), totals.attempts.total


def _waits(totals: Totals) -> str:
    parts = [("still waiting", totals.waiting), ("removed", totals.removed), ("deleted", totals.deleted)]
    return ", ".join(f"{n:,} {what}" for what, n in parts if n) or "accepted"


def _ratio(now: int, before: int, known: bool) -> Change:
    """More is neither good nor bad."""
    if not known:
        return "", ""
    if not before:
        return "was 0", ""
    change = now / before - 1
    if abs(change) < 0.005:
        return f"was {before:,}", ""
    text = f"{change:+.0%}" if change < 9.995 else f"× {now / before:,.0f}"
    return f"{text}, was {before:,}", ""


def _points(now: Share, before: Share, known: bool, up: bool, same: float = SAME_SHARE) -> Change:
    """up: more is better."""
    if not (known and now[1] and before[1]):
        return "", ""
    was, more = f"was {words.percent(*before)}", now[0] / now[1] - before[0] / before[1]
    if words.percent(*now) == words.percent(*before) or abs(more) < same:
        return was, "same"
    return was, "better" if (more > 0) == up else "worse"


def _times(now: float | None, before: float | None, known: bool) -> Change:
    if not known or now is None or before is None:
        return "", ""
    was = f"was {words.span(before)}"
    if abs(now / before - 1) < SAME_TIME or words.span(now) == words.span(before):
        return was, "same"
    return was, "better" if now < before else "worse"
