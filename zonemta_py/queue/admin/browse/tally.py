"""How much is queued of what no counter has: by user, sender, source address, subject, class of the last reply.

Each recipient that the filter means is looked at, so it comes in portions, like a list: `counts` are those of one, by
name and state; whoever asks adds them up until there is no `next`. Who is in the queue all the time is counted once.
"""

from __future__ import annotations

from typing import Any

from zonemta_py.queue.admin.browse import by_id
from zonemta_py.queue.admin.browse.rows import Rows
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.where import STATES, Where
from zonemta_py.schedule.time.pace import Pace

BY = {"user": "user", "sender": "sender", "source": "source", "subject": "subject", "class": "kind", "site": "site",
      "zone": "zone", "domain": "domain", "provider": "provider", "campaign": "campaign",
      "tenant": "tenant"}  # fmt: skip
"""What is counted by, as a recipient has it."""
NAME_MAX = 200


async def tally(queue: QueueContext, /, by: str, after: str = "", **given: Any) -> dict[str, Any]:
    """counts: {name: {state: how many}}; walked: how many keys were read; next: the cursor, None at the end.

    Raises ValueError for a filter (`tasks/where.py`) or a name of what is counted that makes no sense.
    """
    if by not in BY:
        raise Refused(f"nothing is counted by {by!r}; use {', '.join(BY)}")
    where, pace, field = Where.of({"state": list(STATES)} | given), Pace(), BY[by]
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
