"""Three queues on real disks that share their limits: as exact as one queue, used, and nobody waits for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.queue.conftest import BODY, Hand, House
from tests.queue.conftest import _patience as _patience
from tests.queue.conftest import folder as folder
from zonemta_py.queues.answers import Merged
from zonemta_py.queues.grants.authority import GrantAuthority
from zonemta_py.queues.grants.holder import GrantHolder
from zonemta_py.queues.shared_limits import SharedLimits
from zonemta_py.schedule.batch import Batch
from zonemta_py.schedule.reasons import reasons

STEP_S = 0.01
SIZE = len(BODY)


class Trio:
    """Three queues, an authority, and messages that arrive at the next step."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.clock = Hand()
        self.houses = [House(folder / f"house{number}", **options) for number in range(3)]
        self.authority = GrantAuthority(range(3), "first", self.clock.monotonic())
        self.doors: list[SharedLimits] = []
        self.taken: dict[int, list[float]] = defaultdict(list)
        """When each queue leased something."""
        self.out: list[tuple[float, Batch]] = []
        self.most_out = 0
        self.out_s = 0.0

    async def open(self) -> None:
        for number, house in enumerate(self.houses):
            house.clock = self.clock
            await house.open()
            core, leases = house.queue.core, house.queue.leases
            out = [lease.batch for lease in leases.out.values()]
            self.doors.append(SharedLimits(core.schedule, GrantHolder(f"process {number}", 3), out))
            self.authority.connected(number, self.clock.monotonic())

    def talk(self) -> None:
        now = self.clock.monotonic()
        for queue, message in self.authority.tick(now):
            self.doors[queue].heard(message)
        for queue, door in enumerate(self.doors):
            if (said := door.next_message()) is not None:
                self.authority.heard(queue, said, now)

    def run(self, seconds: float, holds_s: float = 0.1, only: tuple[int, ...] = (0, 1, 2)) -> None:
        """All lease whatever they may, and are done with it in that time."""
        end = self.clock.now_s + seconds
        while self.clock.now_s < end:
            self.clock.now_s += STEP_S
            self.talk()
            now = self.clock.now_s
            due, self.out = [one for one in self.out if one[0] <= now], [one for one in self.out if one[0] > now]
            for _, batch in due:
                batch.zone.done(batch)
            for queue in only:
                schedule = self.houses[queue].queue.core.schedule
                schedule.timers.wake(schedule.now())
                while (batch := schedule.next()) is not None:
                    self.taken[queue].append(now)
                    self.out.append((now + holds_s, batch))
            self.most_out = max(self.most_out, len(self.out))
            self.out_s += STEP_S * len(self.out)

    def excess(self, rate: float, burst: float) -> float:
        """By how much more than the limit allows, in the worst interval, all together took."""
        least, worst = float("inf"), float("-inf")
        for before, at in enumerate(sorted(at for taken in self.taken.values() for at in taken)):
            least = min(least, before - rate * at)
            worst = max(worst, before + 1 - rate * at - least - burst)
        return worst


@pytest.fixture
async def trio(folder: Path) -> AsyncIterator[Any]:
    made: list[Trio] = []

    async def make(mail: int, sites: int = 1, **options: Any) -> Trio:
        options.setdefault("queue", {"window": 4000})
        options.setdefault("zones", [{"name": "default", "connections": 1000, "connections_per_destination": 500}])
        three = Trio(folder, **options)
        made.append(three)
        await three.open()
        for house in three.houses:
            for number in range(mail):
                await house.put(f"person{number}@site{number % sites}.test")
        return three

    yield make
    for three in made:
        for house in three.houses:
            house.abandon()
            assert house.damages == []


@pytest.mark.parametrize(
    ("throttle", "rate", "burst"),
    [
        ({"messages": "60/s"}, 60, 60),
        ({"messages": "20/s", "burst": 2}, 20, 2),
        ({"recipients": "2/s"}, 2, 2),
        ({"new_connections": "10/s", "burst": 1}, 10, 1),
        ({"bytes": f"{40 * SIZE}/s", "burst": 8 * SIZE}, 40, 8),
    ],
    ids=["divided", "undivided", "recipients", "connections", "bytes"],
)
async def test_a_rate(trio: Any, throttle: dict[str, Any], rate: float, burst: float) -> None:
    seconds = 8
    three = await trio(int(rate * seconds) + 80, throttles=[{"name": "all", **throttle}])
    three.run(1)
    three.taken.clear()
    three.run(seconds)
    counts = [len(three.taken[queue]) for queue in range(3)]
    assert three.excess(rate, burst) < 0.01
    assert sum(counts) > 0.85 * rate * seconds
    assert min(counts) > 0.15 * sum(counts)


@pytest.mark.parametrize("connections", [1, 2, 7])
async def test_connections(trio: Any, connections: int) -> None:
    three = await trio(400, throttles=[{"name": "all", "connections": connections}])
    three.run(2)
    three.out_s = 0
    three.run(10)
    counts = [len(three.taken[queue]) for queue in range(3)]
    assert three.most_out == connections
    assert three.out_s > 0.85 * 10 * connections
    assert min(counts) > 0.15 * sum(counts)


