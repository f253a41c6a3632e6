"""Source addresses as the scheduler chooses them: by weight, rest, warm-up cap and domain; the clock is the test's."""

import dataclasses
from collections import Counter
from typing import Any

from tests.queue.flow import drain, put_all
from zonemta_py.config import Pool, Source
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.hooks import NoHooks, Routed
from zonemta_py.queue.reload import apply

POOL: dict[str, Any] = {
    "zones": [{"name": "default", "pool": "p"}],
    "pools": [{"name": "p", "sources": [{"address": "127.0.0.2"}, {"address": "127.0.0.3", "weight": 3}]}],
}


async def test_a_message_keeps_its_source_and_sources_share_by_weight(house: Any) -> None:
    """All attempts of a message come from one address; over many messages each has its share."""
    home = await house(**POOL)
    await put_all(home, 200)
    seen: dict[str, str] = {}
    while batch := await home.leases():
        for delivery in batch:
            seen[delivery.id] = delivery.source
            await home.settle(delivery, DEFERRED)
    assert 120 < Counter(seen.values())["127.0.0.3"] < 180
    await home.crash()
    await home.move(3600)
    again = await home.leases()
    assert again
    assert all(seen[delivery.id] == delivery.source for delivery in again)


async def test_a_blocked_source_rests_at_that_site_and_another_takes_over(house: Any) -> None:
    """By rule; elsewhere it goes on, and after its rest here too. The rest survives a crash."""
    home = await house(**POOL)
    policy = home.queue.core.schedule.policy
    await put_all(home, 40, "x.test")
    await put_all(home, 40, "y.test")
    policy.stop("rest", "127.0.0.3 x.test", 600, "on a list")
    await home.rest()
    await home.crash()
    sent = Counter((d.recipients[0].domain, d.source) for d in await drain(home))
    assert sent["x.test", "127.0.0.2"] == 40
    assert sent["y.test", "127.0.0.3"] > 10
    await home.move(601)
    await put_all(home, 40, "x.test")
    assert Counter(d.source for d in await drain(home))["127.0.0.3"] > 10


async def test_a_source_that_rests_while_mail_waits_for_it(house: Any) -> None:
    """What is in the window, and what is parked, moves to the other one."""
    home = await house(**POOL, queue={"window": 100}, throttles=[{"name": "s", "per": ["site"], "messages": "1/min"}])
    await put_all(home, 400)
    assert len(await drain(home)) == 1
    home.queue.core.schedule.policy.stop("rest", "127.0.0.3 x.test", 100_000, "on a list")
    sources = set()
    for _ in range(30):
        await home.move(60)
        sources.update(delivery.source for delivery in await drain(home))
    assert sources == {"127.0.0.2"}
    await home.sound()


async def test_a_new_source_sends_no_more_than_its_cap(house: Any) -> None:
    """The rest of the day's mail takes the warm one; the next day, if this one was good, the cap is the next one."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2"}, {"address": "127.0.0.3", "weight": 50, "warmup": "w"}]}
    home = await house(
        zones=[{"name": "default", "pool": "p"}], pools=[pool], warmups=[{"name": "w", "caps": [30, 60], "least": 5}]
    )
    await put_all(home, 100)
    assert Counter(d.source for d in await drain(home)) == {"127.0.0.3": 30, "127.0.0.2": 70}
    await home.crash()
    await put_all(home, 10)
    assert Counter(d.source for d in await drain(home)) == {"127.0.0.2": 10}
    await home.move(86_400)
    await put_all(home, 100)
    assert Counter(d.source for d in await drain(home))["127.0.0.3"] == 60
    (row,) = await home.queue.ask("warmup")
    assert (row["source"], row["step"], row["sent"]) == ("127.0.0.3", 1, 60)


async def test_a_refused_connection_is_nothing_sent(house: Any) -> None:
    """Of a warm-up's day: no server was reached, so the cap is not used up, the day is not judged by it, and a provider
    to which nothing went is no row."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.3", "warmup": "w"}]}
    warmup = {"name": "w", "caps": [30, 60], "least": 5}
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[pool], warmups=[warmup])
    await put_all(home, 10)
    for delivery in await home.leases():
        refused = home.result(delivery, DEFERRED, stage="connect", reply=Reply(421, "4.4.1", "connection refused"))
        refused.started_ms = home.clock.ms()
        await home.queue.settle(refused)
    await home.rest()
    assert await home.queue.ask("warmup") == []
    await put_all(home, 10, "y.test")
    await drain(home)
    (row,) = await home.queue.ask("warmup")
    assert (row["sent"], row["deferred"], row["today"]) == (10, 0, "good")
    await home.crash()
    (row,) = await home.queue.ask("warmup")
    assert (row["sent"], row["deferred"], row["today"]) == (10, 0, "good")


async def test_domains_kept_from_a_source_never_see_it(house: Any) -> None:
    """disabled_domains; where no address is left the mail waits, and the reason is said."""
    sources = [{"address": "127.0.0.2", "disabled_domains": ["x.test"]}]
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[{"name": "p", "sources": sources}])
    await put_all(home, 3, "x.test")
    await put_all(home, 3, "y.test")
    assert {d.recipients[0].domain for d in await drain(home)} == {"y.test"}
    answer = await home.queue.ask("explain", what="x.test")
    assert "disabled_domains" in answer["rows"][0]["reasons"][0]["cause"]


GONE = Reply(451, "4.4.1", "cannot send from here: 127.0.0.3 is not an address of this machine")


