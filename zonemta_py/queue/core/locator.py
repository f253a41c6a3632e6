"""Locates a recipient's key among the places where it can be: after a crash, or for an operator's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Note
from zonemta_py.disk.records import RemovedRecord, StartRecord, Who
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.state import counted_as
from zonemta_py.schedule.batch import Entry

Get = Callable[[bytes], bytes | None]


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


def places_of(get: Get, removed: RemovedRecord) -> dict[str, tuple[bytes, int]]:
    """Of the recipients that are still where the record found them: the key, and how they are counted; by address."""
    found: dict[str, tuple[bytes, int]] = {}
    where = removed.where or {"destination": "", "due": []}
    for place, address in enumerate(removed.recipients):
        before = where["due"][place] if where["due"] else 0
        held = keys.held(removed.zone, removed.id, address)
        if (entry := find(get, removed.zone, where["destination"], removed.id, address, before)) is not None:
            found[address] = entry[0], counted_as(entry[0])
        elif get(held) is not None:
            found[address] = held, sizes.HELD
    return found


def find_any(store: Store, zone: str, message_id: str, address: str) -> tuple[bytes, int] | None:
    """The key of a recipient that is not leased, and how it is counted."""
    key = keys.held(zone, message_id, address)
    if store.get(key) is not None:
        return key, sizes.HELD
    entry = find_entry(store, zone, message_id, address)
    return (entry.key, counted_as(entry.key)) if entry is not None else None


def find_entry(store: Store, zone: str, message_id: str, address: str) -> Entry | None:
    """A queued or deferred recipient in the store, wherever its key is."""
    key = keys.fresh(zone, message_id, address)
    value = store.get(key)
    if value is not None:
        return Entry(key, message_id, address, Note.of(value))
    for found, note in recipients_between(store, message_id, message_id):
        place = keys.place(found)
        if (place.id, place.recipient, place.zone) == (message_id, address, zone) and place.family != "held":
            return Entry(found, message_id, address, Note.of(note))
    return None


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
