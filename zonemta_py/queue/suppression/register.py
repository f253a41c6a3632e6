"""The suppression list: addresses that get no mail, in which scope, and why (`entry.py`); also whole domains, patterns
and hashes of addresses (`spelling.py`, `covering.py`).

Checked at acceptance (such recipients are left out, and counted) and again at leasing (they are removed, without a
bounce), since they may have been listed meanwhile. Mail with the null sender is exempt: notifications go to people
about what they sent (RFC 5321 6.1). A change is a journal record, stable before it is answered; the store follows, and
replay applies what a crash interrupts, as with results.

Cost: nothing while the list is empty; otherwise one look-up in the store for each recipient that arrives, and one more
for each other scope of the message that has any entries; more only in scopes that have entries for many addresses. Mail
that arrived after the list last grew is not looked up again when it is leased.

Failures: a store that cannot be read refuses mail for now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from zonemta_py.config import Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError, StoreFenced
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import UnsuppressRecord
from zonemta_py.mail.addresses.entries import PATTERN, is_covering
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.list_id import list_of
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.campaign_counters import SUPPRESSED
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.questions.question import is_repeated
from zonemta_py.queue.suppression.covering import Covering, CoverLookup
from zonemta_py.queue.suppression.entry import (
    ALL,
    COMPLAINT,
    ERASED,
    WHOLE_BEGINS,
    Suppressed,
    joined,
    operations,
    scopes_of,
    taken_off,
)
from zonemta_py.queue.suppression.evidence_store import EvidenceStore
from zonemta_py.queue.suppression.from_evidence import BY, GUARD_BY
from zonemta_py.schedule.batch import Batch, Entry
from zonemta_py.schedule.flow import FlowId

AT_ONCE = 1_000
SCOPES_MAX = 10_000
"""Scopes for which it is cached whether they have entries."""
_ALL_IDS = "~"
"""After every message id."""
_Looked = tuple[list[str], CoverLookup | None]
"""Of some mail: its scopes that have any entries, and who looks up those that are for many addresses."""


class SuppressionList:
    """The list in the store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.evidence = EvidenceStore(core)
        self._covering = Covering(core.disk.store, self.of)
        self._look()
        self._mark = core.disk.ids.last
        """No message with a later id can have a recipient who was listed after it came."""
        self._changes = asyncio.Lock()
        self._pending = 0
        self.foreseen: dict[tuple[str, str], Suppressed | None] = {}
        """What the store will have, by address and scope, once recovery has replayed the journal."""
        self.leaving: set[str] = set()
        """People who are being erased: nothing more of theirs is leased."""
        self.told_from = self.told_bytes = 0
        """The journal record with which `tell_all` last began, and how much it wrote; 0: not since the start."""

    def _look(self) -> None:
        """Finds out whether there are any entries, any in scopes beside "all", and any in each scope asked about so
        far."""
        self._scoped = self._is_any(keys.SUPPRESSED_IN)
        self._any = self._scoped or self._is_any(keys.SUPPRESSED)
        self._filled: dict[str, bool] = {}

    def _is_any(self, prefix: bytes) -> bool:
        return self._core.disk.store.first(prefix, keys.end(prefix)) is not None

    def _grown(self, places: Iterable[tuple[str, str]]) -> None:
        """From now until the store has it, every check of these scopes reads the store."""
        self._any, self._mark = True, _ALL_IDS
        for text, scope in places:
            self._filled[scope] = True
            self._scoped = self._scoped or scope != ALL
            self._covering.grown(text, scope)

    # -- who is on it

    def of(self, who: str, scope: str = ALL) -> Suppressed | None:
        """who: as stored (`spelling`). Raises StoreError."""
        if (who, scope) in self.foreseen:
            return self.foreseen[who, scope]
        key = keys.suppressed(who, scope)
        value = self._core.disk.store.get(key)
        return Suppressed.kept(key, value) if value is not None else None

    def every(self, who: str, scopes: Iterable[str] | None = None) -> list[Suppressed]:
        """All entries of a person, those that cover it last; or the entries that are spelled so. scopes: only those.
        Raises StoreError."""
        scopes = list((ALL, *self._scopes()) if scopes is None else scopes)
        found = [entry for scope in scopes if (entry := self.of(who, scope)) is not None]
        lookup = None if is_covering(who) else self._covering.among(scopes)
        return [*found, *lookup.entries(who)] if lookup is not None else found

    async def check_room(self, rows: Iterable[Suppressed]) -> None:
        """Whether there is room for the patterns among these. Raises Refused, StoreError."""
        patterns = [(row.address, row.scope) for row in rows if row.address.startswith(PATTERN)]
        scopes = [ALL]
        for scope in self._scopes() if patterns else ():
            self._covering.of_scope(scope)
            scopes.append(scope)
            if len(scopes) % AT_ONCE == 0:
                await asyncio.sleep(0)
        self._covering.check_room(patterns, scopes)

    def suppressed_by(self, envelope: Envelope, routed: list[Routed]) -> dict[str, str]:
        """Recipients that must get no mail, with the kind and scope of their entry. Raises QueueRefusal: they cannot
        be read now."""
        if not self._any or not envelope.sender:
            return {}
        try:
            return self._suppressed_by(envelope, routed)
        except StoreError as error:
            raise QueueRefusal(self._core.disk.unreadable(error)) from None

    def _suppressed_by(self, envelope: Envelope, routed: list[Routed]) -> dict[str, str]:
        said = {"unsubscribe": envelope.unsubscribe, "headers": envelope.headers}
        scopes: dict[str, _Looked] = {}
        found: dict[str, str] = {}
        for row in routed:
            zone, address = self._core.schedule.zones[row.zone].zone, row.recipient.address
            if row.zone not in scopes:
                scopes[row.zone] = self._peopled(zone, envelope.tenant, envelope.campaign, said)
            if entry := self._stopping(address, zone, scopes[row.zone], envelope.tenant):
                found[address] = entry.because()
        return found

    def listed(self, batch: Batch) -> dict[str, list[Entry]]:
        """The entries of a batch about to be leased that must not get it, by reason. Raises StoreError."""
        first = batch.entries[0]
        if not self.leaving and (not self._any or first.id > self._mark):
            return {}
        zone, flow_id = batch.zone.zone, batch.flow_queue.flow_id
        said = self._said(first.id) if self._scoped else {}
        scopes = self._peopled(zone, flow_id.tenant, flow_id.campaign, said)
        reasons: dict[str, list[Entry]] = {}
        for entry in batch.entries:
            reason = self._reason(entry.address, zone, scopes, flow_id.tenant)
            if reason:
                reasons.setdefault(reason, []).append(entry)
        return reasons if reasons and (said or self._said(first.id)).get("sender") else {}

    def stops(self, message_id: str, address: str, zone: Zone, flow_id: FlowId) -> bool:
        """Whether that recipient would be left out when it is leased. Raises StoreError."""
        if not self._any and not self.leaving:
            return False
        said = self._said(message_id)
        scopes = self._peopled(zone, flow_id.tenant, flow_id.campaign, said)
        return bool(said.get("sender") and self._reason(address, zone, scopes, flow_id.tenant))

    def _said(self, message_id: str) -> Mapping[str, Any]:
        """A message's metadata; of a damaged one nothing: leasing deals with that."""
        try:
            return self._core.messages.peek(message_id)
        except StoreFenced:
            raise
        except StoreError:
            return {}

    def _reason(self, address: str, zone: Zone, scopes: _Looked, tenant: str) -> str:
        if entry := self._stopping(address, zone, scopes, tenant):
            return because(entry.because())
        return because(ERASED) if self.leaving and person(address) in self.leaving else ""

    def _stopping(self, address: str, zone: Zone, scopes: _Looked, tenant: str | None) -> Suppressed | None:
        spellings = [person(address)]
        if address[:1] == '"':  # an earlier version kept an entry with its quotes
            spellings.append(address.lower())
        names, covering = scopes
        for who in spellings:
            for scope in names:
                entry = self.of(who, scope)
                if entry is not None and entry.stops(zone, tenant):
                    return entry
        if covering is not None:
            for entry in covering.entries(spellings[0]):
                if entry.stops(zone, tenant):
                    return entry
        return None

    def _peopled(self, zone: Zone, tenant: str | None, campaign: str | None, said: Mapping[str, Any]) -> _Looked:
        """The scopes of such mail that have any entries. said: its metadata. Raises StoreError."""
        scopes = self._of_mail(zone, tenant, campaign, said)
        return scopes, self._covering.among(scopes)

    def _of_mail(self, zone: Zone, tenant: str | None, campaign: str | None, said: Mapping[str, Any]) -> list[str]:
        if not self._scoped:
            return [ALL]
        if len(self._filled) > SCOPES_MAX:
            self._filled = {scope: True for scope, filled in self._filled.items() if filled}
        bulk = self._core.config.unsubscribing.covers(zone.name, said.get("unsubscribe", False))
        every = scopes_of(zone, tenant, campaign, bulk, list_of(said.get("headers")))
        return [scope for scope in every if self._has(scope)]

    def _has(self, scope: str) -> bool:
        known = self._filled.get(scope)
        if known is None:
            known = self._filled[scope] = self._is_any(keys.suppressed_range(scope))
        return known

    def _scopes(self) -> Iterator[str]:
        """The scopes beside "all" that have any entries in the store."""
        start = keys.SUPPRESSED_IN
        while (key := self._core.disk.store.first(start, keys.end(keys.SUPPRESSED_IN))) is not None:
            _, scope = keys.suppressed_place(key)
            yield scope
            start = keys.end(keys.suppressed_range(scope))

    def page(self, after: str, most: int, kind: str | None, scope: str | None) -> tuple[list[Suppressed], str | None]:
        """Entries after that one, and where the next page begins (None: nowhere). Looks at AT_ONCE at most."""
        rows: list[Suppressed] = []
        for looked, row in enumerate(self._from(after, scope)):
            if len(rows) >= most or looked >= AT_ONCE:
                return rows, after
            after = row.address if row.scope == ALL else f"{row.address} {row.scope}"
            if kind in (None, row.kind):
                rows.append(row)
        return rows, None

    def _from(self, after: str, scope: str | None) -> Iterator[Suppressed]:
        """Scope "all" by address, then the others by scope and address."""
        address, _, within = after.rpartition(" ")
        if not address or "@" in within:  # no scope has an @, every domain comes after one
            address, within = after, scope or ALL
        if '"' in address:  # as it is shown (`spelling.literal`)
            address = person(address)
        ranges = [keys.suppressed_range(scope)] if scope else [keys.SUPPRESSED, keys.SUPPRESSED_IN]
        start = keys.suppressed(address, within) + b"\0" if after else b""
        for prefix in ranges:
            if start < keys.end(prefix):
                for key, value in self._core.disk.store.scan(max(prefix, start), keys.end(prefix)):
                    yield Suppressed.kept(key, value)

    # -- changes

    async def add(self, rows: Iterable[Suppressed]) -> dict[str, int]:
        """added: new, or of a higher-ranking kind than before; known: the others. Raises QueueRefusal, StoreError."""
        added = known = 0
        rows = iter(rows)
        while portion := list(islice(rows, AT_ONCE)):
            async with self._changes:
                fresh = self._fresh(portion)
                if fresh:
                    patient = all(row.by == BY for row in fresh)
                    told = [row._replace(again=True) for row in fresh] if is_repeated() else fresh
                    await self._change(Type.SUPPRESS, [row.row() for row in told], patient)
            count = sum(not row.again for row in fresh)
            added += count
            known += len(portion) - count
        return {"added": added, "known": known}

    def _fresh(self, rows: list[Suppressed]) -> list[Suppressed]:
        """The entries that the list lacks. A lower-ranking kind is recorded beside the other."""
        fresh: dict[bytes, Suppressed] = {}
        for given in rows:
            row = given.as_new() if given.scope[:9] == "campaign:" else given
            before = fresh.get(row.key()) or self.of(row.address, row.scope)
            after = row if before is None else joined(before, row)
            if before is None or after._replace(again=before.again) != before:
                again = after.again and (row.key() not in fresh or fresh[row.key()].again)
                fresh[row.key()] = after._replace(again=again)
        return list(fresh.values())

    async def remove(self, addresses: Iterable[str], by: str, scope: str | None = None, again: bool = False) -> int:
        """Returns how many of them were listed; addresses: or what else is listed, as stored; scope: only in that one;
        again: another of several queues tells of it. Raises QueueRefusal, StoreError."""
        count = 0
        people = (one if is_covering(one) else person(one) for one in dict.fromkeys(addresses))
        scopes = [scope] if scope else [ALL, *self._scopes()]
        while portion := list(islice(people, max(1, AT_ONCE // len(scopes)))):
            async with self._changes:
                there = [(who, name) for who in portion for name in scopes if self.of(who, name) is not None]
                if there:
                    named = [name for _, name in there] if any(name != ALL for _, name in there) else None
                    record = UnsuppressRecord([who for who, _ in there], by, named, again or is_repeated())
                    await self._change(Type.UNSUPPRESS, record)
                    if not self._pending:
                        self._look()
                        self._covering.gone(there)
            count += len({who for who, _ in there})
            await asyncio.sleep(0)
        return count

    async def tell_all(self) -> None:
        """Writes the whole list into the journal again, between two marking records; returns once it is stable."""
        core = self._core
        began = core.disk.ledger.append(Type.UNSUPPRESS, WHOLE_BEGINS.pack())
        size, after = 0, ""
        while True:
            async with self._changes:
                while self._pending:  # noqa: ASYNC110 (who made the change may have gone; it is written soon)
                    await asyncio.sleep(0.01)
                rows = list(islice(self._from(after, None), AT_ONCE))
                body = packing.pack([row._replace(again=True).row() for row in rows])
                core.disk.ledger.append(Type.SUPPRESS, body)  # the last one is empty and marks the end
            await core.disk.journal.stable()
            if not rows:
                break
            size, last = size + len(body), rows[-1]
            after = last.address if last.scope == ALL else f"{last.address} {last.scope}"
        self.told_from, self.told_bytes = began, size

    async def _change(self, kind: Type, body: list[Any] | UnsuppressRecord, patient: bool = False) -> None:
        """patient: nobody waits for it, so that it shares the next sync and batch."""
        core = self._core
        trouble = core.disk.lines.trouble or core.disk.journal.trouble
        if trouble is not None:
            raise QueueRefusal(trouble)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._grown(_places(kind, body))
        self._pending += 1
        packed = body.pack() if isinstance(body, UnsuppressRecord) else packing.pack(body)
        apply = partial(self._settle, kind, body, partial(_wake, done), patient)
        core.disk.ledger.write(kind, packed, apply, patient=patient)
        await asyncio.shield(done)

    def _settle(self, kind: Type, body: Sequence[Any], done: Callable[[], None], patient: bool) -> None:
        if kind == Type.SUPPRESS:
            self._count_complaints(body)
        self._write([*operations(kind, body), *self._forgiven(kind, body)], done)
        if not patient:
            self._core.disk.lines.flush()

    def foresee(self, kind: Type, body: list[Any]) -> None:
        """Takes a record into account that `again` will apply."""
        self._grown(_places(kind, body))
        if kind == Type.SUPPRESS:
            self.foreseen |= {(row.address, row.scope): row for row in map(Suppressed.of, body)}
        else:
            self.foreseen |= dict.fromkeys(taken_off(body))

    def again(self, kind: Type, body: list[Any]) -> None:
        """Applies a record that a crash kept from the store."""
        if kind == Type.SUPPRESS:
            self._count_complaints(body)
        self._grown(_places(kind, body))
        self._pending += 1
        self._write([*operations(kind, body), *self._forgiven(kind, body)], immediately)

    def _forgiven(self, kind: Type, body: Sequence[Any]) -> list[Operation]:
        """An operator who takes somebody off clears what led to it."""
        if kind == Type.SUPPRESS or UnsuppressRecord.of(body).by == GUARD_BY:
            return []
        return self.evidence.cleared(UnsuppressRecord.of(body).addresses)

    def _write(self, changes: list[Operation], done: Callable[[], None]) -> None:
        def written(_: Reply | None) -> None:
            self._pending -= 1
            if not self._pending:
                self._mark = self._core.disk.ids.last
            done()

        self._core.disk.lines.submit(changes, written, sync=False, keep=True)

    def _count_complaints(self, body: Sequence[Any]) -> None:
        """In the same batch as the entries. What the policy has heard was counted when it came (`queue.feedback`)."""
        for row in [Suppressed.of(row) for row in body if row[1] == COMPLAINT]:
            if row.campaign and not row.again and row.by != BY:
                campaign = self._core.campaigns.by_name.get(row.campaign)
                if campaign is not None and campaign.is_of(row.tenant or campaign.tenant):
                    self._core.campaigns.counters.add(row.campaign, "complaints")


def because(what: str) -> str:
    """The reason as the journal has it. what: the kind, and the scope if that is not all mail."""
    return f"{SUPPRESSED}: {what}"


def _places(kind: Type, body: Sequence[Any]) -> Iterable[tuple[str, str]]:
    if kind == Type.SUPPRESS:
        return ((row.address, row.scope) for row in map(Suppressed.of, body))
    return taken_off(body)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
