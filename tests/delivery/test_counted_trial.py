"""A random trial: limits on connections are exact at every moment, whatever senders and servers do.

A real queue behind its socket; senders with loops of their own, which stand still now and then; servers that refuse,
hang up, or do not read QUIT. Meanwhile senders fall silent and run on, and configurations with other limits take the
place of those before, the first of which limits no connections, and leaves many idle. In the end nothing is counted.
"""

import asyncio
import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop
from open_connections import Opened, established

from zonemta_py.config import Config
from zonemta_py.delivery import worker
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.delivery.smtp import dialogue
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.queue.reload.apply import prepare, take
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import retire, serve
from zonemta_py.zones.site import Site

SITES, SENDERS, CONFIGURATIONS, STEPS = 3, 3, 4, 15
MOST_ALL, MOST_SITE = 3, 2
LOOK_S = 0.001
WAYS: dict[str, tuple[str, ...]] = {
    "quit": ("silence", "reset"), "after": ("reset",), "banner": ("421", "reset"), "mail": ("4xx", "421"),
    "next": ("421", "reset"), "dot": ("4xx",),
}  # fmt: skip


def found(ports: list[int]) -> set[Opened]:
    """Open connections to these ports."""
    return {one for one in established() if one.other[1] in ports}


class Watch(threading.Thread):
    """Looks all the time. What two looks have seen was open between them: a single look takes a while itself."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self.ports, self.over, self.most, self.most_at_one, self.most_before = ports, False, 0, 0, 0
        self.before: set[Opened] | None = None

    def begin(self) -> None:
        """From now on there are limits. Those before may be more than these allow, but with them no other is opened."""
        self.before = set().union(*(found(self.ports) for _ in range(3)))  # a single look may miss one

    def run(self) -> None:
        last = found(self.ports)
        while not self.over:
            time.sleep(LOOK_S)
            now = found(self.ports)
            both, last = last & now, now
            if (before := self.before) is None:
                self.most_before = max(self.most_before, len(both))
            elif not both <= before:
                self.most = max(self.most, len(both))
                new = {one.other[1] for one in both - before}
                self.most_at_one = max(self.most_at_one, *(sum(one.other[1] == port for one in both) for port in new))


class Sender(threading.Thread):
    """A sender with a loop of its own, which stands still now and then."""

    def __init__(self, config: Config, folder: Path, generation: int, seed: int, resolver: Any = None) -> None:
        super().__init__(daemon=True)
        self.resolver = resolver
        self.config, self.folder, self.generation, self.dice = config, folder, generation, random.Random(seed)
        self.remote: RemoteQueue | None = None

    def run(self) -> None:
        uvloop.run(self._run())

    async def _run(self) -> None:
        self.remote = await RemoteQueue.connect(
            self.folder, "sender", generation=self.generation, lease_s=self.config.queue.lease_s
        )
        work = asyncio.ensure_future(worker.run(self.config, self.remote, Host.empty(), 20, resolver=self.resolver))
        while not work.done():
            await asyncio.wait([work], timeout=self.dice.uniform(0.0, 0.3))
            time.sleep(self.dice.choice((0.0, 0.0, 0.05, 0.8)))  # noqa: ASYNC251 - it stands still
        with contextlib.suppress(QueueRefusal):
            await work


def configured(folder: Path, ports: list[int], number: int) -> Config:
    throttles = (
        []
        if not number
        else [
            {"name": "all", "connections": MOST_ALL},
            {"name": "site", "per": ["site"], "connections": MOST_SITE},
            {"name": "campaign", "per": ["campaign"], "connections": 2 + number % 2},
        ]
    )
    zones = [
        {"name": f"z{n}", "default": n == 0, "host": "127.0.0.1", "port": port, "tls": "none",
         "idle_s": 0.3 if number else 9, "headers": {"X-Zone": f"z{n}"}, "messages_per_connection": 3 + number,
         "reply_timeout_s": 1}
        for n, port in enumerate(ports)
    ]  # fmt: skip
    retry = {"schedule_min": [0.005], "jitter": 0, "down_s": 0.2, "down_max_s": 0.3}
    return Config.model_validate(
        {"server": {"folder": folder}, "queue": {"reserve_bytes": 0, "lease_s": 2}, "zones": zones, "retry": retry,
         "throttles": throttles, "learning": {"initial": 20}}
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
async def test_limits_hold_all_the_time(
    scripted: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel sees no more than is allowed, and nothing counts in the end."""
    monkeypatch.setattr(dialogue, "QUIT_S", 0.3)
    dice = random.Random(seed)
    servers = [await scripted() for _ in range(SITES)]
    ports = [server.port for server in servers]
    config = configured(tmp_path, ports, 0)
    queue = await open_queue(config)
    wire = await serve(queue, tmp_path)
    watch = Watch(ports)
    watch.start()
    senders: list[Sender] = []
    try:
        for generation in range(1, CONFIGURATIONS + 1):
            config = configured(tmp_path, ports, generation - 1)
            retire(queue, generation)
            take(queue, prepare(config, queue.core.hooks, None))
            if generation == 2:
                watch.begin()
            fresh = [Sender(config, tmp_path, generation, dice.randrange(1 << 30)) for _ in range(SENDERS)]
            for sender in fresh:
                sender.start()
            senders += fresh
            for _ in range(STEPS):
                await asyncio.sleep(0.1)
                await burst(queue, dice)
                for server in servers:
                    server.script = {point: dice.choice(ways) for point, ways in WAYS.items() if dice.random() < 0.12}
            while generation == 1 and queue.leases.out:  # noqa: ASYNC110 - what these open, later limits allow
                await asyncio.sleep(0.001)
            if generation == 1:  # those that are idle take a while to close
                for server in servers:
                    server.script = {"quit": "silence"}
            silenced = dice.choice(fresh).remote
            if silenced is not None and silenced.pulse is not None and dice.random() < 0.5:
                silenced.pulse.stop()
        for server in servers:
            server.script = {}
        async with asyncio.timeout(120):
            while (await queue.ask("size"))["total"]["messages"] or counted(queue):  # noqa: ASYNC110 (others end it)
                await asyncio.sleep(0.05)
        retire(queue, CONFIGURATIONS + 1)
        for sender in senders:
            await asyncio.to_thread(sender.join, 60)
            assert not sender.is_alive()
    finally:
        watch.over = True
        wire.close()
        queue.close()
    assert watch.most_before > MOST_ALL
    assert 1 < watch.most <= MOST_ALL
    assert watch.most_at_one <= MOST_SITE


