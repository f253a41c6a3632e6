"""Suppression: the people to whom nothing is sent, whoever asks for it, and why.

Checked when mail comes (they are left out, and counted) and again when it is leased (they are removed, without a
bounce), for they may have been listed meanwhile. Mail from nobody (the null sender) is exempt: notices go to those who
send, about what they sent (RFC 5321 6.1). A change is a journal record, stable before it is answered; the store follows
and a crash in between is made good by replay, as with results.

Cost: nothing while the list is empty; else one look-up in the store for each recipient that comes. What came after the
list last grew is not looked up again when it is leased.

Failures: a store that cannot be read refuses mail for now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.disk import keys, records
from zonemta_py.disk.records import Type
from zonemta_py.disk.store import Operation, StoreError, StoreFenced
from zonemta_py.mail.address import AddressRefused, parse_mailbox
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import ADDRESS_BYTES_MAX
from zonemta_py.mail.person import person
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.written import bare
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.commit import immediately
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.tally import SUPPRESSED
from zonemta_py.schedule.lane import Entry, Group

if TYPE_CHECKING:
    from zonemta_py.queue.core import Core

KINDS = ("hard-bounce", "manual", "unsubscribe", "complaint", "erased")
"""What a person has said weighs more than what a machine found: the later ones take the place of the earlier ones."""
COMPLAINT, ERASED = "complaint", "erased"
AT_ONCE = 1_000
LIST_MAX = 10_000
TEXT_CHARACTERS_MAX = 500
_ALL = "~"
"""Behind every message id."""


class Suppressed(NamedTuple):
    """A person on the list. since_ms: UNIX time. evidence: where the reason can be looked up. by: who said so."""

    address: str
    kind: str
    since_ms: int
    reason: str
    evidence: str
    by: str
    campaign: str

    def value(self) -> bytes:
        return records.pack(self[1:])

    @classmethod
    def of(cls, key: bytes, value: bytes) -> Suppressed:
        """Raises ValueError, TypeError."""
        return cls(key.removeprefix(keys.SUPPRESSED).decode(), *records.unpack(value)[:6])


class Suppression:
    """The list in the store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._any = self._is_any()
        self._mark = core.ids.last
        """No message with a later id can hold anybody who was listed after it came."""
        self._changes = asyncio.Lock()
        self._pending = 0
        self.foreseen: dict[str, Suppressed | None] = {}
        """What the store will say of people once recovery has replayed the journal."""
        self.leaving: set[str] = set()
        """People who are being forgotten: nothing more of theirs is leased."""

    def _is_any(self) -> bool:
        return self._core.store.first(keys.SUPPRESSED, keys.end(keys.SUPPRESSED)) is not None

    # -- who is on it

    def of(self, address: str) -> Suppressed | None:
        """Raises StoreError."""
        who = person(address)
        if who in self.foreseen:
            return self.foreseen[who]
        key = keys.suppressed(who)
        value = self._core.store.get(key)
        return Suppressed.of(key, value) if value is not None else None

    def left_out(self, envelope: Envelope, routed: list[Routed]) -> dict[str, str]:
        """Those recipients that mail must not go to, and the kind of their entry. Raises StoreError."""
        if not self._any or not envelope.sender:
            return {}
        found = ((row.recipient.address, self.of(row.recipient.address)) for row in routed)
        return {address: entry.kind for address, entry in found if entry is not None}

    def listed(self, group: Group) -> dict[str, list[Entry]]:
        """Those of a group that is about to be leased that must not have it, by the reason. Raises StoreError."""
        first = group.entries[0]
        if not self.leaving and (not self._any or first.id > self._mark):
            return {}
        reasons: dict[str, list[Entry]] = {}
        for entry in group.entries:
            reason = self._reason(entry.address)
            if reason:
                reasons.setdefault(reason, []).append(entry)
        return reasons if reasons and self._has_sender(first.id) else {}

    def _has_sender(self, message_id: str) -> bool:
        try:
            return bool(self._core.messages.peek(message_id)["sender"])
        except StoreFenced:
            raise
        except StoreError:
            return False  # its message is damaged: whoever leases it finds out

    def _reason(self, address: str) -> str:
        entry = self.of(address)
        if entry is not None:
            return because(entry.kind)
        return because(ERASED) if self.leaving and person(address) in self.leaving else ""

    def page(self, after: str, most: int, kind: str | None) -> tuple[list[Suppressed], str | None]:
        """Entries behind that address, and where the next page begins (None: nowhere). Looks at 10,000 at most."""
        rows: list[Suppressed] = []
        start = keys.suppressed(after) + b"\0" if after else keys.SUPPRESSED
        for key, value in islice(self._core.store.scan(start, keys.end(keys.SUPPRESSED)), LIST_MAX):
            row = Suppressed.of(key, value)
            after = row.address
            if kind in (None, row.kind):
                rows.append(row)
                if len(rows) >= most:
                    break
        else:
            if len(rows) < LIST_MAX and self._core.store.first(keys.suppressed(after) + b"\0", _END) is None:
                return rows, None
        return rows, after

    # -- changes

    async def add(self, rows: Iterable[Suppressed]) -> dict[str, int]:
        """added: new, or of a kind that weighs more than before; known: the others. Raises QueueRefusal, StoreError."""
        added = known = 0
        rows = iter(rows)
        while portion := list(islice(rows, AT_ONCE)):
            async with self._changes:
                fresh = self._fresh(portion)
                if fresh:
                    await self._change(Type.SUPPRESS, [list(row) for row in fresh])
            added += len(fresh)
            known += len(portion) - len(fresh)
        return {"added": added, "known": known}

    def _fresh(self, rows: list[Suppressed]) -> list[Suppressed]:
        fresh: dict[str, Suppressed] = {}
        for row in rows:
            before = fresh.get(row.address) or self.of(row.address)
            if before is None or KINDS.index(row.kind) > KINDS.index(before.kind):
                fresh[row.address] = row
        return list(fresh.values())

    async def remove(self, addresses: Iterable[str], by: str) -> int:
        """How many of them were listed. Raises QueueRefusal, StoreError."""
        count = 0
        people = iter(dict.fromkeys(map(person, addresses)))
        while portion := list(islice(people, AT_ONCE)):
            async with self._changes:
                there = [address for address in portion if self.of(address) is not None]
                if there:
                    await self._change(Type.UNSUPPRESS, [there, by])
                    self._any = self._is_any()
            count += len(there)
        return count

    async def _change(self, kind: Type, body: list[Any]) -> None:
        core = self._core
        trouble = core.lines.trouble or core.journal.trouble
        if trouble is not None:
            raise QueueRefusal(trouble)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._any, self._mark = True, _ALL  # until the store has it
        self._pending += 1
        seq = core.record(kind, records.pack(body))
        core.unsettled.append(seq)
        core.journal.when_stable(partial(self._settle, seq, kind, body, partial(_wake, done)))
        await asyncio.shield(done)

    def _settle(self, seq: int, kind: Type, body: list[Any], done: Callable[[], None]) -> None:
        if kind == Type.SUPPRESS:
            self._count_complaints(map(Suppressed._make, body))
        self._write(_operations(kind, body), done)
        core = self._core
        if core.unsettled and core.unsettled[0] <= seq:
            core.unsettled.popleft()
        core.lines.flush()

    def foresee(self, kind: Type, body: list[Any]) -> None:
        """Heeds a record that will be made true by `again`."""
        self._any, self._mark = True, _ALL
        if kind == Type.SUPPRESS:
            self.foreseen |= {row[0]: Suppressed(*row[:7]) for row in body}
        else:
            self.foreseen |= dict.fromkeys(body[0])

    def again(self, kind: Type, body: list[Any]) -> None:
        """Makes a record true that a crash kept from the store."""
        if kind == Type.SUPPRESS:
            self._count_complaints(Suppressed(*row[:7]) for row in body)
        self._any, self._mark = True, _ALL
        self._pending += 1
        self._write(_operations(kind, body), immediately)

    def _write(self, operations: list[Operation], done: Callable[[], None]) -> None:
        def written(_: Reply | None) -> None:
            self._pending -= 1
            if not self._pending:
                self._mark = self._core.ids.last
            done()

        self._core.lines.submit(operations, written, sync=False, keep=True)

    def _count_complaints(self, rows: Iterable[Suppressed]) -> None:
        """In the same batch as the entries."""
        for row in rows:
            if row.kind == COMPLAINT and row.campaign:
                self._core.campaigns.tallies.add(row.campaign, "complaints")


