"""What rules do: with the message, the source, the destination, tenant and campaign; at once, or after so many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.lifecycle.classification import _known

LATER = Reply(451, "4.7.1", "magic word")
NEVER = Reply(550, "5.7.1", "magic word")
Make = Callable[..., Awaitable[Any]]


@pytest.fixture
def ruled(house: Any, tmp_path: Path) -> Make:
    """ruled("verdict = 'retry'") → a House whose first rule does so at the magic word; keywords: its configuration."""

    async def make(does: str, **options: Any) -> Any:
        file = tmp_path / "extra.toml"
        head = "[[rules]]\nname = 'mine'\nclass = 'policy'\npattern = 'magic word'\nexamples = ['451 magic word']\n"
        file.write_text(head + does)
        return await house(rules={"extra": file}, **options)

    return make


async def said(home: Any, reply: Reply = LATER, **more: Any) -> None:
    """The next delivery gets that answer."""
    [delivery] = await home.lease()
    await home.settle(delivery, BOUNCED if reply.permanent else DEFERRED, reply=reply, **more)
    await home.rest()


def recorded(home: Any) -> list[list[str]]:
    """Class and rule of each outcome in the journal."""
    found = (one for one in segments.read(home.folder / "journal", 0, []) if one.type == Type.DELIVERY)
    return [outcome[7:9] for one in found for outcome in unpack(one.body)[4]]


async def policy(home: Any) -> dict[str, str]:
    return {row["kind"]: row["name"] for row in await home.queue.ask("standing") if "until_ms" in row}


async def test_retry_what_was_refused_for_good(ruled: Make) -> None:
    """The recipient stays, with the server's words, and is tried again when the rule says."""
    home = await ruled("verdict = 'retry'\ndelay_s = 100")
    await home.put("r@x.test")
    await said(home, NEVER)
    [row] = (await home.queue.ask("list"))["rows"]
    assert row["last"] == "451 4.7.1 550 5.7.1 magic word (tried again by rule)"
    await home.move(99)
    assert await home.idle()
    await home.move(2)
    [delivery] = await home.lease()
    await home.settle(delivery, DELIVERED)
    await home.sound()


@pytest.mark.parametrize("stage", ["rcpt", "dot", "banner"])
async def test_bounce_what_was_put_off(stage: str, ruled: Make) -> None:
    """At once, and the sender is told that the rule gave up, not that time has run out."""
    home = await ruled("verdict = 'bounce'")
    await home.put("r@x.test")
    await said(home, stage=stage)
    [notice] = await home.lease()
    assert notice.sender == ""
    assert b"Status: 5.7.1\r\n" in notice.body
    assert b"554 5.7.1 451 4.7.1 magic word (given up by rule)" in notice.body.replace(b"\r\n ", b" ")
    assert b"5.4.7" not in notice.body


@pytest.mark.parametrize("stage", ["plugin", "proxy", "source", "limit"])
async def test_what_we_say_ourselves_is_not_judged(stage: str, ruled: Make) -> None:
    """Our plugin, proxy or source address says nothing of the destination, whatever words it uses."""
    home = await ruled("verdict = 'bounce'\nsuspend = 'destination'\nsuspend_s = 60")
    await home.put("r@x.test")
    await said(home, stage=stage)
    assert await policy(home) == {}
    assert (await home.sizes())["deferred"] == 1


@pytest.mark.parametrize(
    ("what", "name"), [("destination", "x.test"), ("tenant", "acme"), ("campaign", "spring")]
)  # fmt: skip
async def test_suspend(what: str, name: str, ruled: Make) -> None:
    """Nothing more of it leaves until the time is over; what is not of it does, and a crash changes nothing."""
    home = await ruled(f"suspend = '{what}'\nsuspend_s = 600\ndelay_s = 10")
    for number in range(2):
        await home.put(f"r{number}@x.test", tenant="acme", campaign="spring")
    await said(home)
    assert await policy(home) == {what: name}
    other = await home.put("r@y.test")
    await home.crash()
    assert [delivery.id for delivery in await home.leases()] == [other]
    await home.move(601)
    for _ in range(2):
        [delivery] = await home.lease()
        await home.settle(delivery, DELIVERED)
    await home.sound()


