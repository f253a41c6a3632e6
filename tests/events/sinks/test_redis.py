"""Events to a stream of Redis."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from redis.asyncio import Redis

sys.path.insert(0, str(Path(__file__).resolve().parent))

from broker_suite import PASSWORD, USER, BrokerSuite, Came, Server, event
from brokers.servers import RedisServer

from zonemta_py.events.sinks.redis import RedisSink


class Replica(RedisServer):
    """Of the server at `master`."""

    def __init__(self, folder: Path, master: Server) -> None:
        super().__init__(folder)
        self.more = f"replicaof 127.0.0.1 {master.port}\nmasteruser {USER}\nmasterauth {PASSWORD}\n"


class TestRedis(BrokerSuite):
    kind, server_class, sink_class = "redis", RedisServer, RedisSink

    def client(self, server: Server) -> Redis:
        return Redis(port=server.port, username=USER, password=PASSWORD)

    async def clear(self, server: Server) -> None:
        async with self.client(server) as client:
            await client.config_set("maxmemory", "0")
            await client.flushall()

    async def consumed(self, server: Server) -> list[Came]:
        came = []
        async with self.client(server) as client:
            for key in await client.keys("*"):
                for _, row in await client.xrange(key):
                    assert row[b"subject"].startswith(b"message")
                    assert f"zonemta.{row[b'type'].decode()}" in row[b"event"].decode()
                    came.append(Came(key.decode(), row[b"id"].decode(), row[b"event"]))
        return came

    def addressed(self, template: str) -> dict[str, str]:
        return {"stream": template}

    async def test_a_database_of_its_own_in_the_url(self, server: Server) -> None:
        async with self.opened(server, url=f"{server.url}/3") as sink:
            await sink.send([event(1)])
        async with Redis(port=server.port, username=USER, password=PASSWORD, db=3) as client:
            assert await client.xlen("zonemta") == 1

    async def test_full_memory_is_down_and_nothing_is_lost(self, server: Server) -> None:
        batch = [event(seq) for seq in range(5)]
        async with self.client(server) as client:
            await client.config_set("maxmemory", "1")
            assert "its memory is full" in await self.down(self.sink(server), *batch)
            await client.config_set("maxmemory", "0")
        assert await self.consumed(server) == []
        async with self.opened(server) as sink:
            await sink.send(batch)
        assert [one.id for one in await self.consumed(server)] == [one.id for one in batch]

    async def test_a_key_that_is_no_stream(self, server: Server) -> None:
        async with self.client(server) as client:
            await client.set("zonemta", "text")
            said = await self.down(self.sink(server), event(1))
            await client.delete("zonemta")
        assert said == "the key named by `stream` is there and no stream: name another"

    async def test_the_stream_keeps_about_as_many_as_said(self, server: Server) -> None:
        async with self.opened(server, stream_max=100) as sink:
            for start in range(0, 1000, 100):
                await sink.send([event(seq) for seq in range(start, start + 100)])
        assert 100 <= len(await self.consumed(server)) <= 300  # Redis drops whole nodes of its tree

    async def test_a_certificate_for_those_who_ask_for_one(self, server: Server, tmp_path: Path) -> None:
        asking = RedisServer(tmp_path / "asking", self.certificate, self.trusted)
        asking.start()
        try:
            keys = {"url": asking.tls_url, "ca_file": self.trusted}
            assert await self.down(self.sink(asking, **keys), event(1))
            async with self.opened(asking, **keys, client_certificate=self.certificate) as sink:
                await sink.send([event(1)])
        finally:
            asking.end()

    async def test_replicas_must_have_the_events(self, server: Server, tmp_path: Path) -> None:
        sink = self.sink(server, replicas=1, timeout_s=1.0)
        assert await self.down(sink, event(1)) == "0 of 1 replicas have the events"
        replica = Replica(tmp_path / "replica", server)
        replica.start()
        try:
            async with asyncio.timeout(60), self.client(server) as client:
                while (await client.info("replication"))["connected_slaves"] == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            async with self.opened(server, replicas=1) as sink:
                await sink.send([event(2)])
            assert "queue-2-0" in [one.id for one in await self.consumed(replica)]
            said = await self.down(self.sink(replica), event(3))
            assert said == "it is a replica, which takes nothing: name its primary in url"
        finally:
            replica.end()
