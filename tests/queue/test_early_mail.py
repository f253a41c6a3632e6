"""Mail that comes before recovery is over: taken, judged by all that was already known the crash, counted exactly."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import BOUNCED, DEFERRED, QueueRefusal, Receipt

Make = Callable[..., Any]


def named(home: Any, kind: Type) -> list[str]:
    return [packing.unpack(r.body)[0] for r in segments.read(home.folder / "journal") if r.type == kind]


async def delivered(home: Any) -> set[str]:
    """Ids of all that goes out when everything is taken."""
    found: set[str] = set()
    while deliveries := await home.leases():
        for delivery in deliveries:
            found.add(delivery.id)
            await home.settle(delivery)
    return found


async def unfinished_business(home: Any) -> None:
    """Results that the store has not seen, leases, a message without its record, half a large one."""
    for number in range(8):
        await home.put(f"r{number}@x{number}.test", "other@y.test")
    await home.rest()
    deliveries = await home.lease(100)
    home.queue.core.disk.lines._start = lambda: None  # nothing more reaches the store
    for number, delivery in enumerate(deliveries[:9]):
        await home.settle(delivery, (1, DEFERRED, BOUNCED)[number % 3])


@pytest.mark.parametrize("power", [False, True])
async def test_mail_comes_while_recovery_goes_on(house: Make, power: bool) -> None:
    """Taken before and in the midst of it; nothing of it is counted wrong, taken for a leftover, or recorded twice."""
    home = await house()
    await unfinished_business(home)
    before = max(named(home, Type.ENVELOPE))
    opening = await home.crash_and_begin(power)
    taken = [await home.put("early@x.test", "early@y.test")]
    large = home.queue.begin()
    await large.write(bytes(65_536))
    recovering = asyncio.ensure_future(opening.finish())
    while not recovering.done():
        taken.append(await home.put(f"during{len(taken)}@x.test"))
        await asyncio.sleep(0)
    await recovering
    await large.write(bytes(65_536))
    taken.append((await large.accept(Envelope("ann@src.test", [Recipient("large@x.test")], 131_073), b"x")).id)
    assert min(taken) > before
    assert len(set(taken)) == len(taken) > 3
    await home.sound()
    assert sorted(set(taken) & set(named(home, Type.ENVELOPE))) == sorted(taken)
    assert len(named(home, Type.ENVELOPE)) == len(set(named(home, Type.ENVELOPE)))
    await home.crash(power)
    await home.sound()
    assert set(taken) <= await delivered(home)


@pytest.mark.parametrize("power", [False, True])
async def test_a_crash_in_the_midst_of_recovery_costs_nothing(house: Make, power: bool) -> None:
    """The mail taken meanwhile is there, and the recovery that never ended is made good by the next."""
    home = await house()
    await unfinished_business(home)
    taken = []
    for round_number in range(3):
        opening = await home.crash_and_begin(power)
        taken.append(await home.put(f"round{round_number}@x.test"))
        recovering = asyncio.ensure_future(opening.finish())
        await asyncio.sleep(0)
        taken.append(await home.put(f"again{round_number}@x.test"))
        recovering.cancel()
        await asyncio.wait([recovering])
    await home.crash(power)
    await home.sound()
    assert set(taken) <= await delivered(home)


async def test_who_was_suppressed_is_left_out_at_once(house: Make) -> None:
    """The list holds for the first message already, though the store has yet to hear of the last changes."""
    home = await house()
    for address, how in (("bob@x.test", "suppress"), ("cid@x.test", "suppress"), ("cid@x.test", "unsuppress")):
        if how == "suppress":
            question = home.queue.ask("suppress", rows=[[address, "complaint", "because", "", "tester", ""]])
        else:
            question = home.queue.ask("unsuppress", addresses=[address], by="tester")
        await question
    home.queue.core.disk.lines._start = lambda: None
    late = asyncio.ensure_future(home.queue.ask("suppress", rows=[["dan@x.test", "manual", "", "", "tester", ""]]))
    await asyncio.sleep(0)
    await home.queue.core.disk.journal.stable()
    opening = await home.crash_and_begin(drop=True)
    late.cancel()
    people = [Recipient(f"{name}@x.test") for name in ("bob", "cid", "dan", "eve")]
    receipt = await home.queue.accept(Envelope("ann@src.test", people, 3), b"x\r\n")
    assert (receipt.accepted, receipt.suppressed) == (2, 2)
    await opening.finish()
    receipt = await home.queue.accept(Envelope("ann@src.test", people, 3), b"x\r\n")
    assert (receipt.accepted, receipt.suppressed) == (2, 2)
    await home.sound()


async def test_a_canceled_campaign_takes_nothing_more(house: Make) -> None:
    """The order is obeyed before the store has heard of it."""
    home = await house()
    template = prepare(TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi\n"))).pack()
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=template)
    home.queue.core.disk.lines._start = lambda: None
    order = asyncio.ensure_future(home.queue.ask("campaign-cancel", name="spring", cause="wrong list"))
    await asyncio.sleep(0)
    await home.queue.core.disk.journal.stable()
    opening = await home.crash_and_begin(drop=True)
    order.cancel()
    batch = Envelope("", [Recipient("ann@x.test", values=["Ann"])], columns=["name"], campaign="spring")
    with pytest.raises(QueueRefusal, match="was canceled"):
        await home.queue.accept(batch, b"")
    await opening.finish()
    await home.sound()


async def test_a_repeated_request_is_known_at_once(house: Make) -> None:
    """It gets the first answer, and nothing is stored twice."""
    home = await house()
    digest = hashlib.sha256(b"content").digest()
    envelope = Envelope("ann@src.test", [Recipient("bob@x.test")], 3, request="key one", digest=digest)
    first = await home.queue.accept(envelope, b"x\r\n")
    opening = await home.crash_and_begin()
    assert await home.queue.accept(envelope, b"x\r\n") == Receipt(first.id, 1, 0, repeated=True)
    await opening.finish()
    assert (await home.sizes())["messages"] == 1


async def test_however_many_wait_few_are_read_for_a_missing_record(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message without its record costs a look at its own recipients, not at everybody's."""
    home = await house(zones=[{"name": "z", "default": True}, {"name": "other", "recipient_domains": ["o.test"]}])
    for start in range(0, 3_000, 500):
        await home.put(*(f"r{start + each}@d{each % 7}.test" for each in range(500)))
    await home.put("o1@o.test")
    await home.rest()
    await home.queue.position()
    message_id = await home.put("bob@x.test", "cid@d1.test", "o2@o.test")
    read = 0
    scan = Store.scan

    def counted(self: Store, start: bytes, stop: bytes) -> Any:
        nonlocal read
        for row in scan(self, start, stop):
            read += row[0].startswith((b"delivery-zone ", b"parked ", b"deferred ", b"held "))
            yield row

    opening = await home.crash_and_begin(drop=True)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "scan", counted)
        await opening.finish()
    assert read < 100
    assert message_id in named(home, Type.ENVELOPE)
    await home.sound()
