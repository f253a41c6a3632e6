"""Answers to operators' questions. Sizes are O(1); lists walk key ranges in portions.

Questions and answers (plain dicts and lists, ready for JSON):
    size zone domain provider campaign tenant   how much that is; of nothing: zones, total (`browse/counts.py`)
    sizes by limit after zone               the same by zone, domain, provider, campaign or tenant, in pages
    tally by after and a filter             counts by user, sender, source, subject, class … (`browse/tally.py`)
    list limit after and a filter (`tasks/where.py`)   a page of rows, and the next one's cursor (`browse/listing.py`)
    queues                                  pull zones: ready, delayed, held, leased, and how many pullers wait
    leased lease id                         the queue whose message a pulled lease is; None if it is not out any more
    show id                                 envelope, recipients, header
    copied                                  why nothing is sent, as this is a copy: one sentence; "" if it is no copy
    adopt                                   {queue, incarnation}: the copy replaces the original
    backup                                  makes a copy of the queue (`backup.py`); its folder
    in-doubt limit after                    recipients whose final reply may have been on its way at a crash
    in-doubt-acknowledge ids until_ms       takes them from that list (`doubts.py`); how many that were
    release id, drop id                     orders about held recipients; how many there were
    positions                               current low-water marks and journal numbers
    stable after wait_s …                   number of the journal's last stable record; waits for one behind `after`
    rotate                                  closes the journal's open segment; its name in the archive
    explain what                            why something waits, and until when (`explain.py`)
    trace what before                       the story of a message or an address, from the journal (`browse/story.py`)
    qshape by zone limit states minutes …   age and destination (`browse/ages.py`)
    lanes zone limit after                  {rows, next, whole}: flow queues in memory, the longest first: what waits,
                                            how much, why not now (`browse/lanes.py`)
    standing                                stops, rests, and learned values (`schedule/admin_orders.py`)
    stop kind name seconds cause, lift kind name            orders about those
    accounts                                quotas of accounts: what is used of each, and when it begins anew
    warmup                                  the warm-up step of each new source at each provider
    warm source provider step               sets that step (from 1; none: warm); its new row
    campaign-put name sender template …     a new campaign (`campaigns/commands.py`); {"created": False if it existed}
    campaign-pause name cause, campaign-resume name cause, campaign-cancel name cause, campaign-complete name   its row
    campaign-decide name winner cause       its row: that variant gives the template
    campaign-text name template cause       its row: what waits of a suspended one gets this template
    campaign-templates name                 [campaign, hash of its template], and of those that it is chosen from
    campaign name, campaigns                the state of one, with its history; of all
    campaign-ends name                      which of those that were put have ended, and when; name "": of all
    campaign-hours name                     who of it waits for their hour (`campaigns/waiting_hours.py`)
    campaign-schedule name at window …      it goes at other hours from now on; its row
    campaign-tenant name registered         "" for one without, "*": an operator's, for all mail; None:
                                            there is no campaign of that name; registered:
                                            only one that was made, not one that mail has named
    suppress rows, unsuppress addresses scope       orders about the suppression list (`suppressions.py`)
    suppression address scopes, suppressions after limit kind scope        its entries; feedback kind …: what came back
    evidence address, guards, guard-release name drop   what was heard of a person; where that is held back
    metrics                                 every counter, histogram and gauge (`metrics.py`)
    ready                                   why it should get no mail now (`readiness.py`), during recovery too
    content id first                        a message's bytes, some chunks of them
    now                                     what happens a second, over the last minute
    report process counts gauges            what another process has counted
    reload, drain, generation, draining, configurations     what runs, by which configuration (`reload/questions.py`)
    task …, tasks                           what is done to many recipients at once (`queue/tasks/orders.py`)
    forget address                          erases a person from the queue (`erasure.py`); how many recipients that were
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from zonemta_py.disk import identity
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreError
from zonemta_py.logs.causes import cause
from zonemta_py.queue.admin import backup, doubts, metrics, orders, readiness, suppressions, suspensions
from zonemta_py.queue.admin.arguments import check
from zonemta_py.queue.admin.browse import ages, counts, lanes, listing, story, tally
from zonemta_py.queue.admin.campaigns import OF_CAMPAIGNS
from zonemta_py.queue.admin.explain import explain
from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.maintenance import archive
from zonemta_py.queue.pull.pulls import Pulls
from zonemta_py.queue.reload import questions as configurations
from zonemta_py.queue.tasks.orders import TaskOrders
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.reasons import whole
from zonemta_py.schedule.time.pace import Pace, measured

LANES, STANDING = 1_000, 1_000
"""Rows of one answer."""
UNMEASURED = frozenset(("leased", "stable", "report"))
"""What other processes of the MTA ask in the course of their work."""
STABLE_WAIT_S_MAX = 20.0
UNSYNCED_S = 1.0
_LOOK_S = 0.05
CAUGHT_UP_S = 1.0
"""How long the sizes of queues wait for a disk that is slow."""


async def answer(
    queue: QueueContext, campaigns: CampaignCommands, pulls: Pulls, tasks: TaskOrders, question: str,
    arguments: dict[str, Any],
) -> Any:  # fmt: skip
    """Raises ValueError with one sentence for an invalid question."""
    handler = QUESTIONS.get(question)
    if handler is None and question in OF_CAMPAIGNS:
        handler = partial(OF_CAMPAIGNS[question], campaigns)
    if handler is None and question in OF_PULLS:
        handler = partial(OF_PULLS[question], pulls)
    if handler is None and question in OF_TASKS:
        handler = partial(OF_TASKS[question], tasks)
    if handler is None:
        known = ", ".join(sorted((*QUESTIONS, *OF_CAMPAIGNS, *OF_PULLS, *OF_TASKS)))
        raise ValueError(f"the queue does not know the question {question!r}; it knows {known}")
    check(handler, question, arguments)
    try:
        found = handler(queue, **arguments)
        return await (found if question in UNMEASURED else measured(found))
    except StoreError as error:
        if isinstance(error, StoreDamaged):
            queue.core.disk.read_failed(error)
        raise ValueError(str(error)) from None


async def _queues(pulls: Pulls, queue: QueueContext) -> list[dict[str, Any]]:
    with suppress(TimeoutError):
        async with asyncio.timeout(CAUGHT_UP_S):
            await _caught_up(queue)
    return await pulls.rows()


async def _caught_up(queue: QueueContext) -> None:
    """The store has all results that have been given: what was just taken is counted no more."""
    await queue.core.disk.journal.stable()
    done = asyncio.Event()
    queue.core.disk.lines.submit([], lambda _: done.set(), sync=False, keep=True)
    queue.core.disk.lines.flush()
    await done.wait()


async def _leased(pulls: Pulls, _: QueueContext, lease: int, id: str) -> str | None:
    return pulls.queue_of(lease, id)


async def _metrics(pulls: Pulls, queue: QueueContext) -> dict[str, Any]:
    found = await metrics.metrics(queue)
    return found | {"gauges": found["gauges"] | pulls.gauges()}


OF_PULLS: dict[str, Callable[..., Awaitable[Any]]] = {"queues": _queues, "leased": _leased, "metrics": _metrics}


def _of_tasks(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def asked(tasks: TaskOrders, _: QueueContext, **arguments: Any) -> Any:
        return await ask(tasks, **arguments)

    asked.asks = ask  # type: ignore[attr-defined]
    return asked


OF_TASKS = {
    "task-preview": _of_tasks(TaskOrders.preview),
    "task": _of_tasks(TaskOrders.order),
    "task-start": _of_tasks(TaskOrders.start),
    "tasks": _of_tasks(TaskOrders.rows),
    "task-row": _of_tasks(TaskOrders.one),
    "task-cancel": _of_tasks(TaskOrders.cancel),
    "task-undo": _of_tasks(TaskOrders.undo),
}


async def _positions(queue: QueueContext) -> dict[str, Any]:
    core = queue.core
    marks = {
        zone: {name: mark.decode("utf-8", "replace") for name, mark in row.items()}
        for zone, row in core.schedule.marks().items()
    }
    return {
        "marks": marks,
        "stable": core.disk.journal.stable_seq,
        "applied": core.disk.ledger.applied(),
        "segments": core.disk.segments.rows(),
    }


async def _stable(queue: QueueContext, after: int = 0, wait_s: float = 0, written: bool = False) -> int:
    """Waits at most so long. No mail waits for it: it looks, and asks for a sync only when there was none for a second,
    since the end of a message, for one, is synced with whatever comes next. written: what has been written until now is
    synced at once."""
    journal, loop = queue.core.disk.journal, asyncio.get_running_loop()
    if written:
        with suppress(TimeoutError):
            await asyncio.wait_for(journal.stable(), STABLE_WAIT_S_MAX)
        return journal.stable_seq
    begin = loop.time()
    until, sync = begin + min(wait_s, STABLE_WAIT_S_MAX), begin + UNSYNCED_S
    while journal.stable_seq <= after and (now := loop.time()) < until:
        if now >= sync and journal.stable_seq < journal.next_seq - 1:
            journal.when_stable(immediately)
            sync = now + UNSYNCED_S
        await asyncio.sleep(_LOOK_S)
    return journal.stable_seq


async def _release(queue: QueueContext, id: str) -> int:
    return await orders.release(queue, id)


async def _drop(queue: QueueContext, id: str) -> int:
    return await orders.drop(queue, id)


async def _rotate(queue: QueueContext) -> dict[str, str]:
    """Closes the journal's open segment: `closed` is its name in the archive, "" if it held only position records."""
    return {"closed": await archive.rotate(queue.core)}


