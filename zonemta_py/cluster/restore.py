"""A queue's folder made again of its log: for a node that takes the queue over, and for one that has lost its files.

The folder is as the queue's own disks would be after a crash, and recovery goes on from there. What differs: ended
segments of the journal are gone from the log. So its oldest file begins with a TAKEN record for each living message
whose ENVELOPE was there, and the last POSITION counts these instead of the segments that are gone.

What is lacking in the log, or damaged, is named; the rest is kept. Failures: NotReached, Replaced, StoreError, OSError:
the folder is to be removed then, and all is to be done again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.cluster import blocks
from zonemta_py.cluster.blocks import Block, BlockKind, Joiner
from zonemta_py.cluster.log import LogMark, ReplicatedLog, blocks_of
from zonemta_py.cluster.stream import Stream
from zonemta_py.disk import body_file, identity, keys, packing
from zonemta_py.disk.files import replace_file, sync
from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.leveldb.store import Operation, Store, bytes_of
from zonemta_py.disk.notes import Note
from zonemta_py.journal import segments
from zonemta_py.journal.records import FORMAT, Type
from zonemta_py.journal.records.files import END_BODY
from zonemta_py.journal.records.taken import FAMILIES, MESSAGE, TakenMessage, TakenRecord, TakenRow
from zonemta_py.journal.segments import Writer
from zonemta_py.queue.fsck.compare import recipients

WRITE_BYTES = 2 * 1024 * 1024
BUFFER_BYTES = 32 * 1024 * 1024
_ENVELOPE_ID = slice(2, 18)
"""Of an ENVELOPE record's body."""


class Restored(NamedTuple):
    """sentences: what could not be read, each with what that means. counts: batches, records, messages, bodies."""

    sentences: list[str]
    counts: dict[str, int]


async def take_over(nats: Any, cluster: str, number: int, epoch: int, node: str, folder: Path) -> Restored:
    """Fences the queue's log: its owner until now can write no more. Then makes its files in `folder`, which is
    new."""
    from zonemta_py.cluster.log_stream import QueueLogStream

    stream = await QueueLogStream.make(nats, cluster, number)
    log = await ReplicatedLog.fenced(stream, number, epoch, node)
    log.close()
    return await restored(stream, number, log.first, log.last, folder)


async def restored(stream: Stream, number: int, first: int, last: int, folder: Path) -> Restored:
    """The files of the queue as of message `last` of its log, the TAKEOVER of whoever asks."""
    remove(folder)
    made = Files(number, folder)
    try:
        joiner = await made.read(stream, first, last)
        await asyncio.to_thread(made.finish, last)
    finally:
        made.close()
    return Restored([*joiner.faults, *made.sentences], made.counts)


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


async def _base(stream: Stream, first: int, last: int) -> tuple[int, bool]:
    """Of which life the log is, and whether what an earlier one has left counts: the new one is not complete."""
    start, end = await stream.get(first), await stream.get(last)
    base = found.base if end is not None and (found := blocks.head(end)) is not None else 0
    if start is not None and (found := blocks.head(start)) is not None and found.base == base:
        return base, True
    joiner = Joiner()
    async for block in blocks_of(stream, first, last, joiner):
        if block.kind == BlockKind.END and block.base == base:
            return base, False
    return base, True


