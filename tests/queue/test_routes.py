"""What plugins decide about recipients before they are queued: through the queue's own hooks, on a real queue."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.hooks import NoHooks, Routed

Make = Callable[..., Any]
NO = Reply(550, "5.7.1", "not through us")


class Deciding(NoHooks):
    """Drops, refuses or lets pass by the recipient's local part."""

    routes = True

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        if routed.recipient.address.startswith("drop"):
            return dataclasses.replace(routed, drop=("choosy", "queue_route", "unwanted"))
        if routed.recipient.address.startswith("refuse"):
            return dataclasses.replace(routed, refusal=NO)
        return routed


async def test_dropping_everyone_is_an_acceptance_that_leaves_nothing(house: Make) -> None:
    """Drop is silent: the client gets its 250, small message or large, and nothing stays behind."""
    home = await house(hooks=Deciding())
    assert await home.put("drop1@x.test", "drop2@x.test")
    incoming = home.queue.begin()
    await incoming.write(bytes(65_536))
    assert (await incoming.accept(Envelope("a@b.test", [Recipient("drop@x.test")]), b"end")).id
    await home.rest()
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.sound()


async def test_refusing_everyone_is_the_plugin_s_own_reply(house: Make) -> None:
    """Nobody is left to send to: the client hears why."""
    home = await house(hooks=Deciding())
    with pytest.raises(QueueRefusal, match=r"550 5\.7\.1 not through us"):
        await home.put("refuse@x.test", "drop@x.test")


async def test_refusing_one_bounces_it_alone(house: Make) -> None:
    """The others' 250 must stand, so the refused one gets a notification."""
    home = await house(hooks=Deciding())
    await home.put("ok@x.test", "refuse@y.test")
    seen = []
    while not await home.idle():
        for delivery in await home.lease(10):
            seen += [recipient.address for recipient in delivery.recipients]
            await home.settle(delivery)
    assert sorted(seen) == ["ann@src.test", "ok@x.test"], "the sender is told, and the refused one never tried"
    await home.sound()


CHOSEN = {
    "protocol": "lmtp", "host": "mx.test", "port": 24, "tls": "implicit", "dkim": "none", "sender": "<>", "srs": False,
}  # fmt: skip


class Choosing(NoHooks):
    """Chooses all for one recipient."""

    routes = True

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        mine = routed.recipient.address.startswith("mine")
        return dataclasses.replace(routed, routing=CHOSEN if mine else None, delay_s=60 if mine else 0)


async def test_what_is_chosen_for_a_recipient_outlives_a_crash(house: Make) -> None:
    """Put off, and leased: every time the sender hears it, and of the other one nothing; people see it, too."""
    home = await house(hooks=Choosing())
    await home.put("mine@x.test", "other@x.test")
    await home.rest()
    await home.crash()
    await home.move(61)
    found = {one.recipients[0].address: one for one in await home.leases()}
    assert {name: one.routing for name, one in found.items()} == {"mine@x.test": CHOSEN, "other@x.test": {}}
    assert (found["mine@x.test"].host, found["mine@x.test"].port) == ("mx.test", 24)
    await home.crash()
    again = [one for one in await home.leases() if one.host == "mx.test"]
    assert [one.routing for one in again] == [CHOSEN]
    rows = (await home.queue.ask("explain", what="mine@x.test"))["rows"]
    assert [row.get("chosen", CHOSEN) for row in rows] == [CHOSEN]
    await home.sound()


class Late(NoHooks):
    """Puts off by a year."""

    routes = True

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        return dataclasses.replace(routed, delay_s=365 * 86_400.0)


@pytest.mark.parametrize("more", [{}, {"life_h": 3}, {"held_h": 10}])
async def test_nothing_is_put_off_beyond_its_lifetime(house: Make, more: dict[str, float]) -> None:
    """It is tried when that ends, at the latest; a hold that its sender asked for comes before."""
    home = await house(hooks=Late(), retry={"life_h": 5})
    held_h = more.pop("held_h", 0)
    if held_h:
        more["hold_until_ms"] = home.clock.ms() + int(held_h * 3_600_000)
    await home.put("ann@x.test", **more)
    life_h = more.get("life_h", 5)
    await home.move((held_h + life_h) * 3600 - 60)
    assert not await home.leases()
    await home.move(120)
    assert [one.address for delivery in await home.leases() for one in delivery.recipients] == ["ann@x.test"]
    await home.sound()
