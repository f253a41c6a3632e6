"""Messages in memory: metadata, how many recipients are left, and the body while it is cached.

A message is pinned by each of its recipients in the window or leased, and by each unwritten batch that changes it; with
the last pin it is dropped, and read again from the store when needed. So the store is never older than memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from zonemta_py.disk import keys, packing
from zonemta_py.disk.bodies import restore
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged
from zonemta_py.disk.notes import Existence, Note
from zonemta_py.mail import edits, metadata
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.core.bodies import Bodies
from zonemta_py.queue.core.compaction import Compaction
from zonemta_py.queue.core.pull_doubts import PullDoubts

WARM_BYTES_MAX = 8 * 1024 * 1024
"""Bodies of one chunk that are cached, so that the usual message is never read back from the disk."""


class Known(Protocol):
    """A recipient, and what is known of it."""

    @property
    def address(self) -> str:
        raise NotImplementedError

    @property
    def note(self) -> Note:
        raise NotImplementedError


class Message:
    """One message. body: its one chunk as stored, while cached. left: recipients that have not ended."""

    __slots__ = ("body", "created_ms", "id", "left", "metadata", "pins", "total")

    def __init__(self, message_id: str, metadata: dict[str, Any], created_ms: int, total: int, left: int) -> None:
        self.id, self.metadata = message_id, metadata
        self.created_ms, self.total, self.left = created_ms, total, left
        self.body: bytes | None = None
        self.pins = 0

    @property
    def chunks(self) -> int:
        return int(self.metadata["chunks"])

    def about(self, people: Iterable[Known]) -> list[Any] | None:
        """Of it and some of its recipients, for a record about them; None: there is nothing to tell."""
        if "meta" not in self.metadata:
            return None
        return metadata.about(self.metadata, ((one.address, one.note.meta) for one in people))

    @property
    def filed(self) -> bool:
        """Whether its body is in a file (`bodies`)."""
        return "file" in self.metadata


class Messages:
    """The pinned messages, by id."""

    def __init__(self, store: Store, bodies: Bodies, compaction: Compaction, doubts: PullDoubts) -> None:
        self._store, self._bodies, self._compaction, self._doubts = store, bodies, compaction, doubts
        self._known: dict[str, Message] = {}
        self._warm = 0
        self.unwritten: dict[str, Message] = {}
        self.written: dict[str, Message] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, message: Message, body: bytes | None, pins: int) -> None:
        """A message just accepted, pinned so many times; its body stays cached if there is room."""
        self._known[message.id] = message
        message.pins += pins
        if body is not None and self._warm + len(body) <= WARM_BYTES_MAX:
            message.body = body
            self._warm += len(body)

    def get(self, message_id: str) -> Message:
        """From memory or the store. Raises StoreDamaged if its keys are missing or cannot be read."""
        message = self._known.get(message_id)
        if message is None:
            message = self._known[message_id] = self._load(message_id)
        return message

    def peek(self, message_id: str) -> dict[str, Any]:
        """A message's metadata, without pinning it. Raises StoreDamaged."""
        return self.look(message_id).metadata

    def look(self, message_id: str) -> Message:
        """A message, without pinning it. Raises StoreDamaged."""
        return self._known.get(message_id) or self._load(message_id)

    def _load(self, message_id: str) -> Message:
        existence = self._store.get(keys.existence(message_id))
        stored = self._store.get(keys.metadata(message_id))
        if existence is None or stored is None:
            raise StoreDamaged(f"message {message_id} has lost its metadata")
        try:
            return Message(message_id, packing.unpack(stored), *Existence.of(existence))
        except (ValueError, TypeError) as error:
            raise StoreDamaged(f"message {message_id} has unreadable metadata ({error})") from None

    def size_left(self, message_id: str) -> int:
        """Bytes of a message that cannot be loaded: from its metadata, or from what is left of its body; 0: unknown."""
        prefix, size = keys.message_range(message_id), 0
        for key, value in self._store.scan(prefix, keys.end(prefix)):
            part = key.decode().rsplit(" ", 1)[1]
            with contextlib.suppress(ValueError, TypeError, KeyError):
                if part == "*":
                    return int(packing.unpack(value)["size"])
                size += len(restore(value, CHUNK_BYTES)) if part != "#" else 0
        return size

    def body(self, message: Message) -> bytes | None:
        """The body as stored, if it is one chunk."""
        if message.body is not None or message.metadata["chunks"] != 1:
            return message.body
        return self._chunk(message.id, 1)

    def chunks(self, message: Message, first: int, most: int) -> list[bytes]:
        """Up to `most` chunks from `first` on, as stored; none after the body's end. Raises StoreError."""
        if message.filed:
            return self._bodies.read(message.id, message.chunks, first, most)
        last = min(first + most - 1, message.chunks)
        return [self._chunk(message.id, number) for number in range(first, last + 1)]

    def _first(self, message: Message) -> bytes:
        return self.chunks(message, 1, 1)[0] if message.filed else self._chunk(message.id, 1)

    def _chunk(self, message_id: str, number: int) -> bytes:
        """A chunk as stored. Raises StoreDamaged."""
        data = self._store.get(keys.chunk(message_id, number))
        if data is None:
            raise StoreDamaged(f"message {message_id} has lost chunk {number} of its body")
        return data

    def text(self, message: Message) -> bytes:
        """The first chunk, restored: the header section, and the whole body if that is one chunk. Empty for a merged
        message, which has none."""
        if not message.chunks:
            return b""
        try:
            found = restore(message.body or self._first(message), CHUNK_BYTES)
        except ValueError as error:
            raise StoreDamaged(f"message {message.id}: {error}") from None
        made = message.metadata.get("edits")
        return edits.applied(found, made) if made else found

    def cool(self, message: Message) -> None:
        """Drops the body from the cache: it is not expected to be needed again."""
        if message.body is not None:
            self._warm -= len(message.body)
            message.body = None

    def pin(self, message: Message, count: int = 1) -> None:
        message.pins += count

    def unpin(self, message: Message, count: int = 1) -> None:
        message.pins -= count
        if message.pins <= 0 and self._known.get(message.id) is message:
            self.cool(message)
            del self._known[message.id]

    def drop(self, message_id: str) -> None:
        """Drops a damaged message, whatever its pins."""
        self.unwritten.pop(message_id, None)
        self.written.pop(message_id, None)
        message = self._known.pop(message_id, None)
        if message is not None:
            self.cool(message)

    def finish(self, message: Message, count: int) -> list[Operation]:
        """What changes in the store when `count` recipients have ended; with the last one all keys are deleted.

        The number of recipients left is written once for each batch (`changes`), however many end in it.
        """
        message.left -= count
        if message.left > 0:
            self.unwritten[message.id] = message
            return []
        self.unwritten.pop(message.id, None)
        self.written.pop(message.id, None)
        filed = message.filed
        if filed:
            self._bodies.ended(message.id)
        else:
            self._compaction.ended(message.id)
        operations = self._doubts.ended(message.id)
        chunks = 0 if filed else message.metadata["chunks"]
        operations += [(key, None) for key in keys.of_message(message.id, chunks)]
        return operations

    def changes(self) -> list[Operation]:
        """How many recipients are left of the messages that changed since the last call."""
        self.written, self.unwritten = self.unwritten, {}
        return [
            (keys.existence(one.id), Existence(one.created_ms, one.total, one.left).value())
            for one in self.written.values()
        ]

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten = self.written | self.unwritten


def about_of(messages: Messages, message_id: str, people: Sequence[Known]) -> list[Any] | None:
    """As `Message.about`, of recipients of one message that need not be in memory; None also if it is damaged."""
    if not people or people[0].note.meta is None:
        return None
    try:
        return messages.look(message_id).about(people)
    except StoreDamaged:
        return None


def whose(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a REMOVED record says of its message, for readers of the journal alone."""
    return {name: metadata[name] for name in ("campaign", "tenant") if metadata.get(name)}
