"""Pull zones, in this process and over the socket: what is pushed is taken by whoever comes, oldest first, whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.queue.test_fence import fence_at
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Delivery, QueueRefusal
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

Make = Callable[..., Any]
CHUNK = 65_536


async def push(queue: Any, data: bytes = b"x", name: str = "jobs", **more: Any) -> str:
    """As the servers of queues do it."""
    envelope = Envelope("", [Recipient(f"{name}@queue")], len(data), protocol="PULL", sending_zone=name, **more)
    return str((await queue.accept(envelope, data)).id)


async def bytes_of(queue: Any, delivery: Delivery) -> bytes:
    if delivery.body is not None:
        return delivery.body
    return b"".join([await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)])


async def pop(queue: Any, name: str = "jobs") -> bytes | None:
    found = await queue.pull(name)
    if not found:
        return None
    data = await bytes_of(queue, found[0])
    assert await queue.ack(found[0].lease, found[0].id)
    return data


async def test_what_is_pushed_is_popped_in_that_order(house: Make, front: Make) -> None:
    """From a queue that nobody has configured, and nothing is left of it."""
    home = await house()
    queue = await front(home)
    assert await pop(queue) is None
    for number in range(5):
        await push(queue, b"%d" % number)
    await push(queue, b"other", "other")
    assert [await pop(queue) for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", None]
    assert await pop(queue, "other") == b"other"
    await home.sound()
    assert set((await queue.ask("size"))["total"].values()) == {0}
    assert await home.idle()  # no sender gets any of it


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\n",
        b".\r\n",
        b"\x28\xb5\x2f\xfd",
        b"a" * (CHUNK - 1),
        b"b" * CHUNK,
        bytes(range(256)) * 257,
        bytes(3_000_000),
        Random(1).randbytes(2_000_000),
    ],
    ids=["nothing", "NUL", "LF", "dot", "zstd", "chunk-1", "chunk", "chunk+", "3 MB", "file"],
)
async def test_bytes_are_kept_as_they_are(house: Make, front: Make, data: bytes) -> None:
    """Whatever they are, and after a crash too."""
    home = await house()
    queue = await front(home)
    message_id = await push(queue, data)
    shown = await queue.ask("show", id=message_id)
    assert (shown["envelope"]["size"], shown["recipients"][0]["zone"]) == (len(data), "queue/jobs")
    assert (await queue.ask("list"))["rows"][0]["id"] == message_id
    await home.crash(power=True)
    queue = await front(home, "again")
    assert await pop(queue) == data
    assert await pop(queue) is None
    await home.sound()


async def test_a_waiting_puller_is_served_when_something_comes(house: Make, front: Make) -> None:
    """Each of them gets one, in turn; one that waits no longer gets nothing."""
    home = await house()
    queue = await front(home)
    waiting = [asyncio.ensure_future(queue.pull("jobs", wait_s=30)) for _ in range(3)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    for number in (1, 2):
        await push(queue, b"%d" % number)
    found = [(await asyncio.wait_for(task, 60))[0].body for task in waiting[1:]]
    assert found == [b"1", b"2"]
    assert await queue.pull("jobs", wait_s=0.01) == []
    await home.sound()


async def test_a_lease_is_given_back_to_its_place(house: Make, front: Make) -> None:
    """Whatever order they come back in; what was acknowledged does not come again."""
    home = await house()
    queue = await front(home)
    for number in range(6):
        await push(queue, b"%d" % number)
    out = await queue.pull("jobs", most=4)
    assert [one.body for one in out] == [b"0", b"1", b"2", b"3"]
    assert await queue.ack(out[1].lease, out[1].id)
    assert not await queue.ack(out[1].lease, out[1].id)
    assert not await queue.ack(out[2].lease, out[0].id)
    assert await queue.nack(out[2].lease, out[2].id)
    assert await queue.abandon(out[0].lease, out[0].id)
    assert [one.body for one in await queue.peek("jobs", 10)] == [b"0", b"2", b"4", b"5"]
    assert [await pop(queue) for _ in range(3)] == [b"0", b"2", b"4"]
    assert await queue.nack(out[3].lease, out[3].id, 3600)
    assert [await pop(queue) for _ in range(2)] == [b"5", None]
    await home.move(3601)
    assert [await pop(queue) for _ in range(2)] == [b"3", None]
    await home.sound()
    assert await queue.ask("in-doubt") == []  # it was acknowledged since


async def test_a_reservation_lasts_as_long_as_it_is_said(house: Make, front: Make) -> None:
    """Whatever becomes of the connection; it can be extended; then it is back, and its owner is told."""
    home = await house()
    queue = await front(home)
    await push(queue, b"1")
    await push(queue, b"2")
    (one,) = await queue.pull("jobs", reserve_s=60)
    (plain,) = await queue.pull("jobs")
    assert (one.body, plain.body, await queue.pull("jobs")) == (b"1", b"2", [])
    queue._protocol._transport.abort() if hasattr(queue, "_protocol") else queue.close()
    await home.rest()
    queue = await front(home, "again")
    assert await pop(queue) == b"2"
    await home.move(59)
    assert await queue.extend(one.lease, one.id, 60)
    await home.move(59)
    assert await queue.pull("jobs") == []
    await home.move(2)
    await home.rest()
    assert not await queue.extend(one.lease, one.id, 60)
    assert not await queue.ack(one.lease, one.id)
    assert await pop(queue) == b"1"
    await home.sound()


async def test_priorities_and_delays_of_a_push(house: Make, front: Make) -> None:
    """The highest first; within one the oldest; what is delayed comes at its old place when its time has come."""
    home = await house()
    queue = await front(home)
    now_ms = home.clock.ms()
    await push(queue, b"late", hold_until_ms=now_ms + 60_000, hold_for=True)
    await push(queue, b"low", priority=-1)
    await push(queue, b"usual")
    await push(queue, b"high", priority=5)
    await push(queue, b"usual too")
    assert [await pop(queue) for _ in range(2)] == [b"high", b"usual"]
    await home.move(61)
    assert [await pop(queue) for _ in range(4)] == [b"late", b"usual too", b"low", None]
    await home.sound()


async def test_what_has_become_due_is_ready_though_nobody_waits(house: Make, front: Make) -> None:
    """In memory and beyond it; a worker that looks before it takes finds it."""
    home = await house()
    queue = await front(home)
    for number in range(150):
        await push(queue, b"%d" % number)
    taken = await queue.pull("jobs", most=100, reserve_s=60)
    for one in taken:
        assert await queue.nack(one.lease, one.id, 1)

    async def counts() -> tuple[int, int]:
        [row] = await queue.ask("queues")
        return row["ready"], row["delayed"]

    assert await counts() == (50, 100)
    await home.move(2)
    assert await counts() == (150, 0)
    assert [await pop(queue) for _ in range(151)] == [*(b"%d" % number for number in range(150)), None]
    assert await counts() == (0, 0)
    await home.sound()


async def test_names_and_numbers_of_queues_are_bounded(house: Make, front: Make) -> None:
    """A name that is none, one too many, and none that may be made: each is one sentence."""
    home = await house(pull={"queues_max": 2})
    queue = await front(home)
    for name in ("a b", "", "../x", "x" * 64, "queue/a/b"):
        with pytest.raises(QueueRefusal, match="is no name of a queue"):
            await push(queue, b"x", name)
    await push(queue, b"a", "a")
    await push(queue, b"b", "b")
    with pytest.raises(QueueRefusal, match=r"452 4\.5\.3 all 2 queues"):
        await push(queue, b"c", "c")
    assert await pop(queue, "a") == b"a"
    await home.rest()
    await push(queue, b"c", "c")
    assert [row["queue"] for row in await queue.ask("queues") if row["ready"]] == ["b", "c"]


async def test_queues_that_are_not_to_be_made(house: Make, front: Make) -> None:
    """A configured zone is a queue of its name; there are no others."""
    home = await house(pull={"create": False}, zones=[{"name": "out"}, {"name": "jobs", "delivery": "pull"}])
    queue = await front(home)
    await push(queue, b"1")
    with pytest.raises(QueueRefusal, match="there is no queue 'other'"):
        await push(queue, b"1", "other")
    (row,) = await queue.ask("queues")
    assert row == {
        "queue": "jobs", "zone": "jobs", "ready": 1, "delayed": 0, "held": 0, "deleted": 0, "bounced": 0,
            "leased": 0, "pullers": 0,
            "pushed": 1,
    }  # fmt: skip
    assert await pop(queue) == b"1"


async def test_a_push_that_is_repeated_is_stored_once(house: Make, front: Make) -> None:
    """With the same key, as HTTP has it."""
    home = await house()
    queue = await front(home)
    same = {"request": "http key", "digest": b"x"}
    assert await push(queue, b"1", **same) == await push(queue, b"1", **same)
    assert [await pop(queue) for _ in range(2)] == [b"1", None]


@pytest.mark.parametrize("number", [*range(1, 16), 30, 60])
async def test_a_fence_at_any_read_puts_off_and_nothing_else(
    house: Make, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The store cannot be read for a moment: nobody is told that there is nothing, and the order stays."""
    home = await house()
    for one in range(6):
        await push(home.queue, b"%d" % one, priority=one % 2)
    (late,) = await home.queue.pull("jobs")
    await home.queue.nack(late.lease, late.id, 50)
    await home.crash()
    await home.move(51)
    fence_at(home.queue.core.disk.store, monkeypatch, number)
    taken = [await pop(home.queue) for _ in range(6)]
    monkeypatch.undo()
    assert taken == [b"1", b"3", b"5", b"0", b"2", b"4"]
    assert not home.damages
    await home.sound()


