"""Deadlines (RFC 2852) of mail that waits and is not tried: BY=…;N is told to its sender once, BY=…;R is returned."""

import asyncio
from collections.abc import Awaitable
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest

from zonemta_py.mail.envelope import Notify
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.maintenance.deadlines import PORTIONS

WAYS = ["stopped", "zone", "down", "limit", "hours", "warm-up", "rest", "hold", "retry", "unread"]
SPAN_S = 600


async def setting(house: Any, way: str, **more: Any) -> Any:
    """A queue in which mail to x.test waits for longer than the deadline."""
    window = {"name": "w", "hours": "08:00-09:00", "time_zone": "UTC"}
    source = {"address": "127.0.0.3", **({"warmup": "slow"} if way == "warm-up" else {})}
    zone = {"name": "default", "pool": "p", **({"window": "w"} if way == "hours" else {})}
    home = await house(
        zones=[zone], windows=[window], pools=[{"name": "p", "sources": [source]}], queue={"window": 100},
        throttles=[{"name": "t", "messages": "1/day"}] if way == "limit" else [],
        warmups=[{"name": "slow", "caps": [1, 5]}], **more,
    )  # fmt: skip
    if way in ("stopped", "zone", "unread"):
        kind, name = ("destination", "x.test") if way == "stopped" else ("zone", "default")
        await home.queue.ask("stop", kind=kind, name=name, cause="told to")
    if way == "unread":
        await home.put(*(f"r@d{number}.test" for number in range(900)), sender="")
    if way in ("down", "limit", "warm-up"):
        await home.put("first@x.test", sender="")
        (delivery,) = await home.leases()
        await home.settle(delivery, DEFERRED, delay_s=90_000, **({"down_s": 90_000} if way == "down" else {}))
    if way == "rest":
        home.queue.core.schedule.policy.stop("rest", "127.0.0.3 x.test", 90_000, "550 on a list")
    await home.rest()
    return home


async def put(home: Any, way: str, mode: str = "N", count: int = 1, **more: Any) -> None:
    deadline_ms = home.clock.ms() + SPAN_S * 1000
    if way == "hold":
        more["hold_until_ms"] = deadline_ms + 3_600_000
    addresses = [f"a{number}@x.test" for number in range(count)]
    await home.put(*addresses, deadline_ms=deadline_ms, deadline_mode=mode, **more)
    await home.rest()
    if way == "retry":
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, delay_s=3600)
    assert not await home.leases()


async def pass_by(home: Any) -> None:
    for _ in range(2):
        await home.queue.sweep()
        await home.rest()


def notices(home: Any) -> list[Message]:
    """What has been written to the sender, in the order of the store, sent or not."""
    core = home.queue.core
    found = []
    for key in list(core.disk.store.keys(b"message ", b"message!")):
        if key.endswith(b" #"):
            message = core.messages.look(key.decode().split(" ")[1])
            if message.metadata["sender"] == "":
                notice = message_from_bytes(core.messages.text(message))
                if "report" in notice.get_content_type():
                    found.append(notice)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("crash", ["", "before", "after"])
async def test_who_waits_past_its_deadline_is_told_of_once(house: Any, way: str, crash: str) -> None:
    """BY=…;N: whatever it waits for, and with NOTIFY unset; then it goes on waiting, and no crash tells it again."""
    home = await setting(house, way)
    await put(home, way, count=2)
    await pass_by(home)
    assert notices(home) == []
    waiting = (await home.sizes())["queued"] + (await home.sizes())["deferred"]
    if crash == "before":
        await home.crash()
        await home.rest()
    await home.move(SPAN_S + 1)
    await pass_by(home)
    (notice,) = notices(home)
    text = notice.as_string()
    assert "Action: delayed" in text
    assert "4.4.7" in text
    assert all(f"rfc822; a{number}@x.test" in text for number in range(2))
    assert "5.4.7" not in text
    if crash == "after":
        await home.crash()
        await home.rest()
    await home.move(600)
    await pass_by(home)
    assert len(notices(home)) == 1
    sizes = await home.sizes()
    assert sizes["queued"] + sizes["deferred"] == waiting + 1, "and the notification, which waits too or may go"
    await home.sound()


@pytest.mark.parametrize(
    ("notify", "sender", "told"),
    [
        (Notify.UNSET, "ann@src.test", 1), (Notify.DELAY, "ann@src.test", 1), (Notify.FAILURE, "ann@src.test", 0),
        (Notify.NEVER, "ann@src.test", 0), (Notify.UNSET, "", 0),
    ],
)  # fmt: skip
async def test_notify_says_who_is_told(house: Any, notify: Notify, sender: str, told: int) -> None:
    """Where it is set, DELAY must be in it; a null return path gets nothing. None of them is looked at again."""
    home = await setting(house, "stopped")
    await put(home, "stopped", notify=notify, sender=sender)
    await home.move(SPAN_S + 1)
    await pass_by(home)
    assert len(notices(home)) == told
    assert home.queue.core.schedule.zones["default"].deadline_ms > home.clock.ms() + 86_400_000


