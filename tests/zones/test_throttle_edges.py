"""Limits and throttles to the letter: moments and rates are binary fractions, so every number is exact."""

import math
from typing import Any

import pytest

from zonemta_py.config import Throttle
from zonemta_py.zones import throttle
from zonemta_py.zones.throttle import Bucket, Limit, Scope, Throttles

SCOPE = Scope("default", "192.0.2.1", "mx.gmail.example", "google", "shop", "news-7")
KINDS = ("messages", "recipients", "new_connections", "bytes")


def limits(*throttles: dict[str, Any]) -> Throttles:
    return Throttles([Throttle(**{"name": f"t{i}", **t}) for i, t in enumerate(throttles)])


def limit(scope: Scope = SCOPE, **settings: Any) -> Limit:
    (found,) = limits(settings).of(scope)
    return found


# Limits


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_taken_given_and_asked_for_by_itself(kind: str) -> None:
    """What it costs of the other kinds is nothing to it."""
    one = limit(**{kind: "4/s"}, burst=8)
    costs = dict.fromkeys(KINDS, 3)
    others = {**costs, kind: 0}
    meter: Bucket = getattr(one, kind)
    assert [getattr(one, other) for other in KINDS if other != kind] == [None, None, None]
    one.take(10, **others)
    assert meter.tat == 0
    one.take(10, **costs)
    assert meter.tat == 10.75
    one.take(10, **{**others, kind: 20})
    assert (one.wait(10, **others), one.blocking) == (0, "")
    assert (one.wait(10, **costs), one.blocking) == (5.75 - 1.25, kind)
    one.give(10, 10, **others)
    assert meter.tat == 15.75
    one.give(10, 10, **costs)
    assert meter.tat == 15.0
    assert one.state(10) == {kind: [15.0, 0.25, 8]}
    assert one.connections == 3


def test_a_message_to_one_recipient_is_what_costs_nothing_else() -> None:
    """So it is asked for and taken where nothing is said; and nothing is given back."""
    all_kinds = limit(**dict.fromkeys(KINDS, "4/s"))
    all_kinds.take(10)
    assert all_kinds.state() == {"messages": [10.25, 0.25, 4.0], "recipients": [10.25, 0.25, 4.0]}
    all_kinds.take(10, 4, 4, 4, 4)
    all_kinds.give(10, 10)
    assert {kind: tat for kind, (tat, _, _) in all_kinds.state(10).items()} == {
        "messages": 11.25, "recipients": 11.25, "new_connections": 11.0, "bytes": 11.0,
    }  # fmt: skip
    assert (all_kinds.wait(10), all_kinds.blocking) == (0.5, "messages")
    for kind, wait in (("messages", 1.25), ("recipients", 1.25), ("new_connections", 0), ("bytes", 0)):
        one = limit(**{kind: "4/s"})
        one.take(10, 8, 8, 8, 8)
        assert one.wait(10) == wait


@pytest.mark.parametrize(
    ("taken", "wait", "blocking"),
    [
        ((4, 0, 0, 0), 0.25, "messages"),
        ((4, 5, 0, 0), 0.5, "recipients"),
        ((5, 4, 0, 0), 0.5, "messages"),
        ((4, 4, 4, 4), 0.25, "messages"),
        ((6, 4, 7, 5), 1.0, "new_connections"),
        ((3, 3, 3, 3), 0, ""),
    ],
)
def test_the_longest_wait_is_told_and_the_first_that_made_it(
    taken: tuple[int, int, int, int], wait: float, blocking: str
) -> None:
    one = limit(**dict.fromkeys(KINDS, "4/s"))
    one.take(10, *taken)
    assert (one.wait(10, 1, 1, 1, 1), one.blocking) == (wait, blocking)


