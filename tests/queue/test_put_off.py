"""Hooks about recipients that are put off: when they are tried again, and that they were."""

from __future__ import annotations

from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.hooks import NoHooks, PutOff


class Choosing(NoHooks):
    """Tries again in so many seconds."""

    retries = defers = True

    def __init__(self, chosen_s: float = 0) -> None:
        self.chosen_s = chosen_s
        self.asked: list[tuple[str, float]] = []
        self.told: list[tuple[str, int, int, str]] = []

    async def retried(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, wait_s: float) -> float:
        self.asked.append((put_off.recipient.address, round(wait_s)))
        return self.chosen_s or wait_s

    async def deferred(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, next_ms: int) -> None:
        self.told.append((put_off.recipient.address, put_off.attempts, next_ms, str(put_off.reply)))


@pytest.mark.parametrize(("chosen_s", "waits_s"), [(0, 300), (20, 20), (0.001, 1), (900, 900)])
async def test_the_next_try_is_when_the_plugin_says(house: Any, chosen_s: float, waits_s: float) -> None:
    """It is in the record, and so after a crash, too."""
    hooks = Choosing(chosen_s)
    home = await house(hooks=hooks)
    await home.put("a@x.test")
    (lease,) = await home.leases()
    await home.settle(lease, DEFERRED, delay_s=300)
    await home.rest()
    assert hooks.asked == [("a@x.test", 300)]
    ((address, attempts, next_ms, _),) = hooks.told
    assert (address, attempts) == ("a@x.test", 1)
    assert next_ms == home.clock.ms() + waits_s * 1000
    await home.crash()
    if waits_s > 1:
        await home.move(waits_s - 1)
        assert await home.leases() == []
    await home.move(2)
    assert len(await home.leases()) == 1
    await home.sound()


async def test_who_is_delivered_or_refused_is_no_deferral(house: Any) -> None:
    hooks = Choosing(60)
    home = await house(hooks=hooks)
    for verdict in (DELIVERED, BOUNCED):
        await home.put("a@x.test")
        (lease,) = await home.leases()
        await home.settle(lease, verdict)
        await home.rest()
        for notice in await home.leases():
            await home.settle(notice)
    await home.rest()
    assert (hooks.asked, hooks.told) == ([], [])
    await home.sound()


async def test_a_lifetime_is_no_longer_for_it(house: Any) -> None:
    """A plugin that never wants to try again does not keep mail for ever."""
    hooks = Choosing(10 * 365 * 86_400)
    home = await house(hooks=hooks)
    await home.put("a@x.test")
    (lease,) = await home.leases()
    await home.settle(lease, DEFERRED)
    await home.rest()
    ((_, _, next_ms, _),) = hooks.told
    life_ms = home.queue.core.config.retry.life_h * 3_600_000
    assert next_ms <= home.clock.ms() + life_ms + 1000
    await home.sound()
