"""Large bodies: written once to a file of their own, gone with their message, and never in the way of other mail."""

import asyncio
import contextlib
import errno
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk import body_file, keys, records
from zonemta_py.disk.body_file import BodyFile
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import DEFERRED, DELIVERED, QueueRefusal, accept_whole
from zonemta_py.queue.core.bodies import THREADS

Make = Callable[..., Any]
NOISE = random.Random(9).randbytes(CHUNK_BYTES)
LARGE = b"Subject: large\r\n\r\n" + b"".join(NOISE[n:] + NOISE[:n] for n in range(12))
TRICKLE = b"Subject: small\r\n\r\nHi\r\n"


def mail(address: str = "bob@x.test", body: bytes = LARGE, origin: str = "192.0.2.1") -> Envelope:
    return Envelope("ann@src.test", [Recipient(address)], len(body), origin=origin, received_ms=1_700_000_000_000)


async def put(queue: Any, address: str = "bob@x.test", body: bytes = LARGE) -> str:
    return str((await accept_whole(queue, mail(address, body), body)).id)


async def body_of(queue: Any, delivery: Any) -> bytes:
    return b"".join([await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)])


def bodies(home: Any) -> list[str]:
    return body_file.ids(home.folder / body_file.FOLDER)


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


async def begin(queue: Any, chunks: int, client: str = "") -> Any:
    one = queue.begin(client)
    for number in range(chunks):
        await one.write(NOISE[number:] + NOISE[:number])
    return one


async def refused(queue: Any, client: str = "") -> tuple[int, str]:
    """What a client is told in the middle of a body that is never ended; a queue behind a socket says it later."""
    with pytest.raises(QueueRefusal) as refusal:
        await begin(queue, 100, client)
    return refusal.value.reply.code, refusal.value.reply.enhanced


async def test_a_large_body_is_in_its_file_and_goes_with_the_message(house: Make, front: Make) -> None:
    """The store has the keys and no chunk; a deferral keeps the file, the end removes it."""
    home = await house()
    queue = await front(home)
    message_id = await put(queue)
    assert bodies(home) == [message_id]
    names = [key.rsplit(b" ", 1)[1] for key in home.queue.core.store.keys(b"message ", b"message!")]
    assert names == [b"#", b"*"]
    (delivery,) = await home.lease()
    assert await body_of(queue, delivery) == LARGE
    with pytest.raises(QueueRefusal):
        await queue.chunk(delivery.id, delivery.chunks + 1)
    await home.settle(delivery, DEFERRED)
    await home.crash()
    await home.sound()
    await home.move(3600)
    (delivery,) = await home.lease()
    assert await body_of(home.queue, delivery) == LARGE
    await home.settle(delivery)
    await home.sound()
    assert bodies(home) == []


@pytest.mark.parametrize(
    "size", [CHUNK_BYTES + 1, 8 * CHUNK_BYTES, 8 * CHUNK_BYTES + 1, 9 * CHUNK_BYTES, 12 * CHUNK_BYTES]
)
async def test_bodies_of_any_size_come_back(house: Make, front: Make, size: int) -> None:
    """On both sides of the bound; what is small enough is in the store, in the batch that accepts it."""
    home = await house()
    queue = await front(home)
    body = LARGE[:size]
    message_id = await put(queue, body=body)
    assert bodies(home) == ([message_id] if size > 8 * CHUNK_BYTES else [])
    for _ in range(2):
        (delivery,) = await home.lease()
        assert await body_of(home.queue, delivery) == body
        await home.crash()
        queue = home.queue
    await home.sound()


async def test_a_body_that_compresses_stays_in_the_store(house: Make) -> None:
    """What counts is what it is kept in."""
    home = await house()
    await put(home.queue, body=b"Subject: x\r\n\r\n" + b"a" * 30 * CHUNK_BYTES)
    assert bodies(home) == []
    (delivery,) = await home.lease()
    assert len(await body_of(home.queue, delivery)) == delivery.size


