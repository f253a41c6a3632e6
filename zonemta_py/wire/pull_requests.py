"""The queue's end of the socket, as far as pull zones are concerned. With the connection end those who wait over it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.api import Delivery, QueueRefusal
from zonemta_py.queue.pull.pulls import Puller
from zonemta_py.queue.queue import NOT_NOW, LocalQueue
from zonemta_py.wire.frames import OK, REFUSED, WRONG, Operation, delivery_row

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
