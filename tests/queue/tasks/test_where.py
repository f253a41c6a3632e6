"""The filter: each key alone, several at once, and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.tasks.facts import Sight
from zonemta_py.queue.tasks.rows import words
from zonemta_py.queue.tasks.where import Where

ZONES = [{"name": "default"}, {"name": "bulk"}]


async def found(home: Any, **where: Any) -> list[str]:
    """The recipients that match, in order."""
    await home.rest()
    core, chosen = home.queue.core, Where.of(where)
    sight = Sight(core, core.clock.steady_ms())
    rows = [row for family in FAMILY for row in core.disk.store.scan(f"{family} ".encode(), f"{family}!".encode())]
    candidates = [sight.of(key, value) for key, value in rows]
    return sorted(one.recipient for one in candidates if chosen.matches(one))


async def test_each_key_selects(house: Callable[..., Any]) -> None:
    home = await house(zones=ZONES)
    body = b"Subject: Spring SALE\r\nX-Kind: weekly\r\n folded\r\n\r\nhello"
    first = await home.put(
        "Ann@one.test", sender="news@a.test", campaign="may", tenant="shop", priority=3, user="joe",
        headers={"subject": "Spring SALE"}, body=body,
    )  # fmt: skip
    await home.move(100)
    await home.put("bob@two.test", sender="", sending_zone="bulk")
    ann, bob = ["Ann@one.test"], ["bob@two.test"]
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"id": first}, ann), ({"id": "*"}, ann + bob), ({"sender": "NEWS@a.test"}, ann), ({"sender": "*@a.test"}, ann),
        ({"sender": ""}, bob), ({"recipient": "ann@one.test"}, ann), ({"recipient": ["x@y.test", "bob@*"]}, bob),
        ({"domain": "one.test"}, ann), ({"domain": "*.test"}, ann + bob), ({"domain": "*.one.test"}, []),
        ({"zone": "bulk"}, bob), ({"campaign": "may"}, ann), ({"campaign": ""}, bob), ({"tenant": "s*"}, ann),
        ({"user": "joe"}, ann), ({"priority": 3}, ann), ({"priority": [0, 5]}, bob), ({"subject": "sale"}, ann),
        ({"older_s": 50}, ann), ({"younger_s": 50}, bob), ({"state": "queued"}, ann + bob), ({"state": "held"}, []),
        ({"header": {"X-Kind": "WEEKLY folded"}}, ann), ({"header": {"x-kind": "daily"}}, []),
        ({"site": "two.test"}, bob), ({"source": ""}, ann + bob), ({"provider": ""}, ann + bob),
        ({"domain": "one.test", "user": "eve"}, []), ({"all": True}, ann + bob), ({"class": "mailbox-full"}, []),
    ]  # fmt: skip
    for where, expected in cases:
        assert await found(home, **where) == expected, where


async def test_the_class_of_the_latest_reply(house: Callable[..., Any]) -> None:
    home = await house()
    await home.put("ann@one.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED, reply=Reply(452, "4.2.2", "mailbox full"), stage="rcpt")
    assert await found(home, **{"class": "mailbox-full"}) == ["ann@one.test"]
    assert await found(home, **{"class": "greylisting"}) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the filter is empty"),
        ({"all": False}, "the filter is empty"),
        ({"all": 3}, "all is 3"),
        ({"form": "x"}, "there is no filter 'form'"),
        ({"state": "waiting"}, "there is no state 'waiting'"),
        ({"class": "odd"}, "there is no class 'odd'"),
        ({"older_s": -1}, "older_s is -1"),
        ({"older_s": "2h"}, "older_s is '2h'"),
        ({"older_s": float("inf")}, "older_s is inf"),
        ({"priority": 12}, "priority is 12"),
        ({"domain": ""}, "domain is ''"),
        ({"domain": []}, "domain has no value"),
        ({"sender": 5}, "sender is 5"),
        ({"subject": ""}, "subject is ''"),
        ({"header": "x"}, "the filter header is"),
        ({"header": {"X": ""}}, "header X is ''"),
        ({"domain": "d?.test"}, r"and no domain has '\?' in it; \* stands for any text"),
        ({"domain": ["a.test", "ann@b.test"]}, "and no domain has '@' in it"),
    ],
)
def test_a_filter_that_says_nothing_clear_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Where.of(given)


def test_it_says_itself_in_words() -> None:
    where = Where.of({"older_s": 7200, "domain": ["a.test", "*.b.test"], "state": "held", "sender": ""})
    assert where.words() == "older than 2 h and domain a.test or *.b.test and state held and from (none)"
    assert Where.of({"all": True}).words() == "everything"
    assert Where.of({"zone": ["a", "b*"]}).values("zone") is None
    assert Where.of({"zone": ["a", "b"]}).values("zone") == ("a", "b")


def test_what_is_set_is_said_as_a_person_writes_it() -> None:
    change = {"priority": 5, "life_h": 1 / 3600, "at_ms": 1_795_477_600_606}
    said = "set priority 5, life 1 s, time 2026-11-23 23:46:40+00:00: everything"
    assert words("set", {"all": True}, change) == said
    assert words("set", {"all": True}, {"life_h": 36, "at_ms": (1 << 48) - 1}).startswith("set life 1.5 d, time 10889-")
