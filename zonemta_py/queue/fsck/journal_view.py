"""What the journal says is alive, record by record: the check compares the store with it."""

from __future__ import annotations

import sys

from zonemta_py.disk import packing
from zonemta_py.disk.frame import Record
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import LostRecord
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DELIVERED,
    HELD,
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    MovedRecord,
    OutcomeRow,
    RemovedRecord,
    StartRecord,
    Who,
    address_of,
)
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.queue.fsck import feedback, suppressions


class Truth:
    """What the journal says is alive."""

    def __init__(self, own_from: int = sys.maxsize) -> None:
        """own_from: records from this number on were written by the recovery that is under way, from the store."""
        self.alive: dict[str, dict[str, tuple[str, int, str | None]]] = {}
        self.senders: dict[str, str] = {}
        self.ended: set[str] = set()
        self.records = 0
        self.lost = False
        self.lost_before: set[str] = set()
        """Messages lost to damage that an earlier repair has ended."""
        self.listed, self.heard = suppressions.Listed(), feedback.Heard()
        self.deleted: dict[tuple[str, str], int] = {}
        """By message and recipient: the task that has deleted it, unless that was undone."""
        self.bounced: dict[tuple[str, str], int] = {}
        """By message and recipient: until when one that has bounced is kept. It is alive, in a way."""
        self.held: set[tuple[str, str]] = set()
        """By message and recipient: those that wait for an operator."""
        self.now_ms = 0
        """Of the last record."""
        self.gaps = False
        """Archived segments are missing that may hold the ends of mail."""
        self.lost_ranges: list[tuple[int, int]] = []
        """The numbers of records that are lost to damage."""
        self._unsure: set[str] = set()
        """Messages that were alive when a part of the journal was lost: their ends may have been in it."""
        self._proved: set[tuple[str, str]] = set()
        """Recipients of these that were alive after that."""
        self._own_from = own_from
        self._next = 0

    def sure(self, message_id: str, address: str) -> bool:
        """Whether the end of that recipient, if there was one, would be in a record that is still there."""
        return message_id not in self._unsure or (message_id, address) in self._proved

    def take_older(self, record: Record) -> None:
        """One of a segment that has left the journal."""
        if record.type == Type.FINISH:
            self.ended.add(FinishRecord.of(packing.unpack(record.body)).id)

    def take(self, record: Record) -> None:
        self.records += 1
        self.now_ms = max(self.now_ms, record.ms)
        gap = 0 < self._next < record.seq
        if gap or record.type == Type.LOST:
            self._unsure |= {message_id for message_id, alive in self.alive.items() if alive}
            self._proved.clear()
        self.gaps |= gap and record.type != Type.LOST
        self._next = record.seq + 1
        self.listed.take(record)
        self.heard.take(record)
        if record.type == Type.ENVELOPE:
            envelope = EnvelopeRecord.of(packing.unpack(record.body))
            self.senders[envelope.id] = str(envelope.metadata.get("sender") or "")
            known = self.alive.setdefault(envelope.id, {})
            for row in envelope.rows():
                known[row.address] = (row.zone, row.notify, row.orcpt)
            if record.seq >= self._own_from:
                self._unsure.add(envelope.id)
        elif record.type == Type.START:
            if self._unsure:
                start = StartRecord.of(packing.unpack(record.body))
                self._proved |= {(start.id, address_of(who)) for who in start.recipients if start.id in self._unsure}
        elif record.type == Type.MOVED:
            moved = MovedRecord.of(packing.unpack(record.body))
            self.held.difference_update((moved.id, address) for address in moved.recipients)
        elif record.type == Type.IN_DOUBT:
            rows = InDoubtRecord.of(packing.unpack(record.body)).recipients
            self.held |= {(row.id, row.address) for row in rows if row.action == "hold" and row.id in self.alive}
        elif record.type == Type.DELIVERY:
            delivery = DeliveryRecord.of(packing.unpack(record.body))
            for outcome in delivery.outcomes:
                if outcome.verdict == DELIVERED:
                    self._end(delivery.id, outcome.addresses())
                elif outcome.verdict == BOUNCED:
                    self._bounced(delivery.id, outcome)
                elif outcome.verdict == HELD:
                    self.held |= {(delivery.id, address) for address in outcome.addresses()}
        elif record.type == Type.REMOVED:
            removed = RemovedRecord.of(packing.unpack(record.body))
            self._end(removed.id, removed.recipients)
            if removed.case is not None:
                self.lost_before.add(removed.id)
        elif record.type == Type.FINISH:
            message_id = FinishRecord.of(packing.unpack(record.body)).id
            if message_id in self.lost_before and self.alive.get(message_id):
                return  # lost with one of its recipients; the others follow in later records
            self.alive.pop(message_id, None)
            self.senders.pop(message_id, None)
            self.ended.add(message_id)
        elif record.type == Type.TASK:
            self._done(TaskRecord.of(packing.unpack(record.body)))
        elif record.type == Type.LOST:
            self.lost = True
            gone = LostRecord.of(packing.unpack(record.body))
            self.lost_ranges.append((gone.first, gone.last))

    def _bounced(self, message_id: str, outcome: OutcomeRow) -> None:
        people = [Who.of(who) for who in outcome.recipients]
        self._end(message_id, [who.address for who in people if not who.due_ms])
        if message_id in self.alive:
            self.bounced |= {(message_id, who.address): who.due_ms for who in people if who.due_ms}

    def _done(self, task: TaskRecord) -> None:
        """A recipient whose key is lost comes back as what a task has made of it."""
        if task.what not in ("did", "undid"):
            return
        _, rows, _, verb, change = task.value[:5]
        for message_id, address, _, _, *more in rows:
            if verb == "requeue":
                self.bounced.pop((message_id, address), None)
                if len(more) > 1:  # undone
                    self.bounced[message_id, address] = more[1]
            elif verb in ("delete", "purge"):
                if task.what == "did":
                    self.deleted[message_id, address] = task.number
                else:
                    self.deleted.pop((message_id, address), None)
            elif verb in ("hold", "release"):
                held = (verb == "hold") == (task.what == "did")
                (self.held.add if held else self.held.discard)((message_id, address))
            elif verb == "move" and task.what == "did" and address in self.alive.get(message_id, {}):
                self.alive[message_id][address] = (change["zone"], *self.alive[message_id][address][1:])

    def _end(self, message_id: str, addresses: list[str]) -> None:
        known = self.alive.get(message_id)
        if known is not None:
            for address in addresses:
                known.pop(address, None)
                self.held.discard((message_id, address))
                self.bounced.pop((message_id, address), None)
                self.deleted.pop((message_id, address), None)
