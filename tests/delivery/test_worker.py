"""The loop, the choice of hosts, and plugins at their places."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.delivery import worker
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, QueueRefusal


class Names:
    """Stands where DNS is asked: the answer, or the error, for every domain."""

    def __init__(self, answer: list[AddressTarget] | NoRoute) -> None:
        self.answer = answer

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        if isinstance(self.answer, NoRoute):
            raise self.answer
        return self.answer

    async def named(self, host: str, now: float) -> tuple[str, ...]:
        return (host,)


def only(result: Any) -> tuple[int, str]:
    [outcome] = result.outcomes
    return outcome.verdict, outcome.stage


async def test_many_at_once(scripted: Any, letter: Any, deliver: Any) -> None:
    """Fifty messages over at most ten connections, each settled once."""
    server = await scripted()
    results = await deliver(*(letter(server.port) for _ in range(50)), most=10, batch=7)
    assert [result.lease for result in results] == list(range(1, 51))
    assert {only(result) for result in results} == {(DELIVERED, "dot")}
    assert len(server.bodies) == 50
    assert server.connections <= 10
    assert all(result.started_ms > 10**12 and result.took_ms >= 0 for result in results)


async def test_a_slow_destination_holds_up_no_other(
    scripted: Any, letter: Any, deliver: Any, queue_of: Any, until: Any
) -> None:
    """While one server is silent another gets its mail."""
    answer = asyncio.Event()
    slow, quick = await scripted({"banner": answer}), await scripted()
    queue = queue_of([letter(slow.port), *(letter(quick.port) for _ in range(5))], None, 1)
    under_way = asyncio.create_task(deliver(*queue.waiting, queue=queue, most=2))
    await until(lambda: len(queue.results) == 5)
    answer.set()
    await under_way
    assert queue.results[-1].lease == 1
    assert (len(slow.bodies), len(quick.bodies)) == (1, 5)


async def test_next_host_when_one_cannot_be_reached(scripted: Any, letter: Any, deliver: Any) -> None:
    """Hosts are tried in order within one attempt, all their addresses first."""
    server = await scripted()
    names = Names([AddressTarget("mx1.test", ("127.0.0.77", "::1")), AddressTarget("mx2.test", ("127.0.0.1",))])
    [result] = await deliver(letter(server.port, host=""), resolver=names)
    assert only(result) == (DELIVERED, "dot")
    assert result.remote == f"mx2.test[127.0.0.1]:{server.port}"
    assert result.down_s is None


async def test_no_next_host_once_mail_was_answered(scripted: Any, letter: Any, deliver: Any) -> None:
    """A refusal of the message is the domain's answer."""
    server = await scripted({"mail": "4xx"})
    names = Names([AddressTarget("mx1.test", ("127.0.0.1",)), AddressTarget("mx2.test", ("127.0.0.1",))])
    [result] = await deliver(letter(server.port, host=""), resolver=names)
    assert only(result) == (DEFERRED, "mail")
    assert server.connections == 1


@pytest.mark.parametrize(
    ("code", "enhanced", "verdict", "down"), [(556, "5.1.10", BOUNCED, None), (451, "4.4.3", DEFERRED, 0)]
)
async def test_no_route(code: int, enhanced: str, verdict: int, down: Any, letter: Any, deliver: Any) -> None:
    """What DNS says is settled like a reply, stage dns."""
    [result] = await deliver(letter(1, host=""), resolver=Names(NoRoute(code, enhanced, "x")))
    assert only(result) == (verdict, "dns")
    assert result.down_s == down


async def test_source_address(letter: Any, deliver: Any, scripted: Any) -> None:
    """Addresses of the other family are passed over; a source that is not ours is temporary."""
    server = await scripted()
    names = Names([AddressTarget("mx.test", ("::1", "127.0.0.1"))])
    [result] = await deliver(letter(server.port, host="", source="127.0.0.5"), resolver=names)
    assert (only(result), result.local) == ((DELIVERED, "dot"), "127.0.0.5")
    [result] = await deliver(letter(server.port, source="192.0.2.55"))
    assert (only(result), result.down_s, result.opened) == ((DEFERRED, "source"), None, False)
    [result] = await deliver(
        letter(server.port, host="", source="::1"), resolver=Names([AddressTarget("m", ("127.0.0.1",))])
    )
    assert only(result) == (DEFERRED, "connect")


