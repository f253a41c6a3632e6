"""A domain that shares its destination with others is stopped by itself: its mail waits apart, the others' goes on."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from tests.queue.test_sites import Directory, site
from zonemta_py.queue.api import DEFERRED, Delivery

RELAY = {"name": "default", "default": True, "host": "relay.test", "port": 2525}


def shared(**answers: Any) -> Directory:
    resolver = Directory()
    resolver.answers = {f"{name}.test": site("big", "giant") for name in "xyz"} | answers
    return resolver


def domains(sent: list[Delivery]) -> Counter[str]:
    return Counter(recipient.domain for delivery in sent for recipient in delivery.recipients)


async def stop(home: Any, name: str, kind: str = "destination", seconds: float | None = None) -> None:
    await home.queue.ask("stop", kind=kind, name=name, seconds=seconds, cause="told to")


async def test_only_mail_for_that_domain_waits(house: Any) -> None:
    """Mail that came before the order and mail that comes after it; it goes when the order is taken back."""
    home = await house(resolver=shared())
    await put_all(home, 3, "x.test")
    await put_all(home, 3, "y.test")
    [first] = await home.lease()
    await stop(home, first.recipients[0].domain.upper() + ".")
    held = first.recipients[0].domain
    other = "y.test" if held == "x.test" else "x.test"
    await home.settle(first, DEFERRED, delay_s=1)
    await put_all(home, 2, "x.test")
    await put_all(home, 2, "y.test")
    assert domains(await drain(home)) == {other: 5}
    await home.move(2)
    assert domains(await drain(home)) == {}, "what comes back from a sender waits too"
    [row] = await home.queue.ask("standing")
    assert (row["kind"], row["name"], row["cause"]) == ("domain", held, "told to")
    assert await home.queue.ask("lift", kind="destination", name=held)
    assert domains(await drain(home)) == {held: 5}
    await home.sound()


async def test_mail_that_is_being_accepted_waits_too(house: Any) -> None:
    """Where it goes was found before the order, and it is on stable storage after it."""
    home = await house(zones=[RELAY])
    coming = [asyncio.create_task(home.put(f"a{number}@y.test", f"b{number}@x.test")) for number in range(3)]
    zone = home.queue.core.schedule.zones["default"]
    while not zone.flow_queues.by_key:  # noqa: ASYNC110 (it is placed, and not stable yet)
        await asyncio.sleep(0)
    assert not any(task.done() for task in coming)
    await stop(home, "x.test", "domain")
    await asyncio.gather(*coming)
    assert domains(await drain(home)) == {"y.test": 3}
    await home.queue.ask("lift", kind="domain", name="x.test")
    assert domains(await drain(home)) == {"x.test": 3}
    await home.sound()


async def test_it_survives_a_crash_and_ends_by_itself(house: Any) -> None:
    """With what had been parked for it, whether a position record has the order or not."""
    home = await house(resolver=shared())
    await stop(home, "x.test", seconds=100)
    await put_all(home, 5, "x.test")
    await put_all(home, 5, "y.test")
    assert domains(await drain(home)) == {"y.test": 5}
    for position in (False, True):
        if position:
            await home.queue.maintenance.position()
        await home.crash(fsck="look")
        await put_all(home, 1, "y.test")
        assert domains(await drain(home)) == {"y.test": 1}
    await home.move(101)
    assert domains(await drain(home)) == {"x.test": 5}
    assert await home.queue.ask("standing") == []
    await home.sound()


@pytest.mark.parametrize("behind", ["site", "smart host"])
async def test_however_much_of_it_there_is_the_others_go_on(house: Any, behind: str) -> None:
    """What is stopped leaves the window: ten times as many as fit there, before, between and after the others."""
    more = {"zones": [RELAY]} if behind == "smart host" else {"resolver": shared()}
    home = await house(queue={"window": 100}, **more)
    await put_all(home, 500, "x.test")
    await put_all(home, 20, "y.test")
    await stop(home, "x.test")
    await put_all(home, 500, "x.test")
    await put_all(home, 20, "y.test")
    assert domains(await drain(home)) == {"y.test": 40}
    zone = home.queue.core.schedule.zones["default"]
    assert zone.loaded <= 1, "what is stopped takes no room in memory"
    await home.crash()
    await put_all(home, 1, "y.test")
    assert domains(await drain(home)) == {"y.test": 1}
    assert await home.queue.ask("lift", kind="domain", name="x.test")
    assert domains(await drain(home)) == {"x.test": 1000}
    await home.sound()


async def test_what_is_parked_behind_it_goes_although_all_in_memory_was_stopped(house: Any) -> None:
    """The window is full of other mail: one to the domain is in it, and what follows to its neighbour is parked."""
    others = [f"o{number}.test" for number in range(40)]
    sites = {name: site(name, "") for name in others}
    home = await house(queue={"window": 100}, resolver=shared(**sites))
    for name in ("x.test", "y.test"):
        await put_all(home, 1, name)
    assert domains(await drain(home)) == {"x.test": 1, "y.test": 1}, "it is known where they go"
    for name in others:
        await put_all(home, 10, name)
    await put_all(home, 1, "x.test")
    await put_all(home, 3, "y.test")
    [row] = [row for row in (await home.queue.ask("lanes"))["rows"] if row["site"] == "big"]
    assert (row["waiting"], row["parked"]) == (4, True)
    await stop(home, "x.test")
    assert domains(await drain(home)) == dict.fromkeys(others, 10) | {"y.test": 3}
    await home.sound()


async def test_a_message_to_several_domains_is_divided(house: Any) -> None:
    """Behind a smart host one batch has recipients of all domains; those of the stopped one are left out."""
    home = await house(zones=[RELAY])
    await home.put("a@x.test", "b@y.test", "c@x.test")
    await stop(home, "x.test")
    assert domains(await drain(home)) == {"y.test": 1}
    [row] = [row for row in (await home.queue.ask("lanes"))["rows"] if row["apart"]]
    assert (row["site"], row["apart"], row["reasons"][0]["kind"]) == ("relay.test:2525", "@x.test", "suspended")
    assert await home.queue.ask("lift", kind="destination", name="x.test")
    assert domains(await drain(home)) == {"x.test": 2}


async def test_time_in_which_it_is_stopped_makes_no_mail_older(house: Any) -> None:
    """As with other stops that somebody chose; also once it is lifted, and its mail is among others' again."""
    home = await house(resolver=shared(), retry={"life_h": 1, "schedule_min": [10]})
    await home.put("a@x.test", sender="")
    await stop(home, "x.test")
    assert await home.leases() == []
    await home.move(7200)
    assert await home.idle()
    assert (await home.sizes())["queued"] == 1
    await home.queue.ask("lift", kind="domain", name="x.test")
    [delivery] = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    assert (await home.sizes())["deferred"] == 1, "its life is not over"


