"""A lease: which batch a sender has, since when, and how much of it has been answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.queue.api import Delivery
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.schedule.batch import Batch, Entry
from zonemta_py.schedule.time import hours

_NOBODY: set[int] = set()


class Lease:
    """A leased batch, its message, the sender that has it, and since when.

    answered: recipients (their index) whose result has arrived before the last part; recorded: those whose result is in
    the journal. asking: the pending call to plugins about the notifications of the latest answer that caused any.
    tried: a server has replied about one of them. holder: the client that has pulled it, if known; until_s: how long it
    is reserved, in steady seconds, 0: as long as its connection lasts.
    """

    __slots__ = (
        "answered", "asking", "batch", "holder", "message", "number", "recorded", "sent", "settling", "since_ms",
        "tried", "until_s", "worker",
    )  # fmt: skip

    def __init__(self, number: int, batch: Batch, message: Message, worker: str, since_ms: int) -> None:
        self.number, self.batch, self.message = number, batch, message
        self.worker, self.since_ms = worker, since_ms
        self.sent = False  # its sender has received it
        self.settling = False  # its result has arrived
        self.answered: set[int] = _NOBODY
        self.recorded: set[int] = _NOBODY
        self.asking: asyncio.Future[None] | None = None
        self.tried = False
        self.holder, self.until_s = "", 0.0

    @property
    def zone(self) -> Zone:
        return self.batch.zone.zone

    @property
    def open(self) -> list[Entry]:
        """Recipients whose result is not in the journal yet."""
        return _but(self.batch.entries, self.recorded)

    def answer(self, indices: Iterable[int]) -> None:
        self.answered = self.answered.union(indices)

    def row(self) -> list[Any]:
        """The fields of its `StartRecord`, for the journal and for position records. By hand: made once per lease."""
        recipients = [_who(entry) for entry in self.open]
        zone, place = self.batch.zone.zone.name, self.batch.flow_queue.key
        provider, size = self.batch.path.provider, self.message.metadata["size"]
        return [self.number, self.message.id, zone, place, recipients, self.since_ms, provider, size]


class Taker:
    """A waiting sender: how many leases it can take, and the callback to deliver them."""

    __slots__ = ("deliver", "deliveries", "gone", "leases", "most", "worker")

    def __init__(self, worker: str, most: int, deliver: Callable[[list[Delivery]], None]) -> None:
        self.worker, self.most, self.deliver = worker, most, deliver
        self.deliveries: list[Delivery] = []
        self.leases: list[Lease] = []
        self.gone = False


def wait_s(core: Core, lease: Lease) -> float:
    """Seconds until a leased message may be sent (sending hours, hold time); 0: now."""
    terms, zone = lease.message.metadata, lease.zone
    if not (terms.get("window") or zone.window or terms.get("hold_until_ms")):
        return 0.0
    now_ms = core.clock.ms()  # it was deferred in steady time, and the clock may have been set since
    apart_ms = core.clock.apart_ms()
    now_ms += apart_ms
    return max(0, hours.first_ms(core.config, zone, terms, now_ms, apart_ms) - now_ms) / 1000


def _but(entries: list[Entry], indices: set[int]) -> list[Entry]:
    return [entry for index, entry in enumerate(entries) if index not in indices] if indices else entries


def _who(entry: Entry) -> str | list[Any]:
    if entry.key.startswith(b"deferred "):
        return [entry.address, keys.place(entry.key).due_ms]
    return entry.address
