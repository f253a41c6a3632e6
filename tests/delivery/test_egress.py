"""Which address mail leaves from, and how: bound to a source, to a smart host, as a plugin chooses."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from hypothesis import given
from hypothesis import strategies as st
from ports import free_port
from pydantic import ValidationError

from zonemta_py.config import Plugins
from zonemta_py.config.sources import Pool, Source
from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import DEFERRED, DELIVERED, RELEASED
from zonemta_py.sink.server import self_made

FAMILIES = ("any", "ipv4", "ipv6", "prefer-ipv4", "prefer-ipv6")
ADDRESSES = st.lists(st.ip_addresses().map(str), max_size=8)


class Names:
    """A resolver that knows one host by its addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        return [AddressTarget("mx.test", self._addresses)]


def only(result: Any) -> tuple[int, str]:
    [outcome] = result.outcomes
    return outcome.verdict, outcome.stage


def pool(*sources: Source) -> dict[str, Any]:
    return {"pools": [Pool(name="out", sources=list(sources))], "pool": "out"}


# -- which addresses


@given(ADDRESSES, st.sampled_from(FAMILIES))
def test_the_preferred_family_first_else_unchanged(addresses: list[str], family: Any) -> None:
    """Nothing is invented; "ipv4" and "ipv6" leave the other family out; within a family the order stays."""
    ordered = Egress(Source(address="::", family=family)).order(addresses)
    versions = [ipaddress.ip_address(address).version for address in ordered]
    wanted = int(family[-1]) if family != "any" else 0
    if family == "any":
        assert ordered == addresses
    elif family.startswith("prefer"):
        assert sorted(ordered) == sorted(addresses)
        assert versions == sorted(versions, key=lambda version: version != wanted)
    else:
        assert set(versions) <= {wanted}
    for version in (4, 6):
        same = [address for address in addresses if ipaddress.ip_address(address).version == version]
        assert [address for address in ordered if address in same] in (same, [])


@pytest.mark.parametrize(
    ("address", "proxy", "reached"),
    [
        ("192.0.2.1", "", {"192.0.2.9"}),
        ("2001:db8::1", "", {"2001:db8::9"}),
        ("0.0.0.0", "", {"192.0.2.9", "2001:db8::9"}),
        ("192.0.2.1", "haproxy://h:1", {"192.0.2.9"}),
        ("192.0.2.1", "socks5://h:1", {"192.0.2.9", "2001:db8::9"}),
    ],
)
def test_a_bound_address_reaches_its_own_family(address: str, proxy: str, reached: set[str]) -> None:
    """So does the one that HAProxy is told; a SOCKS5 proxy has its own addresses. A unix socket is always near."""
    egress = Egress(Source(address=address, proxy=proxy))
    assert {other for other in ("192.0.2.9", "2001:db8::9") if egress.reaches(other)} == reached
    assert egress.reaches("/run/lmtp.sock")


@pytest.mark.parametrize("proxy", ["http://h:1", "socks5://h", "socks5://:1", "haproxy://h:99999", "haproxy://u:p@h:1"])
def test_what_is_no_proxy_is_refused(proxy: str) -> None:
    """A proxy without host or port, of another kind, or with a password that it cannot use, is told when read."""
    with pytest.raises(ValidationError):
        Source(address="127.0.0.1", proxy=proxy)


# -- bound


async def test_the_server_sees_the_source(start_sink: Any, letter: Any, deliver: Any) -> None:
    """Each message leaves from the address that the lease says, and with that address's own name in EHLO."""
    sink = await start_sink()
    sources = [Source(address=f"127.1.0.{n}", hostname=f"out{n}.test" if n < 3 else "") for n in (1, 2, 3)]
    letters = [letter(sink.port, source=source.address) for source in sources]
    results = await deliver(*letters, hostname="zone.test", **pool(*sources))
    seen = [(message.client, message.helo) for message in sink.messages]
    assert seen == [("127.1.0.1", "out1.test"), ("127.1.0.2", "out2.test"), ("127.1.0.3", "zone.test")]
    assert [result.local for result in results] == ["127.1.0.1", "127.1.0.2", "127.1.0.3"]


