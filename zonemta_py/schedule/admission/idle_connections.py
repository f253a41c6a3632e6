"""Connections that are open between two messages, under a limit on connections.

The limit is on those that are open, so such a connection counts until it ends. Its egress path uses it again for as
long as it has mail; where others share the limit and wait, for TURN_S at most: then the next egress path has its
turn. There an idle one is kept for IDLE_S at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from zonemta_py.schedule.batch import Batch, EgressPath, FlowQueue, IdleConnection
from zonemta_py.schedule.time.clock import Timers
from zonemta_py.zones.throttle import Limit

IDLE_S = 1.0
TURN_S = 5.0
_LATE_S = 0.1
"""How much later than in the sender it counts as closed: it must not count as closed while it is open."""


class IdleConnections:
    """The idle ones, by egress path. ended(limits): the limits that one of them counted at have room again."""

    def __init__(self, timers: Timers, ended: Callable[[tuple[Limit, ...]], None]) -> None:
        self._timers, self._ended = timers, ended
        self._by_path: dict[EgressPath, list[IdleConnection]] = {}
        self._at: Counter[Limit] = Counter()
        self._closing: list[IdleConnection] = []
        self.retired: set[str] = set()
        """Senders that get nothing more: they close their idle connections, which count until then."""

    def __contains__(self, path: EgressPath) -> bool:
        return path in self._by_path

    def at(self, limit: Limit) -> int:
        """How many count there."""
        return self._at[limit] if self._at else 0

    def keep(self, batch: Batch) -> None:
        """A lease has ended and left its connection open, which goes on counting where the lease did."""
        self._add(batch.path, IdleConnection(batch, self._timers.now() + batch.idle_s + _LATE_S))

    def take(self, path: EgressPath) -> IdleConnection | None:
        """The egress path's newest, which no longer counts itself: its new user does."""
        every = self._by_path.get(path)
        if not every:
            return None
        connection = every[-1]
        self._release(path, connection)
        return connection

    def back(self, path: EgressPath, connection: IdleConnection) -> None:
        """It was not used after all, and counts again."""
        for limit in connection.limits:
            limit.hold()
        self._add(path, connection)

    def lost(self, worker: str) -> None:
        """A sender has died, and its connections with it."""
        self.retired.discard(worker)
        for connection in [one for one in self._closing if one.worker == worker]:
            self._closed(connection)
        gone = [(path, one) for path, every in self._by_path.items() for one in every if one.worker == worker]
        for path, connection in gone:
            self._release(path, connection)
        for _, connection in gone:
            self._ended(connection.limits)

    def retire(self, worker: str) -> None:
        """None of its connections is used again."""
        self.retired.add(worker)
        for path, every in list(self._by_path.items()):
            for connection in [one for one in every if one.worker == worker]:
                for limit in connection.limits:
                    limit.hold()
                self._release(path, connection)
                self._close(connection)

    def count_again(self, limits_of: Callable[[FlowQueue], tuple[Limit, ...]]) -> None:
        """All limits are new."""
        self._at.clear()
        idle = [one for every in self._by_path.values() for one in every]
        for connection in (*idle, *self._closing):
            connection.limits = limits_of(connection.flow_queue)
            for limit in connection.limits:
                limit.hold()
        for connection in idle:
            self._at.update(connection.limits)

    def _close(self, connection: IdleConnection) -> None:
        """It is being closed by its sender."""
        self._closing.append(connection)
        self._timers.wake_at(connection.until, lambda: self._closed(connection))

    def _closed(self, connection: IdleConnection) -> None:
        if connection in self._closing:
            self._closing.remove(connection)
            for limit in connection.limits:
                limit.release()
            self._ended(connection.limits)

    def _add(self, path: EgressPath, connection: IdleConnection) -> None:
        if connection.worker in self.retired:
            self._close(connection)
            return
        self._by_path.setdefault(path, []).append(connection)
        self._at.update(connection.limits)
        self._timers.wake_at(connection.until, lambda: self._end(path, connection))

    def _release(self, path: EgressPath, connection: IdleConnection) -> None:
        every = self._by_path[path]
        every.remove(connection)
        if not every:
            del self._by_path[path]
        self._at.subtract(connection.limits)
        if not self._by_path:
            self._at.clear()
        for limit in connection.limits:
            limit.release()

    def _end(self, path: EgressPath, connection: IdleConnection) -> None:
        if connection in self._by_path.get(path, ()):
            self._release(path, connection)
            self._ended(connection.limits)
