"""Answers to the questions an operator asks the queue. Sizes are O(1); lists walk key ranges in stretches.

Questions and answers (plain dicts and lists, ready for JSON):
    size                                    zones, domains, total
    list zone state domain sender recipient subject user limit after    rows, and the next page's cursor (`listing.py`)
    show id                                 envelope, recipients, header
    copied                                       one sentence: why nothing is sent, this is a copy; "" if it is none
    adopt                                        → {queue, incarnation}: the copy takes the original's place
    in-doubt                                recipients whose final reply was awaited at a crash
    release id, drop id                     orders about held recipients; how many there were
    positions                               low-water marks and journal numbers as they are now
    explain what                            why something waits, and until when (`explain.py`)
    egress paths zone                              every flow queue in memory: who, how many, why not now
    standing                                what is stopped or rests, and what was learned (`steering.py`)
    stop kind name seconds cause, lift kind name            orders about those
    warmup                                  where each new source stands at each provider
    campaign-put name sender template …     a new campaign (`campaigning.py`); {"created": whether it was not there yet}
    campaign-pause name cause, campaign-resume name cause, campaign-cancel name cause, campaign-complete name   its row
    campaign name, campaigns                how each is doing; the first with its history
    suppress rows, unsuppress addresses scope       orders about the suppression list (`people.py`)
    suppression address, suppressions after limit kind scope        who is on it
    forget address                          takes a person out of the queue; how many recipients that were
    warm source provider step               puts one on a step of its schedule (from 1; none: it is warm); its new row
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from zonemta_py.disk import identity, keys, records
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreError
from zonemta_py.queue.admin import backup, listing, orders, suppressions, suspensions
from zonemta_py.queue.admin.explain import explain
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.core import sizes
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.maintenance import archive
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.reasons import rows_of


async def answer(queue: QueueContext, campaigns: CampaignCommands, question: str, arguments: dict[str, Any]) -> Any:
    """Raises ValueError with one sentence for a question that makes no sense."""
    handler = QUESTIONS.get(question)
    if handler is None and question in OF_CAMPAIGNS:
        handler = partial(OF_CAMPAIGNS[question], campaigns)
    if handler is None:
        known = ", ".join(sorted((*QUESTIONS, *OF_CAMPAIGNS)))
        raise ValueError(f"the queue does not know the question {question!r}; it knows {known}")
    try:
        return await handler(queue, **arguments)
    except TypeError as error:
        raise ValueError(f"{question}: {error}") from None
    except StoreError as error:
        if isinstance(error, StoreDamaged):
            queue.core.read_failed(error)
        raise ValueError(str(error)) from None


async def _size(queue: QueueContext) -> dict[str, Any]:
    core = queue.core
    leased: dict[str, int] = {}
    for lease in queue.leases.out.values():
        name = lease.batch.zone.zone.name
        leased[name] = leased.get(name, 0) + len(lease.open)
    zones = {}
    for name in {*core.sizes.zones, *core.schedule.zones}:
        counts = core.sizes.zones.get(name, [0, 0, 0])
        zones[name] = dict(zip(sizes.NAMES, counts, strict=True)) | {"leased": leased.get(name, 0)}
    domains: dict[str, dict[str, int]] = {}
    for (_, domain), counts in core.sizes.domains.items():
        row = domains.setdefault(domain, dict.fromkeys(sizes.NAMES, 0))
        for name, count in zip(sizes.NAMES, counts, strict=True):
            row[name] += count
    total = {name: sum(row[name] for row in zones.values()) for name in (*sizes.NAMES, "leased")}
    total |= {"messages": core.message_count, "bytes": core.message_bytes}
    return {"zones": zones, "domains": {d: row for d, row in domains.items() if any(row.values())}, "total": total}


async def _in_doubt(queue: QueueContext) -> list[dict[str, Any]]:
    rows = []
    for key, value in queue.core.store.scan(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS)):
        _, message_id, recipient = key.decode().split(" ", 2)
        zone, since_ms, action = records.unpack(value)[:3]
        try:
            sender = queue.core.messages.peek(message_id).get("sender", "")
        except StoreError:
            sender = None  # the message has ended
        rows.append(
            {
                "id": message_id,
                "zone": zone,
                "recipient": recipient,
                "sender": sender,
                "since_ms": since_ms,
                "action": action,
            }
        )
    return rows


async def _positions(queue: QueueContext) -> dict[str, Any]:
    core = queue.core
    marks = {
        zone: {name: mark.decode("utf-8", "replace") for name, mark in row.items()}
        for zone, row in core.schedule.marks().items()
    }
    return {
        "marks": marks,
        "stable": core.journal.stable_seq,
        "applied": core.ledger.applied(),
        "segments": core.segments.rows(),
    }


async def _release(queue: QueueContext, id: str) -> int:
    return await orders.release(queue, id)


async def _drop(queue: QueueContext, id: str) -> int:
    return await orders.drop(queue, id)


async def _rotate(queue: QueueContext) -> dict[str, str]:
    """Closes the journal's segment: `closed` is its name in the archive, "" if there was no news in it."""
    return {"closed": await archive.rotate(queue.core)}


