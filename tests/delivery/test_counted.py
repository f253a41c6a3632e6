"""Connections that a limit counts: the queue hears of each that it knows when the kernel has closed it, not before."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import open_connections
import pytest
import trustme

from tests.delivery.conftest import SILENCE_S, Queue, Server
from zonemta_py.delivery.smtp import connections as pool
from zonemta_py.delivery.smtp import dialogue
from zonemta_py.queue.api import DEFERRED, DELIVERED, Delivery, Result, Retired

Until = Callable[[Callable[[], Any]], Awaitable[None]]


def established(*servers: Server) -> int:
    """Connections to them that are open, as the kernel counts them of who has opened them."""
    wanted = {("127.0.0.1", server.port) for server in servers}  # others have connections of other addresses
    return sum(one.other in wanted for one in open_connections.established())


class Counting(Queue):
    """Gives out one delivery after the other, each when the one before has been answered, and ends when told to.

    closings: connections, and how many were open when they were said to be closed. open: how many were, at each result.
    """

    def __init__(self, servers: list[Server], *deliveries: Delivery) -> None:
        super().__init__(list(deliveries), None, 1)
        self.servers, self.ends = servers, asyncio.Event()
        self.closings: list[tuple[int, int]] = []
        self.open: list[int] = []
        self.closed = self._closed  # type: ignore[assignment]

    async def lease(self, most: int) -> list[Delivery]:
        if self.waiting:
            return [self.waiting.pop(0)]
        await self.ends.wait()
        raise Retired

    async def settle(self, result: Result) -> None:
        self.results.append(result)
        self.open.append(established(*self.servers))

    def _closed(self, connection: int) -> None:
        self.closings.append((connection, established(*self.servers)))


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("quit_way", ["", "silence", "reset"])
@pytest.mark.parametrize("zone", [{"idle_s": 0.1}, {"idle_s": 0.0}, {"messages_per_connection": 1}])
async def test_closed_is_said_when_it_is(
    scripted: Any, letter: Any, deliver: Any, until: Until, monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext,
    encrypted: bool, quit_way: str, zone: dict[str, Any],
) -> None:  # fmt: skip
    """After its idle time, or at once: also by a server that does not read QUIT, or ends without a word."""
    monkeypatch.setattr(dialogue, "QUIT_S", 0.4)
    server = await scripted({"quit": quit_way} if quit_way else {}, ("PIPELINING", "STARTTLS"), tls)
    queue = Counting([server], letter(server.port, connection=0))
    work = asyncio.create_task(
        deliver(*queue.waiting, queue=queue, **zone, **({"tls": "opportunistic"} if encrypted else {}))
    )
    await until(lambda: "QUIT" in server.commands)
    (result,) = queue.results
    assert (result.connection, result.kept) == (result.lease, zone == {"idle_s": 0.1})
    assert bool(result.tls) == encrypted
    if quit_way == "silence":
        assert (established(server), queue.closings) == (1, [])
    await until(lambda: queue.closings)
    assert queue.closings == [(result.lease, 0)]
    queue.ends.set()
    await work


class Gate(asyncio.Event):
    """When it opens, the server does that."""

    then = "reset"


async def test_each_way_to_end_is_said(
    scripted: Any, letter: Any, deliver: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server closes it, it is one too many, its sender retires: each once."""
    monkeypatch.setattr(pool, "IDLE_MAX", 1)
    hangs_up = Gate()
    servers = [await scripted({"after": hangs_up}), await scripted(), await scripted()]
    first, *others = [letter(one.port, connection=0) for one in servers]
    queue = Counting(servers, first)
    work = asyncio.create_task(deliver(first, *others, queue=queue, idle_s=600))
    await until(lambda: queue.results)
    assert (established(*servers), queue.closings) == (1, [])
    hangs_up.set()
    await until(lambda: queue.closings)
    assert queue.closings == [(1, 0)]
    queue.ends.set()
    await work
    assert queue.closings == [(1, 0)]
    queue = Counting(servers, *others)
    work = asyncio.create_task(deliver(*others, queue=queue, idle_s=600))
    await until(lambda: len(queue.results) == 2 and queue.closings)
    assert queue.closings == [(1, 1)], "the oldest of the two, while the other is open"
    queue.ends.set()
    await work
    assert queue.closings == [(1, 1), (2, 0)]


