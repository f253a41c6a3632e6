"""The orders of an MTA with several queues, in one order, numbered from 1: a log that the authority keeps.

An order is on stable storage here before any queue hears of it. A queue notes the number of the last one that it has
carried out; when it starts, it is given those that follow before it may lease anything. An order that no queue has
taken is *void*: none hears of it any more. What all queues have carried out is dropped.

The file has the journal's frames (`disk/frame.py`). A crash may leave the last one torn: nobody has heard of that
order. Damage costs the orders in it, which are named (`lost`): a queue that had not carried them out lacks them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.disk import frame, packing
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.frame import Damage, Record

GIVEN, VOID, BASE = 1, 2, 3
"""Types of records. BASE: numbered as the last order that was dropped; its body is the number of the last one that was
given."""
ROOM_BYTES = 1 << 22
"""The file is written anew when it is larger, without what all queues have."""


class GivenOrder(NamedTuple):
    """ms: UNIX time when it was given. question: one of `queue.questions`."""

    number: int
    ms: int
    question: str
    arguments: dict[str, Any]


class KnownOrders:
    """The orders of a log that queues may still be given."""

    def __init__(self) -> None:
        self._orders: dict[int, GivenOrder] = {}
        self.last = 0
        """The number of the last one."""
        self.dropped = 0
        """Those up to there are not kept."""
        self.lost: list[str] = []
        """What is damaged or missing, each a sentence."""

    def given(self, order: GivenOrder) -> None:
        """From now on queues get it."""
        self.last = max(self.last, order.number)
        self._orders[order.number] = order

    def get(self, number: int) -> GivenOrder | None:
        """None: it is void, or all queues have it."""
        return self._orders.get(number)

    def after(self, number: int) -> Iterator[GivenOrder]:
        """Those that follow, in their order."""
        return (self._orders[place] for place in sorted(self._orders) if place > number)

    def skip(self, number: int) -> None:
        """A queue has carried out orders up to there, of which this log knows nothing: it is ahead."""
        self.last = max(self.last, number)


def record_of(order: GivenOrder) -> Record:
    """As a log has it."""
    return Record(order.number, order.ms, GIVEN, packing.pack([order.question, order.arguments]))


def given_in(record: Record) -> GivenOrder:
    """The order of a record GIVEN."""
    question, arguments = packing.unpack(record.body)
    return GivenOrder(record.seq, record.ms, question, arguments)


class OrderLog(KnownOrders):
    """Of one MTA. Raises OSError: then nothing has been added."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        damages: list[Damage] = []
        data = path.read_bytes() if path.exists() else b""
        for record in frame.parse(data, damages):
            self._take(record)
        torn = bool(damages) and damages[-1].what == "cut off"
        for damage in damages[:-1] if torn else damages:
            self.lost.append(f"{path}: damaged at byte {damage.offset} ({damage.what}); orders there are lost")
        if damages:
            keep = path.with_name(f"{path.name}.damaged")
            if not torn or len(damages) > 1:
                replace_file(keep, data)
        self._write()

    def _take(self, record: Record) -> None:
        self.last = max(self.last, record.seq)
        if record.type == BASE:
            self.dropped, self.last = record.seq, packing.unpack(record.body)
        elif record.type == GIVEN:
            self._orders[record.seq] = given_in(record)
        elif record.type == VOID:
            self._orders.pop(record.seq, None)

    def write(self, ms: int, question: str, arguments: dict[str, Any]) -> GivenOrder:
        """The next one, on stable storage when this returns, which a thread may do; `given` must follow."""
        order = GivenOrder(self.last + 1, ms, question, arguments)
        self._append(record_of(order))
        return order

    def settle(self, number: int, settled: dict[str, Any]) -> GivenOrder:
        """What is meant by it, as a queue has found out: the others carry it out so."""
        order = self._orders[number]
        order = order._replace(arguments=order.arguments | settled)
        self._append(record_of(order))
        self._orders[number] = order
        return order

    def void(self, number: int) -> None:
        """No queue has taken it; one that has not heard of it does not any more."""
        order = self._orders.pop(number)
        self._append(Record(number, order.ms, VOID, b""))

    def done(self, number: int) -> None:
        """All queues have carried out those up to there."""
        self.dropped = max(self.dropped, number)
        for place in [place for place in self._orders if place <= number]:
            del self._orders[place]
        if self._size > ROOM_BYTES:
            self._write()

    def _append(self, record: Record) -> None:
        data = frame.frame([record], self._size)
        with self._path.open("r+b") as file:
            file.seek(self._size)
            file.write(data)
            file.truncate()  # what an earlier one left behind that could not be written whole
            file.flush()
            os.fdatasync(file.fileno())
        self._size += len(data)

    def _write(self) -> None:
        """Anew, without what was dropped."""
        records = [Record(self.dropped, 0, BASE, packing.pack(self.last))]
        records += [Record(one.number, one.ms, GIVEN, packing.pack([one.question, one.arguments])) for one in
                    self.after(0)]  # fmt: skip
        data = frame.frame(records, 0)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, data, 0o600)
        self._size = len(data)
