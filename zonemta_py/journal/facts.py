"""What a journal record says, as facts. Whoever tells of mail, or counts it, reads these and takes no record apart.

A record that says one thing is that fact itself: an ENVELOPE that a message was accepted, a START that it was
attempted. Of those that say several, each has a class here. Verdicts have one word each (`VERDICTS`).

Promise: `facts_of` is pure, and gives the same of a record whenever it is read. Records about the journal itself
(SEGMENT, POSITION, END) say nothing of mail. Failures: one of MISFITS, for a body that does not fit its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import LostRecord as Lost
from zonemta_py.journal.records.mail import VERDICTS, DeliveryTrace, InDoubtRecord, OutcomeRow, Who, address_of
from zonemta_py.journal.records.mail import EnvelopeRecord as Accepted
from zonemta_py.journal.records.mail import FinishRecord as Ended
from zonemta_py.journal.records.mail import InDoubtRow as Doubted
from zonemta_py.journal.records.mail import MovedRecord as Moved
from zonemta_py.journal.records.mail import OpenRecord as Opened
from zonemta_py.journal.records.mail import RemovedRecord as Removed
from zonemta_py.journal.records.mail import StartRecord as Attempted
from zonemta_py.journal.records.orders import StandingRecord as Stood
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.journal.records.people import FeedbackRecord as CameBack
from zonemta_py.journal.records.people import SuppressRow as Suppressed
from zonemta_py.journal.records.people import UnsuppressRecord
from zonemta_py.journal.records.taken import MESSAGE, TakenMessage, TakenRecord

__all__ = [
    "MISFITS",
    "Accepted",
    "Answered",
    "Attempted",
    "CameBack",
    "Doubted",
    "Ended",
    "Fact",
    "Lost",
    "Moved",
    "Opened",
    "Removed",
    "StateTaken",
    "Stood",
    "Suppressed",
    "TakenBack",
    "TakenOver",
    "TaskDid",
    "TaskOrdered",
    "Unsuppressed",
    "facts_of",
]  # fmt: skip
MISFITS = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)


class Answered(NamedTuple):
    """These recipients of a DELIVERY have the same answer; fields as of its outcome and itself. A recipient's due_ms:
    of one that has bounced, until when it is kept."""

    id: str
    zone: str
    destination: str
    lease: int
    trace: DeliveryTrace
    number: int
    code: int
    enhanced: str
    text: str
    stage: str
    recipients: list[Any]
    relayed: bool
    kind: str
    rule: str
    agreed: bool
    by: list[str] | None
    about: list[Any] | None = None

    @property
    def verdict(self) -> str:
        """One of VERDICTS; "verdict 9" of a later version."""
        return VERDICTS.get(self.number) or f"verdict {self.number}"

    @property
    def people(self) -> list[str]:
        return [address_of(who) for who in self.recipients]

    @property
    def who(self) -> list[Who]:
        return [Who.of(who) for who in self.recipients]


class TakenBack(NamedTuple):
    """A lease that its sender never received."""

    lease: int


class TakenOver(NamedTuple):
    """Another queue of the MTA had that message; fields as of `TakenMessage`."""

    queue: int
    id: str
    metadata: dict[str, Any]
    recipients: list[list[Any]]
    doubts: list[list[Any]]

    @property
    def message(self) -> TakenMessage:
        return TakenMessage(*self[1:])

    @property
    def people(self) -> list[str]:
        return [row[1] for row in self.recipients]


class StateTaken(NamedTuple):
    """Another queue of the MTA knew that."""

    what: str
    queue: int
    value: Any


class TaskOrdered(NamedTuple):
    """A task was ordered, canceled or undone, or has ended. value: see queue/tasks/FORMAT.md."""

    task: int
    what: str
    value: dict[str, Any]


class TaskDid(NamedTuple):
    """A task has changed a recipient, or that was undone. zone: where it was; now_in: where it is. kept_until_ms: it is
    a bounce again, and kept until then."""

    id: str
    zone: str
    recipient: str
    flow: str
    kept_until_ms: int | None
    task: int
    verb: str
    undone: bool
    now_in: str
    now_ms: int
    about: list[Any] | None = None


class Unsuppressed(NamedTuple):
    """Taken off the suppression list."""

    recipient: str
    scope: str
    by: str
    again: bool = False


Fact: TypeAlias = (
    Accepted | Opened | Attempted | Answered | Ended | Doubted | TakenBack | Removed | Moved | TaskOrdered | TaskDid
    | Stood | Suppressed | Unsuppressed | CameBack | Lost | TakenOver | StateTaken
)  # fmt: skip


def facts_of(record: Record) -> list[Fact]:
    """In the order of what it says. Raises MISFITS."""
    if (one := RECORDS.get(record.type)) is not None:
        return [one.of(unpack(record.body))]
    several = _SEVERAL.get(record.type)
    return several(unpack(record.body), record.seq) if several is not None else []


_NO_OUTCOME = tuple(OutcomeRow._field_defaults.values())


def _answered(body: list[Any], _: int) -> list[Fact]:
    lease, message, zone, destination, outcomes, trace = body[:6]
    known = message, zone, destination, lease, DeliveryTrace.of(trace)
    about = body[7] if len(body) > 7 else None
    return [Answered._make((*known, *row[:11], *_NO_OUTCOME[len(row) - 6 :], about)) for row in outcomes]


def _doubted(body: list[Any], _: int) -> list[Fact]:
    one = InDoubtRecord.of(body)
    return [*one.recipients] or [TakenBack(lease) for lease in one.leases]


def _of_task(body: list[Any], seq: int) -> list[Fact]:
    what, number, value = TaskRecord.of(body)
    if what not in ("did", "undid"):
        return [TaskOrdered(number or seq, what, value)]
    zone, rows, now_ms, verb, change = value[:5]
    undone = what == "undid"
    now_in = zone if undone else change.get("zone", zone)
    return [
        TaskDid(row[0], zone, row[1], *_task_row(*row[4:6]), number, verb, undone, now_in, now_ms, *row[6:7])
        for row in rows
    ]


def _task_row(flow: str = "", until_ms: int | None = None) -> tuple[str, int | None]:
    return flow, until_ms


def _unsuppressed(body: list[Any], _: int) -> list[Fact]:
    one = UnsuppressRecord.of(body)
    scopes = one.scopes if one.scopes is not None else ["all"] * len(one.addresses)
    return [
        Unsuppressed(address, scope, one.by, one.again) for address, scope in zip(one.addresses, scopes, strict=True)
    ]


def _taken(body: list[Any], _: int) -> list[Fact]:
    what, queue, value = TakenRecord.of(body)
    return [TakenOver(queue, *TakenMessage.of(value)) if what == MESSAGE else StateTaken(what, queue, value)]


_SEVERAL: dict[int, Callable[[Any, int], list[Fact]]] = {
    Type.DELIVERY: _answered,
    Type.IN_DOUBT: _doubted,
    Type.TASK: _of_task,
    Type.SUPPRESS: lambda body, _: [Suppressed.of(row) for row in body],
    Type.UNSUPPRESS: _unsuppressed,
    Type.TAKEN: _taken,
}
RECORDS: dict[int, Any] = {
    Type.ENVELOPE: Accepted, Type.OPEN: Opened, Type.START: Attempted, Type.FINISH: Ended, Type.REMOVED: Removed,
    Type.MOVED: Moved, Type.LOST: Lost, Type.STANDING: Stood, Type.FEEDBACK: CameBack,
}  # fmt: skip
"""Types of which each record is one fact."""
