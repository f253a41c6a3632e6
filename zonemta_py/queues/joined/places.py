"""Pages of recipients of several queues, the oldest first: each queue lists its own in that order, and a cursor is a
place in it that all understand.

What one queue has listed behind the place up to which another has looked waits for the next page, so no row is lost and
none comes twice, however short a queue's page was.

While a queue cannot list in that order (`queue/admin/browse/listing.py`), one queue is listed after another: "queue
NUMBER CURSOR".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from zonemta_py.queue.admin.browse.by_id import Passed
from zonemta_py.queue.admin.browse.listing import LIST_MAX as LIST_MAX
from zonemta_py.queue.questions.question import Refused

Pages = Mapping[int, Mapping[str, Any]]
AskPages = Callable[[Sequence[int], str], Awaitable[Pages]]
"""Asks these queues for the page behind that cursor."""
_TURN = "queue "


class Listed(NamedTuple):
    """pages: what it was made of."""

    rows: list[dict[str, Any]]
    next: str | None
    pages: Pages


async def listed(ask: AskPages, numbers: Sequence[int], after: str, most: int) -> Listed:
    """Raises ValueError, QueueRefusal."""
    if after.startswith(_TURN):
        return await _in_turn(ask, numbers, after)
    return await of_pages(ask, await ask(numbers, after), numbers, after, most)


async def of_pages(ask: AskPages, pages: Pages, numbers: Sequence[int], after: str, most: int) -> Listed:
    """The same, where the pages are there."""
    places = [_place(page["next"]) for page in pages.values() if page["next"] is not None]
    if None in places:
        if after:
            raise Refused("recipients are not in the order of their age any more; begin again, or try in a minute")
        return await _in_turn(ask, numbers, f"{_TURN}{numbers[0]} ")
    ends = [place for place in places if place is not None]
    until = min(ends) if ends else None
    rows = sorted((row for page in pages.values() for row in page["rows"]), key=_of)
    if until is not None:
        rows = [row for row in rows if _of(row) <= until]
    following = until.cursor if until is not None else None
    if len(rows) > most:
        rows, following = rows[:most], _of(rows[most - 1]).cursor
    return Listed(rows, following, pages)


async def _in_turn(ask: AskPages, numbers: Sequence[int], after: str) -> Listed:
    number, _, cursor = after.removeprefix(_TURN).partition(" ")
    if not number.isdecimal() or int(number) not in numbers:
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    pages = await ask([int(number)], cursor)
    page = pages.get(int(number), {"rows": [], "next": None})
    following = None if page["next"] is None else f"{_TURN}{number} {page['next']}"
    if following is None and (later := [one for one in numbers if one > int(number)]):
        following = f"{_TURN}{later[0]} "
    return Listed(list(page["rows"]), following, pages)


def _place(cursor: str) -> Passed | None:
    """None: it is none of this order."""
    try:
        return Passed.of(cursor)
    except ValueError:
        return None


def _of(row: Mapping[str, Any]) -> Passed:
    return Passed(row["id"].encode(), row["recipient"].encode())
