"""What is stopped, rests or was learned: seen, journalled with its cause, and undone by an operator."""

import asyncio
from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, Delivery
from zonemta_py.zones.site import Site

BUSY = Reply(421, "4.3.2", "closing")


async def leases(home: Any) -> list[Delivery]:
    """Whatever may go now."""
    task = asyncio.ensure_future(home.queue.lease(100))
    await home.rest()
    if task.done():
        return list(task.result())
    task.cancel()
    await asyncio.wait([task])
    return []


async def lose_connections(home: Any, count: int) -> None:
    for delivery in (await leases(home))[:count]:
        await home.settle(delivery, DEFERRED, down_s=0, stage="banner", reply=BUSY)


async def row(home: Any, kind: str) -> dict[str, Any] | None:
    return next((row for row in await home.queue.ask("standing") if row["kind"] == kind), None)


def changes(home: Any) -> list[Any]:
    """Bodies of the journal's records of what stands."""
    found = segments.read(home.folder / "journal", 0, [])
    return [packing.unpack(record.body) for record in found if record.type == Type.STANDING]


async def fill(home: Any, count: int) -> None:
    for number in range(count):
        await home.put(f"r{number}@x.test")


async def test_fewer_connections_are_seen_journalled_and_undone(house: Any) -> None:
    """A decrease is one record with its cause; it outlives a crash, and a lift makes the window new."""
    home = await house(learning={"initial": 5, "dead_after": 3})
    await fill(home, 20)
    await lose_connections(home, 1)
    found = await row(home, "concurrency")
    assert found
    assert (found["name"], found["window"], found["dead"]) == ("default x.test", 4, False)
    assert "421 4.3.2 closing" in found["cause"]
    assert found["since_ms"] == home.clock.ms()
    await home.rest()
    assert [body[0] for body in changes(home)] == ["concurrency"]
    await home.crash()
    assert await row(home, "concurrency") == found
    await home.queue.maintenance.position()
    await home.crash()
    assert await row(home, "concurrency") == found
    assert await home.queue.ask("lift", kind="concurrency", name="default x.test")
    assert await row(home, "concurrency") is None
    await home.crash()
    assert await row(home, "concurrency") is None
    assert not await home.queue.ask("lift", kind="concurrency", name="default x.test")
    assert len(await leases(home)) == 5


async def test_growth_is_not_recorded(house: Any) -> None:
    """It is in position records; a record for each would cost more than it is worth."""
    home = await house(learning={"initial": 2})
    await fill(home, 20)
    for _ in range(5):
        for delivery in await leases(home):
            await home.settle(delivery)
    await home.rest()
    assert changes(home) == []
    assert await home.queue.ask("standing") == []


async def test_a_dead_destination_is_dead_after_a_crash(house: Any) -> None:
    """And its rest can be ended by an operator, who knows that it answers again."""
    home = await house(learning={"initial": 2})
    await fill(home, 20)
    for delivery in await leases(home):
        await home.settle(delivery, DEFERRED, down_s=600, stage="banner", reply=BUSY)
    found, resting = await row(home, "concurrency"), await row(home, "resting")
    assert found
    assert resting
    assert found["dead"]
    assert (resting["name"], resting["until_ms"]) == ("default x.test", home.clock.ms() + 600_000)
    assert not await leases(home)
    assert await home.queue.ask("lift", kind="resting", name="default x.test")
    assert await row(home, "resting") is None
    assert len(await leases(home)) == 1, "as many as a dead one has"
    assert not await home.queue.ask("lift", kind="resting", name="default x.test")
    await home.rest()
    await home.crash()
    assert await row(home, "concurrency") == found


