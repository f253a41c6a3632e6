"""What `facts` finds and `sections` shows: few plain rows, whatever the size of the lake. Times: UNIX seconds, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zonemta_py.pipeline.report.feedback.rows import Returned

KINDS = ("delivered", "deferred", "bounced", "blocked")
"""How an attempt ended. Blocked: deferred or bounced with one of `classes.BLOCKED_CLASSES`, as campaigns count."""

NO_PROVIDER = "other sites"
"""Provider of attempts at sites that have none, and at smart hosts."""


class AttemptCounts(NamedTuple):
    """Attempts by how they ended."""

    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    blocked: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def trouble(self) -> int:
        return self.total - self.delivered

    def plus(self, other: AttemptCounts) -> AttemptCounts:
        return AttemptCounts(*map(sum, zip(self, other, strict=True)))


class Moment(NamedTuple):
    at: int
    attempts: AttemptCounts


class Cell(NamedTuple):
    """One hour at one provider. hour: its first second; 0 to 82,800 (of the day) where days lie over each other."""

    provider: str
    hour: int
    attempts: AttemptCounts


class Pair(NamedTuple):
    source: str
    provider: str
    attempts: AttemptCounts
    secure: int
    """Delivered attempts that were encrypted."""


class Domain(NamedTuple):
    """Recipients at a domain, by what became of them."""

    name: str
    recipients: int
    delivered: int
    bounced: int
    removed: int
    waiting: int
    deleted: int = 0


class Cause(NamedTuple):
    """Attempts that were not delivered, by the class of the reply."""

    name: str
    kind: str
    n: int


class Said(NamedTuple):
    """A reply with its changing parts left out, how often it came, and one of them as it was."""

    cause: str
    kind: str
    shape: str
    n: int
    example: str


class Bin(NamedTuple):
    low_s: float
    high_s: float
    n: int


class Tried(NamedTuple):
    """Recipients that have seen so many attempts, by what became of them."""

    attempts: int
    state: str
    n: int


class WarmDay(NamedTuple):
    """cap: recipients a day that the warm-up allowed; None: not known, or without a limit."""

    source: str
    provider: str
    day: int
    sent: int
    cap: int | None


class Left(NamedTuple):
    """At that moment, of those accepted until then."""

    at: int
    accepted: int
    delivered: int
    waiting: int


class Totals(NamedTuple):
    """The headline. Recipients are those accepted in the period, whatever became of them and when; attempts are
    those made in it. median_s and p95_s: from acceptance to delivery, within 3 %; None if nothing was delivered.

    recipients = delivered + bounced + removed + deleted + waiting, as `metrics.quantities` has them: held ones wait,
    those deleted can be put back, and those suppressed, that is left out at acceptance, are none of them."""

    recipients: int = 0
    delivered: int = 0
    bounced: int = 0
    waiting: int = 0
    attempts: AttemptCounts = AttemptCounts()
    median_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    removed: int = 0
    held: int = 0
    suppressed: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Facts:
    """All that a page shows."""

    now: Totals = field(default_factory=Totals)
    before: Totals = field(default_factory=Totals)
    moments: list[Moment] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    domains: list[Domain] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    latency: list[Bin] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    warm: list[WarmDay] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    returned: Returned = field(default_factory=Returned)
    ends: int | None = None
    """When none will be waiting, at the present rate; None: none is, or nothing is delivered."""

    @property
    def empty(self) -> bool:
        return not (self.now.recipients or self.now.attempts.total)
