"""A person is erased from what event sinks keep, while a sink writes."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from zonemta_py.config.services.events import EventSink
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events import erasure, prepared
from zonemta_py.events.dead_letters import DeadLetter, DeadLetters
from zonemta_py.events.sinks.base import Ready
from zonemta_py.events.sinks.file import FileSink
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym

ANN = "ann@x.test"
IS_ANN = ANN.__eq__


def named(ready: Callable[..., Ready], seq: int, address: str) -> Ready:
    one = ready(seq)
    return one._replace(body=one.body.replace(b'"n":', b'"recipient":"' + address.encode() + b'","n":'))


@pytest.fixture
def erase() -> erasure.Erase:
    return DataSubject(ANN, pseudonym()).erased


async def test_files(tmp_path: Path, ready: Callable[..., Ready], erase: erasure.Erase) -> None:
    """Old ones and compressed ones; the sink that has the newest open writes on, to the one that has its name now."""
    path = tmp_path / "events.jsonl"
    sink = FileSink(EventSink(name="f", kind="file", path=path), "0a")
    await sink.open()
    await sink.send([named(ready, 1, ANN), named(ready, 2, "bob@x.test")])
    old = path.read_bytes()
    (tmp_path / "events.jsonl.1").write_bytes(old)
    (tmp_path / "events.jsonl.2.gz").write_bytes(gzip.compress(old))
    (tmp_path / "events.jsonl.3.zst").write_bytes(zstandard.ZstdCompressor().compress(old))
    (tmp_path / "events.jsonl.4").write_bytes(named(ready, 3, "joann@x.test").body + b"\n")
    kept = (tmp_path / "events.jsonl.4").stat().st_ino
    assert erasure.in_files(path, erase, IS_ANN) == (4, 4)
    await sink.send([named(ready, 4, "carl@x.test")])
    await sink.close()
    packed = zstandard.ZstdDecompressor().decompressobj().decompress((tmp_path / "events.jsonl.3.zst").read_bytes())
    texts = [
        path.read_bytes(), (tmp_path / "events.jsonl.1").read_bytes(),
        gzip.decompress((tmp_path / "events.jsonl.2.gz").read_bytes()), packed,
    ]  # fmt: skip
    for text in texts:
        assert ANN.encode() not in text
        assert (b"erased-" in text, b"bob@x.test" in text) == (True, True)
    assert [text.count(b"\n") for text in texts] == [3, 2, 2, 2]
    assert (tmp_path / "events.jsonl.4").stat().st_ino == kept, "it names somebody else"
    assert erasure.in_files(path, erase, IS_ANN) == (0, 0)
    assert erasure.in_files(tmp_path / "none", erase, IS_ANN) == (0, 0)
    assert not any(name.endswith(".erasing") for name in os.listdir(tmp_path))


def test_dead_letters_and_rings(tmp_path: Path, ready: Callable[..., Ready], erase: erasure.Erase) -> None:
    """The dead letters stay, and can be read; the ring goes, only if it names the person."""
    dead = DeadLetters(tmp_path)
    dead.add([DeadLetter(7, f"no {name}", named(ready, seq, name)) for seq, name in enumerate((ANN, "bob@x.test"))])
    for name in ("ann", "bob"):
        queue = OverflowQueue(tmp_path / name / "ring", records_max=1, page_count=8)
        for seq in range(60):
            queue.put(prepared.pack(named(ready, seq, f"{name}@x.test")))
        queue.close()
    assert erasure.in_folder(tmp_path, erase, IS_ANN) == (1, 0)
    assert [letter.ready.id for letter in dead.read()] == [ready(0).id, ready(1).id]
    assert ANN.encode() not in (tmp_path / "dead.jsonl").read_bytes()
    assert [erasure.in_folder(tmp_path / name, erase, IS_ANN) for name in ("ann", "bob")] == [(0, 1), (0, 0)]
    assert not (tmp_path / "ann" / "ring").exists()
    assert (tmp_path / "bob" / "ring").exists()


def test_metadata_go_with_the_person(tmp_path: Path, erase: erasure.Erase) -> None:
    """Of events about the person, and of the acceptance of what was for nobody else."""
    told = {"metadata": {"order": "an-order"}, "headers": {"x-kind": "a-kind"}}
    rows: list[dict[str, object]] = [
        {"message": "1", "recipients": 1, **told},
        {"message": "1", "recipient": ANN, **told},
        {"message": "2", "recipients": 2, **told},
        {"message": "2", "recipient": ANN, **told},
        {"message": "2", "recipient": "bob@x.test", **told},
        {"message": "3", "recipients": 1, **told},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps({'data': row})}\n" for row in rows))
    assert erasure.in_files(path, erase, IS_ANN) == (3, 1)
    found = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert ["metadata" in row for row in found] == [False, False, True, False, True, True]
    assert ["headers" in row for row in found] == [False, False, True, False, True, True]
    assert found[4] == rows[4]
