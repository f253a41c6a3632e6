"""Flow queues: what one costs, in what order they wait, and that none is left behind or forgotten with mail on it."""

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.disk.notes import PLAIN, Note
from zonemta_py.queue.api import DELIVERED
from zonemta_py.schedule.batch import Entry, FlowQueue, Line
from zonemta_py.schedule.flow_queues import EMPTIED_MAX

Make = Callable[..., Any]


def cost(home: Any, sites: int, flows: int, *, waiting: bool) -> float:
    """Bytes of each of sites x flows new flow queues, with a recipient in the window or none; not that recipient's."""
    zone = home.queue.core.schedule.zones["default"]
    rows = []
    for number in range(sites * flows):
        note = Note(flow=f"0~tenant{number // sites % 7}~campaign{number // sites}" if flows > 1 else "")
        message_id, address = f"{number:016x}", f"someone@site{number % sites}.test"
        rows.append(Entry(keys.fresh("default", message_id, address), message_id, address, note))
    gc.collect()
    tracemalloc.start()
    for entry in rows:
        flow_queue = zone.flow_queues.of(entry.id, entry.address, entry.note)
        if waiting:
            zone.put(flow_queue, entry)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(zone.flow_queues.by_key) == sites * flows
    return used / (sites * flows)


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize(("sites", "flows", "most"), [(20, 50, 700), (50, 20, 700), (1000, 1, 1250)])
async def test_a_flow_queue_is_small(house: Make, sites: int, flows: int, most: int, waiting: bool) -> None:
    """As many as campaigns times sites may wait at once, and have to fit into memory.

    The last case is an egress path for each: with it comes what the destination has earned, which is remembered for
    10,000.
    """
    home = await house()
    assert cost(home, sites, flows, waiting=waiting) < most


def flow_queues_of(home: Any) -> list[FlowQueue]:
    return list(home.queue.core.schedule.flow_queues())


async def test_those_in_a_line_come_in_their_order(house: Make) -> None:
    """First come, first served, however many there are, also when some come later."""
    home = await house()
    for number in range(5):
        await home.put(f"r@d{number}.test")
    one, *others = flow_queues_of(home)
    line, seen = Line(one), []
    for flow_queue in others[:2]:
        line.append(flow_queue)
    for flow_queue in others[2:]:
        found, was_last = line.pop()
        seen.append(found)
        assert not was_last
        line.append(flow_queue)
    while not was_last:
        found, was_last = line.pop()
        seen.append(found)
    assert seen == [one, *others]


async def test_all_campaigns_of_a_full_destination_have_their_turns(house: Make) -> None:
    """One connection, many campaigns: each lease that ends lets the next one go, until all are through."""
    zone = {"name": "default", "connections": 4, "connections_per_destination": 1}
    home = await house(zones=[zone])
    for number in range(60):
        await home.put("r@x.test", campaign=f"c{number % 12}")
    seen: list[str] = []
    while found := await home.leases():
        assert len(found) == 1
        seen += [delivery.campaign for delivery in found]
        await home.settle(found[0])
    assert set(Counter(seen).values()) == {5}
    assert [len(set(seen[start : start + 12])) for start in range(0, 60, 12)] == [12] * 5
    await home.rest()
    assert flow_queues_of(home) == []


async def test_a_campaign_that_comes_while_the_destination_is_full_goes_after_it(house: Make) -> None:
    """It finds all connections in use, and is looked at when one is free, without waiting for anything else."""
    home = await house(zones=[{"name": "default", "connections": 4, "connections_per_destination": 1}])
    await home.put("r@x.test", campaign="first")
    (delivery,) = await home.leases()
    await home.put("r@x.test", campaign="second")
    assert await home.leases() == []
    await home.settle(delivery)
    assert [found.campaign for found in await home.leases()] == ["second"]


async def test_a_flow_queue_that_comes_and_goes_finds_what_is_parked_each_time(house: Make) -> None:
    """More than fits into the window, three times over: all of it goes, and nothing is left in memory in between."""
    home = await house(queue={"window": 100}, zones=[{"name": "default", "connections": 4}])
    for turn in range(3):
        for number in range(150):
            await home.put(f"r{turn}-{number}@x.test", sender="")
        store = home.queue.core.disk.store
        assert store.first(keys.parked_range("default"), keys.end(keys.parked_range("default"))) is not None
        seen: set[str] = set()
        while found := await home.leases():
            for delivery in found:
                seen |= {recipient.address for recipient in delivery.recipients}
                await home.settle(delivery)
        assert seen == {f"r{turn}-{number}@x.test" for number in range(150)}
        await home.rest()
        assert flow_queues_of(home) == []
    await home.sound()


async def test_what_is_parked_is_found_after_a_restart(house: Make) -> None:
    """Nobody has said so to the new process: it looks for itself."""
    home = await house(queue={"window": 100})
    for number in range(150):
        await home.put(f"r{number}@x.test", campaign="c")
    await home.crash()
    seen: set[str] = set()
    while found := await home.leases():
        for delivery in found:
            seen |= {recipient.address for recipient in delivery.recipients}
            await home.settle(delivery)
    assert len(seen) == 150


async def test_one_that_was_forgotten_comes_back_as_new(house: Make) -> None:
    """At a quiet hour each message of a destination finds what the one before has left, and nobody else sees it."""
    home = await house()
    queues = home.queue.core.schedule.zones["default"].flow_queues
    found = list[FlowQueue]()
    for _ in range(3):
        await home.put("ann@one.test")
        found += flow_queues_of(home)
        [delivery] = await home.leases()
        await home.settle(delivery, DELIVERED)
        await home.rest()
        assert (queues.by_key, queues.paths, queues.flows(), queues.names.of("one.test")) == ({}, {}, [], [])
    assert len(found) == 3
    assert len(set(map(id, found))) == 1


async def test_one_that_was_forgotten_is_made_anew_where_its_destination_has_changed(house: Make) -> None:
    """Its limits would be those of another provider; and only so many are kept."""
    home = await house()
    queues = home.queue.core.schedule.zones["default"].flow_queues
    for number in range(EMPTIED_MAX + 1):
        await home.put(f"ann@d{number}.test")
    before = {flow_queue.key: flow_queue for flow_queue in flow_queues_of(home)}
    while found := await home.leases():
        for delivery in found:
            await home.settle(delivery, DELIVERED)
    await home.rest()
    assert queues.by_key == {}
    names = list(before)
    again = [queues.of("0" * 16, f"ann@{name}", PLAIN) for name in names]
    assert [one is before[name] for one, name in zip(again, names, strict=True)].count(False) == 1
    for one in again:
        queues.forget(one)
    queues.learn_provider(again[0].path, "big")
    assert queues.of("0" * 16, f"ann@{names[0]}", PLAIN) is not again[0]
