"""LMTP (RFC 2033): LHLO, and behind the dot a reply for each recipient that was accepted; over TCP and unix sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from zonemta_py.config import Zone
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED

KEYWORDS = ("PIPELINING", "8BITMIME", "ENHANCEDSTATUSCODES")
TAKEN = b"250 2.0.0 saved"


class Mailboxes:
    """An LMTP server. finals: what it says behind the dot for the first, second … accepted recipient; None: it hangs
    up there. unknown: recipients refused at RCPT. where: its port, or the path of its socket.
    """

    def __init__(self, finals: list[bytes | None], unknown: tuple[str, ...] = (), keywords: Any = KEYWORDS) -> None:
        self.finals, self.unknown, self.keywords = finals, unknown, keywords
        self.commands: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, EOFError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 boxes LMTP\r\n")
        accepted = 0
        while line := (await reader.readline()).decode():
            self.commands.append(line.rstrip())
            reply = b"250 2.0.0 ok"
            if line.startswith("LHLO"):
                reply = "\r\n".join(["250-boxes", *(f"250-{word}" for word in self.keywords), "250 HELP"]).encode()
            elif line.startswith("MAIL"):
                accepted = 0
            elif line.startswith("RCPT"):
                refused = any(name in line for name in self.unknown)
                accepted += not refused
                reply = b"550 5.1.1 no such mailbox" if refused else reply
            elif line.startswith("DATA") and not accepted:
                reply = b"503 5.5.1 no recipients"
            elif line.startswith("DATA"):
                writer.write(b"354 go\r\n")
                self.bodies.append(await reader.readuntil(b"\r\n.\r\n"))
                for final in self.finals[:accepted]:
                    if final is None:
                        return
                    writer.write(final + b"\r\n")
                    await writer.drain()
                continue
            elif not line.startswith(("QUIT", "RSET")):
                reply = b"500 5.5.1 LMTP here"
            writer.write(reply + b"\r\n")


@pytest.fixture
async def boxes() -> AsyncIterator[Callable[..., Awaitable[tuple[Mailboxes, int]]]]:
    """Starts a server on a free port, or at `path`; gives it and its port."""
    servers: list[asyncio.Server] = []

    async def start(*finals: bytes | None, path: Path | None = None, **more: Any) -> tuple[Mailboxes, int]:
        mailboxes = Mailboxes(list(finals), **more)
        if path is not None:
            servers.append(await asyncio.start_unix_server(mailboxes.talk, path))
            return mailboxes, 0
        servers.append(await asyncio.start_server(mailboxes.talk, "127.0.0.1", 0))
        return mailboxes, servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def deliver_lmtp(deliver: Any) -> Callable[..., Awaitable[Any]]:
    async def run(*deliveries: Any, **more: Any) -> Any:
        return await deliver(*deliveries, **({"protocol": "lmtp", "smart_host": deliveries[0].host} | more))

    return run


def fates(result: Any) -> dict[int, tuple[int, str, int]]:
    return {
        index: (outcome.verdict, outcome.stage, outcome.reply.code)
        for outcome in result.outcomes
        for index in outcome.recipients
    }


@pytest.mark.parametrize("keywords", [KEYWORDS, ()], ids=["pipelined", "stepwise"])
async def test_each_recipient_has_its_own_final_reply(
    keywords: Any, boxes: Any, letter: Any, deliver_lmtp: Any
) -> None:
    """Saved, refused at RCPT, over quota for now, refused for good: in the order of the accepted ones."""
    server, port = await boxes(
        TAKEN, b"452 4.2.2 full", b"550-5.7.1 not\r\n550 5.7.1 you", TAKEN, unknown=("r2@",), keywords=keywords
    )
    [result] = await deliver_lmtp(letter(port, 5))
    assert fates(result) == {
        0: (DELIVERED, "dot", 250), 1: (BOUNCED, "rcpt", 550), 2: (DEFERRED, "dot", 452), 3: (BOUNCED, "dot", 550),
        4: (DELIVERED, "dot", 250),
    }  # fmt: skip
    assert result.down_s is None
    assert server.commands[0].startswith("LHLO ")
    assert not any(line.startswith(("EHLO", "HELO")) for line in server.commands)


async def test_the_connection_stays_in_step(boxes: Any, letter: Any, deliver_lmtp: Any) -> None:
    """As many replies are read as recipients were accepted, so the next message can follow on the same connection."""
    server, port = await boxes(TAKEN, TAKEN, TAKEN)
    results = await deliver_lmtp(letter(port, 3), letter(port, 1), letter(port, 2))
    assert [set(fates(result).values()) for result in results] == [{(DELIVERED, "dot", 250)}] * 3
    assert (server.connections, len(server.bodies)) == (1, 3)


@pytest.mark.parametrize("leaving", [None, b"421 4.3.2 going away"], ids=["breaks-off", "421"])
async def test_whoever_was_answered_has_the_message(leaving: Any, boxes: Any, letter: Any, deliver_lmtp: Any) -> None:
    """A server that leaves between two replies has saved it for those before; the others are tried again."""
    _, port = await boxes(TAKEN, leaving, None)
    [result] = await deliver_lmtp(letter(port, 3))
    found = fates(result)
    assert found[0] == (DELIVERED, "dot", 250)
    assert [found[index][:2] for index in (1, 2)] == [(DEFERRED, "dot")] * 2
    assert result.down_s == (None if leaving is None else 0)


async def test_a_421_in_the_middle_hides_nobody(boxes: Any, letter: Any, deliver_lmtp: Any) -> None:
    """What is said of a recipient behind a 421 for another one counts: else it would be sent twice."""
    _, port = await boxes(b"421 4.3.2 not this one", TAKEN)
    [result] = await deliver_lmtp(letter(port, 2))
    assert fates(result) == {0: (DEFERRED, "dot", 421), 1: (DELIVERED, "dot", 250)}


async def test_a_missing_reply_times_out_alone(boxes: Any, letter: Any, deliver_lmtp: Any) -> None:
    """One reply too few: the last recipient waits in vain, those before are done."""
    _, port = await boxes(TAKEN)
    [result] = await deliver_lmtp(letter(port, 2), dot_timeout_s=0.5)
    assert fates(result) == {0: (DELIVERED, "dot", 250), 1: (DEFERRED, "dot", 451)}


async def test_nobody_accepted(boxes: Any, letter: Any, deliver_lmtp: Any) -> None:
    """No body is sent, no final reply awaited, and the connection is good for the next message."""
    server, port = await boxes(TAKEN, unknown=("r2@",))
    only_unknown = letter(port, 2)
    del only_unknown.recipients[0]
    first, second = await deliver_lmtp(only_unknown, letter(port, 1))
    assert fates(first) == {0: (BOUNCED, "rcpt", 550)}
    assert fates(second) == {0: (DELIVERED, "dot", 250)}
    assert (server.connections, len(server.bodies)) == (1, 1)


async def test_nobody_accepted_and_a_wrong_354(scripted: Any, letter: Any, deliver_lmtp: Any) -> None:
    """A server that wants a body for nobody would give no reply to it: the connection ends, nothing hangs."""
    server = await scripted({"ehlo": b"250 x\r\n", "rcpt1": "5xx", "data": b"354 go\r\n"})
    server.keywords = ("PIPELINING",)
    [result] = await deliver_lmtp(letter(server.port))
    assert set(fates(result)) == {0}


async def test_an_smtp_server_is_told_apart(scripted: Any, letter: Any, deliver_lmtp: Any) -> None:
    """LHLO is never followed by EHLO or HELO: the zone says LMTP, and SMTP would lose the replies."""
    server = await scripted()
    [result] = await deliver_lmtp(letter(server.port))
    assert fates(result)[0][:2] == (DEFERRED, "ehlo")
    assert [line[:4] for line in server.commands] == ["LHLO"]


async def test_over_a_unix_socket(boxes: Any, letter: Any, deliver_lmtp: Any, tmp_path: Path) -> None:
    """A host that begins with / is the path of a socket; nothing is looked up, no source bound, no TLS asked for."""
    path = tmp_path / "lmtp.sock"
    server, _ = await boxes(TAKEN, TAKEN, path=path, keywords=(*KEYWORDS, "STARTTLS"))
    letters = [letter(0, 2, host=str(path), source="192.0.2.1"), letter(0, 1, host=str(path), source="192.0.2.1")]
    results = await deliver_lmtp(*letters, tls="opportunistic")
    assert [set(fates(result).values()) for result in results] == [{(DELIVERED, "dot", 250)}] * 2
    assert [result.remote for result in results] == [str(path)] * 2
    assert server.connections == 1


async def test_a_unix_socket_that_is_not_there(letter: Any, deliver_lmtp: Any, tmp_path: Path) -> None:
    """Temporary, stage connect, the path named."""
    [result] = await deliver_lmtp(letter(0, host=str(tmp_path / "nowhere")))
    assert fates(result)[0][:2] == (DEFERRED, "connect")
    assert "nowhere: No such file" in result.outcomes[0].reply.text


def test_lmtp_needs_a_host() -> None:
    """MX records name SMTP servers (RFC 2033 5)."""
    with pytest.raises(ValidationError, match="needs host"):
        Zone(name="boxes", protocol="lmtp")
