"""`explain`: each reason there is, said by the scheduler's own state; the clock is the test's."""

import asyncio
from typing import Any

import pytest

from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, HELD, RELEASED
from zonemta_py.zones.site import Site

BUSY = Reply(421, "4.3.2", "closing")


async def ask(home: Any, what: str) -> dict[str, Any]:
    await home.rest()
    return dict(await home.queue.ask("explain", what=what))


async def first(home: Any, what: str) -> dict[str, Any]:
    """The reason that comes first."""
    return dict((await ask(home, what))["rows"][0]["reasons"][0])


async def look(home: Any) -> None:
    """A sender asks, and finds nothing it may have."""
    assert await home.idle()


# ---------------------------------------------------------------- reasons


async def test_nothing_holds_it(house: Any) -> None:
    """Mail that only waits for a sender has no reason; how many are before it is exact."""
    home = await house()
    ids = [await home.put(f"r{number}@x.test") for number in range(3)]
    for number, message_id in enumerate(ids):
        (row,) = (await ask(home, message_id))["rows"]
        assert (row["reasons"], row["before"], row["counted"], row["state"]) == ([], number, True, "queued")


@pytest.mark.parametrize("kind", ["copy", "drain", "recovery", "disk"])
async def test_what_stops_the_whole_is_the_first_reason(house: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that sends nothing, a drain, recovery, trouble with the disk: of a message, a zone, in lanes and lists,
    whether it is in memory, on disk only, or deferred."""
    home = await house()
    await home.put("a@x.test")
    await home.put("b@y.test", hold_until_ms=home.clock.ms() + 3_600_000)
    await home.rest()
    home.queue.core.schedule.fill(home.queue.core.clock.steady_ms())
    core = home.queue.core
    owner, name, value = {
        "copy": (core, "copied", "this is a copy; `zonemta queue adopt`"), "drain": (core, "stopping", True),
        "recovery": (core, "ready", False), "disk": (core.disk.journal, "trouble", Reply(452)),
    }[kind]  # fmt: skip
    monkeypatch.setattr(owner, name, value)
    if kind == "disk":
        assert [one for one, _ in core.halted()] == ["disk"]
        return  # the journal finds at once that it can be written
    (stop,) = (await ask(home, "default"))["whole"]
    assert stop["kind"] == kind
    for what in ("a@x.test", "b@y.test", "default"):
        for row in (await ask(home, what))["rows"]:
            assert kind in [reason["kind"] for reason in row["reasons"][:2]], what
    lanes = await home.queue.ask("lanes")
    assert lanes["whole"] == [stop]
    assert all(row["reasons"][0] == stop for row in lanes["rows"])
    assert {row["cause"] for row in (await home.queue.ask("list"))["rows"]} == {stop["cause"]}
    monkeypatch.undo()
    assert (await ask(home, "default"))["whole"] == (await home.queue.ask("lanes"))["whole"] == []


async def test_hours_of_the_zone(house: Any) -> None:
    """Outside of a zone's window in one time zone nothing of it goes; the end is when they open."""
    window = {"name": "day", "hours": "09:00-18:00", "time_zone": "UTC"}
    home = await house(zones=[{"name": "default", "window": "day"}], windows=[window])  # it is 22:13 UTC
    await home.put("a@x.test")
    reason = await first(home, "a@x.test")
    assert reason["kind"] == "hours"
    assert "'day'" in reason["cause"]
    assert reason["until_ms"] % 86_400_000 == 9 * 3_600_000


async def test_hours_of_a_message(house: Any) -> None:
    """A message's own window, too."""
    window = {"name": "day", "hours": "09:00-18:00"}
    home = await house(windows=[window])
    await home.put("a@x.test", window="day", time_zone="UTC")
    reason = await first(home, "a@x.test")
    assert reason["kind"] == "hours"
    assert reason["until_ms"] % 86_400_000 == 9 * 3_600_000


@pytest.mark.parametrize(
    ("kind", "name"),
    [("destination", "x.test"), ("tenant", "t"), ("campaign", "c"), ("zone", "default")],
)
async def test_suspended(house: Any, kind: str, name: str) -> None:
    """What is stopped, why and until when; it is said before any sender has asked, and of deferred mail as well."""
    home = await house()
    await home.put("a@x.test", tenant="t", campaign="c")
    await home.put("b@x.test", tenant="t", campaign="c", hold_until_ms=home.clock.ms() + 60_000)
    assert await home.queue.ask("stop", kind=kind, name=name, seconds=600, cause="complaints") == 1
    reason = await first(home, "a@x.test")
    assert (reason["kind"], reason["since_ms"]) == ("suspended", home.clock.ms())
    assert reason["until_ms"] == home.clock.ms() + 600_000
    assert reason["cause"] == f"{kind} {name} is suspended: complaints"
    await look(home)
    assert await first(home, name) == reason
    (row,) = (await ask(home, "b@x.test"))["rows"]
    assert [reason["kind"] for reason in row["reasons"]] == ["deferred", "suspended"]


async def test_a_provider_can_be_stopped(house: Any) -> None:
    """All its sites together."""
    home = await house(resolver=Directory({"x.test": site("mx.x.test", "giant"), "y.test": site("mx.y.test", "giant")}))
    for name in "ab":
        await home.put(f"{name}@x.test")
        await home.put(f"{name}@y.test")
        if name == "a":
            await home.settle((await home.lease())[0])
            await home.settle((await home.lease())[0])
    assert await home.queue.ask("stop", kind="destination", name="giant") == 2
    await look(home)
    assert {row["reasons"][0]["cause"] for row in (await ask(home, "giant"))["rows"]} == {
        "destination giant is suspended: by an operator"
    }


async def test_a_domain_of_a_shared_site_is_stopped_by_itself(house: Any) -> None:
    """Asked for the domain, the answer names the stop, and the others of its site wait for nothing."""
    home = await house(resolver=Directory({"x.test": site("mx.big.test"), "y.test": site("mx.big.test")}))
    await home.queue.ask("stop", kind="destination", name="x.test")
    for address in ("a@x.test", "b@y.test"):
        await home.put(address)
    assert [delivery.recipients[0].address for delivery in await home.leases()] == ["b@y.test"]
    rows = (await ask(home, "x.test"))["rows"]
    stopped = next(row for row in rows if row["apart"] == "@x.test")
    assert (stopped["site"], stopped["reasons"][0]["cause"]) == (
        "mx.big.test",
        "domain x.test is suspended: by an operator",
    )
    assert (await first(home, "a@x.test"))["kind"] == "suspended"


async def test_a_source_that_rests(house: Any) -> None:
    """Where it is the only one, mail waits for it; asked for the address the answer is the same."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2"}]}
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[pool])
    await home.put("a@x.test")
    home.queue.core.schedule.policy.stop("rest", "127.0.0.2 x.test", 60, "listed: 550 blocked")
    await look(home)
    reason = await first(home, "a@x.test")
    assert reason["kind"] == "source"
    assert reason["cause"] == "source 127.0.0.2 at x.test rests: listed: 550 blocked"
    answer = await ask(home, "127.0.0.2")
    assert answer["kind"] == "ip"
    assert {reason["kind"] for row in answer["rows"] for reason in row["reasons"]} == {"source", "rest"}


class Directory:
    """A destination resolver that knows some domains, and answers when its gate is open."""

    def __init__(self, answers: dict[str, Site]) -> None:
        self.answers, self.gate = answers, asyncio.Event()
        self.gate.set()

    async def site(self, domain: str, now: float) -> Site:
        await self.gate.wait()
        if domain not in self.answers:
            raise NoRoute(550, "5.1.2", "no such domain")
        return self.answers[domain]


def site(key: str, provider: str = "") -> Site:
    return Site(key, provider, ((key, ("192.0.2.1",)),), ((10, key),), 300, False)


async def test_dns(house: Any) -> None:
    """While the domain is being looked up."""
    resolver = Directory({"x.test": site("x.test")})
    home = await house(resolver=resolver)
    resolver.gate.clear()
    await home.put("a@x.test")
    await look(home)
    reason = await first(home, "a@x.test")
    assert (reason["kind"], reason["until_ms"]) == ("dns", 0)
    resolver.gate.set()


async def test_domains_that_wait_to_be_looked_up(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are asked at once: the others are not said to be asked, and how many are before them is."""
    monkeypatch.setattr("zonemta_py.schedule.sites.AT_ONCE_MAX", 2)
    names = [f"{letter}.test" for letter in "abcde"]
    resolver = Directory({name: site(name) for name in names})
    home = await house(resolver=resolver)
    resolver.gate.clear()
    for name in names:
        await home.put(f"r@{name}")
    await look(home)
    causes = [(await first(home, f"r@{name}"))["cause"] for name in names]
    asked, waiting = causes[:2], causes[2:]
    assert asked == ["a.test is being looked up", "b.test is being looked up"]
    assert waiting == [f"{name} is queued for its DNS lookup ({n} ahead of it)" for n, name in enumerate(names[2:])]
    resolver.gate.set()
    for _ in range(10):
        await home.rest()
    assert len(await home.leases()) == 5


async def test_a_deadline_ends_the_wait(house: Any) -> None:
    """BY=…;R of what is stopped: the stop is still named first, with its own end; of BY=…;N nothing ends it."""
    home = await house()
    await home.queue.ask("stop", kind="destination", name="x.test", seconds=3600)
    deadline_ms = home.clock.ms() + 60_000
    await home.put("r@x.test", deadline_ms=deadline_ms, deadline_mode="R")
    await home.put("n@x.test", deadline_ms=deadline_ms, deadline_mode="N")
    await look(home)
    (row,) = (await ask(home, "r@x.test"))["rows"]
    found = [(reason["kind"], reason["until_ms"] - home.clock.ms()) for reason in row["reasons"]]
    assert found == [("suspended", 3_600_000), ("deadline", 60_000)]
    assert "returned to its sender" in row["reasons"][1]["cause"]
    (row,) = (await ask(home, "n@x.test"))["rows"]
    assert [reason["kind"] for reason in row["reasons"]] == ["suspended"]


async def test_a_deadline_before_the_hours_open(house: Any) -> None:
    """The hours open when they open, and the deadline passes when it passes: both are said."""
    window = {"name": "day", "hours": "09:00-18:00", "time_zone": "UTC"}
    home = await house(zones=[{"name": "default", "window": "day"}], windows=[window])
    await home.put("a@x.test")
    opens_ms = (await first(home, "a@x.test"))["until_ms"]
    deadline_ms = home.clock.ms() + 60_000
    await home.put("r@x.test", deadline_ms=deadline_ms, deadline_mode="R")
    (row,) = (await ask(home, "r@x.test"))["rows"]
    found = [(reason["kind"], reason["until_ms"]) for reason in row["reasons"]]
    assert found == [("hours", opens_ms), ("deadline", deadline_ms)]


@pytest.mark.parametrize("ms", [0, 1, 333, 999])
async def test_what_ends_at_midnight_does_not_end_before_it(house: Any, ms: int) -> None:
    """Whatever fractions of a second it is now: not a millisecond early, which would show as 23:59:59."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2", "warmup": "w"}]}
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[pool], warmups=[{"name": "w", "caps": [1, 5]}])
    await home.move(ms / 1000 + 0.000_7)
    await home.put("a@x.test")
    await home.put("b@x.test")
    await home.settle((await home.lease())[0])
    await look(home)
    until_ms = (await first(home, "b@x.test"))["until_ms"]
    assert until_ms % 86_400_000 in (0, 1)


async def test_no_name(house: Any) -> None:
    """There is nothing to explain."""
    home = await house()
    with pytest.raises(ValueError, match="there is no name to explain"):
        await ask(home, " ")


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([{"name": "p", "sources": [{"address": "127.0.0.2"}]}], "there are 127.0.0.2, 127.0.0.9$"),
        ([], "there are 127.0.0.9$"),
    ],
)
async def test_a_source_that_there_is_not_is_not_stopped(house: Any, pools: list[Any], said: str) -> None:
    """Such an order would do nothing: it names those that are configured, in pools and zones."""
    home = await house(zones=[{"name": "default", "sources": ["127.0.0.9"]}], pools=pools)
    for name in ("foo", "300.1.1.1"):
        with pytest.raises(ValueError, match=rf"there is no source '{name}'; {said}"):
            await home.queue.ask("stop", kind="source", name=name)
    assert await home.queue.ask("standing") == []
    await home.queue.ask("stop", kind="source", name="127.0.0.9")
    assert len(await home.queue.ask("standing")) == 1


async def test_a_source_where_the_system_chooses(house: Any) -> None:
    """Nobody could name one."""
    home = await house()
    with pytest.raises(ValueError, match=r"no source '127\.0\.0\.2'; none is configured"):
        await home.queue.ask("stop", kind="source", name="127.0.0.2")


@pytest.mark.parametrize("after", ["garbage", "held", "message 0 #", "deferred default x 0 a@b.c"])
async def test_a_cursor_that_is_none(house: Any, after: str) -> None:
    """One sentence, not an empty page; a cursor whose recipient has gone is one all the same."""
    home = await house()
    with pytest.raises(ValueError, match="is not a cursor; use the one that the previous page ended with"):
        await home.queue.ask("list", after=after)
    assert (await home.queue.ask("list", after="held default 0000000000000001 a@b.c"))["rows"] == []


async def test_deferred(house: Any) -> None:
    """The last answer, when it was given, and when it is tried again; due, it waits like the others."""
    home = await house()
    await home.put("a@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    (row,) = (await ask(home, "a@x.test"))["rows"]
    (reason,) = row["reasons"]
    assert (row["state"], reason["kind"], reason["since_ms"]) == ("deferred", "deferred", home.clock.ms())
    assert "451 4.2.0 later" in reason["cause"]
    assert reason["until_ms"] > home.clock.ms()
    assert (await ask(home, "x.test"))["rows"]
    await home.move((reason["until_ms"] - home.clock.ms()) / 1000 + 1)
    (row,) = (await ask(home, "a@x.test"))["rows"]
    assert (row["state"], row["reasons"], row["before"]) == ("queued", [], 0)


async def test_held_until_its_time(house: Any) -> None:
    """Its sender asked for it: that is said, and is no attempt."""
    home = await house()
    until_ms = home.clock.ms() + 3_600_000
    await home.put("a@x.test", hold_until_ms=until_ms, campaign="spring")
    (row,) = (await ask(home, "a@x.test"))["rows"]
    assert row["reasons"][0]["cause"] == "held until then, as its sender asked"
    assert (row["attempts"], row["reasons"][0]["until_ms"]) == (0, until_ms)
    for what, kind in (("x.test", "destination"), ("spring", "campaign")):
        answer = await ask(home, what)
        assert (answer["kind"], answer["rows"]) == (kind, [row])


async def test_held_for_an_operator(house: Any) -> None:
    """Until somebody says what to do."""
    home = await house()
    await home.put("a@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, HELD)
    reason = await first(home, "a@x.test")
    assert (reason["kind"], reason["until_ms"]) == ("held", 0)


async def test_leased(house: Any) -> None:
    """A sender has it: who, since when, to where."""
    home = await house()
    message_id = await home.put("a@x.test")
    (delivery,) = await home.lease()
    (row,) = (await ask(home, message_id))["rows"]
    assert (row["state"], row["site"], row["since_ms"], row["reasons"]) == ("leased", "x.test", home.clock.ms(), [])
    await home.settle(delivery, RELEASED, stage="limit")
    (row,) = (await ask(home, message_id))["rows"]
    assert row["state"] == "queued"


# ---------------------------------------------------------------- how many are before it


async def test_before_it_in_memory_parked_and_fresh(house: Any) -> None:
    """A backlog larger than the window: wherever a recipient is, the number of its flow queue before it is exact."""
    home = await house(queue={"window": 100})
    count = 400
    for number in range(count):
        await home.put(f"r{number}@x.test")
        await home.put(f"r{number}@y.test")
    store, flow_queues = home.queue.core.disk.store, home.queue.core.schedule.zones["default"].flow_queues
    in_memory = len(flow_queues.by_key["x.test"].entries)
    assert 0 < in_memory < count
    before = [(await ask(home, f"r{number}@x.test"))["rows"][0] for number in (0, in_memory - 1, in_memory, count - 1)]
    assert [row["before"] for row in before] == [0, in_memory - 1, in_memory, count - 1]
    assert all(row["counted"] for row in before)
    (delivery,) = await home.lease()
    domain = delivery.recipients[0].domain
    await home.settle(delivery, DEFERRED, down_s=60, stage="connect", reply=BUSY)  # now what it has is parked
    await home.rest()
    assert any(store.keys(f"parked default {domain} ".encode(), f"parked default {domain}!".encode()))
    rows = [(await ask(home, f"r{number}@{domain}"))["rows"][0] for number in (1, 2, in_memory - 1, count - 1)]
    assert [row["before"] for row in rows] == [0, 1, in_memory - 2, count - 2]


async def test_asking_leaves_nothing_behind(house: Any) -> None:
    """A recipient that waits for its time is of no flow queue yet, and none stays for having asked."""
    home = await house()
    await home.put("a@x.test", hold_until_ms=home.clock.ms() + 60_000)
    await home.rest()
    await home.crash()
    assert (await ask(home, "a@x.test"))["rows"]
    assert not list(home.queue.core.schedule.flow_queues())


# ---------------------------------------------------------------- what it is not


async def test_what_is_not_in_the_queue(house: Any) -> None:
    """A message or recipient without rows; any other name that nobody has is one sentence."""
    home = await house()
    message_id = await home.put("a@x.test")
    await home.settle((await home.lease())[0])
    assert (await ask(home, message_id))["rows"] == (await ask(home, "a@x.test"))["rows"] == []
    for name in ("x.test", "spring", "192.0.2.1"):
        with pytest.raises(ValueError, match=f"nothing called '{name}' is waiting or suspended"):
            await ask(home, name)
        gone_meanwhile = await home.queue.ask("explain", what=name, after="parked default")
        assert gone_meanwhile["rows"] == []


async def test_many_rows_are_counted(house: Any) -> None:
    """No more than two hundred are shown; how many there are besides is said."""
    home = await house()
    message_id = await home.put(*(f"r{number}@x.test" for number in range(250)))
    answer = await ask(home, message_id)
    assert (len(answer["rows"]), answer["more"]) == (200, 50)


async def test_egress_paths_are_rows_with_reasons(house: Any) -> None:
    """Every flow queue in memory, of one zone or of all."""
    home = await house(zones=[{"name": "a", "default": True}, {"name": "b", "sender_domains": ["b.test"]}])
    await home.put("a@x.test")
    await home.put("a@x.test", sender="s@b.test", campaign="c")
    assert [(row["zone"], row["campaign"], row["waiting"]) for row in (await home.queue.ask("lanes"))["rows"]] == [
        ("a", "", 1), ("b", "c", 1),
    ]  # fmt: skip
    assert [row["zone"] for row in (await home.queue.ask("lanes", zone="b"))["rows"]] == ["b"]


async def test_what_is_parked_is_counted(house: Any) -> None:
    """Nothing of it is in memory, and all of it waits."""
    home = await house()
    await home.put(*(f"r{number}@x.test" for number in range(900)))
    (delivery,) = await home.lease(1)
    await home.settle(delivery, DEFERRED, down_s=60, stage="connect", reply=BUSY)
    while not (await home.queue.ask("lanes"))["rows"][0]["parked"]:  # noqa: ASYNC110 - it is done behind
        await asyncio.sleep(0.01)
    await home.rest()
    for rows in ((await home.queue.ask("lanes"))["rows"], (await ask(home, "x.test"))["rows"]):
        (row,) = rows
        assert (row["parked"], row["counted"]) == (True, True)
        assert row["waiting"] == 900 - len(delivery.recipients)


async def test_egress_paths_come_in_pages(house: Any) -> None:
    """The longest first, each once while nothing changes; those that come and go upset no page."""
    home = await house()
    for number in range(9):
        await home.put(*(f"r{at}@x.test" for at in range(number % 4 + 1)), campaign=f"c{number}")
    rows, page = list[Any](), {"next": 0}
    while page["next"] is not None:
        page = await home.queue.ask("lanes", limit=2, after=page["next"])
        rows += page["rows"]
    assert [row["waiting"] for row in rows] == [4, 4, 3, 3, 2, 2, 1, 1, 1]
    assert len({row["campaign"] for row in rows}) == 9
    for delivery in await home.lease(20):
        await home.settle(delivery)
    assert await home.queue.ask("lanes", after=2) == {"rows": [], "next": None, "whole": []}
