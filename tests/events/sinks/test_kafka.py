"""Events to Kafka. No broker here is Apache Kafka: Tansu, another broker of its protocol, is killed and started again
with what it has stored; librdkafka's own broker for tests knows idempotent producers, and says what it is told to say.
Neither knows a user who may log in: a login that is accepted is not shown."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer

sys.path.insert(0, str(Path(__file__).resolve().parent))

from broker_suite import PASSWORD, BrokerSuite, Came, Server, assert_in_order, event
from brokers.kafka import KafkaServer, TestBroker
from ports import free_port

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Rejected, SinkClient, SinkDown
from zonemta_py.events.sinks.kafka import KafkaSink

NOT_LEADER, TOO_LARGE, TOPIC_FORBIDDEN, CLUSTER_FORBIDDEN = 6, 10, 29, 31
ADDRESSED = ("zonemta.my_zone_.bounced", "zonemta.default.delivered")


async def read(url: str, topics: Sequence[str]) -> list[Came]:
    """All records of these topics; of one partition oldest first."""
    came = []
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=url.partition("//")[2])
    await consumer.start()
    try:
        places = sorted(consumer.assignment())
        ends = await consumer.end_offsets(places)
        for place in places:
            consumer.seek(place, 0)
            while await consumer.position(place) < ends[place]:
                for record in (await consumer.getmany(place, timeout_ms=1000)).get(place, []):
                    assert record.headers == (("content-type", b"application/cloudevents+json; charset=utf-8"),)
                    assert record.key.startswith(b"message")
                    came.append(Came(record.topic, json.loads(record.value)["id"], record.value))
    finally:
        await consumer.stop()
    return came


@asynccontextmanager
async def tls_in_front(server: Server, port: int, certificate: Path) -> AsyncIterator[None]:
    """Ends TLS at `port` and passes on what is inside."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    listening = await asyncio.start_server(accept, "127.0.0.1", port, ssl=context)
    try:
        yield
    finally:
        listening.close()


class TestKafka(BrokerSuite):
    """At Tansu."""

    kind, server_class, sink_class = "kafka", KafkaServer, KafkaSink
    settings: ClassVar[dict[str, Any]] = {"username": "", "password": "", "idempotent": False, "timeout_s": 2.0}
    _numbers = count()

    @classmethod
    def make(cls, folder: Path) -> Server:
        return KafkaServer(folder)

    @pytest.fixture(scope="class")
    @classmethod
    def locked(cls, server: Server) -> Iterator[Server]:
        """It asks everybody for a login."""
        other = KafkaServer(server.folder.parent / "locked", authentication=True, stored=False)
        other.start()
        yield other
        other.end()

    @pytest.fixture
    async def secured(self, server: Server, tmp_path: Path) -> AsyncIterator[Server]:
        port = free_port()
        other = KafkaServer(tmp_path / "secured", advertised=port, stored=False)
        other.tls_port = port
        await asyncio.to_thread(other.start)
        other.create("zonemta")
        try:
            async with tls_in_front(other, port, self.certificate):
                yield other
        finally:
            other.end()

    async def clear(self, server: Server) -> None:
        """A topic for each test."""
        assert isinstance(server, KafkaServer)
        self._topics: tuple[str, ...] = (f"zonemta-{next(self._numbers)}",)
        server.create(self._topics[0], 1)

    def sink(self, server: Server | None, **more: Any) -> SinkClient:
        return super().sink(server, **{"topic": self._topics[0], **more})

    async def consumed(self, server: Server) -> list[Came]:
        return await read(server.url, self._topics)

    def addressed(self, template: str) -> dict[str, str]:
        self._topics = ADDRESSED
        return {"topic": template}

    async def test_type_and_zone_choose_where_an_event_goes(self, server: Server) -> None:
        assert isinstance(server, KafkaServer)
        for topic in ADDRESSED:
            server.create(topic)
        await super().test_type_and_zone_choose_where_an_event_goes(server)

    async def test_the_events_of_a_message_are_in_one_partition_in_their_order(self, server: Server) -> None:
        assert isinstance(server, KafkaServer)
        server.create("partitions", 4)
        self._topics = ("partitions",)
        async with self.opened(server) as sink:
            for start in range(0, 400, 100):
                await sink.send([event(seq, seq % 5) for seq in range(start, start + 100)])
        came = await self.consumed(server)
        assert len(came) == 400
        assert_in_order(came)

    async def _kill_and_start(self, server: Server, pause_s: float) -> None:
        """Away for longer than the library tries on its own."""
        await super()._kill_and_start(server, 1.5)

    async def test_wrong_password(self, locked: Server) -> None:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            keys = {"username": "zonemta", "password": PASSWORD, "sasl_mechanism": mechanism}
            assert "correct username and password" in await self.down(self.sink(locked, **keys))

    async def test_a_user_who_may_not_write(self, broker: TestBroker) -> None:
        broker.refuse(broker.PRODUCE, TOPIC_FORBIDDEN)
        said = await self.down(at(broker), event(1))
        assert said == "it does not permit a client without username to write to topic 'zonemta': add that right there"

    @pytest.fixture
    def broker(self) -> Iterator[TestBroker]:
        yield from running_broker()

    async def test_tls(self, secured: Server) -> None:
        async with self.opened(secured, url=secured.tls_url, ca_file=self.trusted, topic="zonemta") as sink:
            await sink.send([event(1)])
        # clients are sent to the port with TLS, so what has come is read there
        context = ssl.create_default_context(cafile=str(self.trusted))
        consumer = AIOKafkaConsumer(
            "zonemta", bootstrap_servers=f"127.0.0.1:{secured.tls_port}", security_protocol="SSL", ssl_context=context,
            auto_offset_reset="earliest",
        )  # fmt: skip
        async with asyncio.timeout(60), consumer:
            assert json.loads((await consumer.getone()).value)["id"] == "queue-1-0"

    async def test_a_certificate_of_nobody_we_trust(self, secured: Server) -> None:
        assert "certificate" in (await self.down(self.sink(secured, url=secured.tls_url))).lower()

    async def test_a_sink_that_is_down_leaves_no_task_and_no_connection(
        self, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = asyncio.all_tasks()
        for _ in range(3):
            sink = self.sink(server, timeout_s=1.0)
            await sink.open()
            server.kill()
            try:
                await self.down_now(sink, *(event(seq) for seq in range(500)))
                await self.down(sink, event(1))
            finally:
                await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):  # aiokafka's own tasks end when their loop has run
            while asyncio.all_tasks() != before:
                gc.collect()
                await asyncio.sleep(0.05)
        assert caplog.messages == []


