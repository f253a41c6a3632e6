"""The states of a recipient and every legal move between them. All code that changes a state follows this table:
`Sizes.move` counts each change, and refuses one that is not listed.

A recipient is in one state. QUEUED: may go as soon as its destination can take it (its key is in `delivery-zone`, or in
`parked` while the destination cannot). DEFERRED: waits for its due time, and is leased directly when that has come.
LEASED: a sender has it; a start record says so, and its key stays in place, so that after a lost sender or a crash only
the move back is needed. HELD: waits for an operator. DELETED: deleted by a task that can
still be undone. BOUNCED: has ended, but is kept for a time, so that a task can queue it again; without such a time
(queue.keep_bounced_s) it is an end like others. NEW is the beginning, and all others are ends: the recipient has
no key, and with a message's last recipient all the message's keys are deleted.

    NEW ─ accepted ► QUEUED ──────── lease ───────► LEASED ─ delivered ► DELIVERED
     │                  ▲ ◄─ not tried, sender lost ─┘ │ │ ── bounced ─► BOUNCED
     │             due, but parked                     │ └─── held ────► HELD
     ├─ accepted, ► DEFERRED ◄──────── deferred ───────┘                  │
     │  for later       ▲ ─────── lease ──────► LEASED                    │
     └─ accepted, held ─┼───────────────────────────────────────► HELD    │
                        └───────────────────── release ───────────────────┘
                                 (any) ─ removed, or lost by damage ► REMOVED

A message that another queue of the MTA takes over is ELSEWHERE here, and NEW there, where its recipients are in the
states that they had.

An expired recipient is BOUNCED through a lease that no sender sees. A released recipient is DEFERRED, due at once, so
that its key is a new one (see `orders`).

Which record makes a move durable is in MOVES; a move without one is derived again after a crash.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from zonemta_py.journal.records import Type


class State(StrEnum):
    NEW = "new"
    QUEUED = "queued"
    LEASED = "leased"
    DEFERRED = "deferred"
    HELD = "held"
    DELETED = "deleted"
    BOUNCED = "bounced"
    DELIVERED = "delivered"
    REMOVED = "removed"
    ELSEWHERE = "elsewhere"


class Move(NamedTuple):
    """cause → (from, to), and the journal record that makes it durable (None: derived)."""

    cause: str
    before: State
    after: State
    record: Type | None


MOVES = (
    Move("accepted", State.NEW, State.QUEUED, Type.ENVELOPE),
    Move("accepted, for later", State.NEW, State.DEFERRED, Type.ENVELOPE),
    Move("accepted, held", State.NEW, State.HELD, Type.ENVELOPE),
    Move("suppressed", State.NEW, State.REMOVED, Type.REMOVED),
    Move("lease", State.QUEUED, State.LEASED, Type.START),
    Move("lease, due", State.DEFERRED, State.LEASED, Type.START),
    Move("delivered", State.LEASED, State.DELIVERED, Type.DELIVERY),
    Move("bounced", State.LEASED, State.BOUNCED, Type.DELIVERY),
    Move("deferred", State.LEASED, State.DEFERRED, Type.DELIVERY),
    Move("postponed", State.LEASED, State.DEFERRED, Type.DELIVERY),
    Move("held", State.LEASED, State.HELD, Type.DELIVERY),
    Move("not tried", State.LEASED, State.QUEUED, Type.DELIVERY),
    Move("sender lost", State.LEASED, State.QUEUED, Type.IN_DOUBT),
    Move("sender lost, was deferred", State.LEASED, State.DEFERRED, Type.IN_DOUBT),
    Move("sender lost, held", State.LEASED, State.HELD, Type.IN_DOUBT),
    Move("due, but parked", State.DEFERRED, State.QUEUED, None),
    Move("its zone is gone", State.QUEUED, State.DEFERRED, None),
    Move("its zone is gone", State.DEFERRED, State.DEFERRED, None),
    Move("its zone is gone", State.HELD, State.HELD, None),
    Move("its zone is gone", State.DELETED, State.DELETED, None),
    Move("its zone is gone", State.BOUNCED, State.BOUNCED, None),
    Move("release", State.HELD, State.DEFERRED, Type.MOVED),
    Move("deleted", State.QUEUED, State.DELETED, Type.TASK),
    Move("deleted", State.DEFERRED, State.DELETED, Type.TASK),
    Move("deleted", State.HELD, State.DELETED, Type.TASK),
    Move("deletion undone", State.DELETED, State.DEFERRED, Type.TASK),
    Move("deletion undone", State.DELETED, State.HELD, Type.TASK),
    Move("held by a task", State.QUEUED, State.HELD, Type.TASK),
    Move("held by a task", State.DEFERRED, State.HELD, Type.TASK),
    Move("hold undone", State.HELD, State.DEFERRED, Type.TASK),
    Move("release undone", State.DEFERRED, State.HELD, Type.TASK),
    Move("flush", State.DEFERRED, State.DEFERRED, Type.TASK),
    Move("set, or moved", State.QUEUED, State.DEFERRED, Type.TASK),
    Move("queued again", State.BOUNCED, State.DEFERRED, Type.TASK),
    Move("that undone", State.DEFERRED, State.BOUNCED, Type.TASK),
    Move("that undone", State.QUEUED, State.BOUNCED, Type.TASK),
    Move("kept no longer", State.BOUNCED, State.REMOVED, Type.REMOVED),
    Move("removed", State.DELETED, State.REMOVED, Type.REMOVED),
    Move("removed", State.QUEUED, State.REMOVED, Type.REMOVED),
    Move("removed", State.LEASED, State.REMOVED, Type.REMOVED),
    Move("removed", State.DEFERRED, State.REMOVED, Type.REMOVED),
    Move("removed", State.HELD, State.REMOVED, Type.REMOVED),
    *(
        move
        for state in (State.QUEUED, State.DEFERRED, State.HELD, State.DELETED, State.BOUNCED)
        for move in (
            Move("taken over", State.NEW, state, Type.TAKEN),
            Move("given to another queue", state, State.ELSEWHERE, Type.FINISH),
        )
    ),
)

FAMILY = {
    "delivery-zone": State.QUEUED,
    "parked": State.QUEUED,
    "deferred": State.DEFERRED,
    "held": State.HELD,
    "deleted": State.DELETED,
    "bounced": State.BOUNCED,
}
"""The state for each family of recipient keys (a leased recipient keeps its key)."""

COUNTED = {State.QUEUED: 0, State.DEFERRED: 1, State.HELD: 2, State.DELETED: 3, State.BOUNCED: 4}
"""The states that have a key, and each one's place in the value of `size` keys."""


COUNTED_BY_START = {b"defe": 1, b"held": 2, b"dele": 3, b"boun": 4}


def counted_as(key: bytes) -> int:
    """How the recipient of that key is counted."""
    return COUNTED_BY_START.get(key[:4], 0)


def _places(state: State) -> tuple[int | None, ...]:
    """As what a recipient in that state may be counted; None: not at all."""
    if state == State.LEASED:
        return COUNTED[State.QUEUED], COUNTED[State.DEFERRED]
    return (COUNTED.get(state),)


COUNTED_MOVES = frozenset(
    (before, after)
    for move in MOVES
    if move.after != State.LEASED  # the key stays
    for before in _places(move.before)
    for after in _places(move.after)
)
"""MOVES as `Sizes` sees them."""
