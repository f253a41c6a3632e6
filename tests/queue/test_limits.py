"""Limits, shares, hours and suspensions, as the scheduler grants by them; the clock is the test's."""

from collections import Counter
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED

SLOW = Reply(421, "4.7.0", "Too many messages from your IP, slow down")


# ---------------------------------------------------------------- limits


async def test_a_rate_is_kept_to_the_message(house: Any) -> None:
    """Ten a second with a burst of five: never more than 10 t + 5, and no less than that either."""
    home = await house(throttles=[{"name": "all", "messages": "10/s", "burst": 5}])
    await put_all(home, 100)
    sent = len(await drain(home))
    assert sent == 5
    for tenth in range(1, 41):
        await home.move(0.1)
        sent += len(await drain(home))
        assert 5 + tenth - 1 <= sent <= 5 + tenth


async def test_how_long_a_limit_holds_mail_is_recorded(house: Any) -> None:
    """From when the first mail waits there until the last one has gone, and how often some began to; then no more."""
    home = await house(throttles=[{"name": "all", "messages": "1/s", "burst": 1}, {"name": "wide", "messages": "99/s"}])
    await put_all(home, 11)
    await drain(home)
    for _ in range(10):
        await home.move(1)
        await drain(home)
    waits = home.queue.core.schedule.admission.waits
    held = waits.take(home.queue.core.schedule.now())
    assert held.keys() == {"all"}
    ms, times = held["all"]
    assert 9_000 <= ms <= 10_000
    assert times >= 1
    await home.move(60)
    assert waits.take(home.queue.core.schedule.now()) == {}


async def test_a_limit_of_a_whole_zone_is_timed(house: Any) -> None:
    home = await house(throttles=[{"name": "z", "per": ["zone"], "messages": "1/min", "burst": 1}])
    await put_all(home, 3)
    await drain(home)
    (row,) = home.queue.core.schedule.admission.waits.take(home.queue.core.schedule.now()).values()
    assert 59_000 <= row[0] <= 60_000


@pytest.mark.parametrize("per", ["zone", "site", "tenant", "campaign"])
async def test_what_counts_by_itself_has_a_limit_of_its_own(house: Any, per: str) -> None:
    """Two values of the dimension: each gets its own burst."""
    zones = [{"name": "a", "default": True}, {"name": "b", "sender_domains": ["b.test"]}]
    home = await house(zones=zones, throttles=[{"name": "t", "per": [per], "messages": "1/min", "burst": 3}])
    first: dict[str, Any] = {"tenant": "one", "campaign": "c1", "sender": "s@a.test"}
    second: dict[str, Any] = {"tenant": "two", "campaign": "c2", "sender": "s@b.test"}
    await put_all(home, 10, "x.test", **first)
    await put_all(home, 10, "y.test", **second)
    sent = Counter(delivery.recipients[0].domain for delivery in await drain(home))
    assert sent == {"x.test": 3, "y.test": 3}


async def test_connections_are_counted_over_destinations(house: Any) -> None:
    """A bound on connections by tenant holds for all its destinations together; what ends makes room."""
    home = await house(throttles=[{"name": "t", "per": ["tenant"], "connections": 3}])
    for domain in ("x.test", "y.test", "z.test"):
        await put_all(home, 4, domain, tenant="one")
    out = await home.leases()
    assert len(out) == 3
    await home.settle(out[0])
    assert len(await home.leases()) == 1


@pytest.mark.parametrize("per", [[], ["zone"]])
async def test_connections_of_all_together_are_had_again_when_they_end(house: Any, per: list[str]) -> None:
    """A bound on the connections of a whole zone, or of everything, holds for what is out and no longer."""
    home = await house(throttles=[{"name": "t", "per": per, "connections": 2}])
    await put_all(home, 6)
    for _ in range(3):
        out = await home.leases()
        assert len(out) == 2
        for delivery in out:
            await home.settle(delivery)


