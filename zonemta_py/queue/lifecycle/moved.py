"""A message that goes from one queue of an MTA to another: what it is, its arrival there, and its end here.

The arrival is one synced batch, as a message's acceptance is: keys, counts, and a mark (`taken <id>`) that holds the
TAKEN record, which follows; recovery writes it if a crash comes between. The end here is a FINISH record that names the
other queue; once that is stable, the store follows. The mark stays until then: so whoever is offered the message again
knows that it has, or had, it. Who does it, in which order: `queues.moving`.

A message keeps its id, and each recipient its state and its note; but steady times become those of the other queue.
Failures: StoreError, QueueRefusal: the disk of the queue that takes it refuses it, and nothing has changed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from zonemta_py.disk import body_file, keys, packing
from zonemta_py.disk.files import sync
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged
from zonemta_py.disk.notes import Existence, Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import FinishRecord, OpenRecord
from zonemta_py.journal.records.taken import FAMILIES, MESSAGE, TakenMessage, TakenRecord, TakenRow
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.locator import placed
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.sizes import BOUNCED
from zonemta_py.queue.core.state import counted_as
from zonemta_py.schedule.flow import FlowId

_FRESH, _HELD = b"delivery-zone ", b"held "


class MovedPart(NamedTuple):
    """A recipient's key and note."""

    key: bytes
    note: Note

    @property
    def place(self) -> keys.Place:
        return keys.place(self.key)


class Contents(NamedTuple):
    """All of a message. chunks: as stored; none of one with a file. doubts: the values of `in-doubt` keys, by address.
    campaign: whose figures have its recipients, "" none's."""

    message: Message
    chunks: list[bytes]
    parts: list[MovedPart]
    doubts: list[tuple[str, bytes]]
    campaign: str

    @property
    def size(self) -> int:
        """Bytes in the store, about."""
        return sum(map(len, self.chunks)) + 200 * len(self.parts)

    @property
    def counts(self) -> tuple[int, int]:
        """How many recipients wait, and how many have bounced and are kept."""
        bounced = sum(counted_as(part.key) == BOUNCED for part in self.parts)
        return len(self.parts) - bounced, bounced


def contents(core: Core, message_id: str, doubted: bool = True) -> Contents | None:
    """None: there is no such message. doubted: some of it may be in doubt. Raises StoreDamaged if it is not whole,
    StoreError."""
    store = core.disk.store
    if store.get(keys.existence(message_id)) is None and store.get(keys.metadata(message_id)) is None:
        return None
    message = core.messages.look(message_id)
    chunks = [] if message.filed else core.messages.chunks(message, 1, message.chunks)
    if message.filed and (fault := body_file.fault(core.disk.bodies.folder, message_id, message.chunks)):
        raise StoreDamaged(f"message {message_id}: {fault}")
    parts = [MovedPart(key, Note.of(value)) for key, value in recipients(core, message)]
    if len(parts) != message.left:
        raise StoreDamaged(f"message {message_id} has {len(parts)} recipients left, and says {message.left}")
    prefix = f"in-doubt {message_id} ".encode()
    rows = store.scan(prefix, keys.end(prefix)) if doubted else ()
    doubts = [(key.decode().split(" ", 2)[2], value) for key, value in rows]
    return Contents(message, chunks, parts, doubts, core.campaigns.counted_by(message_id, message.metadata))


