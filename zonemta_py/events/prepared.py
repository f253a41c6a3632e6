"""Events made ready to be sent: from events of the journal, records of a ring, and lines of a file of dead letters.

A ring's record is seq (u64), part (u32) and ms (u64), little-endian, and the CloudEvent as JSON; the rest of a `Ready`
is in the JSON.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from zonemta_py.events.event import TYPE_PREFIX, Event, encoded, id_of
from zonemta_py.events.sinks.base import Ready

_HEAD = struct.Struct("<QIQ")


def ready(event: Event, source: str) -> Ready:
    """source: the queue's name."""
    subject = str(event.data.get("message") or "")
    return Ready(event.seq, event.part, id_of(event, source), event.type, subject, event.ms, encoded(event, source))


def pack(one: Ready) -> bytes:
    return _HEAD.pack(one.seq, one.part, one.ms) + one.body


def unpack(record: bytes) -> Ready:
    """Raises ValueError for what is no such record."""
    try:
        seq, part, ms = _HEAD.unpack_from(record)
    except struct.error as error:
        raise ValueError(f"not an event's record: {error}") from None
    body = record[_HEAD.size :]
    return of_row(seq, part, ms, json.loads(body), body)


def place(record: bytes) -> tuple[int, int]:
    """seq and part alone."""
    seq, part, _ = _HEAD.unpack_from(record)
    return seq, part


def of_row(seq: int, part: int, ms: int, row: dict[str, Any], body: bytes = b"") -> Ready:
    """row: the CloudEvent. body: the same as JSON, if that is at hand. Raises ValueError."""
    try:
        kind = str(row["type"]).removeprefix(TYPE_PREFIX)
        body = body or json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
        return Ready(seq, part, str(row["id"]), kind, str(row.get("subject", "")), ms, body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {error!r}") from None
