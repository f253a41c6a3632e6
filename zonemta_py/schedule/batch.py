"""What the schedule is made of: entries wait in flow queues, flow queues belong to egress paths.

An *egress path* is one source address towards one site (destinations whose mail goes to the same hosts): the unit
of connections, concurrency, rests and most limits. A *flow queue* is the part of a path that belongs to one
flow (priority, tenant, campaign): a short list in memory, followed by a range of parked keys in the store. A *batch*
is what is leased together: recipients of one message on one flow queue.

They refer to one another, so they are in one module; of the zone they know only its interface.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from zonemta_py.disk.notes import Note
from zonemta_py.schedule.by_length import ByLength
from zonemta_py.schedule.cursor import Shelf
from zonemta_py.schedule.flow import LEAVING, STOPPED, FlowId, place_of
from zonemta_py.zones.feedback import Concurrency
from zonemta_py.zones.throttle import Scope
from zonemta_py.zones.zone import Destination as Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from zonemta_py.config import Zone
    from zonemta_py.mail.reply import Reply
    from zonemta_py.mail.reroute import Bypass
    from zonemta_py.schedule.cursor import Cursor
    from zonemta_py.schedule.unreachable import Away
    from zonemta_py.zones.admittance import Charge, Elsewhere
    from zonemta_py.zones.destinations import SendingTerms
    from zonemta_py.zones.fair import Fair, Flow
    from zonemta_py.zones.rates import Learned
    from zonemta_py.zones.site import Site
    from zonemta_py.zones.throttle import Limit

NEVER_MS = 1 << 62


class Entry:
    """A recipient in the window: its key, taken apart, and its note. pinned: its message is kept in memory for it."""

    __slots__ = ("address", "id", "key", "note", "pinned")

    def __init__(self, key: bytes, message_id: str, address: str, note: Note, pinned: bool = False) -> None:
        self.key, self.id, self.address, self.note, self.pinned = key, message_id, address, note, pinned


class Blocked(NamedTuple):
    """Why something may not go. until: monotonic seconds (inf: until something happens). since_ms: UNIX time."""

    kind: str
    cause: str
    until: float
    since_ms: int


class EgressPath:
    """One source towards one site.

    apart: what keeps its mail apart from other mail to that site, "" if nothing does: STOPPED and a domain that is
    stopped, the names of [[destinations]] tables, or LEAVING and the zone (leaving) to which it goes. site: its
    target's name, which stays. place: its name among those of the same source. terms: the settings that hold there.
    """

    __slots__ = (
        "active",
        "apart",
        "concurrency",
        "crowded",
        "down_since_ms",
        "down_until",
        "failures",
        "flow_queues",
        "idle",
        "idle_until",
        "leaving",
        "old",
        "owner",
        "place",
        "provider",
        "reason",
        "site",
        "source",
        "target",
        "terms",
    )  # fmt: skip

    def __init__(
        self, target: Target, source: str, concurrency: Concurrency, provider: str, apart: str, terms: SendingTerms
    ) -> None:  # fmt: skip
        self.target, self.source, self.concurrency, self.provider = target, source, concurrency, provider
        self.site = target.key
        self.apart, self.place, self.terms = apart, place_of(target.key, apart), terms
        self.leaving = apart[1:] if apart.startswith(LEAVING) else ""
        self.flow_queues: dict[str, FlowQueue] = {}
        self.active = 0
        self.crowded = False
        """A flow queue of it is not listed only because all its connections are in use."""
        self.failures = 0
        self.down_until = 0.0
        self.down_since_ms = 0
        self.reason = ""
        self.idle = 0
        """Connections that were left open, as far as limits on new ones have to know; until then."""
        self.idle_until = 0.0
        self.old = False
        """It was there before what decides about ways was changed: what comes back to it may belong elsewhere."""
        self.owner = ""
        """The sender that has its connections, where they are limited."""

    @property
    def stopped(self) -> str:
        """The domain whose mail is here because it is stopped; "" if it is not for that."""
        return self.apart[1:] if self.apart.startswith(STOPPED) else ""


class FlowQueue:
    """A flow's part of an egress path. held: what it waits for, so that it is not listed meanwhile.

    deadline_ms: the earliest by which one of those parked has to be returned, or earlier; 0: not known.

    There may be as many as campaigns times sites, so everything shared is kept in the flow or egress path.
    """

    __slots__ = ("deadline_ms", "entries", "held", "key", "limits", "listed", "parked", "path", "turn", "zone")

    def __init__(
        self, zone: ZoneFace, key: str, path: EgressPath, turn: Turn, limits: tuple[Limit, ...], parked: Shelf
    ) -> None:
        self.key, self.zone, self.path, self.turn = key, zone, path, turn
        self.limits, self.parked = limits, parked
        self.entries: list[Entry] = []  # short; an empty deque is ten times as large
        self.listed = False
        self.held: Blocked | None = None
        self.deadline_ms = NEVER_MS

    @property
    def flow_id(self) -> FlowId:
        return self.turn.flow_id

    @property
    def scope(self) -> Scope:
        """As limits see it."""
        path, flow_id = self.path, self.flow_id
        return Scope(self.zone.zone.name, path.source, path.site, path.provider, flow_id.tenant, flow_id.campaign)

    @property
    def aside(self) -> bool:
        """Its domain is stopped: what waits for that is parked, and takes no room from others."""
        return self.held is not None and bool(self.path.stopped)

    def may_go(self) -> bool:
        """Whether it has something to send, and its egress path a connection for it."""
        path = self.path
        if not self.entries or path.down_until or self.held is not None:
            return False
        if path.active < (1 if path.failures else path.concurrency.window):
            return True
        path.crowded = True
        return False

    def enlist(self) -> None:
        """If it may go, it has its turn among its flow's."""
        if not self.listed and self.may_go():
            if self.path.leaving:
                self.zone.leave(self)
                return
            self.listed = True
            turn = self.turn
            turn.flow_queues.append(self)
            if not turn.flow.is_ready:
                turn.flow.ready = True

    def hold(self, hold: Blocked) -> None:
        """It waits from now on; its recipients in the window hold up no others meanwhile."""
        self.free()
        self.held = hold
        self.zone.stuck += len(self.entries)

    def free(self) -> None:
        """It waits no longer."""
        if self.held is not None:
            self.held = None
            self.zone.stuck -= len(self.entries)


