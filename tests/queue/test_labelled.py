"""Mail that came by SMTP and names a campaign (X-Campaign) is counted, paused and canceled with it.

And the life of a campaign: its own hours, not counting those in which it was paused.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import DEFERRED, QueueRefusal

Make = Callable[..., Any]
HOUR = 3600.0
FIGURES = "accepted", "delivered", "deferred", "bounced", "removed", "waiting"


async def begin(home: Any, **settings: Any) -> None:
    source = TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi\n"))
    await home.queue.ask(
        "campaign-put", name="spring", sender="news@src.test", template=prepare(source).pack(), **settings
    )


async def figures(home: Any) -> tuple[int, ...]:
    await home.rest()
    found = await home.queue.ask("campaign", name="spring")
    return tuple(found[figure] for figure in FIGURES)


async def merged(home: Any, address: str = "ann@x.test") -> None:
    people = [Recipient(address, values=["Ann"])]
    await home.queue.accept(Envelope("", people, columns=["name"], campaign="spring"), b"")


async def tick(home: Any) -> None:
    while home.queue.campaign_commands.tick():
        await home.rest()
    await home.rest()


@pytest.mark.parametrize("crash", [False, True])
async def test_it_is_counted_from_when_the_campaign_began(house: Make, crash: bool) -> None:
    """Earlier mail with its name too: the figures begin with the first of it."""
    home = await house()
    await home.put("before@x.test", sender="", campaign="spring")
    await begin(home)
    for number in range(4):
        await home.put(f"r{number}@x{number}.test", sender="", campaign="spring")
    await home.put("other@x.test", sender="", campaign="autumn")
    assert await figures(home) == (5, 0, 0, 0, 0, 5)
    leased = {one.recipients[0].address: one for one in await home.leases()}
    await home.settle(leased["r0@x0.test"])
    await home.settle(leased["r1@x1.test"], DEFERRED)
    await home.settle(leased["before@x.test"])
    if crash:
        await home.crash(drop=True)
    assert await figures(home) == (5, 2, 1, 0, 0, 3)
    await home.sound()


async def test_cancel_takes_it_along(house: Make) -> None:
    """What waits, wherever, is removed; what comes later is refused."""
    home = await house()
    await begin(home)
    await merged(home)
    await home.put("put-off@y.test", sender="", campaign="spring")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.put("later@x.test", sender="", campaign="spring", hold_until_ms=home.clock.ms() + 3_600_000)
    await home.put("other@x.test", sender="", campaign="autumn")
    await home.queue.ask("campaign-cancel", name="spring", cause="wrong list")
    await tick(home)
    assert await figures(home) == (3, 0, 2, 0, 3, 0)
    assert (await home.sizes())["messages"] == 1
    with pytest.raises(QueueRefusal, match="was canceled"):
        await home.put("more@x.test", sender="", campaign="spring")
    await home.sound()


async def test_a_campaign_that_is_a_name_only(house: Make) -> None:
    """Nobody has put it: what waits of it is counted, paused and canceled all the same; and its row stays."""
    home = await house()
    for number in range(5):
        await home.put(f"r{number}@x.test", sender="", campaign="autumn")
    await home.put("other@x.test", sender="")
    assert (await home.queue.ask("campaign", name="autumn"))["waiting"] == 5
    assert (await home.queue.ask("campaign-pause", name="autumn"))["state"] == "paused"
    (other,) = await home.leases()
    await home.settle(other)
    assert (await home.queue.ask("campaign-resume", name="autumn"))["state"] == "running"
    (first,) = await home.lease(1)
    await home.settle(first, DEFERRED)
    row = await home.queue.ask("campaign-cancel", name="autumn")
    assert (row["state"], row["removed"], row["waiting"]) == ("canceled", 5, 0)
    assert (await home.sizes())["messages"] == 0
    row = await home.queue.ask("campaign", name="autumn")
    assert (row["state"], row["accepted"], row["deferred"], row["removed"]) == ("idle", 5, 1, 5)
    with pytest.raises(ValueError, match="nothing of campaign 'autumn' is waiting"):
        await home.queue.ask("campaign-cancel", name="autumn")
    with pytest.raises(ValueError, match="only known from its mail"):
        await home.queue.ask("campaign-complete", name="autumn")
    await home.sound()


@pytest.mark.parametrize(("life_h", "tried_h"), [(168, 160), (2, 1)])
async def test_a_campaign_lives_for_its_own_hours(house: Make, life_h: float, tried_h: float) -> None:
    """Longer than the queue's 48, or shorter; the default is 168."""
    home = await house()
    await begin(home, **({} if life_h == 168 else {"life_h": life_h}))
    await merged(home)
    for after in (tried_h, life_h - tried_h + 0.1):
        await home.move(after * HOUR)
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED)
        waits = (await figures(home))[-1]
        assert waits == (1 if after == tried_h else 0)


async def test_a_campaign_paused_for_days_goes_on(house: Make) -> None:
    """49 hours of pause, with a life of 48: all of it goes."""
    home = await house()
    await begin(home, life_h=48)
    for number in range(3):
        await merged(home, f"r{number}@x.test")
    await home.queue.ask("campaign-pause", name="spring")
    for _ in range(49):
        await home.move(HOUR)
        await home.queue.sweep()
    await home.rest()
    await home.queue.ask("campaign-resume", name="spring")
    for delivery in await home.leases():
        await home.settle(delivery)
    assert (await figures(home))[1:] == (3, 0, 0, 0, 0)


async def test_a_canceled_name_holds_for_what_is_being_delivered_too(house: Make) -> None:
    """It comes back deferred, and is gone; mail of that name that comes later is not."""
    home = await house()
    await home.put("a@x.test", campaign="may")
    await home.put("b@y.test", campaign="may")
    (delivery,) = await home.lease()
    row = await home.queue.ask("campaign-cancel", name="may")
    assert (row["state"], row["removed"], row["waiting"]) == ("canceled", 1, 1)
    await home.put("later@x.test", campaign="may")
    await home.settle(delivery, DEFERRED)
    for _ in range(6000):
        await asyncio.sleep(0.01)
        if (await home.sizes())["deferred"] == 0:
            break
    await home.rest()
    sizes = await home.sizes()
    assert (sizes["queued"], sizes["deferred"], sizes["held"], sizes["deleted"]) == (1, 0, 0, 0)
    await home.sound()
