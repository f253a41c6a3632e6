"""Which flow is next when demand exceeds capacity: hierarchical start-time fair queueing.

A flow is a leaf of a tree, named by its path: priority class, tenant, campaign. Each node has a weight among its
siblings and a start tag, the virtual time at which its next delivery begins; its parent's virtual time is the start tag
of what was last served. The sibling with the least start tag is next; serving it moves its tag on by cost / weight
(P. Goyal, H. Vin, H. Cheng: Start-time Fair Queuing, SIGCOMM 1996, sections 2 and 3).

Promise: at each level, siblings that always have something to send get shares as their weights, to within one
delivery each. What becomes ready starts at its parent's present virtual time, so it is next or nearly so, and has no
claim for the time it was idle; nor does it escape its debt by going idle for a moment. `pick` changes no tag, so
it may be repeated. pick, charge and ready take O(depth · log n).

Memory: the tree keeps flows that are ready or in debt; others live as long as the caller holds the Flow. Of flows
in debt that are otherwise unused the DEBTORS_MAX deepest in debt are kept at each node.

Pure. Costs are recipients, and may be any unit.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace, nlargest
from itertools import count
from weakref import WeakValueDictionary

from zonemta_py.config.limits import SharesSection

DEBTORS_MAX = 1024
_MATCHES_MAX = 16_384
Path = tuple[str, ...]


class _Node:
    """A place in the tree. start: its tag among its siblings. virtual, heap, ready_count: of its children.

    The heap has one valid entry (tag, number, child) for each child that is ready, and entries of some that are not.
    An entry is put right when it comes to the top: a tag that is too low is replaced by the child's start.
    """

    __slots__ = (
        "__weakref__",
        "heap",
        "is_ready",
        "parent",
        "path",
        "ready_count",
        "start",
        "tag",
        "virtual",
        "weight",
    )

    def __init__(self, path: Path, parent: _Node | None, weight: float) -> None:
        self.path, self.parent, self.weight = path, parent, weight
        self.virtual = 0.0
        self.start: float = parent.virtual if parent else 0.0
        self.tag = -1.0  # of its valid entry in the parent's heap; -1: there is none
        self.is_ready = False
        self.ready_count = 0
        self.heap: list[tuple[float, int, _Node]] = []

    def wake(self, numbers: Callable[[], int]) -> None:
        """It is ready now; so are those above it."""
        node, parent = self, self.parent
        while parent is not None and not node.is_ready:
            node.is_ready = True
            parent.ready_count += 1
            if node.start < parent.virtual:
                node.start = parent.virtual
            if node.tag < 0:
                parent.enter(node, numbers())
            node, parent = parent, parent.parent

    def sleep(self) -> None:
        """It is not ready any more; nor are those above it that have nothing else."""
        node, parent = self, self.parent
        while parent is not None and node.is_ready:
            node.is_ready = False
            parent.ready_count -= 1
            if parent.ready_count:
                break
            node, parent = parent, parent.parent

    def enter(self, child: _Node, number: int) -> None:
        child.tag = child.start
        heappush(self.heap, (child.tag, number, child))
        if len(self.heap) > 2 * (self.ready_count + DEBTORS_MAX):
            self._forget()

    def _forget(self) -> None:
        """Drops entries that have been replaced, and those that owe least."""
        valid = [entry for entry in self.heap if entry[0] == entry[2].tag]
        gone = [entry for entry in valid if not entry[2].is_ready]
        kept = nlargest(DEBTORS_MAX, gone, key=lambda entry: entry[2].start)
        for _, _, child in gone:
            child.tag = -1.0
        for tag, _, child in kept:
            child.tag = tag
        self.heap = [entry for entry in valid if entry[2].is_ready] + kept
        heapify(self.heap)

    def first(self) -> _Node | None:
        """The ready child with the least start tag."""
        heap = self.heap
        while heap:
            tag, number, child = heap[0]
            if tag != child.tag:
                heappop(heap)
            elif tag < child.start:
                child.tag = child.start
                heapreplace(heap, (child.start, number, child))
            elif child.is_ready:
                return child
            else:
                heappop(heap)
                child.tag = -1.0
        return None


class Flow(_Node):
    """A leaf. Set `ready` to say whether it has something that may go now; both ways it is cheap."""

    __slots__ = ("_numbers",)

    def __init__(self, path: Path, parent: _Node, weight: float, numbers: Callable[[], int]) -> None:
        super().__init__(path, parent, weight)
        self._numbers = numbers

    @property
    def ready(self) -> bool:
        return self.is_ready

    @ready.setter
    def ready(self, value: bool) -> None:
        if not value:
            self.sleep()
        elif not self.is_ready:
            self.wake(self._numbers)


class Fair:
    """The tree. Hold on to a Flow while there is something for it; `add` finds it again, or makes it anew."""

    def __init__(self) -> None:
        self.root = _Node((), None, 1.0)
        """Its `ready_count` says whether anything is ready, which is cheaper to ask than `pick`."""
        self._inner: WeakValueDictionary[Path, _Node] = WeakValueDictionary()
        self._flows: WeakValueDictionary[Path, Flow] = WeakValueDictionary()
        self._numbers = count().__next__

    def __len__(self) -> int:
        """Flows in memory."""
        return len(self._flows)

    def add(self, path: Path, weights: tuple[float, ...]) -> Flow:
        """The flow with that path, as it is or new and not ready. weights: of each part of the path, above 0.

        Weights that differ from before hold from the next charge on.
        """
        flow = self._flows.get(path)
        if flow is None:
            flow = self._flows[path] = Flow(path, self._above(path, weights), weights[-1], self._numbers)
            return flow
        node: _Node | None = flow
        for weight in reversed(weights):
            if node is not None:
                node.weight, node = weight, node.parent
        return flow

    def _above(self, path: Path, weights: tuple[float, ...]) -> _Node:
        node = self.root
        for depth in range(1, len(path)):
            found = self._inner.get(path[:depth])
            if found is None:
                found = self._inner[path[:depth]] = _Node(path[:depth], node, weights[depth - 1])
            found.weight = weights[depth - 1]
            node = found
        return node

    def pick(self) -> Flow | None:
        """The ready flow that is next, the same until something is charged or readiness changes; None: none is."""
        if not self.root.ready_count:
            return None
        node = self.root.first()
        while node is not None and not isinstance(node, Flow):
            node = node.first()
        return node

    def charge(self, flow: Flow, cost: float) -> None:
        """It was given `cost`, whether or not it is still ready. Below 0: it gives that back, for it was not used."""
        node: _Node = flow
        while (parent := node.parent) is not None:
            start, heap = node.start, parent.heap
            if cost > 0:
                serving = start if not heap or start < heap[0][0] else heap[0][0]
                if serving > parent.virtual:
                    parent.virtual = serving
            node.start = max(0.0, start + cost / node.weight)
            if node.start < node.tag or (node.tag < 0 and node.start > parent.virtual):
                parent.enter(node, self._numbers())
            node = parent


class _Names:
    """Names, or beginnings of names with a *, and what they stand for: exact before longest beginning before 1."""

    def __init__(self, rules: dict[str, float]) -> None:
        self._exact = {name: weight for name, weight in rules.items() if not name.endswith("*")}
        starts = [(name[:-1], weight) for name, weight in rules.items() if name.endswith("*")]
        self._starts = sorted(starts, key=lambda start: -len(start[0]))
        self._found: dict[str, float] = {}

    def of(self, name: str) -> float:
        weight = self._found.get(name)
        if weight is None:
            if len(self._found) >= _MATCHES_MAX:
                self._found.clear()
            weight = self._found[name] = self._find(name)
        return weight

    def _find(self, name: str) -> float:
        if name in self._exact:
            return self._exact[name]
        return next((weight for start, weight in self._starts if name.startswith(start)), 1.0)


class Weights:
    """The configured shares, compiled."""

    def __init__(self, shares: SharesSection) -> None:
        self._tenants, self._campaigns = _Names(shares.tenants), _Names(shares.campaigns)

    def tenant(self, name: str) -> float:
        return self._tenants.of(name)

    def campaign(self, name: str) -> float:
        """Among the campaigns of its tenant."""
        return self._campaigns.of(name)

    def place(self, priority: int, tenant: str, campaign: str) -> tuple[Path, tuple[float, ...]]:
        """Path and weights for `Fair.add`: a step of priority (-9 … 9, RFC 6710) doubles the share of its class."""
        weights = (2.0**priority, self._tenants.of(tenant), self._campaigns.of(campaign))
        return (f"{priority:+d}", tenant, campaign), weights
