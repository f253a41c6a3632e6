"""What is asked over the socket, beside mail itself: sessions of accounts (`queue.core.sums.sessions`) and feedback, a
sender's own connections, pull zones, questions and orders.

What a receiver has open counts as long as its connection: however it dies, its sessions end with it. When this process
is new, receivers that were there before come back within milliseconds and say what they have; whoever asks for a new
session in the first SETTLE_S waits for them. With the connection end those who wait over it for messages. Questions are
answered when recovery is over, orders whatever becomes of who gave them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue import questions
from zonemta_py.queue.api import Delivery, Feedback, OpenConnection, QueueRefusal
from zonemta_py.queue.pull.pulls import Puller
from zonemta_py.queue.queue import NOT_NOW, LocalQueue
from zonemta_py.schedule.time.pace import answering
from zonemta_py.wire.frames import OK, REFUSED, WRONG, Operation, delivery_row


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


async def kept(queue: LocalQueue, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
    """What plugins keep: known when recovery is over. Raises ValueError, QueueRefusal."""
    await queue.core.when_ready.wait()
    return await queue.plugin_store.do(what, plugin, name, token, arguments)


async def outlived(work: asyncio.Future[Any]) -> Any:
    """An order is carried out even if its client disconnects."""
    try:
        return await asyncio.shield(work)
    finally:
        del work  # which keeps its error, which knows this place


SETTLE_S = 0.25


class SessionRequests:
    """Of one connection."""

    def __init__(
        self,
        queue: LocalQueue,
        answer: Callable[[int, int, Any], None],
        run: Callable[[int, Coroutine[Any, Any, Any]], object],
    ) -> None:
        self._queue, self._sessions, self._answer, self._run = queue, queue.core.counters.sessions, answer, run
        self._loop = asyncio.get_running_loop()
        self._of: dict[str, str] = {}
        """Accounts of the open ones, by the session's id."""
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        return {Operation.ENTER: self._enter, Operation.LEFT: self._left, Operation.FEEDBACK: self._feedback}

    def end(self) -> None:
        """The connection has ended, and its sessions with it."""
        for session in {*self._of, *self._waiting}:
            self._left(0, session)

    def _enter(self, number: int, session: str, account: str, again: bool = False) -> None:
        """again: it was let in by the queue's process before this one."""
        if not (isinstance(session, str) and isinstance(account, str)):
            raise TypeError("a session and its account have names")
        wait_s = 0.0 if again else self._sessions.settled_at - self._loop.time()
        if wait_s > 0:
            self._waiting[session] = self._loop.call_later(wait_s, self._count, number, session, account, again)
        else:
            self._count(number, session, account, again)

    def _count(self, number: int, session: str, account: str, again: bool) -> None:
        self._waiting.pop(session, None)
        if self._of.get(session) != account:
            reply = None if again else self._sessions.refusal(account)
            if reply is not None:
                self._answer(number, REFUSED, (reply.code, reply.enhanced, reply.text))
                return
            self._left(0, session)
            self._of[session] = account
            self._sessions.count(account, 1)
        self._answer(number, OK, None)

    def _feedback(self, number: int, rows: list[list[Any]]) -> None:
        self._run(number, self._queue.feedback([Feedback(*row) for row in rows]))

    def _left(self, _: int, session: str) -> None:
        waiting = self._waiting.pop(session, None)
        if waiting is not None:
            waiting.cancel()
        account = self._of.pop(session, None)
        if account is not None:
            self._sessions.count(account, -1)


