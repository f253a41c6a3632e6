"""Answers to operators' questions (`queue/questions/`): who answers which, and what is none of a subject's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from zonemta_py.disk import identity
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.queue import questions
from zonemta_py.queue.admin import (
    backup,
    domains,
    doubts,
    metrics,
    orders,
    readiness,
    reports,
    reroutes,
    suppressions,
    suspensions,
)
from zonemta_py.queue.admin.browse import ages, counts, lanes, listing, story
from zonemta_py.queue.admin.explain import explain
from zonemta_py.queue.api import Membership, QueueFault, QueueRefusal
from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.lifecycle import spooled
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.maintenance import archive
from zonemta_py.queue.pull.pulls import Pulls
from zonemta_py.queue.questions.question import AnswerTable, Refused, number
from zonemta_py.queue.reload import questions as configurations
from zonemta_py.queue.tasks.orders import TaskOrders
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.reasons import whole
from zonemta_py.schedule.time.pace import Pace, measured

log = logging.getLogger(__name__)

LANES, STANDING = 1_000, 1_000
"""Rows of one answer."""
STABLE_WAIT_S_MAX = 20.0
UNSYNCED_S = 1.0
_LOOK_S = 0.05
CAUGHT_UP_S = 1.0
"""How long the sizes of queues wait for a disk that is slow."""


OF_QUEUE = AnswerTable[QueueContext]()
OF_CAMPAIGNS = AnswerTable[CampaignCommands]()
OF_PULLS = AnswerTable["PullZones"]()
OF_TASKS = AnswerTable[TaskOrders]()


async def answer(
    queue: QueueContext, campaigns: CampaignCommands, pulls: Pulls, tasks: TaskOrders, question: str,
    arguments: dict[str, Any],
) -> Any:  # fmt: skip
    """Raises InvalidValue (most often `Refused`) for what is wrong with the question; QueueRefusal; QueueFault for
    everything else."""
    of_pulls = PullZones(pulls, queue)
    tables = (OF_QUEUE, queue), (OF_CAMPAIGNS, campaigns), (OF_PULLS, of_pulls), (OF_TASKS, tasks)
    found = next(((table[question], of) for table, of in tables if question in table), None)
    if found is None:
        known = ", ".join(sorted(name for table, _ in tables for name in table))
        raise Refused(f"the queue does not know the question {str(question)!r}; it knows {known}")
    (asked, function), of = found
    asked.check(arguments)
    try:
        work = function(of, **arguments)
        return await (work if question in questions.UNMEASURED else measured(work))
    except (InvalidValue, QueueRefusal):
        raise
    except StoreError as error:  # whoever asks has done nothing wrong, and can ask again once the disk is repaired
        reply = queue.core.disk.unreadable(error)
        raise QueueRefusal(Reply(reply.code, reply.enhanced, str(error))) from None
    except Exception as error:
        raise _fault(asked, error) from error


def _fault(asked: str, error: Exception) -> QueueFault:
    """It is logged here, with its traceback: whoever asks may be another process."""
    log.error("the question %s failed: a fault of zonemta, or of this machine", asked, exc_info=error)
    return QueueFault(f"{asked}: the queue failed to answer, by a fault of its own; its log says where")


class PullZones(NamedTuple):
    pulls: Pulls
    queue: QueueContext


@OF_PULLS.to(questions.queues)
async def _queues(of: PullZones) -> list[dict[str, Any]]:
    with suppress(TimeoutError):
        async with asyncio.timeout(CAUGHT_UP_S):
            await _caught_up(of.queue)
    return await of.pulls.rows()


async def _caught_up(queue: QueueContext) -> None:
    """The store has all results that have been given: what was just taken is counted no more."""
    await queue.core.disk.journal.stable()
    done = asyncio.Event()
    queue.core.disk.lines.submit([], lambda _: done.set(), sync=False, keep=True)
    queue.core.disk.lines.flush()
    await done.wait()


@OF_PULLS.to(questions.leased)
async def _leased(of: PullZones, lease: int, id: str) -> str | None:
    return of.pulls.queue_of(lease, id)


@OF_PULLS.to(questions.metrics)
async def _metrics(of: PullZones, node: bool = False) -> dict[str, Any]:
    found = await metrics.metrics(of.queue)
    return found | {"gauges": found["gauges"] | of.pulls.gauges()}


@OF_QUEUE.to(questions.positions)
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


@OF_QUEUE.to(questions.stable)
async def _stable(queue: QueueContext, after: int = 0, wait_s: float = 0, written: bool = False) -> int:
    """No mail waits for it: it looks, and asks for a sync only when there was none for a second, since the end of a
    message, for one, is synced with whatever comes next."""
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


@OF_QUEUE.to(questions.order)
async def _order(
    queue: QueueContext, number: int, asked: str, arguments: dict[str, Any], sure: bool = False, repeated: bool = False
) -> list[Any]:
    return await _membership(queue).carry_out(number, asked, arguments, sure, repeated)


@OF_QUEUE.to(questions.learn)
async def _learn(queue: QueueContext, origin: int, lessons: list[list[Any]]) -> None:
    await _membership(queue).learn(origin, lessons)


@OF_QUEUE.to(questions.order_number)
async def _order_number(queue: QueueContext) -> int:
    return _membership(queue).number


@OF_QUEUE.to(questions.share)
async def _share(queue: QueueContext, until: float, messages: list[Any], wait_s: float = 0.0) -> list[Any]:
    return await _membership(queue).share(until, messages, wait_s)


@OF_QUEUE.to(questions.shared)
async def _shared(queue: QueueContext, ids: list[list[str]]) -> list[float]:
    return _membership(queue).used(ids)


@OF_QUEUE.to(questions.give)
async def _give(
    queue: QueueContext, to: int, zone: str, there: list[str], here: list[str] | None = None, most: int = 500
) -> questions.Gave:
    return await _membership(queue).give(to, zone, there, here, most)


@OF_QUEUE.to(questions.away)
async def _away(queue: QueueContext, where: dict[str, list[Any]]) -> questions.AwayZones:
    return await _membership(queue).away(where)


@OF_QUEUE.to(questions.take)
async def _take(
    queue: QueueContext, giver: int, number: int, order: int, apart_ms: int, messages: list[list[Any]],
    campaigns: list[list[Any]], tasks: list[bytes],
) -> list[Any]:  # fmt: skip
    return await _membership(queue).take(giver, number, order, apart_ms, messages, campaigns, tasks)


@OF_QUEUE.to(questions.take_body)
async def _take_body(queue: QueueContext, id: str, at: int, data: bytes) -> None:
    await _membership(queue).take_body(id, at, data)


def _membership(queue: QueueContext) -> Membership:
    if queue.core.membership is None:
        raise Refused("this MTA has one queue; server.queues in its configuration says how many there are")
    return queue.core.membership


@OF_QUEUE.to(questions.rotate)
async def _rotate(queue: QueueContext) -> dict[str, str]:
    return {"closed": await archive.rotate(queue.core)}


@OF_QUEUE.to(questions.lanes)
async def _paths(
    queue: QueueContext, zone: str | None = None, limit: int = LANES, after: int | str = 0,
    names: list[list[str]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    schedule, after = queue.core.schedule, number(after)
    if names is not None:
        found = await lanes.named(schedule, [(one[0], one[-1]) for one in names[:LANES] if one], Pace())
        return {"rows": found.rows, "next": found.next, "whole": whole(schedule)}
    if zone is not None and zone not in schedule.zones:
        return {"rows": [], "next": None, "whole": whole(schedule)}
    zones = list(schedule.zones.values()) if zone is None else [schedule.zones[zone]]
    found = await lanes.of_flows(schedule, zones, Pace(), max(1, min(limit, LANES)), max(0, after))
    return {"rows": found.rows, "next": found.next, "whole": whole(schedule)}


@OF_QUEUE.to(questions.standing)
async def _policy(queue: QueueContext, limit: int = STANDING, after: int = 0) -> list[dict[str, Any]]:
    rows, pace, number, limit = list[dict[str, Any]](), Pace(), 0, max(0, limit)
    for portion in admin_orders.rows(queue.core.schedule):
        rows += portion[max(0, after - number) :][: limit - len(rows)]
        number += len(portion)
        if len(rows) >= limit:
            break
        await pace.turn()
    return rows


@OF_QUEUE.to(questions.stop)
async def _stop(
    queue: QueueContext, kind: str, name: str, seconds: float | None = None, cause: str = "",
    tenants: Sequence[str] = (),
) -> int:  # fmt: skip
    held = await suspensions.stop(queue, kind, name, seconds, cause or "by an operator", tuple(tenants))
    await queue.core.disk.journal.stable()
    return held


@OF_QUEUE.to(questions.lift)
async def _lift(queue: QueueContext, kind: str, name: str) -> bool:
    lifted = admin_orders.lift(queue.core.schedule, kind, name, "by an operator")
    await queue.core.disk.journal.stable()
    return lifted


@OF_QUEUE.to(questions.reroute)
async def _reroute(
    queue: QueueContext, to: str, zone: str = "", destination: str = "", seconds: float | None = None, cause: str = "",
    by: str = "",
) -> dict[str, Any]:  # fmt: skip
    row = await reroutes.add(queue, zone, destination, to, seconds, cause, by)
    await queue.core.disk.journal.stable()
    return row


@OF_QUEUE.to(questions.reroute_remove)
async def _reroute_remove(queue: QueueContext, zone: str = "", destination: str = "") -> bool:
    removed = reroutes.remove(queue, zone, destination)
    await queue.core.disk.journal.stable()
    return removed


@OF_QUEUE.to(questions.reroutes)
async def _reroutes(queue: QueueContext) -> list[dict[str, Any]]:
    return reroutes.rows(queue)


_ALONE = "this MTA is no node of a cluster; set [cluster] in its configuration"
_NOT_YET = "this node's agent does not answer yet; ask again in a moment"


def _of_agent(queue: QueueContext) -> Refused:
    """Its agent answers what is of the cluster; who asks before that is there comes here."""
    return Refused(_NOT_YET if queue.core.config.cluster.enabled else _ALONE)


@OF_QUEUE.to(questions.cluster)
async def _cluster(queue: QueueContext) -> dict[str, Any]:
    raise _of_agent(queue)


@OF_QUEUE.to(questions.cluster_move)
async def _cluster_move(queue: QueueContext, number: int, node: str) -> None:
    raise _of_agent(queue)


@OF_QUEUE.to(questions.cluster_versions)
async def _cluster_versions(queue: QueueContext) -> dict[str, Any]:
    raise _of_agent(queue)


@OF_QUEUE.to(questions.spooled)
async def _spooled(queue: QueueContext, ids: list[str]) -> list[str]:
    return spooled.has(queue.core, ids)


@OF_QUEUE.to(questions.alone)
async def _alone(queue: QueueContext) -> dict[str, int]:
    found = queue.core.disk.spool
    return {"messages": found.count, "bytes": found.bytes} if found is not None else {"messages": 0, "bytes": 0}


@OF_QUEUE.to(questions.cluster_move_zone)
async def _cluster_move_zone(queue: QueueContext, zone: str, to: str, giver: str = "") -> questions.ZoneMove:
    raise _of_agent(queue)


@OF_QUEUE.to(questions.cluster_balance)
async def _cluster_balance(queue: QueueContext, dry_run: bool = False) -> questions.Balance:
    raise _of_agent(queue)


@OF_QUEUE.to(questions.accounts)
async def _accounts(queue: QueueContext) -> list[dict[str, Any]]:
    return queue.core.counters.quotas.rows() + queue.core.counters.sessions.rows()


@OF_QUEUE.to(questions.warmup)
async def _warmup(queue: QueueContext) -> list[dict[str, Any]]:
    policy = queue.core.schedule.policy
    policy.day()  # a new day resets the counts
    return policy.warmups.describe()


@OF_QUEUE.to(questions.warm)
async def _warm(queue: QueueContext, source: str, provider: str, step: int | None) -> dict[str, Any]:
    schedule = queue.core.schedule
    await admin_orders.warm(schedule, source, provider, step, "by an operator")
    await queue.core.disk.journal.stable()
    rows = schedule.policy.warmups.describe()
    return next(row for row in rows if (row["source"], row["provider"]) == (source, provider))


@OF_QUEUE.to(questions.copied)
async def _copied(queue: QueueContext) -> str:
    return queue.core.copied


@OF_QUEUE.to(questions.adopt)
async def _adopt(queue: QueueContext) -> dict[str, Any]:
    core = queue.core
    if not core.copied:
        raise Refused(f"{core.config.folder}: this is not a copy of a queue, so there is nothing to adopt")
    adopted = identity.adopt(core.config.folder, identity.this_machine())
    core.copied = ""
    core.changed()
    return {"queue": adopted.queue, "incarnation": adopted.incarnation}


@OF_QUEUE.to(questions.backup)
async def _backup(queue: QueueContext) -> str:
    try:
        return str(await backup.make(queue.core))
    except OSError as error:
        raise Refused(f"no backup could be made: {cause(error)}; free space, or repair the disk") from None


OF_QUEUE.to(questions.size_of)(counts.size)
OF_QUEUE.to(questions.sizes)(counts.page)
OF_QUEUE.to(questions.tally)(listing.tally)
OF_QUEUE.to(questions.list_)(listing.page)
OF_QUEUE.to(questions.show)(listing.show)
OF_QUEUE.to(questions.explain)(explain)
OF_QUEUE.to(questions.trace)(story.trace)
OF_QUEUE.to(questions.qshape)(ages.qshape)
OF_QUEUE.to(questions.release)(orders.release)
OF_QUEUE.to(questions.drop)(orders.drop)
for one in (suppressions, reports, metrics, doubts, configurations, readiness, domains):
    OF_QUEUE |= one.ANSWERS
OF_TASKS.to(questions.task_preview)(TaskOrders.preview)
OF_TASKS.to(questions.task)(TaskOrders.order)
OF_TASKS.to(questions.task_start)(TaskOrders.start)
OF_TASKS.to(questions.tasks)(TaskOrders.rows)
OF_TASKS.to(questions.task_states)(TaskOrders.states)
OF_TASKS.to(questions.task_row)(TaskOrders.one)
OF_TASKS.to(questions.task_cancel)(TaskOrders.cancel)
OF_TASKS.to(questions.task_undo)(TaskOrders.undo)
OF_CAMPAIGNS.to(questions.campaign_put)(CampaignCommands.put)
OF_CAMPAIGNS.to(questions.campaign_pause)(CampaignCommands.pause)
OF_CAMPAIGNS.to(questions.campaign_resume)(CampaignCommands.resume)
OF_CAMPAIGNS.to(questions.campaign_cancel)(CampaignCommands.cancel)
OF_CAMPAIGNS.to(questions.campaign_complete)(CampaignCommands.complete)
OF_CAMPAIGNS.to(questions.campaign_decide)(CampaignCommands.decide)
OF_CAMPAIGNS.to(questions.campaign_text)(CampaignCommands.text)
OF_CAMPAIGNS.to(questions.campaign_schedule)(CampaignCommands.schedule)
OF_CAMPAIGNS.to(questions.campaign_templates)(CampaignCommands.templates)
OF_CAMPAIGNS.to(questions.campaign_basis)(CampaignCommands.basis)
OF_CAMPAIGNS.to(questions.campaign_ends)(CampaignCommands.ends)
OF_CAMPAIGNS.to(questions.campaign_hours)(CampaignCommands.hours)
OF_CAMPAIGNS.to(questions.campaign_tenant)(CampaignCommands.tenant)
OF_CAMPAIGNS.to(questions.campaign)(CampaignCommands.full_row)
OF_CAMPAIGNS.to(questions.campaigns)(CampaignCommands.newest)
