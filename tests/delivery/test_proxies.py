"""Mail that leaves through a proxy: a real SOCKS5 server, a real HAProxy."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ports import free_port

from tests.delivery.test_egress import Names, only, pool
from zonemta_py.config.sources import Source
from zonemta_py.delivery.dns.egress import Egress, proxy_header
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.queue.api import DEFERRED, DELIVERED

PATIENCE_S = 60


@pytest.fixture
def launch(stack: AsyncExitStack) -> Callable[..., Awaitable[None]]:
    """Runs a program until the test ends; returns once its port on 127.0.0.1 is open."""

    async def run(port: int, *command: str | Path) -> None:
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*map(str, command), stdout=quiet, stderr=quiet)

        async def end() -> None:
            if process.returncode is None:
                process.kill()
            await process.wait()

        stack.push_async_callback(end)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                except OSError:
                    assert process.returncode is None, f"{command[0]} has ended"
                    await asyncio.sleep(0.01)

    return run


needs_microsocks = pytest.mark.skipif(shutil.which("microsocks") is None, reason="apt-get install microsocks")


@pytest.fixture
def microsocks(launch: Any) -> Callable[..., Awaitable[int]]:
    """A real SOCKS5 server that sends from 127.2.2.2; returns its port."""

    async def start(*options: str) -> int:
        port = free_port()
        await launch(port, "microsocks", "-i", "127.0.0.1", "-p", str(port), "-b", "127.2.2.2", *options)
        return port

    return start


@needs_microsocks
@pytest.mark.parametrize(("options", "login"), [((), ""), (("-u", "us er", "-P", "p@ss"), "us%20er:p%40ss@")])
async def test_through_socks5(
    options: Any, login: str, microsocks: Any, start_sink: Any, letter: Any, deliver: Any
) -> None:
    """The server sees the proxy's address; user and password are percent-encoded in the URL; connections are kept."""
    sink, port = await start_sink(), await microsocks(*options)
    source = Source(address="127.1.0.1", proxy=f"socks5://{login}127.0.0.1:{port}", hostname="via.test")
    results = await deliver(*[letter(sink.port, source="127.1.0.1") for _ in range(3)], **pool(source))
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 3
    assert [(message.client, message.helo) for message in sink.messages] == [("127.2.2.2", "via.test")] * 3
    assert sink.counters.connections == 1


@needs_microsocks
async def test_socks5_refuses_us(microsocks: Any, start_sink: Any, letter: Any, deliver: Any) -> None:
    """A wrong password is the proxy's trouble: stage proxy, the destination does not rest, the password is not told."""
    sink, port = await start_sink(), await microsocks("-u", "user", "-P", "right")
    source = Source(address="127.1.0.1", proxy=f"socks5://user:wr0ng@127.0.0.1:{port}")
    [result] = await deliver(letter(sink.port, source="127.1.0.1"), **pool(source))
    reply = result.outcomes[0].reply
    assert (only(result), result.down_s, reply.enhanced) == ((DEFERRED, "proxy"), None, "4.4.1")
    assert f"socks5://127.0.0.1:{port}" in reply.text
    assert "wr0ng" not in reply.text


@needs_microsocks
async def test_the_destination_refuses_socks5(microsocks: Any, letter: Any, deliver: Any) -> None:
    """What the proxy says of the destination is the destination's: stage connect, and it rests."""
    source = Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{await microsocks()}")
    [result] = await deliver(letter(free_port(), source="127.1.0.1"), **pool(source))
    assert (only(result), result.down_s) == ((DEFERRED, "connect"), 0)
    assert "refused" in result.outcomes[0].reply.text


@needs_microsocks
async def test_socks5_takes_the_family_we_prefer(microsocks: Any, start_sink: Any, letter: Any, deliver: Any) -> None:
    """prefer-ipv4 passes over an IPv6 address that stands first; nothing listens there, and nobody asks."""
    sink, port = await start_sink(), await microsocks()
    source = Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{port}", family="prefer-ipv4")
    [result] = await deliver(
        letter(sink.port, host="", source="127.1.0.1"), resolver=Names("2001:db8::1", "127.0.0.1"), **pool(source)
    )
    assert (only(result), result.remote) == ((DELIVERED, "dot"), f"mx.test[127.0.0.1]:{sink.port}")