async def lost(home: Any, source: str = "127.0.0.3") -> Counter[str]:
    """Who has sent what, while that address is gone: each lease of it fails, until nothing can be leased."""
    sent = Counter[str]()
    while batch := await home.leases():
        for delivery in batch:
            if delivery.source == source:
                await home.settle(delivery, DEFERRED, stage="source", reply=GONE)
            else:
                await home.settle(delivery)
                sent[delivery.source] += 1
        await home.move(1)
    return sent


async def test_an_address_that_the_machine_has_lost_rests(house: Any, caplog: Any) -> None:
    """Its share goes to the others of its pool at once, with no attempt counted; it stands among the rests, survives a
    crash, is in the metrics, and is back by itself."""
    home = await house(**POOL)
    await put_all(home, 100)
    assert await lost(home) == {"127.0.0.2": 100}
    (row,) = [row for row in await home.queue.ask("standing") if row["kind"] == "source"]
    assert (row["name"], row["group"]) == ("127.0.0.3", "resting")
    assert "is not an address of this machine" in row["cause"]
    assert "source 127.0.0.3 cannot be used" in caplog.text
    assert (await home.queue.ask("metrics"))["gauges"]["zonemta_resting"] == [[["source"], 1]]
    await home.crash()
    await put_all(home, 20, "y.test")
    assert Counter(d.source for d in await drain(home)) == {"127.0.0.2": 20}
    await home.move(61)
    await put_all(home, 100, "z.test")
    assert Counter(d.source for d in await drain(home))["127.0.0.3"] > 40
    assert not [row for row in await home.queue.ask("standing") if row["kind"] == "source"]


async def test_the_only_address_waits_and_mail_that_ran_out_of_ports_does_not_rest_it(house: Any) -> None:
    """Nobody else can send: its mail waits without a try that counts, says why, and expires as ever. A port that lacks
    at one site says nothing."""
    one = {"zones": POOL["zones"], "pools": [{"name": "p", "sources": [{"address": "127.0.0.3"}]}]}
    home = await house(**one, retry={"schedule_min": [5], "jitter": 0})
    await home.put("a@x.test")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, stage="source", reply=Reply(451, "4.4.5", "no free port left"))
    assert not await home.queue.ask("standing")
    await home.move(301)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, stage="source", reply=GONE)
    assert [row["name"] for row in await home.queue.ask("standing")] == ["127.0.0.3"]
    await home.move(1)
    assert not await home.leases()
    (row,) = (await home.queue.ask("explain", what="x.test"))["rows"]
    assert row["reasons"][0]["kind"] == "source"
    assert "source 127.0.0.3 rests: it cannot be used" in row["reasons"][0]["cause"]
    await home.move(61)
    (delivery,) = await home.leases()
    assert delivery.attempts == [1]
    await home.settle(delivery, DEFERRED, stage="source", reply=GONE)
    await home.move(49 * 3600)
    await home.queue.sweep()
    assert not (await home.queue.ask("size"))["total"]["queued"]
    await home.sound()


def local(recipient: Recipient) -> str:
    return recipient.address.partition("@")[0]


class ByName(NoHooks):
    """A plugin that chooses the pool by the recipient's name."""

    routes = True

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        name = local(routed.recipient)
        return dataclasses.replace(routed, routing={"pool": name} if name != "usual" else None)


TWO = POOL["pools"] + [{"name": "warm", "sources": [{"address": "127.0.0.5"}, {"address": "127.0.0.6"}]}]


async def test_a_pool_for_single_recipients(house: Any) -> None:
    """Beside the zone's; the same after a crash, and one that is gone is the zone's. What rests there lets its mail go
    by the others of that pool."""
    home = await house(hooks=ByName(), zones=POOL["zones"], pools=TWO)
    await home.put("warm@x.test", "usual@x.test", "gone@y.test")
    first = {local(one.recipients[0]): one.source for one in await home.leases()}
    assert first["warm"] in ("127.0.0.5", "127.0.0.6")
    assert {first["usual"], first["gone"]} <= {"127.0.0.2", "127.0.0.3"}
    await home.crash()
    await home.move(3600)
    again = await home.leases()
    assert {local(one.recipients[0]): one.source for one in again} == first
    [row] = (await home.queue.ask("explain", what="warm@x.test"))["rows"]
    assert row["chosen"] == {"pool": "warm"}
    for delivery in again:
        await home.settle(delivery, DEFERRED, delay_s=60)
    home.queue.core.schedule.policy.stop("rest", f"{first['warm']} x.test", 600, "on a list")
    await home.move(61)
    now = {local(one.recipients[0]): one.source for one in await home.leases()}
    assert {first["warm"], now["warm"]} == {"127.0.0.5", "127.0.0.6"}
    await home.sound()


async def test_a_pool_that_a_reload_changes(house: Any) -> None:
    """What waits for it goes by its other addresses, or by the zone's where it is gone."""
    home = await house(hooks=ByName(), zones=POOL["zones"], pools=TWO)
    await home.put("warm@x.test", hold_until_ms=home.clock.ms() + 60_000)
    await home.put("warm@y.test")
    pools = [home.config.pools[0], Pool(name="warm", sources=[Source(address="127.0.0.9")])]
    other = home.config.model_copy(update={"pools": pools})
    apply.take(home.queue, apply.prepare(other, ByName(), home.resolver))
    await home.move(61)
    assert {one.source for one in await home.leases()} == {"127.0.0.9"}
