"""A letter for tests of reception, and what becomes of it."""

from __future__ import annotations

import re

MESSAGE = (
    b"From: a@b.test\r\nDate: Sat, 21 Nov 2026 04:05:06 +0000\r\nMessage-ID: <1@b.test>\r\nSubject: x\r\n\r\nhi\r\n"
)
TRACE = re.compile(rb"Received: .*?\r\n(?![ \t])", re.DOTALL)


def body_of(stored: bytes) -> bytes:
    """What is stored, without our Received field."""
    found = TRACE.match(stored)
    assert found
    return stored[found.end() :]