async def test_a_body_broken_off_while_the_disk_is_busy_takes_no_room_from_others(house: Make, front: Make) -> None:
    """However often: whoever waited for the disk is answered, and the next large body gets through."""
    home = await house()
    queue = await front(home)
    for _ in range(20):
        go = threading.Event()
        for _ in range(THREADS):
            home.queue.core.bodies.run(go.wait)
        one = queue.begin()
        writing = asyncio.ensure_future(_write(one, 40))
        await asyncio.sleep(0.01)  # by then several frames wait for the first one's job
        one.abort()
        await asyncio.sleep(0.01)
        go.set()
        with pytest.raises(QueueRefusal):
            await asyncio.wait_for(writing, 30)
    await asyncio.wait_for(put(queue), 30)
    await home.rest()
    await home.sound()


async def test_a_message_of_which_a_part_was_refused_is_never_taken(house: Make, front: Make) -> None:
    """Though there is room again when its end comes: it would be stored, and sent, without that part."""
    home = await house(queue={"arriving_bytes_per_client": 16 * CHUNK_BYTES})
    queue = await front(home)
    other, counted = await begin(queue, 16), home.queue.core.bodies.uncommitted
    await until(lambda: counted.total > 14 * CHUNK_BYTES)
    one = queue.begin()
    with contextlib.suppress(QueueRefusal):
        await _write(one, 8)
    await asyncio.sleep(0.05)
    other.abort()
    await until(lambda: counted.total < 9 * CHUNK_BYTES)
    with pytest.raises(QueueRefusal):
        await one.accept(mail(), NOISE)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what is looked at tells nobody that it has changed
            await asyncio.sleep(0.01)


async def _write(one: Any, chunks: int) -> None:
    for _ in range(chunks):
        await one.write(NOISE)


async def test_broken_off_bodies_leave_nothing(house: Make, front: Make) -> None:
    """Many of them, many times: the disk has what living mail needs, and a little more."""
    home = await house(queue={"write_buffer_bytes": 65_536})
    queue = await front(home)
    await put(queue, "keeps@x.test")
    await home.rest()
    before = disk_bytes(home.folder)
    for _ in range(5):
        many = await asyncio.gather(*(begin(queue, 20) for _ in range(10)))
        assert disk_bytes(home.folder) > before
        for one in many:
            one.abort()
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    await home.rest()
    assert len(bodies(home)) == 1
    assert home.queue.core.arriving == set()
    assert home.queue.core.bodies.uncommitted.total == 0
    assert disk_bytes(home.folder) < before + 1024 * 1024
    await home.sound()


async def test_delivered_large_mail_leaves_nothing(house: Make) -> None:
    """Thirty times 0.8 MB came and went; what is there is what lives, three times at most, and a little more."""
    home = await house(queue={"write_buffer_bytes": 65_536})
    await home.queue.ask("stop", kind="destination", name="stays.test", seconds=None, cause="a test")
    await put(home.queue, "one@stays.test")
    for _ in range(30):
        await put(home.queue)
        (delivery,) = await home.lease()
        await home.settle(delivery, DELIVERED)
    await home.rest()
    assert disk_bytes(home.folder) < 3 * len(LARGE)
    await home.sound()


async def test_what_is_begun_is_bounded_for_each_client_and_in_all(house: Make, front: Make) -> None:
    """The next byte is told 452; others go on; what was let go counts no more. IPv6 counts by its network."""
    home = await house(queue={"arriving_bytes": 6 * 1024**2, "arriving_bytes_per_client": 2 * 1024**2})
    queue = await front(home)
    kept = [await begin(queue, 24, "2001:db8::1")]
    assert await refused(queue, "2001:db8::ffff") == (452, "4.3.1")
    kept += [await begin(queue, 24, f"192.0.2.{number}") for number in range(2)]
    assert await refused(queue, "192.0.2.9") == (452, "4.3.1")
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    for one in kept:
        one.abort()
    await home.rest()
    await put(queue)