@pytest.mark.parametrize("kind", ["socks5", "haproxy"])
async def test_a_proxy_that_is_down(kind: str, letter: Any, deliver: Any, caplog: Any) -> None:
    """The proxy is named, the destination does not rest, and the log says it once."""
    source = Source(address="127.1.0.1", proxy=f"{kind}://127.0.0.1:{free_port()}")
    results = await deliver(*[letter(2525, source="127.1.0.1") for _ in range(3)], **pool(source))
    assert {only(result) for result in results} == {(DEFERRED, "proxy")}
    assert {(result.down_s, result.opened) for result in results} == {(None, False)}
    assert source.proxy in results[0].outcomes[0].reply.text
    assert sum(source.proxy in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(("answer", "stage"), [(b"HTTP/1.0 400\r\n", "proxy"), (b"\x05", "proxy"), (None, "proxy")])
async def test_a_proxy_that_speaks_no_socks5(answer: bytes | None, stage: str, stack: AsyncExitStack) -> None:
    """Garbage, half a reply and silence before it has agreed to serve us are the proxy's failure."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()
        else:
            await reader.read(3)
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    await stack.enter_async_context(server)
    egress = Egress(Source(address="127.1.0.1", proxy=f"socks5://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    with pytest.raises(DeliveryError) as caught:
        await egress.open("127.0.0.1", 25, 0.3 if answer is None else PATIENCE_S)
    assert caught.value.stage == stage
    server.close()


_HAPROXY = """
global
  maxconn 100
defaults
  mode tcp
  timeout connect 2s
  timeout client 60s
  timeout server 60s
listen out
  bind 127.0.0.1:{port} accept-proxy
  source 0.0.0.0 usesrc clientip
  server any 0.0.0.0
"""


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="apt-get install haproxy")
@pytest.mark.skipif(os.geteuid() != 0, reason="HAProxy's usesrc needs CAP_NET_ADMIN: run as root")
async def test_through_haproxy(launch: Any, start_sink: Any, letter: Any, deliver: Any, tmp_path: Path) -> None:
    """HAProxy connects to the destination, and from the source, that our header names; each source has its own."""
    port, config, sinks = free_port(), tmp_path / "haproxy.cfg", [await start_sink(f"127.3.0.{n}:0") for n in (1, 2)]
    config.write_text(_HAPROXY.format(port=port))
    await launch(port, "haproxy", "-db", "-f", config)
    sources = [Source(address=f"127.4.0.{n}", proxy=f"haproxy://127.0.0.1:{port}") for n in (1, 2)]
    letters = [
        letter(sink.port, host=f"127.3.0.{n}", source=source.address)
        for n, sink in enumerate(sinks, 1)
        for source in (*sources, *sources)
    ]
    results = await deliver(*letters, **pool(*sources))
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 8
    assert [result.local for result in results] == [delivery.source for delivery in letters]
    for sink in sinks:
        assert [message.client for message in sink.messages] == ["127.4.0.1", "127.4.0.2"] * 2
        assert sink.counters.connections == 2


@given(st.sampled_from([4, 6]).flatmap(lambda v: st.tuples(*[st.ip_addresses(v=v)] * 2)), *[st.integers(1, 65535)] * 2)
def test_the_header_names_both_ends(ends: Any, source_port: int, port: int) -> None:
    """Signature, version 2 with PROXY, TCP over the right family, and source before destination (2.2 of its text)."""
    header = proxy_header(str(ends[0]), source_port, str(ends[1]), port)
    signature, command, family, size = struct.unpack("!12sBBH", header[:16])
    width = 4 if ends[0].version == 4 else 16
    assert signature == b"\r\n\r\n\0\r\nQUIT\n"
    assert (command, family, size) == (0x21, 0x11 if width == 4 else 0x21, 2 * width + 4)
    assert struct.unpack(f"!{width}s{width}sHH", header[16:]) == (*(end.packed for end in ends), source_port, port)
