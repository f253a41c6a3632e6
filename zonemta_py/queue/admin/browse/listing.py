"""The recipients in the queue as rows: in pages with a filter, or all of one message.

Promise: a page is there within the time of a `Pace`, however many keys have to be read; the event loop runs meanwhile,
and no iterator of the store is open then. The order is that of age: by message, the oldest first, and within a message
by address. Whoever is in the queue from before the first page until after the last, and all the time meant by the
filter, is listed exactly once, whatever becomes of it and of others meanwhile; who comes or ends meanwhile, or comes to
be meant or not, at most once. A row shows a recipient as it was when its page was made. The cursor is a place in that
order, by what never changes of a recipient: it is good for other filters, too, and outlives restarts.

While the index is being made, after an older version has used the queue, the order is that of the keys, by state and
zone, unless that of age was asked for; then whoever changes its state during the walk may be missing or be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.admin.browse import by_id, ranges
from zonemta_py.queue.admin.browse.by_id import IdWalk, Passed
from zonemta_py.queue.admin.browse.ranges import RangeWalk
from zonemta_py.queue.admin.browse.rows import Row, Rows
from zonemta_py.queue.core.campaign_counters import campaign_of
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import State
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.where import STATES, Where
from zonemta_py.schedule.time.pace import Pace

AGE = "age"
SETTLED_S = 0.01
"""How long the first page waits for the store: the time is the page's."""
LIST_MAX = 10_000
SHOWN_MAX = 1_000
"""Recipients of one message that are shown."""
TALLIED_BY = {
    "user": "user", "sender": "sender", "source": "source", "subject": "subject", "class": "kind", "site": "site",
    "zone": "zone", "domain": "domain", "provider": "provider", "campaign": "campaign", "tenant": "tenant",
}  # fmt: skip
"""What is counted by, as a recipient has it."""
NAME_MAX = 200
_LEASED = (State.LEASED,)


async def page(
    queue: QueueContext, /, limit: int = 100, after: str = "", order: str = "", **given: Any
) -> dict[str, Any]:  # fmt: skip
    """Rows of what the filter means (`tasks/where.py`), and `next`: the cursor of the next page, None at the end.

    order: "age", the oldest first, which is how they come anyway; with it, there are no pages while they cannot.
    walked: how many keys were read. more: the page is short because its time was over. Raises ValueError.
    """
    core, where, pace = queue.core, Where.of(given, needed=False), Pace()
    passed = _checked(core, where, after, order)
    if not after:
        await core.disk.settled(SETTLED_S)
    rows, limit = list[Row](), max(1, min(limit, LIST_MAX))
    wide = _widened(core, where, given)
    most = ranges.most(core, wide) if not after else None
    maker, shown = Rows(queue), where.values("state") is not None or where.values("id") is not None
    if where.values("state") == _LEASED and passed is not None:
        return await _leased(maker, where, limit, passed, pace)
    walk = by_id.walk(core, wide, after, pace, order)
    stop, found = "", list[bytes]()
    async for key, value in walk.rows():
        one = maker.of(key, value)
        if where.matches(one) and (shown or one.state not in ranges.OVER):
            rows.append(maker.row(one, key))
            found.append(key)
            if len(rows) >= limit:
                stop = walk.after.decode()
                break
            if most is not None and len(rows) == ranges.most(core, wide) and _alive(core, found):
                break  # the counters know of no others
        await pace.turn()
    following = stop or (walk.after.decode() if walk.stopped else None)
    return {"rows": rows, "next": following, "walked": walk.walked, "more": walk.stopped}


def _widened(core: Core, where: Where, given: dict[str, Any]) -> Where:
    """Where to look: what tasks are about to delete or to hold counts as deleted or held, but is still elsewhere."""
    if not core.tasks.active or not {State.DELETED, State.HELD} & {*(where.values("state") or ())}:
        return where
    return Where.of({name: value for name, value in given.items() if name != "state"}, needed=False)


