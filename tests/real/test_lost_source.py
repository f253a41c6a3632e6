"""The whole MTA with four sources, one of which goes and comes back: its mail goes by the others, and nobody's ends."""

from __future__ import annotations

import asyncio
import shutil
import smtplib
import subprocess
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
ADDRESSES = [f"192.0.2.{n}" for n in range(1, 5)]
LOST = ADDRESSES[3]
MORE = """
[[zones]]
name = "pooled"
recipient_domains = ["pool.test"]
host = "127.0.0.1"
port = {sink}
pool = "four"
[[pools]]
name = "four"
"""

pytestmark = pytest.mark.skipif(shutil.which("microsocks") is None, reason="apt-get install microsocks")


class Proxies:
    """A SOCKS5 server for each source, which sends from an address of its own (`seen`)."""

    def __init__(self) -> None:
        self.ports = {address: free_port() for address in ADDRESSES}
        self.seen = {address: f"127.77.30.{number}" for number, address in enumerate(ADDRESSES, 1)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, address: str) -> None:
        command = ["microsocks", "-i", "127.0.0.1", "-p", str(self.ports[address]), "-b", self.seen[address]]
        quiet = subprocess.DEVNULL
        self._running[address] = subprocess.Popen(command, stdout=quiet, stderr=quiet)

    def end(self, address: str) -> None:
        process = self._running.pop(address)
        process.kill()
        process.wait()

    def close(self) -> None:
        for address in list(self._running):
            self.end(address)


class Rig:
    def __init__(self, mta: Mta, sink: Sink, proxies: Proxies) -> None:
        self.mta, self.sink, self.proxies = mta, sink, proxies
        self.sent = 0

    def send(self, count: int) -> None:
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            for _ in range(count):
                client.sendmail("ann@src.test", [f"r{self.sent}@pool.test"], b"Subject: x\r\n\r\nx\r\n")
                self.sent += 1

    def came_by(self, since: int = 0) -> dict[str, int]:
        """How many messages have come by each source, once all have."""
        self.until(lambda: len({one.recipients[0] for one in self.sink.messages}) == self.sent)
        seen = [one.client for one in self.sink.messages[since:]]
        return {address: seen.count(client) for address, client in self.proxies.seen.items()}

    def until(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end, self.mta.log_tail()
            time.sleep(0.05)

    def resting(self) -> list[dict[str, Any]]:
        return [row for row in self.mta.ask("standing") if row["kind"] == "source"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    proxies = Proxies()
    with sink_in_a_thread() as sink:
        sources = "".join(
            f'[[pools.sources]]\naddress = "{address}"\nproxy = "socks5://127.0.0.1:{port}"\n'
            for address, port in proxies.ports.items()
        )
        more = MORE.format(sink=sink.port) + sources
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, retry_min=60)
        try:
            for address in ADDRESSES:
                proxies.start(address)
            mta.start()
            asyncio.run(mta.taking())
            yield Rig(mta, sink, proxies)
        finally:
            mta.end()
            proxies.close()


def test_one_source_of_four_goes_and_comes_back(rig: Rig) -> None:
    """A retry would take an hour here: what comes within the minute was not deferred."""
    rig.send(60)
    assert min(rig.came_by().values()) > 0
    rig.proxies.end(LOST)
    before = len(rig.sink.messages)
    rig.send(60)
    found = rig.came_by(before)
    assert found[LOST] == 0
    assert min(count for address, count in found.items() if address != LOST) > 0
    rig.until(rig.resting)
    (row,) = rig.resting()
    assert (row["name"], row["group"]) == (LOST, "resting")
    assert "Connection refused" in row["cause"]
    rig.proxies.start(LOST)
    rig.until(lambda: not rig.resting())
    before = len(rig.sink.messages)
    rig.send(60)
    assert rig.came_by(before)[LOST] > 0
    assert len(rig.sink.messages) == rig.sent
    answers = {labels[1] for labels, count in rig.mta.ask("metrics")["counters"]["zonemta_answers_total"] if count}
    assert answers <= {"delivered", "postponed", "requeued"}
    total = rig.mta.ask("size")["total"]
    assert not any(total[state] for state in ("queued", "deferred", "held", "bounced"))
