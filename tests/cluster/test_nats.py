"""The connection, against three real servers of which one dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from nats_servers import ThreeServers

from zonemta_py.cluster.nats import (
    Nats,
    NatsRefusal,
    NoAnswer,
    NoQuorum,
    NotThere,
    WrongSequence,
    _answers,
)
from zonemta_py.config import ClusterSection

Connect = Callable[..., Awaitable[Nats]]


class Log:
    """A stream of its own."""

    def __init__(self, nats: Nats) -> None:
        self.nats, self.stream, self.subject = nats, f"{nats.prefix}LOG".replace(".", "-"), f"{nats.prefix}log"

    async def make(self) -> Log:
        await self.nats.make_stream(self.stream, self.subject)
        return self

    async def append(self, data: bytes, expected: int) -> int:
        return await self.nats.append(self.subject, data, expected)

    async def append_next(self, data: bytes) -> int:
        """After whatever is the last one: a new leader may not know it at once."""
        last = (await self.nats.info(self.stream, 30)).last
        while True:
            try:
                return await self.nats.append(self.subject, data, last, 30)
            except WrongSequence as error:
                await asyncio.sleep(0.1)
                last = (await self.nats.info(self.stream, 30)).last if error.last is None else error.last

    async def sequences(self, first: int = 1) -> list[int]:
        return [block.sequence async for block in self.nats.read(self.stream, first)]


@pytest.fixture
async def log(nats: Nats) -> Log:
    return await Log(nats).make()


async def test_appended_in_order_and_read(log: Log) -> None:
    assert [await log.append(b"%d" % number, number) for number in range(3)] == [1, 2, 3]
    blocks = [block async for block in log.nats.read(log.stream, 2)]
    assert blocks == [(2, b"1"), (3, b"2")]
    assert [block.sequence async for block in log.nats.read(log.stream, 1, 2)] == [1, 2]


async def test_another_has_appended(log: Log) -> None:
    await log.append(b"one", 0)
    with pytest.raises(WrongSequence) as caught:
        await log.append(b"two", 0)
    assert caught.value.last == 1


async def test_many_on_the_way(log: Log) -> None:
    """Each expects the one before; more than one batch is read."""
    under_way = [log.nats.begin_append(log.subject, b"x" * 20_000, number) for number in range(1000)]
    assert await asyncio.gather(*under_way) == list(range(1, 1001))
    assert await log.sequences() == list(range(1, 1001))


async def test_after_one_that_fails_none_is_taken(log: Log) -> None:
    under_way = [log.nats.begin_append(log.subject, b"x", expected) for expected in (0, 7, 2)]
    found = await asyncio.gather(*under_way, return_exceptions=True)
    assert found[0] == 1
    assert [type(one) for one in found[1:]] == [WrongSequence, WrongSequence]


async def test_what_is_purged_is_gone(log: Log) -> None:
    for number in range(5):
        await log.append(b"%d" % number, number)
    await log.nats.purge(log.stream, 4)
    info = await log.nats.info(log.stream)
    assert (info.first, info.last, info.messages, info.replicas) == (4, 5, 2, 3)
    assert await log.sequences() == [4, 5]
    await log.nats.purge(log.stream, 6)
    assert await log.sequences() == []
    info = await log.nats.info(log.stream)
    assert (info.first, info.last) == (6, 5)
    assert await log.append(b"more", 5) == 6


async def test_there_is_no_such_stream(nats: Nats) -> None:
    with pytest.raises(NotThere):
        await nats.info("nowhere")


async def test_one_block(log: Log) -> None:
    await log.append(b"\0\xff", 0)
    assert await log.nats.get_block(log.stream, 1) == (1, b"\0\xff")
    with pytest.raises(NotThere):
        await log.nats.get_block(log.stream, 2)


async def test_more_than_the_server_takes_is_refused(log: Log) -> None:
    with pytest.raises(NatsRefusal, match="max_payload"):
        await log.append(bytes(2_000_000), 0)


async def test_the_leader_of_a_stream_dies(log: Log, servers: ThreeServers) -> None:
    """Everything goes on, and what is appended is there once."""
    for number in range(20):
        await log.append(b"%d" % number, number)
        if number == 5:
            servers.named((await log.nats.info(log.stream)).leader).kill()
    assert await log.sequences() == list(range(1, 21))
    bucket = log.nats.bucket("later")
    await bucket.make()
    assert await bucket.create("key", b"value") == 1


async def test_the_server_one_is_connected_to_dies(
    log: Log, servers: ThreeServers, capfd: pytest.CaptureFixture[str]
) -> None:
    await log.append(b"one", 0)
    for server in servers.all[:2]:
        server.kill()
        await log.append_next(server.name.encode())
        server.start()
    assert await log.sequences() == [1, 2, 3]
    assert "Traceback" not in capfd.readouterr().err


async def test_without_a_quorum_nothing_is_said_to_be_done(log: Log, servers: ThreeServers) -> None:
    for server in servers.all[:2]:
        server.kill()
    with pytest.raises(NoQuorum):
        await log.nats.append(log.subject, b"one", 0, timeout_s=3)
    servers.start()
    assert await log.append_next(b"two") in (1, 2)


async def test_of_several_that_create_a_key_at_once_one_does(connect: Callable[..., Awaitable[Nats]]) -> None:
    """The others are told that it is there, also while it is on its way."""
    several = [(await connect(f"n{number}")).bucket("race") for number in range(4)]
    await several[0].make()
    for number in range(30):
        said = await asyncio.gather(*(one.create(f"k{number}", b"x") for one in several), return_exceptions=True)
        assert [type(one) for one in said if not isinstance(one, int)] == [WrongSequence] * 3, said


async def test_values(nats: Nats) -> None:
    bucket = nats.bucket("values")
    await bucket.make()
    await bucket.make()
    with pytest.raises(NotThere):
        await bucket.get("a.b")
    first = await bucket.create("a.b", b"1")
    with pytest.raises(WrongSequence):
        await bucket.create("a.b", b"2")
    second = await bucket.update("a.b", b"3", first)
    with pytest.raises(WrongSequence):
        await bucket.update("a.b", b"4", first)
    assert await bucket.get("a.b") == ("a.b", b"3", second)
    third = await bucket.put("c", b"")
    assert sorted(await bucket.all()) == [("a.b", b"3", second), ("c", b"", third)]
    assert sorted(await bucket.keys()) == ["a.b", "c"]


async def test_nothing_is_in_an_empty_bucket(nats: Nats) -> None:
    bucket = nats.bucket("empty")
    await bucket.make()
    assert await bucket.all() == []


class TestRequests:
    @pytest.mark.parametrize("size", [0, 10, 3_000_000])
    async def test_it_is_answered(self, nats: Nats, connect: Connect, size: int) -> None:
        other = await connect()

        async def turned(data: bytes) -> bytes:
            return data[::-1]

        await other.serve("turn", turned)
        data = bytes(number % 251 for number in range(size))
        assert await nats.request("turn", data) == data[::-1]

    async def test_several_at_once(self, nats: Nats, connect: Connect) -> None:
        other, both = await connect(), asyncio.Barrier(2)

        async def meet(data: bytes) -> bytes:
            await both.wait()
            return data

        await other.serve("meet", meet)
        assert await asyncio.gather(nats.request("meet", b"a"), nats.request("meet", b"b")) == [b"a", b"b"]

    async def test_nobody_is_there(self, nats: Nats) -> None:
        with pytest.raises(NotThere):
            await nats.request("nobody", b"")

    async def test_it_fails_there(self, nats: Nats, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
        other = await connect()

        async def fails(data: bytes) -> bytes:
            raise ValueError("not so")

        await other.serve("fails", fails)
        with pytest.raises(NatsRefusal, match="not so"):
            await nats.request("fails", b"")
        assert "a request from another node failed" in caplog.text

    async def test_it_is_not_answered_in_time(self, nats: Nats, connect: Connect) -> None:
        other, never = await connect(), asyncio.Event()

        async def wait(data: bytes) -> bytes:
            await never.wait()
            return data

        await other.serve("wait", wait)
        with pytest.raises(NoAnswer):
            await nats.request("wait", b"", timeout_s=0.3)

    async def test_whoever_answers_late_says_that_it_works(
        self, nats: Nats, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And whoever has gone meanwhile, with the answer, is not waited for."""
        monkeypatch.setattr("zonemta_py.cluster.nats.WORKING_S", 0.1)
        monkeypatch.setattr("zonemta_py.cluster.nats.SILENT_S", 1.0)
        other, begun = await connect(), asyncio.Event()

        async def slow(data: bytes) -> bytes:
            begun.set()
            await asyncio.sleep(float(data))
            return data

        await other.serve("slow", slow)
        assert await nats.request("slow", b"3", timeout_s=60) == b"3"
        begun.clear()
        asked = asyncio.create_task(nats.request("slow", b"100", timeout_s=10_000))
        await begun.wait()
        await other.close()
        with pytest.raises(NoAnswer):
            await asyncio.wait_for(asked, 60)

    async def test_served_from_the_moment_that_a_server_dies(
        self, nats: Nats, connect: Connect, servers: ThreeServers
    ) -> None:
        other = await connect()

        async def same(data: bytes) -> bytes:
            return data

        for number, server in enumerate(servers.all):
            server.kill()
            await other.serve(f"first{number}", same)
            await asyncio.sleep(0.03)
            await other.serve(f"second{number}", same)
            for name in ("first", "second"):
                assert await nats.request(f"{name}{number}", b"x") == b"x"
            server.start()

    async def test_servers_die_and_come_back(self, nats: Nats, connect: Connect, servers: ThreeServers) -> None:
        other = await connect()

        async def same(data: bytes) -> bytes:
            return data

        await other.serve("same", same)
        for server in servers.all:
            server.kill()
            for number in range(20):
                data = b"%d" % number
                while True:
                    try:
                        assert await nats.request("same", data) == data
                        break
                    except NoAnswer:  # it was on the way
                        continue
            server.start()


