"""`verify` finds no difference between a queue's files and its log, at any instant, and names each that there is."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.houses import KeptHouse
from tests.cluster.memory import MemoryStream
from tests.cluster.test_log_kills import Work
from zonemta_py.cluster import log
from zonemta_py.cluster.verify import verify
from zonemta_py.disk import packing
from zonemta_py.disk.frame import frame
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type


async def worked(memory: Path, seed: int) -> KeptHouse:
    die = random.Random(seed)
    home = KeptHouse(memory / str(seed), MemoryStream(seed, 0.002))
    await home.open()
    await home.put("one@x.test", sender="")
    await home.put("large@x.test", sender="", body=b"Subject: x\r\n\r\n" + die.randbytes(700_000))
    await home.lease()
    await home.rest()
    return home


@pytest.mark.parametrize("seed", range(4))
async def test_at_any_instant_both_are_the_same(seed: int, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While mail comes and goes, and copies are made."""
    monkeypatch.setattr(log, "RESTS", 0.0)
    home = await worked(memory, seed)
    work = Work(home, random.Random(seed))
    assert (await verify(home.stream, 0, home.image())).counts["bodies"] == 1
    work.begin()
    for _ in range(5):
        await asyncio.sleep(work.die.random() * 0.1)
        image = home.image()
        found = await verify(home.stream, 0, image)
        shutil.rmtree(image)
        late = [one for one in found.differences if "gone from the log" in one or "no whole copy" in one]
        assert found.differences == late, "a copy may have been made while it was read"
        if not late:
            assert found.counts["keys"] > 5
    for task in work.tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait(work.tasks)
    home.abandon()


async def test_each_difference_is_named(memory: Path) -> None:
    """Keys, records, bodies: here only, there only, or other."""
    home = await worked(memory, 1)
    image = home.image()
    store = Store(image / "store")
    [lacking, other] = [key for key in store.keys(b"message ", b"message!") if key.endswith(b"#")]
    store.write([(lacking, None), (other, b"\x93\x01\x02\x03"), (b"lesson 9", b"more")], sync=True)
    store.close()
    [body] = (image / "bodies").iterdir()
    body.write_bytes(b"something else")
    last = segments.files(image / "journal")[-1]
    last.write_bytes(last.read_bytes()[:-40])
    found = await verify(home.stream, 0, image)
    assert f"key {lacking.decode()!r} is in the log only" in found.differences
    assert "key 'lesson 9' is not in the log" in found.differences
    assert f"key {other.decode()!r} has another value in the log" in found.differences
    assert len([one for one in found.differences if "body of message" in one]) == 1
    del home.stream.messages[home.stream.first + 4]
    assert any("gone from the log" in one for one in (await verify(home.stream, 0, image)).differences)
    home.abandon()


@pytest.mark.parametrize(("field", "differs"), [("segments", False), ("batches", True)])
async def test_a_position_counts_other_segments_after_a_takeover(memory: Path, field: str, differs: bool) -> None:
    """The files made of a log say which there are then; that is no difference, but all else in it is."""
    home = await worked(memory, 2)
    await home.queue.position()
    image = home.image()
    [path] = segments.files(image / "journal")[-1:]
    rows = list(segments.read_file(path, []))
    last = max(place for place, row in enumerate(rows) if row.type == Type.POSITION)
    body = packing.unpack(rows[last].body) | {field: [[1, "0" * 16, 0, []]] if field == "segments" else 0}
    assert rows[last].body != packing.pack(body)
    rows[last] = rows[last]._replace(body=packing.pack(body))
    path.write_bytes(frame(rows, 0))
    found = (await verify(home.stream, 0, image)).differences
    assert found == [f"record {rows[last].seq} of the journal has other contents in the log"] * differs
    home.abandon()
