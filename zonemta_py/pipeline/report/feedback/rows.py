"""What came back, in few plain rows. Times: UNIX seconds, UTC.

Recipients count, not reports: each recipient of a message once for each kind, however often it is said. They belong to
the period in which their message was accepted, whenever they came; where no delivery of theirs is known, to that in
which they came. Only what is genuine is in a `ReturnCounts`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class ReturnCounts(NamedTuple):
    """Recipients by what came back of them; names as in a campaign's figures."""

    complaints: int = 0
    bounced_later: int = 0
    unsubscribes: int = 0
    auto_replies: int = 0
    opens: int = 0
    clicks: int = 0

    def plus(self, other: ReturnCounts) -> ReturnCounts:
        return ReturnCounts(*map(sum, zip(self, other, strict=True)))


FIGURES = {
    "complaint": "complaints", "bounce": "bounced_later", "unsubscribe": "unsubscribes", "auto-reply": "auto_replies",
    "open": "opens", "click": "clicks",
}  # fmt: skip
"""Which field of `ReturnCounts` counts each kind of feedback."""
TRACKED = ("opens", "clicks")
NAMES = {
    "complaints": "complaints", "bounced_later": "bounced later", "unsubscribes": "unsubscribes",
    "auto_replies": "automatic replies", "opens": "opens", "clicks": "clicks",
}  # fmt: skip
MARKS = (0.1, 0.3)
"""Complaints in per cent of what was delivered: large mailbox providers want less than the first, and treat mail of
senders that reach the second as unwanted (Google, "Email sender guidelines", since 2024; Yahoo says 0.3 too)."""
FEW = 100
"""A rate of fewer recipients delivered is not meaningful."""


class Delivered(NamedTuple):
    """Recipients delivered, and those of them in campaigns in which opens, or clicks, were told at all: elsewhere
    nothing was tracked, and their share would mean nothing."""

    all: int = 0
    opens: int = 0
    clicks: int = 0

    def of(self, figure: str) -> int:
        """What the share of a field of `ReturnCounts` is taken of."""
        return int(getattr(self, figure)) if figure in TRACKED else self.all


class RatedGroup(NamedTuple):
    """Of a provider or a campaign."""

    name: str
    delivered: Delivered
    came: ReturnCounts


class Cohort(NamedTuple):
    """Of the messages accepted in the step that begins at `at`."""

    at: int
    delivered: Delivered
    came: ReturnCounts = ReturnCounts()


class Arrival(NamedTuple):
    """What came back in the step that begins at `at`."""

    at: int
    came: ReturnCounts


class LaterBounce(NamedTuple):
    """Recipients whose mail had been delivered and bounced later, by the class of what was said."""

    cause: str
    provider: str
    campaign: str
    n: int


class KindCount(NamedTuple):
    """All that came of a kind, proven or not. at_once: opens so soon after the delivery that a proxy made them."""

    name: str
    genuine: int
    unproven: int


@dataclass(frozen=True)
class Returned:
    """All that a page shows of it. known: the lake has heard anything come back at all, of any mail."""

    known: bool = False
    now: ReturnCounts = field(default_factory=ReturnCounts)
    before: ReturnCounts = field(default_factory=ReturnCounts)
    """Of what it is compared with, as far as it had come back at the same age."""
    delivered: Delivered = field(default_factory=Delivered)
    kinds: list[KindCount] = field(default_factory=list)
    at_once: int = 0
    """Opens so soon after the delivery that a proxy made them; they are in no `ReturnCounts`."""
    providers: list[RatedGroup] = field(default_factory=list)
    campaigns: list[RatedGroup] = field(default_factory=list)
    cohorts: list[Cohort] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    bounces: list[LaterBounce] = field(default_factory=list)
    step_s: int = 3600
    """Of `arrivals`; that of `cohorts` is `scope.cohort_s`."""