def recipients(core: Core, message: Message) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of those that are left; one seek in each zone that has any, until all are found."""
    found = 0
    for row in placed(core.disk.store, message.id):
        found += 1
        yield row
    for zone, counts in core.counters.sizes.zones.items():
        for family in (_FRESH, _HELD):
            if found >= message.left:
                return
            if any(counts):
                prefix = b"%s%s %s " % (family, zone.encode(), message.id.encode())
                for row in core.disk.store.scan(prefix, keys.end(prefix)):
                    found += 1
                    yield row


# -- the other queue


class MailOrigin(NamedTuple):
    """Of the queue that has a message: its number, how far its steady time is apart from the machine's clock, and how
    far it was when the message came."""

    queue: int
    apart_ms: int
    then_ms: int


def origin(giver: Core, message_id: str) -> MailOrigin:
    return MailOrigin(giver.config.queue_number, giver.clock.apart_ms(), giver.clock.apart_of(message_id))


class Arrival(NamedTuple):
    """A message as the queue is about to have it."""

    contents: Contents
    record: bytes
    operations: list[Operation]


def arrival(core: Core, giver: MailOrigin, what: Contents) -> Arrival:
    """giver: of the queue that has it."""
    message, queue, apart_ms = what.message, giver.queue, core.clock.apart_ms() - giver.apart_ms
    # By how much older it would be here, where the clock was set at other times.
    age_ms = apart_ms - core.clock.apart_of(message.id) + giver.then_ms
    metadata = dict(message.metadata)
    counts = bool(what.campaign) and core.campaigns.owns(what.campaign, message.id)
    if not counts and "columns" not in metadata:
        metadata.pop("counted", None)
    parts = [_translated(part, apart_ms, age_ms, "counted" in metadata) for part in what.parts]
    here = Message(message.id, metadata, message.created_ms, message.total, message.left)
    doubts = [[address, *packing.unpack(value)] for address, value in what.doubts]
    rows = [list(_row(part)) for part in parts]
    record = TakenRecord(MESSAGE, queue, TakenMessage(message.id, metadata, rows, doubts)).pack()
    operations: list[Operation] = [
        (keys.existence(message.id), Existence(message.created_ms, message.total, message.left).value()),
        (keys.metadata(message.id), packing.pack(metadata)),
        *((keys.chunk(message.id, number), chunk) for number, chunk in enumerate(what.chunks, 1)),
        *((part.key, part.note.value()) for part in parts),
        *((keys.in_doubt(message.id, address), value) for address, value in what.doubts),
        (keys.taken(message.id), packing.pack([queue, record])),
    ]
    return Arrival(Contents(here, what.chunks, parts, what.doubts, what.campaign if counts else ""), record, operations)


def _row(part: MovedPart) -> TakenRow:
    place = part.place
    note = part.note
    return TakenRow(place.zone, place.recipient, note.notify, note.orcpt, FAMILIES.index(place.family), place.middle)


def _translated(part: MovedPart, apart_ms: int, age_ms: int, counted: bool) -> MovedPart:
    note = part.note
    kept_ms = note.kept_ms + age_ms if note.kept_ms >= 0 else note.kept_ms + age_ms - apart_ms
    note = note._replace(
        seq=0,  # a number of the other journal
        counted=note.counted and counted, kept_ms=kept_ms if age_ms or apart_ms else note.kept_ms,
        deadline_ms=note.deadline_ms + apart_ms if note.deadline_ms else 0,
        done=[_step(one, apart_ms) for one in note.done] if note.done and apart_ms else note.done,
    )  # fmt: skip
    return MovedPart(_key(part, apart_ms) if apart_ms else part.key, note)


def _step(step: list[Any], apart_ms: int) -> list[Any]:
    """What a task has done, and from where."""
    number, family, middle, attempts, before = step
    timed = FAMILIES[family] in ("deferred", "bounced") and middle
    return [number, family, middle + apart_ms if timed else middle, attempts, before]


def _key(part: MovedPart, apart_ms: int) -> bytes:
    family, zone, message_id, recipient, *_ = place = part.place
    if family == "deferred":
        return keys.deferred(zone, place.due_ms + apart_ms, message_id, recipient)
    if family == "bounced":
        return keys.bounced(zone, place.until_ms + apart_ms, message_id, recipient)
    return part.key


def is_taken(store: Store, message_id: str) -> bool:
    """Whether it is here, or has been, since it was taken over from a queue that may still have it."""
    return store.get(keys.taken(message_id)) is not None or store.get(keys.existence(message_id)) is not None


async def take(
    core: Core, arrivals: list[Arrival], copy_body: Callable[[str], None], more: Iterable[Operation] = ()
) -> None:
    """On stable storage, with their records, when this returns. copy_body: makes the file of a body here. more: what is
    written with them. Raises QueueRefusal, OSError."""
    filed = [one.contents.message for one in arrivals if one.contents.message.filed]
    if filed:  # so that a crash leaves no file of which nobody knows
        for message in filed:
            core.disk.ledger.append(Type.OPEN, OpenRecord(message.id).pack())
        await core.disk.journal.stable()
        for message in filed:
            copy_body(message.id)
        sync(core.disk.bodies.folder)
        if core.disk.replica is not None:
            for message in filed:
                await core.disk.replica.body(core.disk.bodies.folder, message.id)
    for one in arrivals:
        core.disk.ids.reach(one.contents.message.id)
        _count(core, one.contents, 1)
        for address, value in one.contents.doubts:
            core.pull_doubts.listed(
                one.contents.message.id, keys.in_doubt(one.contents.message.id, address), packing.unpack(value)[0]
            )
    written: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def done(reply: Reply | None) -> None:
        for one in arrivals:
            if reply is not None:
                _count(core, one.contents, -1)
                continue
            core.disk.ledger.append(Type.TAKEN, one.record)
            core.disk.segments.born(one.contents.message.id)
        written.set_result(reply)

    operations = [each for one in arrivals for each in one.operations] + list(more)
    core.disk.lines.submit(operations, done, sync=True, keep=False)
    if (reply := await asyncio.shield(written)) is not None:
        raise QueueRefusal(reply)
    await core.disk.journal.stable()
    recorded(core, [one.contents.message.id for one in arrivals])


def copy_body(giver: Core, core: Core, message_id: str) -> None:
    """From the folder of the one to that of the other."""
    source, target = giver.disk.bodies.folder / message_id, core.disk.bodies.folder / message_id
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
        sync(target)


def recorded(core: Core, ids: Iterable[str]) -> None:
    """Their TAKEN records are stable: the marks need not have them any more."""
    nothing = packing.pack([])
    core.disk.lines.submit([(keys.taken(one), nothing) for one in ids], immediately, sync=False, keep=True)


def unrecorded(store: Store, known: set[str]) -> Iterator[tuple[str, bytes]]:
    """After a crash: messages whose TAKEN record is missing, with its body. known: those that have one."""
    for key, value in store.scan(keys.TAKEN, keys.end(keys.TAKEN)):
        message_id, mark = key.removeprefix(keys.TAKEN).decode(), packing.unpack(value)
        if len(mark) == 2 and isinstance(mark[1], bytes) and message_id not in known:
            yield message_id, mark[1]


# -- this queue


def give(core: Core, what: Contents, queue: int) -> None:
    """It ends here, since that queue has it; once the journal is stable. Nothing of it may be leased or in memory, or
    get to be."""
    message, campaign = what.message, what.message.metadata.get("campaign") or ""
    record = FinishRecord(message.id, campaign, [queue, *what.counts])
    core.disk.segments.ended(message.id)
    core.disk.ledger.write(Type.FINISH, record.pack(), lambda: _ended(core, what))


def again(core: Core, record: FinishRecord) -> None:
    """Applies a record that a crash kept from the store. What has come back since is another queue's no more."""
    mark = core.disk.store.get(keys.taken(record.id))
    if mark is not None and packing.unpack(mark):
        return
    with suppress(StoreDamaged):  # a check finds it
        if (what := contents(core, record.id)) is not None:
            _ended(core, what)


def _ended(core: Core, what: Contents) -> None:
    _count(core, what, -1)
    gone: list[Operation] = [(part.key, None) for part in what.parts]
    gone += [(keys.in_doubt(what.message.id, address), None) for address, _ in what.doubts]
    core.disk.lines.submit(
        [*gone, *core.messages.finish(what.message, what.message.left)], immediately, sync=False, keep=True
    )


def _count(core: Core, what: Contents, sign: int) -> None:
    core.counters.message_count += sign
    core.counters.message_bytes += sign * what.message.metadata["size"]
    for part in what.parts:
        place, state = part.place, counted_as(part.key)
        before, after = (None, state) if sign > 0 else (state, None)
        domain = place.recipient.rpartition("@")[2]
        core.counters.sizes.move(place.zone, domain, before, after, flow=part.note.flow)
    if what.campaign:
        waiting, bounced = what.counts
        core.campaigns.counters.add(what.campaign, "accepted", sign * (waiting + bounced))
        if bounced:
            core.campaigns.counters.add(what.campaign, "bounced", sign * bounced)


def campaign_named(what: Contents) -> str:
    """The campaign that its recipients' flows name; "" none."""
    return next((name for part in what.parts if (name := FlowId.of(part.note.flow).campaign)), "")
