"""Connections that are open without a lease, under a limit on connections: idle between two messages, or being closed.
And those that a sender has made known as it retires, since another configuration may have a limit that counts them.

The limit is on those that are open, so each counts until its sender says that it is closed, or has ended itself: no
timer here knows how late a busy sender is. Its egress path uses an idle one again for as long as it has mail; where
others share the limit and wait, for TURN_S at most: then the next egress path has its turn. There an idle one is kept
for IDLE_S at most.

A connection's name is the number of the lease that opened it. While a lease goes on over it, the lease counts instead.
A lease that is lost while its sender may still run leaves a connection of which only the lease is known; the sender's
late result says which it is. A sender may say that one is closed before the queue has given back the lease that was
to use it: `ended` remembers that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from zonemta_py.schedule.batch import Batch, EgressPath, IdleConnection
from zonemta_py.zones.admittance import Elsewhere
from zonemta_py.zones.throttle import Limit, Scope

IDLE_S = 1.0
TURN_S = 5.0
Ended = Callable[[tuple[Limit, ...]], bool]


class IdleConnections:
    """Those that are open without a lease. ended(limits): the limits that one of them counted at have room again;
    whether somebody has waited for that."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._by_path: dict[EgressPath, list[IdleConnection]] = {}
        """Those that may be used again."""
        self._by_name: dict[int, IdleConnection] = {}
        """All that are open, also those that a lease goes on over; under minus its number what a lost lease left."""
        self._at: Counter[Limit] = Counter()
        self.retired: set[str] = set()
        """Senders that get nothing more, and close their idle connections."""
        self._parting: set[str] = set()
        """Senders that have lost their leases, but may still have connections."""
        self._said: set[str] = set()
        """Retired senders of which all connections are known."""
        self.unsaid: set[str] = set()
        """Senders that may have connections which a new limit counts, and of which it is not known which."""

    def __contains__(self, path: EgressPath) -> bool:
        return path in self._by_path

    def at(self, limit: Limit) -> int:
        """How many count there and may be used again."""
        return self._at[limit] if self._at else 0

    # -- leases

    def take(self, path: EgressPath) -> IdleConnection | None:
        """The egress path's newest, which no longer counts itself: its new user does."""
        every = self._by_path.get(path)
        if not every:
            return None
        connection = every[-1]
        self._release(connection)
        return connection

    def back(self, batch: Batch) -> bool:
        """The lease has reached nobody; whether there was a connection for it, which counts again."""
        connection, batch.idle_connection = batch.idle_connection, None
        if connection is None or connection.ended or connection.user is not batch:
            return False
        self.put_back(connection)
        return True

    def put_back(self, connection: IdleConnection) -> None:
        """What was taken is not used, and counts again."""
        connection.counts, connection.user = True, None
        for limit in connection.limits:
            limit.hold()
        self._offer(connection)

    def report(self, batch: Batch, name: int, kept: bool) -> None:
        """A sender's result says which connection it leaves open, 0: none. kept: it may be used again. The lease
        counts for it until its end."""
        batch.keep, batch.told = kept, True
        if name or batch.idle_connection is not None:
            batch.idle_connection = self._found(batch, name)

    def _found(self, batch: Batch, name: int) -> IdleConnection | None:
        before, found = batch.idle_connection, self._by_name.get(name)
        if before is not None and before is not found and before.user is batch:
            self._by_name.pop(before.name, None)
            before.ended, before.user = True, None
        if found is not None and found.counts:  # its sender has used one that was thought to be idle
            self._drop(found)
        elif found is None and name and not (before is not None and before.name == name):
            found = self._by_name[name] = IdleConnection.of(name, batch)
        if found is not None:
            found.user = batch
        return found

    def remains(self, batch: Batch, counts: bool) -> bool:
        """As `keep`. counts: at a limit on connections; if not, what is open of a sender that parts or retires may
        still count at one of the next configuration."""
        return (counts or batch.idle_connection is not None or batch.worker in self._parting) and self.keep(batch)

    def keep(self, batch: Batch) -> bool:
        """The lease has ended; False: it has left no connection open. Else that counts where the lease has."""
        connection = batch.idle_connection
        if batch.worker in self._parting and not batch.told:
            connection = self._by_name[-batch.number] = IdleConnection.of(-batch.number, batch)
        elif connection is None or connection.ended or connection.user is not batch:
            batch.idle_connection = None
            return False
        connection.limits, connection.since, connection.counts = batch.limits, batch.since, True
        connection.flow_queue, connection.elsewhere = batch.flow_queue, batch.elsewhere
        if batch.told:
            connection.user, batch.idle_connection = None, None
            if batch.keep:
                self._offer(connection)
        return True

    # -- senders

    def closed(self, name: int) -> bool:
        """Its sender says so. Whether somebody may go now who could not before."""
        connection = self._by_name.pop(name, None)
        return connection is not None and self._end(connection)

    def told_late(self, lease: int, name: int) -> None:
        """The result of a lost lease, whose sender runs after all. name: the connection that it leaves open, or 0."""
        lost = self._by_name.pop(-lease, None)
        if lost is None or lost.user is None:
            return
        before = lost.user.idle_connection
        if before is not None and before.user is lost.user:
            self._by_name.pop(before.name, None)
        closed = before is not None and before.name == name and before.ended
        if not name or closed or name in self._by_name:
            self._end(lost)
        else:
            lost.name, lost.user = name, None
            self._by_name[name] = lost

    def part(self, worker: str) -> None:
        """A sender has lost its leases; what it has open counts until it says more, or has ended."""
        self._parting.add(worker)
        self._withdraw(worker)

    def stay(self, worker: str) -> None:
        """It goes on after all."""
        self._parting.discard(worker)

    def retire(self, worker: str) -> None:
        """None of its connections is used again."""
        self.retired.add(worker)
        self._withdraw(worker)

    def left_open(self, worker: str, name: int, scope: Scope, limits: tuple[Limit, ...]) -> None:
        """A retired sender has it open without a lease, and no result has named it."""
        connection = self._by_name[name] = IdleConnection(name, worker, scope)
        connection.limits, connection.counts = limits, True
        for limit in limits:
            limit.hold()

    def all_said(self, worker: str) -> None:
        """A retired sender has made known all that it has open."""
        self._said.add(worker)
        self.unsaid.discard(worker)

    def over(self, worker: str) -> None:
        """A sender's process has ended, and its connections with it."""
        for workers in (self.retired, self._parting, self._said, self.unsaid):
            workers.discard(worker)
        for connection in [one for one in self._by_name.values() if one.worker == worker]:
            del self._by_name[connection.name]
            self._end(connection)

    # -- limits

    def count_again(
        self, limits_of: Callable[[Scope, Elsewhere | None], tuple[Limit, ...]], counting: bool
    ) -> None:  # fmt: skip
        """All limits are new. counting: one is on connections."""
        self._at.clear()
        self.unsaid = (self.retired | self._parting) - self._said if counting else set()
        for connection in self._by_name.values():
            connection.limits = limits_of(connection.scope, connection.elsewhere)
            if connection.counts:
                for limit in connection.limits:
                    limit.hold()
        for every in self._by_path.values():
            for connection in every:
                self._at.update(connection.limits)

    def _end(self, connection: IdleConnection) -> bool:
        connection.ended = True
        return connection.counts and self._drop(connection)

    def _drop(self, connection: IdleConnection) -> bool:
        self._release(connection)
        return self._ended(connection.limits)

    def _release(self, connection: IdleConnection) -> None:
        connection.counts = False
        self._take_off(connection)
        for limit in connection.limits:
            limit.release()

    def _offer(self, connection: IdleConnection) -> None:
        """It may be used again."""
        flow_queue, worker = connection.flow_queue, connection.worker
        if flow_queue is not None and worker not in self.retired and worker not in self._parting:
            self._by_path.setdefault(flow_queue.path, []).append(connection)
            self._at.update(connection.limits)

    def _take_off(self, connection: IdleConnection) -> None:
        if (flow_queue := connection.flow_queue) is None:
            return
        every = self._by_path.get(flow_queue.path, [])
        if connection in every:
            every.remove(connection)
            if not every:
                del self._by_path[flow_queue.path]
                flow_queue.zone.flow_queues.leave(flow_queue.path)
            self._at.subtract(connection.limits)
            if not self._by_path:
                self._at.clear()

    def _withdraw(self, worker: str) -> None:
        for every in list(self._by_path.values()):
            for connection in [one for one in every if one.worker == worker]:
                self._take_off(connection)
