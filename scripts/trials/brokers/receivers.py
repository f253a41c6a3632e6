"""What the sinks of a trial lead to: a real server each, its table of the configuration, and what has come there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import aio_pika
import nats
from aiokafka import AIOKafkaConsumer
from nats.js.api import StreamConfig
from redis.asyncio import Redis

from brokers.kafka import KafkaServer
from brokers.servers import PASSWORD, USER, NatsServer, RabbitServer, RedisServer, Server

_TABLE = """
[[event_sinks]]
name = "{name}"
kind = "{kind}"
url = "{url}"
{more}
"""
_LOGIN = f'username = "{USER}"\npassword = "{PASSWORD}"\n'
_AT_ONCE = 1000
_PATIENCE_S = 30


class Came(NamedTuple):
    """subject: the message's id, "" where there is none."""

    id: str
    subject: str


class HttpServer(Server):
    """brokers/http_receiver.py."""

    scheme, program = "http", "python"

    @property
    def file(self) -> Path:
        return self.folder / "came"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "brokers.http_receiver", str(self.port), str(self.file)]

    def _environment(self) -> dict[str, str]:
        trials = Path(__file__).resolve().parents[1]
        return {"PYTHONPATH": f"{trials.parent}:{trials}"}


class Receiver:
    """name: the sink's, too. came: all that has come, in order, once `collect` has been called."""

    name = kind = more = ""
    server_class: type[Server]

    def __init__(self, folder: Path) -> None:
        self.server = self.server_class(folder / self.name)
        self.came: list[Came] = []

    def table(self, keys: str) -> str:
        """Of the configuration. keys: more lines of it."""
        return _TABLE.format(name=self.name, kind=self.kind, url=self.server.url, more=self.more + keys)

    async def prepare(self) -> None:
        """What a sink needs to find there, once the server runs."""

    async def collect(self) -> None:
        raise NotImplementedError


class Http(Receiver):
    name, kind, server_class = "http", "webhook", HttpServer

    async def collect(self) -> None:
        assert isinstance(self.server, HttpServer)
        lines = self.server.file.read_text().splitlines() if self.server.file.exists() else []
        self.came = [Came(*line.split(" ", 1)) for line in lines]


class Rabbit(Receiver):
    name, kind, server_class = "rabbitmq", "amqp", RabbitServer
    more = f'exchange = "events"\n{_LOGIN}'

    async def collect(self) -> None:
        connection = await aio_pika.connect(port=self.server.port, login=USER, password=PASSWORD)
        async with connection, connection.channel() as channel:
            await channel.set_qos(_AT_ONCE)
            queue = await channel.get_queue("events")
            left = queue.declaration_result.message_count or 0
            if left:
                async with queue.iterator(no_ack=True) as messages:
                    async for message in messages:
                        self.came.append(_read(message.body))
                        left -= 1
                        if not left:
                            break


class Nats(Receiver):
    name, kind, more, server_class = "nats", "nats", _LOGIN, NatsServer

    async def prepare(self) -> None:
        client = await nats.connect(self.server.url, user=USER, password=PASSWORD)
        await client.jetstream().add_stream(StreamConfig(name="events", subjects=["zonemta.>"]))
        await client.close()

    async def collect(self) -> None:
        client = await nats.connect(self.server.url, user=USER, password=PASSWORD)
        stream = client.jetstream()
        info = await stream.stream_info("events")
        there = await stream.subscribe("zonemta.>", stream="events", ordered_consumer=True)
        self.came = [_read((await there.next_msg(_PATIENCE_S)).data) for _ in range(info.state.messages)]
        await client.close()


class RedisStream(Receiver):
    name, kind, server_class = "redis", "redis", RedisServer
    more = f"stream_max = 0\n{_LOGIN}"

    async def collect(self) -> None:
        async with Redis(port=self.server.port, username=USER, password=PASSWORD) as client:
            last = "-"
            self.came = []
            while rows := await client.xrange("zonemta", min=last, count=_AT_ONCE):
                self.came += [Came(row[b"id"].decode(), row[b"subject"].decode()) for _, row in rows]
                last = f"({rows[-1][0].decode()}"


class Kafka(Receiver):
    """At Tansu, which knows no idempotent producers."""

    name, kind, more, server_class = "kafka", "kafka", "idempotent = false\n", KafkaServer

    async def prepare(self) -> None:
        assert isinstance(self.server, KafkaServer)
        self.server.create("zonemta")

    async def collect(self) -> None:
        address = f"127.0.0.1:{self.server.port}"
        self.came = []
        async with AIOKafkaConsumer("zonemta", bootstrap_servers=address) as consumer:
            places = sorted(consumer.assignment())
            for place, end in (await consumer.end_offsets(places)).items():
                consumer.seek(place, 0)
                while await consumer.position(place) < end:
                    records = await consumer.getmany(place, timeout_ms=1000, max_records=_AT_ONCE)
                    self.came += [_read(record.value) for record in records.get(place, [])]


RECEIVERS: tuple[type[Receiver], ...] = (Rabbit, RedisStream, Nats, Kafka, Http)


def _read(body: bytes) -> Came:
    event = json.loads(body)
    return Came(event["id"], event.get("subject", ""))