async def _paths(queue: QueueContext, zone: str | None = None, limit: int = LANES, after: int = 0) -> dict[str, Any]:
    """Flow queues in memory with waiting recipients, or that are blocked: the longest first. `next`: where the next
    page begins (`after`), None at the end; a page may be short because its time was over. whole: why nothing at all
    is sent."""
    schedule = queue.core.schedule
    if zone is not None and zone not in schedule.zones:
        return {"rows": [], "next": None, "whole": whole(schedule)}
    zones = list(schedule.zones.values()) if zone is None else [schedule.zones[zone]]
    found = await lanes.of_flows(schedule, zones, Pace(), max(1, min(limit, LANES)), max(0, after))
    return {"rows": found.rows, "next": found.next, "whole": whole(schedule)}


async def _policy(queue: QueueContext, limit: int = STANDING, after: int = 0) -> list[dict[str, Any]]:
    """after: how many an earlier answer had."""
    rows, pace, number, limit = list[dict[str, Any]](), Pace(), 0, max(0, limit)
    for portion in admin_orders.rows(queue.core.schedule):
        rows += portion[max(0, after - number) :][: limit - len(rows)]
        number += len(portion)
        if len(rows) >= limit:
            break
        await pace.turn()
    return rows


async def _stop(
    queue: QueueContext, kind: str, name: str, seconds: float | None = None, cause: str = "",
    tenants: Sequence[str] = (),
) -> int:  # fmt: skip
    """An operator's stop; seconds None: until lifted; tenants: of a campaign, only their mail. Returns how many flow
    queues in memory it stops."""
    held = await suspensions.stop(queue, kind, name, seconds, cause or "by an operator", tuple(tenants))
    await queue.core.disk.journal.stable()
    return held


