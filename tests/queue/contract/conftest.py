"""What the contract's tests share: a queue, in this process or behind its socket, and what a caller does with it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import DELIVERED

BODY = b"Subject: hello\r\n\r\nHi\r\n"
FINISHED = ("undoable", "done", "canceled", "undone", "previewed")


class Caller:
    """Somebody who uses the queue: an operator, a sender and a client in one."""

    def __init__(self, home: Any, queue: Any) -> None:
        self.home, self.queue, self.ask = home, queue, queue.ask

    async def put(self, *addresses: str, sender: str = "ann@src.test", body: bytes = BODY, **more: Any) -> str:
        envelope = Envelope(sender, [Recipient(one) for one in addresses], len(body), **more)
        return str((await self.queue.accept(envelope, body)).id)

    async def take(self, most: int = 1) -> list[Any]:
        """Waits until there is something."""
        return list(await asyncio.wait_for(self.queue.lease(most), 60))

    async def all_of_it(self) -> list[str]:
        """Takes and delivers whatever may go now: the recipients, in their order."""
        found: list[str] = []
        while deliveries := await self.home.leases(1):
            for delivery in deliveries:
                found += [one.address for one in delivery.recipients]
                await self.queue.settle(self.home.result(delivery, DELIVERED))
        return found

    async def settle(self, delivery: Any, verdict: int = DELIVERED, **more: Any) -> None:
        await self.queue.settle(self.home.result(delivery, verdict, **more))

    async def task(self, verb: str, **where: Any) -> dict[str, Any]:
        """A task, done to the end. `set`, `undo_s`, `by` and `cause` are the order's."""
        order = {name: where.pop(name) for name in ("set", "undo_s", "by", "cause") if name in where}
        row = await self.ask("task", verb=verb, where=where or {"all": True}, **order)
        return await self.ended(row)

    async def undo(self, row: dict[str, Any]) -> dict[str, Any]:
        return await self.ended(await self.ask("task-undo", id=row["id"]))

    async def ended(self, row: dict[str, Any], *states: str) -> dict[str, Any]:
        for _ in range(6000):
            row = await self.ask("task-row", id=row["id"])
            if row["state"] in (states or FINISHED):
                return row
            await asyncio.sleep(0.01)
        raise AssertionError(row)

    async def browse(self, **where: Any) -> list[str]:
        """The recipients of all pages."""
        found: list[str] = []
        after = ""
        while True:
            page = await self.ask("list", **where, **({"after": after} if after else {}))
            found += [row["recipient"] for row in page["rows"]]
            if not page["next"]:
                return found
            after = page["next"]

    async def size(self) -> dict[str, int]:
        """What there is of each state, without what there is nothing of."""
        await self.home.rest()
        total = (await self.ask("size"))["total"]
        return {
            name: total[name] for name in ("queued", "deferred", "held", "deleted", "bounced", "leased") if total[name]
        }


@pytest.fixture
def caller(house: Callable[..., Any], front: Callable[..., Any]) -> Callable[..., Any]:
    async def make(**options: Any) -> Caller:
        home = await house(**options)
        return Caller(home, await front(home))

    return make
