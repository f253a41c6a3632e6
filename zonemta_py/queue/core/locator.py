"""Locates a recipient's key among the places where it can be: after a crash, or for an operator's order or question.

Recipients that are fresh or held are found by their message's id, deferred and parked ones by the index: it has a key
`at <id> …` for each, in the same batch (`Store.write`). If an earlier version wrote to the queue, the index is made
again in portions (`Places.portion`) while mail is sent; until then these two families have to be walked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, Store, StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import RemovedRecord, StartRecord, Who
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.commit import StoreLine
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.core.sums.flows import tracked
from zonemta_py.schedule.batch import Entry

Get = Callable[[bytes], bytes | None]
PORTION = 500
"""Keys of which the index is made in one batch."""
PAUSE_S = 0.02


class Located(NamedTuple):
    """A recipient's key, how it is counted, and its flow."""

    key: bytes
    state: int
    flow: str


def find(get: Get, zone: str, target: str, message_id: str, address: str, before_ms: int) -> tuple[bytes, bytes] | None:
    """The key and value of a recipient, among the places where a record may have found it."""
    if before_ms:
        places = [keys.deferred(zone, before_ms, message_id, address)]
        places.append(keys.parked(zone, target, message_id, address))
    else:
        places = [keys.fresh(zone, message_id, address), keys.parked(zone, target, message_id, address)]
    for key in places:
        value = get(key)
        if value is not None:
            return key, value
    return None


def leased_keys(get: Get, start: StartRecord) -> list[tuple[str, bytes, bytes]]:
    """The recipients of a start record that still exist: address, key, value."""
    found = []
    for who in map(Who.of, start.recipients):
        place = find(get, start.zone, start.destination, start.id, who.address, who.before_ms)
        if place is not None:
            found.append((who.address, *place))
    return found


def places_of(get: Get, removed: RemovedRecord) -> dict[str, Located]:
    """The recipients that are still where the record found them, by address."""
    found: dict[str, Located] = {}
    where = removed.where or {"destination": "", "due": []}
    task = where.get("task", 0)
    for place, address in enumerate(removed.recipients):
        before = where["due"][place] if where["due"] else 0
        held = keys.held(removed.zone, removed.id, address)
        deleted = keys.deleted(removed.zone, task, removed.id, address)
        if kept := where.get("kept"):
            bounced = keys.bounced(removed.zone, kept[place], removed.id, address)
            if (value := get(bounced)) is not None:
                found[address] = _found(bounced, value)
        elif task and (value := get(deleted)) is not None:
            found[address] = _found(deleted, value)
        elif (entry := find(get, removed.zone, where["destination"], removed.id, address, before)) is not None:
            found[address] = _found(*entry)
        elif (value := get(held)) is not None:
            found[address] = _found(held, value)
    return found


def _found(key: bytes, value: bytes) -> Located:
    return Located(key, counted_as(key), Note.of(value).flow)


def find_any(store: Store, zone: str, message_id: str, address: str) -> Located | None:
    """A recipient that is not leased."""
    key = keys.held(zone, message_id, address)
    if (value := store.get(key)) is not None:
        return _found(key, value)
    entry = find_entry(store, zone, message_id, address)
    return Located(entry.key, counted_as(entry.key), entry.note.flow) if entry is not None else None


def find_entry(store: Store, zone: str, message_id: str, address: str) -> Entry | None:
    """A queued or deferred recipient in the store, wherever its key is."""
    key = keys.fresh(zone, message_id, address)
    value = store.get(key)
    if value is not None:
        return Entry(key, message_id, address, Note.of(value))
    for found, note in (*placed(store, message_id), *_if_not_indexed(store, message_id)):
        place = keys.place(found)
        waits = place.family not in ("held", "deleted", "bounced")
        if waits and (place.id, place.recipient, place.zone) == (message_id, address, zone):
            return Entry(found, message_id, address, Note.of(note))
    return None


def placed(store: Store, message_id: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the message's recipients that the index has."""
    prefix = keys.index_range(message_id)
    for index in store.keys(prefix, keys.end(prefix)):
        key = keys.indexed(index)
        if (value := store.get(key)) is not None:
            yield key, value


def _if_not_indexed(store: Store, message_id: str) -> Iterable[tuple[bytes, bytes]]:
    return () if tracked(store).places else recipients_between(store, message_id, message_id)


def recipients_between(store: Store, first_id: str, last_id: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the recipients of messages from one id to another; all deferred ones come last.

    One seek for each zone, and each parked destination, however many recipients there are.
    """
    for family, words in ((b"delivery-zone ", 2), (b"parked ", 3), (b"held ", 2)):
        start, stop = family, keys.end(family)
        while (key := store.first(start, stop)) is not None:
            prefix = b" ".join(key.split(b" ")[:words]) + b" "
            yield from store.scan(prefix + first_id.encode(), keys.end(prefix + last_id.encode() + b" "))
            start = keys.end(prefix)
    yield from store.scan(b"deferred ", keys.end(b"deferred "))


class Places:
    """The index of deferred and parked recipients. `complete`: it has all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.complete = tracked(store).places
        self._ranges = [keys.INDEX, *keys.PLACED]  # what an earlier version has left, then what it did not write
        self._at = self._before = b""
        self._asked = self._last = False

    def portion(self) -> list[Operation]:
        """What a batch that is about to be written must begin with; whatever else is in it comes later, and counts.

        All earlier batches are in the store by now, so that what is read here is true.
        """
        if not self._asked:
            return []
        self._asked, self._before = False, self._at
        prefix = self._ranges[0]
        try:
            rows = list(islice(self._store.keys(max(prefix, self._at), keys.end(prefix)), PORTION))
            operations = self._old(rows) if prefix == keys.INDEX else self._missing(rows)
        except StoreError:
            return []
        self._last = len(rows) < PORTION
        self._at = b"" if self._last else rows[-1] + b"\0"
        return operations

    def _old(self, rows: list[bytes]) -> list[Operation]:
        return [(index, None) for index in rows if self._store.get(keys.indexed(index)) is None]

    def _missing(self, rows: list[bytes]) -> list[Operation]:
        return [(keys.index_of(key), b"") for key in rows]

    def again(self) -> None:
        """The batch with the last portion did not reach the disk."""
        self._at, self._last = self._before, False

    async def make(self, lines: StoreLine) -> None:
        """Makes what is missing, one portion in a batch, while other work continues."""
        while not self.complete:
            self._asked, written = True, asyncio.get_running_loop().create_future()
            lines.submit([], partial(_set, written), sync=False, keep=True)
            lines.flush()
            await written
            if self._last:
                self._ranges.pop(0)
                self._last, self.complete = False, not self._ranges
            await asyncio.sleep(PAUSE_S)


def _set(written: asyncio.Future[None], _: Reply | None) -> None:
    if not written.done():
        written.set_result(None)
