"""Servers that refuse parameters of extensions that they offer: the recipients are no worse for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Notify, Recipient
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED

KEYWORDS = ("PIPELINING", "SIZE", "8BITMIME", "DSN")
EIGHT = "Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nGrüße\r\n".encode()


class Server:
    """refused: parameters that must not stand in MAIL or RCPT; "RCPT": nobody is taken. reply: what is said then."""

    def __init__(self, *refused: str, reply: bytes = b"555 5.5.4 parameters not recognized\r\n") -> None:
        self.refused, self.reply = refused, reply
        self.lines: list[str] = []
        self.taken: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        accepted = 0
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            self.lines.append(line)
            verb = line[:4]
            if verb == "EHLO":
                lines = ["server", *KEYWORDS]
                writer.write("".join(f"250{' ' if one == lines[-1] else '-'}{one}\r\n" for one in lines).encode())
            elif verb == "MAIL":
                accepted = 0 if self._reply(line, writer) else -1000
            elif verb == "RCPT":
                accepted += self._reply(line, writer)
            elif verb == "DATA" and accepted > 0:
                writer.write(b"354 go\r\n")
                self.taken.append(await reader.readuntil(b"\r\n.\r\n"))
                writer.write(b"250 2.0.0 taken\r\n")
            else:
                writer.write(b"503 5.5.1 no\r\n" if verb == "DATA" else b"250 2.0.0 ok\r\n")
        writer.close()

    def _reply(self, line: str, writer: asyncio.StreamWriter) -> bool:
        bad = any(f" {word}=" in line or line.startswith(word) for word in self.refused)
        writer.write(self.reply if bad else b"250 2.0.0 ok\r\n")
        return not bad


@pytest.fixture
async def start() -> AsyncIterator[Callable[[Server], Awaitable[Server]]]:
    servers: list[asyncio.Server] = []

    async def run(server: Server) -> Server:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        servers.append(listening)
        server.port = listening.sockets[0].getsockname()[1]
        return server

    yield run
    for one in servers:
        one.close()


def asking(letter: Any, port: int, count: int = 1, **more: Any) -> Any:
    """A delivery whose first recipient asks for notices."""
    made = letter(port, count, EIGHT, eightbit=True, ret="HDRS", **more)
    made.recipients[0] = Recipient("r0@d.example", int(Notify.SUCCESS), "rfc822;x@d.example")
    return made


def said(result: Any) -> dict[int, tuple[int, bool]]:
    return {index: (one.verdict, one.relayed) for one in result.outcomes for index in one.recipients}


@pytest.mark.parametrize(
    "reply", [b"555 5.5.4 what?\r\n", b"501 Bad parameter\r\n", b"504 5.5.4 not here\r\n"], ids=["555", "501", "504"]
)
async def test_once_more_without(reply: bytes, start: Any, letter: Any, deliver: Any) -> None:
    """Delivered, and the sender is told that there will be no more notices; the server's other mail goes without them
    from then on, over new connections, too."""
    server = await start(Server("NOTIFY", "ORCPT", reply=reply))
    results = await deliver(*(asking(letter, server.port, 2) for _ in range(3)), messages_per_connection=2)
    assert [said(result) for result in results] == [{0: (DELIVERED, True), 1: (DELIVERED, False)}] * 3
    assert sum(" NOTIFY=" in line for line in server.lines) == 1
    assert sum("EHLO" in line for line in server.lines) > 1


async def test_parameters_of_mail(start: Any, letter: Any, deliver: Any) -> None:
    """Those of every extension that the command used; without 8BITMIME the message goes in seven bits."""
    server = await start(Server("SIZE", "RET", "BODY"))
    [result] = await deliver(asking(letter, server.port))
    assert said(result) == {0: (DELIVERED, True)}
    [body] = server.taken
    assert body.isascii()
    assert [line for line in server.lines if line.startswith("MAIL")][-1] == "MAIL FROM:<a@b.example>"


async def test_where_nothing_can_be_left_out(start: Any, letter: Any, deliver: Any) -> None:
    """The reply is about the recipient then."""
    server = await start(Server("RCPT"))
    [result] = await deliver(letter(server.port))
    assert said(result) == {0: (BOUNCED, False)}
    assert sum(line.startswith("MAIL") for line in server.lines) == 1


async def test_a_lease_that_is_one_message(start: Any, letter: Any, deliver: Any) -> None:
    """Where limits count it so, the recipients wait for the next one."""
    server = await start(Server("NOTIFY"))
    results = await deliver(asking(letter, server.port, counted=True), asking(letter, server.port, counted=True))
    assert [said(result)[0][0] for result in results] == [RELEASED, DELIVERED]
    assert DEFERRED not in [said(result)[0][0] for result in results]
