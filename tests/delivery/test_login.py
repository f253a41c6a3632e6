"""AUTH LOGIN as a client, with servers of every dialect."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import aiosmtplib
import pytest

from zonemta_py.delivery.smtp.session import SmtpClient

NAME, SECRET = b64encode(b"shop"), b64encode("se-crä".encode())


async def dialogue(*challenges: bytes) -> tuple[list[bytes], bool]:
    """What the client answers to these, and whether it was let in at the end. The first is about the command."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 x\r\n")
        await reader.readline()
        writer.write(b"250-x\r\n250 AUTH LOGIN\r\n")
        for challenge in challenges:
            heard.append((await reader.readline()).strip())
            writer.write(challenge)
        await reader.readline()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = SmtpClient(hostname="127.0.0.1", port=server.sockets[0].getsockname()[1], start_tls=False, timeout=20)
    try:
        await client.connect()
        await client.ehlo()
        try:
            await client.login("shop", "se-crä")
        except aiosmtplib.SMTPAuthenticationError:
            return heard, False
        return heard, True
    finally:
        client.close()
        server.close()


def ask(text: bytes) -> bytes:
    return b"334 " + b64encode(text) + b"\r\n"


IN = b"235 2.7.0 ok\r\n"


@pytest.mark.parametrize(
    ("challenges", "answers"),
    [
        ((ask(b"Username:"), ask(b"Password:"), IN), [NAME, SECRET]),
        ((ask(b"User Name\0"), ask(b"Password\0"), IN), [NAME, SECRET]),
        ((ask(b"password:"), ask(b"username:"), IN), [SECRET, NAME]),
        ((ask(b"Username:"), ask(b"Username:"), ask(b"Password:"), IN), [NAME, NAME, SECRET]),
        ((ask(b""), ask(b""), IN), [NAME, SECRET]),
        ((ask(b"Benutzer:"), ask(b"Kennwort:"), IN), [NAME, SECRET]),
        ((b"334 !\r\n", b"334 \r\n", IN), [NAME, SECRET]),
    ],
)
async def test_each_question_gets_what_it_asks_for(challenges: tuple[bytes, ...], answers: list[bytes]) -> None:
    """The command comes alone, since some servers ask for the name whatever came with it."""
    assert await dialogue(*challenges) == ([b"AUTH LOGIN", *answers], True)


@pytest.mark.parametrize(
    "challenges",
    [
        (b"504 5.5.4 no\r\n",),
        (ask(b"Username:"), b"535 5.7.8 wrong\r\n"),
        (ask(b"Username:"), ask(b"Password:"), b"535 5.7.8 wrong\r\n"),
        (ask(b"Username:"), *(ask(b"Username:") for _ in range(4))),
    ],
)
async def test_a_server_that_lets_nobody_in(challenges: tuple[bytes, ...]) -> None:
    """It is an error of the login, at the latest after a few questions."""
    heard, entered = await dialogue(*challenges)
    assert not entered
    assert len(heard) == len(challenges)
