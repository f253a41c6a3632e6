"""The unix socket of a process that answers questions, and nothing else, in the protocol of the queue's
(`frames.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgpack

from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.wire.frames import FAULT, OK, REFUSED, WRONG, Operation, pack, unpacker

log = logging.getLogger(__name__)

Answering = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""A question and its arguments → the answer. Raises ValueError, QueueRefusal, QueueFault."""


async def serve(answer: Answering, path: Path) -> asyncio.AbstractServer:
    """Listens on `path`, readable by this user only; a socket left by a dead process is replaced. Raises OSError."""
    path.unlink(missing_ok=True)  # noqa: ASYNC240 (before anything else is done in this process)
    before = os.umask(0o177)
    try:
        return await asyncio.get_running_loop().create_unix_server(lambda: QuestionConnection(answer), str(path))
    finally:
        os.umask(before)


class QuestionConnection(asyncio.Protocol):
    """One peer. Orders are carried out even if it disconnects."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._unpacker = unpacker()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._unpacker.feed(data)
            for operation, number, *arguments in self._unpacker:
                if operation == Operation.ASK:
                    self._ask(number, *arguments)
                elif operation not in (Operation.HELLO, Operation.BEAT):
                    raise ValueError("only questions are answered here")
        except (msgpack.UnpackException, ValueError, TypeError):
            if self._transport is not None:  # not one of ours: it cannot be trusted
                self._transport.abort()

    def _ask(self, number: int, question: str, arguments: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(number, question, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, number: int, question: str, arguments: dict[str, Any]) -> None:
        found = await outcome(self._answer, question, arguments)
        if self._transport is not None:
            self._transport.write(pack((number, *found)))


async def outcome(answer: Answering, question: str, arguments: dict[str, Any]) -> tuple[int, Any]:
    """The status and the payload of its answer."""
    try:
        return OK, await answer(question, arguments)
    except QueueFault as fault:
        return FAULT, fault.reply.text
    except QueueRefusal as refusal:
        return REFUSED, (refusal.reply.code, refusal.reply.enhanced, refusal.reply.text)
    except ValueError as error:
        return WRONG, str(error)
    except Exception:
        log.exception("a question failed")
        return FAULT, f"{question}: it could not be answered, by a fault of zonemta; the log says where"
