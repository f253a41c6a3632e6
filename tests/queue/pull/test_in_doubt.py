"""In doubt in pull zones: what somebody may have taken is listed until it ends, also across crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.pull.test_fetching import ZONES
from tests.queue.pull.test_pulling import pop, push

Make = Callable[..., Any]


async def abandoned(home: Any, name: str = "jobs") -> None:
    (one,) = await home.queue.pull(name)
    assert await home.queue.abandon(one.lease, one.id)
    await home.rest()


async def listed(home: Any) -> list[str]:
    await home.rest()
    return [row["recipient"] for row in await home.queue.ask("in-doubt")]


@pytest.mark.parametrize("crash", ["never", "between", "after"])
async def test_it_ends_when_it_was_taken_again_and_acknowledged(house: Make, crash: str) -> None:
    home = await house(zones=ZONES)
    for name in ("jobs", "branch"):
        await push(home.queue, b"1", name)
        await abandoned(home, name)
    assert sorted(await listed(home)) == ["branch@queue", "jobs@queue"]
    if crash == "between":
        await home.crash()
        assert sorted(await listed(home)) == ["branch@queue", "jobs@queue"]
    assert [await pop(home.queue, name) for name in ("jobs", "branch")] == [b"1", b"1"]
    if crash == "after":
        await home.crash()
    assert await listed(home) == []
    await home.sound()


async def test_it_ends_when_it_is_removed(house: Make) -> None:
    home = await house()
    await push(home.queue, b"1")
    await abandoned(home)
    assert (await home.queue.ask("forget", address="jobs@queue"))["removed"] == 1
    assert await listed(home) == []


async def test_mail_that_was_perhaps_sent_stays_listed(house: Make) -> None:
    """Somebody may have got it twice, however it ends."""
    home = await house(zones=ZONES)
    await home.put("ann@x.test")
    await home.lease()
    home.queue.lost("")
    await home.rest()
    before = await listed(home)
    for delivery in await home.leases():
        await home.settle(delivery)
    assert before == await listed(home) == ["ann@x.test"]
    await home.sound()
