"""Events made ready to be sent: from events of the journal, records of a ring, and lines of a file of dead letters.

A ring's record is seq (u64), part (u32), ms (u64) and the lengths of type (u8) and subject (u16), little-endian, then
type, subject and the CloudEvent as JSON, in which the id is: to parse all of it costs more than everything else here.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from zonemta_py.events.event import TYPE_PREFIX, Event, encoded, id_of
from zonemta_py.events.sinks.base import Ready

_HEAD = struct.Struct("<QIQBH")
_BEGIN = b'{"specversion":"1.0","id":"'
"""Of every CloudEvent as `event.encoded` makes it."""


def ready(event: Event, source: str) -> Ready:
    """source: the queue's name."""
    subject = str(event.data.get("message") or "")
    return Ready(event.seq, event.part, id_of(event, source), event.type, subject, event.ms, encoded(event, source))


def pack(one: Ready) -> bytes:
    kind, subject = one.type.encode(), one.subject.encode()
    return b"".join((_HEAD.pack(one.seq, one.part, one.ms, len(kind), len(subject)), kind, subject, one.body))


def unpack(record: bytes) -> Ready:
    """Raises ValueError for what is no such record."""
    try:
        seq, part, ms, kind_bytes, subject_bytes = _HEAD.unpack_from(record)
    except struct.error as error:
        raise ValueError(f"not an event's record: {error}") from None
    kind_end = _HEAD.size + kind_bytes
    subject_end = kind_end + subject_bytes
    kind, subject, body = record[_HEAD.size : kind_end], record[kind_end:subject_end], record[subject_end:]
    return Ready(seq, part, _id(body), kind.decode(), subject.decode(), ms, body)


def _id(body: bytes) -> str:
    """Raises ValueError."""
    if body.startswith(_BEGIN):
        return body[len(_BEGIN) : body.index(b'"', len(_BEGIN))].decode()
    return str(json.loads(body)["id"])


def place(record: bytes) -> tuple[int, int]:
    """seq and part alone."""
    seq, part, *_ = _HEAD.unpack_from(record)
    return seq, part


def of_row(seq: int, part: int, ms: int, row: dict[str, Any], body: bytes = b"") -> Ready:
    """row: the CloudEvent. body: the same as JSON, if that is at hand. Raises ValueError."""
    try:
        kind = str(row["type"]).removeprefix(TYPE_PREFIX)
        body = body or json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
        return Ready(seq, part, str(row["id"]), kind, str(row.get("subject", "")), ms, body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {error!r}") from None
