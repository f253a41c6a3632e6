"""What the journal says is alive, record by record: what `check` holds the store against."""

from __future__ import annotations

from zonemta_py.disk import records
from zonemta_py.disk.frame import Record
from zonemta_py.disk.records import Type
from zonemta_py.queue.api import BOUNCED, DELIVERED
from zonemta_py.queue.fsck import suppressions
from zonemta_py.queue.lifecycle.lost import LOST


class Truth:
    """What the journal says is alive."""

    def __init__(self) -> None:
        self.alive: dict[str, dict[str, tuple[str, int, str | None]]] = {}
        self.senders: dict[str, str] = {}
        self.ended: set[str] = set()
        self.records = 0
        self.lost = False
        self.lost_before: set[str] = set()
        """Messages that damage has cost, and that an earlier repair has ended."""
        self.listed = suppressions.Listed()
        self.gaps = False
        """Archived segments are gone that may hold the ends of mail: what the store has not is over."""
        self._next = 0

    def take(self, record: Record) -> None:
        self.records += 1
        self.gaps |= 0 < self._next < record.seq and record.type != Type.LOST
        self._next = record.seq + 1
        self.listed.take(record)
        if record.type == Type.ENVELOPE:
            message_id, metadata, rows = records.unpack(record.body)[:3]
            self.senders[message_id] = str(metadata.get("sender") or "")
            known = self.alive.setdefault(message_id, {})
            for zone, address, notify, orcpt in rows:
                known[address] = (zone, notify, orcpt)
        elif record.type == Type.DELIVERY:
            body = records.unpack(record.body)
            for outcome in body[4]:
                if outcome[0] in (DELIVERED, BOUNCED):
                    self._end(body[1], [who[0] if isinstance(who, list) else who for who in outcome[5]])
        elif record.type == Type.REMOVED:
            body = records.unpack(record.body)
            self._end(body[0], body[2])
            if len(body) > 4 and LOST in body[4]:
                self.lost_before.add(body[0])
        elif record.type == Type.FINISH:
            message_id = records.unpack(record.body)[0]
            if message_id in self.lost_before and self.alive.get(message_id):
                return  # it was found lost with one of its recipients; the others have not been named yet
            self.alive.pop(message_id, None)
            self.senders.pop(message_id, None)
            self.ended.add(message_id)
        elif record.type == Type.LOST:
            self.lost = True

    def _end(self, message_id: str, addresses: list[str]) -> None:
        known = self.alive.get(message_id)
        if known is not None:
            for address in addresses:
                known.pop(address, None)
