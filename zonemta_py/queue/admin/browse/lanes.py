"""Flow queues in memory, of which there may be a million, as rows: the longest first, and only as many as an answer has
room for. Those of a zone, campaign or tenant are in that order already (`schedule/by_length.py`); those of a site,
provider or source are found by its name, and looked at while there is time.

A page is what is the longest at this moment: one whose length changes between two pages may be on both, or on neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any, NamedTuple

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.schedule.batch import EgressPath, FlowQueue
from zonemta_py.schedule.by_length import ByLength, longest
from zonemta_py.schedule.reasons import row_of
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.schedule.zone import ZoneSchedule

AT_ONCE = 400
"""Parked recipients that are counted in one turn."""
LEAST = 20
"""Rows that are made even if the time is over."""

Row = dict[str, Any]


class Rows(NamedTuple):
    """rows: of those with mail waiting or being delivered, or that something holds. more: how many there are besides.
    next: how many to leave out on the next page; None: that was the last one."""

    rows: list[Row]
    more: int
    next: int | None


async def of_flows(
    schedule: Schedule, zones: Iterable[ZoneSchedule], pace: Pace, most: int, after: int = 0, kind: str = "",
    name: str = "",
) -> Rows:  # fmt: skip
    """Those of a campaign or tenant, or of all flows. after: how many to leave out."""
    flows = list[ByLength[FlowQueue]]()
    for zone in zones:
        flows += zone.flow_queues.of_flow(kind, name)
        await pace.turn()
    count = counted(flows)
    made, looked = await _made(schedule, longest(flows, most, after), pace)
    looked = min(count, after + looked)
    return Rows(made, count - looked, looked if looked < count else None)


async def named(schedule: Schedule, names: Iterable[Sequence[str]], pace: Pace) -> Rows:
    """Those of these zones and names, as far as there are any. next: how many of the names to leave out."""
    zones, there = schedule.zones, list[tuple[int, FlowQueue]]()
    for place, (zone, name) in enumerate(names):
        if zone in zones and (found := zones[zone].flow_queues.by_key.get(name)) is not None:
            there.append((place, found))
    made, looked = await _made(schedule, [one for _, one in there], pace)
    return Rows(made, 0, there[looked][0] if looked < len(there) else None)


def counted(flows: Iterable[ByLength[FlowQueue]]) -> int:
    """How many flow queues there are."""
    return sum(len(part) for flow in flows for part in flow.parts.values())


async def paths(schedule: Schedule, names: Iterable[str], pace: Pace) -> list[EgressPath]:
    """Egress paths of those names, each once."""
    found = dict[EgressPath, None]()
    for zone in list(schedule.zones.values()):
        for name in names:
            found.update(dict.fromkeys(zone.flow_queues.names.of(name)))
            await pace.turn()
    return list(found)


async def at(schedule: Schedule, found: Sequence[EgressPath], pace: Pace, most: int) -> Rows:
    """Those of these egress paths; of very many only as far as time allows, the others are counted."""
    chosen, count = list[FlowQueue](), 0
    async for path in pace.each(found):
        count += len(path.flow_queues)
        if not pace.over or len(chosen) < most:
            chosen += path.flow_queues.values()
        if len(chosen) > 8 * most:
            chosen = nlargest(most, chosen, key=_length)
    made, looked = await _made(schedule, nlargest(most, chosen, key=_length), pace)
    return Rows(made, count - looked, None)


async def _made(schedule: Schedule, chosen: list[FlowQueue], pace: Pace) -> tuple[list[Row], int]:
    """Rows, as many as time allows, and how many were looked at for them."""
    made = list[Row]()
    for looked, flow_queue in enumerate(chosen):
        if pace.over and len(made) >= LEAST:
            return made, looked
        if flow_queue.entries or not flow_queue.parked.exhausted or _has_news(flow_queue):
            made.append(await _counted(flow_queue, row_of(schedule, flow_queue), pace))
        await pace.turn()
    return made, len(chosen)


async def _counted(flow_queue: FlowQueue, row: Row, pace: Pace) -> Row:
    """The row, with what is parked among those that wait; `counted`: all of that is."""
    row["counted"], start = not row["parked"], b""
    with suppress(StoreError):
        while not row["counted"] and not pace.over:
            count, start = flow_queue.parked.count(start, AT_ONCE)
            row["waiting"] += count
            row["counted"] = not start
            await pace.turn()
    return row


def _length(flow_queue: FlowQueue) -> int:
    return len(flow_queue.entries)


def _has_news(flow_queue: FlowQueue) -> bool:
    """Whether something holds one of which nothing waits, or it is in use."""
    path = flow_queue.path
    return bool(flow_queue.held is not None or path.active or path.failures or path.down_until)