def test_connections_at_their_bound_come_before_every_rate() -> None:
    one = limit(messages="4/s", connections=2)
    one.take(10, 5)
    assert (one.wait(10), one.blocking) == (0.5, "messages")
    one.hold()
    assert (one.connections, one.wait(10), one.blocking) == (2, math.inf, "connections")
    one.hold()
    assert (one.connections, one.wait(10), one.blocking) == (3, math.inf, "connections")
    one.release()
    one.release()
    assert (one.connections, one.wait(10), one.blocking) == (1, 0.5, "messages")
    assert (one.wait(20), one.blocking) == (0, "")


def test_without_a_bound_there_are_connections_enough() -> None:
    one = limit(messages="4/s")
    for _ in range(3):
        one.hold()
    assert one.wait(10) == 0


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({"messages": "4/s"}, True),
        ({"recipients": "4/s"}, True),
        ({"bytes": "4B/s"}, True),
        ({"new_connections": "4/s"}, False),
        ({"connections": 4}, False),
    ],
)
def test_what_limits_connections_only_counts_no_mail(settings: dict[str, Any], counts: bool) -> None:
    assert limit(**settings).counts_mail is counts


def test_a_limit_in_use_is_not_idle() -> None:
    """Neither with a connection nor with a rate that is not full again."""
    one = limit(messages="4/s", recipients="4/s")
    assert one.idle(0)
    one.take(10, 1, 2)
    assert not one.idle(20)
    one.release()
    assert [one.idle(now) for now in (10, 10.25, 10.5)] == [False, False, True]
    assert [one.state(now) for now in (10.25, 10.5)] == [{"recipients": [10.5, 0.25, 4.0]}, {}]


def test_a_state_is_of_the_moment_zero_if_nothing_is_said() -> None:
    one = limit(messages="4/s")
    assert one.state() == {}
    one.restore({"messages": [0.5, 0.25, 4.0]}, 0)
    assert one.state() == {"messages": [0.5, 0.25, 4.0]}


@pytest.mark.parametrize(
    ("was", "now", "tat"),
    [
        ([9.0, 0.25, 8.0], 10, 9.0),
        ([12.0, 0.25, 8.0], 10, 12.0),
        ([12.0, 0.125, 8.0], 10, 14.0),
        ([12.0, 0.5, 8.0], 10, 11.0),
        ([12.0, 0.25, 4.0], 10, 12.0),
        ([14.0, 0.25, 16.0], 10, 12.0),
        ([9.0, 0.5, 8.0], 10, 10.0),
        ([9.0, 0.125, 8.0], 10, 10.0),
        ([9.0, 0.25, 4.0], 10, 10.0),
        ([9.0, 0.25, 16.0], 10, 10.0),
    ],
)
def test_a_restored_state_is_converted_to_the_configuration(was: list[float], now: float, tat: float) -> None:
    """As it is where nothing has changed; else used stays used, in units, up to the new burst, and a debt a debt."""
    one = limit(messages="4/s", burst=8)
    one.restore({"messages": was, "bytes": [99.0, 1.0, 1.0]}, now)
    assert one.messages is not None
    assert (one.messages.tat, one.messages.interval_s, one.messages.burst) == (tat, 0.25, 8)


# Throttles


def test_what_is_restored_is_kept_once_and_only_if_it_is_used() -> None:
    every = limits({"messages": "4/s", "per": ["site"]})
    state = [[["t0", "a"], {"messages": [12.0, 0.25, 4.0]}], [["t0", "b"], {"messages": [9.0, 0.25, 4.0]}]]
    every.restore(state, 10)
    every.restore(state, 10)
    assert [one.key for one in every] == [("t0", "a")]
    (one,) = every
    one.take(10)
    assert [one.key for one in every] == [("t0", "a")]
    assert every.state(10) == [[["t0", "a"], {"messages": [12.25, 0.25, 4.0]}]]


@pytest.mark.parametrize("key", [["gone", "a"], ["t0"], ["t0", "a", "b"], ["t1", "a", "b", "c"], ["t1"], ["t1", "a"]])
def test_a_state_that_counts_by_something_else_is_left_out(key: list[str]) -> None:
    every = limits({"messages": "4/s", "per": ["site"]}, {"messages": "4/s", "per": ["site", "tenant"]})
    every.restore([[key, {"messages": [12.0, 0.25, 4.0]}]], 10)
    assert list(every) == []