async def test_whoever_waits_is_woken_by_whatever_happens(house: Make, front: Make) -> None:
    """A message given back, left, or run out; one that becomes due; a stop that ends or is lifted; a limit."""
    home = await house(
        zones=[{"name": "out"}, {"name": "slow", "delivery": "pull"}],
        throttles=[{"name": "few", "only": {"zone": "slow"}, "messages": "1/min"}],
    )
    queue = await front(home)

    async def waits(name: str = "jobs", reserve_s: float = 0) -> asyncio.Future[list[Delivery]]:
        waiting = asyncio.ensure_future(queue.pull(name, 1, reserve_s, 60))
        for _ in range(3):
            await home.rest()
            await asyncio.sleep(0.01)
        assert not waiting.done()
        return waiting

    async def gets(waiting: asyncio.Future[list[Delivery]], data: bytes) -> Delivery:
        (one,) = await asyncio.wait_for(waiting, 60)
        assert one.body == data
        return one

    await push(queue, b"1")
    (one,) = await queue.pull("jobs")
    for how in (queue.nack, queue.abandon):
        waiting = await waits(reserve_s=60)
        assert await how(one.lease, one.id)
        one = await gets(waiting, b"1")
    waiting = await waits()
    await home.move(61)
    one = await gets(waiting, b"1")
    waiting = await waits()
    assert await queue.nack(one.lease, one.id, 30)
    await home.move(31)
    one = await gets(waiting, b"1")
    assert await queue.ack(one.lease, one.id)
    waiting = await waits()
    await push(queue, b"2", hold_until_ms=home.clock.ms() + 50_000, hold_for=True)
    await home.move(51)
    one = await gets(waiting, b"2")
    assert await queue.ack(one.lease, one.id)
    await queue.ask("stop", kind="zone", name="queue/jobs", seconds=100)
    await push(queue, b"3")
    waiting = await waits()
    await home.move(101)
    one = await gets(waiting, b"3")
    await queue.ask("stop", kind="destination", name="queue/jobs")
    assert await queue.nack(one.lease, one.id)
    waiting = await waits()
    await queue.ask("lift", kind="destination", name="queue/jobs")
    await gets(waiting, b"3")
    await push(queue, b"4", "slow")
    await push(queue, b"5", "slow")
    await gets(asyncio.ensure_future(queue.pull("slow", wait_s=60)), b"4")
    waiting = await waits("slow")
    await home.move(61)
    await gets(waiting, b"5")
    await home.sound()


