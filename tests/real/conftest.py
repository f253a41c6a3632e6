"""The whole real MTA on loopback, between real clients in front and the sink behind; the sink's loop has a thread."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from argon2 import PasswordHasher

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dns_servers import DnsServers, missing
from ports import free_port
from survival.rig import Mta

from zonemta_py.sink import ReceivedMessage, Sink, SinkOptions
from zonemta_py.sink.server import self_made

USER, PASSWORD = "newsletter", "correct horse"
PATIENCE_S = 60

_LISTENERS = """
[[listeners]]
name = "secure"
port = {port}
tls = "starttls"
certificate = "{certificate}"
auth = true
require_tls = true
relay_networks = []
[users]
{user} = "{hash}"
"""


@dataclass
class Relay:
    """port: anybody on loopback may relay. secure_port: only after STARTTLS and AUTH as user with password."""

    mta: Mta
    sink: Sink
    secure_port: int
    user: str = USER
    password: str = PASSWORD

    @property
    def port(self) -> int:
        return self.mta.port

    def came(self, recipient: str) -> ReceivedMessage:
        """The message that the sink got for that recipient; waits for it. The last line's CRLF is part of it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for message in list(self.sink.messages):
                if recipient in message.recipients:
                    return message
            time.sleep(0.005)
        raise AssertionError(f"nothing came for {recipient}: {self.mta.log_tail()}")


@contextmanager
def sink_in_a_thread(*rules: str) -> Iterator[Sink]:
    """Keeps what comes, whatever this thread waits for."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sink = Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=rules))
    asyncio.run_coroutine_threadsafe(sink.__aenter__(), loop).result()
    try:
        yield sink
    finally:
        asyncio.run_coroutine_threadsafe(sink.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.fixture(scope="session")
def relay() -> Iterator[Relay]:
    with sink_in_a_thread() as sink, tempfile.TemporaryDirectory(prefix="zonemta-real-") as name:
        folder = Path(name)
        certificate, secure_port = folder / "certificate.pem", free_port()
        certificate.write_bytes(self_made("mta.test"))
        more = _LISTENERS.format(
            port=secure_port, certificate=certificate, user=USER, hash=PasswordHasher().hash(PASSWORD)
        )
        mta = Mta(folder / "queue", sink.port, home=folder, more=more)
        mta.start()
        try:
            asyncio.run(mta.accepting())
            yield Relay(mta, sink, secure_port)
        finally:
            mta.end()


@pytest.fixture(scope="session")
def dns_servers() -> Iterator[Callable[..., DnsServers]]:
    """Starts NSD and a validating Unbound: `dns_servers({"signed.test": "@ IN MX 10 mx"}, unsigned={…}, bogus={…})`."""
    if missing():
        pytest.skip(missing())
    with tempfile.TemporaryDirectory(prefix="zonemta-dns-") as name:
        started: list[DnsServers] = []

        def start(
            signed: Mapping[str, str], unsigned: Mapping[str, str] | None = None, bogus: Mapping[str, str] | None = None
        ) -> DnsServers:
            folder = Path(name) / str(len(started))
            folder.mkdir()
            servers = DnsServers(folder, signed, unsigned or {}, bogus or {})
            started.append(servers)
            servers.start()
            return servers

        yield start
        for servers in started:
            servers.end()