class Turn:
    """A flow in the zone, its flow queues that may go, in turns, and all of them (members). text: its path's."""

    __slots__ = ("flow", "flow_id", "flow_queues", "members", "text")

    def __init__(self, flow_id: FlowId, flow: Flow) -> None:
        self.flow_id, self.text, self.flow = flow_id, flow_id.text(), flow
        self.members: ByLength[FlowQueue] = ByLength()
        self.flow_queues: deque[FlowQueue] = deque()


class Line:
    """Flow queues that wait, first come first: nearly always one, so that a deque for each would be expensive."""

    __slots__ = ("_first", "_more")

    def __init__(self, first: FlowQueue) -> None:
        self._first: FlowQueue | None = first
        self._more: deque[FlowQueue] | None = None

    def append(self, flow_queue: FlowQueue) -> None:
        if self._more is None:
            self._more = deque()
        self._more.append(flow_queue)

    def __contains__(self, flow_queue: FlowQueue) -> bool:
        return flow_queue is self._first or (self._more is not None and flow_queue in self._more)

    def remove(self, flow_queue: FlowQueue) -> bool:
        """Takes it out; True: it was the last."""
        if flow_queue is self._first:
            return self.pop()[1]
        if self._more is not None:
            self._more.remove(flow_queue)
        return False

    def pop(self) -> tuple[FlowQueue, bool]:
        """The first; True: it was the last too. Only once then."""
        first, self._first = self._first, self._more.popleft() if self._more else None
        assert first is not None
        return first, self._first is None


class Batch:
    """Recipients of one message that go to one destination together.

    connect: a new connection may be opened for it. site: what DNS says about the destination. refusal: why there is no
    route to it. taken: when its limits were charged, steady seconds, and what. elsewhere: where it goes instead. since:
    when its egress path was given the connection; idle_s: how long it may stay open without mail; keep: it does.
    idle_connection: the one it goes on over, and, once its sender has told, the one it leaves open. worker, number: its
    sender, and its lease.
    """

    __slots__ = (
        "charge",
        "connect",
        "day",
        "elsewhere",
        "entries",
        "flow_queue",
        "idle_connection",
        "idle_s",
        "keep",
        "learned",
        "limits",
        "number",
        "path",
        "refusal",
        "since",
        "site",
        "taken",
        "told",
        "worker",
        "zone",
    )  # fmt: skip

    def __init__(
        self, flow_queue: FlowQueue, entries: list[Entry], connect: bool = True, refusal: Reply | None = None
    ) -> None:
        self.flow_queue, self.entries, self.connect, self.refusal = flow_queue, entries, connect, refusal
        self.zone, self.path = flow_queue.zone, flow_queue.path
        self.site: Site | None = None
        self.taken = self.since = self.idle_s = 0.0
        self.keep = self.told = False
        self.idle_connection: IdleConnection | None = None
        self.worker, self.number = "", 0
        self.charge: Charge | None = None
        self.elsewhere: Elsewhere | None = None
        self.limits: tuple[Limit, ...] = ()
        self.day = 0
        self.learned: Learned | None = None


