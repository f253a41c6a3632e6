"""Idle connections between messages: the next delivery to the same destination reuses the one of the last.

Their number is not limited here: each lease permits one connection, so there are never more in use than leases. An idle
connection ends with QUIT after the zone's idle time; there are at most IDLE_MAX in total, and the oldest goes first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

from zonemta_py.delivery.smtp.session import SmtpSession

IDLE_MAX = 500
"""Idle connections of one sender process, to all destinations."""

Key = Hashable
"""Zone, destination, host, port, source, TLS mode, user: all that distinguishes connections."""


class Connections:
    """The idle connections, newest last."""

    def __init__(self) -> None:
        self._idle: dict[Key, deque[SmtpSession]] = {}
        self._order: OrderedDict[SmtpSession, Key] = OrderedDict()
        self._over = False

    def __len__(self) -> int:
        return len(self._order)

    def take(self, key: Key) -> SmtpSession | None:
        """The most recently used one, which the server is least likely to have closed; None if there is none."""
        waiting = self._idle.get(key)
        if not waiting:
            return None
        session = waiting[-1]
        self._forget(session)
        return session

    def give(self, key: Key, session: SmtpSession, messages_max: int, idle_s: float) -> bool:
        """Takes a session back after a message. False: it is broken or has reached messages_max, and ends."""
        if not session.usable:
            return False
        if session.sent >= messages_max or idle_s <= 0 or self._over:
            session.dialogue.quit()
            return False
        if len(self._order) >= IDLE_MAX:
            next(iter(self._order)).dialogue.quit()
        self._idle.setdefault(key, deque()).append(session)
        self._order[session] = key
        session.dialogue.on_end = lambda: self._forget(session)
        session.dialogue.rest(idle_s)
        return True

    def end(self) -> None:
        """Closes all; from now on each connection ends with its message."""
        self._over = True
        for session in list(self._order):
            session.dialogue.quit()

    def _forget(self, session: SmtpSession) -> None:
        """No longer idle: reused, closed by the server, or timed out."""
        session.dialogue.on_end = None
        key = self._order.pop(session)
        waiting = self._idle[key]
        waiting.remove(session)
        if not waiting:
            del self._idle[key]
