"""TAKEN: what this queue has taken over from another one of the same MTA (`queues.moving`): a message that was accepted
there, or what that queue knew. Nothing of it is told or counted as new: the other queue's journal has what came before.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from zonemta_py.disk.packing import pack

MESSAGE, REQUESTS, DOUBTS, CAMPAIGN, TASK, FEEDBACK = "message", "requests", "doubts", "campaign", "task", "feedback"
"""What it may be. Values: FORMAT.md."""


FAMILIES = ("delivery-zone", "deferred", "held", "deleted", "parked", "bounced")
"""Of recipients' keys, as they are numbered in these and in TASK records. The order must not change."""


class TakenRecord(NamedTuple):
    """what: one of this module. queue: the number of the one that had it."""

    what: str
    queue: int
    value: Any

    def pack(self) -> bytes:
        return pack(self)

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        return cls(*fields[:3])


class TakenRow(NamedTuple):
    """A recipient of a message that was taken over. family: a place in FAMILIES. middle: of its key, as there:
    its due, task, destination or until."""

    zone: str
    address: str
    notify: int = 0
    orcpt: str | None = None
    family: int = 0
    middle: Any = None

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        return cls(*fields[:6])


class TakenMessage(NamedTuple):
    """recipients: fields of `TakenRow`. doubts: those listed as in doubt: [address, zone, since_ms, action, why]."""

    id: str
    metadata: dict[str, Any]
    recipients: list[list[Any]]
    doubts: list[list[Any]]

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        return cls(*fields[:4])

    def rows(self) -> list[TakenRow]:
        return [TakenRow.of(row) for row in self.recipients]
