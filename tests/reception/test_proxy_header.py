"""The PROXY header: who may send one, whom it names, and what rights that gives."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.reception.test_session import MESSAGE, trusting


def version_2(source: str, destination: str, command: int = 1) -> bytes:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    addresses = socket.inet_pton(family, source) + socket.inet_pton(family, destination) + struct.pack("!HH", 1111, 25)
    kind = 0x21 if family == socket.AF_INET6 else 0x11
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", 0x20 | command, kind, len(addresses)) + addresses


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 192.0.2.9 192.0.2.1 1111 25\r\n", "192.0.2.9"),
        (b"PROXY TCP6 2001:db8::9 2001:db8::1 1111 25\r\n", "2001:db8::9"),
        (version_2("192.0.2.9", "192.0.2.1"), "192.0.2.9"),
        (version_2("2001:db8::9", "2001:db8::1"), "2001:db8::9"),
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_the_proxy_names_the_client(open_door: Any, header: bytes, client: str, split: bool) -> None:
    """PROXY protocol 1 and 2: the client named there is the one whose networks count and who is traced."""
    door = open_door(proxy_protocol=True, relay_networks=[f"{client}/{128 if ':' in client else 32}"])
    with door.wire(read_banner=False) as wire:
        if split:
            for at in range(len(header)):
                wire.send(header[at : at + 1])
        else:
            wire.send(header + b"EHLO x\r\n")
        assert wire.reply() == "220 mx.test ESMTP"
        if split:
            wire.send(b"EHLO x\r\n")
        wire.reply()
        assert wire.mail(MESSAGE)[:3] == "250"
    assert door.submission.kept[0][0].origin == client


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", version_2("192.0.2.9", "192.0.2.1", command=0), version_2("::2", "::1", command=0)]
)
def test_a_proxy_that_names_nobody_lends_no_rights(open_door: Any, header: bytes) -> None:
    """Its own checks of health come so, and the connections of clients it cannot name: served, but not relayed for."""
    door = open_door(proxy_protocol=True)
    with door.wire(read_banner=False) as wire:
        wire.send(header)
        assert wire.reply()[:3] == "220"
        wire.ask("EHLO x")
        assert wire.mail(MESSAGE)[:9] == "550 5.7.1"
    assert not door.submission.kept


def test_the_proxied_client_does_not_inherit_the_proxys_rights(open_door: Any) -> None:
    """The proxy is in the relay networks, its client is not."""
    door = open_door(proxy_protocol=True)
    with door.wire(read_banner=False) as wire:
        wire.send(b"PROXY TCP4 192.0.2.9 192.0.2.1 1111 25\r\n")
        assert wire.reply()[:3] == "220"
        wire.ask("EHLO x")
        wire.ask("MAIL FROM:<a@b.test>")
        assert wire.ask("RCPT TO:<c@d.test>")[:9] == "550 5.7.1"


@pytest.mark.parametrize(
    "header", [b"EHLO x\r\n", b"PROXY TCP4 x y 1 2\r\n", b"PROXY " + b"x" * 300, b"\r\n\r\n\0\r\nQUIX\n" * 3]
)
def test_without_a_proxy_header_there_is_no_service(open_door: Any, header: bytes) -> None:
    """A listener that expects the header serves nobody without one."""
    door = open_door(proxy_protocol=True)
    with door.wire(read_banner=False) as wire:
        wire.send(header)
        with contextlib.suppress(ConnectionResetError):
            assert wire.file.read() == b""


def test_strangers_may_not_send_a_proxy_header(open_door: Any) -> None:
    """Who is not in proxy_networks is cut off."""
    door = open_door(proxy_protocol=True, proxy_networks=["192.0.2.0/24"])
    with door.wire(read_banner=False) as wire:
        try:
            wire.send(b"PROXY TCP4 127.0.0.1 192.0.2.1 1111 25\r\n")
            assert wire.file.read() == b""
        except (ConnectionResetError, BrokenPipeError):
            pass


def test_proxy_before_implicit_tls(open_door: Any, certificate: Path) -> None:
    """The header comes in the clear, TLS behind it."""
    door = open_door(proxy_protocol=True, tls="implicit", certificate=str(certificate), relay_networks=["192.0.2.9/32"])
    with socket.create_connection((door.address, door.port), timeout=60) as connection:
        connection.sendall(b"PROXY TCP4 192.0.2.9 192.0.2.1 1111 465\r\n")
        with smtplib.SMTP_SSL(context=trusting()) as client:
            client.sock = trusting().wrap_socket(connection)
            client.file = None
            assert client.getreply()[0] == 220
            assert client.sendmail("a@b.test", ["c@d.test"], "Subject: x\n\nhi") == {}
    assert door.submission.kept[0][0].origin == "192.0.2.9"
