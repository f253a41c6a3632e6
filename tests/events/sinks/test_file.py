"""Files of JSON lines: what is written, rotated, taken back and cut off."""

import asyncio
import fcntl
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, SinkDown
from zonemta_py.events.sinks.file import FileSink

MakeReady = Callable[..., Ready]


async def opened(path: Path, **keys: Any) -> FileSink:
    sink = FileSink(EventSink(name="f", kind="file", path=path, **keys), "0a1b2c")
    await sink.open()
    return sink


def numbers(text: bytes) -> list[int]:
    return [json.loads(line)["data"]["n"] for line in text.splitlines()]


async def test_lines(tmp_path: Path, ready: MakeReady) -> None:
    """Also in a folder that is not there yet, and behind what is there already."""
    path = tmp_path / "new" / "events.jsonl"
    for start in (0, 3):
        sink = await opened(path)
        await sink.send([ready(start), ready(start + 1)])
        await sink.send([ready(start + 2)])
        await sink.close()
    assert numbers(path.read_bytes()) == [0, 1, 2, 3, 4, 5]
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("torn", [b'{"specversion": "1.0", "da', b"x" * 200_000])
async def test_a_torn_line_is_cut_off(tmp_path: Path, ready: MakeReady, torn: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(ready(0).body + b"\n" + torn)
    sink = await opened(path)
    await sink.send([ready(1)])
    await sink.close()
    assert numbers(path.read_bytes()) == [0, 1]


@pytest.mark.parametrize(
    ("compress", "suffix", "read"),
    [
        ("", "", bytes),
        ("gzip", ".gz", gzip.decompress),
        ("zstd", ".zst", lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
    ],
)
async def test_rotation_by_size(
    tmp_path: Path, ready: MakeReady, compress: str, suffix: str, read: Callable[[bytes], bytes]
) -> None:
    """FILE.1 is the newest old one; more than `keep` are not kept; no event is in two files, none in no file."""
    path = tmp_path / "events.jsonl"
    old = tmp_path / f"events.jsonl.1{suffix}", tmp_path / f"events.jsonl.2{suffix}"
    sink = await opened(path, rotate_bytes=2 * len(ready(0).body) + 2, keep=2, compress=compress)
    for seq in range(7):
        await sink.send([ready(seq)])
    await sink.close()
    assert numbers(path.read_bytes()) == [6]
    assert [numbers(read(one.read_bytes())) for one in old] == [[4, 5], [2, 3]]
    assert len(os.listdir(tmp_path)) == 3


async def test_rotation_by_day(tmp_path: Path, ready: MakeReady) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(ready(0).body + b"\n")
    yesterday = time.time() - 86_400
    os.utime(path, (yesterday, yesterday))
    sink = await opened(path, rotate_daily=True)
    await sink.send([ready(1)])
    await sink.send([ready(2)])
    await sink.close()
    assert numbers(path.read_bytes()) == [1, 2]
    assert numbers((tmp_path / "events.jsonl.1").read_bytes()) == [0]


async def test_somebody_else_may_move_or_remove_it(tmp_path: Path, ready: MakeReady) -> None:
    path = tmp_path / "events.jsonl"
    sink = await opened(path)
    await sink.send([ready(0)])
    path.rename(tmp_path / "moved")
    await sink.send([ready(1)])
    path.unlink()
    await sink.send([ready(2)])
    await sink.close()
    assert numbers((tmp_path / "moved").read_bytes()) == [0]
    assert numbers(path.read_bytes()) == [2]


async def test_who_writes_has_the_lock(tmp_path: Path, ready: MakeReady) -> None:
    """Another process that opens the file must not take what is being written for a torn line."""
    path = tmp_path / "events.jsonl"
    sink = await opened(path)
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        sending = asyncio.ensure_future(sink.send([ready(0)]))
        await asyncio.sleep(0.1)
        assert not sending.done()
        other.write(ready(1).body + b"\n")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_UN)
        await sending
    await sink.close()
    assert numbers(path.read_bytes()) == [1, 0]


FULL = """
import asyncio, json, resource, signal, sys
from pathlib import Path
from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, SinkDown
from zonemta_py.events.sinks.file import FileSink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
async def main():
    sink = FileSink(EventSink(name="f", kind="file", path=Path(sys.argv[1])), "q")
    await sink.open()
    bodies = [json.dumps({"data": {"n": n}, "x": "x" * 300}).encode() for n in range(9)]
    rows = [Ready(n, 0, f"q-{n}-0", "queued", "", 0, body) for n, body in enumerate(bodies)]
    await sink.send(rows[:2])
    try:
        await sink.send(rows[2:])
    except SinkDown as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await sink.send(rows[2:])
    await sink.close()
asyncio.run(main())
"""


def test_what_a_full_disk_cuts_is_taken_back(tmp_path: Path) -> None:
    """A limit of the file's size refuses in the middle of a write, as a full disk does."""
    path = tmp_path / "events.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == f"{path}: File too large", done.stderr
    assert numbers(path.read_bytes()) == list(range(9))


async def test_what_cannot_be_opened_is_down(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkDown, match=r"Not a directory|File exists"):
        await opened(tmp_path / "file" / "events.jsonl")