def test_a_forgotten_limit_is_kept_again_when_it_is_used_again() -> None:
    """Whoever has it in hand goes on with it."""
    every = limits({"messages": "4/s", "connections": 1})
    (one,) = every.of(SCOPE)
    for _ in range(2):
        assert list(every) == []
        one.take(10)
        assert list(every) == [one]
        one.release()
        assert every.forget(10) == 1
        assert every.forget(20) == 0


def test_it_forgets_a_thousand_at_a_time_and_goes_on_behind_them() -> None:
    every = limits({"messages": "4/s", "per": ["site"]})
    for number in range(1002):
        (one,) = every.of(SCOPE._replace(site=str(number)))
        one.take(10)
        if number:
            one.release()
    assert every.forget(10, 2) == 1002
    assert [one.key[1] for one in every][::1001] == ["2", "1"]
    assert every.forget(20) == 2
    assert [one.key[1] for one in every] == ["0", "1"]
    assert every.forget(20, 1) == 2
    assert every.forget(20, 1) == 1


def test_answers_are_kept_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all are forgotten; the limits themselves are not."""
    monkeypatch.setattr(throttle, "_SCOPES_MAX", 300)
    every = limits({"messages": "4/s", "connections": 1, "messages_per_connection": 7})
    (one,) = every.of(SCOPE)
    counts = []
    for number in range(602):
        scope = SCOPE._replace(campaign=str(number))
        assert every.of(scope) == every.of(scope) == (one,)
        assert every.most(scope) is every.most(scope)
        counts.append((len(every._cache), len(every._most)))
    assert counts == [(1 + number % 300, 1 + (number - 1) % 300) for number in range(1, 603)]


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"per": ["zone", "tenant", "campaign"]}, "flow"),
        ({"per": ["tenant"], "only": {"campaign": "x", "zone": "y"}}, "flow"),
        ({"only": {"zone": "default"}}, "zone"),
        ({"per": ["zone"], "only": {"zone": "default"}}, "zone"),
        ({"per": ["zone", "tenant", "campaign", "site"]}, "lane"),
        ({"per": ["zone"], "only": {"site": "x"}}, "lane"),
    ],
)
def test_the_level_is_by_all_that_is_named(settings: dict[str, Any], level: str) -> None:
    assert throttle._Rule(Throttle(name="t", connections=1, **settings)).level == level


@pytest.mark.parametrize(
    ("pattern", "applies"),
    [("zzz", False), ("aaa", False), ("goog", False), ("googles", False), ("GOOGLE", True), ("g[a-p]ogle", True)],
)
def test_only_those_who_are_named_are_limited(pattern: str, applies: bool) -> None:
    for value in ("google", "Google"):
        found = limits({"connections": 1, "only": {"provider": pattern}}).of(SCOPE._replace(provider=value))
        assert bool(found) is applies


def test_labels_name_each_dimension_and_its_value() -> None:
    assert limit(connections=1).label == "t0"
    assert limit(connections=1, per=["campaign", "site"]).label == "t0: campaign=news-7 site=mx.gmail.example"
    none = limit(SCOPE._replace(campaign="", provider=""), connections=1, per=["campaign", "provider"])
    assert (none.label, none.key) == ("t0: campaign=none provider=mx.gmail.example", ("t0", "", "mx.gmail.example"))


def test_what_nobody_says_is_none_of_the_strictest() -> None:
    """0 and nothing are no settings; an idle time of 0 is one."""
    scope = SCOPE._replace(site="other")
    assert limits({"connections": 1}).most(scope) == (0, 0, None)
    assert limits({"idle_s": 9, "recipients_per_delivery": 5}, {"recipients_per_delivery": 6}).most(scope) == (0, 5, 9)
    assert limits({"idle_s": 0}, {"idle_s": 3, "messages_per_connection": 1}).most(scope) == (1, 0, 0)
