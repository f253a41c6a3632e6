"""Random lives of the suppression policy: a queue that is killed at any moment decides as one that never is."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DELIVERED

Make = Callable[..., Any]
REPLIES = [
    Reply(550, "5.1.1", "user unknown"), Reply(550, "5.0.0", "user unknown"), Reply(552, "5.2.2", "mailbox full"),
    Reply(550, "5.2.1", "mailbox disabled"), None,
]  # fmt: skip
SETTINGS: dict[str, Any] = {
    "full": {"after": 3, "over_days": 2},
    "guard_within_s": 3600,
    "guard_share": 0,
    "guard_calm_s": 7200,
    "tenants": {"own": {"scope": "tenant"}},
}


async def live(home: Any, seed: int, kills: bool) -> list[Any]:
    """The same life for the same seed. Returns what is on the list and what was heard at its end."""
    life, death = random.Random(seed), random.Random(seed)
    for _ in range(50):
        who, reply = f"p{life.randrange(8)}@{life.choice('xy')}.test", life.choice(REPLIES)
        await home.put(who, sender="", tenant=life.choice(["", "own"]))
        for delivery in await home.leases():
            verdict, stage = (BOUNCED, "rcpt") if reply else (DELIVERED, "dot")
            await home.settle(delivery, verdict, stage=stage, **({"reply": reply} if reply else {}))
        if kills and death.random() < 0.3:
            await home.crash(power=death.random() < 0.5, die=death, drop=death.random() < 0.5)
        for _ in range(3):
            await home.rest()
        if life.random() < 0.1:
            await home.queue.ask("unsuppress", addresses=[who], by="tester")
        if life.random() < 0.05:
            await home.queue.policy.release("x.test", drop=life.random() < 0.5)
        await home.move(life.choice([0, 60, 4_000, 90_000]))
        home.queue.policy.tick()
    return await ending(home)


async def ending(home: Any) -> list[Any]:
    for _ in range(4):
        await home.rest()
    rows = (await home.queue.ask("suppressions", limit=1_000))["rows"]
    policy = home.queue.policy
    heard = [(one.who, sorted(item._replace(message="") for item in one.items), one.listed)
             for one in policy.store.portion(b"")[0]]  # fmt: skip
    return [[(row["address"], row["scope"], row["reason"]) for row in rows], heard, sorted(policy.guard.names())]


@pytest.mark.parametrize("guard", [0, 4])
@pytest.mark.parametrize("seed", seeds(2))
async def test_a_killed_queue_decides_as_one_that_is_not(house: Make, seed: int, guard: int) -> None:
    """Nothing that was heard is lost, and nothing counts twice."""
    settings = {**SETTINGS, "guard_people": guard}
    calm = await live(await house(suppression=settings), seed, kills=False)
    killed = await live(await house(suppression=settings), seed, kills=True)
    for one, other in zip(killed, calm, strict=True):
        assert [row for row in one if row not in other] == [row for row in other if row not in one]
    assert calm[0]
