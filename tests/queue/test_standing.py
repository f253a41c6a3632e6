"""What is stopped and what was learned, found by a name: all of it, and nothing else is looked at."""

import asyncio
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.schedule.policy.saved import Packed, pack_around
from zonemta_py.schedule.policy.standing import meant
from zonemta_py.schedule.policy.state import PolicyState
from zonemta_py.schedule.time.pace import Pace

SITES, SOURCES = [f"d{number}.test" for number in range(9)], ["", "192.0.2.1", "192.0.2.2"]


class Hour:
    """The time, as a policy asks for it."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0


def config_of(initial: int) -> Config:
    zones = [{"name": "default", "default": True}, {"name": "news"}]
    server = {"folder": "/nowhere", "hostname": "mta.test"}
    return Config.model_validate({"server": server, "zones": zones, "learning": {"initial": initial}})


def policy_of(hour: Hour) -> PolicyState:
    return PolicyState(config_of(5), lambda: hour.now_s, lambda: round(hour.now_s * 1000), lambda _: None)


def rows_of(policy: PolicyState, what: str = "") -> list[dict[str, Any]]:
    return [row for portion in policy.rows(what) for row in portion]


def lowered(policy: PolicyState) -> set[str]:
    """Names of all concurrency that is less than that of a new one, by a look at each."""
    initial, there = policy._config.learning.initial, policy.learned_concurrency._all
    few = {key for key, one in there.items() if one.dead or one.window < min(initial, one.most)}
    return {" ".join(key).strip() for key in few}


def lived(policy: PolicyState, hour: Hour, die: random.Random, grown: bool = True) -> None:
    """Something happens to it. grown: also what no record says."""
    site, source, zone = die.choice(SITES), die.choice(SOURCES), die.choice(policy._config.zones)
    what = die.randrange(9)
    hour.now_s += die.random()
    if what < 3:
        policy.learned_concurrency.failed(zone, site, source, "closed")
        if grown and die.random() < 0.3:
            policy.learned_concurrency.of(zone, site, source).succeeded()
    elif what == 3:
        policy.apply(["rate", [source, site], _bounded(policy), "too fast"])
    elif what == 4:
        policy.stop("rest", f"{source} {site}".strip(), die.randrange(1, 20), "blocked")
    elif what == 5:
        policy.stop(die.choice(("destination", "domain", "tenant")), site, die.choice((3, float("inf"))), "asked")
    elif what == 6:
        policy.manners.learn(site, die.randrange(3), die.random() < 0.5, "said so")
    elif what == 7:
        policy.lost(site, "damage")
    elif rows := rows_of(policy):
        row = die.choice(rows)
        policy.lift(row["kind"], row["name"], "asked")


def _bounded(policy: PolicyState) -> dict[str, Any]:
    """The state of a rate that is one."""
    rate = type(policy._rates.of("", "other.test"))(policy._config.learning)
    for second in range(5):
        rate.accepted(float(second))
    rate.slowed(6.0, "too fast", 5.0)
    return dict(rate.state())


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_by_a_name_is_what_has_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was learned, stopped, lifted or dropped before, because there was too much of it; also after a start."""
    monkeypatch.setattr("zonemta_py.schedule.policy.learned_concurrency.LEARNED_MAX", 20)
    monkeypatch.setattr("zonemta_py.schedule.policy.learned_rates.RATES_MAX", 10)
    die, hour = random.Random(seed), Hour()
    policy, found = policy_of(hour), 0
    for _ in range(30):
        for _ in range(10):
            lived(policy, hour, die)
        if die.random() < 0.1:
            state, policy = policy.state(), policy_of(hour)
            policy.restore(state)
        if die.random() < 0.1:
            policy.configure(config_of(die.randrange(1, 9)))
        rows = rows_of(policy)
        whole = [row["name"] for row in rows if " " in row["name"]]
        for what in (*SITES, *SOURCES[1:], "default", "news", "nobody.test", "default nobody.test", *whole[:5]):
            assert {row["name"] for row in rows if row["kind"] == "concurrency"} == lowered(policy)
            own = sorted((row for row in rows if meant(what, row["name"])), key=str)
            assert sorted(rows_of(policy, what), key=str) == own
            found += len(own)
    assert found


def steps(call: Callable[[], object]) -> int:
    """Lines of Python that it takes."""
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_others_are_not_looked_at() -> None:
    """It takes no longer where thousands were learned, stopped and are resting."""
    hour, took = Hour(), list[int]()
    policy = policy_of(hour)
    zone, bounded = policy._config.zones[0], _bounded(policy)
    for more in (10, 3_000):
        for number in range(more):
            site = f"d{number}.test"
            policy.learned_concurrency.failed(zone, site, "192.0.2.1", "closed")
            policy.apply(["rate", ["192.0.2.1", site], bounded, "too fast"])
            policy.stop("rest", f"192.0.2.1 {site}", 600, "blocked")
            policy.manners.learn(site, 5, True, "said so")
        took.append(min(steps(lambda: rows_of(policy, "d7.test")) for _ in range(3)))  # without a look for garbage
        rows = rows_of(policy, "d7.test")
        assert [row["kind"] for row in rows] == ["rest", "rate", "concurrency", "recipients", "pipelining"]
    assert took[1] == took[0]


