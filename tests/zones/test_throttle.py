"""Limits and throttles: what counts together, never more than allowed, and nothing twice."""

import gc
import math
from typing import Any

import pytest

from zonemta_py.config import Throttle
from zonemta_py.zones import throttle
from zonemta_py.zones.throttle import Scope, Throttles

NOW = 1_790_000_000.0
SCOPE = Scope("default", "192.0.2.1", "mx.gmail.example", "google", "shop", "news-7")


def limits(*throttles: dict[str, Any], scope: Scope = SCOPE) -> list[throttle.Limit]:
    return list(Throttles([Throttle(**{"name": f"t{i}", **t}) for i, t in enumerate(throttles)]).of(scope))


# Limits


def test_connections_are_counted_by_use() -> None:
    """take counts one, release frees it; at the bound the wait has no end, and says why."""
    (limit,) = limits({"connections": 2})
    for _ in range(2):
        assert limit.wait(NOW) == 0
        limit.take(NOW)
    assert limit.wait(NOW) == math.inf
    assert limit.blocking == "connections"
    limit.release()
    assert limit.wait(NOW) == 0
    assert limit.blocking == ""
    limit.release()
    with pytest.raises(ValueError, match="nobody took"):
        limit.release()


def test_the_limit_that_waits_longest_is_named() -> None:
    """A limit of several kinds waits for all of them, and blames the last."""
    (limit,) = limits({"messages": "10/s", "recipients": "60/min", "bytes": "1MB/s", "new_connections": "1/h"})
    limit.take(NOW, 1, 1, 1, 500_000)
    assert limit.wait(NOW, 1, 1, 0, 1000) == pytest.approx(1, abs=1e-3)
    assert limit.blocking == "recipients"
    assert limit.wait(NOW, 1, 0, 0, 600_000) == pytest.approx(0.1, abs=1e-3)
    assert limit.blocking == "bytes"
    assert limit.wait(NOW, 1, 0, 1, 0) == pytest.approx(3600, abs=1e-3)
    assert limit.blocking == "new_connections"
    assert limit.wait(NOW, 1, 0) == 0


def test_a_delivery_that_did_not_happen_costs_nothing() -> None:
    """give brings back each limit's own part; the connection goes by release."""
    (limit,) = limits({"messages": "10/min", "recipients": "20/min", "burst": 20})
    limit.take(NOW, 1, 5)
    limit.give(NOW + 1, NOW, 1, 3)
    limit.release()
    assert limit.messages is not None
    assert limit.recipients is not None
    assert limit.messages.level(NOW + 1) == pytest.approx(20, abs=1e-3)
    assert limit.recipients.level(NOW + 1) == pytest.approx(18 + 1 / 3, abs=1e-3)


@pytest.mark.parametrize(
    ("limit", "level"),
    [
        ({}, "zone"),
        ({"per": ["zone"]}, "zone"),
        ({"per": ["zone", "tenant"]}, "flow"),
        ({"only": {"campaign": "news-*"}}, "flow"),
        ({"per": ["tenant", "provider"]}, "lane"),
        ({"only": {"provider": "google"}}, "lane"),
        ({"per": ["source"]}, "lane"),
    ],
)
def test_the_level_is_the_finest_part_of_what_it_counts_by(limit: dict[str, Any], level: str) -> None:
    """A limit for one provider holds up egress paths, not the zone, though it has one count for all."""
    (limit,) = limits({"connections": 1, **limit})
    assert limit.level == level


# Which throttle applies to what


@pytest.mark.parametrize(
    ("only", "applies"),
    [
        ({"provider": "google"}, True),
        ({"provider": "Goo*"}, True),
        ({"provider": "goo"}, False),
        ({"campaign": "news-?", "tenant": "s[gh]op"}, True),
        ({"campaign": "news-?", "tenant": "other"}, False),
        ({"source": "192.0.2.*"}, True),
        ({"site": "*.example"}, True),
        ({"zone": "*"}, True),
    ],
)
def test_only_is_matched_as_fnmatch_does_in_every_dimension(only: dict[str, str], applies: bool) -> None:
    """The whole value must match, whatever the case, and all dimensions named must."""
    assert bool(limits({"connections": 1, "only": only})) is applies


@pytest.mark.parametrize(("pattern", "applies"), [("*", True), ("", True), ("?*", False), ("a*", False)])
def test_mail_without_a_tenant_matches_any_but_no_name(pattern: str, applies: bool) -> None:
    """No tenant is the empty value: * and "" match it, ?* is every tenant but none."""
    assert bool(limits({"connections": 1, "only": {"tenant": pattern}}, scope=SCOPE._replace(tenant=""))) is applies


def test_brackets_of_an_address_match_themselves() -> None:
    """A smart host's key may hold an IPv6 address in brackets, which fnmatch would take for a set of letters."""
    assert limits({"connections": 1, "only": {"site": "[::1]:25"}}, scope=SCOPE._replace(site="[::1]:25"))


def test_each_combination_has_a_limit_of_its_own() -> None:
    """Deliveries with the same values share a limit, others have another; labels and keys tell them apart."""
    throttles = Throttles([Throttle(name="gmail", per=["source", "provider"], messages="1/s")])
    (one,) = throttles.of(SCOPE)
    (same,) = throttles.of(SCOPE._replace(site="mx2.gmail.example", tenant="other"))
    (other,) = throttles.of(SCOPE._replace(source="192.0.2.2"))
    assert one is same
    assert one is not other
    assert one.key == ("gmail", "192.0.2.1", "google")
    assert one.label == "gmail: source=192.0.2.1 provider=google"


