"""Values of header fields: one line without controls, dates.

Pure: the moment is passed in; a date's text is cached for its second.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""What no field's value may have, between the brackets of a regular expression: controls, and Unicode's line ends."""
_RUN = re.compile(f"[{CONTROLS}]+")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def one_line(text: str) -> str:
    """The text with one space for each run of controls and line ends, and none around it."""
    return _RUN.sub(" ", text).strip()


@lru_cache(maxsize=8)
def date(seconds: int) -> str:
    """RFC 5322 date-time in UTC, whatever the locale: "Sat, 21 Nov 2026 04:05:06 +0000"."""
    at = time.gmtime(seconds)
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d}"
        f" {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} +0000"
    )


def utc(ms: int) -> str:
    """RFC 3339, to the second: "2026-11-21T08:00:00Z"."""
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%SZ")