async def test_a_named_connection_is_used_or_closed(scripted: Any, letter: Any, deliver: Any, until: Until) -> None:
    """One lease, one connection: what cannot be used for it is closed before another is opened."""
    server = await scripted()
    first, second = letter(server.port, connection=0), letter(server.port, connection=1)
    third, fourth = letter(server.port, connection=1, tls_optional=True), letter(server.port, connection=3)
    third.source = "127.0.0.9"
    queue = Counting([server], first, second, third, fourth)
    work = asyncio.create_task(deliver(first, second, third, fourth, queue=queue, idle_s=600))
    await until(lambda: len(queue.results) == 4)
    assert [(one.connection, one.opened) for one in queue.results] == [(1, True), (1, False), (3, True), (4, True)]
    assert queue.closings == [(1, 0), (3, 0)]
    assert queue.open == [1, 1, 1, 1]
    queue.ends.set()
    await work


@pytest.mark.parametrize("way", ["5xx", "421", "silence", "garbage"])
@pytest.mark.parametrize("point", ["banner", "ehlo", "starttls"])
@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_failed_try_is_closed_before_the_next(
    scripted: Any, letter: Any, deliver: Any, until: Until, tls: ssl.SSLContext, way: str, point: str, encrypted: bool
) -> None:
    """Another MX host, or the same once more without TLS: never two at once; and nothing is left when it is told."""
    bad = await scripted({point: way}, ("PIPELINING", "STARTTLS"), tls if encrypted else None)
    good = await scripted()
    most, begun_s = 0, time.monotonic()

    async def look() -> None:
        """At every turn of the loop; less often in the middle of a silence, in which only a wait goes on."""
        nonlocal most
        while True:
            most = max(most, established(bad, good))
            waits = way == "silence" and 0.2 < time.monotonic() - begun_s < SILENCE_S - 0.2
            await asyncio.sleep(0.005 if waits else 0)

    hosts = [["127.0.0.1", ["127.0.0.1"]]]
    delivery = letter(bad.port, connection=0, hosts=hosts, host="")
    queue = Counting([bad, good], delivery)
    looking = asyncio.create_task(look())
    work = asyncio.create_task(
        deliver(delivery, queue=queue, tls="opportunistic", idle_s=0, hosts=[
            {"host": "127.0.0.1", "port": bad.port}, {"host": "127.0.0.1", "port": good.port}
        ])
    )  # fmt: skip
    await until(lambda: queue.results)
    (result,) = queue.results
    assert result.outcomes[0].verdict in (DELIVERED, DEFERRED)
    assert queue.open == [1 if result.connection else 0]
    queue.ends.set()
    await work
    looking.cancel()
    assert most == 1


@pytest.mark.parametrize("encrypted", [False, True])
async def test_who_retires_says_what_is_open(
    scripted: Any, letter: Any, deliver: Any, until: Until, monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext,
    encrypted: bool,
) -> None:  # fmt: skip
    """No limit counts them, but the next configuration may have one: idle, in use, being closed; and when each is
    closed."""
    monkeypatch.setattr(dialogue, "QUIT_S", 0.4)
    answers, last = asyncio.Event(), asyncio.Event()
    scripts: list[dict[str, Any]] = [{"quit": "silence"}, {"dot": answers}, {"dot": last, "quit": "silence"}]
    servers = [await scripted(script, ("PIPELINING", "STARTTLS"), tls) for script in scripts]
    letters = [letter(server.port) for server in servers]
    letters[0].site, letters[0].provider, letters[0].campaign = "idle.test", "p", "c"
    letters[2].idle_s = 0.0

    class Retiring(Counting):
        async def lease(self, most: int) -> list[Delivery]:
            given, self.waiting = self.waiting, []
            if not given:
                await self.ends.wait()
                raise Retired
            return given

        async def settle(self, result: Result) -> None:
            await super().settle(result)
            if result.lease == 3:  # its connection is being closed, which takes but a moment
                self.ends.set()

    queue = Retiring(servers, *letters)
    work = asyncio.create_task(
        deliver(*letters, queue=queue, idle_s=600, most=3, **({"tls": "opportunistic"} if encrypted else {}))
    )
    await until(lambda: len(queue.results) == 1 and servers[1].bodies)
    last.set()
    await until(lambda: queue.opened)
    idle, used = (1, 0, "default", "", "idle.test", "p", "", "c"), (2, 2, "default", "", "", "", "", "")
    closing = [(3, 0, "default", "", "", "", "", "")] if encrypted else []  # TLS's end is waited for
    assert sorted(queue.opened) == [idle, used, *closing]
    assert {name for name, _ in queue.closings} <= {one[0] for one in closing}
    await until(lambda: established(servers[0], servers[2]) == 0)
    answers.set()
    await work
    assert [result.connection for result in sorted(queue.results, key=lambda one: one.lease)] == [0, 2, 0]
    assert sorted(name for name, _ in queue.closings) == [one[0] for one in [idle, used, *closing]]
