"""Standard error that nobody reads, or that cannot be written."""

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from zonemta_py.logs import stream as streams
from zonemta_py.logs.stream import LogStream


@pytest.fixture(params=["pipe", "socket"])
def pipe(request: pytest.FixtureRequest) -> Iterator[tuple[int, LogStream]]:
    """(the end to read from, what writes to the other). A socket: what systemd gives a service."""
    if request.param == "pipe":
        reading, writing = os.pipe()
    else:
        reading, writing = (one.detach() for one in socket.socketpair())
    with os.fdopen(writing, "w") as file:
        yield reading, LogStream(file)
    os.close(reading)


def line(number: int) -> bytes:
    return b"%06d %s\n" % (number, b"x" * 500)


def read(number: int) -> bytes:
    os.set_blocking(number, False)
    found = b""
    while True:
        try:
            found += os.read(number, 1 << 20)
        except BlockingIOError:
            return found


def test_a_reader_that_has_stopped_reading_stops_nobody(
    pipe: tuple[int, LogStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit waits, then is dropped by whole lines and counted; who reads again is told how many."""
    monkeypatch.setattr(streams, "WAITING_BYTES_MAX", 50_000)
    reading, stream = pipe
    for number in range(1000):
        stream.put(line(number))
    assert stream.dropped > 500
    found = b""
    while stream._waiting or stream._untold:
        found += read(reading)
        stream.flush()
        stream.put(b"")
    found += read(reading)
    kept = 1000 - stream.dropped
    assert found.startswith(b"".join(map(line, range(kept))))
    assert f"zonemta: {stream.dropped} log lines were lost: standard error was not read\n".encode() in found
    stream.put(b"after\n")
    assert read(reading) == b"after\n"


def test_the_other_end_is_left_as_it_was(pipe: tuple[int, LogStream]) -> None:
    """Who shares the pipe does not find it non-blocking."""
    _, stream = pipe
    assert os.get_blocking(stream.fileno())


def test_a_reader_that_has_gone_stops_nobody() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        stream = LogStream(file)
        os.close(reading)
        for number in range(3):
            stream.put(line(number))
            print("printed", file=stream)
    assert stream.dropped == 6


def test_what_is_printed_is_written_by_whole_lines() -> None:
    """In the shape of log lines if there is one; without a file behind it, too."""
    plain = io.StringIO()
    stream = LogStream(plain)
    print("one", "two", file=stream)
    print("three", end="", file=stream)
    assert plain.getvalue() == "one two\n"
    stream.shape = lambda text: f"<{text}>\n".encode()
    print(" four\nfive", file=stream)
    assert plain.getvalue() == "one two\n<three four>\n<five>\n"


def test_a_child_writes_nothing_that_waited_in_its_parent(pipe: tuple[int, LogStream]) -> None:
    """Lines come once."""
    reading, stream = pipe
    for number in range(300):
        stream.put(line(number))
    child = os.fork()
    if not child:
        stream.put(line(999_999))
        os._exit(bytes(stream._waiting) != line(999_999))
    assert os.waitpid(child, 0)[1] == 0
    assert b"999999" not in read(reading)


MAIL = """
import asyncio, sys
from pathlib import Path
from zonemta_py.config import Config
from zonemta_py.logs import mail, setup
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.recovery.start import open_queue

async def main():
    config = Config.model_validate({"server": {"folder": sys.argv[1], "hostname": "a.test"}})
    setup.begin(config, None)
    queue = await open_queue(config)
    queue.core.mail_log = mail.of(config, None)
    for number in range(1000):
        people = [Recipient(f"bob{number}-{one}@{'d' * 60}.test") for one in range(5)]
        await queue.accept(Envelope(sender="ann@src.test", recipients=people), b"Subject: x\\r\\n\\r\\nx\\r\\n")
    queue.core.mail_log.flush()
    print((await queue.ask("size"))["total"]["messages"], sys.stderr.dropped >= 0, flush=True)

asyncio.run(main())
"""


def test_mail_goes_on_while_nobody_reads(memory: object) -> None:
    """A thousand messages are accepted though the pipe is full after some two hundred lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIL, str(memory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().split() == ["1000", "True"]
    finally:
        process.kill()
        process.wait()
    first = process.stderr.read(200)
    assert " INFO mail: accepted id=" in first
    assert time.strftime("%Y-") in first[:5]
