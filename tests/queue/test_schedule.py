"""Scheduling: a destination that is dead or slow holds up no other, and costs no memory."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED

Make = Callable[..., Any]


async def drain(home: Any, dead: str = "") -> list[str]:
    """Leases and delivers until nothing may go; recipients of the dead destination fail."""
    seen: list[str] = []
    while not await home.idle():
        for delivery in await home.lease(50):
            seen += [recipient.address for recipient in delivery.recipients]
            down = delivery.destination == dead
            await home.settle(delivery, DEFERRED if down else 1, **({"down_s": 0, "stage": "connect"} if down else {}))
    return seen


async def test_a_dead_destination_holds_up_no_other(house: Make) -> None:
    """20,000 recipients of it first, then ten to others: those are leased at once, the window stays small."""
    home = await house(queue={"window": 1000}, retry={"schedule_min": [5], "jitter": 0})
    for number in range(20):
        await home.put(*(f"r{number}.{n}@dead.test" for n in range(1000)))
    for number in range(10):
        await home.put(f"r@live{number}.test")
    seen = await drain(home, "dead.test")
    live = [index for index, address in enumerate(seen) if "live" in address]
    assert len(live) == 10
    assert live[-1] < 3000, "few of the dead were tried before"
    zone = home.queue.core.schedule.zones["default"]
    assert zone.loaded <= 1000
    assert len(home.queue.core.schedule.busy) <= 1000
    await home.sound()
    await home.move(700)
    again = []
    while not await home.idle():
        for delivery in await home.lease(50):
            again += [recipient.address for recipient in delivery.recipients]
            await home.settle(delivery)
    assert len(set(again)) == len(again) == 20_000, "once it is back, everyone gets his mail, once"
    await home.sound()
    assert (await home.sizes())["messages"] == 0


async def test_parked_mail_is_found_after_a_crash(house: Make) -> None:
    """And the destination is asked again."""
    home = await house(queue={"window": 100})
    await home.put("first@dead.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED, down_s=0, stage="connect")
    for number in range(300):
        await home.put(f"r{number}@dead.test")
    await home.crash(power=True)
    seen = await drain(home)
    assert sorted(seen) == sorted(f"r{number}@dead.test" for number in range(300))


async def test_rests_double_and_one_probe_ends_them(house: Make) -> None:
    """30 s, 60 s, …; meanwhile nobody tries; then one delivery does, and a success opens the destination."""
    home = await house(retry={"down_s": 30, "down_max_s": 100})
    for number in range(50):
        await home.put(f"r{number}@x.test")
    (delivery,) = await home.lease()
    for seconds in (30, 60, 100, 100):
        await home.settle(delivery, DEFERRED, down_s=0, stage="connect")
        await home.rest()
        await home.move(seconds - 1)
        assert await home.idle()
        await home.move(2)
        (delivery,) = await home.lease(50)
        assert await home.idle(), "one probe"
    await home.settle(delivery)
    await home.rest()
    assert len(await home.lease(50)) == 19, "all it may have but one, for it has failed"


async def test_a_destination_may_name_its_rest(house: Make) -> None:
    """down_s of a result, when it is not 0."""
    home = await house()
    await home.put("a@x.test")
    await home.put("b@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED, down_s=7, stage="banner")
    await home.rest()
    await home.move(6)
    assert await home.idle()
    await home.move(2)
    assert len(await home.lease(5)) == 1


@pytest.mark.parametrize("slow", [3, 8, 30])
async def test_slow_destinations_hold_up_no_other(house: Make, slow: int) -> None:
    """Many destinations with more mail than they take: the mail behind them all goes out all the same."""
    zone = {"name": "z", "connections": 200, "connections_per_destination": 1}
    home = await house(queue={"window": 1000}, zones=[zone])
    for number in range(slow):
        for _ in range(3):
            await home.put(*(f"r{n}@slow{number}.test" for n in range(150)))
    await home.put("ann@live.test")
    out: list[str] = []
    while not await home.idle():
        out += [delivery.destination for delivery in await home.lease(50)]
    assert out.count("live.test") == 1
    assert len(out) == slow + 1
    assert home.queue.core.schedule.zones["z"].loaded <= 2000
    await home.sound()


async def test_a_smart_host_that_changes_keeps_what_was_parked(house: Make) -> None:
    """Mail parked for one host goes to the one that the configuration names now; a crash then costs nothing."""
    home = await house(zones=[{"name": "z", "host": "one.test"}])
    for number in range(3):
        await home.put(f"r{number}@x.test")
    for delivery in await home.lease(1):
        await home.settle(delivery, DEFERRED, down_s=0, stage="connect")
    await home.rest()
    home.options["zones"] = [{"name": "z", "host": "two.test"}]
    await home.crash()
    deliveries = await home.lease(5)
    assert [d.destination for d in deliveries] == ["two.test:25"] * 2
    await home.settle(deliveries[0])
    await home.crash(power=True)
    assert [row["recipient"] for row in await home.queue.ask("in-doubt")] == [deliveries[1].recipients[0].address]
    assert len(await home.lease(5)) == 1


async def test_parked_mail_of_a_smart_host_does_not_hide_the_host(house: Make) -> None:
    """A destination that is known by its parked mail only, after a crash, is still the zone's host for all mail."""
    zones = [{"name": "main", "default": True, "host": "127.0.0.1", "port": 2599, "recipients_per_delivery": 1}]
    home = await house(queue={"window": 1000}, zones=zones, retry={"schedule_min": [0.01], "jitter": 0})
    for number in range(60):
        await home.put(f"late{number}@x.test")
        await home.settle((await home.lease())[0], DEFERRED)
    await home.put("down@x.test")
    await home.settle((await home.lease())[0], DEFERRED, down_s=3600, stage="connect")
    for number in range(5):
        await home.put(f"parked{number}@x.test")
    await home.rest()
    await home.move(10)
    await home.crash()
    hosts = []
    while not await home.idle():
        for delivery in await home.lease(50):
            hosts.append((delivery.host, delivery.port))
            await home.settle(delivery)
    assert hosts == [("127.0.0.1", 2599)] * 66