async def test_rest_of_a_source(ruled: Make) -> None:
    """That address rests at that site, and its mail takes the other one."""
    home = await ruled(
        "rest_s = 600\nabout = 'source'", zones=[{"name": "default", "sources": ["127.0.0.2", "127.0.0.3"]}]
    )
    for number in range(30):
        await home.put(f"r{number}@x.test")
    [delivery] = await home.lease()
    await home.settle(delivery, DEFERRED, reply=LATER)
    await home.rest()
    assert await policy(home) == {"rest": f"{delivery.source} x.test"}
    assert {other.source for other in await home.leases()} == {"127.0.0.2", "127.0.0.3"} - {delivery.source}


async def test_rest_where_there_is_no_other_source(ruled: Make) -> None:
    """The destination rests as a whole."""
    home = await ruled("rest_s = 600\nabout = 'source'")
    await home.put("r@x.test")
    await said(home)
    assert await policy(home) == {"destination": "x.test"}


async def test_no_tls(ruled: Make) -> None:
    """The next delivery there is asked to go without, elsewhere not; for a day."""
    home = await ruled("no_tls = true")
    await home.put("r@x.test")
    await said(home)
    for name in "xy":
        await home.put(f"s@{name}.test")
    routed = {delivery.recipients[0].domain: delivery.routing.get("no_tls") for delivery in await home.leases()}
    assert routed == {"x.test": True, "y.test": None}
    await home.move(86_401)
    await home.put("t@x.test")
    later = await home.leases()
    assert "t@x.test" in [recipient.address for delivery in later for recipient in delivery.recipients]
    assert not [delivery for delivery in later if delivery.routing.get("no_tls")]


@pytest.mark.parametrize("does", ["", "no_tls = true"])
async def test_tls_that_somebody_demands(does: str, ruled: Make) -> None:
    """One strict message without the TLS it needs: it waits, and nothing changes for others, whatever rules say."""
    home = await ruled(does)
    await home.put("strict@x.test")
    for number in range(9):
        await home.put(f"r{number}@x.test")
    first, *others = await home.leases()
    path = home.queue.leases.out[first.lease].batch.path
    learned = path.concurrency.state()
    words = "magic word" if does else "required TLS failed: self-signed certificate"
    await home.settle(first, DEFERRED, reply=Reply(451, "4.7.5", words), stage="tls-policy", opened=True)
    await home.rest()
    assert await policy(home) == {}
    assert (path.failures, path.concurrency.state()) == (0, learned)
    others += await home.leases()
    assert not any(delivery.routing.get("no_tls") for delivery in others)
    assert any(words in row["last"] for row in (await home.queue.ask("list"))["rows"])


async def test_tls_that_the_zone_demands(house: Any) -> None:
    """All mail of the zone needs it, so the destination rests; TLS stays on."""
    home = await house()
    await home.put("r@x.test")
    [delivery] = await home.lease()
    reply = Reply(451, "4.7.4", "TLS is required, and the server does not offer it")
    await home.settle(delivery, DEFERRED, reply=reply, stage="tls-policy", opened=True, down_s=0)
    await home.rest()
    assert "no-tls" not in await policy(home)
    await home.put("s@x.test")
    assert await home.idle()


async def test_slow_really_slows(ruled: Make) -> None:
    """Ten in a second went before; afterwards no more than the rate that is left."""
    home = await ruled("slow = true", zones=[{"name": "default", "connections": 500}])
    for number in range(400):
        await home.put(f"r{number}@x.test")
    for _ in range(20):
        for delivery in (await home.leases())[:10]:
            await home.settle(delivery, DELIVERED)
        await home.move(1)
    for number in range(40):
        await home.put(f"s{number}@x.test")
    await said(home)
    [row] = [row for row in await home.queue.ask("standing") if row["kind"] == "rate"]
    assert "mine: 451 4.7.1 magic word" in row["cause"]


