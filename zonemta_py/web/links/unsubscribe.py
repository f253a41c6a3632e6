"""What the queue is told when somebody leaves or comes back, and what it says of an address.

Promise: what `leave` returns for is on stable storage, and effective at once for mail that is queued already; twice is
the same as once. `rejoin` takes back only what the person did: an entry with another cause (a complaint, a hard bounce,
an operator's) stays. Failures: QueueRefusal, if the queue is away or its disk has errors.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Protocol

from zonemta_py.mail.addresses.entries import is_covering, literal
from zonemta_py.mail.addresses.link import UNKNOWN, Link, Scope
from zonemta_py.mail.list_id import campaign_scope, list_scope
from zonemta_py.queue import questions
from zonemta_py.queue.api import Admin, Feedback, Reception
from zonemta_py.reception.suppression_scopes import entries_of

UNSUBSCRIBE = "unsubscribe"
FOLLOWS_S, FOLLOWS_LOOKS = 0.02, 50
"""How long the entry is waited for."""
State = Literal["in", "out", "covered", "blocked"]
"""Of one choice: gets the mail; has left; has left something wider; is stopped for another reason."""


class LinksQueue(Reception, Admin, Protocol):
    """The queue's interfaces that this needs."""


async def leave(queue: LinksQueue, link: Link, scope: str) -> None:
    """scope: as in the suppression list.

    The entry follows from the feedback by itself, at once, but only once: who comes back, and leaves by the same link
    again, is entered here.
    """
    message = "" if link.id == UNKNOWN else link.id
    row = Feedback(
        UNSUBSCRIBE, link.recipient, message, campaign=link.campaign, tenant=link.tenant, via="link", genuine="token",
        scope=scope,
    )  # fmt: skip
    if not all(await queue.feedback([row])):
        evidence = f"message {message}" if message else ""
        entry = [literal(link.recipient), UNSUBSCRIBE, "by a link", evidence, "link", link.campaign, 0, scope]
        await queue.ask(questions.suppress, rows=[entry])


async def left(queue: LinksQueue, link: Link, scope: str) -> None:
    """As `leave`, and waits for the entry: what is answered holds, and the person sees it."""
    await leave(queue, link, scope)
    for _ in range(FOLLOWS_LOOKS):
        if any(entry["scope"] == scope for entry in await entries(queue, link)):
            return
        await asyncio.sleep(FOLLOWS_S)


async def rejoin(queue: LinksQueue, link: Link, scope: str) -> None:
    """Does nothing where there is nothing to take back."""
    own = [entry for entry in await entries(queue, link) if entry["scope"] == scope]
    if own and all(map(_is_own, own)):
        for entry in own:
            await queue.ask(
                questions.unsuppress, addresses=[literal(link.recipient)], by="link", scope=entry.get("kept_as", scope)
            )


async def entries(queue: LinksQueue, link: Link) -> list[dict[str, Any]]:
    """Those of the recipient that may stop such mail. An earlier version's entry for the campaign of whatever tenant
    counts as its tenant's; kept_as: how it is written."""
    old, own = campaign_scope(link.campaign, ""), campaign_scope(link.campaign, link.tenant)
    scopes = [one for one in dict.fromkeys((*_every(link), old)) if one[-1] not in ":/"]
    row = await queue.ask(questions.suppression, address=literal(link.recipient), scopes=scopes, tenant=link.tenant)
    found: list[dict[str, Any]] = [{**one} for one in entries_of(row, None)]
    return [one | {"scope": own, "kept_as": old} if one["scope"] == old else one for one in found]


def state(found: list[dict[str, Any]], choice: Scope, link: Link) -> State:
    """found: the address's entries."""
    own = link.entry_for(choice)
    covering = [entry for entry in found if entry["scope"] in _wider(link, own)]
    if not covering:
        return "in"
    if not all(map(_is_own, covering)):
        return "blocked"
    return "out" if all(entry["scope"] == own for entry in covering) else "covered"


def _every(link: Link) -> list[str]:
    """Scopes of such mail, from the narrowest on."""
    narrow = [campaign_scope(link.campaign, link.tenant), list_scope(link.list_name, link.tenant)]
    return [*narrow, f"campaigns:{link.tenant}", "campaigns", f"tenant:{link.tenant}", "all"]


def _wider(link: Link, scope: str) -> list[str]:
    """That scope, and those that contain it."""
    every = _every(link)
    return every[every.index(scope) :]


def _is_own(entry: dict[str, Any]) -> bool:
    """Whether it is the person's own doing, and nothing else."""
    return entry["kind"] == UNSUBSCRIBE and not entry["also"] and not is_covering(entry["address"])
