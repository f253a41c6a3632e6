"""A random life of a queue: mail, leases, results, lost senders, crashes and power cuts, against a model of the truth.

The promise (DESIGN.md): no acknowledged recipient is lost, none is sent twice unless the in-doubt list names it, every
size is exact, and the archive with the journal holds every envelope and every final result.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from zonemta_py.disk import packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED, Delivery, Outcome, QueueRefusal, Result

ZONES = [
    {"name": "default", "default": True, "recipients_per_delivery": 3, "connections_per_destination": 4},
    {"name": "bulk", "recipient_domains": ["bulk.test"]},
]
QUEUE = {"segment_bytes": 65536, "window": 100, "write_buffer_bytes": 65536}
DOMAINS = ("a.test", "b.test", "c.test", "bulk.test")
pytestmark = pytest.mark.disk
VERDICTS = (DELIVERED, DELIVERED, DELIVERED, DEFERRED, BOUNCED, RELEASED)


class Life:
    """The model. Addresses are never used twice, so an address names a recipient."""

    def __init__(self, house: Any, seed: int) -> None:
        self.house, self.die = house, random.Random(seed)
        self.noise = self.die.randbytes(65536)
        self.count = 0
        self.alive: set[str] = set()  # acknowledged, and not ended
        self.maybe: set[str] = set()  # handed in or settled when the crash came: either way is right
        self.ended: dict[str, int] = {}
        self.out: dict[int, tuple[Delivery, str]] = {}  # leases a sender has
        self.doubted: set[str] = set()
        self.told: dict[str, set[str]] = {}  # ids of the notifications seen, by failed recipient
        self.tasks: set[asyncio.Task[None]] = set()
        self.epoch = 0

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- steps

    async def put(self, chunks: int = 0) -> None:
        addresses = []
        for _ in range(self.die.choice((1, 1, 1, 2, 5))):
            self.count += 1
            addresses.append(f"r{self.count}@{self.die.choice(DOMAINS)}")
        self.maybe.update(addresses)
        body = b"Subject: x\r\n\r\n" + b"y" * self.die.choice((1, 100, 5000))
        envelope = Envelope(
            "ann@src.test", [Recipient(a) for a in addresses], len(body) + chunks * 65536, received_ms=1_700_000_000_000
        )
        epoch = self.epoch
        if chunks:
            incoming = self.house.queue.begin()
            for _ in range(chunks):
                await incoming.write((b"Subject: x\r\n\r\n" + self.noise)[:65536])
            if self.die.random() < 0.2:
                incoming.abort()
                self.maybe.difference_update(addresses)
                return
            await incoming.accept(envelope, body)
        else:
            await self.house.queue.accept(envelope, body)
        if epoch == self.epoch:
            self.alive.update(addresses)
            self.maybe.difference_update(addresses)

    async def lease(self, worker: str) -> None:
        task = asyncio.ensure_future(self.house.queue.lease(self.die.randint(1, 4), worker))
        epoch = self.epoch
        for _ in range(20):
            await asyncio.sleep(0.0005)
            if task.done():
                break
        else:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled() and epoch == self.epoch:
            for delivery in task.result():
                self.given(delivery, worker)

    def given(self, delivery: Delivery, worker: str) -> None:
        for recipient in delivery.recipients:
            address = recipient.address
            if delivery.sender == "":
                assert address == "ann@src.test"
                for failed in re.findall(rb"Final-Recipient: rfc822; (\S+)", delivery.body or b""):
                    self.told.setdefault(failed.decode(), set()).add(delivery.id)
                continue
            assert address in self.alive | self.maybe, f"{address} was not to be sent: {self.ended.get(address)}"
            for other, _ in self.out.values():
                assert address not in [r.address for r in other.recipients if other.sender], f"{address} is out twice"
            self.maybe.discard(address)
            self.alive.add(address)
        self.out[delivery.lease] = delivery, worker

    async def settle(self) -> None:
        if not self.out:
            return
        number = self.die.choice(list(self.out))
        delivery, _ = self.out.pop(number)
        outcomes: dict[int, list[int]] = {}
        for index in range(len(delivery.recipients)):
            outcomes.setdefault(self.die.choice(VERDICTS) if delivery.sender else DELIVERED, []).append(index)
        rows = [
            Outcome(verdict, self.house.result(delivery, verdict).outcomes[0].reply, "dot", indices)
            for verdict, indices in outcomes.items()
        ]
        addresses = {r.address for r in delivery.recipients} if delivery.sender else set()
        self.alive -= addresses
        self.maybe |= addresses  # until it is acknowledged, a crash may leave either
        epoch = self.epoch
        down = 0 if set(outcomes) == {DEFERRED} and self.die.random() < 0.5 else None
        await self.house.queue.settle(Result(number, rows, down))
        if epoch != self.epoch:
            return
        self.maybe -= addresses
        for verdict, indices in outcomes.items():
            for index in indices:
                address = delivery.recipients[index].address
                if verdict in (DELIVERED, BOUNCED) and delivery.sender:
                    self.ended[address] = verdict
                elif delivery.sender:
                    self.alive.add(address)

    def lose(self, worker: str) -> None:
        """A sender dies: what it had may go again."""
        self.house.queue.lost(worker)
        for number in [number for number, (_, who) in self.out.items() if who == worker]:
            delivery, _ = self.out.pop(number)
            self.doubted.update(r.address for r in delivery.recipients)

    async def crash(self, power: bool) -> None:
        self.epoch += 1
        out = {r.address for delivery, _ in self.out.values() for r in delivery.recipients}
        self.out.clear()
        look = self.die.choice(("", "", "look", "repair"))
        if self.die.random() < 0.5:  # somebody has set the machine's clock, by an hour or by days
            self.house.clock.set_s = self.die.choice((0.0, -3_600.0, 3_600.0, -86_400.0, 3 * 86_400.0))
        await self.house.crash(power, self.die, drop=self.die.random() < 0.5, fsck=look)
        for task in list(self.tasks):
            task.cancel()
        named = {row["recipient"] for row in await self.house.queue.ask("in-doubt")}
        self.doubted |= out
        assert out <= named, "what was out at the crash is in doubt, and listed"

    async def step(self) -> None:
        choice = self.die.random()
        if choice < 0.35:
            self.spawn(self.put())
        elif choice < 0.39:
            self.spawn(self.put(self.die.choice((1, 2, 9, 10))))
        elif choice < 0.62:
            await self.lease(self.die.choice(("one", "two")))
        elif choice < 0.88:
            self.spawn(self.settle())
        elif choice < 0.91:
            self.lose(self.die.choice(("one", "two")))
        elif choice < 0.95:
            await self.house.move(self.die.choice((1, 60, 400)))
        elif choice < 0.97:
            self.spawn(self.house.queue.position())
        elif choice < 0.985:
            await self.crash(power=self.die.random() < 0.5)
        else:
            await self.house.sound()
        for _ in range(self.die.randint(0, 3)):
            await asyncio.sleep(0)

    # -- the end

    async def drain(self) -> None:
        """Everything that is left is delivered."""
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=60)
            assert not late, "everything that was asked is answered"
        for number in list(self.out):
            delivery, _ = self.out.pop(number)
            await self.finish(delivery)
        for _ in range(400):
            if not (await self.house.sizes())["messages"]:
                break
            await self.house.move(200)
            task = asyncio.ensure_future(self.house.queue.lease(50, "last"))
            for _ in range(100):
                await asyncio.sleep(0.0005)
                if task.done():
                    break
            else:
                task.cancel()
                await asyncio.wait([task])
            for delivery in [] if task.cancelled() else task.result():
                self.given(delivery, "last")
                del self.out[delivery.lease]
                await self.finish(delivery)
            await self.house.rest()

    async def finish(self, delivery: Delivery) -> None:
        await self.house.settle(delivery)
        for recipient in delivery.recipients:
            if delivery.sender:
                self.alive.discard(recipient.address)
                self.ended[recipient.address] = DELIVERED


@pytest.mark.parametrize("seed", seeds(3))
async def test_a_random_life(house: Callable[..., Any], seed: int) -> None:
    """Whatever happens in whatever order: nothing is lost, nothing is sent twice without being listed, sizes hold."""
    home = await house(zones=ZONES, queue=QUEUE)
    life = Life(home, seed)
    for _ in range(250):
        try:
            await life.step()
        except QueueRefusal:
            continue
    await life.drain()
    assert life.alive == set(), "every acknowledged recipient has come to its end"
    sizes = await home.sizes()
    assert sizes == {
        "queued": 0,
        "deferred": 0,
        "held": 0,
        "deleted": 0,
        "bounced": 0,
        "leased": 0,
        "messages": 0,
        "bytes": 0,
    }
    assert all(len(ids) == 1 for ids in life.told.values()), "a bounce is told once"
    assert {address for address, verdict in life.ended.items() if verdict == BOUNCED} <= set(life.told), "and told"
    await home.queue.position()
    await home.sound()
    history(home, life)


def history(home: Any, life: Life) -> None:
    """The archive and the journal together hold every envelope and every result."""
    enveloped, results = set(), Counter[str]()
    folders = (home.folder / "archive", home.folder / "journal")
    for record in (record for folder in folders for record in segments.read(folder)):
        if record.type == Type.ENVELOPE:
            enveloped.update(row[1] for row in packing.unpack(record.body)[2])
        elif record.type == Type.DELIVERY:
            for outcome in packing.unpack(record.body)[4]:
                if outcome[0] in (DELIVERED, BOUNCED):
                    results.update(who[0] if isinstance(who, list) else who for who in outcome[5])
    assert set(life.ended) <= enveloped
    assert set(life.ended) <= set(results)
