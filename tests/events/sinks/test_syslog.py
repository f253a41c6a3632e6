"""Syslog on real sockets: RFC 5424 over UDP, unix sockets, TCP and TLS."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown
from zonemta_py.events.sinks.syslog import SyslogSink

MakeReady = Callable[..., Ready]
RFC5424 = re.compile(rb"<(\d+)>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+) zonemta (\d+) (\S+) - (.*)", re.DOTALL)


async def opened(url: str, **keys: Any) -> SyslogSink:
    sink = SyslogSink(EventSink(name="s", kind="syslog", url=url, **keys), "0a1b2c")
    await sink.open()
    return sink


def body(message: bytes) -> bytes:
    found = RFC5424.fullmatch(message)
    assert found is not None, message
    return found[6]


async def often(sink: SyslogSink, ready: MakeReady) -> None:
    """Until somebody notices: the first datagram, or write, to nobody succeeds."""
    for seq in range(100):
        await sink.send([ready(seq)])
        await asyncio.sleep(0.01)


class Listener:
    """Takes counted octets apart."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while size := await reader.readuntil(b" ") if not reader.at_eof() else b"":
            self.messages.append(await reader.readexactly(int(size)))

    async def got(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.messages) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_udp(ready: MakeReady) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(60)
        sink = await opened(f"udp://127.0.0.1:{there.getsockname()[1]}", facility="local3")
        await sink.send([ready(1), ready(2)])
        messages = [there.recv(65_536), there.recv(65_536)]
        assert [body(message) for message in messages] == [ready(1).body, ready(2).body]
        found = RFC5424.fullmatch(messages[0])
        assert found is not None
        assert (int(found[1]), found[5]) == (19 * 8 + 6, b"delivered")
        await sink.send([ready(3)._replace(type="bounced")])
        assert there.recv(65_536).startswith(b"<%d>1 " % (19 * 8 + 4))
        with pytest.raises(Rejected, match="too large") as caught:
            await sink.send([ready(4), ready(5, size=70_000), ready(6)])
        assert caught.value.indices == (1,)
        assert [body(there.recv(65_536)) for _ in range(2)] == [ready(4).body, ready(6).body]
    with pytest.raises(SinkDown, match="Connection refused"):
        await often(sink, ready)
    await sink.close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
async def test_unix_socket(tmp_path: Path, ready: MakeReady, kind: int) -> None:
    """/dev/log is the one or the other."""
    path, listener = tmp_path / "log", Listener()
    with socket.socket(socket.AF_UNIX, kind) as there:
        there.bind(str(path))
        if kind == socket.SOCK_STREAM:
            await asyncio.start_unix_server(listener.take, sock=there)
            sink = await opened(f"unix://{path}")
            await sink.send([ready(1), ready(2)])
            await listener.got(2)
            messages = listener.messages
        else:
            there.settimeout(60)
            sink = await opened(f"unix://{path}")
            await sink.send([ready(1), ready(2)])
            messages = [there.recv(65_536), there.recv(65_536)]
        assert [body(message) for message in messages] == [ready(1).body, ready(2).body]
        await sink.close()


async def test_tcp_counts_octets_and_sees_that_the_server_has_gone(ready: MakeReady) -> None:
    listener = Listener()
    server = await asyncio.start_server(listener.take, "127.0.0.1", 0)
    sink = await opened(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await sink.send([ready(seq, size=4000) for seq in range(50)])
    await listener.got(50)
    assert [body(message) for message in listener.messages] == [ready(seq, size=4000).body for seq in range(50)]
    listener.writers[0].close()
    server.close()
    with pytest.raises(SinkDown):
        await often(sink, ready)
    await sink.close()
    with pytest.raises(SinkDown, match="cannot be reached"):
        await sink.open()


async def test_tls(tmp_path: Path, ready: MakeReady) -> None:
    authority, listener = trustme.CA(), Listener()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(listener.take, "127.0.0.1", 0, ssl=context)
    url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(SinkDown, match=r"certificate verify failed|CERTIFICATE_VERIFY_FAILED"):
        await opened(url)
    sink = await opened(url, ca_file=tmp_path / "ca.pem")
    await sink.send([ready(1)])
    await listener.got(1)
    assert body(listener.messages[0]) == ready(1).body
    await sink.close()
    server.close()
