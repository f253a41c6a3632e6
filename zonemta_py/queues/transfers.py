"""Messages that go from a queue to another one while both run, each once.

The queue that has them takes them out of its schedule, notes on stable storage which ones it gives to whom under which
number, and offers them (`Transfers.give`). The other one takes all of them in one batch, with that number, or refuses
them and notes that (`Transfers.take`); what was offered under that number before gets the same answer again. Then their
end is recorded here (`queue/lifecycle/moved.py`). Whatever dies in between: what is noted stays out of the schedule,
and is offered again, until there is an answer.

Both queues must have carried out the same orders, and the one that has the messages must have done what tasks do to
them: so an order that comes meanwhile holds for them in one queue or the other, and for none twice. Recipients that are
being delivered stay until their result is there.

Failures: QueueRefusal: nobody answers, or a disk is full; it is tried again. A message that is damaged stays.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from zonemta_py.disk import keys, packing
from zonemta_py.disk.files import sync
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.campaigns import campaign_from
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.tasks import Task
from zonemta_py.queue.lifecycle import moved
from zonemta_py.queue.lifecycle.moved import Contents, MailOrigin, MovedPart
from zonemta_py.queue.questions.question import Ask
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queues import with_mail
from zonemta_py.schedule.batch import NEVER_MS, Entry
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.pull import PUSHED

log = logging.getLogger(__name__)
_T = TypeVar("_T")

TAKEN, LATER = "taken", "later"
"""What `take` answers with: [TAKEN, ids], [LATER, why]."""
WAITING = ("delivery-zone", "deferred", "parked")
"""Families of what waits for a sender."""
RECIPIENTS_AT_ONCE, BYTES_AT_ONCE = 500, 8 << 20
WALKED_AT_ONCE = 5_000
PIECE_BYTES = 4 << 20
ANSWER_S = 10.0
"""How long the other queue may take for its answer."""
SAME_S, LOOK_S = 5.0, 0.02
"""How long it waits until it has carried out the same orders."""
AGAIN_S = 1.0
FOLDER = "moving"
"""In the queue's folder: files of bodies that are on their way here."""
BUSY = "tasks are being done in queue {0}; messages are moved when those have ended"


class Handover(NamedTuple):
    """What is being given to a queue. number: grows. order: the last one that the messages have heard."""

    number: int
    ids: list[str]
    order: int


class WantedMail(NamedTuple):
    """Which messages of a zone go. there: zones that the other node can send. here: those that this one can; None: all
    that it has. A message goes if more of what waits of it can be sent there, or, where `here` is None, all of it."""

    zone: str
    there: Collection[str]
    here: Collection[str] | None = None

    def goes(self, zones: Counter[str]) -> bool:
        """zones: of the recipients that wait."""
        there = sum(count for zone, count in zones.items() if zone in self.there)
        if self.here is None:
            return there == zones.total()
        return there > sum(count for zone, count in zones.items() if zone in self.here)