async def test_half_of_the_disk_is_for_other_mail(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the bounds: bodies that are begun fill what is free to a half."""
    home = await house()
    free = 8 * 1024**2
    core = home.queue.core
    monkeypatch.setattr(core.space, "room", lambda now: free - disk_bytes(core.bodies.folder))
    one = await begin(home.queue, 56)
    assert await refused(home.queue) == (452, "4.3.1")
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    one.abort()


@pytest.mark.parametrize("call", ["writev", "fdatasync", "fsync", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_disk_that_says_no_to_a_body(
    house: Make, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """452 or 451, nothing acknowledged, nothing left; other mail goes on, and so does this when the disk does."""
    home = await house()
    await home.rest()
    real, armed = getattr(os, call), [True]

    def failing(*arguments: Any) -> Any:
        body = call != "open" or "bodies" in str(arguments[0])
        if armed[0] and body:
            armed[0] = False
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(body_file.os, call, failing)
        with pytest.raises(QueueRefusal) as refusal:
            await put(home.queue)
    assert not armed[0]
    assert refusal.value.reply.code == (452 if code == errno.ENOSPC else 451)
    await home.rest()
    assert bodies(home) == []
    message_id = await put(home.queue)
    assert bodies(home) == [message_id]
    await home.sound()


async def test_a_batch_that_fails_leaves_no_file(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body was complete; the store said no: the client is told, and the file goes."""
    home = await house()
    await home.rest()
    store = home.queue.core.store
    write = store.write

    def failing(operations: Any, sync: bool) -> None:
        monkeypatch.setattr(store, "write", write)
        store.fenced = True
        raise StoreFailed("the disk said no: No space left on device")

    one = await begin(home.queue, 20)
    monkeypatch.setattr(store, "write", failing)
    with pytest.raises(QueueRefusal) as refusal:
        await one.accept(mail(), b"x")
    assert refusal.value.reply.code == 452
    one.abort()
    await home.rest()
    assert bodies(home) == []
    await home.sound()


@pytest.mark.disk
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("instant", ["open", "part", "whole", "accepted", "leased", "delivered", "applied", "removed"])
async def test_each_instant_of_the_crash_table(house: Make, power: bool, instant: str) -> None:
    """What was acknowledged is there, whole; what was not has left nothing; what had ended does not come back."""
    home = await house()
    await home.queue.position()  # a journal that was never written is another matter
    one, message_id = home.queue.begin(), ""
    for number in range(2 if instant == "open" else 11):
        await one.write(NOISE[number:] + NOISE[:number])
    if instant == "whole":
        await one._complete()
    elif instant not in ("open", "part"):
        message_id = (await one.accept(mail(body=b""), b"end")).id
    if instant in ("leased", "delivered", "applied", "removed"):
        (delivery,) = await home.lease()
    if instant in ("delivered", "applied", "removed"):
        await home.settle(delivery)
    if instant in ("applied", "removed"):
        await home.queue.core.lines.stable()
    if instant == "removed":
        await home.rest()
    for _ in range(2):
        await home.crash(power, random.Random(instant), drop=instant in ("part", "accepted", "delivered"))
        await home.rest()
        assert bodies(home) == ([message_id] if instant in ("accepted", "leased") else [])
        assert not home.queue.core.quarantine.cases()
        await home.sound()
    if instant in ("accepted", "leased"):
        (delivery,) = await home.lease()
        assert (await body_of(home.queue, delivery)).endswith(b"end")
        assert delivery.chunks == 12


async def test_the_store_forgets_first(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may bring keys back that were deleted without a sync: then the file is still there."""
    home = await house()
    await put(home.queue)
    (delivery,) = await home.lease()
    await home.rest()
    removed: list[str] = []
    monkeypatch.setattr(body_file, "remove", lambda folder, one: removed.append(one))
    await home.settle(delivery)
    await asyncio.sleep(0.2)  # longer than the store waits for company
    assert removed == []
    await home.rest()
    assert removed == [delivery.id]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_cut, _flip, Path.unlink])
@pytest.mark.parametrize("running", [False, True])
async def test_damage_is_named_and_set_aside(
    house: Make, front: Make, damage: Callable[[Path], Any], running: bool
) -> None:
    """Whoever wants the body is refused, fsck names the message, repair keeps what is left of it; others are whole."""
    home = await house()
    queue = await front(home)
    message_id, other = await put(queue), await put(queue, "other@y.test")
    await home.rest()
    damage(home.folder / body_file.FOLDER / message_id)
    if running:
        for delivery in await home.leases():
            if delivery.id == other:
                assert await body_of(queue, delivery) == LARGE
                continue
            with pytest.raises(QueueRefusal, match="451"):
                await body_of(queue, delivery)
        (case,) = home.queue.core.quarantine.cases()
        assert message_id in (case / "note.json").read_text()
    copy = home.image()
    home.abandon()
    home.folder = copy
    assert [problem.id for problem in home.check().problems if problem.severity == "damage"] == [message_id]
    home.check(repair=True)
    assert home.check().problems == []
    assert bodies(home) == [other]
    case = sorted((home.folder / "quarantine").iterdir())[-1]
    names = {path.name.removeprefix(f"{message_id}-") for path in case.iterdir()}
    assert {"existence", "metadata", "note.json"} | ({"body"} if damage is not Path.unlink else set()) <= names
    await home.open()


async def test_a_body_whose_keys_are_lost_is_set_aside(house: Make) -> None:
    """Nobody knows it was delivered: it is mail, not garbage."""
    home = await house()
    message_id = await put(home.queue)
    await home.rest()
    await home.queue.position()
    await put(home.queue)  # so that ids go on
    core = home.queue.core
    operations = [
        (key, None)
        for key in core.store.keys(b"message " + message_id.encode(), b"message " + message_id.encode() + b"!")
    ]
    operations += [
        (key, None) for key in core.store.keys(b"delivery-zone ", b"delivery-zone!") if message_id.encode() in key
    ]
    core.lines.submit(operations, lambda _: None, sync=True, keep=True)
    await home.rest()
    await home.crash()
    found = [json.loads((case / "note.json").read_text()) for case in home.queue.core.quarantine.cases()]
    assert any(message_id in str(note) for note in found)
    assert any((case / message_id).exists() for case in home.queue.core.quarantine.cases())
    assert message_id not in bodies(home)


async def test_a_queue_whose_large_bodies_are_in_the_store(house: Make) -> None:
    """As older programs kept them: they are delivered, deferred, and gone in the end."""
    home = await house()
    message_id = await put(home.queue)
    await home.rest()
    core = home.queue.core
    message = core.messages.look(message_id)
    chunks = core.messages.chunks(message, 1, 100)
    del message.metadata["file"]
    operations = [(keys.chunk(message_id, number), chunk) for number, chunk in enumerate(chunks, 1)]
    operations.append((keys.metadata(message_id), records.pack(message.metadata)))
    core.lines.submit(operations, lambda _: None, sync=True, keep=True)
    await home.rest()
    body_file.remove(core.bodies.folder, message_id)
    await home.crash()
    await home.sound()
    (delivery,) = await home.lease()
    assert await body_of(home.queue, delivery) == LARGE
    await home.settle(delivery)
    await home.sound()
    assert list(home.queue.core.store.keys(b"message ", b"message!")) == []


async def test_bodies_are_read_off_the_loop(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes its time with one body holds up nobody else."""
    home = await house()
    await put(home.queue)
    (delivery,) = await home.lease()
    loop, held = asyncio.get_running_loop(), asyncio.Event()
    real = body_file.read
    go = threading.Event()

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(held.set)
        assert go.wait(30)
        return real(*arguments)

    monkeypatch.setattr(body_file, "read", slow)
    reading = asyncio.ensure_future(home.queue.chunk(delivery.id, 1))
    await held.wait()
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    assert not reading.done()
    go.set()
    assert (await reading)[:20] == LARGE[:20]


async def test_reading_ahead_of_a_message_that_ends_is_no_damage(house: Make) -> None:
    """A sender asks for more than it needs, the server ends the transaction: nothing goes to quarantine."""
    home = await house()
    await put(home.queue)
    (delivery,) = await home.lease()
    message = home.queue.core.messages.get(delivery.id)
    await home.settle(delivery)
    await home.rest()
    home.queue.core.messages._known[delivery.id] = message
    with pytest.raises(QueueRefusal):
        await home.queue.chunk(delivery.id, 1)
    del home.queue.core.messages._known[delivery.id]
    assert not home.queue.core.quarantine.cases()


async def test_a_file_made_by_nobody_is_no_message(house: Make) -> None:
    """What is in the folder under another name stays, and is in nobody's way."""
    home = await house()
    (home.folder / body_file.FOLDER / "notes.txt").write_text("mine")
    BodyFile(home.folder / body_file.FOLDER, "f" * 16).write([b"x"])
    await home.crash()
    assert bodies(home) == []
    assert (home.folder / body_file.FOLDER / "notes.txt").exists()