async def test_a_wrong_password(section: ClusterSection) -> None:
    wrong = section.model_copy(update={"password": "wrong"})
    with pytest.raises(NatsRefusal, match=r"compare cluster\.username"):
        await Nats.connect(wrong, "test", timeout_s=3)


async def test_no_server_is_there(section: ClusterSection, unused_tcp_port: int) -> None:
    away = section.model_copy(update={"servers": [f"nats://127.0.0.1:{unused_tcp_port}"]})
    with pytest.raises(NoQuorum, match="connection refused; start its servers"):
        await Nats.connect(away, "test", timeout_s=0.5)


async def test_all_servers_hang_and_go_on(log: Log, servers: ThreeServers) -> None:
    for server in servers.all:
        server.hang()
    try:
        with pytest.raises(NoQuorum):
            await log.nats.append(log.subject, b"one", 0, timeout_s=2)
    finally:
        for server in servers.all:
            server.go_on()
    assert await log.append_next(b"two") in (1, 2)


async def test_all_servers_die_and_come_back(log: Log, servers: ThreeServers) -> None:
    """What was acknowledged is there; what is under way waits."""
    for number in range(10):
        await log.append(b"%d" % number, number)
    for server in servers.all:
        server.kill()
    waiting = asyncio.create_task(log.nats.append(log.subject, b"10", 10, 60))
    await asyncio.sleep(1)
    servers.start()
    assert await waiting == 11
    assert await log.sequences() == list(range(1, 12))


