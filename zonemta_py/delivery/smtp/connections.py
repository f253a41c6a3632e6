"""Idle connections between messages: the next delivery to the same destination reuses the one of the last.

Their number is not limited here: each lease permits one connection, so there are never more in use than leases. An idle
connection ends with QUIT after the zone's idle time; there are at most IDLE_MAX in total, and the oldest goes first.

Where a limit counts connections, the queue counts them by their names, and is told of each that it knows when it is
closed, whoever has closed it. So a lease that is to go on over one either does, or has it closed before it opens
another (`ready`); and its result names the one that is still open (`left`). Other connections are made known when this
process retires (`end`), since the configuration that follows may have a limit that counts them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from functools import partial

from zonemta_py.delivery.smtp.session import SmtpSession
from zonemta_py.queue.api import Delivery, OpenConnection, Result

IDLE_MAX = 500
"""Idle connections of one sender process, to all destinations."""

Key = Hashable
"""Zone, destination, host, port, source, TLS mode, user, protocol, pool: all that distinguishes connections."""


def _nobody(_: object) -> None:
    """Nobody counts them."""


class Connections:
    """The idle connections, newest last. closed: told the name of a connection that the queue knows, once it is.
    left_open: told those that it does not know yet, when this process retires."""

    def __init__(
        self, closed: Callable[[int], None] = _nobody, left_open: Callable[[list[OpenConnection]], None] = _nobody
    ) -> None:
        self._idle: dict[Key, deque[SmtpSession]] = {}
        self._order: OrderedDict[SmtpSession, Key] = OrderedDict()
        self._over = False
        self._tell, self._tell_open = closed, left_open
        self._named: dict[int, SmtpSession] = {}
        """All that are open, also those in use or being closed."""
        self._told: set[int] = set()
        """Names that the queue knows."""
        self._used: dict[int, SmtpSession] = {}
        """Which of them a lease goes over."""

    def __len__(self) -> int:
        return len(self._order)

    def take(self, key: Key, delivery: Delivery | None = None) -> SmtpSession | None:
        """The lease's own, else the most recently used one, which the server is least likely to have closed; None if
        there is none."""
        waiting = self._idle.get(key)
        if not waiting:
            return None
        own = None
        if delivery is not None:
            own = self._used.get(delivery.lease) or self._named.get(delivery.connection or 0)
        session = own if own is not None and own in waiting else waiting[-1]
        self._forget(session)
        return session

    def give(self, key: Key, session: SmtpSession, messages_max: int, idle_s: float) -> bool:
        """Takes a session back after a message. False: it is broken or has reached messages_max, and ends."""
        if session.dialogue.broken is not None:
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

    async def end(self) -> None:
        """Says what is open, and closes all; from now on each connection ends with its message, and counts. Returns
        when those that were not in use are closed."""
        self._over = True
        uncounted = [one for one in self._named.values() if not one.dialogue.counted]
        in_use = {session: lease for lease, session in self._used.items()}
        for session in uncounted:
            session.dialogue.counted = True
            self._told.add(session.name)
        self._tell_open([(one.name, in_use.get(one, 0), *one.used_for) for one in uncounted])
        for session in list(self._order):
            session.dialogue.quit()
        for session in [one for one in self._named.values() if not one.usable]:
            await session.dialogue.gone()

    # -- what limits count

    def use(self, session: SmtpSession, delivery: Delivery) -> None:
        """A lease goes over it."""
        if not session.name and session.usable:
            session.name = delivery.lease
            self._named[session.name] = session
            session.dialogue.on_closed = partial(self._closed, session)
        if delivery.connection is not None or self._over:
            session.dialogue.counted = True
        self._used[delivery.lease] = session
        session.used_for = (
            delivery.zone, delivery.source, delivery.site, delivery.provider, delivery.tenant, delivery.campaign
        )  # fmt: skip

    async def ready(self, key: Key, delivery: Delivery) -> None:
        """Returns when the lease's own connection is there to be used, or closed."""
        own = self._own(delivery)
        if own is None or self._order.get(own) == key:
            return
        if own in self._order:
            own.dialogue.quit()
        if not own.usable:
            await own.dialogue.gone()

    def used(self, delivery: Delivery) -> bool:
        """Whether a lease has gone over any connection."""
        return delivery.lease in self._used

    def left(self, delivery: Delivery, result: Result) -> None:
        """Says in a lease's result which connection it leaves open."""
        session = self._used.pop(delivery.lease, None) or self._named.get(delivery.connection or 0)
        if session is not None and session.dialogue.counted and session.name in self._named:
            result.connection, result.kept = session.name, session in self._order
            self._told.add(session.name)

    def _own(self, delivery: Delivery) -> SmtpSession | None:
        return self._used.get(delivery.lease) or self._named.get(delivery.connection or 0)

    def _closed(self, session: SmtpSession) -> None:
        if self._named.get(session.name) is session:
            del self._named[session.name]
        if session.name in self._told:
            self._told.discard(session.name)
            self._tell(session.name)

    def _forget(self, session: SmtpSession) -> None:
        """No longer idle: reused, closed by the server, or timed out."""
        session.dialogue.on_end = None
        key = self._order.pop(session)
        waiting = self._idle[key]
        waiting.remove(session)
        if not waiting:
            del self._idle[key]
