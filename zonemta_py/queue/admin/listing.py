"""The recipients in the queue as rows: in pages with filters, or all of one message.

Promise: however many keys have to be read, the event loop runs after every WALKED_AT_ONCE of them, and no iterator of
the store is open meanwhile. A page shows each recipient as it was when it was read; one that changes state during the
walk may be missing, or be shown in its old state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.counters import campaign_of
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.lifecycle.context import QueueContext

LIST_MAX = 10_000
WALKED_AT_ONCE = 200
_BY_ID = ("delivery-zone", "held")
"""Families in which a message's recipients are next to each other."""

Row = dict[str, Any]
Test = Callable[[Row], bool]


async def page(
    queue: QueueContext,
    zone: str | None = None,
    state: str | None = None,
    domain: str | None = None,
    sender: str | None = None,
    recipient: str | None = None,
    subject: str | None = None,
    user: str | None = None,
    limit: int = 100,
    after: str = "",
) -> dict[str, Any]:
    """Rows, and the cursor of the next page. subject: a substring, in any case; user: the login that submitted it."""
    if state is not None and state not in (State.QUEUED, State.LEASED, State.DEFERRED, State.HELD):
        raise ValueError(f"there is no state {state!r}; use queued, leased, deferred or held")
    if zone is not None and zone not in queue.core.schedule.zones:
        raise ValueError(f"there is no zone {zone!r}; there are {', '.join(queue.core.schedule.zones)}")
    if after and not _is_cursor(after):
        raise ValueError(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    leased = _leased(queue)
    chosen = _chosen(sender, subject, user)
    rows: list[Row] = []
    async for place, key, value in _places(queue, _prefixes(zone), after.encode()):
        if len(rows) >= min(limit, LIST_MAX):
            return {"rows": rows, "next": after}
        after = key.decode()
        now = State.LEASED if key in leased else FAMILY[place.family]
        if (state and now != state) or (recipient and place.recipient != recipient):
            continue
        if domain and place.recipient.rpartition("@")[2] != domain.lower():
            continue
        row = _row(queue, place, Note.of(value), now)
        if all(test(row) for test in chosen):
            rows.append(row)
    return {"rows": rows, "next": None}


def _chosen(sender: str | None, subject: str | None, user: str | None) -> list[Test]:
    tests: list[Test] = []
    if sender is not None:
        tests.append(lambda row: bool(row["sender"] == sender))
    if subject is not None:
        part = subject.casefold()
        tests.append(lambda row: part in row["subject"].casefold())
    if user is not None:
        tests.append(lambda row: bool(row["user"] == user))
    return tests


def _is_cursor(after: str) -> bool:
    """Whether it is a recipient's key, existing or not."""
    try:
        return keys.place(after.encode()).family in FAMILY
    except ValueError:
        return False


def _leased(queue: QueueContext) -> set[bytes]:
    return {entry.key for lease in queue.leases.out.values() for entry in lease.open}


def _prefixes(zone: str | None) -> list[bytes]:
    return [f"{family} {zone} ".encode() if zone else f"{family} ".encode() for family in sorted(FAMILY)]


async def _places(
    queue: QueueContext, prefixes: Iterable[bytes], after: bytes = b"", part: bytes = b""
) -> AsyncIterator[tuple[keys.Place, bytes, bytes]]:
    """Recipient keys after `after`, prefix by prefix; only those that contain `part`."""
    store = queue.core.store
    for prefix in prefixes:
        start, end = (max(prefix, after + b"\0") if after else prefix), keys.end(prefix)
        while start < end and (rows := list(islice(store.scan(start, end), WALKED_AT_ONCE))):
            for key, value in rows:
                if part in key:
                    yield keys.place(key), key, value
            start = rows[-1][0] + b"\0"
            await asyncio.sleep(0)


def _row(queue: QueueContext, place: keys.Place, note: Note, state: State) -> Row:
    try:
        metadata = queue.core.messages.peek(place.id)
    except StoreError:
        metadata = {}
    path = queue.core.schedule.zones.get(place.zone)
    flow_queue = path.flow_queues.by_key.get(place.destination) if path and place.destination else None
    resting = flow_queue.path if flow_queue else None
    return {
        "id": place.id,
        "zone": place.zone,
        "recipient": place.recipient,
        "sender": metadata.get("sender", ""),
        "user": metadata.get("user") or "",
        "state": str(state),
        "attempts": note.attempts,
        "due_ms": place.due_ms and place.due_ms - queue.core.clock.apart_ms(),
        "received_ms": metadata.get("received_ms") or keys.id_ms(place.id),
        "size": metadata.get("size", 0),
        "subject": metadata.get("headers", {}).get("subject", ""),
        "last": note.last or (resting.reason if resting else ""),
    }


async def show(queue: QueueContext, id: str) -> dict[str, Any]:
    """One message: envelope, recipients, header section. Raises ValueError if it does not exist."""
    core = queue.core
    try:
        message = core.messages.look(id)
    except (StoreError, UnicodeError):
        raise ValueError(f"there is no message {id!r} in the queue; `zonemta queue list` shows all messages") from None
    envelope, rows = message.metadata, await _recipients(queue, id, message.total)
    answer = {"id": id, "envelope": envelope, "recipients": rows}
    if "columns" in envelope:
        campaign = campaign_of(envelope)
        return answer | {"header": f"(each recipient's own, made from the template of campaign {campaign})"}
    try:
        header = core.messages.text(message).partition(b"\r\n\r\n")[0].decode("utf-8", "replace")
    except StoreError as error:
        header = f"(cannot be read: {error})"
    return answer | {"header": header}


async def _recipients(queue: QueueContext, id: str, total: int) -> list[Row]:
    """Rows of a message's recipients that have not ended: first those whose keys are together, then the others, until
    all that it ever had are found."""
    leased, rows = _leased(queue), dict[tuple[str, str], Row]()
    zones = sorted({*queue.core.sizes.zones, *queue.core.schedule.zones})
    direct = [f"{family} {zone} {id} ".encode() for zone in zones for family in _BY_ID]
    others = [f"{family} ".encode() for family in sorted(FAMILY) if family not in _BY_ID]
    async for place, key, value in _places(queue, (*direct, *others), part=f" {id} ".encode()):
        state = State.LEASED if key in leased else FAMILY[place.family]
        rows[place.zone, place.recipient] = _row(queue, place, Note.of(value), state)
        if len(rows) >= total:
            break
    return list(rows.values())
