"""Browsing: pages that are disjoint and complete while mail comes and goes, filters that read as little as they can."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.queue.admin.browse import ranges
from zonemta_py.queue.api import DEFERRED, HELD
from zonemta_py.schedule.time import pace

PACE = "zonemta_py.schedule.time.pace"


async def every(home: Any, limit: int = 7, **where: Any) -> list[dict[str, Any]]:
    """All rows, in small pages."""
    return list(await home.listed(limit, **where))


async def mixed(home: Any) -> None:
    """Fresh, deferred and held mail of three domains, two of them with a campaign."""
    for number in range(30):
        more = {"campaign": f"c{number % 2}", "tenant": "acme"} if number % 3 else {}
        await home.put(f"r{number}@d{number % 3}.test", f"s{number}@d{number % 3}.test", **more)
    verdicts = [None, DEFERRED, HELD]
    for number, delivery in enumerate(await home.leases()):
        if verdict := verdicts[number % 3]:
            await home.settle(delivery, verdict)
    await home.rest()


def domain_of(row: dict[str, Any]) -> str:
    return str(row["recipient"].partition("@")[2])


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ({}, lambda row: True),
        ({"domain": "d1.test"}, lambda row: domain_of(row) == "d1.test"),
        ({"domain": ["D0.test", "x.test"], "zone": "default"}, lambda row: domain_of(row) == "d0.test"),
        ({"domain": "nobody.test"}, lambda row: False),
        ({"state": "held"}, lambda row: row["state"] == "held"),
        ({"state": "leased"}, lambda row: row["state"] == "leased"),
        ({"state": ["deferred", "held"]}, lambda row: row["state"] in ("deferred", "held")),
        ({"campaign": "c1"}, lambda row: row["campaign"] == "c1"),
        ({"campaign": "nobody"}, lambda row: False),
        ({"campaign": ""}, lambda row: not row["campaign"]),
        ({"tenant": "acme", "state": "deferred"}, lambda row: row["tenant"] and row["state"] == "deferred"),
        ({"recipient": "r1*"}, lambda row: row["recipient"].startswith("r1")),
        ({"younger_s": 3600}, lambda row: True),
        ({"younger_s": 3600, "state": "deferred"}, lambda row: row["state"] == "deferred"),
        ({"older_s": 3600}, lambda row: False),
        ({"sender": "ann@*"}, lambda row: True),
    ],
)
async def test_every_page_has_what_is_meant_and_nothing_twice(
    house: Any, where: dict[str, Any], meant: Callable[[dict[str, Any]], bool]
) -> None:
    """Whatever is asked, and however it is found: as if every recipient had been looked at."""
    home = await house()
    await mixed(home)
    rows, whole = await every(home, **where), await every(home, limit=1000)
    assert len(whole) == 60
    found = sorted((row["id"], row["recipient"]) for row in rows)
    assert found == sorted((row["id"], row["recipient"]) for row in whole if meant(row))


async def test_all_that_stays_is_in_one_page_while_others_come_and_go(house: Any) -> None:
    """The cursor is a key: what was before it was shown, what is behind it will be."""
    home = await house()
    staying = {await home.put(f"stay{number}@z.test") for number in range(20)}
    for number in range(20):
        await home.put(f"go{number}@a.test")
    seen: list[str] = []
    after = ""
    while after is not None:
        page = await home.queue.ask("list", limit=3, after=after)
        seen += [row["id"] for row in page["rows"]]
        after = page["next"]
        await home.put("new@n.test")
        for delivery in await home.lease(1):
            await home.settle(delivery, DEFERRED) if delivery.id in staying else await home.settle(delivery)
        await home.rest()
        if len(seen) > 200:
            break
    assert staying <= set(seen)


async def test_a_page_is_not_taken_for_the_last_because_mail_came(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there were at its beginning need not be those that were there."""
    home = await house()
    staying = await home.put("held@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, HELD)
    await home.put("fresh@x.test")
    await home.rest()
    usual, came = pace.Pace.turn, list[str]()

    async def turn(one: pace.Pace) -> None:
        await usual(one)
        if not came:
            came.append(await home.put("new@x.test"))
            await home.rest()

    monkeypatch.setattr(ranges, "AT_ONCE", 1)
    monkeypatch.setattr(pace.Pace, "turn", turn)
    assert staying in {row["id"] for row in await every(home, domain="x.test")}


async def test_one_message_is_found_without_a_walk(house: Any) -> None:
    """Its recipients, deferred ones too, among any number of others."""
    home = await house()
    message = await home.put("a@a.test", "b@b.test")
    for number in range(300):
        await home.put(f"u{number}@x.test")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.rest()
    page = await home.queue.ask("list", id=message)
    assert [row["recipient"] for row in page["rows"]] == ["a@a.test", "b@b.test"]
    assert page["walked"] == 2
    shown = await home.queue.ask("show", id=message)
    assert [row["state"] for row in shown["recipients"]] == ["deferred", "deferred"]


async def test_a_filter_reads_only_the_parked_mail_of_its_campaign(house: Any) -> None:
    """The others of a zone are passed over, a flow queue at a time."""
    home = await house(queue={"window": 100})
    for name in ("big", "small"):
        for number in range(300 if name == "big" else 5):
            await home.put(f"u{number}@x.test", campaign=name)
    await home.rest()
    found = await every(home, limit=100, campaign="small")
    assert len(found) == 5
    parked = sum(1 for _ in home.queue.core.disk.store.keys(b"parked ", keys.end(b"parked ")))
    page = await home.queue.ask("list", limit=100, campaign="small")
    assert parked >= 100
    assert page["walked"] < 305


@pytest.mark.parametrize(
    "where", [{}, {"zone": "b"}, {"state": "held"}, {"state": ["deferred", "leased"]}, {"domain": "d1.test"}]
)
async def test_in_the_order_of_age(house: Any, where: dict[str, Any]) -> None:
    """The oldest first, whatever the zone and the state, page by page; and nobody is missing or there twice."""
    home = await house(zones=[{"name": "default", "default": True}, {"name": "b", "recipient_domains": ["d2.test"]}])
    await mixed(home)
    message = await home.put(*(f"m{number}@d{number % 3}.test" for number in range(9)))
    for delivery in [one for one in await home.leases() if one.id == message][:2]:
        await home.settle(delivery, DEFERRED)
    await home.rest()
    rows = await every(home, order="age", **where)
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    found = [(row["id"], row["recipient"]) for row in rows]
    assert sorted(found) == sorted((row["id"], row["recipient"]) for row in await every(home, limit=1000, **where))
    assert len(found) > 3
    with pytest.raises(ValueError, match="is not a cursor"):
        await home.queue.ask("list", order="age", after="x")
    with pytest.raises(ValueError, match="there is no order 'size'"):
        await home.queue.ask("list", order="size")


async def test_a_page_ends_when_its_time_is_over(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and where it goes on."""
    monkeypatch.setattr(ranges, "AT_ONCE", 10)
    monkeypatch.setattr(f"{PACE}.Pace.__init__.__defaults__", (0.0,))
    home = await house()
    await home.put(*(f"u{number}@x.test" for number in range(50)))
    page = await home.queue.ask("list", sender="nobody@x.test")
    assert (page["rows"], page["more"], page["walked"]) == ([], True, 10)
    assert page["next"] is not None
    assert len(await every(home)) == 50


async def test_a_page_is_short_while_mail_is_sent(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after little work, and says where it goes on; nobody is missed. What is whole at once stays whole."""
    monkeypatch.setattr(ranges, "AT_ONCE", 10)
    monkeypatch.setattr(f"{PACE}._loop", pace._Loop())
    monkeypatch.setattr(pace, "_SAMPLE_S", 1e9)
    home = await house()
    await home.put(*(f"u{number}@x.test" for number in range(50)))
    for number in range(300):
        home.queue.core.schedule.policy.stop("tenant", f"t{number}", 60, "unpaid")
    monkeypatch.setattr(pace, "BUSY_PAGE_S", 0.0)
    assert (await home.queue.ask("list", sender="nobody@x.test"))["next"] is None
    pace._loop._share = 0.5
    page = await home.queue.ask("list", sender="nobody@x.test")
    assert (page["rows"], page["more"], page["walked"]) == ([], True, 10)
    assert len(await every(home)) == 50
    assert len(await home.queue.ask("standing")) == 300


async def test_a_row_says_what_it_waits_for(house: Any) -> None:
    """Its turn, its next try, an operator, a stop; and whose it is."""
    home = await house()
    await home.put("a@stopped.test", tenant="acme", campaign="spring", priority=3)
    await home.queue.ask("stop", kind="tenant", name="acme", cause="unpaid")
    for address in ("b@deferred.test", "c@held.test", "d@out.test"):
        await home.put(address)
    for delivery in await home.leases():
        verdict = {"b": DEFERRED, "c": HELD}.get(delivery.recipients[0].address[0])
        if verdict:
            await home.settle(delivery, verdict)
    await home.rest()
    rows = {row["recipient"][0]: row for row in await every(home)}
    assert "tenant acme is suspended: unpaid" in rows["a"]["cause"]
    assert (rows["a"]["tenant"], rows["a"]["campaign"], rows["a"]["priority"]) == ("acme", "spring", 3)
    assert rows["b"]["cause"] == "its next try"
    assert rows["c"]["cause"].startswith("an operator")
    assert rows["d"]["cause"].endswith("delivers it")
    assert (rows["d"]["state"], rows["d"]["site"]) == ("leased", "out.test")


async def test_a_busy_queue_gets_most_of_the_time(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question rests many times as long as it has worked; idle, it is not held up."""
    monkeypatch.setattr(f"{PACE}.Pace.__init__.__defaults__", (60.0,))
    monkeypatch.setattr(f"{PACE}._loop", pace._Loop())
    monkeypatch.setattr(pace, "OTHERS", 9.0)
    monkeypatch.setattr(pace, "BUSY", 0.01)  # on a busy machine this test has little of its time
    home = await house()
    await home.put(*(f"u{number}@x.test" for number in range(3000)))
    loop, over = asyncio.get_running_loop(), False

    async def mail() -> None:
        while not over:
            begun = time.thread_time()
            while time.thread_time() < begun + 0.002:
                pass
            await asyncio.sleep(0.001)

    async def asked() -> tuple[float, float]:
        """Seconds by the clock, and of work."""
        begun, used = loop.time(), pace._loop._own
        monkeypatch.setattr(pace, "_SAMPLE_S", 1e9)
        await home.queue.ask("list", sender="nobody@x.test")
        return loop.time() - begun, pace._loop._own - used

    monkeypatch.setattr(pace, "_SAMPLE_S", 0.0)
    sending = asyncio.create_task(mail())
    await asyncio.sleep(0.1)
    assert not pace._loop.busy, "it may be no more than a moment's work"
    for _ in range(600):
        await asyncio.sleep(0.1)
        if pace._loop.busy:
            break
    else:
        pytest.fail("mail is not seen")
    took_s, worked_s = await asked()
    over = True
    await sending
    assert took_s > 4 * worked_s  # the last rest before an answer has an end
    pace._loop._share = 0.0
    took_s, worked_s = await asked()
    assert worked_s > 0


async def test_a_question_that_is_given_up_ends(house: Any) -> None:
    """What it awaits is cancelled with it, and its error is its own."""
    home = await house()
    asking = asyncio.ensure_future(home.queue.ask("stop", kind="zone", name="default"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ValueError, match="there is no zone 'x'"):
        await home.queue.ask("list", zone="x")
