"""Questions and orders that come over the socket: answered when recovery is over, whatever becomes of who asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.schedule.time.pace import answering


async def answered(queue: LocalQueue, question: str, arguments: dict[str, Any]) -> Any:
    """Recovery comes first: until it is over the queue's contents, and the effect of an order, are unknown. Only
    whether it is over can be asked.

    Raises ValueError for what is not a question, QueueRefusal.
    """
    if not isinstance(question, str) or not isinstance(arguments, dict) or not all(map(_is_text, arguments)):
        raise ValueError("a question must be a name and a map of arguments")
    if question != questions.ready:
        await queue.core.when_ready.wait()
    return await queue.answer(question, arguments)


def _is_text(name: Any) -> bool:
    return isinstance(name, str)


def packed(question: object, answer: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Packing the answer counts as work for the question."""
    return answer if str(question) in questions.UNMEASURED else answering(answer)


async def owed(queue: LocalQueue, token: str) -> tuple[str, int, int] | None:
    """Recovery finds out what the previous process has stored."""
    await queue.core.when_ready.wait()
    return queue.core.known.get(token)


async def outlived(work: asyncio.Future[Any]) -> Any:
    """An order is carried out even if its client disconnects."""
    try:
        return await asyncio.shield(work)
    finally:
        del work  # which keeps its error, which knows this place
