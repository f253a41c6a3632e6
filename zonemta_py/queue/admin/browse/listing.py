"""The recipients in the queue as rows: in pages with a filter, or all of one message.

Promise: a page is there within the time of a `Pace`, however many keys have to be read; the event loop runs meanwhile,
and no iterator of the store is open then. The cursor is a key: it stays valid, whatever comes and goes. A page shows
each recipient as it was when it was read; one that changes state during the walk may be missing, or be shown in its old
state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.admin.browse import ranges
from zonemta_py.queue.admin.browse.by_age import Aged, AgeWalk
from zonemta_py.queue.admin.browse.pace import Pace
from zonemta_py.queue.admin.browse.ranges import RangeWalk
from zonemta_py.queue.admin.browse.rows import Row, Rows
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.counters import campaign_of
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.tasks.where import Where

AGE = "age"
LIST_MAX = 10_000
SHOWN_MAX = 1_000
"""Recipients of one message that are shown."""
_LEASED = (State.LEASED,)


async def page(
    queue: QueueContext, limit: int = 100, after: str = "", order: str = "", **given: Any
) -> dict[str, Any]:  # fmt: skip
    """Rows of what the filter means (`tasks/where.py`), and `next`: the cursor of the next page, None at the end.

    order: "age", the oldest first; "": as they are kept, by state and zone. walked: how many keys were read. more: the
    page is short because its time was over. Raises ValueError.
    """
    core, where, pace = queue.core, Where.of(given, needed=False), Pace()
    _check(core, where, after, order)
    rows, limit = list[Row](), max(1, min(limit, LIST_MAX))
    most = ranges.most(core, where) if not after else None
    maker, shown = Rows(queue), where.values("state") is not None or where.values("id") is not None
    if where.values("state") == _LEASED and not order:
        return await _leased(maker, where, limit, after, pace)
    walk = _walk(core, where, after, order, pace)
    stop = ""
    async for key, value in walk.rows():
        one = maker.of(key, value)
        if where.matches(one) and (shown or one.state not in ranges.OVER):
            rows.append(maker.row(one, key))
            if len(rows) >= limit:
                stop = walk.after.decode()
                break
            if most is not None and len(rows) >= most and _all_of(core, where, rows):
                break  # the counters know of no others
            await pace.turn()
    following = stop or (walk.after.decode() if walk.stopped else None)
    return {"rows": rows, "next": following, "walked": walk.walked, "more": walk.stopped}


def _all_of(core: Core, where: Where, rows: list[Row]) -> bool:
    """Whether these are still as many as there are; one that changed its state meanwhile may be there twice."""
    if len(rows) != ranges.most(core, where):
        return False
    return len({(row["id"], row["zone"], row["recipient"]) for row in rows}) == len(rows)


def _walk(core: Core, where: Where, after: str, order: str, pace: Pace) -> AgeWalk | RangeWalk:
    if order:
        return AgeWalk(core, where, after, pace)
    return RangeWalk(core, ranges.of(core, where), after.encode(), pace)


async def _leased(maker: Rows, where: Where, limit: int, after: str, pace: Pace) -> dict[str, Any]:
    """What is being delivered is in memory."""
    rows, walked, store = list[Row](), 0, maker.sight.core.store
    for key in sorted(key for key in maker.leases if key > after.encode()):
        if len(rows) >= limit or (walked and pace.over):
            return {"rows": rows, "next": after, "walked": walked, "more": len(rows) < limit}
        after, walked = key.decode(), walked + 1
        if (value := store.get(key)) is not None and where.matches(one := maker.of(key, value)):
            rows.append(maker.row(one, key))
        await pace.turn()
    return {"rows": rows, "next": None, "walked": walked, "more": False}


def _check(core: Core, where: Where, after: str, order: str) -> None:
    if order not in ("", AGE):
        raise ValueError(f"there is no order {order!r}; use {AGE!r}, or leave it out")
    if order and where.values("id") is not None:
        raise ValueError("recipients of named messages have no order by age; leave out the ids, or the order")
    for zone in where.values("zone") or ():
        if zone not in core.schedule.zones and zone not in core.sizes.zones:
            raise ValueError(f"there is no zone {zone!r}; there are {', '.join(core.schedule.zones)}")
    if after and not (_is_aged(after) if order else _is_cursor(after)):
        raise ValueError(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")


def _is_cursor(after: str) -> bool:
    """Whether it is a recipient's key, or one of the index, existing or not."""
    try:
        key = after.encode()
        return keys.place(keys.indexed(key) if key.startswith(keys.INDEX) else key).family in FAMILY
    except ValueError:
        return False


def _is_aged(after: str) -> bool:
    try:
        Aged.of(after)
    except ValueError:
        return False
    return True


async def show(queue: QueueContext, id: str) -> dict[str, Any]:
    """One message: envelope, recipients, header section. Raises ValueError if it does not exist."""
    core = queue.core
    try:
        message = core.messages.look(id)
    except (StoreError, UnicodeError):
        raise ValueError(f"there is no message {id!r} in the queue; `zonemta queue list` shows all messages") from None
    envelope, left, rows = message.metadata, message.left, await _recipients(queue, id, message.total)
    answer = {"id": id, "envelope": envelope, "recipients": rows, "left": left}
    if "columns" in envelope:
        campaign = campaign_of(envelope)
        return answer | {"header": f"(each recipient's own, made from the template of campaign {campaign})"}
    try:
        header = core.messages.text(message).partition(b"\r\n\r\n")[0].decode("utf-8", "replace")
    except StoreError as error:
        header = f"(cannot be read: {error})"
    return answer | {"header": header}


async def _recipients(queue: QueueContext, id: str, total: int) -> list[Row]:
    """Rows of the message's recipients that have not ended, SHOWN_MAX at most, as far as its time allows."""
    pace, maker, rows = Pace(), Rows(queue), dict[tuple[str, str], Row]()
    walk = RangeWalk(queue.core, list(_in_turn(queue.core, id)), b"", pace)
    part = f" {id} ".encode()
    async for key, value in walk.rows():
        if part not in key:  # the index is being made: these families have to be read as a whole
            continue
        one = maker.of(key, value)
        if one.id == id:
            rows[one.zone, one.recipient] = maker.row(one, key)
            if len(rows) >= min(total, SHOWN_MAX):
                break
            await pace.turn()
    return list(rows.values())


def _in_turn(core: Core, id: str) -> Iterator[ranges.Range]:
    """Those that are read quickly first."""
    found = ranges.of_message(core, id)
    part = f" {id} ".encode()
    yield from (one for one in found if one.start.endswith(part))
    yield from (one for one in found if not one.start.endswith(part))