class IdleConnection:
    """limits: what it counts at, if it counts: while a lease (user) goes on over it, that does. name: the lease that
    opened it. since: when its egress path was given it. worker: who has it. ended: it is closed. flow_queue: of its
    last lease; None: only its scope is known, it is to be closed.
    """

    __slots__ = ("_scope", "counts", "elsewhere", "ended", "flow_queue", "limits", "name", "since", "user", "worker")

    def __init__(self, name: int, worker: str, scope: Scope | None = None) -> None:
        self.name, self.worker, self._scope = name, worker, scope
        self.flow_queue: FlowQueue | None = None
        self.user: Batch | None = None
        self.elsewhere: Elsewhere | None = None
        self.limits: tuple[Limit, ...] = ()
        self.since = 0.0
        self.counts = self.ended = False

    @classmethod
    def of(cls, name: int, batch: Batch) -> IdleConnection:
        """The one that a lease goes over."""
        made = cls(name, batch.worker)
        made.flow_queue, made.user, made.limits, made.since = batch.flow_queue, batch, batch.limits, batch.since
        return made

    @property
    def scope(self) -> Scope:
        if self.flow_queue is not None:
            return self.flow_queue.scope
        assert self._scope is not None
        return self._scope


class QueuesOfZone(Protocol):
    """What others ask of a zone's `FlowQueues`."""

    @property
    def by_key(self) -> dict[str, FlowQueue]: ...

    @property
    def fair(self) -> Fair: ...

    def where(self, message_id: str, address: str, note: Note) -> tuple[str, Target, str, str]: ...
    def terms_of(self, path: EgressPath, address: str) -> SendingTerms: ...
    def limits_of(self, path: EgressPath, flow_id: FlowId) -> tuple[Limit, ...]: ...
    def bypass(self, address: str, note: Note) -> Bypass | None: ...
    def still(
        self, flow_queue: FlowQueue, message_id: str, address: str, note: Note, unknown: str = ""
    ) -> FlowQueue: ...
    def leave(self, path: EgressPath) -> None: ...


class ZoneFace(Protocol):
    """The zone of a flow queue or a lease: the interface of `ZoneSchedule`."""

    stuck: int
    held: Blocked | None

    @property
    def zone(self) -> Zone: ...

    @property
    def flow_queues(self) -> QueuesOfZone: ...

    @property
    def limits(self) -> tuple[Limit, ...]: ...

    @property
    def fresh(self) -> Cursor: ...

    @property
    def due(self) -> Cursor: ...

    @property
    def active(self) -> int: ...

    @property
    def most(self) -> int: ...

    @property
    def by_domain(self) -> bool: ...

    @property
    def away(self) -> Away: ...

    def leave(self, flow_queue: FlowQueue) -> None: ...
    def may_have(self, path: EgressPath) -> bool: ...
    def series(self, path: EgressPath) -> int: ...
    def begin(self, batch: Batch) -> None: ...
    def done(self, batch: Batch) -> None: ...
    def put_back(self, batch: Batch, entries: list[Entry]) -> None: ...
    def went(self, path: EgressPath, count: int, of: int) -> None: ...
    def took(self, path: EgressPath, took_ms: int, size: int) -> None: ...
    def hold(self, flow_queue: FlowQueue, hold: Blocked) -> None: ...
    def over(self, flow_queue: FlowQueue, hold: Blocked) -> None: ...
    def withdraw(self, flow_queue: FlowQueue, over: Callable[[Entry], bool]) -> list[Entry]: ...
    def tidy(self, flow_queue: FlowQueue) -> None: ...
    def now(self) -> float: ...
    def ms_at(self, steady: float) -> int: ...
    def down(self, path: EgressPath, now: float, seconds: float, reason: str) -> None: ...
    def up(self, path: EgressPath) -> None: ...
    def answered(self, path: EgressPath) -> None: ...
    def put_away(self, site: str, source: str, key: bytes, before: bool = False) -> None: ...
    def promise(self, due: list[bytes]) -> None: ...
    def due_at(self, due_ms: int) -> None: ...
