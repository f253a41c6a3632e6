"""A client of named queues as anybody would write it: one connection a command; a reset means no, or nobody knows."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Broken(Exception):
    """Reset, refused, or answered with an error: whether the command took effect is unknown."""


class Unreachable(Broken):
    """Nobody listens: nothing was sent."""


class Message(NamedTuple):
    """receipt: "" for a pop."""

    id: str
    body: bytes
    receipt: str = ""


async def command(port: int, line: str, body: bytes = b"", half_close: bool = False) -> bytes:
    """The whole answer, if it ended cleanly. Raises Broken, Unreachable."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        raise Unreachable(str(error)) from None
    try:
        writer.write(line.encode() + b"\n" + body)
        if half_close:
            writer.write_eof()
        answer = await reader.read()
    except OSError as error:
        raise Broken(str(error)) from None
    finally:
        writer.close()
    if answer.startswith(b"error: "):
        raise Broken(answer.decode())
    return answer


async def push(port: int, queue: str, body: bytes, by_size: bool) -> str:
    """The message's id: it is on stable storage. Raises Broken."""
    line = f"push {queue} id size={len(body)}" if by_size else f"push {queue} id"
    return (await command(port, line, body, half_close=not by_size)).decode().strip()


async def pop(port: int, queue: str, wait_s: float) -> Message | None:
    """Raises Broken."""
    return _message(await command(port, f"pop {queue} wait={wait_s:g} envelope"))


async def reserve(port: int, queue: str, seconds: float, wait_s: float) -> Message | None:
    """Raises Broken."""
    answer = await command(port, f"reserve {queue} {seconds:g} wait={wait_s:g} envelope")
    if not answer:
        return None
    first, _, rest = answer.partition(b"\n")
    message = _message(rest)
    return message and message._replace(receipt=first.decode().split()[0])


async def ack(port: int, receipt: str) -> None:
    """Raises Broken."""
    await command(port, f"ack {receipt}")


async def left(port: int, queue: str) -> int:
    """Messages that it still has, whatever becomes of them. Raises Broken."""
    words = (await command(port, f"size {queue}")).decode().split()
    return sum(int(word) for word in words[::2])


def _message(answer: bytes) -> Message | None:
    if not answer:
        return None
    head, _, body = answer.partition(b"\n\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\n"))
    assert int(fields["Size"]) == len(body), "a clean end with a part of a message"
    return Message(fields["Id"], body)