async def test_a_late_answer_to_a_ping_ends_no_reading(nats: Nats, servers: ThreeServers) -> None:
    """nats-py's own wait for one ends its task that reads if the answer comes after it was given up."""
    client = nats._client
    assert client is not None
    for server in servers.all:
        server.hang()
    assert not await _answers(client, 0.2)
    for server in servers.all:
        server.go_on()
    await nats.account()
    assert not client._reading_task.done()


async def test_who_reads_nothing_any_more_connects_anew(nats: Nats) -> None:
    """Whatever has ended nats-py's task that reads: its `flush` says then that all is well."""
    client = nats._client
    assert client is not None
    client._reading_task.cancel()
    await asyncio.wait({client._reading_task})
    async with asyncio.timeout(30):
        while nats.connections < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    await nats.account()


async def test_a_stream_that_a_server_has_not_heard_of_yet_is_asked_for_again(connect: Connect, log: Log) -> None:
    """So it is for a moment after it was made; here somebody takes it away, and makes it again."""
    other = await connect()
    await other.delete_stream(log.stream)
    asked = asyncio.create_task(log.nats.info(log.stream))
    await asyncio.sleep(0.5)
    assert not asked.done()
    await other.make_stream(log.stream, log.subject)
    assert (await asked).last == 0
    await other.delete_stream(log.stream)
    with pytest.raises(NotThere, match="stream not found"):
        await other.info(log.stream)
