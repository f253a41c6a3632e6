"""What an authority and the holders of its grants say to each other, ready for msgpack, which makes lists of it.

A connection begins with Welcome. The holder answers with Hello, its statement of all that it has; from then on it sends
an Asking each BEAT_S, or sooner where it has something to say, and each is followed by a Granting. What is given and
given back is said as differences, so that it may cross on its way. Messages of one connection arrive in order or not at
all.

A moment in a message (`sent`, `echo`) is by the steady clock of whoever sent it first, and is compared with that clock
only. No two clocks need to agree; all have to run equally fast, but for MARGIN_S in a lease.
"""

from __future__ import annotations

import math
from typing import NamedTuple

PARTS = 720_720
"""A rate is given out in so many parts, each with its part of the burst: all numbers up to 16 divide it."""
LEASE_S = 2.0
"""Rates are a holder's for so long since it asked, by its own clock."""
MARGIN_S = 0.25
"""And are given to others so much later, by the authority's clock."""
BEAT_S = 0.5
GAP_S = 0.005
"""Between two messages of a holder at least."""
TURN_S = 1.0
"""Who has all of what cannot be divided gives it back after so long, if others wait."""
KEEP_S = 0.25
"""Or before, if it could not use it for so long."""
IDLE_S = 2.0
"""A share that others could use comes back when it was not used for so long."""
DRIFT = 0.0005
"""Of two clocks, at most."""
RATES = ("messages", "recipients", "new_connections", "bytes")
SLOTS, ZONE_SLOTS, QUOTA = "connections", "zone", "quota"
COUNTS = SLOTS, ZONE_SLOTS, QUOTA

Id = tuple[str, ...]
"""Of a resource: its kind (one of RATES or COUNTS), and the key of its limit."""


class Welcome(NamedTuple):
    """Authority → holder. life: the holder's shares of rates are still its own if it has them since this number, given
    by the authority `era`; adopting: or whoever gave them, for this one does not know yet."""

    era: str
    session: int
    life: int
    adopting: bool
    sent: float
    type: str = "welcome"


class Held(NamedTuple):
    """One resource in a statement. size, burst: the whole limit, units a second, or units. has: parts, or units.
    level: what is there. used: what the holder itself has taken of the whole and has not refilled. in_use: slots open,
    or quota spent. cost: the largest that may have been taken at once."""

    id: Id
    size: float
    burst: float
    has: int
    level: float
    used: float
    in_use: int
    cost: float


class Hello(NamedTuple):
    """Holder → authority. process: which process of the queue. haunted: connections of an earlier one may be open."""

    session: int
    process: str
    haunted: bool
    sent: float
    rows: list[Held]
    type: str = "hello"


class Used(NamedTuple):
    """One resource in an Asking. back: parts, or units, given back, and with them so much of the level. taken: since
    the last row. hungry: somebody waited for it since then."""

    id: Id
    size: float
    burst: float
    back: int
    level: float
    taken: float
    hungry: bool
    in_use: int
    cost: float


class Asking(NamedTuple):
    """Holder → authority. needs: [number, [[id, cost], …]] that go together, new or asked for again. served: numbers of
    those that are over."""

    session: int
    haunted: bool
    sent: float
    rows: list[Used]
    needs: list[tuple[int, list[tuple[Id, float]]]]
    served: list[int]
    type: str = "asking"


class Granted(NamedTuple):
    """So many parts or units more. turn_s: for so long; 0: nobody else wants it; below 0: others have some too."""

    id: Id
    more: int
    level: float
    turn_s: float


class Granting(NamedTuple):
    """Authority → holder. echo: `sent` of the last message heard. cuts: [id, how much it may have at most]."""

    session: int
    sent: float
    echo: float
    adds: list[Granted]
    cuts: list[tuple[Id, int]]
    type: str = "granting"


class Lag:
    """How much later than the quickest a message of one sender comes: it was on its way for so long at least."""

    __slots__ = ("_at", "_least")

    def __init__(self) -> None:
        self._least, self._at = math.inf, 0.0

    def late(self, sent: float, now: float) -> float:
        """Seconds."""
        apart = now - sent
        self._least = min(self._least + DRIFT * (now - self._at), apart)
        self._at = now
        return apart - self._least