async def test_a_connection_is_never_used_for_another_source(start_sink: Any, letter: Any, deliver: Any) -> None:
    """Three sources, two messages each: three connections, each with its own two messages."""
    sink = await start_sink()
    letters = [letter(sink.port, source=f"127.1.0.{n}") for n in (1, 2, 3, 1, 2, 3)]
    results = await deliver(*letters)
    assert [message.client for message in sink.messages] == [delivery.source for delivery in letters]
    assert sink.counters.connections == 3
    assert [result.opened for result in results] == [True] * 3 + [False] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="SO_BINDTODEVICE needs CAP_NET_RAW: run as root")
async def test_an_interface(start_sink: Any, letter: Any, deliver: Any) -> None:
    """lo is there and works; an interface that is not there is our trouble, named, not the destination's."""
    sink = await start_sink()
    near, nowhere = Source(address="127.1.0.1", interface="lo"), Source(address="127.1.0.2", interface="no0")
    letters = [letter(sink.port, source=source.address) for source in (near, nowhere)]
    good, bad = await deliver(*letters, **pool(near, nowhere))
    assert (only(good), only(bad)) == ((DELIVERED, "dot"), (DEFERRED, "source"))
    assert "interface no0" in bad.outcomes[0].reply.text


async def test_a_source_that_is_not_ours(letter: Any, deliver: Any, caplog: Any) -> None:
    """It is named in a 4.4.1, the destination does not rest, the next host is not asked, and the log says it once."""
    names = Names("127.0.0.1", "127.0.0.2")
    results = await deliver(*[letter(1, host="", source="192.0.2.7") for _ in range(3)], resolver=names)
    assert {only(result) for result in results} == {(DEFERRED, "source")}
    assert {result.down_s for result in results} == {None}
    reply = results[0].outcomes[0].reply
    assert reply.enhanced == "4.4.1"
    assert "192.0.2.7 is not an address of this machine" in reply.text
    assert sum("192.0.2.7" in record.getMessage() for record in caplog.records) == 1


async def test_a_source_that_is_no_address(letter: Any, deliver: Any) -> None:
    """Plugins may say anything: that too is temporary."""
    [result] = await deliver(letter(1, source="out.example"))
    assert only(result) == (DEFERRED, "source")


# -- with and without permission to connect


async def test_no_permission_and_no_idle_connection(start_sink: Any, letter: Any, deliver: Any) -> None:
    """Everybody goes back to the queue, stage limit, and nothing was opened."""
    sink = await start_sink()
    [result] = await deliver(letter(sink.port, 3, may_connect=False))
    assert only(result) == (RELEASED, "limit")
    assert result.outcomes[0].recipients == [0, 1, 2]
    assert (result.opened, result.down_s, sink.counters.connections) == (False, None, 0)


async def test_an_idle_connection_needs_no_permission(start_sink: Any, letter: Any, deliver: Any) -> None:
    """The second message goes over the first one's connection, also to another domain of the same site."""
    sink = await start_sink()
    one = letter(sink.port, site="mx.test", destination="one.example")
    two = letter(sink.port, site="mx.test", destination="two.example", may_connect=False)
    results = await deliver(one, two)
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 2
    assert [result.opened for result in results] == [True, False]


async def test_the_idle_connection_was_gone(scripted: Any, letter: Any, deliver: Any) -> None:
    """A server that ended it meanwhile: no second one without permission."""
    server = await scripted({"next": "421"})
    _, result = await deliver(letter(server.port), letter(server.port, may_connect=False))
    assert only(result) == (RELEASED, "limit")
    assert server.connections == 1


async def test_a_refused_connection_was_not_opened(scripted: Any, letter: Any, deliver: Any) -> None:
    """`opened` is what the server could count: a connection that it greeted with 421, but not one it never had."""
    server = await scripted({"banner": "421"})
    [greeted] = await deliver(letter(server.port))
    [refused] = await deliver(letter(free_port()))
    assert (greeted.opened, refused.opened) == (True, False)