@pytest.mark.parametrize("more", ["", "no_tls = true\n"])
async def test_after_so_many(more: str, ruled: Make) -> None:
    """The first two do nothing, the third within the time does; each reply counts once, whatever else the rule does."""
    home = await ruled(f"{more}suspend = 'destination'\nsuspend_s = 60\nafter = 3\nwithin_s = 300")
    for number in range(6):
        await home.put(f"r{number}@x.test")
    for _ in range(2):
        await said(home)
        assert await policy(home) == {}
    await home.move(301)  # too long ago now
    await said(home)
    assert await policy(home) == {}
    await said(home)
    await said(home)
    assert (await policy(home))["destination"] == "x.test"


async def test_class_and_rule_are_in_the_journal(ruled: Make) -> None:
    """With each outcome of a DELIVERY record."""
    home = await ruled("")
    await home.put("r@x.test")
    await said(home)
    assert recorded(home) == [["policy", "mine"]]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("Greylisted, try again in 3 seconds", 4), ("<r@x.test>: Greylisted for 60 seconds", 61),
     ("Greylisting in action, please come back in 00:04:32", 273), ("slow down, try again in 90 seconds", 91)],
)  # fmt: skip
async def test_a_server_that_says_how_long(text: str, seconds: float, house: Any) -> None:
    """The next try is when the server has asked for it, and not after the first step of the schedule."""
    home = await house()
    await home.put("r@x.test")
    await said(home, Reply(451, "4.7.1", text), stage="rcpt")
    await home.move(seconds - 0.5)
    assert await home.idle()
    await home.move(1)
    [delivery] = await home.lease()
    await home.settle(delivery, DELIVERED)


async def test_a_server_that_says_the_same_for_ever(house: Any) -> None:
    """It is believed a few times, and then has to wait for the schedule like others."""
    home = await house(retry={"schedule_min": [5], "jitter": 0})
    await home.put("r@x.test")
    for _ in range(4):
        await said(home, Reply(451, "4.7.1", "Greylisted, try again in 3 seconds"), stage="rcpt")
        await home.move(5)
    await said(home, Reply(451, "4.7.1", "Greylisted, try again in 3 seconds"), stage="rcpt")
    await home.move(290)
    assert await home.idle()
    await home.move(11)
    assert len(await home.lease()) == 1


async def test_own_rules_know_better(ruled: Make) -> None:
    """The delay of a rule counts before what the server says."""
    home = await ruled("verdict = 'retry'\ndelay_s = 100")
    await home.put("r@x.test")
    await said(home, Reply(451, "4.7.1", "magic word, try again in 3 seconds"), stage="rcpt")
    await home.move(99)
    assert await home.idle()


async def test_no_rule_reads_what_no_server_said(ruled: Make) -> None:
    """A stranger's name in a sentence of ours decides nothing; the class comes with it."""
    home = await ruled("verdict = 'bounce'\nsuspend = 'destination'\nsuspend_s = 60")
    await home.put("r@x.test")
    ours = Reply(451, "4.4.4", "host magic word has no address; correct its name or its DNS records")
    await said(home, ours, stage="dns", kind="network")
    assert await policy(home) == {}
    assert (await home.sizes())["deferred"] == 1
    assert recorded(home) == [["network", "own-network"]]


async def test_an_address_in_the_letter_is_told_from_ours(house: Any) -> None:
    """The queue knows by which address it was sent; behind a translator it does not."""
    home = await house(zones=[{"name": "default", "default": True, "sources": ["127.0.0.2"]}])
    for address in ("198.51.100.77", "127.0.0.2"):
        await home.put(f"r{address}@x.test", sender="")
        [delivery] = await home.lease()
        listed = Reply(554, "5.7.1", f"{address} is listed at bl.spamcop.net")
        await home.settle(delivery, BOUNCED, reply=listed, stage="dot")
        await home.rest()
    assert [kind for kind, _ in recorded(home)] == ["spam-content", "blocked-ip"]
    assert _known("192.168.1.2", "") == _known("203.0.113.5", "10.0.0.1") == frozenset()
