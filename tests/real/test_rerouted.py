"""The whole MTA: mail for a host that cannot be reached is rerouted, over a kill -9, and nobody is lost."""

from __future__ import annotations

import asyncio
import smtplib
import sys
import time
from collections import Counter
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
COUNT = 200
MORE = """
[[zones]]
name = "away"
recipient_domains = ["away.test"]
host = "127.0.0.1"
port = {dead}
[[zones]]
name = "slow"
host = "127.0.0.1"
port = {sink}
connections = 2
[[throttles]]
name = "slowly"
per = ["zone"]
only = {{ zone = "slow" }}
connections = 1
"""


class Rerouted:
    def __init__(self, mta: Mta, sink: Sink) -> None:
        self.mta, self.sink = mta, sink

    def send(self, first: int, count: int) -> None:
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            for number in range(first, first + count):
                client.sendmail("ann@src.test", [f"r{number}@away.test"], b"Subject: x\r\n\r\nx\r\n")

    def until(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end, self.mta.log_tail()
            time.sleep(0.05)

    def came(self) -> Counter[str]:
        return Counter(one.recipients[0] for one in self.sink.messages)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rerouted]:
    with sink_in_a_thread() as sink:
        more = MORE.format(sink=sink.port, dead=free_port())
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, retry_min=60)
        try:
            mta.start()
            asyncio.run(mta.taking())
            yield Rerouted(mta, sink)
        finally:
            mta.end()


@pytest.mark.parametrize("to", ["zone", "host"])
def test_what_waits_and_what_comes_goes_around(rig: Rerouted, to: str) -> None:
    """A retry would take an hour: what comes within the minute was brought back by the reroute."""
    rig.send(0, COUNT)
    rig.until(lambda: [row for row in rig.mta.ask("standing") if row["kind"] in ("resting", "concurrency")])
    target = "zone slow" if to == "zone" else f"host 127.0.0.1:{rig.sink.port}"
    row = rig.mta.ask("reroute", to=target, zone="away", seconds=3600.0, cause="it is away", by="ann")
    assert (row["zone"], row["to"]) == ("away", target)
    rig.until(lambda: len(rig.sink.messages) > COUNT // 10)
    rig.mta.kill("queue")
    asyncio.run(rig.mta.taking())
    [row] = rig.mta.ask("reroutes")
    assert (row["to"], row["cause"]) == (target, "by ann: it is away")
    found = rig.mta.ask("explain", what="away")
    assert any("is rerouted to" in reason["cause"] for reason in found["meanwhile"])
    rig.send(COUNT, 20)
    rig.until(lambda: len(rig.came()) == COUNT + 20)
    twice = {address: count for address, count in rig.came().items() if count > 1}
    assert len(twice) <= 100, "only what was on its way at the kill may come twice"
    rig.until(lambda: rig.mta.ask("size")["total"]["messages"] == 0)
    assert rig.mta.ask("reroute-remove", zone="away")
    rig.send(COUNT + 20, 1)
    rig.until(lambda: rig.mta.ask("size")["total"]["deferred"] or rig.mta.ask("size")["total"]["queued"])
    assert len(rig.came()) == COUNT + 20