async def test_a_dead_destination_whose_concurrency_is_lifted_is_tried_at_once(house: Any) -> None:
    """Whoever lifts it knows that the place answers: its rest ends too, each with its record; other places rest on."""
    home = await house(learning={"initial": 3})
    await fill(home, 20)
    await home.put("r@y.test")
    for delivery in await leases(home):
        await home.settle(delivery, DEFERRED, down_s=600, stage="banner", reply=BUSY)
    assert not await leases(home)
    assert await home.queue.ask("lift", kind="concurrency", name="default x.test")
    found = await row(home, "resting")
    assert found
    assert found["name"] == "default y.test"
    assert [delivery.site for delivery in await leases(home)] == ["x.test"] * 3, "as many as a new one has"
    await home.rest()
    orders = [body for body in changes(home) if body[0] == "lift"]
    assert [body[1][0] for body in orders] == ["concurrency", "resting"]
    assert {(body[1][1], body[3]) for body in orders} == {("default x.test", "by an operator")}
    await home.crash()
    assert "default x.test" not in [found["name"] for found in await home.queue.ask("standing")]


async def test_tls_that_was_switched_off_is_lifted(house: Any) -> None:
    """It holds no mail; it is listed with its cause and its end, survives a crash, and an order ends it."""
    home = await house()
    await fill(home, 1)
    home.queue.core.schedule.policy.stop("no-tls", "x.test", 3600, "tls-broken: 454 4.7.0 not now")
    until_ms = home.clock.ms() + 3_600_000
    await home.rest()
    await home.crash()
    found = await row(home, "no-tls")
    assert found
    assert (found["name"], found["until_ms"], found["cause"]) == ("x.test", until_ms, "tls-broken: 454 4.7.0 not now")
    answer = await home.queue.ask("explain", what="x.test")
    assert [held["reasons"] for held in answer["rows"]] == [[]]
    (delivery,) = await leases(home)
    assert delivery.routing == {"no_tls": True}
    assert await home.queue.ask("lift", kind="no-tls", name="x.test")
    await fill(home, 1)
    (delivery,) = await leases(home)
    assert not delivery.routing
    home.queue.core.schedule.policy.stop("no-tls", "z.test", 3600, "tls-broken")
    with pytest.raises(ValueError, match=r"nothing called 'z\.test' is waiting or suspended"):
        await home.queue.ask("explain", what="z.test")


# ---------------------------------------------------------------- warm-up


def cold(**more: Any) -> dict[str, Any]:
    source = {"address": "127.0.0.3", "warmup": "w"}
    return {
        "zones": [{"name": "default", "pool": "p"}], "pools": [{"name": "p", "sources": [source]}],
        "warmups": [{"name": "w", "caps": [2, 5, 9], "least": 1}], **more,
    }  # fmt: skip


async def warmups(home: Any) -> list[tuple[str, int, int | None]]:
    return [(row["provider"], row["step"], row["cap"]) for row in await home.queue.ask("warmup")]


async def test_a_warm_up_is_put_forward_and_what_waits_goes_at_once(house: Any) -> None:
    """One record with its cause, which counts after a crash whether a position record has it or not."""
    home = await house(**cold())
    await fill(home, 20)
    assert len(await leases(home)) == 2
    shown = await home.queue.ask("warm", source="127.0.0.3", provider="x.test", step=2)
    assert (shown["step"], shown["cap"], shown["sent"]) == (1, 5, 2)
    assert len(await leases(home)) == 3
    order = ["warmup", ["127.0.0.3", "x.test"], [1, home.clock.ms()], "by an operator"]
    await home.rest()
    assert changes(home)[-1] == order
    for position in (False, True):
        if position:
            await home.queue.maintenance.position()
        await home.crash()
        assert await warmups(home) == [("x.test", 1, 5)]
        assert not await leases(home)
    await home.queue.ask("warm", source="127.0.0.3", provider="x.test", step=None)
    assert await warmups(home) == [("x.test", 3, None)]
    assert len(await leases(home)) > 5


async def test_an_order_of_a_new_day_counts_once_after_a_crash(house: Any) -> None:
    """The position record is of the day before, which was good: that does not raise what was ordered today."""
    home = await house(**cold())
    await fill(home, 2)
    for delivery in await leases(home):
        await home.settle(delivery)
    await home.rest()
    await home.queue.maintenance.position()
    await home.move(86_400)
    await home.queue.ask("warm", source="127.0.0.3", provider="x.test", step=1)
    await fill(home, 5)
    assert len(await leases(home)) == 2
    await home.crash()
    assert await warmups(home) == [("x.test", 0, 2)]
    assert not await leases(home)


