"""The log of a queue: what its disks get, kept by JetStream on several servers (`queue.core.commit.Replica`).

It holds the store's batches, the journal's records and the files of large bodies, as blocks (`blocks`), and from time
to time a copy of all that lives, so that what came before can go. So what `restore` makes of it is what the disks of
the queue would be after a crash.

One process writes it. It knows the number of each message before it sends it; several are on their way, each to be
appended after the one before. After an error it looks which of them are there, and sends the others again, for as long
as it takes. Who finds another's block in the place of its own has been *replaced*: `replaced` is called, and nothing is
answered any more.

Promise: `then` is called once the quorum has the block and all that were given before it, in their order. Failures: if
that takes longer than QUORUM_WAIT_S, `late` is told, and `back` when it is over; nothing is given up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from zonemta_py.cluster import REPLACED, blocks
from zonemta_py.cluster.blocks import Block, BlockKind, Joiner, Pen
from zonemta_py.cluster.stream import NotReached, Stream, StreamExtent
from zonemta_py.disk import body_file, identity, keys
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.instant import KeptInstant
from zonemta_py.disk.leveldb.store import Operation, Store, StoreError
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.logs.causes import cause

log = logging.getLogger(__name__)

QUORUM_WAIT_S = 20.0
"""So long mail waits for the quorum: electing another leader takes 5 to 6 s."""
TRY_S = 4.0
"""Without an answer to anything it is looked whether it has come."""
AGAIN_S = 0.25
LOST_S = 15.0
UNSEAT_S = 10.0
"""After so long without an answer another server is to lead the stream: one whose disk stands still is still alive."""
"""So long a stream may seem to lack what was acknowledged: a new leader knows first that it is one."""
TICK_S = 0.25
GUARD_S = 5.0
"""Between two looks whether the log still has what it had."""
SHOTS = 40
"""More than are on their way at once."""
FLYING_MOST, FLYING_BYTES = 32, 4 * 1024 * 1024
ROOM_BYTES = 8 * 1024 * 1024
"""Bodies and copies wait while more than this is to be sent."""
SLACK_BYTES = 8 * 1024 * 1024
QUEUED_MOST, COPIES_MOST = 2.0, 2.5
"""Until a copy has ended, its log has all that was there before it too. With it, it is to be at most so many times what
is queued (`queued_bytes`: all messages as they were handed in), or as the copy itself, whichever is more, and
SLACK_BYTES. What compresses well is copied seldom so; what does not, once half as much as lives has come."""
UNKNOWN = 0.8
"""So much of what is queued a copy is thought to be before there was one."""
LEAST_BYTES, LEAST = 2 * 1024 * 1024, 0.25
"""So much, and this part of a copy, comes at least between two: what is before them may be needed still."""
RESTS = 2.0
"""For each second of its work here a copy rests so long; besides, it waits for the quorum after each block."""
RECORDS_MOST = 500


class Replaced(Exception):
    """One sentence: another process writes this log now, or it is not what was left there."""


class LogMark(NamedTuple):
    """Value of the store's key `log`."""

    base: int = 0
    sequence: int = 0
    journal: int = 0
    record: int = 0
    batches: int = 0
    appended: int = 0
    live: int = 0
    queued: int = 0

    @classmethod
    def of(cls, value: bytes | None) -> Self:
        return cls(*unpack(value)[:8]) if value else cls()


class _Message:
    __slots__ = ("data", "sequence", "since", "then")

    def __init__(self, sequence: int, data: bytes, since: float) -> None:
        self.sequence, self.data, self.since = sequence, data, since
        self.then: Callable[[], None] | None = None


def _nothing() -> None:
    """Nobody watches yet."""


def stop(error: Replaced) -> NoReturn:
    """The process ends before it answers anybody."""
    print(f"zonemta: {error}", file=sys.stderr, flush=True)
    os._exit(REPLACED)


