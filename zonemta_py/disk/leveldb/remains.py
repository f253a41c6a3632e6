"""What damaged bytes of the store still say about mail, so that a note can name what was lost, and for whom.

The bytes are those of a write batch, or what is left of one: keys and values, each after its length (`leveldb.log`).
Nothing is trusted here: a name is read where it can be, and left out where it cannot. Only what was put counts; a key
that was being deleted says that something had ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.log import varint

_FAMILIES = rb"message|delivery-zone|deferred|parked|held"
_KEY = re.compile(rb"\x01([\x00-\x7f]|[\x80-\xff][\x01-\x7f])(?=(?:" + _FAMILIES + rb") )")
_MESSAGES_MAX = 10_000


def messages(data: bytes) -> dict[str, dict[str, Any]]:
    """By id: "sender", "subject" where they can be read, and "recipients"."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in _puts(data):
        if len(found) >= _MESSAGES_MAX:
            break
        try:
            words = key.decode().split(" ")
            name = words[1] if words[0] == "message" else keys.place(key).id
            int(name, 16)
            row = found.setdefault(name, {"recipients": []})
            if words[0] != "message":
                row["recipients"].append(keys.place(key).recipient)
            elif words[2] == "*":
                row |= _said(value)
        except (ValueError, IndexError):
            continue
    return found


def _puts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    for match in _KEY.finditer(data):
        length, _ = varint(data, match.start() + 1)
        end = match.end() + length
        size, start = varint(data, end)
        yield data[match.end() : end], data[start : start + size]


def _said(metadata: bytes) -> dict[str, Any]:
    body = packing.unpack(metadata)
    row = {"sender": body.get("sender", "")}
    subject = (body.get("headers") or {}).get("subject")
    return row | {"subject": subject} if subject else row


def number(batch: bytes) -> int:
    """The number of a batch among all that the store was given (`state`, which is its last operation); 0: unknown."""
    at = batch.rfind(b"\x01\x05state")
    if at < 0:
        return 0
    size, start = varint(batch, at + 7)
    try:
        return int(packing.unpack(batch[start : start + size])[4])
    except (ValueError, IndexError, TypeError):
        return 0