async def test_who_has_been_told_is_not_told_by_the_next_try(house: Any) -> None:
    """Lifted, it is tried, and deferred: one notification is enough."""
    home = await setting(house, "stopped")
    await put(home, "stopped")
    await home.move(SPAN_S + 1)
    await pass_by(home)
    await home.queue.ask("lift", kind="destination", name="x.test")
    deliveries = await home.leases()
    assert sorted(delivery.sender for delivery in deliveries) == ["", "ann@src.test"]
    for delivery in deliveries:
        await home.settle(delivery, DEFERRED, delay_s=60)
    await home.rest()
    assert len(notices(home)) == 1
    await home.sound()


class Quiet(NoHooks):
    """A plugin that keeps notifications of delays back, when it gets round to it."""

    delays = True

    async def delayed(self, *_: Any) -> None:
        return None


async def test_a_plugin_may_keep_it_back(house: Any) -> None:
    """As those of deferrals; nobody may have the recipient meanwhile, and it goes on afterwards."""
    home = await setting(house, "stopped", hooks=Quiet())
    await put(home, "stopped")
    await home.move(SPAN_S + 1)
    await pass_by(home)
    assert notices(home) == []
    await home.queue.ask("lift", kind="destination", name="x.test")
    assert [delivery.recipients[0].address for delivery in await home.leases()] == ["a0@x.test"]
    await home.sound()


@pytest.mark.parametrize("mode", ["N", "R"])
@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("hold", "retry", "hours")])
async def test_a_deadline_is_met_without_a_sweep(house: Any, way: str, mode: str) -> None:
    """What comes every second looks nowhere before the nearest deadline has passed, and everywhere it must then."""
    home = await setting(house, way)
    await home.queue.sweep()
    await put(home, way, mode)
    zone = home.queue.core.schedule.zones["default"]
    assert zone.deadline_ms == home.clock.ms() + SPAN_S * 1000
    assert not await home.queue.maintenance.deadlines()
    assert notices(home) == []
    await home.move(SPAN_S)
    await home.queue.maintenance.deadlines()
    await home.rest()
    (notice,) = notices(home)
    assert ("Action: delayed" if mode == "N" else "Status: 5.4.7") in notice.as_string()
    assert zone.deadline_ms > home.clock.ms() + 86_400_000
    await home.sound()


async def test_nothing_is_walked_while_no_deadline_has_passed(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the store nor the flow queues in memory, however much waits."""
    home = await setting(house, "unread")
    await home.queue.sweep()
    await put(home, "unread")

    def walked(*_: Any) -> Any:
        raise AssertionError("walked")

    monkeypatch.setattr(home.queue.core.disk.store, "scan", walked)
    monkeypatch.setattr("zonemta_py.queue.maintenance.deadlines.flow_queues_in_turn", walked)
    await home.move(SPAN_S - 1)
    assert not await home.queue.maintenance.deadlines()
    monkeypatch.undo()


async def turns_during(work: Awaitable[Any]) -> int:
    """How often the event loop runs others meanwhile."""
    ended = asyncio.ensure_future(work)
    turns = 0
    while not ended.done():
        await asyncio.sleep(0)
        turns += 1
    assert ended.result()
    return turns


async def test_many_deadlines_at_once_are_dealt_with_in_stretches(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pass together, parked ones too: each stretch goes on where the last one ended."""
    monkeypatch.setattr("zonemta_py.schedule.time.pace.TURN_S", 0.0)
    monkeypatch.setattr("zonemta_py.queue.maintenance.deadlines.WALKED_AT_ONCE", 1)
    home = await setting(house, "stopped")
    for number in range(150):
        mode = "NR"[number % 2]
        await home.put(f"r{number}@x.test", deadline_ms=home.clock.ms() + SPAN_S * 1000, deadline_mode=mode)
    assert not await home.leases()
    await home.move(SPAN_S)
    assert await turns_during(home.queue.maintenance.deadlines()) > PORTIONS
    stretches = 1
    while await home.queue.maintenance.deadlines():
        await home.rest()
        stretches += 1
    await home.rest()
    assert 3 <= stretches < 40
    texts = [notice.as_string() for notice in notices(home)]
    assert (sum("Action: delayed" in text for text in texts), sum("5.4.7" in text for text in texts)) == (75, 75)
    await home.sound()
