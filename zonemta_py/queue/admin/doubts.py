"""Who is in doubt: listed, counted, and acknowledged by an operator who has seen it.

An entry is listed until it is acknowledged, its message in a pull zone has ended, or `Maintenance` forgets it. All is
read from the store, so that the numbers are those of the list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError
from zonemta_py.queue import questions
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused
from zonemta_py.schedule.time.pace import Pace

ANSWERS = AnswerTable[QueueContext]()
ROWS = 1_000
"""Of one answer."""
IDS_MAX = 1_000
_PLACE = re.compile("[0-9a-f]{16} .+", re.DOTALL)
_AT_ONCE = 500


@ANSWERS.to(questions.in_doubt)
async def listed(queue: QueueContext, limit: int = ROWS, after: str = "") -> list[dict[str, Any]]:
    if after and not _PLACE.fullmatch(after):
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    rows, pace, limit = list[dict[str, Any]](), Pace(), max(1, min(limit, ROWS))
    start = keys.IN_DOUBTS + after.encode() + b"\0" if after else keys.IN_DOUBTS
    for key, value in list(islice(queue.core.disk.store.scan(start, keys.end(keys.IN_DOUBTS)), limit)):
        await pace.turn()
        _, message_id, recipient = key.decode().split(" ", 2)
        zone, since_ms, action = packing.unpack(value)[:3]
        try:
            sender = queue.core.messages.peek(message_id).get("sender", "")
        except StoreError:
            sender = None  # the message has ended
        named = {"id": message_id, "zone": zone, "recipient": recipient, "sender": sender}
        rows.append(named | {"since_ms": since_ms, "action": action})
    return rows


async def counted(core: Core) -> Counter[str]:
    """How many are listed, by zone."""
    found = Counter[str]()
    async for rows in _portions(core):
        found.update(str(packing.unpack(value)[0]) for _, value in rows)
    return found


@ANSWERS.to(questions.in_doubt_acknowledge)
async def acknowledge(queue: QueueContext, ids: list[str] | None = None, until_ms: int | None = None) -> int:
    """Takes from the list those of these messages, or all of them; how many that were. until_ms: only who was being
    sent to before then, by the clock: others had not been seen. Raises ValueError."""
    wanted = None if ids is None else set(ids)
    if wanted is not None and (not wanted or len(wanted) > IDS_MAX):
        raise Refused(f"name 1 to {IDS_MAX:,} messages, or none at all to acknowledge all")
    core, count = queue.core, 0
    async for rows in _portions(core):
        gone: list[Operation] = [
            (key, None)
            for key, value in rows
            if (wanted is None or key.decode().split(" ", 2)[1] in wanted)
            and (until_ms is None or packing.unpack(value)[1] <= until_ms)
        ]
        if gone:
            core.disk.lines.submit(gone, immediately, sync=True, keep=True)
            await core.disk.lines.stable()
        count += len(gone)
    return count


async def _portions(core: Core) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Between two of them the event loop runs, and no iterator is open."""
    pace, start = Pace(), keys.IN_DOUBTS
    while rows := list(islice(core.disk.store.scan(start, keys.end(keys.IN_DOUBTS)), _AT_ONCE)):
        yield rows
        start = rows[-1][0] + b"\0"
        await pace.turn()
