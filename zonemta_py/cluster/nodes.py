"""Which nodes a cluster has, and which queues are whose: a bucket of JetStream.

Each node renews its entry once a second. A queue belongs to one *instance* of a node: to the folder, not to the
machine's name, so that a node that comes back with an empty folder is another one. Entries of queues change only by
compare-and-set: of several that want to take one, one does. Numbers of queues are given out once, so that none that
was lost is ever mistaken for another.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from zonemta_py.cluster.log_stream import stream_of
from zonemta_py.cluster.nats import KeyEntry, Nats, NatsError, NotThere, WrongSequence
from zonemta_py.cluster.presence import Presence
from zonemta_py.config import Config
from zonemta_py.disk import packing
from zonemta_py.disk.files import replace_file
from zonemta_py.journal.folders import FOLDER, QUEUES_MAX

log = logging.getLogger(__name__)

BUCKET = "nodes"
NODE, QUEUE, NUMBERS, IDENTITY = "node.", "queue.", "numbers", "id"
FILE = "node"
"""In `queues/` of the node's folder: which cluster it belongs to, and as which instance."""
MOST = QUEUES_MAX - 1
"""Highest number of a queue (`journal/folders.py`). 0 is that of a queue that was there before."""
ROUND_S = 0.5
BEAT_S = 1.0
"""How often a node gives a sign of life."""
BEAT_TIMEOUT_S = 5.0
JOIN_S = 30.0
"""How long a node that joins may give no sign of life before its queues start."""


class NotAdmitted(Exception):
    """One sentence: why this node cannot be one of the cluster."""


class Owner(NamedTuple):
    """Of a queue. epoch: rises when it is taken over."""

    node: str
    instance: str
    epoch: int


class Joined(NamedTuple):
    """numbers: of this node's queues. home: of the one that has its folder itself. replaced: queues that others have
    taken over while this node was away: what is in their folders here is only to be kept. epochs: of its queues."""

    numbers: list[int]
    home: int
    replaced: list[int]
    epochs: dict[int, int]


class NodeFacts(NamedTuple):
    """What a node says of itself. age_s: for how long it has said nothing new, as far as this node has heard."""

    name: str
    instance: str
    facts: dict[str, Any]
    is_alive: bool
    age_s: float


class _NodeEntry(NamedTuple):
    instance: str
    facts: dict[str, Any]
    revision: int
    seen_at: float


