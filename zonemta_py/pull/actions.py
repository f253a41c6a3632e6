"""What each command does. An answer is complete when `PullConnection.end` has returned: the client's TCP has all of it.

A pop is settled only then; whatever happens before gives the message back, so that it is popped once more, never lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from zonemta_py.pull.command import Command, overview
from zonemta_py.pull.connection import Cut, PullConnection
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.pull import May, NamedQueues, Push, QueueProblem, QueueSize, Taken

_AGAIN_S = 0.2


@dataclass(slots=True)
class Exchange:
    """One command. user: the name of its token. may: whether that is for a queue, None: for all."""

    connection: PullConnection
    queues: NamedQueues
    command: Command
    user: str = ""
    may: May = None


async def push(exchange: Exchange) -> None:
    command, connection = exchange.command, exchange.connection
    asked = Push(command.queue, command.priority, command.delay or 0.0, connection.peer, exchange.user)
    receipt = await exchange.queues.push(asked, _message(connection, command.size))
    if command.id:
        await connection.write(f"{receipt.id}\n".encode())
    await connection.end()


async def _message(connection: PullConnection, size: int | None) -> AsyncIterator[bytes]:
    """To the end of file, or exactly so many bytes. A client that was killed ends like one that is done: only the size
    can tell."""
    came = 0
    while size is None or came < size:
        block = await connection.read()
        if not block:
            break
        came += len(block)
        yield block
    if size is None:
        return
    if came < size:
        raise QueueProblem(f"{came:,} bytes came and size={size} was said, so nothing is stored; push it again")
    if came > size or await connection.has_more():
        raise QueueProblem(
            f"more bytes came than size={size} says, so nothing is stored; say how many there are, or leave size out"
        )


async def pop(exchange: Exchange) -> None:
    taken = await _first(exchange)
    if taken is None:
        await exchange.connection.end()
        return
    try:
        await _show(exchange, taken)
        await exchange.connection.end()
    except BaseException:
        await taken.give_back()
        raise
    await taken.done()


async def reserve(exchange: Exchange) -> None:
    taken = await _first(exchange, exchange.queues.reservation(exchange.command.seconds))
    if taken is not None:
        try:
            await exchange.connection.write(f"{taken.receipt} {taken.delivery.size}\n".encode())
            await _show(exchange, taken)
            await exchange.connection.end()
        except BaseException:
            await taken.give_back()
            raise
        return
    await exchange.connection.end()


async def peek(exchange: Exchange) -> None:
    taken = await exchange.queues.peek(exchange.command.queue)
    if taken is not None:
        await _show(exchange, taken)
    await exchange.connection.end()


async def _first(exchange: Exchange, reserve_s: float = 0.0) -> Taken | None:
    """The oldest message, or the first that comes while the client waits. A queue that starts again is waited for."""
    loop, connection = asyncio.get_running_loop(), exchange.connection
    wait_s = exchange.queues.waiting(exchange.command.wait)
    until = loop.time() + wait_s
    if wait_s:
        connection.watch()
    while True:
        left_s = max(0.0, until - loop.time())
        connection.idle = left_s > 0
        try:
            taken = await exchange.queues.take(exchange.command.queue, reserve_s, left_s, connection.peer)
        except QueueRefusal:
            if left_s <= 0:
                raise
            await asyncio.sleep(min(_AGAIN_S, left_s))
            continue
        finally:
            connection.idle = False
        if taken is not None or left_s <= 0:
            return taken
        if connection.gone():
            raise Cut


async def _show(exchange: Exchange, taken: Taken) -> None:
    if exchange.command.envelope:
        lines = [f"{name}: {value}\n" for name, value in taken.header().items()]
        await exchange.connection.write("".join([*lines, "\n"]).encode())
    async for chunk in taken.chunks():
        await exchange.connection.write(chunk)


async def ack(exchange: Exchange) -> None:
    await exchange.queues.ack(exchange.command.receipt, exchange.may)
    await exchange.connection.end()


async def nack(exchange: Exchange) -> None:
    await exchange.queues.nack(exchange.command.receipt, exchange.command.delay or 0.0, exchange.may)
    await exchange.connection.end()


async def extend(exchange: Exchange) -> None:
    await exchange.queues.extend(exchange.command.receipt, exchange.command.seconds or 0.0, exchange.may)
    await exchange.connection.end()


async def size(exchange: Exchange) -> None:
    await exchange.connection.write(_counts(await exchange.queues.size(exchange.command.queue)))
    await exchange.connection.end()


async def queues(exchange: Exchange) -> None:
    rows = [row for row in await exchange.queues.every() if exchange.may is None or exchange.may(row.queue)]
    for row in rows:
        await exchange.connection.write(f"{row.queue} ".encode() + _counts(row))
    await exchange.connection.end()


def _counts(row: QueueSize) -> bytes:
    return f"{row.ready} ready {row.leased} leased {row.delayed} delayed {row.held} held\n".encode()


async def show_help(exchange: Exchange) -> None:
    await exchange.connection.write(overview().encode())
    await exchange.connection.end()


ACTIONS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "push": push, "pop": pop, "reserve": reserve, "ack": ack, "nack": nack, "extend": extend, "peek": peek,
    "size": size, "queues": queues, "help": show_help,
}  # fmt: skip
