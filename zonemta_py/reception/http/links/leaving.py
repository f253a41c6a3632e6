"""What the queue is told when somebody leaves or comes back, and what it says of an address.

Promise: what `leave` returns for is on stable storage, and effective for mail that is queued already; twice is the same
as once. `rejoin` takes back only what the person did: an entry with another cause (a complaint, a hard bounce, an
operator's) stays. Failures: QueueRefusal, if the queue is away or its disk has errors.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from zonemta_py.mail.addresses.link import UNKNOWN, Link, Scope, scope_for
from zonemta_py.queue.api import Admin, Feedback, Reception

UNSUBSCRIBE = "unsubscribe"
State = Literal["in", "out", "covered", "blocked"]
"""Of one choice: gets the mail; has left; has left something wider; is stopped for another reason."""


class LinksQueue(Reception, Admin, Protocol):
    """The queue's interfaces that this needs."""


async def leave(queue: LinksQueue, link: Link, scope: str) -> None:
    """scope: as in the suppression list.

    The entry follows from the feedback by itself, once; who comes back, and leaves by the same link again, has to be
    entered again.
    """
    message = "" if link.id == UNKNOWN else link.id
    row = Feedback(
        UNSUBSCRIBE, link.recipient, message, campaign=link.campaign, tenant=link.tenant, via="link", genuine="token",
        scope=scope,
    )  # fmt: skip
    await queue.feedback([row])
    if not any(entry["scope"] == scope and _has_left(entry) for entry in await entries(queue, link.recipient)):
        evidence = f"message {message}" if message else ""
        entry = [link.recipient, UNSUBSCRIBE, "by a link", evidence, "link", link.campaign, 0, scope]
        await queue.ask("suppress", rows=[entry])


async def rejoin(queue: LinksQueue, link: Link, scope: str) -> None:
    """Does nothing where there is nothing to take back."""
    own = [entry for entry in await entries(queue, link.recipient) if entry["scope"] == scope]
    if own and all(map(_is_own, own)):
        await queue.ask("unsuppress", addresses=[link.recipient], by="link", scope=scope)


async def entries(queue: LinksQueue, address: str) -> list[dict[str, Any]]:
    """All of an address."""
    row = await queue.ask("suppression", address=address)
    return [] if row is None else [{name: row[name] for name in row if name != "others"}, *row["others"]]


def state(found: list[dict[str, Any]], choice: Scope, link: Link) -> State:
    """found: the address's entries."""
    own = scope_for(choice, link.campaign, link.tenant)
    covering = [entry for entry in found if entry["scope"] in _wider(link, own)]
    if not covering:
        return "in"
    if not all(map(_is_own, covering)):
        return "blocked"
    return "out" if all(entry["scope"] == own for entry in covering) else "covered"


def _wider(link: Link, scope: str) -> list[str]:
    """That scope, and those that contain it."""
    every = [f"campaign:{link.campaign}", f"campaigns:{link.tenant}", "campaigns", f"tenant:{link.tenant}", "all"]
    return every[every.index(scope) :]


def _has_left(entry: dict[str, Any]) -> bool:
    """Whether the person has left, whatever else there is."""
    return UNSUBSCRIBE in (entry["kind"], *entry["also"])


def _is_own(entry: dict[str, Any]) -> bool:
    """Whether it is the person's own doing, and nothing else."""
    return entry["kind"] == UNSUBSCRIBE and not entry["also"]