class NodeMembership:
    """Of one node, which must give signs of life (`beat`) and look (`run`) from when it has joined."""

    def __init__(self, nats: Nats, config: Config, folder: Path) -> None:
        """folder: the node's."""
        self._nats, self._bucket = nats, nats.bucket(BUCKET)
        self._cluster, self.node, self._folder = config.cluster.name, config.node, folder
        self.instance = ""
        """Set when it joins."""
        self.cluster_id = ""
        """The cluster's own, since two may have one name; set when this node joins."""
        self._run = token_hex(8)
        self._dead_after_s = config.cluster.dead_after_s
        self._presence = Presence(self._dead_after_s)
        self._nodes = dict[str, _NodeEntry]()
        self._owners = dict[int, tuple[Owner, int]]()
        self._dropped = dict[str, int]()
        """Keys that were deleted, and the revisions of that."""
        self._revision = 0
        """Of this node's own entry."""
        self._orphans = dict[int, float]()
        """Queues whose owner is dead, and since when that is known."""
        self._told = dict[int, float]()

    # -- joining

    async def join(self, wanted: int, known: list[int], fresh_ones: bool = True) -> Joined:
        """known: the numbers that this node's folder has, the one at home first; none if it is empty. fresh_ones: where
        it has fewer than are wanted, or none at home, it gets new ones; else `home` may be -1. Raises NotAdmitted,
        NatsError, OSError."""
        await self._bucket.make()
        self.cluster_id = await self._identity_of_cluster()
        self.instance, before = self._identity()
        await self._enter()
        kept, replaced, epochs = list[int](), list[int](), dict[int, int]()
        for number in known:
            epoch = await self._claim(number, before)
            if epoch is None:
                replaced.append(number)
            else:
                kept.append(number)
                epochs[number] = epoch
        homeless = not known or known[0] in replaced
        count = max(wanted - len(kept), int(homeless)) if fresh_ones else 0
        fresh = [await self._fresh() for _ in range(count)]
        epochs |= dict.fromkeys(fresh, 1)
        await self.look()
        home = known[0] if not homeless else fresh[0] if fresh else -1
        return Joined(kept + fresh, home, replaced, epochs)

    async def _identity_of_cluster(self) -> str:
        """Whoever comes first chooses it."""
        while True:
            try:
                return str(packing.unpack((await self._bucket.get(IDENTITY)).value or b""))
            except NotThere:
                try:
                    await self._bucket.create(IDENTITY, packing.pack(token_hex(8)))
                except WrongSequence:  # another one has chosen it at the same time
                    await asyncio.sleep(ROUND_S / 5)

    def _identity(self) -> tuple[str, bool]:
        """The instance; and whether it is one of an earlier start."""
        path = self._folder / FOLDER / FILE
        try:
            found = json.loads(path.read_bytes())
            cluster, instance = str(found["cluster"]), str(found["instance"])
        except FileNotFoundError:
            instance = token_hex(8)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, json.dumps({"cluster": self._cluster, "instance": instance}).encode(), 0o600)
            return instance, False
        except (ValueError, KeyError, TypeError):
            raise NotAdmitted(f"{path}: cannot be read; bring it back, or begin with an empty folder") from None
        if cluster != self._cluster:
            raise NotAdmitted(
                f"{self._folder} is of the cluster {cluster!r}, not of {self._cluster!r}; correct cluster.name, or name"
                " another server.folder"
            )
        return instance, True

    async def _enter(self) -> None:
        """Takes the node's name, if no other instance that lives has it."""
        key = NODE + self.node
        data = packing.pack({"instance": self.instance, "run": self._run, "grace_s": JOIN_S})
        while True:
            try:
                found = await self._bucket.get(key)
            except NotThere:
                revision = 0
            else:
                revision = found.revision
                other = packing.unpack(found.value or b"")
                if other["instance"] != self.instance:
                    await self._wait_for_silence(key, found.revision, other.get("grace_s", 0.0))
            try:
                self._revision = await self._bucket.update(key, data, revision)
                return
            except WrongSequence:
                await asyncio.sleep(ROUND_S)

    async def _wait_for_silence(self, key: str, revision: int, grace_s: float) -> None:
        seconds = max(self._dead_after_s, grace_s)
        print(
            f"zonemta: the cluster knows a node {self.node!r} with another folder; waiting for {seconds:.0f} s, whether"
            " it lives", file=sys.stderr, flush=True,
        )  # fmt: skip
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(ROUND_S)
            if (await self._bucket.get(key)).revision != revision:
                raise NotAdmitted(
                    f"another machine, or another folder, is the node {self.node!r} of cluster {self._cluster!r} just"
                    " now; give this one another cluster.node"
                )

    async def _claim(self, number: int, before: bool) -> int | None:
        """The epoch of a queue whose files this node has; None: another has taken it over."""
        key = f"{QUEUE}{number}"
        while True:
            try:
                found = await self._bucket.get(key)
            except NotThere:
                try:
                    await self._bucket.create(key, packing.pack([self.node, self.instance, 1]))
                    return 1
                except WrongSequence:
                    await asyncio.sleep(ROUND_S)
                    continue
            owner = Owner(*packing.unpack(found.value or b""))
            if owner.instance == self.instance and owner.node == self.node:
                return int(owner.epoch)
            if owner.instance in (self.instance, "") and before:  # under another name; or released, and nobody's yet
                with suppress(WrongSequence):
                    await self._bucket.update(
                        key, packing.pack([self.node, self.instance, owner.epoch + 1]), found.revision
                    )
                    return int(owner.epoch) + 1
                continue
            if not before:
                raise NotAdmitted(
                    f"{self._folder} has a queue {number}, and the cluster {self._cluster!r} has one of that number on"
                    f" node {owner.node!r}; let this folder's mail end outside of the cluster first, or name an empty"
                    " server.folder"
                )
            return None

    async def _fresh(self) -> int:
        """A number that no queue has had, as long as there are such; then one that none has."""
        while True:
            try:
                found = await self._bucket.get(NUMBERS)
                last, revision = int(packing.unpack(found.value or b"")), found.revision
            except NotThere:
                last, revision = 0, 0
            taken = {one.key for one in await self._bucket.all() if one.value is not None}
            after = [*range(last + 1, MOST + 1), *range(1, last + 1)]
            number = next((one for one in after if f"{QUEUE}{one}" not in taken), None)
            if number is None:
                raise NotAdmitted(f"the cluster has {MOST} queues, and there are no more numbers; drain some")
            try:
                await self._bucket.update(NUMBERS, packing.pack(number), revision)
                await self._bucket.create(f"{QUEUE}{number}", packing.pack([self.node, self.instance, 1]))
                return int(number)
            except WrongSequence:  # another one has begun at the same time
                await asyncio.sleep(ROUND_S / 5)

    # -- signs of life

    async def beat(self, facts: dict[str, Any]) -> None:
        """Once a second (BEAT_S). facts: what others are to know; grace_s among it: how long this node is going to be
        silent, and not dead. Raises NotAdmitted if another instance has taken the node's name, NatsError."""
        data = packing.pack({**facts, "instance": self.instance, "run": self._run})
        key = NODE + self.node
        try:
            self._revision = await self._bucket.update(key, data, self._revision, BEAT_TIMEOUT_S)
        except WrongSequence:  # an earlier one came late, or another has begun
            found = await self._bucket.get(key, BEAT_TIMEOUT_S)
            if packing.unpack(found.value or b"").get("run") != self._run:
                raise NotAdmitted(
                    f"another machine, or a copy of this folder, has become the node {self.node!r} of cluster"
                    f" {self._cluster!r}; stop one of them"
                ) from None
            self._revision = await self._bucket.update(key, data, found.revision, BEAT_TIMEOUT_S)
        self._presence.acknowledged(time.monotonic())

    # -- what is there

    async def run(self, died: Callable[[str, list[int]], None]) -> None:
        """For ever. died: hears of a node that is dead, and those of its queues that this node is to take over: at
        first those that fall to it (`heir`), then also those that nobody took within the time it takes to be dead; and
        again after such a time, as long as they are not taken."""
        well = True
        while True:
            try:
                await self.look()
                if not well:
                    log.warning("the cluster's nodes can be seen again")
                well = True
                for node, queues in self._due(time.monotonic()).items():
                    died(node, queues)
            except NatsError as error:
                if well:
                    log.warning("the cluster's nodes cannot be seen: %s; trying again", error)
                well = False
            await asyncio.sleep(ROUND_S)

    async def look(self) -> None:
        """Reads the bucket. Raises NatsError."""
        own = self._revision
        entries = await self._bucket.all(self._dead_after_s)
        now = time.monotonic()
        for entry in entries:
            self._take(entry, now)
        if any(entry.key == NODE + self.node and entry.revision >= own for entry in entries):
            self._presence.looked(now)

    def _take(self, entry: KeyEntry, now: float) -> None:
        """An older one than is known, of a replica that is behind, says nothing."""
        if entry.key.startswith(NODE):
            self._take_node(entry.key.removeprefix(NODE), entry, now)
        elif entry.key.startswith(QUEUE):
            number = int(entry.key.removeprefix(QUEUE))
            known = max(self._owners[number][1] if number in self._owners else 0, self._dropped.get(entry.key, 0))
            if entry.revision <= known:
                return
            if entry.value is None:
                self._owners.pop(number, None)
                self._dropped[entry.key] = entry.revision
            else:
                self._owners[number] = Owner(*packing.unpack(entry.value)), entry.revision

    def _take_node(self, name: str, entry: KeyEntry, now: float) -> None:
        known = max(self._nodes[name].revision if name in self._nodes else 0, self._dropped.get(entry.key, 0))
        if entry.revision <= known:
            return
        if entry.value is None:
            self._nodes.pop(name, None)
            self._presence.forget(name)
            self._dropped[entry.key] = entry.revision
            return
        facts = packing.unpack(entry.value)
        facts.pop("run", None)
        self._nodes[name] = _NodeEntry(facts.pop("instance"), facts, entry.revision, now)
        self._presence.seen(name, entry.revision, float(facts.get("grace_s", 0.0)), now)

    def owners(self) -> dict[int, Owner]:
        """By the queue's number."""
        return {number: owner for number, (owner, _) in sorted(self._owners.items())}

    def others(self) -> list[str]:
        """Names of other nodes that queues belong to."""
        return sorted({owner.node for owner, _ in self._owners.values() if owner.instance and owner.node != self.node})

    def nodes(self) -> dict[str, NodeFacts]:
        """By name."""
        now = time.monotonic()
        return {
            name: NodeFacts(name, one.instance, one.facts, not self._is_gone(name, now), now - one.seen_at)
            for name, one in sorted(self._nodes.items())
        }

    def _is_gone(self, name: str, now: float) -> bool:
        return name != self.node and self._presence.is_dead(name, now)

    def _has_died(self, owner: Owner, now: float) -> bool:
        if owner.instance == self.instance:
            return False
        if not owner.instance:  # released
            return self._presence.is_well(now)
        node = self._nodes.get(owner.node)
        if node is not None and node.instance != owner.instance:
            return self._presence.is_well(now)
        return self._is_gone(owner.node, now)

    def _due(self, now: float) -> dict[str, list[int]]:
        """What to tell now: queues by the node that they belonged to."""
        found = dict[str, list[int]]()
        for number, (owner, _) in sorted(self._owners.items()):
            if not self._has_died(owner, now) or (not owner.instance and owner.node == self.node):
                self._orphans.pop(number, None)
                self._told.pop(number, None)
                continue
            since = self._orphans.setdefault(number, now)
            falls_here = (
                self.heir(number, "" if owner.instance else owner.node) == self.node or now - since > self._dead_after_s
            )
            if falls_here and now - self._told.get(number, float("-inf")) > self._dead_after_s:
                self._told[number] = now
                found.setdefault(owner.node, []).append(number)
        return found

    def heir(self, queue: int, of: str) -> str:
        """The node that a queue falls to, of those that live, but for `of`, which has released it; all that see the
        same nodes say the same."""
        alive = [name for name, one in self.nodes().items() if one.is_alive and name != of]
        return max(alive or [self.node], key=lambda name: hashlib.sha256(f"{queue} {name}".encode()).digest())

    # -- taking over

    async def take(self, queue: int) -> int | None:
        """The new epoch: the queue is this node's from now on. None: it is not dead, or another was quicker. Raises
        NatsError."""
        key = f"{QUEUE}{queue}"
        try:
            entry = await self._bucket.get(key)
        except NotThere:
            return None
        self._take(entry, time.monotonic())
        owner = Owner(*packing.unpack(entry.value or b""))
        if owner.instance == self.instance:
            return int(owner.epoch)
        if not self._has_died(owner, time.monotonic()):
            return None
        own = Owner(self.node, self.instance, owner.epoch + 1)
        try:
            revision = await self._bucket.update(key, packing.pack(list(own)), entry.revision)
        except WrongSequence:
            return None
        self._owners[queue] = own, revision
        self._orphans.pop(queue, None)
        return own.epoch

    async def fresh(self) -> int:
        """One more queue of this node's: its number. Raises NotAdmitted, NatsError."""
        number = await self._fresh()
        await self.look()
        return number

    async def release(self, queues: Iterable[int]) -> None:
        """Queues of this node's that are nobody's from now on, until another takes them over. Raises NatsError."""
        for number in queues:
            await self._give(number, self.node, "")

    async def give(self, queue: int, node: str) -> int | None:
        """The epoch from which it is that node's; None: it is not this node's to give, or there is no such node.
        Raises NatsError."""
        to = self._nodes.get(node)
        return await self._give(queue, node, to.instance) if to is not None else None

    async def _give(self, queue: int, node: str, instance: str) -> int | None:
        key = f"{QUEUE}{queue}"
        entry = await self._bucket.get(key)
        owner = Owner(*packing.unpack(entry.value or b""))
        if owner.instance != self.instance:
            return None
        to = Owner(node, instance, owner.epoch + 1)
        try:
            revision = await self._bucket.update(key, packing.pack(list(to)), entry.revision)
        except WrongSequence:
            return None
        self._owners[queue] = to, revision
        return to.epoch

    async def give_up(self, queues: Iterable[int]) -> None:
        """Queues of this node's that are no more, with their logs. Raises NatsError."""
        for number in queues:
            key = f"{QUEUE}{number}"
            try:
                entry = await self._bucket.get(key)
                if Owner(*packing.unpack(entry.value or b"")).instance == self.instance:
                    await self._bucket.delete(key, entry.revision)
                    await self._nats.delete_stream(stream_of(self._cluster, number))
            except (NotThere, WrongSequence):
                continue
        await self.look()
