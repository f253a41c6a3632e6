"""Random lives of a queue that becomes three, two, and one again: what an operator can ask is answered as before, every
recipient is there once, and named queues are taken from in their order."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.conftest import BODY, House
from tests.queue.conftest import house as house
from tests.queue.lives import seeds
from tests.queue.pull.test_pulling import push
from tests.queue.test_campaigns import batch, template
from tests.queues.test_moving import joined, rebalanced, sound, stopped
from zonemta_py.config import Config
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD
from zonemta_py.queue.core.tasks import WORK
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queues import layout, moving
from zonemta_py.queues.answers import Merged

Make = Callable[..., Any]
CAMPAIGNS, NAMED, QUEUES = ("spring", "autumn"), ("hint", "other"), ("one", "two", "three")
VERBS = ("delete", "hold", "release", "flush", "requeue")


async def lived(home: House, die: random.Random) -> None:
    """Mail of all kinds, and what servers and operators do to it."""
    ask = home.queue.ask
    for name in CAMPAIGNS:
        await ask("campaign-put", name=name, sender="news@src.test", template=template(name))
    pushed = 0
    for number in range(60):
        what = die.random()
        people = [f"{die.choice('abcdef')}{number}@{die.choice('xyz')}.test" for _ in range(die.randint(1, 3))]
        if what < 0.3:
            more = {"campaign": die.choice(NAMED)} if die.random() < 0.3 else {}
            more |= {"tenant": "shop"} if die.random() < 0.3 else {}
            await home.put(*people, body=BODY + b"x" * die.choice((0, 0, 100_000, 600_000)), **more)
        elif what < 0.45:
            await home.queue.accept(batch(*people, campaign=die.choice(CAMPAIGNS)), b"")
        elif what < 0.6:
            pushed += 1
            await push(home.queue, b"%d" % pushed, name=die.choice(QUEUES))
        elif what < 0.8:
            for delivery in await home.leases(die.randint(1, 3)):
                verdict = die.choice((DELIVERED, DEFERRED, DEFERRED, BOUNCED, HELD))
                await home.settle(delivery, verdict)
        elif what < 0.85:
            await ask("suppress", rows=[[die.choice(people), "complaint"]])
        elif what < 0.95:
            try:
                where = {"domain": f"{die.choice('xyz')}.test"}
                row = await ask("task", verb=die.choice(VERBS), where=where, undo_s=die.choice((0, 86_400)))
                if die.random() < 0.3:
                    await ask("task-undo", id=row["id"])
            except Refused:
                pass
        else:
            await ask("stop", kind="destination", name=f"{die.choice('xyz')}.test")
        await home.move(die.choice((0, 1, 60, 3_000)))
    while any(task.state in WORK for task in home.queue.core.tasks.by_number.values()):
        await home.rest()
        await asyncio.sleep(0.01)


async def asked(home: House, config: Config) -> dict[str, Any]:
    """What an operator sees."""
    queues = {}
    for number in layout.numbers(config.folder):
        queues[number] = await moving.resting(layout.config_of(config, number), home.clock)
        queues[number].tasks.engine.rest()
    merged = Merged({number: one.ask for number, one in queues.items()}, _no_order, home.clock.ms)
    found: dict[str, Any] = {}
    for question, arguments in (
        ("size", {}), ("sizes", {"by": "domain"}), ("sizes", {"by": "campaign"}), ("in-doubt", {}),
        ("suppressions", {"limit": 1000}), ("standing", {}), ("queues", {}),
    ):  # fmt: skip
        found[f"{question} {arguments}"] = _plain(await merged.answer(question, arguments))
    rows, after = list[dict[str, Any]](), ""
    while after is not None:
        page = await merged.answer("list", {"limit": 100, "after": after})
        rows, after = rows + page["rows"], page["next"]
    found["list"] = sorted((row["id"], row["recipient"], row["state"], row.get("attempts", 0)) for row in rows)
    assert len(found["list"]) == len(set(found["list"]))
    for row in await merged.answer("campaigns", {}):
        kept = ("accepted", "delivered", "deferred", "bounced", "removed", "suppressed", "waiting", "state", "template")
        found[f"campaign {row['name']}"] = {name: row.get(name) for name in kept}
    for row in await merged.answer("tasks", {}):
        found[f"task {row['id']}"] = {name: row[name] for name in ("verb", "state", "done", "undone", "undoable")}
    for queue in queues.values():
        await moving.closed(queue)
    return found


async def _no_order(question: str, arguments: dict[str, Any]) -> dict[int, Any]:
    raise AssertionError(question)


def _plain(answer: Any) -> Any:
    """In an order that does not depend on the queue."""
    if isinstance(answer, dict):
        return {name: _plain(value) for name, value in answer.items()}
    return sorted(map(_plain, answer), key=repr) if isinstance(answer, list) else answer


async def taken(queue: LocalQueue, name: str) -> list[bytes]:
    found = list[bytes]()
    while deliveries := await queue.pull(name):
        for delivery in deliveries:
            found.append(await queue.chunk(delivery.id, 1))
            assert await queue.ack(delivery.lease, delivery.id)
    return found


@pytest.mark.parametrize("seed", seeds(3))
async def test_three_two_one(house: Make, seed: int) -> None:
    die = random.Random(seed)
    home = await house(queue={"keep_bounced_s": 86_400})
    await lived(home, die)
    config = await stopped(home)
    before, seen = joined(config), await asked(home, config)
    assert seen["list"]
    assert any(name.startswith("task ") for name in seen)
    for count in (3, 2, 1):
        await rebalanced(home, config, count)
        after = joined(config)
        for name, value in before.items():
            assert after[name] == value, (count, name)
        now = await asked(home, config)
        for name, answer in seen.items():
            assert now[name] == answer, (count, name)
        await sound(home, config)
    await home.open()
    for name in QUEUES:
        numbers = [int(body) for body in await taken(home.queue, name)]
        assert numbers == sorted(numbers)