async def test_times_that_are_none_are_refused(house: Make, front: Make) -> None:
    """One sentence, and the connection stays."""
    home = await house()
    queue = await front(home)
    await push(queue)
    for wrong in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="is no number of seconds"):
            await queue.pull("jobs", wait_s=wrong)
    (one,) = await queue.pull("jobs")
    for telling in (queue.extend, queue.nack):
        with pytest.raises(ValueError, match="is no number of seconds"):
            await telling(one.lease, one.id, float("inf"))
    assert await queue.ack(one.lease, one.id)


async def test_a_process_that_is_stuck_loses_what_it_has(house: Make) -> None:
    """As a sender does: others get it, and what it says later is not believed."""
    home = await house(queue={"lease_s": 2})
    await serve(home.queue, home.folder)
    stuck = RemoteQueue.lasting(home.folder, "pull", 2)
    other = await RemoteQueue.connect(home.folder, "other")
    await push(other, b"1")
    (one,) = await stuck.pull("jobs")
    waiting = asyncio.ensure_future(stuck.pull("jobs", wait_s=60))
    assert stuck.pulse is not None
    stuck.pulse.stop()
    assert await asyncio.wait_for(waiting, 60) == []
    (again,) = await other.pull("jobs", wait_s=30)
    assert again.body == b"1"
    assert not await stuck.ack(one.lease, one.id)
    assert await other.ack(again.lease, again.id)
    stuck._reconnect = False
