"""What is remembered of messages after they have ended, so that what comes back can be tied to them.

Only where a return path is configured (`return_path.verp`), and written in the batch that accepts them: one row of all
messages of the batch (id, zone, tenant and campaign; a key for each would cost more than all the rest), and a key for
each that leads from its Message-ID to its id. Nobody is named in them. They are forgotten after `return_path.srs_days`:
ids are ordered by time.

A store that is lost to damage has lost them too: then a return path still says which message and recipient it was.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.mail.envelope import Envelope

AT_ONCE = 100
"""Rows that are looked at, or forgotten, at once."""
_BYTES = 8
_NONE = bytes(_BYTES)
_DAY_MS = 86_400_000


class SentMessage(NamedTuple):
    """zone: of its first recipient, "" unknown."""

    zone: str
    tenant: str = ""
    campaign: str = ""


class Sent:
    """Of all messages of the last `srs_days` days."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._fresh = dict[SentMessage, list[bytes]]()
        """Ids and names that the next batch will have."""
        self._written = self._fresh
        self._last = ""
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Another configuration from now on."""
        self._remembers = bool(config.return_path.verp)
        self._days = config.return_path.srs_days

    def note(self, message_id: str, envelope: Envelope, zone: str) -> list[Operation]:
        """What goes into the batch that accepts it, besides `changes`. zone: of its first recipient."""
        if not self._remembers or not envelope.sender:
            return []
        name = named(envelope.headers.get("message-id", ""))
        pair = bytes.fromhex(message_id) + (name or _NONE)
        message, found = SentMessage(zone, envelope.tenant or "", envelope.campaign or ""), list[Operation]()
        if message_id > self._last:
            self._last = message_id
            self._fresh.setdefault(message, []).append(pair)
        else:  # a large one, whose id is as old as its first chunk
            found.append((keys.sent(message_id), _packed({message: [pair]})))
        if name:
            found.append((keys.sent_as(name), message_id.encode()))
        return found

    def changes(self) -> list[Operation]:
        """The row of those noted since the last call."""
        if not self._fresh:
            return []
        self._written, self._fresh = self._fresh, {}
        last = max(pairs[-1][:_BYTES] for pairs in self._written.values())
        return [(keys.sent(last.hex()), _packed(self._written))]

    def again(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        for message, pairs in self._written.items():
            self._fresh[message] = pairs + self._fresh.get(message, [])
        self._written = {}

    def get(self, message_id: str) -> SentMessage | None:
        """Also of one that waits, and is not remembered. Raises StoreError."""
        start, number = keys.sent(message_id), bytes.fromhex(message_id)
        for _, value in islice(self._store.scan(start, keys.end(keys.SENT)), AT_ONCE):
            for message, pairs in _rows(value):
                if any(pair[:_BYTES] == number for pair in pairs):
                    return message
        waits = self._store.get(keys.metadata(message_id))
        if waits is None:
            return None
        metadata: dict[str, Any] = records.unpack(waits)
        return SentMessage("", metadata.get("tenant", ""), metadata.get("campaign", ""))

    def called(self, message_id_field: str) -> str:
        """Our id of the message with that Message-ID; "" if there is none. Raises StoreError."""
        name = named(message_id_field)
        value = self._store.get(keys.sent_as(name)) if name else None
        return value.decode() if value is not None else ""

    def expired(self, now_ms: int) -> list[Operation]:
        """What is too old, AT_ONCE rows at most. Raises StoreError."""
        oldest = keys.SENT + keys.id_at(now_ms - self._days * _DAY_MS).encode()
        found: list[Operation] = []
        for key, value in islice(self._store.scan(keys.SENT, oldest), AT_ONCE):
            found.append((key, None))
            names = (pair[_BYTES:] for _, pairs in _rows(value) for pair in pairs)
            found += [(keys.sent_as(name), None) for name in names if name != _NONE]
        return found


def named(message_id_field: str) -> bytes:
    """64 bits of a Message-ID's hash; b"" of an empty one. What stands around the brackets is left out."""
    text = message_id_field.strip()
    begin, end = text.find("<"), text.find(">")
    if 0 <= begin < end:
        text = text[begin + 1 : end]
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_BYTES).digest() if text else b""


def _packed(rows: dict[SentMessage, list[bytes]]) -> bytes:
    return records.pack([[*message, b"".join(pairs)] for message, pairs in rows.items()])


def _rows(value: bytes) -> list[tuple[SentMessage, list[bytes]]]:
    """Of a row: messages that are alike, and for each its id and name."""
    step = 2 * _BYTES
    return [
        (SentMessage(*row[:3]), [row[3][at : at + step] for at in range(0, len(row[3]), step)])
        for row in records.unpack(value)
    ]