async def test_helo_where_ehlo_is_unknown(letter: Any, deliver: Any) -> None:
    """An ancient server gets HELO and one command at a time."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 old\r\n")
        while line := await reader.readline():
            heard.append(line[:4])
            usual = b"354 go\r\n" if line[:4] == b"DATA" else b"250 ok\r\n"
            writer.write(b"500 what?\r\n" if line[:4] == b"EHLO" else usual)
            if line[:4] == b"DATA":
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 ok\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    [result] = await deliver(letter(server.sockets[0].getsockname()[1]))
    assert only(result) == (DELIVERED, "dot")
    assert heard[:5] == [b"EHLO", b"HELO", b"MAIL", b"RCPT", b"DATA"]
    server.close()


async def test_the_queue_is_gone(letter: Any, scripted: Any) -> None:
    """A refused lease or result ends the loop, whatever is under way."""
    server = await scripted()

    class Gone:
        leases = 0

        async def lease(self, most: int) -> Any:
            self.leases += 1
            if self.leases == 1:
                return [letter(server.port)]
            await asyncio.sleep(60)
            return []

        async def settle(self, result: Any) -> None:
            raise QueueRefusal(Reply(451, "4.3.0", "gone"))

        def closed(self, connection: int) -> None:
            raise AssertionError

        left_open = closed

        async def chunk(self, message_id: str, number: int) -> bytes:
            raise AssertionError

    gone = Gone()
    config = Config.model_validate({"zones": [{"name": "default", "tls": "none", "allow_private": True}]})
    await asyncio.wait_for(worker.run(config, gone, Host.empty(), 3), 60)
    assert (len(server.bodies), gone.leases) == (1, 2)


async def test_a_bug_of_ours_stops_nobody_else(
    scripted: Any, letter: Any, deliver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A delivery that we cannot handle is deferred and logged with its traceback; the next goes on."""
    server = await scripted()
    broken = letter(server.port)
    broken.recipients = [object()]
    with caplog.at_level(logging.ERROR):
        first, second = await deliver(broken, letter(server.port))
    assert first.outcomes[0].verdict == DEFERRED
    assert only(second) == (DELIVERED, "dot")
    assert any(record.exc_info for record in caplog.records)


# plugins


@pytest.mark.parametrize("hook", ["sender_fetch", "sender_connecting", "sender_connect", "sender_connected",
                                  "sender_connection", "sender_headers"])  # fmt: skip