class Directory:
    """Says that g.test is at google, and that y.test stands by itself."""

    async def site(self, domain: str, now: float) -> Site:
        if domain not in ("g.test", "y.test"):
            raise NoRoute(550, "5.1.2", "no such domain")
        provider = "google" if domain == "g.test" else ""
        return Site(domain, provider, (("mx", ("192.0.2.9",)),), ((10, "mx"),), 300, False)


async def test_a_warm_up_is_set_before_the_first_message(house: Any) -> None:
    """At a provider that is configured, or a site that mail goes to; and a day without mail does not forget it."""
    home = await house(resolver=Directory(), **cold())
    for provider in ("google", "y.test"):
        await home.queue.ask("warm", source="127.0.0.3", provider=provider, step=1)
    await home.move(86_400)
    await home.queue.maintenance.position()
    await home.crash()
    assert await warmups(home) == [("google", 0, 2), ("y.test", 0, 2)]


@pytest.mark.parametrize(
    ("source", "provider", "step", "said"),
    [
        ("127.0.0.4", "google", 1, "no source '127.0.0.4' is warming up; use 127.0.0.3"),
        ("127.0.0.3", "gogle", 1, "there is no provider or site 'gogle'; use one that `zonemta warmup` shows, or a"),
        ("127.0.0.3", "z.test", 1, "there is no provider or site 'z.test'; use one"),
        ("127.0.0.3", "g.test", 1, "what goes to g.test counts for google: set the step there"),
        ("127.0.0.3", "google", 0, "the warm-up 'w' of 127.0.0.3 has no step 0; use 1 to 3, or warm"),
        ("127.0.0.3", "google", 4, "the warm-up 'w' of 127.0.0.3 has no step 4; use 1 to 3, or warm"),
    ],
)
async def test_warm_ups_that_there_are_not(house: Any, source: str, provider: str, step: int, said: str) -> None:
    """One sentence, with what there is; and nothing is changed."""
    home = await house(resolver=Directory(), **cold())
    with pytest.raises(ValueError, match=said):
        await home.queue.ask("warm", source=source, provider=provider, step=step)
    await home.rest()
    assert await warmups(home) == []
    assert changes(home) == []


async def test_a_learned_rate_says_since_when(house: Any) -> None:
    """When it was lowered, before and after a crash."""
    home = await house()
    await fill(home, 1)
    schedule = home.queue.core.schedule
    path = next(schedule.flow_queues()).path
    for _ in range(5):
        schedule.policy.delivered(path)
        await home.move(1)
    schedule.policy.slowed(path, "too fast", home.clock.ms())
    found = await row(home, "rate")
    assert found
    assert abs(found["since_ms"] - home.clock.ms()) <= 1
    await home.rest()
    await home.crash()
    assert await row(home, "rate") == found


@pytest.mark.parametrize(
    ("question", "kind", "name", "said"),
    [
        (
            "stop",
            "rest",
            "x",
            "there is no 'rest' to suspend; use destination, domain, tenant, campaign, zone or source",
        ),
        ("stop", "zone", "x", "there is no zone 'x'; there are default"),
        ("stop", "tenant", "", "which tenant"),
        ("lift", "colour", "red", "there is no 'colour' to resume; use destination"),
    ],
)
async def test_orders_that_make_no_sense(house: Any, question: str, kind: str, name: str, said: str) -> None:
    """One sentence, with what would."""
    home = await house()
    with pytest.raises(ValueError, match=said):
        await home.queue.ask(question, kind=kind, name=name)


async def test_a_destination_is_named_in_any_case(house: Any) -> None:
    """X.Test. is x.test, stopped or lifted."""
    home = await house()
    await fill(home, 1)
    assert await home.queue.ask("stop", kind="destination", name="X.Test.") == 1
    assert not await leases(home)
    assert await home.queue.ask("lift", kind="destination", name="X.test")
    assert len(await leases(home)) == 1