async def test_it_is_taken_out_of_many_flow_queues_in_portions(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it waits, the event loop runs in between; the order is answered when all of it is apart."""
    home = await house(zones=[RELAY])
    for number in range(40):
        await home.put(f"r{number}@{'xy'[number % 2]}.test", campaign=f"c{number}")
    await home.rest()
    portions, zone = list[int](), home.queue.core.schedule.zones["default"]
    assert len(zone.flow_queues.by_key) == 40
    take_apart = zone.take_apart

    def counted(domain: str, flow_queues: list[Any]) -> None:
        portions.append(len(flow_queues))
        take_apart(domain, flow_queues)

    monkeypatch.setattr("zonemta_py.queue.admin.suspensions.AT_ONCE", 7)
    monkeypatch.setattr(zone, "take_apart", counted)
    await stop(home, "x.test", "domain")
    assert portions == [7, 7, 7, 7, 7, 5]
    assert domains(await drain(home)) == {"y.test": 20}
    await home.sound()


async def test_the_end_of_a_stop_of_very_many_lets_other_work_in(house: Any) -> None:
    """5,000 destinations wait for one tenant's stop: they are freed in parts, all of them, and everybody gets mail."""
    home = await house(queue={"window": 10_000})
    await home.put("bob@x.test", tenant="acme")
    await home.queue.ask("stop", kind="tenant", name="acme", cause="unpaid")
    for number in range(5):
        await home.put(*(f"ann@d{number}-{n}.test" for n in range(1000)), tenant="acme")
    assert await home.idle()
    schedule = home.queue.core.schedule

    def held() -> int:
        return sum(flow_queue.held is not None for flow_queue in schedule.flow_queues())

    assert held() == 5_001
    assert schedule.policy.lift("tenant", "acme", "paid")
    parts = []
    schedule.lift()
    while schedule.next_wake(schedule.now()) == 0.0:
        parts.append(held())
        schedule.timers.wake(schedule.now())
    assert len(parts) == 2
    assert parts == sorted(parts, reverse=True)
    assert held() == 0
    assert len(await drain(home)) == 5_001


async def test_it_goes_in_the_order_of_its_coming(house: Any) -> None:
    """Also what became stable just when what came before it was set aside."""
    for seed in range(40):
        home, dice = await house(zones=[RELAY | {"connections": 1}]), random.Random(seed)
        taking = asyncio.ensure_future(home.queue.lease(1))
        await stop(home, "x.test", "domain")
        people = [f"r{number}@x.test" for number in range(9)]
        coming = list[asyncio.Task[str]]()
        for who in people:
            coming.append(asyncio.create_task(home.put(who)))
            for _ in range(dice.choice((0, 1, 3, 10))):
                await asyncio.sleep(dice.choice((0, 0.0005)))
        await asyncio.gather(*coming)
        await home.rest()
        await home.queue.ask("lift", kind="domain", name="x.test")
        found = list[str]()
        while len(found) < len(people):
            for delivery in await asyncio.wait_for(taking, 60):
                found += [one.address for one in delivery.recipients]
                await home.settle(delivery)
                home.hang_up()
            taking = asyncio.ensure_future(home.queue.lease(1))
        taking.cancel()
        assert found == people
