"""What is stopped and what was learned, found by a name: all of it, and nothing else is looked at."""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.schedule.policy.by_word import meant
from zonemta_py.schedule.policy.state import PolicyState

SITES, SOURCES = [f"d{number}.test" for number in range(9)], ["", "192.0.2.1", "192.0.2.2"]


class Hour:
    """The time, as a policy asks for it."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0


def policy_of(hour: Hour) -> PolicyState:
    zones = [{"name": "default", "default": True}, {"name": "news"}]
    server = {"folder": "/nowhere", "hostname": "mta.test"}
    config = Config.model_validate({"server": server, "zones": zones, "learning": {"initial": 5}})
    return PolicyState(config, lambda: hour.now_s, lambda: round(hour.now_s * 1000), lambda _: None)


def lived(policy: PolicyState, hour: Hour, die: random.Random) -> None:
    """Something happens to it."""
    site, source, zone = die.choice(SITES), die.choice(SOURCES), die.choice(policy._config.zones)
    what = die.randrange(9)
    hour.now_s += die.random()
    if what < 3:
        policy.learned_concurrency.failed(zone, site, source, "closed")
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
    elif rows := list(policy.rows()):
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
        rows = list(policy.rows())
        whole = [row["name"] for row in rows if " " in row["name"]]
        for what in (*SITES, *SOURCES[1:], "default", "news", "nobody.test", "default nobody.test", *whole[:5]):
            own = sorted((row for row in rows if meant(what, row["name"])), key=str)
            assert sorted(policy.rows(what), key=str) == own
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
        rows = list[dict[str, Any]]()
        took.append(steps(lambda rows=rows: rows.extend(policy.rows("d7.test"))))  # type: ignore[misc]
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
