"""Flow queues in memory, of which there may be 100,000: those that are meant are found by their names, and only as many
become rows as an answer has room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import accumulate, compress, islice
from typing import Any

from zonemta_py.queue.admin.browse.pace import Pace
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.flow_queues import FlowQueues
from zonemta_py.schedule.reasons import row_of
from zonemta_py.schedule.schedule import Schedule

AT_ONCE = 4_000
LEAST = 20
"""Rows that are made even if the time is over."""

Row = dict[str, Any]


async def found(schedule: Schedule, meant: Callable[[FlowQueues], list[FlowQueue]], pace: Pace) -> list[FlowQueue]:
    """Those that are meant, of each zone; each once."""
    chosen = dict[FlowQueue, None]()
    async for zone in pace.each(list(schedule.zones.values())):
        chosen.update(dict.fromkeys(meant(zone.flow_queues)))
    return list(chosen)


async def rows(
    schedule: Schedule, flow_queues: list[FlowQueue], pace: Pace, most: int, after: int = 0
) -> tuple[list[Row], int]:
    """Rows of those with mail waiting or being delivered, or that something holds, the longest first; and how many
    were not looked at. after: how many to leave out."""
    busy, lengths = list[FlowQueue](), list[int]()
    for at in range(0, len(flow_queues), AT_ONCE):
        part = flow_queues[at : at + AT_ONCE]
        there = [2 * len(flow_queue.entries) + (not flow_queue.parked.exhausted) for flow_queue in part]
        if 0 in there:
            chosen = [n > 0 or _has_news(flow_queue) for flow_queue, n in zip(part, there, strict=True)]
            part, there = list(compress(part, chosen)), list(compress(there, chosen))
        busy += part
        lengths += there
        await pace.turn()
    made, looked = list[Row](), after
    for place in _longest(lengths, after + most)[after:]:
        if pace.over and len(made) >= LEAST:
            break
        looked += 1
        row = row_of(schedule, busy[place])
        if row["waiting"] or row["parked"] or row["active"] or row["reasons"]:
            made.append(row)
        await pace.turn()
    return made, max(0, len(busy) - looked)


def _longest(lengths: list[int], most: int) -> list[int]:
    """The places of the largest, the first of equal ones first. Nothing is called for each of them."""
    counts = sorted(Counter(lengths).items(), reverse=True)
    reached = accumulate(count for _, count in counts)
    least = next((length for (length, _), so_far in zip(counts, reached, strict=True) if so_far >= most), 0)
    longer = [place for place, length in enumerate(lengths) if length > least]
    longer.sort(key=lengths.__getitem__, reverse=True)
    return longer + list(islice((place for place, length in enumerate(lengths) if length == least), most - len(longer)))


def _has_news(flow_queue: FlowQueue) -> bool:
    """Whether something holds one of which nothing waits, or it is in use."""
    path = flow_queue.path
    return bool(flow_queue.held is not None or path.active or path.failures or path.down_until)