class Files:
    """A folder in the making."""

    def __init__(self, number: int, folder: Path, until: LogMark | None = None) -> None:
        """until: store and bodies are to be as of that batch; None: as of the last one."""
        self._until, self._is_later = until, False
        self._number, self._folder = number, folder
        self.base, self.others = 0, True
        self.sentences: list[str] = []
        self.counts = {"batches": 0, "records": 0, "messages": 0, "bodies": 0}
        folder.mkdir(mode=0o700, parents=True)
        self._bodies = folder / body_file.FOLDER
        self._bodies.mkdir(mode=0o700)
        self._store = Store(folder / "store", BUFFER_BYTES)
        self._writer = Writer(folder / "journal")
        self._operations: list[Operation] = []
        self._records: list[Record] = []
        self._bytes = 0
        self._touched: set[bytes] | None = None
        """Keys that batches have had since a copy began that goes on; None: none does."""
        self._whole = False
        self._older = False
        """Something is of an earlier life of the log."""
        self._last_record = 0
        self._enveloped: set[str] = set()
        self._position: Record | None = None
        self._identity: list[Any] = []
        self._body, self._body_id = -1, ""
        self._live = 0

    async def read(self, stream: Stream, first: int, last: int) -> Joiner:
        """Takes all that the log has from message `first` to `last`; what is lacking is in the joiner's `faults`.
        Raises NotReached."""
        writing: asyncio.Future[None] | None = None
        collects = gc.isenabled()
        gc.disable()  # millions of small objects come and go, and none of them in circles
        try:
            self.base, self.others = await _base(stream, first, last)
            joiner = Joiner()
            async for block in blocks_of(stream, first, last, joiner):
                self.take(block)
                if self.full:
                    if writing is not None:
                        await writing
                    writing = asyncio.ensure_future(asyncio.to_thread(self.write, *self.gathered()))
        finally:
            if writing is not None:
                await asyncio.wait([writing])
            if collects:
                gc.enable()
        if writing is not None:
            writing.result()
        return joiner

    @property
    def full(self) -> bool:
        return self._bytes > WRITE_BYTES

    def take(self, block: Block) -> None:
        if block.base != self.base and block.base:
            if not self.others:
                return
            self._older = True
        value = block.value
        if self._until is not None and block.first > self._until.sequence and self._too_late(block):
            return
        match block.kind:
            case BlockKind.STORE:
                operations: list[Operation] = value[1]
                self._operations += operations
                if self._touched is not None:
                    self._touched.update([key for key, _ in operations])
                self._bytes += bytes_of(operations)
                self.counts["batches"] += 1
            case BlockKind.LIVE:
                touched = self._touched
                if touched is None:  # where it begins is lost, and so what came since
                    return
                if touched:
                    value = [row for row in value if row[0] not in touched]
                self._operations += value
                self._bytes += bytes_of(value)
            case BlockKind.JOURNAL:
                self._journal(value)
            case BlockKind.BODY:
                self._write_body(*value)
            case BlockKind.BEGIN:
                self._touched = set()
                self._identity = value[2] or self._identity
            case BlockKind.END:
                self._whole = self._whole or self._touched is not None
                self._touched = None
            case BlockKind.TAKEOVER:
                pass

    def _too_late(self, block: Block) -> bool:
        """Whether the batch that is meant does not have that yet: a later batch, or a copy as of a later one."""
        if block.kind == BlockKind.BEGIN:
            self._is_later = self._until is not None and block.value[0] != self._until.batches
        return block.kind == BlockKind.STORE or (
            self._is_later and block.kind in (BlockKind.BEGIN, BlockKind.LIVE, BlockKind.END)
        )

    def _journal(self, rows: list[list[Any]]) -> None:
        for row in rows:
            if row[0] <= self._last_record:
                continue
            record = Record(*row)
            self._last_record = record.seq
            self._records.append(record)
            self._bytes += len(record.body)
            if record.type == Type.ENVELOPE:
                self._enveloped.add(record.body[_ENVELOPE_ID].decode())
            elif record.type == Type.TAKEN:
                taken = TakenRecord.of(packing.unpack(record.body))
                if taken.what == MESSAGE:
                    self._enveloped.add(TakenMessage.of(taken.value).id)
            elif record.type == Type.POSITION:
                self._position = record

    def _write_body(self, message_id: str, offset: int, data: bytes) -> None:
        if message_id != self._body_id:
            self._close_body()
            self._body = os.open(self._bodies / message_id, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._body_id = message_id
        os.pwrite(self._body, data, offset)

    def _close_body(self) -> None:
        if self._body >= 0:
            os.close(self._body)
        self._body, self._body_id = -1, ""

    def gathered(self) -> tuple[list[Operation], list[Record]]:
        """For `write`, by one thread at a time."""
        found = self._operations, self._records
        self._operations, self._records, self._bytes = [], [], 0
        return found

    def write(self, operations: list[Operation], records: list[Record]) -> None:
        if operations:
            self._store.write(operations, sync=False)
        if records:
            self.counts["records"] += len(records)
            self._writer.write(records, sync=False)

    def flush(self) -> Store:
        """All that was read is written; returns the store."""
        self.write(*self.gathered())
        self._writer.write([], sync=True)
        self._writer.close()
        self._close_body()
        return self._store

    @property
    def is_whole(self) -> bool:
        """Whether the log had a copy from its beginning to its end."""
        return self._whole

    def finish(self, last: int) -> None:
        self.flush()
        if self._older and self.others:
            self.sentences.append(
                "the log was begun anew with files that had been changed without it, and that copy had not ended: what"
                " was changed in them is lacking, and recovery makes up for it"
            )
        if not self._whole and self.base:
            self.sentences.append(
                "the log has no whole copy of the queue, only what was written since it was begun: mail from before may"
                " be missing; look for it in the lost machine's files"
            )
        living = self._living()
        self._check_bodies(living)
        self._complete_journal(living)
        state = self._store.get(keys.STATE)
        batches = packing.unpack(state)[4] if state else 0
        mark = LogMark(self.base, last, last, self._last_record, batches)
        if self.base:
            self._store.write([(keys.LOG, packing.pack(mark))], sync=True)
        if self._identity:
            queue, incarnation = self._identity
            identity.take_over(self._folder, queue, incarnation, identity.this_machine())
        self.counts["messages"] = len(living)

    def close(self) -> None:
        self._writer.close()
        self._close_body()
        self._store.close()

    def _living(self) -> list[str]:
        found = self._store.keys(keys.MESSAGES, keys.end(keys.MESSAGES))
        return [key.split(b" ")[1].decode() for key in found if key.endswith(b" #")]

    def _check_bodies(self, living: list[str]) -> None:
        there, alive = body_file.ids(self._bodies), set(living)
        for message_id in there:
            if message_id not in alive:
                body_file.remove(self._bodies, message_id)
                continue
            self.counts["bodies"] += 1
            metadata = packing.unpack(self._store.get(keys.metadata(message_id)) or packing.pack({}))
            if fault := body_file.fault(self._bodies, message_id, int(metadata.get("chunks", 0))):
                self.sentences.append(f"message {message_id}: {fault}; send it again from its source")
            with (self._bodies / message_id).open("rb") as file:
                os.fdatasync(file.fileno())
        sync(self._bodies)

    # -- the journal's beginning

    def _complete_journal(self, living: list[str]) -> None:
        folder = self._folder / "journal"
        files = segments.files(folder)
        if not files:
            return
        oldest = list(segments.read_file(files[0], []))
        first = oldest[0]
        if first.seq == 1 or self._position is None:
            return
        own = first.type == Type.SEGMENT  # of what is put before it
        missing = [one for one in living if one not in self._enveloped]
        missing = missing[: max(0, first.seq - (3 if own else 2))]
        rows = self._taken(missing)
        begin = first.seq - len(rows) - (2 if own else 1)
        if begin < 1:
            return
        position, floor = self._counted_again(first.seq, begin)
        segment = {"version": FORMAT, "first": begin, "floor": floor}
        head = [Record(begin, first.ms, Type.SEGMENT, packing.pack(segment))]
        head += [Record(begin + 1 + place, first.ms, Type.TAKEN, row.pack()) for place, row in enumerate(rows)]
        if own:
            head.append(Record(first.seq - 1, first.ms, Type.END, END_BODY))
        else:
            head += oldest
        holder = [path for path in files if segments.first_seq(path) <= position.seq][-1]
        if holder == files[0] and not own:
            head = [position if one.seq == position.seq else one for one in head]
        else:
            records = [position if one.seq == position.seq else one for one in segments.read_file(holder, [])]
            replace_file(holder, frame(records, 0))
        replace_file(folder / f"{begin:016d}{segments.SUFFIX}", frame(head, 0))
        if not own:
            files[0].unlink()
        sync(folder)

    def _counted_again(self, first: int, begin: int) -> tuple[Record, str]:
        """The last POSITION as of what is here, and the lowest id that may belong to what is gone."""
        assert self._position is not None
        body = packing.unpack(self._position.body)
        rows: list[list[Any]] = body.get("segments", [])
        gone = [row for row in rows if row[0] < first]
        floor = min((row[1] for row in gone), default="0" * 16)
        living = sum(row[2] for row in gone)
        body["segments"] = [[begin, floor, living, []], *(row for row in rows if row[0] >= first)]
        return self._position._replace(body=packing.pack(body)), floor

    def _taken(self, ids: list[str]) -> list[TakenRecord]:
        """What a message's record would say if another queue had just taken it."""
        wanted: dict[str, list[list[Any]]] = {one: [] for one in ids}
        if not wanted:
            return []
        for place, _, value in recipients(self._store):
            if (rows := wanted.get(place.id)) is not None:
                note = Note.of(value)
                family = FAMILIES.index(place.family)
                rows.append(list(TakenRow(place.zone, place.recipient, note.notify, note.orcpt, family, place.middle)))
        doubts: dict[str, list[list[Any]]] = {}
        for key, value in self._store.scan(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS)):
            _, message_id, address = key.decode().split(" ", 2)
            doubts.setdefault(message_id, []).append([address, *packing.unpack(value)])
        found = []
        for one, rows in wanted.items():
            metadata = packing.unpack(self._store.get(keys.metadata(one)) or packing.pack({}))
            found.append(TakenRecord(MESSAGE, self._number, TakenMessage(one, metadata, rows, doubts.get(one, []))))
        return found
