"""What failed only because its destination was away goes when that is back, not when its retry is due."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED
from zonemta_py.zones.site import Site

Make = Callable[..., Any]
CONNECTIONS = {"name": "default", "default": True, "connections": 20, "connections_per_destination": 20}


async def away(home: Any, count: int, stage: str = "connect") -> list[Any]:
    """So many recipients wait for x.test; all that can be leased meet a server that is down."""
    for number in range(count):
        await home.put(f"r{number}@x.test", sender="")
    leased = await home.leases()
    for delivery in leased:
        await home.settle(delivery, DEFERRED, down_s=0, stage=stage)
    await home.rest()
    return leased


async def gone(home: Any) -> int:
    """Delivers all that may go now; how many."""
    count = 0
    while leased := await home.leases():
        for delivery in leased:
            await home.settle(delivery)
            count += 1
        await home.rest()
    return count


@pytest.mark.parametrize("stage", ["connect", "banner", "ehlo"])
async def test_who_was_tried_goes_with_who_was_not(house: Make, stage: str) -> None:
    """A dozen of 200 were tried and put off: the first answer brings them, with the others that were parked."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0})
    assert len(await away(home, 200, stage)) > 10
    assert await home.idle()
    await home.move(61)
    (probe,) = await home.leases()
    await home.settle(probe)
    assert 1 + await gone(home) == 200
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_when_all_were_tried_new_mail_brings_them(house: Make) -> None:
    """Nothing is parked, and their retries are hours away: mail that comes finds out that the destination is back."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0, "schedule_min": [300]})
    await away(home, 5)
    await home.move(61)
    assert await home.idle()
    await home.put("new@x.test", sender="")
    assert await gone(home) == 6


async def test_what_the_destination_has_put_off_waits(house: Make) -> None:
    """A mailbox that is full is no destination that is away; nor is one that is away at another site."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0})
    await home.put("full@x.test", sender="")
    await home.put("other@y.test", sender="")
    full, other = await home.leases()
    await home.settle(full, DEFERRED)
    await home.settle(other, DEFERRED, down_s=0, stage="connect")
    await away(home, 3)
    await home.move(61)
    await home.put("new@x.test", sender="")
    assert await gone(home) == 4
    assert (await home.sizes())["messages"] == 2


async def test_it_survives_a_restart(house: Make) -> None:
    """The walk over what is deferred finds them again; also where DNS has to be asked anew for whom they wait."""

    class DestinationResolver:
        async def site(self, domain: str, now: float) -> Site:
            return Site("mx.test", "", [("mx.test", ["127.0.0.9"])], [(10, "mx.test")], 3600, False)

    home = await house(
        zones=[CONNECTIONS], retry={"down_s": 60.0, "schedule_min": [300]}, resolver=DestinationResolver()
    )
    await away(home, 5)
    await home.crash()
    for _ in range(3):
        await home.queue.sweep()
        await home.rest()
    await home.put("new@x.test", sender="")
    assert await gone(home) == 6


async def test_who_is_found_twice_goes_once(house: Make) -> None:
    """Put off by its sender, and found by the first walk over what is deferred before its destination is back."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0, "schedule_min": [300]})
    await away(home, 5)
    for _ in range(3):
        await home.queue.sweep()
        await home.rest()
    await home.move(61)
    await home.put("new@x.test", sender="")
    assert await gone(home) == 6
    await home.sound()


async def test_a_server_that_takes_some_connections_is_not_hammered(house: Make) -> None:
    """421 to some, while others go through: who was turned away is tried once in `down_s`, not at once."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0})
    for number in range(40):
        await home.put(f"r{number}@x.test", sender="")
    leased = await home.leases()
    for delivery in leased[:10]:
        await home.settle(delivery, DEFERRED, down_s=0, stage="banner")
    for delivery in leased[10:]:
        await home.settle(delivery)
    tried = {delivery.recipients[0].address for delivery in leased[:10]}
    again = set()
    while more := await home.leases():
        for delivery in more:
            again.add(delivery.recipients[0].address)
            await home.settle(delivery)
    assert not again & tried
    await home.move(61)
    await home.put("new@x.test", sender="")
    assert await gone(home) == 11


@pytest.mark.parametrize("chosen", [False, True])
async def test_a_choice_for_some_mail_rests_nobody_else(house: Make, chosen: bool) -> None:
    """Not even where a rule asks for a rest: the server has refused a login that no other mail has."""
    home = await house(zones=[CONNECTIONS], retry={"down_s": 60.0})
    await home.put("one@x.test", sender="")
    (delivery,) = await home.leases()
    result = home.result(delivery, DEFERRED, 0, stage="auth", reply=Reply(535, "5.7.8", "wrong password"))
    result.chosen = chosen
    await home.queue.settle(result)
    await home.rest()
    await home.put("two@x.test", sender="")
    assert bool(await home.leases()) == chosen