class ReplicatedLog:
    """The log as its writer has it."""

    def __init__(
        self, stream: Stream, number: int, pen: Pen, last: int, first: int, size: int,
        replaced: Callable[[Replaced], None] = stop,
    ) -> None:  # fmt: skip
        self.stream, self.number, self.pen = stream, number, pen
        self.first, self.last = first, last
        """What was there when it was opened; the last one is this process's TAKEOVER."""
        self.records = 0
        self.needs_base = False
        """What is on disk here is not what the log says, or that has been damaged: it begins anew."""
        self._is_anew = False
        """It does, and the copy has not ended yet."""
        self.mark = LogMark(base=pen.base, sequence=last, journal=last, appended=size)
        self._replaced = replaced
        self._next = last + 1
        self._pending = deque[_Message]()
        self._unsent = deque[_Message]()
        self._flying = dict[asyncio.Future[int], _Message]()
        self._pending_bytes = self._flying_bytes = 0
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None
        self._answered_at = 0.0
        self._room = asyncio.Event()
        self._late: Callable[[], None] = _nothing
        self._back: Callable[[], None] = _nothing
        self.is_late = False
        self.patience_s = QUORUM_WAIT_S
        self._loop = asyncio.get_running_loop()
        self._place = (last, 0)
        self._journals = deque[tuple[int, int]]([(first, 0)])
        """Of blocks of records: number of the first message, of the first record. Records before the second of these
        are somewhere from the first one's message on."""
        self._needed = 0
        """The first record that a recovery needs; 0: unknown."""
        self._erased = 0
        """Up to this record something may name a person who was erased; 0: none."""
        self._position: tuple[int, int] | None = None
        """Of the last POSITION on its way: its message, and which record is needed from then on."""
        self._copying = False
        self._behind = 0
        """Bytes before the last copy that had to stay when it had ended."""
        self._sent_since = set[str]()
        """Bodies appended since the copy under way, or the last one, was begun."""
        self._reading, self._is_closed = threading.Lock(), False
        """Held by the thread that reads the store for a copy: LevelDB crashes if it is closed meanwhile."""
        self._tasks = {self._loop.create_task(work) for work in (self._run(), self._look(), self._guard())}
        self.appended_bytes = self.messages = self.copies = 0
        """By this process."""

    @classmethod
    async def fenced(
        cls, stream: Stream, number: int, epoch: int, node: str, replaced: Callable[[Replaced], None] = stop
    ) -> Self:
        """Appends TAKEOVER: from then on nobody else can write. Raises Replaced: a later owner has written already;
        NotReached."""
        shots, writer = 1, secrets.randbits(32) or 1
        while True:
            info = await stream.info()
            found = await _last_head(stream, info)
            if found is not None and found.epoch > epoch:
                raise Replaced(_other(number, found.epoch))
            base = found.base if found is not None else 0
            pen = Pen(epoch, base, writer)
            places = range(info.last + 1, info.last + 1 + shots)
            several = {place: blocks.cut(BlockKind.TAKEOVER, pen, place, pack([epoch, node]))[0] for place in places}
            if last := await _appended(stream, several):
                opened = cls(stream, number, pen, last, info.first, info.bytes, replaced)
                opened.needs_base = info.lost > 0
                return opened
            shots = SHOTS  # somebody is writing: whichever of them is next in its place is enough
            await asyncio.sleep(AGAIN_S)

    @classmethod
    async def open(
        cls, nats: Any, cluster: str, number: int, epoch: int, node: str = "",
        replaced: Callable[[Replaced], None] = stop,
    ) -> Self:  # fmt: skip
        """nats: a `cluster.nats.Nats`. Makes the stream if there is none. Raises as `fenced`."""
        from zonemta_py.cluster.log_stream import QueueLogStream

        return await cls.fenced(await QueueLogStream.make(nats, cluster, number), number, epoch, node, replaced)

    def close(self) -> None:
        """What was not acknowledged may be there, or not. Nothing reads the store any more when this returns."""
        with self._reading:
            self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for future in list(self._flying):
            future.cancel()
        self._unsent.clear()

    def resume(self, mark: LogMark, records: int, journals: list[tuple[int, int]]) -> None:
        """Both disks have all that is there. records: the last one of the journal that is. journals: blocks of records
        that were read: number of the first message, of the first record."""
        self.records = records
        appended = max(mark.appended, self.mark.appended - mark.live)
        self.mark = mark._replace(journal=self.last, record=records, appended=appended)
        self._place = self.last, records
        self._journals.extend(journals)

    # -- what the disks' lines say (queue.core.commit.Replica)

    def watch(self, late: Callable[[], None], back: Callable[[], None]) -> None:
        self._late, self._back = late, back

    def store(
        self, number: int, operations: list[Operation], then: Callable[[bytes], None], records: Sequence[Record] = ()
    ) -> tuple[int, int]:
        def kept() -> None:
            self.mark = self.mark._replace(sequence=message.sequence, batches=number)
            then(pack(self.mark))

        if records:
            message = self._append_records(BlockKind.BOTH, pack([[number, operations], records]), records)
        else:
            message = self._append(BlockKind.STORE, pack([number, operations]))
        message.then = kept
        return self._place

    def written(self, store: Store) -> None:
        if self._copying:
            return
        if (self.mark.appended > LEAST_BYTES and self._is_large(store)) or 0 < self._erased < self._needed:
            self._copy(store, False)

    def _is_large(self, store: Store) -> bool:
        """Whether it is time for a copy."""
        mark, queued = self.mark, queued_bytes(store)
        copy = mark.live * queued / mark.queued if mark.queued else max(mark.live, UNKNOWN * queued)
        if mark.appended < LEAST_BYTES + LEAST * copy:
            return False
        held = self._behind + mark.live + mark.appended
        return held + copy > SLACK_BYTES + max(QUEUED_MOST * queued, COPIES_MOST * copy)

    def erased(self) -> None:
        self._erased = max(1, self.records)

    def journal(self, records: list[Record]) -> tuple[int, int]:
        if records:
            self._append_records(BlockKind.JOURNAL, pack(records), records)
        return self._place

    def _append_records(self, kind: BlockKind, body: bytes, records: Sequence[Record]) -> _Message:
        self._journals.append((self._next, records[0].seq))
        message = self._append(kind, body)
        self.records = records[-1].seq
        self._place = message.sequence, self.records
        for record in records:
            if record[2] == Type.POSITION:
                self._position = message.sequence, int(unpack(record.body).get("applied", 0)) + 1
        return message

    def agreed(self, place: tuple[int, int], then: Callable[[], None]) -> None:
        if not self._pending or self._pending[0].sequence > place[0]:
            then()
            return
        message = self._pending[place[0] - self._pending[0].sequence]
        before = message.then

        def both() -> None:
            if before is not None:
                before()
            then()

        message.then = both

    def kept(self, place: tuple[int, int]) -> None:
        self.mark = self.mark._replace(journal=place[0], record=place[1])
        if self._position is not None and self._position[0] <= place[0]:
            self._needed, self._position = self._position[1], None

    async def body(self, folder: Path, message_id: str) -> None:
        self._sent_since.add(message_id)
        await self._send_file(folder, message_id)

    async def _send_file(self, folder: Path, message_id: str) -> None:
        with await asyncio.to_thread((folder / message_id).open, "rb") as file:
            at = 0
            while True:
                await self._has_room()
                data = await asyncio.to_thread(file.read, blocks.PIECE_BYTES - 64)
                if not data and at:
                    return
                self._append(BlockKind.BODY, pack([message_id, at, data]))
                at += len(data)

    def begin(self, store: Store, folder: Path, applied: int, anew: bool) -> None:
        if anew or self.needs_base or not self.pen.base:
            self._begin_anew(store, folder, applied)
            return
        if applied:
            self._needed = applied + 1
        self._take(segments.read(folder, self.records + 1))

    def _take(self, records: Any) -> None:
        rows = list(records)
        for at in range(0, len(rows), RECORDS_MOST):
            self.journal(rows[at : at + RECORDS_MOST])

    def _begin_anew(self, store: Store, folder: Path, applied: int) -> None:
        """A base: the records that are needed, and a copy of the store."""
        self.pen = self.pen._replace(base=secrets.randbits(32) or 1)
        self.mark = self.mark._replace(base=self.pen.base, live=0)
        self._journals.clear()
        self._copying = False
        self._journals.append((self._copy(store, True), 0))
        self._needed = applied + 1 if applied else 1
        self._take(segments.read(folder, applied + 1 if applied else 0))
        self.needs_base, self._is_anew = False, True

    # -- copies

    def _copy(self, store: Store, base: bool) -> int:
        """Begins one; returns the number of its first message. No batch is under way."""
        bodies = store.folder.parent / body_file.FOLDER
        kept = KeptInstant()
        with store.instant(kept) as instant:
            state = instant.get(keys.STATE)
        batches = unpack(state)[4] if state else 0
        self._copying = True
        self._erased = 0 if self._erased < self._needed else self._erased
        queued, spent = queued_bytes(store), self.mark.appended
        self.mark = self.mark._replace(appended=0)
        self._sent_since = set()
        found = identity.known(store.folder.parent)
        began = self._append(BlockKind.BEGIN, pack([batches, base, found])).sequence
        task = self._loop.create_task(self._copied(store, kept, began, queued, spent, bodies, body_file.ids(bodies)))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return began

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the copy of queue %d in its log failed, please report this", self.number, exc_info=error)

    async def _copied(
        self, store: Store, kept: KeptInstant, began: int, queued: int, spent: int, folder: Path, files: list[str]
    ) -> None:
        try:
            live = await self._copied_keys(store, kept)
            for message_id in files:
                if message_id in self._sent_since:
                    continue
                try:
                    size = (folder / message_id).stat().st_size
                    await self._send_file(folder, message_id)
                except FileNotFoundError:  # it has ended
                    continue
                live += size
        except (StoreError, OSError) as error:
            said = cause(error) if isinstance(error, OSError) else str(error)
            log.warning("the copy of the queue in its log was broken off (%s); it is made again", said)
            self._copying = False
            self._behind += spent
            return
        finally:
            kept.close()
        done: asyncio.Future[None] = self._loop.create_future()
        self._append(BlockKind.END, pack([began])).then = partial(done.set_result, None)
        await done
        self.copies += 1
        self._copying = False
        self.mark = self.mark._replace(live=live, appended=max(0, self.mark.appended - live), queued=queued)
        await self._trim(began)
        self._is_anew = False

    async def _copied_keys(self, store: Store, kept: KeptInstant) -> int:
        at, live = b"", 0
        while at < b"\xff":
            await self._has_room()
            began = self._loop.time()
            rows, at = await asyncio.to_thread(self._portion, store, kept, at)
            if rows:
                done: asyncio.Future[None] = self._loop.create_future()
                before = self.appended_bytes
                self._append(BlockKind.LIVE, pack(rows)).then = partial(done.set_result, None)
                live += self.appended_bytes - before
                worked_s = self._loop.time() - began
                await done
                await asyncio.sleep(RESTS * worked_s)
        return live

    def _portion(self, store: Store, kept: KeptInstant, start: bytes) -> tuple[list[Operation], bytes]:
        with self._reading:
            if self._is_closed:
                return [], b"\xff"
            return _portion(store, kept, start)

    async def _trim(self, began: int) -> None:
        """What came before the copy goes, but for records that a recovery needs."""
        while len(self._journals) > 1 and self._journals[1][1] <= self._needed:
            self._journals.popleft()
        before = min(began, self._journals[0][0]) if self._journals else began
        while True:
            try:
                await self.stream.purge(before)
                held = (await self.stream.info()).bytes
                self._behind = max(0, held - self.mark.live - self.mark.appended) if before < began else 0
                return
            except NotReached:
                await asyncio.sleep(1)

    # -- messages

    def _append(self, kind: BlockKind, body: bytes) -> _Message:
        """Returns the block's last message."""
        was_idle = not self._pending
        since = self._loop.time()
        message: _Message | None = None
        for data in blocks.cut(kind, self.pen, self._next, body):
            message = _Message(self._next, data, since)
            self._next += 1
            size = len(data)
            self._pending.append(message)
            self._unsent.append(message)
            self._pending_bytes += size
            self.appended_bytes += size
            self.mark = self.mark._replace(appended=self.mark.appended + size)
        assert message is not None
        self.messages += 1
        if was_idle:
            self._answered_at = since
        self._send()
        return message

    async def _has_room(self) -> None:
        while self._pending_bytes > ROOM_BYTES:
            self._room.clear()
            await self._room.wait()

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._flow()
                except NotReached as error:
                    self._broken = error
                await self._settle()
        except Replaced as error:
            self._replaced(error)
        except Exception as error:
            log.exception("what the log of queue %d has could not be noted", self.number)
            self._replaced(Replaced(f"queue {self.number} is started again, since its log failed on {error!r}"))

    async def _flow(self) -> None:
        """Until something is wrong."""
        self._send()
        while self._broken is None:
            self._wake.clear()
            await self._wake.wait()

    def _send(self) -> None:
        """What there is, as far as there may be more on its way."""
        unsent, flying = self._unsent, self._flying
        while unsent and self._broken is None and len(flying) < FLYING_MOST and self._flying_bytes < FLYING_BYTES:
            message = unsent[0]
            try:
                future = self.stream.begin_append(message.data, message.sequence - 1)
            except NotReached as error:
                self._break(error)
                return
            unsent.popleft()
            flying[future] = message
            self._flying_bytes += len(message.data)
            future.add_done_callback(self._answered)

    def _break(self, error: BaseException) -> None:
        """It is looked what is there, before anything else is sent."""
        self._broken = self._broken or error
        self._wake.set()

    def _answered(self, future: asyncio.Future[int]) -> None:
        message = self._flying.pop(future, None)
        if message is None or future.cancelled():
            return
        self._flying_bytes -= len(message.data)
        error = future.exception()
        if error is None and self._pending and self._pending[0] is message and future.result() == message.sequence:
            self._acknowledge()
            self._send()
        else:
            self._break(error or NotReached("an answer is missing"))

    def _acknowledge(self) -> None:
        """The first one that is pending."""
        message = self._pending.popleft()
        self._pending_bytes -= len(message.data)
        self._answered_at = self._loop.time()
        if self._pending_bytes <= ROOM_BYTES:
            self._room.set()
        if self.is_late:
            self.is_late = False
            self._back()
        if message.then is not None:
            message.then()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if not self._pending:
                continue
            now = self._loop.time()
            if now - max(self._answered_at, self._pending[0].since) > TRY_S and self._flying:
                self._break(NotReached("no answer"))
                self._answered_at = now
            if now - self._pending[0].since > self.patience_s:
                if not self.is_late:
                    log.error(
                        "queue %d: most of the NATS servers cannot be reached (for %.0f s); mail is refused with 451 "
                        "until they can, and none is sent", self.number, now - self._pending[0].since,
                    )  # fmt: skip
                self.is_late = True
                self._late()

    async def _guard(self) -> None:
        """As long as this process is well the queue's files have all that was damaged in the log."""
        damaged = False
        while True:
            await asyncio.sleep(GUARD_S)
            if self._is_anew:
                continue
            with suppress(NotReached):
                lost = (await self.stream.info()).lost
                if lost and damaged:
                    self._replaced(
                        Replaced(
                            f"the log of queue {self.number} lacks {lost:,} messages that it had, since files of a "
                            "NATS server were damaged; it is made again of the queue's own files"
                        )
                    )
                    return
                damaged = lost > 0

    async def _settle(self) -> None:
        """After an error: what is there, and what has to be sent again. Raises Replaced."""
        for future in list(self._flying):
            self._flying.pop(future)
            future.cancel()
        self._flying_bytes = 0
        lost_since = silent_since = self._loop.time()
        while self._pending:
            try:
                info = await self.stream.info()
                silent_since = self._loop.time()
                if info.last < self._pending[0].sequence - 1:
                    if self._loop.time() - lost_since > LOST_S:
                        raise Replaced(
                            f"the log of queue {self.number} has lost what it had acknowledged: it ends with message "
                            f"{info.last}, before {self._pending[0].sequence - 1}; it is made again of the queue's own"
                            " files"
                        )
                    raise NotReached("its leader may not know yet that it is one")
                while self._pending and self._pending[0].sequence <= info.last:
                    message = self._pending[0]
                    data = await self.stream.get(message.sequence)
                    if data is None:
                        raise NotReached("its leader may not have it yet")
                    if data != message.data:
                        raise Replaced(self._foreign(blocks.head(data)))
                    self._acknowledge()
                break
            except NotReached:
                if self._loop.time() - silent_since > UNSEAT_S:
                    silent_since = self._loop.time()
                    await self.stream.unseat()
                await asyncio.sleep(AGAIN_S)
        self._broken = None
        self._unsent.clear()
        self._unsent.extend(self._pending)

    def _foreign(self, found: blocks.Head | None) -> str:
        if found is not None and found.epoch <= self.pen.epoch:  # it is void, and the next TAKEOVER comes behind it
            return f"a late message of a process that has ended is in the log of queue {self.number}: it is opened anew"
        return _other(self.number, found.epoch if found is not None else 0)

    # -- for whoever waits

    async def stable(self) -> None:
        """Until all that was given is acknowledged."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.agreed((self._next - 1, 0), partial(done.set_result, None))
        await asyncio.shield(done)


def queued_bytes(store: Store) -> int:
    """What is queued: all messages that wait, as they were handed in."""
    state = store.get(keys.STATE)
    return int(unpack(state)[3]) if state else 0


async def blocks_of(stream: Stream, first: int, last: int, joiner: Joiner) -> AsyncIterator[Block]:
    """The blocks from message `first` to message `last`. Raises NotReached."""
    async for sequence, data in stream.read(first, last):
        block = joiner.take(sequence, data)
        if block is not None:
            for one in blocks.apart(block):
                yield one
    joiner.ends(last)


def _other(number: int, epoch: int) -> str:
    return (
        f"queue {number} has another owner now (epoch {epoch} of its log), which goes on with its mail; this one ends,"
        " and has answered for nothing that the other does not have"
    )


async def _last_head(stream: Stream, info: StreamExtent) -> blocks.Head | None:
    """Of the last message that can be read; None: there is none. Raises NotReached."""
    for sequence in range(info.last, info.first - 1, -1):
        data = await stream.get(sequence)
        if data is not None and (found := blocks.head(data)) is not None:
            return found
    return None


async def _appended(stream: Stream, several: dict[int, bytes]) -> int:
    """The last of these that is there, each in its place; 0: none is."""
    with suppress(NotReached):
        sent = [stream.begin_append(data, place - 1) for place, data in several.items()]
        await asyncio.wait(sent, timeout=TRY_S)
        for one in sent:
            if not one.cancel():
                one.exception()  # it is heard
    for place in reversed(several):
        if await stream.get(place) == several[place]:
            return place
    return 0


def _portion(store: Store, kept: KeptInstant, start: bytes) -> tuple[list[Operation], bytes]:
    """Keys and values for one block, and where to go on. Without the index, which comes with its keys."""
    rows, size = list[Operation](), 0
    with store.instant(kept) as instant:
        for first, stop in ((start, keys.INDEX), (max(start, keys.end(keys.INDEX)), b"\xff")):
            for key, value in instant.scan(first, stop) if first < stop else ():
                if key in (keys.LOG, b"probe"):
                    continue
                rows.append((key, value))
                size += len(key) + len(value) + 6
                if size > blocks.PIECE_BYTES:
                    return rows, key + b"\0"
    return rows, b"\xff"