class ConnectionRequests:
    """Of one sender."""

    def __init__(
        self, queue: LocalQueue, name: Callable[[], str], run: Callable[[int, Coroutine[Any, Any, Any]], object]
    ) -> None:
        self._queue, self._name, self._run = queue, name, run

    def handlers(self) -> dict[int, Callable[..., None]]:
        return {
            Operation.CLOSED: self._closed,
            Operation.LEFT_OPEN: self._left_open,
            Operation.PLACE: self._place,
        }

    def _closed(self, _: int, connections: list[int]) -> None:
        for connection in connections:
            self._queue.closed(connection)

    def _left_open(self, _: int, connections: list[OpenConnection]) -> None:
        self._queue.left_open(connections, self._name())

    def _place(self, number: int, lease: int, site: str, provider: str) -> None:
        self._run(number, self._queue.place(lease, str(site), str(provider)))


Answer = Callable[[int, int, Any], None]
Run = Callable[[int, Coroutine[Any, Any, Any]], Any]


class PullRequests:
    """Of one connection. name: by which its leases are its own. run: answers with what a coroutine returns."""

    def __init__(self, queue: LocalQueue, name: Callable[[], str], answer: Answer, run: Run) -> None:
        self._queue, self._name, self._answer, self._run = queue, name, answer, run
        self._pullers: dict[int, tuple[int, Puller]] = {}
        """Those who wait, by token, and their request's number."""

    def handlers(self) -> dict[int, Callable[..., None]]:
        return {
            Operation.PULL: self._pull,
            Operation.LEAVE: self._leave,
            Operation.PULLED: self._pulled,
            Operation.PEEK: self._peek,
        }

    def end(self) -> None:
        """The connection has ended."""
        pullers, self._pullers = self._pullers, {}
        for _, puller in pullers.values():
            self._queue.pulls.leave(puller)

    def fall_silent(self) -> None:
        """The process at the other end is stuck: it gets nothing, and asks again when it runs again."""
        for token in list(self._pullers):
            self._leave(0, token)

    def _pull(
        self, number: int, token: int, queue: str, most: int, reserve_s: float, wait_s: float, remote: str = ""
    ) -> None:
        def deliver(deliveries: list[Delivery]) -> None:
            self._pullers.pop(token, None)
            self._answer(number, OK, list(map(delivery_row, deliveries)))

        if not isinstance(queue, str):
            raise TypeError("the name of a queue must be text")
        seconds = float(reserve_s), float(wait_s)
        try:
            puller = self._queue.pulls.pull(queue, int(most), *seconds, self._name(), deliver, str(remote))
        except ValueError as error:
            self._answer(number, WRONG, str(error))
            return
        except QueueRefusal as refusal:
            reply = refusal.reply
            self._answer(number, REFUSED, (reply.code, reply.enhanced, reply.text))
            return
        if puller is not None:
            self._pullers[token] = (number, puller)

    def _leave(self, _: int, token: int) -> None:
        number, puller = self._pullers.pop(token, (0, None))
        if puller is not None:
            self._queue.pulls.leave(puller)
            self._answer(number, OK, [])

    def _pulled(self, number: int, what: str, lease: int, message_id: str, seconds: float, remote: str) -> None:
        try:
            self._tell(number, what, lease, message_id, seconds, remote)
        except ValueError as error:
            self._answer(number, WRONG, str(error))

    def _tell(self, number: int, what: str, lease: int, message_id: str, seconds: float, remote: str) -> None:
        pulls, done = self._queue.pulls, partial(self._answer, number, OK)
        if what == "ack":
            pulls.ack(lease, message_id, remote, done)
        elif what == "nack":
            pulls.nack(lease, message_id, float(seconds), remote, done)
        elif what == "abandon":
            pulls.abandon(lease, message_id, done)
        elif what == "extend":
            done(pulls.extend(lease, message_id, float(seconds)))
        else:
            raise ValueError(f"a lease cannot be told {what!r}; use ack, nack, abandon or extend")

    def _peek(self, number: int, queue: str, most: int) -> None:
        self._run(number, self._peeked(queue, int(most)))

    async def _peeked(self, queue: str, most: int) -> list[Any]:
        try:
            return list(map(delivery_row, await self._queue.pulls.peek(queue, most)))
        except StoreError:
            raise QueueRefusal(NOT_NOW) from None