async def _explain(queue: QueueContext, what: str) -> dict[str, Any]:
    return await explain(queue, what)


async def _paths(queue: QueueContext, zone: str | None = None) -> list[dict[str, Any]]:
    """Every flow queue in memory of which something waits, or that something holds."""
    schedule = queue.core.schedule
    return rows_of(
        schedule, (flow_queue for flow_queue in schedule.flow_queues() if zone in (None, flow_queue.zone.zone.name))
    )


async def _policy(queue: QueueContext) -> list[dict[str, Any]]:
    return admin_orders.rows(queue.core.schedule)


async def _stop(queue: QueueContext, kind: str, name: str, seconds: float | None = None, cause: str = "") -> int:
    """By an operator; seconds None: until it is lifted. How many flow queues in memory it holds."""
    held = await suspensions.stop(queue, kind, name, seconds, cause or "by an operator")
    await queue.core.journal.stable()
    return held


async def _lift(queue: QueueContext, kind: str, name: str) -> bool:
    """Undoes a stop, a rest or what was learned; False if there is none."""
    lifted = admin_orders.lift(queue.core.schedule, kind, name, "by an operator")
    await queue.core.journal.stable()
    return lifted


async def _warmup(queue: QueueContext) -> list[dict[str, Any]]:
    policy = queue.core.schedule.policy
    policy.day()  # yesterday's counts are not today's
    return policy.warmups.describe()


async def _warm(queue: QueueContext, source: str, provider: str, step: int | None) -> dict[str, Any]:
    """By an operator; the row as it is then. Raises ValueError for a source, provider or step that there is not."""
    schedule = queue.core.schedule
    await admin_orders.warm(schedule, source, provider, step, "by an operator")
    await queue.core.journal.stable()
    rows = schedule.policy.warmups.describe()
    return next(row for row in rows if (row["source"], row["provider"]) == (source, provider))


async def _campaign_put(
    campaigns: CampaignCommands, queue: QueueContext, name: str, sender: str, template: bytes, **more: Any
) -> dict[str, bool]:
    refusal = queue.acceptance.refusal()  # no room on the disk, or it is in trouble
    if refusal is not None:
        raise QueueRefusal(refusal)
    return await campaigns.put(name, sender, template, **more)


async def _campaign_pause(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.pause(name, cause or "by an operator")


async def _campaign_resume(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.resume(name, cause or "by an operator")


async def _campaign_cancel(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.cancel(name, cause or "by an operator")


async def _campaign_complete(campaigns: CampaignCommands, _: QueueContext, name: str) -> dict[str, Any]:
    return await campaigns.complete(name)


async def _campaign(campaigns: CampaignCommands, _: QueueContext, name: str) -> dict[str, Any]:
    return await campaigns.full_row(name)


async def _campaigns(campaigns: CampaignCommands, _: QueueContext) -> list[dict[str, Any]]:
    return campaigns.rows()


async def _copied(queue: QueueContext) -> str:
    """Why nothing is sent, if this is a copy of a queue."""
    return queue.core.copied


async def _adopt(queue: QueueContext) -> dict[str, Any]:
    """A copy of a queue takes the original's place. Raises ValueError: it is no copy."""
    core = queue.core
    if not core.copied:
        raise ValueError(f"{core.config.folder}: this is not a copy of a queue, so there is nothing to adopt")
    adopted = identity.adopt(core.config.folder, identity.this_machine())
    core.copied = ""
    core.changed()
    return {"queue": adopted.queue, "incarnation": adopted.incarnation}


async def _backup(queue: QueueContext) -> str:
    """The folder in which a copy of the queue was made. Raises ValueError: the disk said no."""
    try:
        return str(await backup.make(queue.core))
    except OSError as error:
        raise ValueError(f"no backup could be made: {error}; free space, or repair the disk") from None


QUESTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "size": _size,
    "list": listing.page,
    "show": listing.show,
    "in-doubt": _in_doubt,
    "copied": _copied,
    "adopt": _adopt,
    "backup": _backup,
    "release": _release,
    "drop": _drop,
    "positions": _positions,
    "rotate": _rotate,
    "explain": _explain,
    "lanes": _paths,
    "standing": _policy,
    "stop": _stop,
    "lift": _lift,
    "warmup": _warmup,
    "warm": _warm,
    **suppressions.QUESTIONS,
}
OF_CAMPAIGNS: dict[str, Callable[..., Awaitable[Any]]] = {
    "campaign-put": _campaign_put,
    "campaign-pause": _campaign_pause,
    "campaign-resume": _campaign_resume,
    "campaign-cancel": _campaign_cancel,
    "campaign-complete": _campaign_complete,
    "campaign": _campaign,
    "campaigns": _campaigns,
}
