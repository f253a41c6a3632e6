"""Reroutes: what waits and what comes goes by another pool, zone or smart host, or past one MX host, for a time."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from tests.queue.test_sites import Directory, site
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.reroute import RerouteTarget, name_of
from zonemta_py.queue import questions
from zonemta_py.queue.api import DEFERRED, Delivery
from zonemta_py.queue.reload import apply

FULL = Reply(450, "4.3.0", "later")
POOLS: dict[str, Any] = {
    "zones": [{"name": "default", "pool": "one"}],
    "pools": [
        {"name": "one", "sources": [{"address": "192.0.2.1"}]},
        {"name": "two", "sources": [{"address": "192.0.2.2", "hostname": "two.test"}]},
    ],
}
ZONES: dict[str, Any] = {"zones": [{"name": "default", "default": True}, {"name": "slow", "connections": 1}]}


def found() -> Directory:
    resolver = Directory()
    resolver.answers = {f"{name}.test": site("big", "giant") for name in "xy"} | {"z.test": site("small")}
    return resolver


async def reroute(home: Any, to: str, **more: Any) -> Any:
    return await home.queue.ask(questions.reroute, to=to, **more)


async def sent_on(home: Any) -> list[Delivery]:
    """As `drain`, once what goes to another zone is there."""
    await home.rest()
    await home.move(0.1)
    return await drain(home)


def ways(sent: list[Delivery]) -> Counter[tuple[str, str, str]]:
    return Counter((one.recipients[0].domain, one.zone, one.host or one.source) for one in sent)


@pytest.mark.parametrize("at", [{"destination": "x.test"}, {"zone": "default", "destination": "X.test."}])
async def test_a_domain_goes_by_another_pool(house: Any, at: dict[str, str]) -> None:
    """That which waits, too: in memory, deferred, and what comes; others of the same site do not."""
    home = await house(resolver=found(), **POOLS)
    await put_all(home, 3, "x.test")
    await put_all(home, 2, "y.test")
    for delivery in await home.lease(2):
        await home.settle(delivery, DEFERRED, stage="rcpt", reply=FULL, delay_s=50)
    await reroute(home, "pool two", **at)
    sent = await drain(home)
    await home.move(60)
    await put_all(home, 1, "x.test")
    sent += await drain(home)
    assert ways(sent) == {("x.test", "default", "192.0.2.2"): 4, ("y.test", "default", "192.0.2.1"): 2}
    assert {one.routing.get("pool") for one in sent if one.source == "192.0.2.2"} == {"two"}
    assert await home.queue.ask(questions.reroute_remove, **at)
    await put_all(home, 1, "x.test")
    assert ways(await drain(home)) == {("x.test", "default", "192.0.2.1"): 1}
    await home.sound()


async def test_what_rests_goes_at_once(house: Any) -> None:
    """A site that cannot be reached: what is parked there, and what was deferred only because of that."""
    home = await house(resolver=found(), **POOLS)
    await put_all(home, 5, "z.test")
    [first] = await home.lease()
    down = Reply(421, "4.4.1", "connect failed")
    await home.settle(first, DEFERRED, down_s=300, stage="connect", reply=down)
    assert await drain(home) == []
    await reroute(home, "host relay.test:2525", destination="z.test", seconds=100)
    sent = await drain(home)
    assert ways(sent) == {("z.test", "default", "relay.test"): 5}
    assert all((one.port, one.routing["host"], one.hosts) == (2525, "relay.test", []) for one in sent)
    await home.sound()


async def test_it_ends_by_itself_and_what_waits_goes_back(house: Any) -> None:
    home = await house(resolver=found(), **POOLS)
    await put_all(home, 3, "x.test")
    [first] = await home.lease()
    await home.settle(first, DEFERRED, stage="rcpt", reply=FULL, delay_s=1000)
    await reroute(home, "host relay.test", destination="giant", seconds=100)
    [second] = await home.lease()
    await home.settle(second, DEFERRED, down_s=500, stage="connect", reply=FULL, delay_s=1000)
    assert await drain(home) == []
    await home.move(101)
    sent = await drain(home)
    assert [one.host for one in sent] == [""], "what was parked where the relay rests"
    await home.move(1100)
    sent += await drain(home)
    assert ways(sent) == {("x.test", "default", "192.0.2.1"): 3}
    assert await home.queue.ask(questions.reroutes) == []
    await home.sound()


async def test_another_zone_with_its_own_limits(house: Any) -> None:
    """Also what waits for a limit, or a suspension of its zone; the record says so, and back when it is over."""
    more = {"throttles": [{"name": "slowly", "per": ["zone"], "only": {"zone": "slow"}, "messages": "2/1h"}]}
    home = await house(resolver=found(), **ZONES, **more)
    await home.queue.ask("stop", kind="zone", name="default")
    await put_all(home, 5, "x.test")
    await put_all(home, 5, "z.test")
    assert await drain(home) == []
    await reroute(home, "zone slow", zone="default", destination="x.test", by="ann", cause="as agreed")
    sent = await sent_on(home)
    assert ways(sent) == {("x.test", "slow", ""): 1}
    await home.move(1800)
    assert ways(await drain(home)) == {("x.test", "slow", ""): 1}, "two an hour"
    assert await home.queue.ask(questions.tasks) == []
    sizes = await home.queue.ask(questions.size_of, zone="slow")
    assert sizes["queued"] + sizes["deferred"] == 3
    await home.crash(fsck="look")
    assert await drain(home) == []
    [row] = await home.queue.ask(questions.reroutes)
    assert (row["to"], row["cause"], row["lacks"]) == ("zone slow", "by ann: as agreed", "")
    await home.queue.ask(questions.reroute_remove, zone="default", destination="x.test")
    await home.queue.ask("lift", kind="zone", name="default")
    sent = await sent_on(home)
    assert ways(sent) == {("x.test", "default", ""): 3, ("z.test", "default", ""): 5}
    assert sum((await home.queue.ask(questions.size_of, zone="slow")).values()) == 0
    await home.sound()


async def test_what_was_tried_in_the_other_zone_comes_back(house: Any) -> None:
    home = await house(resolver=found(), **ZONES)
    await reroute(home, "zone slow", zone="default", seconds=100)
    await put_all(home, 1, "x.test")
    await home.rest()
    await home.move(0.1)
    [first] = await home.lease()
    assert first.zone == "slow"
    await home.settle(first, DEFERRED, stage="rcpt", reply=FULL, delay_s=50)
    await home.crash(fsck="look")
    await home.move(60)
    [again] = await home.lease()
    assert (again.zone, again.attempts) == ("slow", [1])
    await home.settle(again, DEFERRED, stage="rcpt", reply=FULL, delay_s=100)
    await home.move(110)
    await home.rest()
    await home.move(0.1)
    [last] = await home.lease()
    assert (last.zone, last.attempts) == ("default", [2])
    await home.settle(last)
    await home.sound()


async def test_after_so_many_tries(house: Any) -> None:
    """A setting of the zone, recipient by recipient."""
    zones = [
        {"name": "default", "default": True, "reroute": {"after_tries": 2, "to": "zone slow"}},
        {"name": "slow", "reroute": {"after_tries": 3, "to": "host last.test:26"}},
    ]
    home = await house(resolver=found(), zones=zones)
    await home.put("a@x.test", "b@x.test")
    seen = []
    for _ in range(4):
        found_ = await home.leases()
        seen.append([(one.zone, one.host, len(one.recipients)) for one in found_])
        for one in found_:
            await home.settle(one, DEFERRED, stage="rcpt", reply=FULL, delay_s=10)
        await home.move(11)
        await home.rest()
        await home.move(0.1)
    assert seen == [
        [("default", "", 2)], [("default", "", 2)], [("slow", "", 2)], [("slow", "last.test", 2)]
    ]  # fmt: skip
    await home.sound()


async def test_it_is_shown(house: Any) -> None:
    """By explain of a message, recipient, domain and zone, for as long as it holds; in standing, and by the list."""
    zones = [{"name": "default", "default": True}, {"name": "slow", "reroute": {"after_tries": 9, "to": "host a.test"}}]
    home = await house(resolver=found(), zones=zones)
    await reroute(home, "host relay.test", destination="x.test", seconds=100, by="ann", cause="as agreed")
    ident = await home.put("a@x.test")
    await home.put("b@z.test")
    says = "mail for x.test is rerouted to host relay.test:25: by ann: as agreed"
    for what in (ident, "a@x.test", "x.test"):
        [reason] = (await home.queue.ask(questions.explain, what=what))["meanwhile"]
        assert (reason["cause"], reason["kind"]) == (says, "reroute")
        assert 99_000 < reason["until_ms"] - home.clock.ms() <= 100_000
    assert "meanwhile" not in await home.queue.ask(questions.explain, what="b@z.test")
    [reason] = (await home.queue.ask(questions.explain, what="slow"))["meanwhile"]
    assert reason["cause"] == "zone slow reroutes recipients after 9 tries: to host a.test:25"
    rows = await home.listed(recipient="a@x.test")
    assert [row["site"] for row in rows] == ["relay.test:25"]
    [row] = [row for row in await home.queue.ask(questions.standing) if row["kind"] == "reroute"]
    assert (row["name"], row["to"], row["group"]) == ("* x.test", "host relay.test:25", "noted")
    assert await home.queue.ask("lift", kind="reroute", name="* x.test")
    assert "meanwhile" not in await home.queue.ask(questions.explain, what="a@x.test")


async def test_one_mx_host_is_passed_over(house: Any) -> None:
    home = await house(resolver=found())
    await reroute(home, "skip mx1.z.test.", destination="z.test")
    await home.put("a@z.test", "b@x.test")
    by_domain = {one.destination: one for one in await home.leases()}
    assert (by_domain["z.test"].skip, by_domain["x.test"].skip) == ("mx1.z.test", "")


async def test_a_rule_reroutes_after_so_many_replies(house: Any, tmp_path: Any) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '[[rules]]\nname = "own-full"\nclass = "rate"\npattern = "too much of you"\n'
        'reroute = "pool two"\nreroute_s = 600\nafter = 2\nwithin_s = 60\n'
    )
    home = await house(resolver=found(), rules={"extra": file}, **POOLS)
    reply = Reply(450, "4.7.1", "too much of you")
    await put_all(home, 4, "x.test")
    for expected in (0, 1):
        [one] = await home.lease()
        await home.settle(one, DEFERRED, stage="rcpt", reply=reply, delay_s=5)
        assert len(await home.queue.ask(questions.reroutes)) == expected
    await home.move(60)
    assert ways(await drain(home)) == {("x.test", "default", "192.0.2.2"): 4}
    [row] = await home.queue.ask(questions.reroutes)
    assert (row["zone"], row["destination"], row["to"]) == ("default", "big", "pool two")
    assert "own-full" in row["cause"]
    await home.move(600)
    assert await home.queue.ask(questions.reroutes) == []


async def test_a_reload_without_its_pool_falls_back(house: Any) -> None:
    home = await house(resolver=found(), **POOLS)
    await reroute(home, "pool two", destination="x.test")
    await put_all(home, 2, "x.test")
    less = POOLS | {"pools": POOLS["pools"][:1]}
    assert apply.remarks(home.queue, home.config) == []
    home.options |= less
    [sentence] = apply.remarks(home.queue, home.config)
    assert sentence.startswith("the reroute '* x.test' has no effect without pool 'two'")
    apply.take(home.queue, apply.prepare(home.config, home.queue.core.hooks, home.resolver))
    assert ways(await drain(home)) == {("x.test", "default", "192.0.2.1"): 2}
    [row] = await home.queue.ask(questions.reroutes)
    assert row["lacks"] == "pool 'two'"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"to": "elsewhere"}, "says nowhere to reroute to"),
        ({"to": "pool none"}, "there is no pool 'none'"),
        ({"to": "zone none"}, "there is no zone 'none'"),
        ({"to": "zone default", "zone": "default"}, "goes there already"),
        ({"to": "zone slow", "zone": "gone"}, "there is no zone 'gone'"),
        ({"to": "host a:0", "zone": "slow"}, "says nowhere"),
        ({"to": "host relay.test", "destination": "gianr"}, "there is no destination 'gianr'"),
        ({"to": "host relay.test"}, "name one of them"),
        ({"to": "host relay.test", "zone": "slow", "seconds": 0}, "more than 0"),
        ({"to": "zone default", "zone": "slow"}, "rerouted once"),
    ],
)
async def test_what_could_have_no_effect_is_refused(house: Any, asked: dict[str, Any], says: str) -> None:
    home = await house(resolver=found(), **ZONES)
    await reroute(home, "zone slow", zone="default")
    with pytest.raises(ValueError, match=says):
        await reroute(home, **({"destination": "x.test"} if asked.keys() == {"to"} and says[0] != "n" else {}) | asked)
    assert len(await home.queue.ask(questions.reroutes)) == 1


async def test_it_is_kept_over_a_crash_at_any_time(house: Any) -> None:
    """While mail is being sent on to another zone, with accepting going on: nobody is lost or there twice."""
    home = await house(resolver=found(), **ZONES)
    await put_all(home, 30, "x.test")
    await reroute(home, "zone slow", zone="default", destination="x.test")
    for _ in range(6):
        coming = [asyncio.ensure_future(home.put(f"n{n}@x.test")) for n in range(3)]
        await asyncio.gather(*coming)
        await home.crash(fsck="look")
    sent = await sent_on(home)
    assert ways(sent) == {("x.test", "slow", ""): 48}
    await home.sound()


async def test_names_and_targets_are_read() -> None:
    assert RerouteTarget.of("host [2001:db8::1]:26").text == "host [2001:db8::1]:26"
    assert RerouteTarget.of("host Relay.Test").text == "host relay.test:25"
    assert name_of("", "Example.COM.") == "* example.com"
