"""What would have been different: the same recipients in the archive and in replays, counted in the same way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.whatif.history import History, PastAttempt
from zonemta_py.whatif.replay import Span, arrivals
from zonemta_py.whatif.world import OURS

HOUR_MS = 3_600_000
GROUPS = ("all", "zone", "provider", "source", "campaign", "tenant")


@dataclass(slots=True)
class GroupFigures:
    """Of one group of recipients. deferrals: by class of the reply. waits_s: arrival to delivery of the delivered."""

    recipients: int = 0
    delivered: int = 0
    bounced: int = 0
    attempts: int = 0
    deferred: int = 0
    deferrals: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    minutes: Counter[int] = field(default_factory=Counter)
    hours: Counter[int] = field(default_factory=Counter)

    @property
    def waiting(self) -> int:
        return self.recipients - self.delivered - self.bounced

    def share(self, part: float) -> float | None:
        """The waiting time, in seconds, that this share of the delivered did not exceed; None: none was delivered."""
        if not self.waits_s:
            return None
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    def row(self) -> dict[str, Any]:
        """Plain figures: counts, seconds, attempts a minute."""
        return {
            "recipients": self.recipients, "delivered": self.delivered, "bounced": self.bounced,
            "waiting": self.waiting, "attempts": self.attempts, "deferred": self.deferred,
            "p50_s": self.share(0.5), "p95_s": self.share(0.95), "p99_s": self.share(0.99),
            "peak_per_minute": max(self.minutes.values(), default=0),
            "deferred_by_class": dict(self.deferrals.most_common()),
            "delivered_by_hour": {hour: self.hours[hour] for hour in sorted(self.hours)},
        }  # fmt: skip


def facts(history: History, people: History, span: Span) -> dict[tuple[str, str], GroupFigures]:
    """(group, name) → what `history` says became of the recipients that `people` (the archive) has in the span.

    zone, provider and source are those of a recipient's last attempt; "" where it was never tried.
    """
    found: dict[tuple[str, str], GroupFigures] = defaultdict(GroupFigures)
    until_ms = span.until_ms + span.drain_ms
    for arrival in arrivals(people, span):
        for recipient in arrival.envelope.recipients:
            tried = history.attempts.get((arrival.id, recipient.address), [])
            tried = [one for one in tried if span.since_ms <= one.ms < until_ms]
            last = tried[-1] if tried else None
            places = {
                "all": "", "zone": last.zone if last else "", "provider": last.provider or last.site if last else "",
                "source": last.source if last else "", "campaign": arrival.envelope.campaign or "",
                "tenant": arrival.envelope.tenant or "",
            }  # fmt: skip
            for group, name in places.items():
                _count(found[group, name], tried, arrival.ms, span)
    return dict(found)


def _count(into: GroupFigures, tried: list[PastAttempt], arrived_ms: int, span: Span) -> None:
    into.recipients += 1
    for attempt in tried:
        if attempt.stage not in OURS:
            into.attempts += 1
            into.minutes[attempt.ms // 60_000] += 1
        if attempt.verdict == DEFERRED:
            into.deferred += 1
            into.deferrals[attempt.kind or attempt.stage] += 1
    last = tried[-1] if tried else None
    if last is not None and last.verdict == DELIVERED:
        into.delivered += 1
        into.waits_s.append((last.ms - arrived_ms) / 1000)
        into.hours[(last.ms - span.since_ms) // HOUR_MS] += 1
    elif last is not None and last.verdict == BOUNCED:
        into.bounced += 1


def differences(
    now: dict[tuple[str, str], GroupFigures], then: dict[tuple[str, str], GroupFigures]
) -> Iterable[tuple[str, str]]:
    """The groups that have something to say: those with more than one name, in a fixed order."""
    for group in GROUPS:
        names = sorted({name for where, name in (*now, *then) if where == group})
        if group == "all" or len(names) > 1:
            yield from ((group, name) for name in names)
