"""Which configuration may follow which, and what holds on a node that is behind."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.cluster import agreed
from zonemta_py.cluster.agreed import AGREES, BEHIND, NEWER, Version
from zonemta_py.config import Config
from zonemta_py.config.limits import rate

_RATES = st.sampled_from(["", "1/s", "60/min", "100/s", "5000/h", "2/s"])
_THROTTLES = st.fixed_dictionaries(
    {
        "messages": _RATES, "recipients": _RATES, "connections": st.integers(0, 5),
        "idle_s": st.just(1), "burst": st.integers(0, 3),
    }
)  # fmt: skip


def config(pace: dict[str, Any] | None = None, **more: Any) -> Config:
    limit = [{"name": "pace", **pace}] if pace is not None else []
    return Config.model_validate({"throttles": limit, **more})


def made(pace: dict[str, Any], **more: Any) -> Config:
    if pace.get("burst") and not (pace["messages"] or pace["recipients"]):
        pace = pace | {"burst": 0}
    return config(pace, **more)


def per_second(text: str) -> float:
    found = rate(text)
    return found.amount / found.seconds


def values(found: Config) -> dict[str, Any]:
    return agreed.values_of(found)


def version(number: int, found: Config) -> Version:
    return Version(number, "a", "somebody", 0, values(found))


def test_a_node_that_has_had_the_newest_version_makes_the_next_one_and_another_is_behind() -> None:
    slow, fast = config({"messages": "1/s"}), config({"messages": "2/s"})
    assert agreed.judged(values(slow), 0, None) == NEWER
    assert agreed.judged(values(slow), 0, version(3, slow)) == AGREES
    assert agreed.judged(values(fast), 3, version(3, slow)) == NEWER
    assert agreed.judged(values(fast), 2, version(3, slow)) == BEHIND
    assert agreed.judged(values(fast), 0, version(3, slow)) == BEHIND, "it was never here before"


def test_zones_that_only_one_of_them_has_do_not_differ_and_stay_in_the_next_version() -> None:
    one, two = config(zones=[{"name": "a"}, {"name": "b", "connections": 3}]), config(zones=[{"name": "a"}])
    assert agreed.differing(values(one), values(two)) == []
    assert agreed.joined(values(two), values(one)) == values(one)
    other = config(zones=[{"name": "a", "connections": 7}])
    assert [row.key for row in agreed.differing(values(one), values(other))] == ["zones.a.connections"]


def test_what_may_not_follow() -> None:
    before = values(config({"messages": "1/s"}))
    scope = values(config({"messages": "1/s", "per": ["site"]}))
    assert "under another name" in agreed.forbidden(scope, before, ["b"], [])[0]
    assert agreed.forbidden(scope, before, [], []) == [], "nobody else counts"
    assert agreed.forbidden(values(config()), before, ["b"], []) == [], "a limit may go"
    fewer = values(config(cluster={"replicas": 1}))
    assert "while NATS servers are away (n2)" in agreed.forbidden(fewer, values(config()), [], ["n2"])[0]
    assert agreed.forbidden(fewer, values(config()), ["b"], []) == []
    assert agreed.forbidden(values(config()), fewer, [], ["n2"]) == [], "more may be wanted at any time"
    newer = before | {"format": before["format"] + 1}
    assert "start the newer version" in agreed.forbidden(before, newer, [], [])[0]
    assert agreed.forbidden(newer, before, [], []) == []


@given(_THROTTLES, _THROTTLES)
def test_of_each_limit_the_stricter_holds(own: dict[str, Any], theirs: dict[str, Any]) -> None:
    mine, other = made(own), made(theirs)
    found = agreed.stricter(mine, values(other)).throttles[0]
    for limit in (mine.throttles[0], other.throttles[0]):
        for name in ("messages", "recipients"):
            if said := getattr(limit, name):
                assert per_second(getattr(found, name)) <= per_second(said)
        if limit.connections:
            assert 0 < found.connections <= limit.connections
    assert agreed.stricter(mine, values(mine)).throttles[0].messages == mine.throttles[0].messages
    Config.model_validate({"throttles": [found.model_dump()]})


def test_limits_and_quotas_that_a_node_lacks_hold_there_too() -> None:
    theirs = config(
        {"messages": "1/s"}, accounts=[{"name": "shop", "messages": ["10/h"], "sessions": 3}],
        zones=[{"name": "a", "connections": 4}],
    )  # fmt: skip
    mine = config(accounts=[{"name": "shop", "messages": ["100/day"]}], zones=[{"name": "a", "connections": 9}])
    found = agreed.stricter(mine, values(theirs))
    assert [one.messages for one in found.throttles] == ["1/s"]
    assert found.accounts[0].messages == ["100/day", "10/h"]
    assert (found.accounts[0].sessions, found.zones[0].connections) == (3, 4)
