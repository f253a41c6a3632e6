"""A source that goes while mail is under way by it: whose failure that is, and what a look without mail finds."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from ports import free_port

from tests.delivery.test_egress import only, pool
from zonemta_py.config.sources import Source
from zonemta_py.delivery.dns import egress as egresses
from zonemta_py.delivery.dns import socks5
from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.mail.classify import DeliveryError, ProxyFailed, SourceUnusable
from zonemta_py.queue.api import DEFERRED

ADDRESS = "10.77.29.1"
PATIENCE_S = 60


def _ip(what: str) -> bool:
    command = ["ip", "addr", what, f"{ADDRESS}/32", "dev", "lo"]
    with suppress(OSError):
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    return False


@pytest.fixture
def address() -> Iterator[str]:
    """One of this machine's, until the test takes it away."""
    if os.geteuid() or not _ip("add"):
        pytest.skip("only root may add an address to the loopback interface")
    try:
        yield ADDRESS
    finally:
        _ip("del")


# -- addresses


async def test_a_look_finds_whether_the_address_is_here(address: str) -> None:
    egress = Egress(Source(address=address))
    await egress.check()
    _ip("del")
    with pytest.raises(SourceUnusable, match="is not an address of this machine"):
        await egress.check()
    _ip("add")
    await egress.check()


async def test_connections_of_a_lost_address_are_ended(address: str, scripted: Any, letter: Any, deliver: Any,
                                                       monkeypatch: Any) -> None:  # fmt: skip
    """A transaction in which a server is silent ends as soon as the address has gone, and not as the server's."""
    monkeypatch.setattr(egresses, "LOOK_S", 0.05)
    server = await scripted({"rcpt1": (never := asyncio.Event())})
    delivering = asyncio.ensure_future(deliver(letter(server.port, source=address)))
    async with asyncio.timeout(PATIENCE_S):
        while not any(line.startswith("RCPT") for line in server.commands):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        _ip("del")
        [result] = await delivering
    never.set()
    assert (only(result), result.down_s) == ((DEFERRED, "source"), None)
    assert f"{address} is not an address of this machine" in result.outcomes[0].reply.text


async def test_what_a_server_ends_stays_the_servers(scripted: Any, letter: Any, deliver: Any) -> None:
    """With a source, and that still there."""
    server = await scripted({"mail": "reset"})
    [result] = await deliver(letter(server.port, source="127.1.0.1"))
    assert only(result)[0] == DEFERRED
    assert only(result)[1] not in ("source", "proxy")


def test_no_route_is_the_sources_only_where_others_have_one() -> None:
    """127.0.0.0/8 gets nowhere beyond this machine; without a route at all it is the destination's."""
    near = Egress(Source(address="127.0.0.1"))
    assert not near._lacks_route("127.0.0.9")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.9", 9))
            routed = True
        except OSError:
            routed = False
    assert near._lacks_route("192.0.2.9") is routed


# -- proxies