async def test_explain_shows_some_of_very_many(house: Any) -> None:
    """What rests at thousands of sites: two hundred rows, and how many there are besides."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2"}]}
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[pool])
    for number in range(1_000):
        home.queue.core.schedule.policy.stop("rest", f"127.0.0.2 d{number}.test", 60, "blocked")
    answer = await home.queue.ask("explain", what="127.0.0.2")
    assert (len(answer["rows"]), answer["more"]) == (200, 800)
    answer = await home.queue.ask("explain", what="d7.test")
    assert [(row["stopped"], row["name"]) for row in answer["rows"]] == [("rest", "127.0.0.2 d7.test")]


def test_what_holds_nothing_back_is_not_looked_at() -> None:
    """All of it takes no longer where thousands of destinations are well; what comes, comes in portions."""
    hour, took = Hour(), list[int]()
    policy = policy_of(hour)
    zone, bounded = policy._config.zones[0], _bounded(policy)
    policy.learned_concurrency.failed(zone, "slow.test", "", "closed")
    for more in (10, 3_000):
        for number in range(more):
            policy.learned_concurrency.of(zone, f"d{number}.test", "").succeeded()
            policy._rates.of("", f"d{number}.test").accepted(hour.now_s)
        took.append(steps(lambda: rows_of(policy)))
    assert took[1] == took[0]
    for number in range(1_000):
        policy.apply(["rate", ["", f"d{number}.test"], bounded, "too fast"])
    assert max(map(len, policy.rows())) <= 200
    assert len(rows_of(policy)) == 1_001


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_gathered_in_portions_is_what_there_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is recorded while a position record is prepared, and until it is written; only the next one has it."""
    monkeypatch.setattr("zonemta_py.schedule.policy.learned_concurrency.LEARNED_MAX", 30)
    monkeypatch.setattr("zonemta_py.schedule.policy.learned_rates.RATES_MAX", 15)
    monkeypatch.setattr("zonemta_py.schedule.policy.manners.MANNERS_MAX", 10)
    monkeypatch.setattr("zonemta_py.schedule.policy.saved.AT_ONCE", 3)
    monkeypatch.setattr("zonemta_py.schedule.time.pace.TURN_S", 0.0)
    die, hour, turns = random.Random(seed), Hour(), 0
    policy = policy_of(hour)
    for _ in range(100):
        lived(policy, hour, die)
    for _ in range(10):
        gathering = asyncio.ensure_future(policy.gather(Pace(60.0)))
        while not gathering.done():
            turns += 1
            lived(policy, hour, die, grown=False)
            await asyncio.sleep(0)
        for _ in range(5):
            lived(policy, hour, die, grown=False)
        gathered, there = (
            unpack(pack_around(policy.state() | {"concurrency": policy.learned_concurrency.state()})) for _ in range(2)
        )
        for name, rows in there.items():
            assert sorted(gathered[name], key=str) == sorted(rows, key=str)
        again = policy_of(hour)
        again.restore(gathered)
        again.learned_concurrency.restore(gathered["concurrency"])
        assert {row["name"] for row in rows_of(again)} == {row["name"] for row in rows_of(policy)}
    assert turns > 50


async def test_what_was_learned_of_thousands_stops_nobody(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position record is made while mail has its turns, and the next start knows all of it."""
    monkeypatch.setattr("zonemta_py.schedule.time.pace.TURN_S", 0.0)
    home = await house(learning={"initial": 5})
    zone, policy = home.queue.core.config.zones[0], home.queue.core.schedule.policy
    for number in range(2_000):
        policy.learned_concurrency.failed(zone, f"d{number}.test", "", "closed")
    writing, turns = asyncio.ensure_future(home.queue.maintenance.position()), 0
    while policy.learned_concurrency._saved._packed is None or len(policy.learned_concurrency._saved._packed) < 2_000:
        turns += 1
        await asyncio.sleep(0)
    await writing
    assert turns >= 10
    before = await home.queue.ask("standing", limit=5_000)
    await home.crash()
    assert await home.queue.ask("standing", limit=5_000) == before
    assert len(before) == 2_000


def test_packing_around_what_is_packed_makes_the_same_bytes() -> None:
    """However deep in maps it is."""
    rows = [["a", 1, None], ["b", 2.5, {"c": b"d"}]]
    packed = Packed.of([pack(row) for row in rows])
    for value in ({}, {"x": {}}, {f"n{number}": number for number in range(20)}):
        assert pack_around({"rows": packed, "in": {"rows": packed, "value": value}}) == pack(
            {"rows": rows, "in": {"rows": rows, "value": value}}
        )
