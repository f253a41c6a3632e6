"""Messages that a crash interrupted on their way in: stored without an envelope record, or only partly stored.

Both are searched among the ids `arriving` at the last position record and those from its `floor` to `last_id`, the last
id given out before the start. Only recipients of the messages found are read, however long the queue is, apart from
deferred ones, which are sorted by time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Existence, Note
from zonemta_py.queue.core.locator import recipients_between

AT_ONCE = 1_000
"""Keys that are read before the event loop runs."""


def unfinished(store: Store, floor: str, arriving: set[str], last_id: str) -> set[str]:
    """Ids of messages that were never committed: there are chunks, and nothing else."""
    found: dict[str, bool] = {}
    for message_id, part in _parts(store, floor, arriving, last_id):
        found[message_id] = found.get(message_id, False) or part in "#*"
    return {message_id for message_id, whole in found.items() if not whole}


async def without_envelope(
    store: Store, known: set[str], floor: str, arriving: set[str], last_id: str
) -> list[tuple[str, bytes, list[list[Any]]]]:
    """Messages whose envelope record is missing: id, packed metadata, recipients. known: ids that have one."""
    missing: dict[str, tuple[bytes, list[list[Any]]]] = {}
    for message_id, part in _parts(store, floor, arriving, last_id):
        if part == "*" and message_id not in known and (message_id >= floor or message_id in arriving):
            missing[message_id] = (store.get(keys.metadata(message_id)) or b"", [])
    if missing:
        await _find_recipients(store, {message_id: rows for message_id, (_, rows) in missing.items()})
    return [(message_id, *found) for message_id, found in missing.items()]


def _parts(store: Store, floor: str, arriving: set[str], last_id: str) -> Iterator[tuple[str, str]]:
    start, stop = keys.message_range(min([floor, *arriving])), keys.end(keys.message_range(last_id))
    for key in store.keys(start, stop):
        _, message_id, part = key.decode().split(" ")
        yield message_id, part


async def _find_recipients(store: Store, wanted: dict[str, list[list[Any]]]) -> None:
    """Fills in the fields of a `RecipientRow` of all their recipients."""
    left = sum(_count(store, message_id) for message_id in wanted)
    for number, (key, value) in enumerate(recipients_between(store, min(wanted), max(wanted)), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        place = keys.place(key)
        if place.id in wanted:
            note = Note.of(value)
            more = [note.meta] if note.meta else []
            wanted[place.id].append([place.zone, place.recipient, note.notify, note.orcpt, *more])
            left -= 1
            if not left:
                return


def _count(store: Store, message_id: str) -> int:
    value = store.get(keys.existence(message_id))
    return Existence.of(value).left if value else 0
