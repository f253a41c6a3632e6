"""Events to NATS, with JetStream and without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import DiscardPolicy, StreamConfig
from nats.js.errors import ServerError

sys.path.insert(0, str(Path(__file__).resolve().parent))

from broker_suite import PASSWORD, USER, WEAK_USER, BrokerSuite, Came, Server, event
from brokers.servers import NatsServer

from zonemta_py.events.sinks.base import Rejected
from zonemta_py.events.sinks.nats import NatsSink

SUBJECTS = ["zonemta.>"]


@asynccontextmanager
async def connected(server: Server, **more: Any) -> AsyncIterator[nats.NATS]:
    client = await nats.connect(server.url, user=USER, password=PASSWORD, **more)
    try:
        yield client
    finally:
        await client.close()


class TestNats(BrokerSuite):
    kind, server_class, sink_class = "nats", NatsServer, NatsSink

    @classmethod
    def make(cls, folder: Path) -> Server:
        return NatsServer(folder)

    @pytest.fixture(scope="class")
    @classmethod
    def secured(cls, server: Server) -> Iterator[Server]:
        """A second server, for NATS asks TLS of all or of none; it asks for certificates, too."""
        other = NatsServer(server.folder.parent / "secured", cls.certificate, cls.trusted)
        other.start()
        yield other
        other.end()

    async def clear(self, server: Server) -> None:
        await self.stream(server)

    async def stream(self, server: Server, **more: Any) -> None:
        """An empty stream."""
        async with connected(server) as client:
            stream = client.jetstream()
            for info in await stream.streams_info():
                await stream.delete_stream(str(info.config.name))
            for _ in range(600):
                try:
                    await stream.add_stream(StreamConfig(**{"name": "events", "subjects": SUBJECTS, **more}))
                except ServerError:  # the folder of the one of that name is still being removed
                    await asyncio.sleep(0.1)
                else:
                    return
            pytest.fail("the server makes no stream")

    async def consumed(self, server: Server, **more: Any) -> list[Came]:
        came: list[Came] = []
        async with connected(server, **more) as client:
            there = await client.jetstream().pull_subscribe("zonemta.>", stream="events")
            while True:
                try:
                    messages = await there.fetch(500, timeout=0.2)
                except TimeoutError:
                    if (await there.consumer_info()).num_pending:
                        continue
                    return came
                for message in messages:
                    headers = message.headers or {}
                    assert headers["Content-Type"].startswith("application/cloudevents+json")
                    came.append(Came(message.subject, headers["Nats-Msg-Id"], message.data))
                    await message.ack()

    def addressed(self, template: str) -> dict[str, str]:
        return {"subject": template}

    async def test_the_same_event_again_is_there_once(self, server: Server) -> None:
        async with self.opened(server) as sink:
            for _ in range(3):
                await sink.send([event(1), event(2)])
        assert [one.id for one in await self.consumed(server)] == ["queue-1-0", "queue-2-0"]

    async def test_no_stream_takes_the_subject(self, server: Server) -> None:
        said = await self.down(self.sink(server, subject="elsewhere.{type}"), event(1))
        assert said == "no stream takes subject 'elsewhere.{type}': add one, or set acknowledged = false"

    async def test_a_full_stream_is_down_and_nothing_is_lost(self, server: Server) -> None:
        await self.stream(server, max_msgs=4, discard=DiscardPolicy.NEW)
        batch = [event(seq) for seq in range(8)]
        assert "the stream refuses: maximum messages exceeded" in await self.down(self.sink(server), *batch)
        assert [one.id for one in await self.consumed(server)] == [one.id for one in batch[:4]]
        async with connected(server) as client:
            await client.jetstream().update_stream(StreamConfig(name="events", subjects=SUBJECTS, max_msgs=-1))
        async with self.opened(server) as sink:
            await sink.send(batch)
        assert [one.id for one in await self.consumed(server)] == [one.id for one in batch]

    async def test_an_event_larger_than_the_stream_takes_is_rejected_and_the_others_arrive(
        self, server: Server
    ) -> None:
        await self.stream(server, max_msg_size=300)
        large = event(2)._replace(body=b"{" + b" " * 400 + b"}")
        async with self.opened(server) as sink:
            with pytest.raises(Rejected) as caught:
                await sink.send([event(1), large, event(3)])
        assert caught.value.indices == (1,)
        assert [one.id for one in await self.consumed(server)] == ["queue-1-0", "queue-3-0"]

    async def test_what_a_user_may_not_do_is_said(self, server: Server) -> None:
        said = await self.down(self.sink(server, username=WEAK_USER), event(1))
        assert 'ermissions violation for publish to "zonemta.delivered"' in said.lower()

    async def test_core_nats_reaches_those_who_listen(self, server: Server) -> None:
        async with connected(server) as client:
            listener = await client.subscribe("core.*")
            await client.flush()
            async with self.opened(server, acknowledged=False, subject="core.{type}") as sink:
                await sink.send([event(1), event(2)])
            came = [await listener.next_msg(5) for _ in range(2)]
        assert [(one.headers or {})["Nats-Msg-Id"] for one in came] == ["queue-1-0", "queue-2-0"]

    async def test_core_nats_a_dead_server_is_down(self, server: Server) -> None:
        sink = self.sink(server, acknowledged=False)
        await sink.open()
        server.kill()
        try:
            assert await self.down_now(sink, event(1))
        finally:
            await asyncio.to_thread(server.start)

    async def test_tls(self, secured: Server) -> None:
        keys = {"url": secured.tls_url, "ca_file": self.trusted, "acknowledged": False}
        async with self.opened(secured, **keys, client_certificate=self.certificate) as sink:
            await sink.send([event(1)])
        assert await self.down(self.sink(secured, **keys), event(1))  # it shows none

    async def test_a_certificate_of_nobody_we_trust(self, secured: Server) -> None:
        assert "certificate" in (await self.down(self.sink(secured, url=secured.tls_url))).lower()

    async def test_a_login_is_not_sent_in_the_clear_where_tls_is_wanted(self) -> None:
        """A server that offers no TLS, and keeps what it hears."""
        heard = b""

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            writer.write(b'INFO {"server_id":"x","version":"2.10.0","auth_required":true,"max_payload":1048576}\r\n')
            heard += await reader.read(4096)
            writer.close()

        async with await asyncio.start_server(listen, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            for login in ({"username": USER}, {"username": ""}):
                url = f"tls://127.0.0.1:{port}"
                said = await self.down(self.sink(None, url=url, timeout_s=2.0, **login), event(1))
                assert said == "it offers no TLS: set up TLS there, or write nats:// with cleartext = true"
        assert heard == b""
