"""The queue's process is killed, again and again, under those who push and take over its socket: nothing is lost,
nothing that was acknowledged comes again, and what comes twice was with somebody at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Delivery, QueueRefusal
from zonemta_py.wire.client import RemoteQueue

KILLS = int(os.environ.get("PULL_KILLS", "3"))
MESSAGES = int(os.environ.get("PULL_MESSAGES", "700"))
CLIENTS = 12
PATIENCE_S = 120
QUEUE = """
import sys, time
from pathlib import Path
from zonemta_py.config import Config
from zonemta_py.config.file import SourceFile
from zonemta_py.processes.pipe import pair
from zonemta_py.plugin.host import Host
from zonemta_py.processes.queue_process import Given
from zonemta_py.processes.roles import Child, queue
config = Config.model_validate({"server": {"folder": Path(sys.argv[1])}, "queue": {"reserve_bytes": 0}})
kept, pipe = pair()
queue(Child("queue", Given(config, SourceFile(), "a test", 1), Host.empty(), [], time.time), pipe)
"""


class Story:
    """What clients know. pushed: the queue has it; perhaps: it was sent; unsure: somebody got it; asked: and told the
    queue so; ended: which said that it knows; in_flight: unsure when the queue was killed; repeated: got again."""

    def __init__(self) -> None:
        self.left = list(range(MESSAGES))
        self.pushed: set[bytes] = set()
        self.perhaps: set[bytes] = set()
        self.ended: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.asked: set[bytes] = set()
        self.in_flight: set[bytes] = set()
        self.repeated: set[bytes] = set()
        self.kills = 0


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", QUEUE, str(folder)], stderr=log)


async def pushing(queue: RemoteQueue, story: Story) -> None:
    while story.left:
        number = story.left.pop()
        data = b"%d " % number + random.Random(number).randbytes(random.Random(number).choice((0, 20, 300, 70_000)))
        envelope = Envelope("", [Recipient("jobs@queue")], len(data), protocol="PULL", sending_zone="jobs")
        name = data.partition(b" ")[0]
        story.perhaps.add(name)
        with contextlib.suppress(QueueRefusal):
            await queue.accept(envelope, data)
            story.pushed.add(name)
            continue
        await asyncio.sleep(0.01)


async def taking(queue: RemoteQueue, story: Story, done: asyncio.Event, reserve_s: float) -> None:
    die = random.Random(reserve_s)
    while not done.is_set():
        try:
            found = await queue.pull("jobs", die.choice((1, 5)), reserve_s, 0.2)
            kills = story.kills
            names = [await named(queue, one) for one in found]
            if story.kills != kills:  # a large one is read to its end from the queue that was started since
                story.in_flight |= set(names)
            for name in names:
                assert name in story.perhaps
                assert name not in story.ended, "it was acknowledged, and comes again"
                if name in story.unsure:
                    story.repeated.add(name)
                story.unsure.add(name)
            for one, name in zip(found, names, strict=True):
                if die.random() < 0.1:
                    story.unsure -= {name} if await queue.nack(one.lease, one.id) else set()
                else:
                    story.asked.add(name)
                    (story.ended.add if await queue.ack(one.lease, one.id) else story.asked.discard)(name)
        except QueueRefusal:
            await asyncio.sleep(0.01)


async def named(queue: RemoteQueue, one: Delivery) -> bytes:
    """Its name, once all of it is there."""
    data = one.body
    if data is None:
        data = b"".join([await queue.chunk(one.id, number) for number in range(1, one.chunks + 1)])
    assert len(data) == one.size
    return data.partition(b" ")[0]


async def killing(folder: Path, story: Story, queues: list[RemoteQueue]) -> subprocess.Popen[bytes]:
    process, die = start(folder), random.Random(7)
    try:
        for number in range(1, KILLS + 1):
            due = MESSAGES * number // (KILLS + 2)
            while len(story.ended) < due and story.left:  # noqa: ASYNC110 (any of the clients)
                await asyncio.sleep(die.uniform(0.005, 0.05))
            process.kill()
            process.wait()
            while any(queue._protocol for queue in queues):  # noqa: ASYNC110 (what it has said is still read)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            story.in_flight |= story.unsure - story.ended
            story.kills += 1
            process = start(folder)
    except BaseException:
        process.kill()
        raise
    return process


async def test_nothing_is_lost_when_the_queue_is_killed(tmp_path: Path) -> None:
    """Three kills under twelve clients; PULL_KILLS and PULL_MESSAGES make more of it."""
    story, done = Story(), asyncio.Event()
    queues = [RemoteQueue.lasting(tmp_path, f"client{number}") for number in range(4)]
    takers = [
        asyncio.ensure_future(taking(queues[number % 4], story, done, (0, 600)[number % 2]))
        for number in range(CLIENTS)
    ]
    pushers = [asyncio.ensure_future(pushing(queues[number % 4], story)) for number in range(CLIENTS)]
    process = await killing(tmp_path, story, queues)
    try:
        await asyncio.wait_for(asyncio.gather(*pushers), PATIENCE_S)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and not any(taker.done() for taker in takers):
            counts = await queues[0].ask("queues")
            if not any(row["ready"] or row["leased"] for row in counts):
                break
            await asyncio.sleep(0.05)
        done.set()
        await asyncio.wait_for(asyncio.gather(*takers), PATIENCE_S)
        lost = story.pushed - story.ended - story.asked
    finally:
        process.kill()
        process.wait()
        for queue in queues:
            queue._reconnect = False
    assert not lost, f"{len(lost)} of {len(story.pushed)} are lost; the log: {(tmp_path / 'log').read_text()[-2000:]}"
    assert all(row["ready"] == row["leased"] == 0 for row in counts)
    assert len(story.pushed) > MESSAGES // 2
    assert story.repeated <= story.in_flight


async def pulled(queue: RemoteQueue) -> list[Delivery]:
    """Asks again if the queue ended meanwhile."""
    while True:
        with contextlib.suppress(QueueRefusal):
            return await queue.pull("jobs", wait_s=PATIENCE_S)
        await asyncio.sleep(0.05)


async def test_a_reservation_holds_up_no_stop(tmp_path: Path) -> None:
    """SIGTERM ends the queue although somebody has reserved something; after the next start it waits again."""
    process = start(tmp_path)
    queue = await RemoteQueue.connect(tmp_path, "client", reconnect=True)
    try:
        envelope = Envelope("", [Recipient("jobs@queue")], 1, protocol="PULL", sending_zone="jobs")
        await queue.accept(envelope, b"1")
        (one,) = await queue.pull("jobs", reserve_s=600)
        process.terminate()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == os.EX_OK
        process = start(tmp_path)
        (again,) = await pulled(queue)
        assert (again.id, again.body) == (one.id, b"1")
        assert not await queue.ack(one.lease, one.id)
        assert await queue.ack(again.lease, again.id)
    finally:
        process.kill()
        process.wait()
        queue._reconnect = False
