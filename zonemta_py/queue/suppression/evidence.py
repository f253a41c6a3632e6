"""What speaks against writing to a person again: refusals, complaints; and when it is enough. Pure.

Items are of another message and another day for each group of classes and tenant, so that they are few; a refusal that
is agreed (`mail.rules.rule.Classified`) takes the place of one that is not. What a delivery clears: refusals that came
in the dialogue before it, at once. A message that bounced later was "delivered" before: so refusals that were reported
are cleared by a message that no report has followed for ACCEPTED_MS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zonemta_py.config.suppression import GROUPS, Tolerance, Tolerances
from zonemta_py.disk import packing
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED
from zonemta_py.mail.rules.classes import CLASSES

OF_CLASS = {name: one.suppresses for name, one in CLASSES.items() if one.suppresses}
"""The group of a class of replies that is about the recipient; others never count."""
COUNTED = {"unknown": (BOUNCED,), "inactive": (BOUNCED, DEFERRED), "full": (BOUNCED, DEFERRED),
           "domain": (BOUNCED, DEFERRED)}  # fmt: skip
GUARDED = frozenset(("unknown", "inactive"))
"""Groups of which one refusal may be enough: a guard holds them back where a provider says so of many at once."""
COMPLAINT, UNSUBSCRIBE = "complaint", "unsubscribe"
AT_ONCE = (UNSUBSCRIBE, COMPLAINT)
"""Groups of which one is enough, whatever the configuration says: the person has said so."""
WHY = {
    "unknown": "the address does not exist", "inactive": "the mailbox is not used any more",
    "full": "the mailbox has been full for a long time", "domain": "the domain no longer accepts mail",
    COMPLAINT: "a complaint", UNSUBSCRIBE: "an unsubscribe",
}  # fmt: skip
REPORT = "report"
"""Stage of a reply that a bounce message quotes."""
ITEMS_MAX = 12
"""Of one group and tenant: the first one and the latest."""
DAY_MS = 86_400_000
KEPT_MS = 90 * DAY_MS
ACCEPTED_MS = 2 * DAY_MS


class Item(NamedTuple):
    """One refusal, complaint or unsubscribe. ms: steady time. message: what tells it from others: our id of the
    message, or whatever names it. at: which provider told which source (`guard.name_of`). held: the guard holds it
    back, or did. said: the reply. scope: of an unsubscribe; of a refusal that somebody with a scope has reported, the
    only one that it counts for."""

    group: str
    ms: int
    message: str
    tenant: str = ""
    agreed: bool = False
    held: bool = False
    at: str = ""
    kind: str = ""
    said: str = ""
    stage: str = ""
    campaign: str = ""
    scope: str = ""

    @property
    def within(self) -> str:
        """The only scope that this refusal counts for; "": as the tenant's terms say."""
        return self.scope if self.group in GROUPS else ""

    @property
    def day(self) -> int:
        """The day by UTC."""
        return self.ms // DAY_MS


def is_final(item: Item) -> bool:
    """Whether it says that the person cannot be reached, and not only that it is so now: a guard counts those."""
    return item.group in GUARDED and not item.said.startswith("4")


@dataclass(slots=True)
class Evidence:
    """Of one person. accepted: the last message that the person's server took, and when (steady ms); only noted
    where a report may follow. listed: scopes of the entries that it has led to."""

    who: str
    items: list[Item] = field(default_factory=list)
    accepted: tuple[str, int] | None = None
    listed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, who: str, value: bytes) -> Evidence:
        """Raises ValueError, TypeError."""
        items, accepted, listed = packing.unpack(value)[:3]
        return cls(who, [Item(*row[:12]) for row in items], tuple(accepted) if accepted else None, list(listed))

    def value(self) -> bytes:
        return packing.pack([self.items, self.accepted, self.listed])

    def copy(self) -> Evidence:
        return Evidence(self.who, list(self.items), self.accepted, list(self.listed))

    def add(self, item: Item) -> bool:
        """False: nothing new."""
        of = item.group, item.tenant, item.scope
        alike = [one for one in self.items if (one.group, one.tenant, one.scope) == of]
        if item.stage == REPORT and self.accepted is not None:
            self.accepted = None
        same = [one for one in alike if one.message == item.message or one.day == item.day]
        if same and (any(one.agreed and not one.held for one in same) or not item.agreed or item.held):
            return False
        for one in same:
            self.items.remove(one)
        alike = [one for one in alike if one not in same]
        if len(alike) >= ITEMS_MAX:
            self.items.remove(alike[1])
        self.items.append(item)
        return True

    def delivered(self, message: str, ms: int) -> bool:
        """The person's server took a message. False: nothing is cleared by that."""
        before = len(self.items), self.accepted
        refusals = [one for one in self.items if one.group not in AT_ONCE]
        late = self.accepted is not None and ms - self.accepted[1] >= ACCEPTED_MS
        gone = [one for one in refusals if late or one.stage != REPORT]
        if gone:
            self.items = [one for one in self.items if one not in gone]
        if self.accepted is None or late:
            self.accepted = (message, ms)
        return before != (len(self.items), self.accepted)

    def forget_old(self, ms: int) -> None:
        self.items = [one for one in self.items if ms - one.ms < KEPT_MS]

    @property
    def empty(self) -> bool:
        return not self.items and not self.listed


class Enough(NamedTuple):
    """Enough of it. group: of which; items: those that count."""

    group: str
    items: list[Item]


def enough(evidence: Evidence, terms: Tolerances, tenant: str, ms: int, within: str = "") -> Enough | None:
    """What is enough to write to the person no more, by the terms of that tenant; None: nothing is. ms: steady time.
    within: only what counts for that scope alone."""
    if not terms.automatic:
        return None
    for group in GROUPS:
        items = counted(evidence, terms, group, tenant, ms, within)
        if is_enough(items, terms.tolerance(group)):
            return Enough(group, items)
    return None


def counted(evidence: Evidence, terms: Tolerances, group: str, tenant: str, ms: int, within: str = "") -> list[Item]:
    """The refusals of a group that count: one for each message and day."""
    since = ms - int(terms.tolerance(group).within_days * DAY_MS)
    items, messages, days = list[Item](), set[str](), set[int]()
    for item in sorted(evidence.items, key=lambda one: (not _sure(one), one.ms)):
        own = item.within == within and (terms.scope == "all" or item.tenant == tenant)
        theirs = item.group == group and own
        if theirs and item.ms >= since and item.message not in messages and item.day not in days:
            items.append(item)
            messages.add(item.message)
            days.add(item.day)
    return sorted(items, key=lambda one: one.ms)


def is_enough(items: list[Item], tolerance: Tolerance) -> bool:
    if not items:
        return False
    if tolerance.agreed and sum(map(_sure, items)) >= tolerance.agreed:
        return True
    lasted_ms = items[-1].ms - items[0].ms
    return 0 < tolerance.after <= len(items) and lasted_ms >= tolerance.over_days * DAY_MS


def _sure(item: Item) -> bool:
    return item.agreed and not item.held
