"""How a site wants to be spoken to: learned from a result, kept over a crash, seen, forgotten by order or in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zonemta_py.config import Throttle
from zonemta_py.delivery import worker
from zonemta_py.disk import packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import DELIVERED, RELEASED, Delivery, Outcome, Result

TOO_MANY = "452 4.5.3 Too many recipients"


def people(count: int, domain: str = "x.test") -> list[str]:
    return [f"r{number}@{domain}" for number in range(count)]


def ten_only(delivery: Delivery, stalled: bool = False) -> Result:
    """Ten were taken, the others had no room."""
    everyone = list(range(len(delivery.recipients)))
    outcomes = [
        Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", everyone[:10]),
        Outcome(RELEASED, Reply(451, "4.3.2", "not its turn"), "limit", everyone[10:]),
    ]
    return Result(delivery.lease, outcomes, opened=True, recipients_max=10, stalled=stalled, manner=TOO_MANY)


async def rows(home: Any) -> list[dict[str, Any]]:
    return [row for row in await home.queue.ask("standing") if row["kind"] in ("recipients", "pipelining")]


async def test_learned_and_kept(house: Any) -> None:
    """No lease to that site has more recipients from then on, also after a crash; others are as they were."""
    home = await house()
    await home.put(*people(40))
    [first] = await home.lease()
    assert (len(first.recipients), first.stepwise) == (40, False)
    await home.queue.settle(ten_only(first, stalled=True))
    later = await home.leases()
    assert [(len(delivery.recipients), delivery.stepwise) for delivery in later] == [(10, True)] * 3
    await home.put(*people(20, "y.test"))
    [other] = await home.leases()
    assert (len(other.recipients), other.stepwise) == (20, False)
    await home.crash()
    assert {(row["kind"], row["name"], row["most"]) for row in await rows(home)} == {
        ("recipients", "x.test", 10), ("pipelining", "x.test", 0),
    }  # fmt: skip
    assert all(row["cause"] == TOO_MANY for row in await rows(home))
    again = [delivery for delivery in await home.leases() if delivery.site == "x.test"]
    assert {(len(delivery.recipients), delivery.stepwise) for delivery in again} == {(10, True)}


async def test_in_position_records_too(house: Any) -> None:
    """It outlives the segment that it was written in."""
    home = await house()
    await home.put(*people(20))
    await home.queue.settle(ten_only((await home.lease())[0]))
    await home.queue.maintenance.position()
    assert home.queue.core.schedule.policy.state()["manners"][0][:3] == ["recipients", "x.test", 10]
    await home.crash()
    assert [row["most"] for row in await rows(home)] == [10]


async def test_forgotten(house: Any) -> None:
    """An operator's order, or a week, makes it unknown; the order is journalled."""
    home = await house()
    await home.put(*people(60))
    await home.queue.settle(ten_only((await home.lease())[0], stalled=True))
    assert await home.queue.ask("lift", kind="recipients", name="x.test")
    assert [row["kind"] for row in await rows(home)] == ["pipelining"]
    assert not await home.queue.ask("lift", kind="recipients", name="x.test")
    await home.rest()
    found = [packing.unpack(r.body) for r in segments.read(home.folder / "journal", 0, []) if r.type == Type.STANDING]
    assert [body[:2] for body in found][-1] == ["lift", ["recipients", "x.test"]]
    await home.move(8 * 86_400)
    assert await rows(home) == []


async def test_only_less_is_news(house: Any) -> None:
    """What is known to be less stays, and is not written again."""
    home = await house()
    manners = home.queue.core.schedule.policy.manners
    for most in (10, 10, 50, 4):
        manners.learn("x.test", most, False, TOO_MANY)
    await home.rest()
    found = [packing.unpack(r.body) for r in segments.read(home.folder / "journal", 0, []) if r.type == Type.STANDING]
    assert [body[2][0] for body in found] == [10, 4]


async def test_explained(house: Any) -> None:
    """`explain` says it of a destination, whether mail waits for it or not."""
    home = await house()
    await home.put(*people(20))
    [first] = await home.lease()
    await home.queue.settle(ten_only(first))
    [second] = await home.leases()
    [learned] = (await home.queue.ask("explain", what="x.test"))["learned"]
    assert (learned["most"], learned["cause"]) == (10, TOO_MANY)
    await home.settle(second)
    assert (await home.queue.ask("explain", what="x.test"))["learned"] == [learned]


async def test_limits_take_back_what_was_released(house: Any) -> None:
    """Recipients that go back untried have not used a limit, so the limit stays exact."""
    home = await house(throttles=[Throttle(name="day", per=["site"], recipients="50/d", burst=50)])
    await home.put(*people(100))
    [first] = await home.leases()
    assert (len(first.recipients), first.counted) == (50, True)
    await home.queue.settle(ten_only(first))
    later = await home.leases()
    assert sum(len(delivery.recipients) for delivery in later) == 40


@pytest.mark.parametrize("limited", [False, True], ids=["free", "counted"])
async def test_from_end_to_end(limited: bool, house: Any) -> None:
    """A hundred recipients at a server that takes ten: all delivered at once, each by one message and no other."""
    taken: list[list[str]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 x\r\n")
        names: list[str] = []
        while line := (await reader.readline()).decode():
            answer = "250 ok"
            if line[:4] == "EHLO":
                answer = "250-x\r\n250 PIPELINING"
            elif line[:4] == "MAIL":
                names = []
            elif line[:4] == "RCPT" and len(names) >= 10:
                answer = TOO_MANY
            elif line[:4] == "RCPT":
                names.append(line.partition("<")[2].partition("@")[0])
            elif line[:4] == "DATA":
                writer.write(b"354 go\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                taken.append(names)
            writer.write(f"{answer}\r\n".encode())
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    throttles = [Throttle(name="all", per=["site"], messages="1000/s")] if limited else []
    zone = {"name": "default", "default": True, "host": "127.0.0.1", "port": port, "tls": "none"}
    home = await house(throttles=throttles, zones=[zone])
    await home.put(*people(100))
    sending = asyncio.create_task(worker.run(home.config, home.queue, Host.empty(), 5))
    async with asyncio.timeout(60):
        while any((await home.sizes()).values()):  # noqa: ASYNC110 - the queue tells nobody that it is empty
            await asyncio.sleep(0.02)
    sending.cancel()
    await asyncio.wait([sending])
    server.close()
    assert [len(names) for names in taken] == [10] * 10
    assert sorted(name for names in taken for name in names) == sorted(f"r{number}" for number in range(100))
    assert [row["most"] for row in await rows(home)] == [10]
