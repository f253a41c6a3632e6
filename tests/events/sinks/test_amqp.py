"""Events to RabbitMQ."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import aio_pika
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from broker_suite import PASSWORD, USER, BrokerSuite, Came, Server, event
from brokers.servers import RabbitServer

from zonemta_py.events.sinks.amqp import AmqpSink
from zonemta_py.events.sinks.base import Rejected


class TestAmqp(BrokerSuite):
    kind, server_class, sink_class = "amqp", RabbitServer, AmqpSink
    settings: ClassVar[dict[str, Any]] = {"exchange": "events"}

    async def clear(self, server: Server) -> None:
        async with await aio_pika.connect(port=server.port, login=USER, password=PASSWORD) as connection:
            channel = await connection.channel()
            for name in ("events", "short"):
                await (await channel.get_queue(name)).purge()

    async def consumed(self, server: Server, queue: str = "events") -> list[Came]:
        came = []
        async with await aio_pika.connect(port=server.port, login=USER, password=PASSWORD) as connection:
            there = await (await connection.channel()).get_queue(queue)
            while (message := await there.get(no_ack=True, fail=False)) is not None:
                assert message.message_id is not None
                assert message.content_type.startswith("application/cloudevents+json")
                came.append(Came(str(message.routing_key), message.message_id, message.body))
        return came

    def addressed(self, template: str) -> dict[str, str]:
        return {"routing_key": template}

    async def test_an_exchange_that_is_not_there(self, server: Server) -> None:
        said = await self.down(self.sink(server, exchange="nowhere"))
        assert said == "virtual host '/' has no exchange 'nowhere': declare it there"

    async def test_a_virtual_host_of_its_own_in_the_url(self, server: Server) -> None:
        said = await self.down(self.sink(server, url=f"{server.url}/other"))
        assert said == "virtual host 'other' has no exchange 'events': declare it there"

    async def test_a_virtual_host_that_is_not_there(self, server: Server) -> None:
        said = await self.down(self.sink(server, url=f"{server.url}/nowhere"))
        assert said == "it refuses virtual host 'nowhere': see that it is there, and open to the user"

    async def test_an_event_that_no_queue_takes_is_rejected_and_the_others_arrive(self, server: Server) -> None:
        batch = [event(1, type="zonemta"), event(2), event(3, type="zonemta")]
        async with self.opened(server, routing_key="{type}.x") as sink:
            with pytest.raises(Rejected) as caught:
                await sink.send(batch)
        assert caught.value.indices == (1,)
        assert str(caught.value) == "no queue is bound to exchange 'events', routing key 'delivered.x'"
        assert [one.id for one in await self.consumed(server)] == ["queue-1-0", "queue-3-0"]

    async def test_not_mandatory_the_server_drops_what_nobody_asked_for(self, server: Server) -> None:
        async with self.opened(server, routing_key="nobody", mandatory=False) as sink:
            await sink.send([event(1)])
        assert await self.consumed(server) == []

    async def test_a_full_queue_is_down_and_nothing_is_lost(self, server: Server) -> None:
        keys = {"exchange": "", "routing_key": "short"}
        batch = [event(seq) for seq in range(8)]
        assert "a queue is full" in await self.down(self.sink(server, **keys), *batch)
        await self.consumed(server, "short")
        async with self.opened(server, **keys) as sink:
            await sink.send(batch[4:])
        assert [one.id for one in await self.consumed(server, "short")] == [one.id for one in batch[4:]]

    async def test_an_alarm_of_full_memory_is_down(self, server: Server) -> None:
        assert isinstance(server, RabbitServer)
        sink = self.sink(server, timeout_s=1.0)
        await sink.open()
        server.alarm(True)
        try:
            assert "alarm" in await self.down_now(sink, event(1))
        finally:
            server.alarm(False)
        async with self.opened(server) as sink:
            await sink.send([event(1)])
        assert "queue-1-0" in [one.id for one in await self.consumed(server)]