@pytest.mark.parametrize(("statement", "verdict"), [
    ('raise Reject(550, "no")', BOUNCED), ('raise Reject(450, "no")', DEFERRED), ('raise Defer(77, "later")', DEFERRED),
    ('raise Hold("look")', HELD), ("1 / 0", DEFERRED),
])  # fmt: skip
async def test_verdicts(
    hook: str, statement: str, verdict: int, plugin: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """At each place a plugin may bounce, defer or hold; one that fails defers. The server gets no message."""
    server = await scripted()
    arguments = {
        "sender_fetch": "delivery", "sender_headers": "delivery, headers", "sender_connected": "delivery, connection",
        "sender_connection": "delivery, connection",
    }  # fmt: skip
    host = plugin(f"async def {hook}({arguments.get(hook, 'delivery, options')}):\n    {statement}\n")
    [result] = await deliver(letter(server.port, 2), host=host)
    assert only(result) == (verdict, "plugin")
    assert result.outcomes[0].delay_s == (77 if "Defer" in statement else None)
    assert server.bodies == []


async def test_another_host(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """sender_connecting and sender_connect choose host, port, EHLO name and addresses."""
    server = await scripted()
    host = plugin(
        "async def sender_connecting(delivery, options):\n"
        f"    options.port, options.hostname = {server.port}, 'me.test'\n"
        "async def sender_connect(delivery, options):\n    options.addresses[:] = ['127.0.0.1']\n"
    )
    [result] = await deliver(letter(1, host="192.0.2.1"), host=host)
    assert only(result) == (DELIVERED, "dot")
    assert server.commands[0] == "EHLO me.test"


async def test_own_socket(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """A plugin may bring a connected socket; such a connection is not shared."""
    server = await scripted()
    host = plugin(
        "import socket\n"
        "async def sender_connect(delivery, options):\n"
        f"    options.socket = socket.create_connection(('127.0.0.1', {server.port}))\n"
        "    options.socket.setblocking(False)\n"
    )
    results = await deliver(letter(1), letter(1), host=host)
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 2
    assert server.connections == 2


async def test_tls_that_may_be_left_out(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """A plugin's socket serves for one try: without a demand a failed handshake is a matter of the host."""
    server = await scripted({"starttls": "reset"}, ("STARTTLS",))
    host = plugin(
        "import socket\n"
        "async def sender_connect(delivery, options):\n"
        f"    options.socket = socket.create_connection(('127.0.0.1', {server.port}))\n"
        "    options.socket.setblocking(False)\n"
    )
    [result] = await deliver(letter(server.port), host=host, tls="opportunistic")
    assert (*only(result), result.down_s) == (DEFERRED, "tls", 0)


async def test_a_plugin_forbids_plain(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """What it demands of the last try is its own policy too: TLS may not be switched off for it."""
    server = await scripted({"starttls": "reset"}, ("STARTTLS",))
    host = plugin("async def sender_tls_error(delivery, options, error):\n    options.tls = 'required'\n")
    [result] = await deliver(letter(server.port), host=host, tls="opportunistic")
    assert (*only(result), result.down_s) == (DEFERRED, "tls-policy", None)


async def test_more_before_mail(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """sender_connected comes once a connection, sender_connection before each MAIL; both may speak."""
    server = await scripted()
    host = plugin(
        "async def sender_connected(delivery, connection):\n    assert (await connection.command('XONE')).code == 500\n"
        "async def sender_connection(delivery, connection):\n"
        "    assert (await connection.command('XALL')).code == 500\n"
        "    assert 'DSN' in connection.capabilities\n"
    )
    results = await deliver(letter(server.port), letter(server.port), host=host)
    assert [only(result) for result in results] == [(DELIVERED, "dot")] * 2
    assert [line for line in server.commands if line[0] == "X"] == ["XONE", "XALL", "XALL"]


async def test_a_connection_is_only_read(plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """Whatever a plugin sets of it is its failure, and spoils nothing for the mail after it."""
    server = await scripted()
    host = plugin(
        "wrong = True\n"
        "async def sender_connection(delivery, connection):\n"
        "    global wrong\n"
        "    if wrong:\n"
        "        wrong = False\n"
        "        for name in ('host', 'capabilities', 'dialogue', 'keywords'):\n"
        "            try:\n"
        "                setattr(connection, name, object())\n"
        "            except (AttributeError, TypeError):\n"
        "                continue\n"
        "            assert False, name\n"
        "        connection.tls = 'x'\n"
    )
    results = await deliver(letter(server.port), letter(server.port), host=host)
    assert [only(result) for result in results] == [(DEFERRED, "plugin"), (DELIVERED, "dot")]


@pytest.mark.parametrize("chunks", [0, 4])
async def test_changed_header(chunks: int, plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """sender_headers changes the copy that goes out, in one chunk or many, and SIZE with it."""
    server = await scripted()
    host = plugin("async def sender_headers(delivery, headers):\n    headers.add('X-Added', 'yes')\n")
    whole = b"Subject: x\r\nTo: y\r\n\r\nbody\r\n"
    message = letter(server.port, body=whole)
    if chunks:
        message.body, message.chunks = None, chunks
    [result] = await deliver(message, host=host, chunk=lambda _id, number: whole[(number - 1) * 7 : number * 7])
    assert only(result) == (DELIVERED, "dot")
    assert server.bodies == [b"Subject: x\r\nTo: y\r\nX-Added: yes\r\n\r\nbody\r\n"]
    assert f"SIZE={len(server.bodies[0])}" in server.commands[1]


async def test_told_of_the_end(
    plugin: Any, scripted: Any, letter: Any, deliver: Any, until: Any, tmp_path: Path
) -> None:
    """sender_delivered hears of success, sender_response_error of refusals, whose meaning it may change."""
    server = await scripted({"rcpt2": "4xx"})
    note = tmp_path / "note"
    host = plugin(
        "async def sender_delivered(delivery, result):\n"
        f"    open({str(note)!r}, 'a').write(str(sorted(outcome.reply.code for outcome in result.outcomes)))\n"
        "async def sender_response_error(delivery, connection, reply):\n"
        "    raise Reject(550, 'seen ' + str(reply.code))\n"
    )
    [result] = await deliver(letter(server.port, 2), host=host)
    await until(lambda: note.exists() and note.stat().st_size)
    assert note.read_text() == "[250, 550]"
    assert {(o.verdict, o.stage, o.recipients[0]) for o in result.outcomes} == {
        (DELIVERED, "dot", 0),
        (BOUNCED, "plugin", 1),
    }


@pytest.mark.parametrize(("choice", "verdict"), [("none", DELIVERED), ("required", DEFERRED)])
async def test_tls_fallback(choice: str, verdict: int, plugin: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """sender_tls_error decides what comes after a failed handshake."""
    server = await scripted({"starttls": "garbage"}, ("STARTTLS",))
    host = plugin(f"async def sender_tls_error(delivery, options, error):\n    options.tls = {choice!r}\n")
    [result] = await deliver(letter(server.port), host=host, tls="opportunistic")
    assert result.outcomes[0].verdict == verdict


async def test_nobody_listens_on_a_taken_port(letter: Any, deliver: Any) -> None:
    """All hosts dead: the last failure is told, and the destination rests."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        names = Names([AddressTarget("m1", ("127.0.0.1",)), AddressTarget("m2", ("127.0.0.2", "127.0.0.3"))])
        [result] = await deliver(letter(taken.getsockname()[1], host=""), resolver=names)
    assert only(result) == (DEFERRED, "connect")
    assert result.down_s == 0
