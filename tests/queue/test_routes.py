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
            return dataclasses.replace(routed, drop="unwanted")
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
