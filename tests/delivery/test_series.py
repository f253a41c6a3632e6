"""Several messages of one lease over one connection: each settled by its own replies, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zonemta_py.config import Config, Zone
from zonemta_py.delivery import lease as leases
from zonemta_py.delivery import pipelined
from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.mail.envelope import Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED, Delivery, Result

TEMPLATE = prepare(
    TemplateSource("t", Text("For {{ name }}"), Text("news@d.example"), text=Text("Hello {{ name }}"))
).pack()
VERDICTS = {DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced", RELEASED: "released"}


class Server:
    """ways: name of a recipient → where it is refused ("mail", "rcpt", "data", "dot": 4xx; with ! 5xx), or where the
    connection ends ("cut-mail", "cut-dot": before the reply; "cut-after": behind it; "421", "421-dot": with that, in
    place of MAIL's or the last).

    strict: what comes behind a message before its reply is an error that ends the connection (Exim's words).
    taken: names whose message was accepted. together: envelopes that came with the end of the message before.
    """

    def __init__(self, ways: Mapping[str, str], keywords: tuple[str, ...], strict: bool) -> None:
        self.ways, self.keywords, self.strict = ways, keywords, strict
        self.taken: list[str] = []
        self.connections = self.together = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, EOFError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        name = ""
        while line := (await reader.readline()).decode():
            verb = line[:4].upper()
            if verb == "EHLO":
                lines = ["server", *self.keywords]
                writer.write("".join(f"250{' ' if one == lines[-1] else '-'}{one}\r\n" for one in lines).encode())
            elif verb == "MAIL":
                name = self._coming(reader)
                if self.ways.get(name) == "421":
                    writer.write(b"421 4.3.2 closing\r\n")
                    return
                self._reply("mail", name, b"250 2.1.0 ok\r\n", writer)
            elif verb == "RCPT":
                name = line.partition("<")[2].partition("@")[0]
                self._reply("rcpt", name, b"250 2.1.5 ok\r\n", writer)
            elif verb == "DATA":
                if self.ways.get(name, "").strip("!") in ("mail", "rcpt"):
                    writer.write(b"503 5.5.1 no recipients\r\n")
                elif self._reply("data", name, b"354 go\r\n", writer):
                    await self._message(name, reader, writer)
            else:
                writer.write(b"250 2.0.0 ok\r\n")

    def _coming(self, reader: asyncio.StreamReader) -> str:
        """Whose the transaction will be: the RCPT came in the same write."""
        held = bytes(reader._buffer)  # type: ignore[attr-defined]
        return held.partition(b"<")[2].partition(b"@")[0].decode()

    def _reply(self, point: str, name: str, usual: bytes, writer: asyncio.StreamWriter) -> bool:
        way = self.ways.get(name, "")
        if way in (f"cut-{point}", f"421-{point}"):
            writer.write(b"421 4.3.2 closing\r\n" if way[:3] == "421" else b"")
            raise EOFError
        if way.strip("!") != point:
            writer.write(usual)
            return True
        writer.write(b"550 5.1.1 never\r\n" if way.endswith("!") else b"450 4.2.0 not now\r\n")
        return False

    async def _message(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readuntil(b"\r\n.\r\n")
        assert f"Subject: For {name}\r\n".encode() in body
        early = bool(reader._buffer)  # type: ignore[attr-defined]
        self.together += early
        if self._reply("dot", name, b"250 2.0.0 taken\r\n", writer):
            self.taken.append(name)
        if self.ways.get(name) == "cut-after":
            raise EOFError
        if early and self.strict:
            writer.write(b"554 SMTP synchronization error\r\n")
            await writer.drain()
            raise EOFError


@pytest.fixture
async def picky() -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """Starts such a server: `await picky({"n1": "rcpt!"}, strict=True)`."""
    listening = []

    async def start(
        ways: Mapping[str, str] | None = None, keywords: tuple[str, ...] = ("PIPELINING",), strict: bool = False
    ) -> Server:
        server = Server(ways or {}, keywords, strict)
        listening.append(await asyncio.start_server(server.serve, "127.0.0.1", 0))
        server.port = listening[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for one in listening:
        one.close()


@pytest.fixture
def people(letter: Callable[..., Delivery]) -> Callable[..., Delivery]:
    """A lease of merged messages to n1, n2 …: people(port, 5)."""

    def make(port: int, count: int, names: list[str] | None = None, **more: Any) -> Delivery:
        names = names or [f"n{number}" for number in range(1, count + 1)]
        given = {"recipients": [Recipient(f"{name}@d.example") for name in names], "columns": ["name"]}
        given |= {"values": [[name] for name in names], "template": "t", "campaign": "spring", "chunks": 0, "size": 9}
        delivery = letter(port, **(given | {"attempts": [0] * len(names)} | more))
        delivery.body = None
        return delivery

    return make


@pytest.fixture
def send(queue_of: Any, deliver: Any) -> Callable[..., Awaitable[list[Result]]]:
    """Delivers leases, one after the other; the template is there."""

    async def run(*leases: Delivery, queue: Any = None, **more: Any) -> list[Result]:
        queue = queue or queue_of(list(leases), None, 1)

        async def template(_: str) -> bytes:
            return TEMPLATE

        queue.template = template
        results: list[Result] = await deliver(*leases, queue=queue, **more)
        return results

    return run


def verdicts(result: Result) -> list[str]:
    """By recipient."""
    found = {index: VERDICTS[outcome.verdict] for outcome in result.outcomes for index in outcome.recipients}
    assert sum(len(outcome.recipients) for outcome in result.outcomes) == len(found)
    return [found[index] for index in sorted(found)]


async def test_all_go_over_one_connection(picky: Any, people: Any, send: Any) -> None:
    """Each gets his own, in order; but for the first, envelopes come with the end of the message before."""
    server = await picky()
    (result,) = await send(people(server.port, 5))
    assert verdicts(result) == ["delivered"] * 5
    assert server.taken == ["n1", "n2", "n3", "n4", "n5"]
    assert (server.connections, server.together) == (1, 4)


@pytest.mark.parametrize("keywords", [(), ("8BITMIME",)])
async def test_without_pipelining_one_waits_for_the_other(
    picky: Any, people: Any, send: Any, keywords: tuple[str, ...]
) -> None:
    """RFC 2920: nothing leaves early unless the server says that it may."""
    server = await picky(keywords=keywords)
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered"] * 4
    assert (server.connections, server.together) == (1, 0)


async def test_a_server_that_wants_one_at_a_time_gets_that(picky: Any, people: Any, send: Any) -> None:
    """Its complaint is nobody's verdict: who was announced is released, and from then on nobody is announced to it."""
    server = await picky(strict=True)
    first, second = await send(people(server.port, 3), people(server.port, 3, ["n4", "n5", "n6"]))
    assert verdicts(first) == ["delivered", "released", "released"]
    assert verdicts(second) == ["delivered"] * 3
    assert server.taken == ["n1", "n4", "n5", "n6"]
    assert server.together == 1


@pytest.mark.parametrize(
    ("way", "verdict"),
    [("rcpt!", "bounced"), ("rcpt", "deferred"), ("data", "deferred"), ("dot", "deferred"), ("dot!", "bounced")],
)
async def test_a_refusal_is_for_one_alone(picky: Any, people: Any, send: Any, way: str, verdict: str) -> None:
    """Those before and behind are delivered over the same connection."""
    server = await picky({"n2": way})
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered", verdict, "delivered", "delivered"]
    assert (server.taken, server.connections) == (["n1", "n3", "n4"], 1)


@pytest.mark.parametrize(
    ("way", "second"),
    [
        ("cut-mail", "released"),
        ("421", "released"),
        ("cut-dot", "deferred"),
        ("421-dot", "deferred"),
        ("cut-after", "delivered"),
    ],
)
async def test_who_was_not_tried_is_released(picky: Any, people: Any, send: Any, way: str, second: str) -> None:
    """Where the connection ends before his message, nothing is said of him; in the middle of it, he is deferred."""
    server = await picky({"n2": way})
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered", second, "released", "released"]
    assert result.down_s is None


async def test_where_nobody_listens_one_is_deferred(people: Any, send: Any) -> None:
    """The others have not been tried, and the destination rests."""
    (result,) = await send(people(1, 4))
    assert verdicts(result) == ["deferred", "released", "released", "released"]
    assert result.down_s is not None


async def test_values_that_make_no_message_are_one_recipients_matter(picky: Any, people: Any, send: Any) -> None:
    """He bounces with the reason; the others get theirs."""
    server = await picky()
    lease = people(server.port, 3)
    lease.recipients[1] = Recipient("no address")
    (result,) = await send(lease)
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    (outcome,) = [outcome for outcome in result.outcomes if outcome.verdict == BOUNCED]
    assert str(outcome.reply).startswith("554 5.6.0 the message cannot be made: To:")


async def test_a_connection_has_its_share_and_no_more(picky: Any, people: Any, send: Any) -> None:
    """`messages_per_connection` ends a series too; the rest is released."""
    server = await picky()
    (result,) = await send(people(server.port, 5), messages_per_connection=3)
    assert verdicts(result) == ["delivered"] * 3 + ["released"] * 2
    assert server.taken == ["n1", "n2", "n3"]


@pytest.mark.parametrize("plugins", [False, True])
async def test_slow_servers_end_a_series(
    plugin: Any, picky: Any, people: Any, send: Any, monkeypatch: pytest.MonkeyPatch, plugins: bool
) -> None:
    """Nobody's message is begun later than SERIES_S after the first's, whether or not plugins look at each."""
    monkeypatch.setattr(leases if plugins else pipelined, "SERIES_S", -1.0)
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(LOOKS) if plugins else None)
    assert verdicts(result) == ["delivered", "released", "released"]


@pytest.mark.parametrize("last", [1, 2, 3])
async def test_a_server_that_leaves_is_told_of_at_once(picky: Any, people: Any, last: int) -> None:
    """421 rests the destination with the answer that it was, whose rules may say otherwise; the end is silent of it."""
    server = await picky({f"n{last}": "421-dot"})
    outlet = Dispatch()
    result, _ = await leases.deliver(_means(outlet), people(server.port, 3))
    assert [part.down_s for part in outlet.parts] == [None] * (last - 1) + [0]
    assert (verdicts(result), result.down_s) == (["released"] * (3 - last), None)


@pytest.mark.parametrize("ways", [{}, {"n2": "cut-mail"}])
async def test_what_became_of_tls_is_told_once(
    picky: Any, people: Any, send: Any, queue_of: Any, ways: dict[str, str]
) -> None:
    """A row for the connection (RFC 8460), with the first answer: nobody may be left for the end of the lease."""
    server = await picky(ways)
    queue = queue_of([lease := people(server.port, 3, host="", hosts=[["mx.d.example", ["127.0.0.1"]]])], None, 1)
    (result,) = await send(lease, queue=queue, sections={"tls": {"reports": True}}, tls="opportunistic")
    (row,) = queue.parts[0].security
    assert (row[0], [one.security for one in (*queue.parts[1:], result)]) == ("d.example", [[]] * len(queue.parts))


async def test_plugins_see_each_message(
    plugin: Any, picky: Any, people: Any, send: Any, until: Any, tmp_path: Path
) -> None:
    """With a hook that is called for each, messages go one by one, each with its own delivery and result."""
    note = tmp_path / "note"
    host = plugin(
        "async def sender_delivered(delivery, result):\n"
        "    told = [one.address for one in delivery.recipients], [one.recipients for one in result.outcomes]\n"
        f"    with open({str(note)!r}, 'a') as file:\n"
        "        print(*told, delivery.values, file=file)\n"
    )
    server = await picky({"n2": "rcpt!"})
    (result,) = await send(people(server.port, 3), host=host)
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    assert server.together == 0
    await until(lambda: note.exists() and note.read_text().count("\n") == 2)
    assert note.read_text().splitlines() == ["['n1@d.example'] [[0]] [['n1']]", "['n3@d.example'] [[0]] [['n3']]"]


async def test_a_plugin_chooses_for_each(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Whoever it lets nobody connect for is not sent to over another's connection."""
    refuses = "        raise Reject(550, 'not him')\n"
    source = "async def sender_connecting(delivery, options):\n    if delivery.values == [['n2']]:\n"
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(source + refuses))
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    assert server.taken == ["n1", "n3"]


async def test_what_a_plugin_changes_is_changed_for_one(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Each message has a delivery of its own, down to what it is routed by."""
    server = await picky()
    host = plugin(
        "async def sender_fetch(delivery):\n"
        "    if delivery.routing:\n        raise Reject(550, 'not his')\n"
        "    delivery.routing['mine'] = True\n"
    )
    (result,) = await send(people(server.port, 3), host=host)
    assert verdicts(result) == ["delivered"] * 3


async def test_a_plugins_own_connection_is_for_one(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """A connected socket that it brings is not used again; the others are released."""
    server = await picky()
    host = plugin(
        "import socket\n"
        "async def sender_connect(delivery, options):\n"
        f"    options.socket = socket.create_connection(('127.0.0.1', {server.port}))\n"
        "    options.socket.setblocking(False)\n"
    )
    (result,) = await send(people(1, 3), host=host)
    assert verdicts(result) == ["delivered", "released", "released"]


LOOKS = "async def sender_fetch(delivery):\n    if delivery.values == [['wrong']]:\n        raise Reject(550, 'no')\n"
"""A plugin that is called for each message."""


async def test_one_by_one_is_one_connection_too(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """A lease was charged for one new connection: where it is used up, the others are released."""
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(LOOKS), messages_per_connection=1)
    assert verdicts(result) == ["delivered", "released", "released"]
    assert (server.connections, result.opened, result.kept) == (1, True, False)


async def test_a_connection_that_stays_open_is_told_of(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Also if the last of them needed none: limits on connections count those that are open."""
    server = await picky()
    (result,) = await send(people(server.port, 0, ["n1", "wrong"]), host=plugin(LOOKS))
    assert verdicts(result) == ["delivered", "bounced"]
    assert (result.opened, result.kept) == (True, True)


async def test_a_fault_of_ours_in_the_middle_ends_the_connection(
    picky: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for a message there: whoever had it next would tell it his commands as one."""

    async def faulty(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pipelined, "letter", faulty)
    server, means = await picky(), _means(Dispatch())
    with pytest.raises(ZeroDivisionError):
        await leases.deliver(means, people(server.port, 3))
    assert (len(means.connections), server.taken) == (0, [])


WAYS = (
    "", "", "", "mail", "mail!", "rcpt", "rcpt!", "data", "dot", "dot!", "cut-mail", "cut-dot", "cut-after", "421",
    "421-dot",
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=8), strict=st.booleans(), pipelining=st.booleans())
def test_everybody_is_settled_by_what_the_server_did(
    ways: list[str], strict: bool, pipelining: bool, people: Any
) -> None:
    """Leased again until all are settled: taken once and delivered are the same; refused for good is what bounced."""
    asyncio.run(_settled(ways, strict, pipelining, people))


async def _settled(ways: list[str], strict: bool, pipelining: bool, people: Any) -> None:
    names = [f"n{number}" for number in range(1, len(ways) + 1)]
    if not pipelining:  # MAIL comes alone then, and the server cannot know for whom it is
        ways = ["" if way.strip("!") in ("mail", "cut-mail", "421") else way for way in ways]
    server = Server(dict(zip(names, ways, strict=True)), ("PIPELINING",) if pipelining else (), strict)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    outlet = Dispatch()
    means = _means(outlet)
    found: dict[str, str] = {}
    rounds = 0
    while left := [name for name in names if name not in found]:
        rounds += 1
        assert rounds <= 2 * len(names) + 2
        lease = people(server.port, 0, left)
        outlet.parts = []
        result, _ = await leases.deliver(means, lease)
        result.outcomes = [outcome for part in outlet.parts for outcome in part.outcomes] + result.outcomes
        found |= {n: v for n, v in zip(left, verdicts(result), strict=True) if v != "released"}
    listener.close()
    taken = [name for name, verdict in found.items() if verdict == "delivered"]
    assert sorted(server.taken) == sorted(taken)
    for name, way in zip(names, ways, strict=True):
        expected = {"": "delivered", "cut-after": "delivered"}.get(way, "bounced" if way.endswith("!") else "deferred")
        assert found[name] == expected, (name, way)


class Dispatch:
    """parts: results of those that were answered while others were under way."""

    def __init__(self) -> None:
        self.parts: list[Result] = []

    async def template(self, campaign: str) -> bytes:
        return TEMPLATE

    def settle_part(self, result: Result) -> None:
        self.parts.append(result)


def _means(outlet: Dispatch) -> SenderContext:
    zone = Zone(name="default", default=True, tls="none", allow_private=True)
    config = Config(zones=[zone])
    names = DnsDestinationResolver(config)
    tls = TlsPolicies(config, names, None)
    return SenderContext(config, outlet, Host.empty(), names, tls, Connections(), "mta.test")  # type: ignore[arg-type]
