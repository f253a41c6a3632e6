"""A bug of ours at any await of a delivery: nobody gets a second copy, nobody is lost, who has no answer is named."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.injected import FAULTS, Faulty
from zonemta_py.config import Config, Plugins
from zonemta_py.delivery import worker
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.lifecycle.settle import Settling
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

PLUGIN = '''"""Listens everywhere."""
from zonemta_py.plugin import *
import asyncio

async def sender_fetch(delivery):
    await asyncio.sleep(0)

async def sender_connecting(delivery, options):
    await asyncio.sleep(0)

async def sender_connect(delivery, options):
    await asyncio.sleep(0)

async def sender_connected(delivery, connection):
    await asyncio.sleep(0)

async def sender_connection(delivery, connection):
    await asyncio.sleep(0)

async def sender_headers(delivery, headers):
    await asyncio.sleep(0)
    if delivery.recipients[0].address.startswith("odd"):
        headers.add("X-Odd", "yes")

async def sender_delivered(delivery, result):
    await asyncio.sleep(0)

async def sender_response_error(delivery, connection, reply):
    await asyncio.sleep(0)
'''


class Bench:
    """A queue, a sender in this process, and a server; each message of `place` n meets its fault at its n-th await."""

    def __init__(self, folder: Path, server: Any, protocol: str, idle_s: float, host: Host) -> None:
        self.server, self.host = server, host
        zone = {"name": "default", "host": "127.0.0.1", "port": server.port, "tls": "none", "protocol": protocol,
                "idle_s": idle_s}  # fmt: skip
        self.config = Config.model_validate(
            {"server": {"folder": folder}, "queue": {"reserve_bytes": 0}, "zones": [zone],
             "retry": {"schedule_min": [0.0001], "jitter": 0, "down_s": 0.01, "down_max_s": 0.01},
             "learning": {"initial": 1000}, "rules": {}}
        )  # fmt: skip
        self.folder = folder
        self.queue: LocalQueue
        self.under_way = 0

    async def __aenter__(self) -> Bench:
        self.queue = await open_queue(self.config)
        self.wire = await serve(self.queue, self.folder)
        source = TemplateSource("t", Text("s"), Text("a@b.example"), text=Text("X {{ name }}"))
        await self.queue.ask(
            "campaign-put", name="c", template=prepare(source).pack(), bounds={}, sender="a@b.example", tenant="",
            zone="", priority=0, planned=0, life_h=24, notify="remote",
        )  # fmt: skip
        remote = await RemoteQueue.connect(self.folder, "sender-1")
        self.sender = asyncio.ensure_future(worker.run(self.config, remote, self.host, 5))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sender.cancel()
        await asyncio.wait([self.sender])
        self.wire.close()
        self.queue.close()

    async def over(self) -> None:
        """All has ended, or is held."""
        async with asyncio.timeout(60):
            while True:
                total = (await self.queue.ask("size"))["total"]
                if not (total["queued"] or total["deferred"] or self.queue.leases.out or self.under_way):
                    return
                assert not self.sender.done(), "the sender has ended"
                await asyncio.sleep(0.005)


def plain(mark: str) -> tuple[Envelope, bytes]:
    people = [Recipient(f"{name}-{mark}@d.example") for name in ("a", "b")]
    return Envelope("x@y.example", people), b"Subject: x\r\n\r\nhello\r\n"


def odd(mark: str) -> tuple[Envelope, bytes]:
    people = [Recipient(f"{name}-{mark}@d.example") for name in ("odd", "even")]
    return Envelope("x@y.example", people), b"Subject: x\r\n\r\nhello\r\n"


def large(mark: str) -> tuple[Envelope, bytes]:
    line = b"0123456789" * 7 + b"\r\n"
    body = b"Subject: x\r\n\r\n" + line * (3 * CHUNK_BYTES // len(line))
    return Envelope("x@y.example", [Recipient(f"{mark}@d.example")], size=len(body)), body


def merged(mark: str) -> tuple[Envelope, bytes]:
    people = [Recipient(f"{name}-{mark}@d.example", values=[f"{mark}{name}"]) for name in ("a", "b", "c")]
    return Envelope("", people, columns=["name"], campaign="c", request=f"campaign c {mark}"), b""


CASES: dict[str, tuple[Callable[[str], tuple[Envelope, bytes]], str, float, bool]] = {
    "plain": (plain, "smtp", 0, False),
    "over an idle connection": (plain, "smtp", 60, False),
    "with plugins": (odd, "smtp", 0, True),
    "large": (large, "smtp", 0, False),
    "merged": (merged, "smtp", 0, False),
    "merged with plugins": (merged, "smtp", 0, True),
    "lmtp": (plain, "lmtp", 0, False),
}
"""What is sent, how, how long connections stay, whether plugins listen."""


PAIRS = [(case, fault) for case in CASES for fault in (*FAULTS, "cut")]
QUICK = [
    ("plain", "bug"), ("large", "bug"), ("merged", "bug"), ("merged", "cut"), ("with plugins", "canceled"),
    ("over an idle connection", "canceled"), ("lmtp", "bug"),
]  # fmt: skip
"""The others take `scripts/trials/injected`."""


@pytest.mark.parametrize(("case", "fault"), PAIRS if os.environ.get("ZONEMTA_ALL_FAULTS") else QUICK)
async def test_a_bug_at_any_await(
    case: str, fault: str, takes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each await is found by counting. Whoever got the message got it once; all others are held, and in doubt. Only a
    connection that is lost behind the dot may cost a second copy, and the recipient's own line says so."""
    make, protocol, idle_s, plugins = CASES[case]
    file = tmp_path / "everywhere.py"
    file.write_text(PLUGIN)
    host = Host.load(Plugins(enabled=[str(file)])) if plugins else Host.empty()
    server = await takes(protocol)
    reached: dict[int, int] = {}
    handle = worker._handle

    settle = Settling.settle
    unanswered: set[str] = set()

    def noted(self: Settling, result: Any, done: Any) -> None:
        lease = self._leases.out[result.lease]
        for outcome in result.outcomes:
            if (outcome.verdict, outcome.stage) == (DEFERRED, "dot"):
                assert "while waiting for the reply to the end of the message" in outcome.reply.text
                unanswered.update(lease.batch.entries[index].address for index in outcome.recipients)
        settle(self, result, done)

    monkeypatch.setattr(Settling, "settle", noted)

    async def faulty(context: Any, delivery: Any, slots: Any) -> None:
        bench.under_way += 1
        try:
            await at_its_place(context, delivery, slots)
        finally:
            bench.under_way -= 1

    async def at_its_place(context: Any, delivery: Any, slots: Any) -> None:
        place = int(delivery.recipients[0].address.partition("@")[0].split("-")[-1])
        if place in reached:
            await handle(context, delivery, slots)
            return
        reached[place] = 0
        work = Faulty(handle(context, delivery, slots), place, FAULTS.get(fault, server.cut))
        await work
        reached[place] = work.reached

    monkeypatch.setattr(worker, "_handle", faulty)
    wanted: set[str] = set()
    async with Bench(tmp_path / "spool", server, protocol, idle_s, host) as bench:
        place = 0
        while True:
            place += 1
            envelope, body = make(str(place))
            envelope.size = len(body)
            wanted |= {one.address for one in envelope.recipients}
            await bench.queue.accept(envelope, body)
            await bench.over()
            assert place < 500
            if reached.get(place, 0) < place:
                break
        doubtful = await bench.queue.ask("in-doubt")
        held = (await bench.queue.ask("size"))["total"]["held"]
    assert place > 3, "there were awaits"
    copies = Counter(server.people)
    assert {who for who, count in copies.items() if count > 1} <= (unanswered if fault == "cut" else set())
    assert {one["recipient"] for one in doubtful if one["action"] == "hold"} >= wanted - set(copies)
    assert held == len(doubtful)
