"""Large bodies on a disk that fails, at every instant of a crash, and damaged: nothing is lost in silence."""

import asyncio
import errno
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.large import LARGE, NOISE, begin, bodies, body_of, mail, put
from zonemta_py.disk import body_file
from zonemta_py.disk.body_file import BodyFile
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.queue.api import QueueRefusal

Make = Callable[..., Any]


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
    store = home.queue.core.disk.store
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
        await home.queue.core.disk.lines.stable()
    if instant == "removed":
        await home.rest()
    for _ in range(2):
        await home.crash(power, random.Random(instant), drop=instant in ("part", "accepted", "delivered"))
        await home.rest()
        assert bodies(home) == ([message_id] if instant in ("accepted", "leased") else [])
        assert not home.queue.core.disk.quarantine.cases()
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
            with pytest.raises(QueueRefusal, match=r"554 5\.3\.0"):
                await body_of(queue, delivery)
        (case,) = home.queue.core.disk.quarantine.cases()
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
        for key in core.disk.store.keys(b"message " + message_id.encode(), b"message " + message_id.encode() + b"!")
    ]
    operations += [
        (key, None) for key in core.disk.store.keys(b"delivery-zone ", b"delivery-zone!") if message_id.encode() in key
    ]
    core.disk.lines.submit(operations, lambda _: None, sync=True, keep=True)
    await home.rest()
    await home.crash()
    found = [json.loads((case / "note.json").read_text()) for case in home.queue.core.disk.quarantine.cases()]
    assert any(message_id in str(note) for note in found)
    assert any((case / message_id).exists() for case in home.queue.core.disk.quarantine.cases())
    assert message_id not in bodies(home)


async def test_a_file_made_by_nobody_is_no_message(house: Make) -> None:
    """What is in the folder under another name stays, and is in nobody's way."""
    home = await house()
    (home.folder / body_file.FOLDER / "notes.txt").write_text("mine")
    BodyFile(home.folder / body_file.FOLDER, "f" * 16).write([b"x"])
    await home.crash()
    assert bodies(home) == []
    assert (home.folder / body_file.FOLDER / "notes.txt").exists()