async def _lift(queue: QueueContext, kind: str, name: str) -> bool:
    """Lifts a stop or rest, or forgets a learned value; False if there is none."""
    lifted = admin_orders.lift(queue.core.schedule, kind, name, "by an operator")
    await queue.core.disk.journal.stable()
    return lifted


async def _accounts(queue: QueueContext) -> list[dict[str, Any]]:
    return queue.core.counters.quotas.rows() + queue.core.counters.sessions.rows()


async def _warmup(queue: QueueContext) -> list[dict[str, Any]]:
    policy = queue.core.schedule.policy
    policy.day()  # a new day resets the counts
    return policy.warmups.describe()


async def _warm(queue: QueueContext, source: str, provider: str, step: int | None) -> dict[str, Any]:
    """An operator's warm-up step; returns the new row. Raises ValueError for an unknown source, provider or step."""
    schedule = queue.core.schedule
    await admin_orders.warm(schedule, source, provider, step, "by an operator")
    await queue.core.disk.journal.stable()
    rows = schedule.policy.warmups.describe()
    return next(row for row in rows if (row["source"], row["provider"]) == (source, provider))


async def _copied(queue: QueueContext) -> str:
    """Why nothing is sent, if this is a copy of a queue."""
    return queue.core.copied


async def _adopt(queue: QueueContext) -> dict[str, Any]:
    """Lets a copy of a queue replace the original. Raises ValueError if it is no copy."""
    core = queue.core
    if not core.copied:
        raise ValueError(f"{core.config.folder}: this is not a copy of a queue, so there is nothing to adopt")
    adopted = identity.adopt(core.config.folder, identity.this_machine())
    core.copied = ""
    core.changed()
    return {"queue": adopted.queue, "incarnation": adopted.incarnation}


async def _backup(queue: QueueContext) -> str:
    """Makes a copy of the queue; returns its folder. Raises ValueError on a disk error."""
    try:
        return str(await backup.make(queue.core))
    except OSError as error:
        raise ValueError(f"no backup could be made: {cause(error)}; free space, or repair the disk") from None


QUESTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "size": counts.size,
    "sizes": counts.page,
    "tally": tally.tally,
    "list": listing.page,
    "show": listing.show,
    "copied": _copied,
    "adopt": _adopt,
    "backup": _backup,
    "release": _release,
    "drop": _drop,
    "positions": _positions,
    "stable": _stable,
    "rotate": _rotate,
    "explain": explain,
    "trace": story.trace,
    "qshape": ages.qshape,
    "lanes": _paths,
    "standing": _policy,
    "stop": _stop,
    "lift": _lift,
    "accounts": _accounts,
    "warmup": _warmup,
    "warm": _warm,
    **suppressions.QUESTIONS,
    **metrics.QUESTIONS,
    **doubts.QUESTIONS,
    **configurations.QUESTIONS,
    **readiness.QUESTIONS,
}
