"""The queue's end of the socket, as far as open sessions of accounts (`queue.core.sums.sessions`) and feedback
(`queue.feedback.register`) are concerned.

What a receiver has open counts as long as its connection: however it dies, its sessions end with it. When this process
is new, receivers that were there before come back within milliseconds and say what they have; whoever asks for a new
session in the first SETTLE_S waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from zonemta_py.queue.api import Feedback
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.wire.frames import OK, REFUSED, Operation

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