@pytest.mark.parametrize(
    ("fields", "connections"), [({"messages_per_connection": 2}, 2), ({"idle_s": 0.0}, 4), ({}, 1)]
)
async def test_the_lease_bounds_the_connection(
    fields: dict[str, Any], connections: int, start_sink: Any, letter: Any, deliver: Any
) -> None:
    """Messages per connection and idle time of the lease count before the zone's."""
    sink = await start_sink()
    await deliver(*[letter(sink.port, **fields) for _ in range(4)])
    assert sink.counters.connections == connections


# -- a smart host


class Mailbox:
    """What aiosmtpd, a server not of our making, takes."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.sessions.append(session)
        return "250 2.0.0 taken"


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
@pytest.mark.parametrize("tls", ["implicit", "required"])
async def test_smart_host_with_port_tls_and_auth(
    tls: str, letter: Any, deliver: Any, stack: AsyncExitStack, tmp_path: Path
) -> None:
    """From the bound source, under TLS from the first byte or by STARTTLS, with user and password; and kept open."""
    (tmp_path / "host.pem").write_bytes(self_made("smart.test"))
    ours, theirs = TlsContexts(tmp_path / "host.pem"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(tmp_path / "host.pem")
    mailbox = Mailbox()

    def connection() -> SMTP:
        return SMTP(
            mailbox, authenticator=lambda *given: AuthResult(success=given[4].password == b"right", handled=False),
            auth_required=True, auth_require_tls=tls == "required", tls_context=theirs if tls == "required" else None,
        )  # fmt: skip

    server = await asyncio.get_running_loop().create_server(
        connection, "127.0.0.1", 0, ssl=theirs if tls == "implicit" else None
    )
    stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    login = {"username": "user", "password": "right", "smart_host": "127.0.0.1", "port": port, "tls": tls}
    letters = [letter(port, source="127.1.0.9") for _ in range(2)]
    results = await deliver(*letters, contexts=ours, **login)
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 2
    assert [session.peer[0] for session in mailbox.sessions] == ["127.1.0.9"] * 2
    assert mailbox.sessions[0] is mailbox.sessions[1]
    assert results[0].tls
    [refused] = await deliver(letter(port), contexts=ours, **(login | {"password": "wrong"}))
    assert only(refused) == (DEFERRED, "auth")
    assert "535 5.7.8" in refused.outcomes[0].reply.text


# -- plugins

_CONNECTING = '''"""Chooses."""
async def sender_connecting(delivery, options):
    options.source = "127.1.0.2"
'''
_CONNECT = '''"""Chooses."""
async def sender_connect(delivery, options):
    if delivery.recipients[0].address.startswith("r1"):
        options.source = "127.1.0.2"
'''


def plugin(tmp_path: Path, source: str) -> Host:
    file = tmp_path / "chooses.py"
    file.write_text(source)
    return Host.load(Plugins(enabled=[str(file)]))


async def test_the_name_follows_a_source_that_a_plugin_chooses(
    start_sink: Any, letter: Any, deliver: Any, tmp_path: Path
) -> None:
    """Another source of the pool has its own name in EHLO."""
    sink = await start_sink()
    sources = [Source(address=f"127.1.0.{n}", hostname=f"out{n}.test") for n in (1, 2)]
    await deliver(letter(sink.port, source="127.1.0.1"), host=plugin(tmp_path, _CONNECTING), **pool(*sources))
    assert [(message.client, message.helo) for message in sink.messages] == [("127.1.0.2", "out2.test")]


async def test_a_source_chosen_for_one_host_is_not_kept_for_the_other(
    start_sink: Any, letter: Any, deliver: Any, tmp_path: Path
) -> None:
    """A connection that a plugin bound elsewhere at the last moment goes to the pool as what it is."""
    sink = await start_sink()
    second = letter(sink.port, 2, source="127.1.0.1")
    del second.recipients[0]
    sources = [Source(address=f"127.1.0.{n}", hostname=f"out{n}.test") for n in (1, 2)]
    letters = letter(sink.port, source="127.1.0.1"), second
    await deliver(*letters, host=plugin(tmp_path, _CONNECT), **pool(*sources))
    seen = [(message.client, message.helo) for message in sink.messages]
    assert seen == [("127.1.0.2", "out2.test"), ("127.1.0.1", "out1.test")]