def _alive(core: Core, found: list[bytes]) -> bool:
    """Whether the counters count all of these, each once: the store has them, and nothing that it does not have yet."""
    if len(found) != len({keys.place(key)[1:4] for key in found}):
        return False
    for key in found:
        place = keys.place(key)
        domain = place.recipient.rpartition("@")[2]
        if core.counters.sizes.is_behind(place.zone, domain) or core.disk.store.get(key) is None:
            return False
    return True


async def _leased(maker: Rows, where: Where, limit: int, passed: Passed, pace: Pace) -> dict[str, Any]:
    """What is being delivered is in memory."""
    rows, walked, store, after = list[Row](), 0, maker.sight.core.disk.store, passed.cursor
    places = sorted((Passed(place.id.encode(), place.recipient.encode()), key) for key, place in _places(maker.leases))
    for place, key in places:
        if place <= passed:
            continue
        if len(rows) >= limit or (walked and pace.over):
            return {"rows": rows, "next": after, "walked": walked, "more": len(rows) < limit}
        after, walked = place.cursor, walked + 1
        if (value := store.get(key)) is not None and where.matches(one := maker.of(key, value)):
            rows.append(maker.row(one, key))
        await pace.turn()
    return {"rows": rows, "next": None, "walked": walked, "more": False}


def _places(found: Iterable[bytes]) -> Iterator[tuple[bytes, keys.Place]]:
    return ((key, keys.place(key)) for key in found)


def _checked(core: Core, where: Where, after: str, order: str) -> Passed | None:
    """As `by_id.checked`."""
    if order not in ("", AGE):
        raise Refused(f"there is no order {order!r}; use {AGE!r}, or leave it out")
    for zone in where.values("zone") or ():
        if zone not in core.schedule.zones and zone not in core.counters.sizes.zones:
            raise Refused(f"there is no zone {zone!r}; there are {', '.join(core.schedule.zones)}")
    return by_id.checked(after, order)


_NAMES = {"meta": "metadata", "chosen": "chosen_headers"}
"""Fields of an envelope that are called otherwise where they are shown."""


async def show(queue: QueueContext, id: str) -> dict[str, Any]:
    """One message: envelope, recipients, header section. Raises ValueError if it does not exist."""
    core = queue.core
    try:
        message = core.messages.look(id)
    except (StoreError, UnicodeError):
        raise Refused(f"there is no message {id!r} in the queue; `zonemta queue list` shows all messages") from None
    envelope, left, rows = message.metadata, message.left, await _recipients(queue, id, message.total)
    shown = {_NAMES.get(name, name): value for name, value in envelope.items()}
    answer = {"id": id, "envelope": shown, "recipients": rows, "left": left}
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
    walk: IdWalk | RangeWalk = RangeWalk(queue.core, list(_in_turn(queue.core, id)), b"", pace)
    if queue.core.disk.places.complete:
        walk = IdWalk(queue.core, Where.of({"id": id, "state": list(STATES)}), "", pace)
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


async def tally(queue: QueueContext, /, by: str, after: str = "", **given: Any) -> dict[str, Any]:
    """How much is queued of what no counter has: by user, sender, source address, subject, class of the last reply.

    Each recipient that the filter means is looked at, so it comes in portions, like a list: `counts` are those of one,
    by name and state; whoever asks adds them up until there is no `next`. Who is in the queue all the time is counted
    once. counts: {name: {state: how many}}; walked: how many keys were read; next: the cursor, None at the end.

    Raises ValueError for a filter (`tasks/where.py`) or a name of what is counted that makes no sense.
    """
    if by not in TALLIED_BY:
        raise Refused(f"nothing is counted by {by!r}; use {', '.join(TALLIED_BY)}")
    where, pace, field = Where.of({"state": list(STATES)} | given), Pace(), TALLIED_BY[by]
    if not after:
        await queue.core.disk.settled()
    maker, counts = Rows(queue), dict[str, dict[str, int]]()
    walk = by_id.walk(queue.core, where, after, pace)
    async for key, value in walk.rows():
        one = maker.of(key, value)
        if where.matches(one):
            states = counts.setdefault(getattr(one, field)[:NAME_MAX], {})
            states[str(one.state)] = states.get(str(one.state), 0) + 1
        await pace.turn()
    return {"counts": counts, "walked": walk.walked, "next": walk.after.decode() if walk.stopped else None}
