"""The whole MTA: what waits is edited, and goes so: another return path, header fields, and a smart host."""

from __future__ import annotations

import asyncio
import smtplib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

sys.path.insert(0, str(Path(__file__).resolve().parent))

from survival.rig import Mta

from tests.real.conftest import sink_in_a_thread
from zonemta_py.sink import Sink

PATIENCE_S = 60
COUNT = 30
LETTER = b"Subject: old\r\nX-Old: 1\r\nFrom: ann@src.test\r\n\r\nhello\r\n"
MORE = """
[[zones]]
name = "away"
recipient_domains = ["away.test"]
host = "127.0.0.1"
port = {dead}
"""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[Mta, Sink]]:
    with sink_in_a_thread() as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=MORE.format(dead=free_port()), retry_min=60)
        try:
            mta.start()
            asyncio.run(mta.taking())
            yield mta, sink
        finally:
            mta.end()


def until(mta: Mta, what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)
    return found


def test_what_waits_is_edited_over_a_kill(rig: tuple[Mta, Sink]) -> None:
    """Of each message one of two recipients. The other still waits, as it was."""
    mta, sink = rig
    with smtplib.SMTP("127.0.0.1", mta.port) as client:
        for number in range(COUNT):
            client.sendmail("ann@src.test", [f"a{number}@away.test", f"b{number}@away.test"], LETTER)
    until(mta, lambda: mta.ask("size")["total"]["leased"] == 0)
    change = {
        "sender": "new@src.test", "header": {"Subject": "Grüße", "X-Old": None, "Reply-To": "help@src.test"},
        "host": f"127.0.0.1:{sink.port}",
    }  # fmt: skip
    row = mta.ask("task", verb="set", where={"recipient": "a*@away.test"}, set=change, by="ann")
    mta.kill("queue")
    asyncio.run(mta.taking())
    until(mta, lambda: mta.ask("task-row", id=row["id"])["done"] == COUNT)
    mta.ask("task", verb="flush", where={"recipient": "a*@away.test"})
    until(mta, lambda: len(sink.messages) >= COUNT)
    for message in sink.messages:
        head = message.body.partition(b"\r\n\r\n")[0]
        assert message.sender == "new@src.test"
        assert b"Subject: =?utf-8?" in head
        assert b"Reply-To: help@src.test" in head
        assert b"X-Old" not in head
    assert {one.recipients[0] for one in sink.messages} == {f"a{number}@away.test" for number in range(COUNT)}
    assert sum(mta.ask("size", domain="away.test").values()) == COUNT
