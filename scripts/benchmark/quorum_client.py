"""Puts scenario A's messages into a quorum queue of RabbitMQ, or takes them out, as a process.

`python -m benchmark.quorum_client put|take '{"urls": …}'` takes the fields of Clients as JSON. A message is put as an
SMTP client would hand it in: it is persistent, and its session waits until the brokers have confirmed it before it puts
the next one. It is taken with an ack of its own. When all are, it prints when it began, once connected, and when it
ended: [begun, ended], of time.monotonic(). Exit status 0: all were.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from benchmark.bodies import body

QUEUE = "mail"
PREFETCH = 200


@dataclass(frozen=True)
class Clients:
    """urls: of the brokers, which connections go to in turns. sessions: connections that put, or take. bytes: of a
    body."""

    urls: list[str]
    messages: int
    sessions: int
    bytes: int

    def command(self, what: str) -> list[str]:
        return [sys.executable, "-m", "benchmark.quorum_client", what, json.dumps(asdict(self))]


async def put(clients: Clients) -> tuple[float, float]:
    text, left = body("letter", clients.bytes), iter(range(clients.messages))

    async def session(connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=True)
        for number in left:
            head = (
                f"From: sender@src.test\r\nTo: list@src.test\r\nMessage-ID: <{number}@src.test>\r\nSubject: x\r\n\r\n"
            )
            message = aio_pika.Message(head.encode() + text, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, QUEUE)

    connections, begun = await _connected(clients), time.monotonic()
    await asyncio.gather(*map(session, connections))
    ended = time.monotonic()
    await _closed(connections)
    return begun, ended


async def take(clients: Clients) -> tuple[float, float]:
    done, numbers = asyncio.Event(), set[bytes]()

    async def took(message: AbstractIncomingMessage) -> None:
        await message.ack()
        numbers.add(message.body[: message.body.index(b"Subject:")])
        if len(numbers) == clients.messages:
            done.set()

    connections, begun = await _connected(clients), time.monotonic()
    for connection in connections:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=PREFETCH)
        await (await channel.get_queue(QUEUE)).consume(took)
    await done.wait()
    ended = time.monotonic()
    await _closed(connections)  # then all acks have arrived
    return begun, ended


async def _connected(clients: Clients) -> list[AbstractConnection]:
    return [await aio_pika.connect(url) for url in islice(cycle(clients.urls), clients.sessions)]


async def _closed(connections: list[AbstractConnection]) -> None:
    for connection in connections:
        await connection.close()


def main() -> None:
    import uvloop

    what, given = sys.argv[1:]
    times = uvloop.run({"put": put, "take": take}[what](Clients(**json.loads(given))))
    print(json.dumps(times))


if __name__ == "__main__":
    main()