@pytest.mark.parametrize("connections", [1, 5])
async def test_connections_of_a_zone(trio: Any, connections: int) -> None:
    zones = [{"name": "default", "connections": connections, "connections_per_destination": 50}]
    three = await trio(300, sites=3, zones=zones)
    three.run(12)
    counts = [len(three.taken[queue]) for queue in range(3)]
    assert three.most_out == connections
    assert three.out_s > 0.8 * 12 * connections
    assert min(counts) > 0.15 * sum(counts)


async def test_nobody_waits_for_ever_who_needs_two_limits(trio: Any) -> None:
    """Neither can be divided: a connection, and a rate below one message a second for each."""
    throttles = [{"name": "one", "connections": 1}, {"name": "slow", "messages": "2/s", "burst": 1}]
    three = await trio(60, throttles=throttles)
    three.run(20)
    counts = [len(three.taken[queue]) for queue in range(3)]
    assert three.most_out == 1
    assert three.excess(2, 1) < 0.01
    assert sum(counts) > 30
    assert min(counts) > 0.15 * sum(counts)


async def test_one_queue_has_all_that_no_other_wants(trio: Any) -> None:
    """And gives it back."""
    throttles = [{"name": "all", "messages": "50/s"}, {"name": "some", "connections": 3}]
    three = await trio(600, throttles=throttles)
    three.run(5, holds_s=0.02, only=(1,))
    alone = len(three.taken[1])
    assert alone > 0.9 * 5 * 50
    three.run(5, holds_s=0.02, only=(0, 2))
    assert len(three.taken[1]) == alone
    assert len(three.taken[0]) + len(three.taken[2]) > 0.7 * 5 * 50
    assert three.excess(50, 50) < 0.01


async def test_other_limits_hold_from_a_reload_on(trio: Any) -> None:
    """What is in use stays in use, also of limits on connections."""
    three = await trio(300, throttles=[{"name": "all", "messages": "20/s"}, {"name": "few", "connections": 6}])
    three.run(3)
    for house in three.houses:
        house.options["throttles"] = [{"name": "all", "messages": "5/s"}, {"name": "few", "connections": 2}]
        core = house.queue.core
        core.schedule.configure(
            house.config, None, [batch for _, batch in three.out if batch.zone in core.schedule.zones.values()]
        )
    three.run(1)
    three.taken.clear()
    three.most_out = 0
    three.run(8)
    assert three.excess(5, 5) < 0.01
    assert sum(len(taken) for taken in three.taken.values()) > 0.85 * 5 * 8
    assert three.most_out <= 2


async def test_what_mail_waits_for_is_said_as_it_is(trio: Any) -> None:
    """Another queue has it; or it is the limit itself."""
    three = await trio(5, throttles=[{"name": "one", "connections": 1}])
    three.run(0.5, holds_s=100)
    said = []
    for house in three.houses:
        schedule = house.queue.core.schedule
        said += [reason["cause"] for one in schedule.flow_queues() for reason in reasons(schedule, one)]
    assert sorted(said) == ["one (connections)", *2 * ["one (connections, which other queues have now)"]]


async def test_an_operator_sees_the_whole_limit_and_what_all_have_used(trio: Any) -> None:
    """Also while one queue has all of it, and when it has given that back."""
    rate, burst = 2.0, 40.0
    three = await trio(200, throttles=[{"name": "all", "messages": "2/s", "burst": 40}])
    asks = {number: house.queue.ask for number, house in enumerate(three.houses)}
    for number, house in enumerate(three.houses):
        house.queue.core.membership = cast(Any, _Shares(three.doors[number], house))
    merged = Merged(asks, cast(Any, None), used=lambda id: three.authority.used(tuple(id), three.clock.monotonic()))
    for seconds, only in ((3, (1,)), (5, (0, 1, 2)), (4, ())):
        three.run(seconds, holds_s=0.02, only=only)
        rows = (await merged.answer("lanes", {}))["rows"]
        limits = [limit for row in rows for limit in row["limits"]]
        assert limits
        tat = 0.0
        for at in sorted(at for taken in three.taken.values() for at in taken):
            tat = max(tat, at) + 1 / rate
        for limit in limits:
            assert limit.keys() == {"name", "of", "every_s", "burst", "ahead_s"}
            assert (limit["every_s"], limit["burst"]) == (1 / rate, burst)
            assert limit["ahead_s"] == pytest.approx(max(0.0, tat - three.clock.now_s), abs=0.5)


class _Shares:
    """As `queues.member.Member`, of its limits alone."""

    def __init__(self, limits: SharedLimits, house: House) -> None:
        self._limits, self._schedule = limits, house.queue.core.schedule

    def used(self, ids: list[list[str]]) -> list[float]:
        return self._limits._holder.used(map(tuple, ids), self._schedule.now())

    def turn(self) -> None:
        pass

    def may_lease(self) -> bool:
        return True
