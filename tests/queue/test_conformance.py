"""What every implementation of the queue does: the same suite against `LocalQueue` and `RemoteQueue`."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    HELD,
    RELEASED,
    Delivery,
    Outcome,
    QueueRefusal,
    Result,
)

BODY = b"Subject: hello\r\n\r\nHi\r\n"
Make = Callable[..., Any]


def mail(*addresses: str, sender: str = "ann@src.test", size: int = len(BODY), **more: Any) -> Envelope:
    return Envelope(sender, [Recipient(address) for address in addresses], size, **more)


async def take(queue: Any, most: int = 100) -> list[Any]:
    return list(await asyncio.wait_for(queue.lease(most), 60))


def reply_to(home: Any, delivery: Any, verdict: int = DELIVERED, **more: Any) -> Result:
    return home.result(delivery, verdict, **more)


def close(queue: Any) -> None:
    """The sender dies."""
    if hasattr(queue, "close"):
        queue.close()
    else:
        queue._protocol._transport.abort()


async def test_put_lease_settle(house: Make, front: Make) -> None:
    """What was put is leased with all that the sender must know; settled, it is gone."""
    home = await house()
    queue = await front(home)
    envelope = mail("bob@x.test", ret="HDRS", envid="e1", smtputf8=True, body="8BITMIME")
    envelope.recipients = [Recipient("bob@x.test", 4, "rfc822;bob@x.test")]
    message_id = (await queue.accept(envelope, BODY)).id
    (delivery,) = await take(queue)
    assert (delivery.id, delivery.zone, delivery.destination) == (message_id, "default", "x.test")
    assert (delivery.sender, delivery.recipients) == ("ann@src.test", envelope.recipients)
    assert (delivery.body, delivery.chunks, delivery.size, delivery.attempts) == (BODY, 1, len(BODY), [0])
    assert (delivery.ret, delivery.envid, delivery.smtputf8, delivery.eightbit) == ("HDRS", "e1", True, True)
    assert (await queue.ask("size"))["total"]["leased"] == 1
    await queue.settle(reply_to(home, delivery))
    await home.sound()
    assert set((await queue.ask("size"))["total"].values()) == {0}


async def test_a_large_message_comes_back_chunk_by_chunk(house: Make, front: Make) -> None:
    """Bytes written are bytes read, in the same chunks."""
    home = await house()
    queue = await front(home)
    chunks = [bytes([number]) * 65_536 for number in range(1, 10)]
    incoming = queue.begin()
    for chunk in chunks:
        await incoming.write(chunk)
    await incoming.accept(mail("bob@x.test", size=9 * 65_536 + 3), b"end")
    (delivery,) = await take(queue)
    assert (delivery.chunks, delivery.body) == (10, None)
    assert [await queue.chunk(delivery.id, number) for number in range(1, 11)] == [*chunks, b"end"]
    with pytest.raises(QueueRefusal):
        await queue.chunk(delivery.id, 11)
    await queue.settle(reply_to(home, delivery))
    await home.sound()
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []


@pytest.mark.parametrize("written", [0, 1, 7])
async def test_an_aborted_message_leaves_nothing(house: Make, front: Make, written: int) -> None:
    """Half-way, at once, or twice; a chunk written after it is refused."""
    home = await house()
    queue = await front(home)
    incoming = queue.begin()
    for _ in range(written):
        await incoming.write(bytes(65_536))
    incoming.abort()
    incoming.abort()
    await queue.accept(mail("bob@x.test"), BODY)
    await home.rest()
    assert len(list(home.queue.core.disk.store.keys(b"message ", b"message!"))) == 3
    assert home.queue.core.arriving == set()
    await home.sound()


async def test_a_lease_has_recipients_of_one_message_up_to_the_limit(house: Make, front: Make) -> None:
    """One message, one destination, recipients_per_delivery at most; order kept, nobody left out or twice."""
    home = await house(zones=[{"name": "z", "recipients_per_delivery": 4}])
    queue = await front(home)
    await queue.accept(mail(*(f"r{n}@x.test" for n in range(10)), *(f"r{n}@y.test" for n in range(3))), BODY)
    await queue.accept(mail("last@x.test"), BODY)
    deliveries: list[Delivery] = []
    while not await home.idle():
        some = await take(queue)
        for delivery in some:
            await queue.settle(reply_to(home, delivery))
        deliveries += some
    by = sorted((d.destination, len(d.recipients)) for d in deliveries)
    assert by == [("x.test", 1), ("x.test", 2), ("x.test", 4), ("x.test", 4), ("y.test", 3)]
    everyone = [r.address for d in deliveries for r in d.recipients]
    assert len(everyone) == len(set(everyone)) == 14


async def test_destinations_take_turns(house: Make, front: Make) -> None:
    """However much one has at the head, the others come after its first."""
    home = await house()
    queue = await front(home)
    for _ in range(20):
        await queue.accept(mail("r@busy.test"), BODY)
    for domain in ("a.test", "b.test"):
        await queue.accept(mail(f"r@{domain}"), BODY)
    await home.rest()
    assert {d.destination for d in await take(queue, 3)} == {"busy.test", "a.test", "b.test"}


async def test_connection_limits_are_exact(house: Make, front: Make) -> None:
    """Per destination and per zone, all senders together; each result makes room for another."""
    zone = {"name": "z", "connections": 5, "connections_per_destination": 3}
    home = await house(zones=[zone])
    one, two = await front(home, "one"), await front(home, "two")
    for number in range(30):
        await one.accept(mail(f"r@{'abc'[number % 3]}.test"), BODY)
    await home.rest()
    out = await take(one, 4)
    assert sorted(d.destination for d in out) == ["a.test", "b.test", "c.test"], "nobody knows yet how quick they are"
    leased = len(out)
    while out:
        await two.settle(reply_to(home, out.pop(0)))
        while not await home.idle():
            some = await take(two if leased % 2 else one, 4)
            leased += len(some)
            out += some
        assert len(out) <= 5
        assert len(out) >= 4 or leased == 30
        domains = [d.destination for d in out]
        assert not out or max(map(domains.count, domains)) <= 3
    await home.sound()
    assert (await home.sizes())["messages"] == 0


async def test_every_verdict_does_what_it_says(house: Make, front: Make) -> None:
    """One delivery whose recipients fare differently: each by its own reply."""
    home = await house()
    queue = await front(home)
    await queue.accept(mail(*(f"r{n}@x.test" for n in range(6))), BODY)
    (delivery,) = await take(queue)
    verdicts = (DELIVERED, DEFERRED, BOUNCED, HELD, RELEASED)
    outcomes = [Outcome(v, Reply(450 if v != 3 else 550, "", str(v)), "rcpt", [v - 1]) for v in verdicts]
    outcomes[0].recipients.append(5)
    await queue.settle(Result(delivery.lease, outcomes))
    await home.sound()
    total = (await queue.ask("size"))["total"]
    assert (total["queued"], total["deferred"], total["held"], total["messages"]) == (2, 1, 1, 2)
    again = {r.address for d in await take(queue) for r in d.recipients}
    assert again == {"r4@x.test", "ann@src.test"}, "the released one, and the notification"


@pytest.mark.parametrize("indices", [[0], [0, 0], [0, 1, 2], []])
async def test_a_result_must_name_every_recipient_once(house: Make, front: Make, indices: list[int]) -> None:
    """One left out would wait for ever: such a result is refused, and changes nothing."""
    home = await house()
    queue = await front(home)
    await queue.accept(mail("a@x.test", "b@x.test"), BODY)
    (delivery,) = await take(queue)
    with pytest.raises((ValueError, QueueRefusal)):
        await queue.settle(Result(delivery.lease, [Outcome(DELIVERED, Reply(250), "dot", indices)]))
    sizes = await home.sizes()
    assert sizes["leased"] + sizes["queued"] == 2
    await home.sound()


async def test_deferred_mail_comes_when_it_is_due(house: Make, front: Make) -> None:
    """By the schedule, its last entry repeated; attempts are counted; never before its time."""
    home = await house(retry={"schedule_min": [5, 10], "jitter": 0})
    queue = await front(home)
    await queue.accept(mail("bob@x.test"), BODY)
    for attempt, minutes in enumerate((5, 10, 10, 10)):
        (delivery,) = await take(queue)
        assert delivery.attempts == [attempt]
        await queue.settle(reply_to(home, delivery, DEFERRED))
        await home.sound()
        await home.move(minutes * 60 - 1)
        assert await home.idle()
        await home.move(2)
    (delivery,) = await take(queue)
    await queue.settle(reply_to(home, delivery, DEFERRED, delay_s=7.0))
    await home.move(6)
    assert await home.idle()
    await home.move(2)
    assert len(await take(queue)) == 1


async def test_a_clock_that_goes_back_delays_nothing_for_ever(house: Make, front: Make) -> None:
    """A deferral made after the clock went back is due before others that were read already, and still comes."""
    home = await house(retry={"schedule_min": [5], "jitter": 0})
    queue = await front(home)
    await queue.accept(mail("a@x.test"), BODY)
    await queue.settle(reply_to(home, (await take(queue))[0], DEFERRED))
    await home.move(301)
    (late,) = await take(queue)
    await home.move(-3000)
    await queue.accept(mail("b@y.test"), BODY)
    (early,) = await take(queue)
    await queue.settle(reply_to(home, early, DEFERRED))
    await home.rest()
    await home.move(301)
    assert (await take(queue))[0].recipients[0].address == "b@y.test"
    await queue.settle(reply_to(home, late))


async def test_a_lost_sender_leaves_its_mail_in_doubt(house: Make, front: Make) -> None:
    """Listed, and sent again; another sender's leases stay where they are; a late result changes nothing."""
    home = await house()
    one, two = await front(home, "sender"), await front(home, "sender2")
    await one.accept(mail("a@x.test"), BODY)
    (lost,) = await take(one, 1)
    await one.accept(mail("b@x.test"), BODY)
    (kept,) = await take(two, 1)
    close(one)
    (again,) = await take(two, 1)
    assert [r.address for r in again.recipients] == ["a@x.test"]
    await home.rest()
    assert [(row["recipient"], row["action"]) for row in await two.ask("in-doubt")] == [("a@x.test", "retry")]
    await two.settle(reply_to(home, lost, BOUNCED))
    assert (await home.sizes())["messages"] == 2
    await two.settle(reply_to(home, again))
    await two.settle(reply_to(home, kept))
    await home.sound()
    assert (await home.sizes())["messages"] == 0