def test_a_site_without_a_provider_is_one_by_itself() -> None:
    """A limit per provider does not put all small sites under one limit."""
    throttles = Throttles([Throttle(name="p", per=["provider"], messages="1/s")])
    (one,) = throttles.of(SCOPE._replace(provider="", site="a.example"))
    (other,) = throttles.of(SCOPE._replace(provider="", site="b.example"))
    assert one is not other
    assert one.label == "p: provider=a.example"


def test_mail_without_a_campaign_counts_together() -> None:
    """ "" is a value like others, so a limit per campaign cannot be evaded by naming none."""
    throttles = Throttles([Throttle(name="c", per=["campaign"], messages="1/s")])
    (limit,) = throttles.of(SCOPE._replace(campaign=""))
    assert throttles.of(SCOPE._replace(campaign="", tenant="x")) == (limit,)
    assert limit.label == "c: campaign=none"


def test_the_strictest_connection_settings_win() -> None:
    """Of all throttles that apply: fewest messages and recipients, shortest idle time, an idle time of 0 too."""
    throttles = Throttles(
        [
            Throttle(name="a", messages_per_connection=50, idle_s=5),
            Throttle(name="b", messages_per_connection=20, recipients_per_delivery=10, idle_s=0),
            Throttle(name="c", messages_per_connection=1, only={"provider": "yahoo"}),
        ]
    )
    assert throttles.most(SCOPE) == (20, 10, 0)
    assert Throttles([]).most(SCOPE) == (0, 0, None)


# Memory and restarts


def test_gates_without_use_are_forgotten() -> None:
    """A limit is kept from its first taking until it is full and free; then the next question makes a new one."""
    throttles = Throttles([Throttle(name="s", per=["site"], messages="10/s", connections=5)])
    for number in range(50):
        (limit,) = throttles.of(SCOPE._replace(site=f"mx{number}.example"))
        limit.take(NOW)
    assert throttles.forget(NOW + 60) == 50
    for limit in throttles:
        limit.release()
    assert throttles.forget(NOW + 0.01) == 50
    assert throttles.forget(NOW + 60, most=20) == 30
    assert throttles.forget(NOW + 60) == 0


def test_a_gate_in_hand_is_the_gate_that_others_find() -> None:
    """However long it was idle and whatever was forgotten, there are never two limits for one key."""
    throttles = Throttles([Throttle(name="s", per=["site"], messages="1/h")])
    (limit,) = throttles.of(SCOPE)
    throttles.forget(NOW)
    throttles._cache.clear()
    gc.collect()
    limit.take(NOW)
    limit.release()
    del limit
    throttles.forget(NOW)
    throttles._cache.clear()
    gc.collect()
    assert throttles.of(SCOPE)[0].wait(NOW) == pytest.approx(3600, abs=1e-3)


def test_answers_are_kept_for_a_bounded_number_of_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of campaigns do not fill the memory."""
    monkeypatch.setattr(throttle, "_SCOPES_MAX", 8)
    throttles = Throttles([Throttle(name="c", per=["campaign"], messages="1/h", idle_s=3)])
    for number in range(100):
        assert throttles.most(SCOPE._replace(campaign=str(number))).idle_s == 3
    gc.collect()
    assert max(len(throttles._cache), len(throttles._most), len(throttles._limits)) <= 8


def test_a_restart_grants_no_second_helping() -> None:
    """What was used is used afterwards, for each limit; connections end with the program."""
    config = [
        Throttle(name="a", messages="60/h", burst=60, connections=1),
        Throttle(name="b", per=["site"], bytes="1MB/s"),
    ]
    before = Throttles(config)
    for limit in before.of(SCOPE):
        limit.take(NOW, 60, 60, 1, 2_000_000)
    after = Throttles(config)
    after.restore(before.state(NOW), NOW + 1)
    hourly, per_site = after.of(SCOPE)
    assert hourly.wait(NOW + 1) == pytest.approx(59, abs=1e-3)
    assert per_site.wait(NOW + 1, bytes=1000) == pytest.approx(0.001, abs=1e-3)
    assert after.of(SCOPE._replace(site="other"))[1].wait(NOW + 1, bytes=1000) == 0
    assert after.forget(NOW + 1) == 2


def test_only_what_is_used_is_in_the_state() -> None:
    """Gates that are full again are not journalled."""
    throttles = Throttles([Throttle(name="a", messages="60/s"), Throttle(name="b", recipients="1/h")])
    for limit in throttles.of(SCOPE):
        limit.take(NOW)
    assert [key for key, _ in throttles.state(NOW + 10)] == [["b"]]


def test_a_restart_with_another_configuration_keeps_what_was_used() -> None:
    """An empty daily allowance is empty under the new one; throttles that are gone or count differently are ignored."""
    before = Throttles(
        [
            Throttle(name="day", recipients="100/day", burst=100),
            Throttle(name="gone", messages="1/h"),
            Throttle(name="other", per=["site"], messages="1/h"),
        ]
    )
    for limit in before.of(SCOPE):
        limit.take(NOW, 1, 100)
    after = Throttles(
        [
            Throttle(name="day", recipients="10/h"),
            Throttle(name="other", messages="1/h"),
        ]
    )
    after.restore(before.state(NOW), NOW)
    day, other = after.of(SCOPE)
    assert day.wait(NOW) == pytest.approx(360, abs=1e-2)
    assert other.wait(NOW) == 0