async def test_recipients_and_bytes_have_limits(house: Any) -> None:
    """A transaction is cut to the recipients that may go; bytes are the message's."""
    home = await house(throttles=[{"name": "r", "recipients": "1/s", "burst": 3}])
    await home.put(*(f"r{number}@x.test" for number in range(10)))
    assert [len(delivery.recipients) for delivery in await drain(home)] == [3]
    other = await house(throttles=[{"name": "b", "bytes": "50B/s", "burst": 50}])
    await put_all(other, 10, body=b"Subject: x\r\n\r\n" + b"y" * 11)  # 25 bytes each
    assert len(await drain(other)) == 2


async def test_new_connections_are_limited_and_open_ones_are_not(house: Any) -> None:
    """One new connection a minute: while it is open it carries all; a sender without one gives the lease back."""
    home = await house(throttles=[{"name": "n", "new_connections": "1/min"}])
    await put_all(home, 5)
    (first,) = await home.leases()
    assert first.may_connect
    await home.settle(first, opened=True)
    (second,) = await home.leases()
    assert not second.may_connect
    await home.settle(second, 5, stage="limit")  # RELEASED: it had no connection
    assert not await home.leases(), "a new one is not allowed yet"
    await home.move(61)
    assert [delivery.may_connect for delivery in await home.leases()] == [True]


async def test_a_restart_grants_no_second_helping(house: Any) -> None:
    """What was leased before a crash counts after it, whether a position record was written since or not."""
    home = await house(throttles=[{"name": "all", "messages": "60/hour", "burst": 10}])
    await put_all(home, 30)
    assert len(await drain(home)) == 10
    await home.crash()
    assert not await home.leases()
    await home.queue.maintenance.position()
    await home.crash()
    assert not await home.leases()
    await home.move(120)
    assert len(await drain(home)) == 2


async def test_waiting_for_a_limit_is_explained(house: Any) -> None:
    """Which limit, and until when."""
    home = await house(throttles=[{"name": "slow", "per": ["site"], "messages": "1/min"}])
    await put_all(home, 3)
    assert len(await drain(home)) == 1
    answer = await home.queue.ask("explain", what="x.test")
    (reason,) = answer["rows"][0]["reasons"]
    assert reason["kind"] == "limit"
    assert "slow" in reason["cause"]
    assert 55_000 < reason["until_ms"] - home.clock.ms() <= 60_000


# ---------------------------------------------------------------- shares


async def test_campaigns_share_by_weight(house: Any) -> None:
    """Three campaigns of the same zone, weights 1, 2 and 4: so they are served while all have mail."""
    home = await house(
        shares={"campaigns": {"b": 2, "c": 4}}, throttles=[{"name": "all", "messages": "70/s", "burst": 1}]
    )
    for campaign in "abc":
        await put_all(home, 250, f"{campaign}.test", campaign=campaign)
    sent: Counter[str] = Counter()
    for _ in range(300):
        await home.move(1 / 70)
        sent.update(delivery.campaign for delivery in await drain(home))
    total = sum(sent.values())
    assert total == pytest.approx(300, abs=2)
    for campaign, weight in (("a", 1), ("b", 2), ("c", 4)):
        assert sent[campaign] / total == pytest.approx(weight / 7, abs=0.02)


async def test_a_receipt_passes_a_newsletter(house: Any) -> None:
    """High priority goes first among what waits, though the newsletter came long before and goes on."""
    home = await house(
        zones=[{"name": "default", "connections": 5, "connections_per_destination": 5}], queue={"window": 100}
    )
    await put_all(home, 1000, campaign="news")
    out = await home.leases()
    assert len(out) == 4
    await put_all(home, 20, priority=6, sender="shop@src.test")
    order: list[str] = []
    for _ in range(60):
        await home.settle(out.pop(0))
        out += await home.leases()
        order.append(out[-1].campaign)
    assert order[:20].count("news") <= 2
    assert order[25:].count("news") == 35


