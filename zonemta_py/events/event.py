"""An event: something that happened, as CloudEvents 1.0 has it (the JSON format).

Every event comes from one journal record, and its id says which: `<queue>-<seq>-<part>`, so the live stream and a
replay of any span give the same ids. `schema.py` has the types and what their data hold.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

BYTES_MAX = 8192
"""Of an event as JSON."""
TYPE_PREFIX = "zonemta."
SOURCE_PREFIX = "urn:zonemta:"
SCHEMA = "urn:zonemta:events:1"
CUT = "cut"
"""In the data: names of the texts that were cut to keep the event small."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MAX = 253_402_300_799_999
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
"""One for all: `json.dumps` would make a new one for each event."""
_CUT_TO = (1000, 200, 50)
"""Characters: longer texts are cut to these, one after the other, until the event is small enough."""


class Event(NamedTuple):
    """seq, part: the record and the place within what it tells. type: without its prefix. ms: UNIX time."""

    seq: int
    part: int
    type: str
    ms: int
    data: dict[str, Any]

    @property
    def place(self) -> tuple[int, int]:
        """By which events are ordered."""
        return self[:2]


def id_of(event: Event, source: str) -> str:
    """source: the queue's name (`disk.identity.name_of`)."""
    return f"{source}-{event.seq}-{event.part}"


def place_of(id: str, source: str) -> tuple[int, int]:
    """Record and part of an event's id. Raises ValueError: one sentence."""
    queue, _, rest = id.strip().rpartition("-")
    queue, _, seq = queue.rpartition("-")
    if not (_is_number(seq) and _is_number(rest)):
        raise ValueError(f"{id[:100]!a} is not the id of an event; give one as it came: QUEUE-RECORD-PART")
    if queue != source:
        raise ValueError(f"{id[:100]!a} is an event of another queue, or of this one before it was moved; leave it out")
    return int(seq), int(rest)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def cloud_event(event: Event, source: str) -> dict[str, Any]:
    """source: the queue's name. The subject is the message's id, if the event is about one."""
    row: dict[str, Any] = {
        "specversion": "1.0",
        "id": id_of(event, source),
        "source": SOURCE_PREFIX + source,
        "type": TYPE_PREFIX + event.type,
        "time": time_of(event.ms),
        "datacontenttype": "application/json",
        "dataschema": SCHEMA,
        "data": event.data,
    }
    if event.data.get("message"):
        row["subject"] = event.data["message"]
    return row


def time_of(ms: int) -> str:
    """RFC 3339, with milliseconds, in UTC."""
    ms = min(max(ms, 0), _MS_MAX)
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(100)
def _second(seconds: int) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def encoded(event: Event, source: str) -> bytes:
    """The CloudEvent as JSON, at most 8 KB: longer texts in its data are cut then, and `cut` names them."""
    row = cloud_event(event, source)
    found = _json(row)
    for most in _CUT_TO:
        if len(found) <= BYTES_MAX:
            break
        row["data"] = _shortened(row["data"], most)
        found = _json(row)
    if len(found) > BYTES_MAX:  # it does not come to this with what we write
        row["data"] = {CUT: sorted(event.data)[:50]}
        found = _json(row)
    return found


def _json(row: dict[str, Any]) -> bytes:
    return _encode(row).encode("utf-8", "replace")


def _shortened(data: dict[str, Any], most: int) -> dict[str, Any]:
    fresh, cut = dict[str, Any](), set(data.get(CUT, ()))
    for name, value in data.items():
        if isinstance(value, str | list) and len(value) > most:
            fresh[name] = value[:most]
            cut.add(name)
        else:
            fresh[name] = value
    return fresh | {CUT: sorted(cut)} if cut else fresh