class SocksServer:
    """What a SOCKS5 proxy says, by the part of the conversation; it relays nothing."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.heard = answers, list[bytes]()
        self.port = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for answer in self.answers:
                self.heard.append(await reader.read(600))
                writer.write(answer)
            await reader.read()
        writer.close()


async def proxy(stack: AsyncExitStack, *answers: bytes) -> SocksServer:
    one = SocksServer(*answers)
    server = await asyncio.start_server(one.talk, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    stack.callback(server.close)
    return one


@pytest.mark.parametrize(
    ("login", "answers", "said"),
    [
        ("", (b"\5\0",), ""),
        ("u:p@", (b"\5\2", b"\1\0"), ""),
        ("u:p@", (b"\5\0",), ""),
        ("", (b"\5\xff",), "asks for a user and password"),
        ("u:p@", (b"\5\xff",), "accepts neither"),
        ("u:p@", (b"\5\2", b"\1\1"), "refuses our user or password"),
        ("", (b"HTTP/1.0 400\r\n",), "does not speak SOCKS5"),
    ],
)
async def test_a_look_greets_the_proxy(login: str, answers: Any, said: str, stack: AsyncExitStack) -> None:
    """Without asking it for a connection. "": it can be used."""
    there = await proxy(stack, *answers)
    egress = Egress(Source(address="127.1.0.1", proxy=f"socks5://{login}127.0.0.1:{there.port}"))
    found = ""
    try:
        await egress.check()
    except ProxyFailed as error:
        found = error.reply.text
    assert (said in found) if said else not found
    assert len(there.heard) == len(answers)
    assert "p@" not in found


@pytest.mark.parametrize(
    ("answer", "stage"),
    [(b"\5\5\0\1" + bytes(6), "connect"), (b"\5\4\0\1" + bytes(6), "connect"), (b"\5\1\0\1" + bytes(6), "proxy"),
     (b"\5\2\0\1" + bytes(6), "proxy"), (b"\4\0\0\1" + bytes(6), "proxy"), (b"\5\0\0\7" + bytes(6), "proxy")],
)  # fmt: skip
async def test_whose_failure_a_reply_to_connect_is(answer: bytes, stage: str, stack: AsyncExitStack) -> None:
    there = await proxy(stack, b"\5\0", answer)
    egress = Egress(Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{there.port}"))
    with pytest.raises(DeliveryError) as caught:
        await egress.open("192.0.2.9", 25, PATIENCE_S)
    assert caught.value.stage == stage


@pytest.mark.parametrize(
    "bound", [b"\1" + bytes(4), b"\4" + bytes(16), b"\3\x0bproxy.local"],
)  # fmt: skip
async def test_what_follows_the_reply_is_the_destinations(bound: bytes, stack: AsyncExitStack) -> None:
    """Whatever form the address in it has, not a byte is taken too much."""
    there = await proxy(stack, b"\5\0", b"\5\0\0" + bound + b"\0\x19220 ready")
    egress = Egress(Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{there.port}"))
    with await egress.open("2001:db8::9", 25, PATIENCE_S) as sock:
        assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"220 ready"
    assert there.heard[1] == b"\5\1\0\4" + socket.inet_pton(socket.AF_INET6, "2001:db8::9") + b"\0\x19"


async def test_a_proxy_that_goes_in_the_middle(stack: AsyncExitStack, scripted: Any, letter: Any,
                                               deliver: Any) -> None:  # fmt: skip
    """The connection breaks, and the proxy is not there: stage proxy, and the destination does not rest."""
    server = await scripted({"rcpt1": (never := asyncio.Event())})
    pipes = list[asyncio.StreamWriter]()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(3)
        writer.write(b"\5\0")
        await reader.readexactly(10)
        there, onward = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\5\0\0\1" + bytes(6))
        pipes.extend((writer, onward))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(4096):
                    sink.write(data)

        await asyncio.gather(pump(reader, onward), pump(there, writer))

    listening = await asyncio.start_server(relay, "127.0.0.1", free_port())
    stack.callback(listening.close)
    port = listening.sockets[0].getsockname()[1]
    source = Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{port}")
    delivering = asyncio.ensure_future(deliver(letter(server.port, source="127.1.0.1"), **pool(source)))
    async with asyncio.timeout(PATIENCE_S):
        while not any(line.startswith("RCPT") for line in server.commands):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        listening.close()
        for pipe in pipes:
            pipe.transport.abort()
        [result] = await delivering
    never.set()
    assert (only(result), result.down_s) == ((DEFERRED, "proxy"), None)
    assert "Connection refused" in result.outcomes[0].reply.text


async def test_a_password_that_does_not_fit(stack: AsyncExitStack) -> None:
    there = await proxy(stack, b"\5\2")
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", there.port))
        with pytest.raises(socks5.SocksRefused, match="longer than 255"):
            await socks5.greet(sock, "u", "p" * 256)
