"""Replies that come before what they would answer, or besides it: no message is judged by one of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED

YES, NO = b"250 2.0.0 taken\r\n", b"550 5.7.1 spam\r\n"
Steps = list[tuple[str, bytes]]
"""What is waited for (the beginning of a line), and what is then said at once."""
HELLO: Steps = [("EHLO", b"250-x\r\n250 PIPELINING\r\n")]
STEPWISE: Steps = [("EHLO", b"250 x\r\n")]
Play = Callable[..., Awaitable[int]]


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """Starts a server on loopback that says what a list says, whatever comes; returns its port."""
    servers: list[asyncio.Server] = []

    async def start(steps: Steps, banner: bytes = b"220 x\r\n") -> int:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(banner)
            for wanted, answer in steps:
                while (line := await reader.readline()) and not line.startswith(wanted.encode()):
                    pass
                writer.write(answer)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 22)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


def said(result: Any) -> dict[int, tuple[int, str]]:
    return {i: (o.verdict, o.reply.enhanced) for o in result.outcomes for i in o.recipients}


GARBLED = (DEFERRED, "4.5.0")


@pytest.mark.parametrize("hello", [HELLO, STEPWISE], ids=["pipelined", "stepwise"])
async def test_a_yes_before_the_dot(hello: Any, play: Play, letter: Any, deliver: Any) -> None:
    """250 along with 354 answers nothing; the 550 that comes after the dot is what the server thinks of the message."""
    port = await play([*hello, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n" + YES), (".", NO)])
    [result] = await deliver(letter(port))
    assert said(result) == {0: GARBLED}


@pytest.mark.parametrize("hello", [HELLO, STEPWISE], ids=["pipelined", "stepwise"])
async def test_half_a_yes_before_the_dot(hello: Any, play: Play, letter: Any, deliver: Any) -> None:
    """The beginning of a line is as early as a whole one."""
    port = await play([*hello, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n250 ta"), (".", b"ken\r\n" + NO)])
    [result] = await deliver(letter(port))
    assert said(result) == {0: GARBLED}


async def test_a_yes_while_the_message_is_on_its_way(play: Play, letter: Any, deliver: Any) -> None:
    """A server that says 250 while most of a message has not left us cannot have read its end."""
    body = b"Subject: x\r\n\r\n" + b"x" * 998 + b"\r\n" + b"hello\r\n" * 3_000_000
    port = await play([*HELLO, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n"), ("Subject", YES), (".", NO)])
    [result] = await deliver(letter(port, body=body))
    assert said(result) == {0: GARBLED}


async def test_a_no_while_the_message_is_on_its_way(play: Play, letter: Any, deliver: Any) -> None:
    """That it has had enough a server may say before the end (552, RFC 5321 4.5.3.1.9), and means it."""
    body = b"Subject: x\r\n\r\n" + b"hello\r\n" * 3_000_000
    steps = [*HELLO, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n"), ("Subject", b"552 5.3.4 too big\r\n")]
    [result] = await deliver(letter(await play(steps), body=body))
    assert said(result) == {0: (BOUNCED, "5.3.4")}


async def test_yes_and_no_after_the_dot(play: Play, letter: Any, deliver: Any) -> None:
    """One of the two came too early, and nobody knows which."""
    port = await play([*HELLO, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n"), (".", YES + NO)])
    [result] = await deliver(letter(port))
    assert said(result) == {0: GARBLED}


@pytest.mark.parametrize("more", [YES, b"421 4.3.2 bye\r\n"], ids=["250", "421"])
async def test_yes_and_more_after_the_dot(more: bytes, play: Play, letter: Any, deliver: Any) -> None:
    """A positive reply that is repeated, or sent before hanging up, counts; sending again would deliver twice."""
    port = await play([*HELLO, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n"), (".", YES + more)])
    [result] = await deliver(letter(port))
    assert said(result) == {0: (DELIVERED, "2.0.0")}


@pytest.mark.parametrize("hello", [HELLO, STEPWISE], ids=["pipelined", "stepwise"])
async def test_surplus_before_the_recipients(hello: Any, play: Play, letter: Any, deliver: Any) -> None:
    """After one reply too many each is taken for the one before: nobody is refused for good by another's 550."""
    steps = [*hello, ("MAIL", YES + YES), ("RCPT", NO), ("RCPT", YES), ("DATA", b"354 go\r\n"), (".", YES)]
    [result] = await deliver(letter(await play(steps), 2))
    assert said(result) == {0: GARBLED, 1: GARBLED}


async def test_surplus_behind_the_envelope(play: Play, letter: Any, deliver: Any) -> None:
    """Nor by replies of which there is one too many at their end."""
    steps = [*HELLO, ("MAIL", YES), ("RCPT", NO), ("RCPT", NO), ("DATA", b"554 5.5.1 nobody\r\n" + NO)]
    [result] = await deliver(letter(await play(steps), 2))
    assert said(result) == {0: GARBLED, 1: GARBLED}


async def test_going_away_instead_of_the_message(play: Play, letter: Any, deliver: Any) -> None:
    """421 may be said at any time (RFC 5321 3.8): no message is sent any more, and the destination rests."""
    steps = [*HELLO, ("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n421 4.3.2 bye\r\n"), (".", YES)]
    [result] = await deliver(letter(await play(steps)))
    assert (said(result), result.down_s) == ({0: (DEFERRED, "4.3.2")}, 0)


async def test_left_over_from_the_message_before(play: Play, letter: Any, deliver: Any) -> None:
    """What a kept connection says between two messages is not the answer to the second one's MAIL."""
    envelope = [("MAIL", YES), ("RCPT", YES), ("DATA", b"354 go\r\n")]
    port = await play([*HELLO, *envelope, (".", YES + YES), *envelope, (".", NO)])
    first, second = await deliver(letter(port), letter(port))
    assert said(first) == {0: (DELIVERED, "2.0.0")}
    assert said(second) == {0: (DELIVERED, "2.0.0")}  # over a connection of its own


async def test_answers_before_the_questions_of_a_session(play: Play, letter: Any, deliver: Any) -> None:
    """A banner that brings the reply to EHLO along has not heard our EHLO."""
    port = await play([*HELLO, ("MAIL", YES)], b"220 x\r\n250-x\r\n250 PIPELINING\r\n")
    [result] = await deliver(letter(port))
    assert said(result) == {0: GARBLED}


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [(b"552 5.3.4 too large\r\n", (BOUNCED, "5.3.4")), (YES, (DEFERRED, "4.4.2")), (b"", (DEFERRED, "4.4.2"))],
)
async def test_hangs_up_in_the_middle(reply: bytes, outcome: Any, letter: Any, deliver: Any) -> None:
    """A refusal counts though the write that fails by the hanging up comes before it is read; nothing else does."""
    hung_up = threading.Event()

    def talk() -> None:
        client, _ = listener.accept()
        client.sendall(b"220 x\r\n")
        for answer in (b"250-x\r\n250 PIPELINING\r\n", YES * 2 + b"354 go\r\n"):
            client.recv(4096)
            client.sendall(answer)
        client.recv(1)
        client.sendall(reply)
        client.close()  # with bytes unread: no write of the client succeeds any more
        hung_up.set()

    def chunk(_id: str, number: int) -> bytes:
        assert number < 3 or hung_up.wait(60)
        return (b"x" * 62 + b"\r\n") * 1024

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=talk)
        server.start()
        message = letter(listener.getsockname()[1])
        message.body, message.chunks, message.size, message.lines = None, 4, 4 * 65_536, 1
        [result] = await deliver(message, chunk=chunk)
        server.join()
    assert said(result) == {0: outcome}
