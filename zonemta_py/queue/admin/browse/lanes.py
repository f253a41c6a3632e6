"""Flow queues in memory, of which there may be 100,000: those that are meant are found in portions, and only as many
become rows as an answer has room for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from zonemta_py.queue.admin.browse.pace import Pace
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.reasons import row_of
from zonemta_py.schedule.schedule import Schedule

AT_ONCE = 5_000
LEAST = 20
"""Rows that are made even if the time is over."""

Row = dict[str, Any]


async def found(schedule: Schedule, meant: Callable[[FlowQueue], bool], pace: Pace, zone: str = "") -> list[FlowQueue]:
    """Those that are meant; of one zone, if it is given."""
    zones = [schedule.zones[zone]] if zone else list(schedule.zones.values())
    chosen = list[FlowQueue]()
    for one in zones:
        all_of_it = list(one.flow_queues.by_key.values())
        for at in range(0, len(all_of_it), AT_ONCE):
            chosen += filter(meant, all_of_it[at : at + AT_ONCE])
            await pace.turn()
    return chosen


async def rows(
    schedule: Schedule, flow_queues: list[FlowQueue], pace: Pace, most: int, after: int = 0
) -> tuple[list[Row], int]:
    """Rows of those with mail waiting or being delivered, or that something holds, the longest first; and how many
    were not looked at. after: how many to leave out."""
    busy = [flow_queue for flow_queue in flow_queues if _has_news(flow_queue)]
    await pace.turn()
    made, looked = list[Row](), after
    for flow_queue in heapq.nlargest(after + most, busy, key=_waiting)[after:]:
        if pace.over and len(made) >= LEAST:
            break
        looked += 1
        row = row_of(schedule, flow_queue)
        if row["waiting"] or row["parked"] or row["active"] or row["reasons"]:
            made.append(row)
        await pace.turn()
    return made, max(0, len(busy) - looked)


def _waiting(flow_queue: FlowQueue) -> tuple[int, bool]:
    return len(flow_queue.entries), not flow_queue.parked.exhausted


def _has_news(flow_queue: FlowQueue) -> bool:
    path = flow_queue.path
    return bool(
        flow_queue.entries
        or flow_queue.held is not None
        or path.active
        or path.failures
        or path.down_until
        or not flow_queue.parked.exhausted
    )