class Resolver:
    """All domains have one host, of one provider."""

    async def site(self, domain: str, now: float) -> Site:
        return Site("mx.test", "big", (("mx.test", ("127.0.0.1",)),), ((1, "mx.test"),), 60, False)

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        return [AddressTarget("mx.test", ("127.0.0.1",))]

    async def named(self, host: str, now: float) -> tuple[str, ...]:
        return (host,)


async def test_limits_hold_at_the_last_resort(scripted: Any, tmp_path: Path, unused_tcp_port: int) -> None:
    """Smart hosts are away, and three senders go to the domains' own hosts, which hold each message up a while."""
    slow = await scripted()
    slow.slow_s = 0.1
    zone = {
        "name": "default", "default": True, "hosts": [f"127.0.0.1:{unused_tcp_port}", "mx"], "port": slow.port,
        "tls": "none", "allow_private": True, "idle_s": 5,
    }  # fmt: skip
    config = Config.model_validate(
        {"server": {"folder": tmp_path}, "queue": {"reserve_bytes": 0}, "zones": [zone], "learning": {"initial": 20},
         "throttles": [{"name": "t", "only": {"provider": "big"}, "connections": 2}]}
    )  # fmt: skip
    queue = await open_queue(config)
    wire = await serve(queue, tmp_path)
    watch = Watch([slow.port])
    watch.begin()
    watch.start()
    senders = [Sender(config, tmp_path, 1, seed, Resolver()) for seed in range(3)]
    try:
        for number in range(10):
            envelope = Envelope("", [Recipient(f"r{number}@d{number}.test")])
            await queue.accept(envelope, b"Subject: x\r\n\r\n" + 3000 * b"y\r\n")
        for sender in senders:
            sender.start()
        async with asyncio.timeout(120):
            while (await queue.ask("size"))["total"]["messages"] or counted(queue):  # noqa: ASYNC110 (others end it)
                await asyncio.sleep(0.05)
        retire(queue, 2)
        for sender in senders:
            await asyncio.to_thread(sender.join, 60)
    finally:
        watch.over = True
        wire.close()
        queue.close()
    assert len(slow.bodies) == 10
    assert watch.most == 2


async def burst(queue: Any, dice: random.Random) -> None:
    """Some mail for one site, which leaves connections idle, or wants those that others have."""
    zone, campaign = f"z{dice.randrange(SITES)}", f"c{dice.randrange(3)}"
    for _ in range(dice.choice((0, 0, 2, 2, 9))):
        envelope = Envelope("", [Recipient("r@x.test")], sending_zone=zone, campaign=campaign)
        await queue.accept(envelope, b"Subject: x\r\n\r\ny\r\n")


def counted(queue: Any) -> int:
    """Connections that count at limits, or are known."""
    admission = queue.core.schedule.admission
    return sum(limit.connections for limit in admission.throttles) + len(admission.idle._by_name)