async def test_slow_destinations_do_not_take_all_connections(house: Make) -> None:
    """Far more slow ones than fit, each with more mail than it takes: those who come later find a connection."""
    home = await house(zones=[{"name": "z", "connections": 40, "connections_per_destination": 20}])
    for number in range(30):
        for _ in range(8):
            await home.put(f"r@slow{number}.test")
    out = []
    while not await home.idle():
        out += await home.lease(50)
    assert len(out) <= 39, "nobody knows yet that they are slow"
    for delivery in out:
        await home.settle(delivery, took_ms=60_000)
    out = []
    while not await home.idle():
        out += await home.lease(50)
    assert len(out) == 30, "now it is known, and a quarter is free"
    for number in range(10):
        await home.put(f"r@live{number}.test")
    live = [(await home.lease())[0].destination for _ in range(10)]
    assert live == [f"live{number}.test" for number in range(10)]
    assert await home.idle()
    await home.sound()


async def test_a_slow_destination_alone_is_not_starved(house: Make) -> None:
    """It has its share of what is free, and all of its mail goes out in the end."""
    home = await house(zones=[{"name": "z", "connections": 40, "connections_per_destination": 20}])
    for number in range(60):
        await home.put(f"r{number}@slow.test")
    most = sent = 0
    while not await home.idle():
        out = []
        while not await home.idle():
            out += await home.lease(50)
        most = max(most, len(out))
        sent += len(out)
        for delivery in out:
            await home.settle(delivery, took_ms=60_000)
    assert sent == 60
    assert most > 5
    await home.sound()


async def test_probes_of_dead_destinations_leave_room(house: Make) -> None:
    """When the rests of many dead destinations end together, their probes take no more than three quarters."""
    home = await house(zones=[{"name": "z", "connections": 8}], retry={"schedule_min": [60]})
    for number in range(20):
        for _ in range(2):
            await home.put(f"r@dead{number}.test")
    while not await home.idle():
        for delivery in await home.lease(50):
            await home.settle(delivery, DEFERRED, down_s=0, stage="connect")
    await home.move(31)
    probes = []
    while not await home.idle():
        probes += await home.lease(50)
    assert len(probes) == 6
    await home.put("r@live.test")
    assert [delivery.destination for delivery in await home.lease(50)] == ["live.test"]
    for delivery in probes:
        await home.settle(delivery)
    rest = []
    while not await home.idle():
        for delivery in await home.lease(50):
            rest.append(delivery.destination)
            await home.settle(delivery)
    assert len(rest) == 14 + 20, "the others get their turns, and those that had found it dead go at once"
    await home.sound()


async def test_zones_read_on_by_turns(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop runs when there was enough to do for one zone; none is read twice before all others."""
    home = await house(zones=[{"name": name, "default": name == "a"} for name in "abcd"])
    schedule, read, work_s = home.queue.core.schedule, list[str](), 1.0

    def work() -> float:
        nonlocal work_s
        work_s += 0.002
        return work_s

    monkeypatch.setattr("zonemta_py.schedule.schedule.thread_time", work)
    for name, zone in schedule.zones.items():
        fill = zone.fill
        monkeypatch.setattr(zone, "fill", lambda now_ms, name=name, fill=fill: [fill(now_ms), read.append(name)][0])
    assert [schedule.fill(home.clock.ms()) for _ in range(4)] == [True] * 4
    assert "".join(read) == "abcdabcd"
    monkeypatch.setattr("zonemta_py.schedule.schedule.thread_time", lambda: 1.0)
    assert schedule.fill(home.clock.ms()) is False
    assert "".join(read[8:]) == "abcd"
