"""Sender domains in several queues: alike in all, as orders make them; what each would find out for itself is said to
all."""

from __future__ import annotations

from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queues.joined.asked import AskedQueues

Row = dict[str, Any]


async def put(queues: AskedQueues, **order: Any) -> Row:
    return await _first(queues, questions.domain_put, order)


async def looked(queues: AskedQueues, **order: Any) -> Row:
    return await _first(queues, questions.domain_looked, order)


async def remove(queues: AskedQueues, **order: Any) -> bool:
    return any((await queues.ordered(questions.domain_remove, order)).values())


async def _first(queues: AskedQueues, question: Any, order: Row) -> Row:
    order["now_ms"] = order.get("now_ms") or queues.now_ms()
    found: Row = next(iter((await queues.ordered(question, order)).values()))
    return found