def running_broker() -> Iterator[TestBroker]:
    made = TestBroker()
    yield made
    made.end()


def at(broker: TestBroker, **more: Any) -> SinkClient:
    keys = {"name": "broker", "kind": "kafka", "url": broker.url, "timeout_s": 4.0, **more}
    return KafkaSink(EventSink.model_validate(keys), "urn:zonemta:test")


class TestIdempotentProducer:
    """At librdkafka's own broker for tests."""

    @pytest.fixture
    def broker(self) -> Iterator[TestBroker]:
        yield from running_broker()

    @pytest.fixture
    async def sink(self, broker: TestBroker) -> AsyncIterator[SinkClient]:
        sink = at(broker)
        await sink.open()
        yield sink
        await sink.close()

    async def ids(self, broker: TestBroker) -> list[str]:
        return [one.id for one in await read(broker.url, ["zonemta"])]

    async def test_events_arrive_in_order(self, broker: TestBroker, sink: SinkClient) -> None:
        for start in range(0, 300, 100):
            await sink.send([event(seq) for seq in range(start, start + 100)])
        assert await self.ids(broker) == [event(seq).id for seq in range(300)]

    async def test_an_event_that_is_too_large_is_rejected_and_the_others_arrive(
        self, broker: TestBroker, sink: SinkClient
    ) -> None:
        """The broker refuses all three, which were sent together, then the second alone."""
        broker.refuse(broker.PRODUCE, TOO_LARGE, 0, TOO_LARGE, 0)
        with pytest.raises(Rejected, match=r"larger than the topic's max\.message\.bytes") as caught:
            await sink.send([event(1), event(2), event(3)])
        assert caught.value.indices == (1,)
        await sink.send([event(4)])
        assert await self.ids(broker) == [event(seq).id for seq in (1, 3, 4)]

    async def test_a_large_batch_whose_events_are_small_arrives(self, broker: TestBroker, sink: SinkClient) -> None:
        broker.refuse(broker.PRODUCE, TOO_LARGE)
        await sink.send([event(1), event(2)])
        assert await self.ids(broker) == [event(1).id, event(2).id]

    async def test_what_passes_is_tried_again_and_is_there_once(self, broker: TestBroker, sink: SinkClient) -> None:
        broker.refuse(broker.PRODUCE, NOT_LEADER, NOT_LEADER)
        await sink.send([event(1), event(2)])
        assert await self.ids(broker) == [event(1).id, event(2).id]

    async def test_a_topic_that_is_not_there(self, broker: TestBroker) -> None:
        broker.has_no("elsewhere")
        sink = at(broker, topic="elsewhere", timeout_s=2.0)
        await sink.open()
        with pytest.raises(SinkDown, match="it has no topic 'elsewhere': create it there"):
            await sink.send([event(1)])
        await sink.close()

    async def test_a_user_who_may_not_be_idempotent(self, broker: TestBroker) -> None:
        broker.refuse(broker.INIT_PRODUCER_ID, CLUSTER_FORBIDDEN)
        sink = at(broker)
        with pytest.raises(SinkDown, match="does not permit a client without username to write"):
            await sink.open()
        await sink.close()


async def test_more_brokers_are_asked_when_the_first_is_away() -> None:
    for broker in running_broker():
        sink = at(broker, url=f"kafka://127.0.0.1:{free_port()}", bootstrap=[broker.url.partition("//")[2]])
        await sink.open()
        await sink.send([event(1)])
        await sink.close()
        assert [one.id for one in await read(broker.url, ["zonemta"])] == [event(1).id]
