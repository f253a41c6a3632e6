"""A queue's log on three real servers, of which one dies: mail goes on, and another has all that was acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from nats_servers import ThreeServers

from tests.cluster.houses import KeptHouse
from zonemta_py.cluster.log import Replaced, ReplicatedLog
from zonemta_py.cluster.log_stream import QueueLogStream
from zonemta_py.cluster.nats import Nats, NatsError
from zonemta_py.config import ClusterSection

Connect = Callable[..., Awaitable[Nats]]


async def at_home(connect: Connect, section: ClusterSection, folder: Path) -> KeptHouse:
    home = KeptHouse(folder / "house", await QueueLogStream.make(await connect("queue"), section.name, 3))
    await home.open()
    return home


@pytest.mark.parametrize("how", ["kill", "hang"])
async def test_mail_goes_on_when_a_server_dies(
    how: str, servers: ThreeServers, section: ClusterSection, connect: Connect, memory: Path
) -> None:
    """The log's leader, while large and small mail comes and a copy is being made; then the queue's machine."""
    home = await at_home(connect, section, memory)
    stored, stop, die = list[str](), asyncio.Event(), random.Random(1)

    async def client(name: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            address = f"{name}-{number}@x.test"
            size = 700_000 if number % 9 == 0 else 2000
            await home.put(address, sender="", body=b"Subject: x\r\n\r\n" + die.randbytes(size))
            stored.append(address)

    clients = [asyncio.create_task(client(name)) for name in range(4)]
    await asyncio.sleep(0.3)
    home.log.mark = home.log.mark._replace(appended=1 << 40)
    leader = (await (await connect("look")).info(home.stream.name)).leader
    server = servers.named(leader)
    server.kill() if how == "kill" else server.hang()
    before = len(stored)
    async with asyncio.timeout(60):
        while len(stored) < before + 200:  # noqa: ASYNC110 (the clients tell nobody)
            await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait(clients)
    assert [one.exception() for one in clients] == [None] * 4
    if how == "hang":
        server.go_on()
    await home.rest()
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == set(stored)
    await home.sound()
    home.abandon()


async def test_who_takes_a_log_over_has_it_alone(
    servers: ThreeServers, section: ClusterSection, connect: Connect, memory: Path
) -> None:
    """While its owner is busy; whatever that was told was kept, the other one has."""
    del servers
    stream = await QueueLogStream.make(await connect("one"), section.name, 4)
    replaced, told = list[Replaced](), list[int]()
    one = await ReplicatedLog.fenced(stream, 4, 1, "a", replaced.append)
    other = await QueueLogStream.make(await connect("other"), section.name, 4)
    taking = asyncio.ensure_future(ReplicatedLog.fenced(other, 4, 2, "b"))
    for number in range(100_000):
        one.store(number, [(b"key", b"x" * 500)], lambda _, number=number: told.append(number))  # type: ignore[misc]
        await asyncio.sleep(0.001)
        if replaced:
            break
    second = await taking
    assert replaced
    kept = await other.info()
    assert kept.last >= second.last > len(told)
    with pytest.raises(Replaced):
        await ReplicatedLog.fenced(stream, 4, 1, "a")
    one.close()
    second.close()


async def test_what_a_leader_has_lost_comes_from_the_others_and_is_written_again(
    servers: ThreeServers, section: ClusterSection, connect: Connect, memory: Path
) -> None:
    """A byte of one server's files changes, and it leads the log then. Another machine that takes the queue over has
    all of it; the queue's owner notices, and begins the log anew with its own files."""
    home = await at_home(connect, section, memory)
    die = random.Random(2)
    for number in range(90):
        await home.put(f"{number}@x.test", sender="", body=b"Subject: x\r\n\r\n" + die.randbytes(230_000))
    await home.log.stable()
    nats = await connect("look")
    server = servers.named((await nats.info(home.stream.name)).leader)
    server.kill()
    oldest = min(path for path in server.folder.rglob("*.blk") if home.stream.name in str(path))
    data = bytearray(oldest.read_bytes())
    data[len(data) // 2] ^= 4
    oldest.write_bytes(data)
    server.start()
    async with asyncio.timeout(60):
        while (await nats.info(home.stream.name)).leader != server.name or (await nats.copies(home.stream.name)).behind:
            with suppress(NatsError):
                await nats._api(
                    f"STREAM.LEADER.STEPDOWN.{home.stream.name}", {"placement": {"preferred": server.name}}, 10
                )
            await asyncio.sleep(1)
    first, last, _, lost = await home.stream.info()
    assert lost > 0
    async with asyncio.timeout(30):
        while not home.replaced:  # noqa: ASYNC110 (the log tells by an attribute)
            await asyncio.sleep(0.1)
    assert f"lacks {lost} messages" in str(home.replaced.pop())
    again = await ReplicatedLog.fenced(home.stream, 0, 1, "again")
    assert again.needs_base
    again.close()
    for _ in range(12):  # whichever copy answers: from the second time on another one leads
        found = [number async for number, _ in home.stream.read(first, last)]
        assert found == list(range(first, last + 1))
    await home.crash()  # another machine takes it over by the log alone: no file of the first one is there
    assert len(await home.listed()) == 90
    await home.sound()
    home.abandon()
