"""Orders about held recipients, and zones that go from the configuration: nothing is lost, nothing is done twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED, HELD

Make = Callable[..., Any]


async def held(home: Any) -> str:
    message_id = await home.put("bob@x.test", "cid@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, HELD)
    await home.rest()
    return str(message_id)


async def test_released_recipients_are_sent(house: Make) -> None:
    """`release` brings every held recipient of the message back, once, with sizes that agree."""
    home = await house()
    message_id = await held(home)
    assert await home.queue.ask("release", id=message_id) == 2
    (delivery,) = await home.lease()
    assert sorted(recipient.address for recipient in delivery.recipients) == ["bob@x.test", "cid@x.test"]
    await home.settle(delivery)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_a_release_is_sent_however_long_the_disk_takes(house: Make) -> None:
    """The walk of what is due goes on while the order is on its way to the disk, and must not leave it behind."""
    home = await house(retry={"schedule_min": [1], "jitter": 0})
    message_id = await held(home)
    await home.put("dan@y.test")
    await home.settle((await home.lease())[0], DEFERRED)
    await home.rest()
    go = home.freeze()
    order = asyncio.ensure_future(home.queue.ask("release", id=message_id))
    await asyncio.sleep(0)
    lease = asyncio.ensure_future(home.lease())
    await asyncio.sleep(0)
    await home.move(120)
    go()
    (delivery,) = await lease
    assert delivery.recipients[0].address == "dan@y.test", "it has been read, so the walk is past the order's time"
    await home.settle(delivery)
    assert await order == 2
    await home.queue.position()
    (delivery,) = await home.lease()
    assert len(delivery.recipients) == 2
    await home.sound()


@pytest.mark.parametrize("order", ["release", "drop"])
async def test_an_order_holds_though_nobody_waits_for_its_answer(house: Make, order: str) -> None:
    """The command that gave it was interrupted after the journal had it."""
    home = await house()
    message_id = await held(home)
    asked = asyncio.ensure_future(home.queue.ask(order, id=message_id))
    await asyncio.sleep(0)
    asked.cancel()
    await home.rest()
    assert (await home.sizes())["held"] == 0
    if order == "release":
        assert len((await home.lease())[0].recipients) == 2
    await home.sound()


async def test_a_release_survives_a_crash(house: Make) -> None:
    """The record is the order: a crash before the store has it changes nothing."""
    home = await house()
    message_id = await held(home)
    assert await home.queue.ask("release", id=message_id) == 2
    await home.crash(power=True)
    total = await home.sizes()
    assert (total["held"], total["deferred"]) == (0, 2)
    await home.sound()


async def test_dropped_recipients_end(house: Make) -> None:
    """`drop` ends them, and with the last one the message; also after a crash."""
    home = await house()
    message_id = await held(home)
    assert await home.queue.ask("drop", id=message_id) == 2
    await home.crash(power=True)
    total = await home.sizes()
    assert (total["held"], total["queued"], total["messages"]) == (0, 0, 0)
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.sound()


@pytest.mark.parametrize("order", ["release", "drop"])
async def test_an_order_about_nothing_is_refused_in_one_sentence(house: Make, order: str) -> None:
    """A message that holds nobody is an error that says how to find those that do."""
    home = await house()
    message_id = await home.put("bob@x.test")
    with pytest.raises(ValueError, match="has no held recipient; `zonemta queue list --state held`"):
        await home.queue.ask(order, id=message_id)


async def test_recipients_of_a_zone_that_is_gone_go_on_in_the_default_zone(house: Make) -> None:
    """A zone may leave the configuration while mail waits in it: that mail is sent by the default zone."""
    zones = [{"name": "main", "default": True}, {"name": "bulk", "recipient_domains": ["x.test"]}]
    home = await house(zones=zones)
    await home.put("bob@x.test", "cid@y.test")
    home.options["zones"] = zones[:1]
    await home.crash()
    total = await home.queue.ask("size")
    assert total["zones"]["main"] == {"queued": 1, "deferred": 1, "held": 0, "deleted": 0, "bounced": 0, "leased": 0}
    deliveries = [(await home.lease())[0] for _ in range(2)]
    assert sorted(r.address for d in deliveries for r in d.recipients) == ["bob@x.test", "cid@y.test"]
    for delivery in deliveries:
        await home.settle(delivery)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


@pytest.mark.parametrize("orders", [("release", "drop"), ("drop", "release"), ("drop", "drop"), ("release", "release")])
async def test_of_two_orders_at_once_one_is_carried_out(house: Make, orders: tuple[str, str]) -> None:
    """The second asker is told so, and nobody is counted twice."""
    home = await house()
    message_id = await held(home)
    asked = [home.queue.ask(order, id=message_id) for order in orders]
    first, second = await asyncio.gather(*asked, return_exceptions=True)
    assert first == 2
    assert isinstance(second, ValueError)
    assert "is already being released or deleted" in str(second)
    await home.rest()
    sizes = await home.sizes()
    assert (sizes["held"], sizes["deferred"] + sizes["queued"]) == (0, 2 if orders[0] == "release" else 0)
    with pytest.raises(ValueError, match="has no held recipient"):
        await home.queue.ask(orders[1], id=message_id)
    await home.sound()