# ---------------------------------------------------------------- hours


async def test_mail_waits_for_its_hours_and_that_is_no_attempt(house: Any) -> None:
    """A zone's window, UTC; what comes outside of it goes when it opens."""
    window = {"name": "day", "hours": "09:00-18:00", "time_zone": "UTC"}
    home = await house(zones=[{"name": "default", "window": "day"}], windows=[window])  # it is 22:13 UTC
    await put_all(home, 2)
    assert not await home.leases()
    await home.move(11 * 3600)
    batch = await home.leases()
    assert [delivery.attempts for delivery in batch] == [[0], [0]]


async def test_mail_is_held_until_its_time_and_its_life_begins_then(house: Any) -> None:
    """HOLDUNTIL further away than a message lives."""
    home = await house()
    await home.put("r@x.test", hold_until_ms=home.clock.ms() + 7 * 86_400_000)
    assert not await home.leases()
    answer = await home.queue.ask("explain", what="r@x.test")
    assert answer["rows"][0]["reasons"][0]["until_ms"] == home.clock.ms() + 7 * 86_400_000
    await home.move(7 * 86_400 + 1)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    assert (await home.sizes())["deferred"] == 1, "it has its whole life before it"


async def test_a_deadline_returns_the_message(house: Any) -> None:
    """BY with R: it is returned at the deadline, not tried once more after it (RFC 2852 4.1.2)."""
    home = await house()
    await home.put("r@x.test", deadline_ms=home.clock.ms() + 120_000, deadline_mode="R")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    await home.move(121)
    (notice,) = await home.leases()
    assert notice.recipients[0].address == "ann@src.test"
    assert b"5.4.7" in (notice.body or b"")


# ---------------------------------------------------------------- policy state


@pytest.mark.parametrize(
    ("kind", "name"), [("destination", "x.test"), ("tenant", "t"), ("campaign", "c"), ("zone", "default")]
)
async def test_what_is_stopped_sends_nothing_until_it_is_lifted(house: Any, kind: str, name: str) -> None:
    """By an operator; a crash changes nothing; `explain` says why and since when; lifted, it goes on."""
    home = await house(shares={"tenants": {"t": 1}, "campaigns": {"c": 1}})
    await home.queue.ask("stop", kind=kind, name=name, cause="told to")
    await put_all(home, 3, tenant="t", campaign="c")
    assert not await home.leases()
    await home.crash()
    assert not await home.leases()
    about = name if kind != "destination" else "x.test"
    answer = await home.queue.ask("explain", what=about)
    assert "told to" in str(answer)
    assert await home.queue.ask("lift", kind=kind, name=name)
    assert len(await drain(home)) == 3


async def test_a_provider_that_asks_for_less_gets_less(house: Any) -> None:
    """421 for too much lowers the rate there, journalled; it does not take the destination down."""
    home = await house()
    await put_all(home, 200)
    for second in range(10):
        await home.move(1)
        for number, delivery in enumerate(await home.leases(20)):
            if number < 10:
                await home.settle(delivery)
            elif second < 5:
                await home.settle(delivery, DEFERRED, reply=SLOW, down_s=0, stage="mail")
            else:
                await home.settle(delivery)
    rows = await home.queue.ask("standing")
    assert [row["kind"] for row in rows] == ["rate"]
    await home.crash()
    assert await home.queue.ask("standing") == rows
    assert await home.queue.ask("lift", kind="rate", name=rows[0]["name"])
    assert not await home.queue.ask("standing")


async def test_user_unknown_says_nothing_about_the_destination(house: Any) -> None:
    """A recipient's own trouble slows and stops nothing."""
    home = await house()
    await put_all(home, 50, sender="")
    while batch := await home.leases():
        for delivery in batch:
            await home.settle(delivery, BOUNCED, reply=Reply(550, "5.1.1", "user unknown"), stage="rcpt")
    assert not await home.queue.ask("standing")
    await put_all(home, 1)
    assert await home.leases()
