"""What plugins keep (`api.store`): values with an end, and counters that have a limit in a time.

Pure: `decide` says what becomes of a row. Each change has a token of its client's: the same change comes again, if its
answer was lost, and then has the first answer, and no second effect. A counter begins with its first `take`, and anew
when its time is over; what was taken in a time that is over cannot be given back into the next one (`window`).

Failures: ValueError, one sentence for the plugin's writer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from zonemta_py.disk import packing

VALUE_BYTES_MAX, NAME_BYTES_MAX, NAMES_MAX = 16_384, 200, 10_000
"""Of a value as JSON; of a name; and how many of these a plugin may have in a queue."""
SECONDS_MAX = 10 * 365 * 86_400.0
TOKEN_MS = 300_000
"""How long an answer is known: a client that has not got it asks again within seconds."""
VALUE, COUNT = "value", "count"
GET, SET, DELETE, TAKE, GIVE, UNDO, TAKEN = "get", "set", "delete", "take", "give", "undo", "taken"
KIND = {GET: VALUE, SET: VALUE, DELETE: VALUE, TAKE: COUNT, GIVE: COUNT, UNDO: COUNT, TAKEN: COUNT}
READS = frozenset((GET, TAKEN))


class PluginRow(NamedTuple):
    """A row. until_ms: steady time of its end, 0: none. content: a value as JSON, or what a counter has. window: of a
    counter, its time's name."""

    until_ms: int
    content: bytes | int
    window: str = ""

    def pack(self) -> bytes:
        return packing.pack([*self])

    @classmethod
    def of(cls, value: bytes) -> PluginRow:
        """Raises ValueError, TypeError."""
        return cls(*packing.unpack(value)[:3])


def decide(
    what: str, row: PluginRow | None, now_ms: int, token: str, arguments: list[Any]
) -> tuple[Any, PluginRow | None]:
    """The answer, and the row from now on (the same one: nothing is to be written). row: None if there is none, or its
    time is over. `undo` is `give` of what `take` is told to have given.

    Raises ValueError.
    """
    if what == GET:
        return (row.content if row is not None else None), row
    if what == TAKEN:
        return (row.content if row is not None else 0), row
    if what == SET:
        content, seconds = arguments
        if not isinstance(content, bytes) or len(content) > VALUE_BYTES_MAX:
            raise ValueError(f"a value may have {VALUE_BYTES_MAX:,} bytes as JSON")
        return True, PluginRow(now_ms + _ms(seconds) if seconds is not None else 0, content)
    if what == DELETE:
        return row is not None, None
    if what == TAKE:
        n, limit, seconds = arguments
        _check_counts(n, limit)
        until_ms = now_ms + _ms(seconds)
        known = row or PluginRow(until_ms, 0, token)
        assert isinstance(known.content, int)
        if known.content + n > limit:
            return None, row
        return known.window, known._replace(content=known.content + n)
    if what in (GIVE, UNDO):
        n, window = arguments
        _check_counts(n, n)
        if row is None or row.window != window or not isinstance(row.content, int):
            return False, row
        left = row.content - n
        return True, row._replace(content=left) if left > 0 else None  # the next `take` begins anew
    raise ValueError(f"{what!r} is nothing that a plugin's store does")


def check_name(name: object) -> str:
    """Raises ValueError."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(
            f"{str(name)[:40]!r} is not a name; give it a text of up to {NAME_BYTES_MAX} bytes in one line"
        )
    return name


def _check_counts(n: object, limit: object) -> None:
    for one in (n, limit):
        if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < 1 << 62:
            raise ValueError(f"a count is a whole number from 0 up, not {one!r}")


def _ms(seconds: object) -> int:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not number or not 0 < seconds <= SECONDS_MAX:  # type: ignore[operator]  # it is a number
        raise ValueError(f"a time is a number of seconds above 0, ten years at most, not {seconds!r}")
    return max(1, int(seconds * 1000))  # type: ignore[operator]
