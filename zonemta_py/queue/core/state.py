"""The states of a recipient and every legal move between them. All that changes a recipient's state goes by this table.

A recipient is in one state. QUEUED: may go as soon as its destination can take it (its key is in `delivery-zone`, or in
`parked` while the destination cannot). LEASED: a sender has it; a start record says so, its key stays where it was, so
that a lost sender or a crash is nothing but the move back. DEFERRED: waits for its due time. HELD: waits for an
operator. The rest are ends: the recipient's key is gone, and with a message's last recipient all the message's keys.

              lease                 delivered
    QUEUED ───────────► LEASED ───────────────► DELIVERED
      ▲ ▲ ◄─────────────  │ │ ────────────────► BOUNCED
      │ │  not tried,     │ │     bounced
      │ │  worker lost    │ └─ held ► HELD ─ release ► DEFERRED
      │ └──── due ──── DEFERRED ◄─ deferred
      └ accepted               (any) ─ removed ► REMOVED

A released recipient is DEFERRED, due at once, so that its key is a new one (see `orders`).

Which record makes a move durable is in MOVES; a move without one is derived again after a crash.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from zonemta_py.disk.records import Type


class State(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    DEFERRED = "deferred"
    HELD = "held"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    REMOVED = "removed"


class Move(NamedTuple):
    """cause → (from, to), and the journal record that makes it durable (None: derived)."""

    cause: str
    before: State
    after: State
    record: Type | None


MOVES = (
    Move("lease", State.QUEUED, State.LEASED, Type.START),
    Move("delivered", State.LEASED, State.DELIVERED, Type.DELIVERY),
    Move("deferred", State.LEASED, State.DEFERRED, Type.DELIVERY),
    Move("bounced", State.LEASED, State.BOUNCED, Type.DELIVERY),
    Move("held", State.LEASED, State.HELD, Type.DELIVERY),
    Move("released", State.LEASED, State.QUEUED, Type.DELIVERY),
    Move("worker lost", State.LEASED, State.QUEUED, Type.IN_DOUBT),
    Move("worker lost, held", State.LEASED, State.HELD, Type.IN_DOUBT),
    Move("due", State.DEFERRED, State.QUEUED, None),
    Move("release", State.HELD, State.DEFERRED, Type.MOVED),
    Move("remove", State.QUEUED, State.REMOVED, Type.REMOVED),
    Move("remove", State.LEASED, State.REMOVED, Type.REMOVED),
    Move("remove", State.DEFERRED, State.REMOVED, Type.REMOVED),
    Move("remove", State.HELD, State.REMOVED, Type.REMOVED),
)

FAMILY = {"delivery-zone": State.QUEUED, "parked": State.QUEUED, "deferred": State.DEFERRED, "held": State.HELD}
"""The state that a recipient key's family stands for (a leased recipient keeps its key)."""


def legal(before: State, after: State) -> bool:
    return any(move.before == before and move.after == after for move in MOVES)