class Transfers:
    """Of the queue in this process. asks: of another queue, by its number. one: held while an order is carried out.
    order: the number of the last one."""

    def __init__(
        self, queue: LocalQueue, asks: Callable[[int], Ask], one: asyncio.Lock, order: Callable[[], int]
    ) -> None:  # fmt: skip
        self._queue, self._core, self._asks, self._one, self._order = queue, queue.core, asks, one, order
        self._giving, self._taking = asyncio.Lock(), asyncio.Lock()
        self._folder = queue.core.config.folder / FOLDER
        self._after = dict[tuple[str, str, int], bytes]()
        """Where a walk through a zone's keys of a family has come to, for a queue."""
        self._again: asyncio.Task[None] | None = None
        self._out = dict[int, Handover]()
        store = self._core.disk.store
        for key, value in store.scan(keys.MOVING_TO, keys.end(keys.MOVING_TO)):
            self._out[int(key.removeprefix(keys.MOVING_TO))] = batch = Handover(*packing.unpack(value))
            for message_id in batch.ids:
                with suppress(StoreDamaged):
                    self._lock(key for key, _ in moved.recipients(self._core, self._core.messages.look(message_id)))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._core.keep(asyncio.ensure_future(self._recovered()))

    async def _recovered(self) -> None:
        """What a crash has left."""
        await self._core.when_ready.wait()
        left = list(self._core.disk.store.keys(keys.TAKEN, keys.end(keys.TAKEN)))
        marks: list[Operation] = [(key, None) for key in left if not key.startswith(keys.TAKEN + b"- ")]
        self._core.disk.lines.submit(marks, lambda _: None, sync=False, keep=True)
        if self.under_way:
            self._try_again()

    # -- this queue's

    @property
    def under_way(self) -> dict[int, int]:
        """How many messages are being given to which queue."""
        return {number: len(batch.ids) for number, batch in self._out.items() if batch.ids}

    async def give(self, to: int, wanted: WantedMail, most: int = RECIPIENTS_AT_ONCE) -> questions.Gave:
        """As of `questions.give`. Raises QueueRefusal."""
        await self._core.when_ready.wait()
        return await self._whatever_becomes_of_who_asks(self._give(to, wanted, most))

    async def _whatever_becomes_of_who_asks(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What has begun is done to its end: messages are not left between the schedule and the store."""
        task = asyncio.ensure_future(work)
        self._core.keep(task)
        task.add_done_callback(_heard)
        return await asyncio.shield(task)

    async def _give(self, to: int, wanted: WantedMail, most: int) -> questions.Gave:
        async with self._giving:
            if (batch := self._out.get(to)) is not None and batch.ids:
                return self._said(wanted, *await self._offer(to, batch))
            if self._core.tasks.active:
                return self._said(wanted, why=BUSY.format(self._core.config.queue_number))
            async with self._one:  # no order is half done
                if self._core.tasks.active:
                    return self._said(wanted, why=BUSY.format(self._core.config.queue_number))
                await self._core.disk.lines.stable()
                found, order = self._withdrawn(self._candidates(to, wanted, most)), self._order()
            if not found:
                return self._said(wanted)
            before = batch.number if batch is not None else 0
            batch = Handover(max(before + 1, time.time_ns() // 1_000_000), [one.message.id for one in found], order)
            known, self._out[to] = self._out.get(to, Handover(0, [], 0)), batch
            try:
                await with_mail.written(self._core, [(keys.moving_to(to), packing.pack(list(batch)))])
            except QueueRefusal:
                self._out[to] = known
                self._free(found)
                raise
            self._core.changed()
            return self._said(wanted, *await self._offer(to, batch))

    def _said(self, wanted: WantedMail, messages: int = 0, recipients: int = 0, why: str = "") -> questions.Gave:
        counts = self._core.counters.sizes.zones.get(wanted.zone, (0, 0))
        return {"messages": messages, "recipients": recipients, "left": counts[0] + counts[1], "why": why}

    def _candidates(self, to: int, wanted: WantedMail, most: int) -> list[str]:
        """Messages of which something waits in the zone, about so many recipients. A walk goes on where the last one
        has ended, and begins anew behind the end."""
        store, found, walked = self._core.disk.store, dict[str, int](), 0
        for family in WAITING:
            prefix = f"{family} {wanted.zone} ".encode()
            place = family, wanted.zone, to
            for key, _ in store.scan(self._after.pop(place, prefix), keys.end(prefix)):
                walked += 1
                message_id = keys.place(key).id
                found[message_id] = found.get(message_id, 0) + 1
                if sum(found.values()) >= most or walked >= WALKED_AT_ONCE:
                    self._after[place] = key + b"\0"
                    break
            if sum(found.values()) >= most or walked >= WALKED_AT_ONCE:
                break
        return [one for one in found if self._goes(one, wanted)]

    def _goes(self, message_id: str, wanted: WantedMail) -> bool:
        core = self._core
        try:
            message = core.messages.look(message_id)
        except StoreError:
            return False
        if message.metadata.get("protocol") == PUSHED or message_id in core.arriving:
            return False
        if core.disk.store.get(keys.taken(message_id)) is not None:
            return False
        places = [keys.place(key) for key, _ in moved.recipients(core, message)]
        return wanted.goes(Counter(place.zone for place in places if place.family in WAITING))

    def _withdrawn(self, ids: list[str]) -> list[Contents]:
        """Those of which nobody else has a part; they are out of the schedule."""
        core, wanted, size, found = self._core, set(ids), 0, list[Contents]()
        out = dict[str, list[tuple[ZoneSchedule, Entry]]]()
        for zone in list(core.schedule.zones.values()):
            for flow_queue in list(zone.flow_queues.by_key.values()):
                entries = zone.withdraw(flow_queue, lambda entry: entry.id in wanted)
                for entry in entries:
                    out.setdefault(entry.id, []).append((zone, entry))
                if entries:
                    zone.tidy(flow_queue)
        for message_id in ids:
            theirs = out.pop(message_id, [])
            what = self._whole(message_id, {entry.key for _, entry in theirs}) if size < BYTES_AT_ONCE else None
            if what is None:
                for zone, entry in theirs:
                    zone.put(zone.flow_queues.of(entry.id, entry.address, entry.note), entry)
                continue
            for _, entry in theirs:
                if entry.pinned:
                    core.messages.unpin(core.messages.get(message_id))
            size += what.size
            self._lock(part.key for part in what.parts)
            found.append(what)
        return found

    def _whole(self, message_id: str, own: set[bytes]) -> Contents | None:
        """None: somebody else has a part of it. own: keys that were in the window."""
        try:
            what = moved.contents(self._core, message_id)
        except StoreError:
            return None
        if what is None or any(part.key in self._core.schedule.busy and part.key not in own for part in what.parts):
            return None
        return what

    def _lock(self, theirs: Iterable[bytes]) -> None:
        """They are busy, and no low-water mark passes them."""
        schedule = self._core.schedule
        for key in theirs:
            schedule.busy.add(key)
            place = keys.place(key)
            zone = schedule.zones.get(place.zone)
            if zone is not None and place.family == "deferred":
                zone.due.promise(key)
            elif zone is not None and place.family == "delivery-zone":
                zone.fresh.promise(key)

    def _free(self, found: list[Contents]) -> None:
        """They stay: the schedule finds them again."""
        for one in found:
            back(self._queue, one.parts)

    async def _offer(self, to: int, batch: Handover) -> tuple[int, int, str]:
        """How many messages and recipients have gone, and why others have not. Raises QueueRefusal."""
        try:
            return await self._offered(to, batch)
        except BaseException:
            self._try_again()
            raise

    async def _offered(self, to: int, batch: Handover) -> tuple[int, int, str]:
        core = self._core
        found = [one for one in map(self._contents, batch.ids) if one is not None]
        ids = await self._answer(to, batch, found) if found else []
        taken = [one for one in found if one.message.id in ids]
        for one in taken:
            moved.give(core, one, to)
        await core.disk.journal.stable()
        await core.disk.settled(math.inf)
        done = batch._replace(ids=[])
        await with_mail.written(core, [(keys.moving_to(to), packing.pack(list(done)))])
        self._out[to] = done
        for one in taken:
            core.schedule.busy.difference_update([part.key for part in one.parts])
        stay = [one for one in found if one.message.id not in ids]
        self._free(stay)
        core.changed()
        why = f"queue {to} takes {len(stay)} messages later" if stay else ""
        return len(taken), sum(sum(one.counts) for one in taken), why

    def _contents(self, message_id: str) -> Contents | None:
        try:
            return moved.contents(self._core, message_id)
        except StoreDamaged as error:
            log.error("%s; it is not moved", error)
            return None

    async def _answer(self, to: int, batch: Handover, found: list[Contents]) -> list[str]:
        """The messages that the other queue has now. Raises QueueRefusal."""
        core, ask, me = self._core, self._asks(to), self._core.config.queue_number
        names = sorted({name for one in found if (name := moved.campaign_named(one))} & core.campaigns.by_name.keys())
        campaigns = [with_mail.copy_of(core, core.campaigns.by_name[name]) for name in names]
        try:
            async with asyncio.timeout(ANSWER_S):
                for one in found:
                    if one.message.filed:
                        await self._send_body(ask, one.message.id)
                what, value = await ask(
                    questions.take, giver=me, number=batch.number, order=batch.order,
                    apart_ms=core.clock.apart_ms(), messages=[_packed(one, core.clock.apart_of) for one in found],
                    campaigns=[[copy.name, copy.record(), parts] for copy, parts in campaigns],
                    tasks=[task.row() for task in with_mail.tasks_of(core, found)],
                )  # fmt: skip
        except TimeoutError:
            raise QueueRefusal(Reply(451, "4.3.0", f"queue {to} does not answer; what it is given waits")) from None
        return list(value) if what == TAKEN else []

    async def _send_body(self, ask: Ask, message_id: str) -> None:
        path = self._core.disk.bodies.folder / message_id
        size, at = path.stat().st_size, 0
        while at < size:
            piece = await asyncio.to_thread(_piece, path, at)
            at += len(piece)
            await ask(questions.take_body, id=message_id, at=at - len(piece), data=piece)

    def _try_again(self) -> None:
        """What is noted is offered until there is an answer."""
        if self._again is None or self._again.done():
            self._again = asyncio.ensure_future(self._until_answered())
            self._core.keep(self._again)

    async def _until_answered(self) -> None:
        while not self._core.disk.closed and self.under_way:
            for to in list(self.under_way):
                async with self._giving:
                    batch = self._out[to]
                    if not batch.ids:
                        continue
                    try:
                        await self._offer(to, batch)
                    except QueueRefusal as refusal:
                        log.info("messages for queue %d wait: %s", to, refusal.reply.text)
                    except (StoreError, ValueError, OSError) as error:
                        log.warning("messages for queue %d wait: %s", to, cause(error))
            await asyncio.sleep(AGAIN_S)

    # -- another one's

    async def take_body(self, id: str, at: int, data: bytes) -> None:
        """A part of a file that a message which comes has. Raises OSError."""
        keys.queue_of(id)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        await asyncio.to_thread(_write, self._folder / id, at, data)

    async def take(
        self, giver: int, number: int, order: int, apart_ms: int, messages: list[list[Any]],
        campaigns: list[list[Any]], tasks: list[bytes],
    ) -> list[Any]:  # fmt: skip
        """As of `questions.take`. Raises QueueRefusal, OSError."""
        await self._core.when_ready.wait()
        return await self._whatever_becomes_of_who_asks(
            self._take(giver, number, order, apart_ms, messages, campaigns, tasks)
        )

    async def _take(
        self, giver: int, number: int, order: int, apart_ms: int, messages: list[list[Any]],
        campaigns: list[list[Any]], tasks: list[bytes],
    ) -> list[Any]:  # fmt: skip
        async with self._taking:
            await self._core.disk.lines.stable()  # what was refused before, and may be there yet, is deleted by then
            value = self._core.disk.store.get(keys.moving_from(giver))
            last, ids = packing.unpack(value) if value is not None else (0, [])
            if number <= last:
                return [TAKEN, ids if number == last else []]
            until = time.monotonic() + SAME_S
            while self._order() < order and time.monotonic() < until:  # noqa: ASYNC110 (it comes by itself)
                await asyncio.sleep(LOOK_S)
            async with self._one:
                if self._order() != order:
                    return await self._refused(giver, number, "other orders were carried out here")
                found = [_unpacked(row) for row in messages]
                if any(self._core.disk.store.get(keys.existence(one.message.id)) is not None for one, _ in found):
                    return await self._refused(giver, number, "a message is here already, about to leave")
                await self._taken(giver, number, apart_ms, found, campaigns, tasks)
            return [TAKEN, [one.message.id for one, _ in found]]

    async def _refused(self, giver: int, number: int, why: str) -> list[Any]:
        """What is offered under that number comes too late from now on."""
        await with_mail.written(self._core, [(keys.moving_from(giver), packing.pack([number, []]))])
        return [LATER, why]

    async def _taken(
        self, giver: int, number: int, apart_ms: int, found: list[tuple[Contents, int]], campaigns: list[list[Any]],
        tasks: list[bytes],
    ) -> None:  # fmt: skip
        core = self._core
        for name, record, parts in campaigns:
            if name not in core.campaigns.by_name:
                copy = campaign_from(name, packing.unpack(record))
                await with_mail.take_campaign(core, giver, copy, [(key, value) for key, value in parts], keep=True)
        known = [Task.of(packing.unpack(row)) for row in tasks]
        await with_mail.take_tasks(core, giver, core.clock.apart_ms() - apart_ms, known)
        due_ms = core.clock.steady_ms() + 1 - core.clock.apart_ms() + apart_ms
        arrivals = [
            moved.arrival(core, MailOrigin(giver, apart_ms, then_ms), _freed(one, due_ms)) for one, then_ms in found
        ]
        parts_ = [part for one in arrivals for part in one.contents.parts]
        self._lock(part.key for part in parts_)  # so that no position record passes them meanwhile
        note = (keys.moving_from(giver), packing.pack([number, [one.message.id for one, _ in found]]))
        try:
            await moved.take(core, arrivals, self._place_body, [note])
        except (QueueRefusal, OSError):
            core.keep(asyncio.ensure_future(self._forgotten([part.key for part in parts_])))
            raise
        marks: list[Operation] = [(keys.taken(one.message.id), None) for one, _ in found]
        core.disk.lines.submit(marks, lambda _: None, sync=False, keep=True)
        arrived(self._queue, parts_)
        if core.tasks.active:
            core.tasks.moved([each for one in arrivals for each in one.operations])
        core.changed()

    async def _forgotten(self, refused: list[bytes]) -> None:
        """A batch that failed may be found all the same: nobody reads its keys until they are deleted."""
        await self._core.disk.lines.stable()
        self._core.schedule.busy.difference_update(refused)

    def _place_body(self, message_id: str) -> None:
        """Raises OSError."""
        target = self._core.disk.bodies.folder / message_id
        target.unlink(missing_ok=True)
        sync(self._folder / message_id)
        (self._folder / message_id).rename(target)


def arrived(queue: LocalQueue, parts: Iterable[MovedPart]) -> None:
    """Their keys are in the store, and busy no more: the schedule reads them in their turn."""
    schedule = queue.core.schedule
    for part in parts:
        schedule.busy.discard(part.key)
        place = part.place
        zone = schedule.zones.get(place.zone)
        if zone is None:
            continue
        if place.family == "delivery-zone":
            zone.left_unread(part.key, part.note.deadline_ms)
        elif place.family == "deferred":
            zone.deadline_ms = min(zone.deadline_ms, part.note.deadline_ms or NEVER_MS)
            zone.due_at(place.due_ms)


def back(queue: LocalQueue, parts: Iterable[MovedPart]) -> None:
    """The same of those that were to leave, and stay."""
    for part in parts:
        place = part.place
        zone = queue.core.schedule.zones.get(place.zone)
        if place.family == "parked" and zone is not None:
            flow_queue = zone.flow_queues.of(place.id, place.recipient, part.note)
            zone.put_aside(flow_queue, Entry(part.key, place.id, place.recipient, part.note))
        else:
            arrived(queue, [part])
    if queue.core.tasks.active:
        queue.core.tasks.moved([(part.key, part.note.value()) for part in parts])
    queue.core.changed()


def _freed(what: Contents, due_ms: int) -> Contents:
    """What is parked belongs to a destination as that queue knows it: here it is due at once."""
    return what._replace(parts=[_due(part, due_ms) for part in what.parts])


def _due(part: MovedPart, due_ms: int) -> MovedPart:
    place = part.place
    if place.family != "parked":
        return part
    return part._replace(key=keys.deferred(place.zone, due_ms, place.id, place.recipient))


def _packed(what: Contents, apart_of: Callable[[str], int]) -> list[Any]:
    message = what.message
    return [
        message.id, message.metadata, message.created_ms, message.total, message.left, what.chunks,
        [[part.key, part.note.value()] for part in what.parts], [[who, value] for who, value in what.doubts],
        what.campaign, apart_of(message.id),
    ]  # fmt: skip


def _unpacked(row: list[Any]) -> tuple[Contents, int]:
    id, metadata, created_ms, total, left, chunks, parts, doubts, campaign, then_ms = row
    message = Message(id, metadata, created_ms, total, left)
    known = [MovedPart(key, Note.of(value)) for key, value in parts]
    return Contents(message, chunks, known, [(who, value) for who, value in doubts], campaign), then_ms


def _piece(path: Any, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return bytes(file.read(PIECE_BYTES))


def _write(path: Any, at: int, data: bytes) -> None:
    with path.open("r+b" if at else "wb") as file:
        file.seek(at)
        file.write(data)


def _heard(task: asyncio.Task[Any]) -> None:
    """Who has asked may be gone, and what became of it is noted."""
    if not task.cancelled():
        task.exception()