_END = keys.end(keys.SUPPRESSED)


def because(kind: str) -> str:
    """The reason as the journal has it."""
    return f"{SUPPRESSED}: {kind}"


def checked(row: list[Any], now_ms: int) -> Suppressed:
    """[address, kind, reason, evidence, by, campaign, since_ms], the last five may be missing. Raises ValueError."""
    if not isinstance(row, list | tuple) or len(row) < 2 or not all(isinstance(text, str) for text in row[:6]):
        raise ValueError(f"{row!r} is no entry; give address, kind, reason, evidence, by, campaign")
    address, kind, reason, evidence, by, campaign, since_ms = (
        [*row, "", "", "", "", now_ms][:7] if len(row) < 7 else row
    )
    if kind not in KINDS:
        raise ValueError(f"{address}: there is no kind {kind!r}; take {', '.join(KINDS)}")
    texts = (text[:TEXT_CHARACTERS_MAX] for text in (reason, evidence, by, campaign))
    return Suppressed(checked_person(address), kind, int(since_ms or now_ms), *texts)


def checked_person(address: Any) -> str:
    """The address in its one spelling, also where it has a name beside it. Raises ValueError for what is no address."""
    if not isinstance(address, str) or not address.isprintable():
        raise ValueError(f"{address!r} is no address; give one such as ann@example.com")
    try:
        spelling = person(parse_mailbox(bare(address)))
    except AddressRefused:
        spelling = ""
    if not spelling or len(spelling.encode()) > ADDRESS_BYTES_MAX:
        raise ValueError(f"{address!r} is no address; give one such as ann@example.com")
    return spelling


def _operations(kind: Type, body: list[Any]) -> list[Operation]:
    if kind == Type.SUPPRESS:
        return [(keys.suppressed(row[0]), records.pack(row[1:7])) for row in body]
    return [(keys.suppressed(address), None) for address in body[0]]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