async def test_a_zone_may_hold_what_is_in_doubt(house: Make, front: Make) -> None:
    """Held for an operator, counted, and not sent."""
    home = await house(zones=[{"name": "z", "in_doubt": "hold"}])
    queue = await front(home)
    await queue.accept(mail("a@x.test", "b@x.test"), BODY)
    await take(queue)
    close(queue)
    async with asyncio.timeout(60):
        while not (await home.sizes())["held"]:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.005)
    assert await home.idle()
    assert (await home.sizes())["held"] == 2
    await home.sound()


async def test_an_unknown_question_is_a_value_error(house: Make, front: Make) -> None:
    """One sentence, with the questions there are."""
    home = await house()
    with pytest.raises(ValueError, match=r"it knows .*drop, .*explain, .*in-doubt, .*lanes, .*lift, list, .*positions"):
        await (await front(home)).ask("nonsense")
    with pytest.raises(ValueError, match="limit"):
        await (await front(home)).ask("list", limits=3)


async def test_many_at_once(house: Make, front: Make) -> None:
    """Hundreds of messages in flight, by several senders: each is delivered once, and counted."""
    home = await house()
    queues = [await front(home, f"s{n}") for n in range(4)]
    receipts = await asyncio.gather(*(queues[n % 4].accept(mail(f"r{n}@{n % 7}.test"), BODY) for n in range(300)))
    ids = [receipt.id for receipt in receipts]
    seen: list[str] = []

    async def work(queue: Any) -> None:
        while len(seen) < 300:
            deliveries = await take(queue, 20)
            seen.extend(d.id for d in deliveries)
            await asyncio.gather(*(queue.settle(reply_to(home, d)) for d in deliveries))

    workers = [asyncio.ensure_future(work(queue)) for queue in queues]
    await asyncio.wait(workers, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    assert sorted(seen) == sorted(ids)
    await home.sound()


async def test_a_campaign_from_its_template_to_its_end(house: Make, front: Make) -> None:
    """Put, fetched in one piece however large, filled, paused, resumed, canceled: all over either face."""
    home = await house()
    queue = await front(home)
    lines = (f"{number} {random.Random(number).randbytes(40).hex()}\n" for number in range(9_000))
    text = "Dear {{ name }},\n" + "".join(lines)
    template = prepare(TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text(text))).pack()
    assert len(template) > 8 * 65_536
    assert await queue.ask("campaign-put", name="spring", sender="news@src.test", template=template, tenant="shop") == {
        "created": True
    }
    assert await queue.template("spring") == template
    with pytest.raises(QueueRefusal, match=r"451 4\.3\.0 the campaign's template is missing"):
        await queue.template("summer")
    people = [Recipient(f"r{number}@x.test", values=[f"N{number}"]) for number in range(3)]
    await queue.accept(Envelope("", people, columns=["name"], campaign="spring", received_ms=1_700_000_000_000), b"")
    first, second, third = await take(queue)
    assert [(one.values, one.columns, one.chunks, one.body) for one in (first, second, third)] == [
        ([[f"N{number}"]], ["name"], 0, None) for number in range(3)
    ]
    assert (first.campaign, first.tenant, first.received_ms) == ("spring", "shop", 1_700_000_000_000)
    assert first.template == second.template != ""
    await queue.settle(reply_to(home, first))
    await queue.settle(reply_to(home, second, DEFERRED))
    await queue.settle(reply_to(home, third))
    assert (await queue.ask("campaign-pause", name="spring", cause="no"))["state"] == "paused"
    assert (await queue.ask("campaign-resume", name="spring", cause="yes"))["state"] == "running"
    assert (await queue.ask("campaign-cancel", name="spring", cause="wrong"))["state"] == "canceled"
    while home.queue.campaign_commands.tick():
        await home.rest()
    await home.sound()
    (row,) = await queue.ask("campaigns")
    assert (row["accepted"], row["delivered"], row["deferred"], row["removed"], row["waiting"]) == (3, 2, 1, 1, 0)
    with pytest.raises(QueueRefusal, match=r"554 5\.5\.0 campaign 'spring' was canceled"):
        await queue.accept(Envelope("", people, columns=["name"], campaign="spring"), b"")
