"""A receiver's end of the socket, as far as open sessions of accounts and feedback are concerned
(`wire.session_requests`)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from zonemta_py.queue.api import Feedback
from zonemta_py.wire.channel import Channel, Lost, ignore
from zonemta_py.wire.frames import Operation, feedback_row


class RemoteSessions(ABC):
    """The part of a `RemoteQueue` that counts sessions, and hands in what came back."""

    _protocol: Channel | None
    _sessions: dict[str, str]
    """Accounts of those that were let in, by the session's id."""

    @abstractmethod
    async def _there(self) -> Channel:
        """Waits for a queue that is starting. Raises QueueRefusal."""

    async def enter(self, session: str, account: str) -> None:
        """As of `Reception`."""
        while True:
            try:
                await (self._protocol or await self._there()).request(Operation.ENTER, (session, account))
            except Lost:  # the next process of the queue is asked, or says after a while that there is none
                continue
            self._sessions[session] = account
            return

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        """As of `Reception`."""
        packed = list(map(feedback_row, rows))
        while True:
            try:
                found = await (self._protocol or await self._there()).request(Operation.FEEDBACK, (packed,))
            except Lost:  # asking twice is harmless: what was recorded is known
                continue
            return list(found)

    def leave(self, session: str) -> None:
        """As of `Reception`."""
        self._sessions.pop(session, None)
        if self._protocol is not None:
            self._protocol.send((Operation.LEFT, 0, session))

    def _say_again(self, protocol: Channel) -> None:
        """To a queue that knows nothing of this process's sessions."""
        for session, account in self._sessions.items():
            protocol.request(Operation.ENTER, (session, account, True)).add_done_callback(ignore)
