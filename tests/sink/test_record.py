"""What is left behind: the record of counters, the log, the stored messages; and what the options refuse."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import smtplib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.sink import Sink, SinkError, SinkOptions

RUN = """
import sys
from pathlib import Path
from zonemta_py.sink import SinkOptions, run_sink
run_sink(SinkOptions(listen=("127.0.0.1:0", "127.0.0.2:0"), record=Path(sys.argv[1]), record_every_s=600),
         lambda sink: print(*sink.ports, flush=True))
"""


def send(port: int, text: str, host: str = "127.0.0.1") -> None:
    with smtplib.SMTP(host, port) as smtp:
        smtp.sendmail("a@b.test", ["c@d.test", "e@D.test"], text)


async def test_log_store_and_record(start_sink: Any, tmp_path: Path) -> None:
    """One message leaves one line of JSON, one file with its exact bytes, and counters by domain."""
    log, store, record = tmp_path / "log", tmp_path / "store", tmp_path / "record"
    sink = await start_sink(log=log, store=store, record=record, checksum=True, keep=False)
    await asyncio.to_thread(send, sink.port, "Message-Id:\r\n <7@x>\r\n\r\n.dot\r\n")
    sink.write_record()
    body = b"Message-Id:\r\n <7@x>\r\n\r\n.dot\r\n"
    row = json.loads(log.read_text())
    assert row.pop("time") > 0
    assert row == {
        "message_id": "<7@x>",
        "sender": "a@b.test",
        "recipients": ["c@d.test", "e@D.test"],
        "size": len(body),
        "client": "127.0.0.1",
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    assert [(path.name, path.read_bytes()) for path in store.iterdir()] == [("00000001.eml", body)]
    counters = json.loads(record.read_text())
    assert (counters["messages"], counters["recipients"], counters["domains"]) == (1, 2, {"d.test": 2})
    assert 0 < counters["first_ns"] == counters["last_ns"]


async def test_the_log_survives_any_address(start_sink: Any, connect: Any, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 neither stop the sink nor spoil its log."""
    log = tmp_path / "log"
    sink = await start_sink(log=log)
    client = await connect(sink.port)
    client.send(b"MAIL FROM:<\xff@b>\r\nRCPT TO:<c@\xfe>\r\nDATA\r\n.\r\nQUIT\r\n")
    await client.rest()
    sink.write_record()
    row = json.loads(log.read_text())
    assert [text.encode("utf-8", "surrogateescape") for text in (row["sender"], *row["recipients"])] == [
        b"\xff@b",
        b"c@\xfe",
    ]


async def test_stored_numbers_go_on(start_sink: Any, tmp_path: Path) -> None:
    """A second sink on the same folder adds to it and overwrites nothing."""
    for _ in range(2):
        sink = await start_sink(store=tmp_path)
        await asyncio.to_thread(send, sink.port, "x")
    assert sorted(os.listdir(tmp_path)) == ["00000001.eml", "00000002.eml"]


async def test_half_a_message_leaves_no_file(start_sink: Any, connect: Any, tmp_path: Path) -> None:
    """A client that goes away in the body leaves nothing in the folder."""
    sink = await start_sink(store=tmp_path)
    client = await connect(sink.port)
    await client.until_data()
    client.send(b"half a mess")
    client.writer.close()
    while sink.counters.open:  # noqa: ASYNC110 (a sink has no event for each of its counters)
        await asyncio.sleep(0.01)
    assert os.listdir(tmp_path) == []


async def test_messages_need_keep(start_sink: Any) -> None:
    """Asking a sink that keeps nothing for its messages is an error that says how to get them."""
    sink = await start_sink(keep=False)
    with pytest.raises(RuntimeError, match="keep=True"):
        _ = sink.messages


async def test_without_options_everything_is_kept() -> None:
    """`Sink()` alone is what a test wants: a free port, messages kept."""
    async with Sink() as sink:
        await asyncio.to_thread(send, sink.port, "x")
        assert [message.body for message in sink.messages] == [b"x\r\n"]


async def test_a_taken_port_is_one_sentence(start_sink: Any) -> None:
    """A port that another process has is named, with the remedy, and nothing stays open."""
    sink = await start_sink()
    with pytest.raises(SinkError, match=f"cannot listen on 127.0.0.1:{sink.port}.*choose another port"):
        async with Sink(SinkOptions(listen=("127.0.0.1:0", f"127.0.0.1:{sink.port}"))):
            pass


@pytest.mark.parametrize(
    "options",
    [
        {"listen": ()},
        {"listen": ("nowhere",)},
        {"listen": ("127.0.0.1:99999",)},
        {"listen": ("192.0.2.1:0",)},
        {"latency_s": -1},
        {"jitter": 2},
        {"record_every_s": 0},
        {"key": Path("k")},
        {"rules": ("what",)},
        {"certificate": Path("/nowhere.pem"), "implicit_tls": True},
        {"log": Path("/nowhere/log")},
        {"record": Path("/nowhere/record")},
    ],
)
async def test_impossible_options_are_one_sentence(options: dict[str, Any]) -> None:
    """Every option that cannot be is refused before anything listens, in one line."""
    with pytest.raises(SinkError) as caught:
        async with Sink(SinkOptions(**{"listen": ("127.0.0.1:0",), **options})):
            pass
    assert "\n" not in str(caught.value)


def test_as_a_process(tmp_path: Path) -> None:
    """Run by itself it opens all its ports, writes the record at SIGUSR1 and at SIGTERM, and ends with status 0."""
    record = tmp_path / "record"
    with subprocess.Popen([sys.executable, "-c", RUN, str(record)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = map(int, process.stdout.readline().split())
        send(first, "one")
        process.send_signal(signal.SIGUSR1)
        while json.loads(record.read_text())["messages"] != 1:
            os.sched_yield()
        send(second, "two", "127.0.0.2")
        process.terminate()
        assert process.wait(60) == 0
    assert json.loads(record.read_text())["messages"] == 2
