"""The versions of what all nodes must have alike, in a bucket of JetStream: the newest ones under one key, changed by
compare-and-set, so that of two nodes that change something at once one is told of the other.

Before a configuration holds on a node it is compared with them (`declare`): it is as the newest, or becomes the next
one, or is refused (ValueError), or the node is behind. Failures: NatsError.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from zonemta_py.cluster import agreed
from zonemta_py.cluster.agreed import AgreedState, Version
from zonemta_py.cluster.nats import Nats, NotThere, WrongSequence
from zonemta_py.config import Config

BUCKET, KEY = "versions", "newest"
KEPT = 20


class Versions:
    """nats: connected."""

    def __init__(self, nats: Nats) -> None:
        self._bucket = nats.bucket(BUCKET)
        self.stream = self._bucket.stream

    async def make(self) -> None:
        await self._bucket.make()

    async def all(self) -> list[Version]:
        """The oldest first. Raises NatsError."""
        return (await self._read())[0]

    async def _read(self) -> tuple[list[Version], int]:
        try:
            found = await self._bucket.get(KEY)
        except NotThere:
            return [], 0
        return [Version(*row) for row in json.loads(found.value or b"[]")], found.revision

    async def declare(
        self, config: Config, by: str, others: list[str], lacking: list[str], check: bool = False, starts: bool = False
    ) -> AgreedState:
        """This node is to have that configuration. check: only says whether it may. starts: a node that is behind may
        start. Raises ValueError, a sentence a line; NatsError, OSError."""
        own, before = agreed.values_of(config), agreed.noted(config.folder)
        while True:
            found, revision = await self._read()
            newest = found[-1] if found else None
            verdict = agreed.judged(own, before.had, newest)
            if newest is not None and verdict != agreed.AGREES:
                self._refuse(own, before, newest, verdict, others, lacking, starts)
            number = newest.number if newest is not None else 0
            values = newest.values if newest is not None else {}
            if verdict == agreed.NEWER:
                number, values = number + 1, agreed.joined(own, values)
                found.append(Version(number, config.node, by, time.time_ns() // 1_000_000, values))
                if not check:
                    try:
                        await self._bucket.update(KEY, json.dumps(found[-KEPT:]).encode(), revision)
                    except WrongSequence:  # another node was quicker
                        continue
            state = AgreedState(number, before.had if verdict == agreed.BEHIND else number, own, values)
            if not check:
                agreed.note(config.folder, state)
            return state

    @staticmethod
    def _refuse(
        own: dict[str, Any], before: AgreedState, newest: Version, verdict: str, others: list[str], lacking: list[str],
        starts: bool,
    ) -> None:  # fmt: skip
        faults = agreed.forbidden(own, newest.values, others, lacking)
        if verdict == agreed.BEHIND:
            faults = [one for one in faults if "format" in one.split(",")[0]]
            if not starts and before.own and own != before.own:
                keys = ", ".join(one.key for one in agreed.differing(own, newest.values)[:5])
                faults.append(
                    f"this node has not had version {newest.number} of the cluster's configuration (of node"
                    f" {newest.node}), and {keys} would differ from it; take that over first: `zonemta cluster config"
                    " --diff` shows it"
                )
        if faults:
            raise ValueError("\n".join(faults))

    async def look(self, folder: Path) -> AgreedState | None:
        """What is new since this node has noted something; None: nothing is. folder: the node's. Raises NatsError,
        OSError."""
        found = await self.all()
        return agreed.see(folder, found[-1]) if found else None


def sentence(node: str, state: AgreedState) -> str:
    """Of a node that is behind."""
    keys = [one.key for one in state.differs]
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return (
        f"the configuration of node {node} is older than version {state.number} of the cluster's: {', '.join(keys[:5])}"
        f"{more} differ, and of each limit the stricter holds here; `zonemta cluster config --diff {node}` shows both"
    )


async def declared(
    nats: Nats, config: Config, by: str, others: list[str], check: bool = False, starts: bool = False
) -> AgreedState:
    """As of `Versions.declare`. Raises ValueError, NatsError, OSError."""
    versions = Versions(nats)
    await versions.make()
    lacking = await nats.lacking(versions.stream)
    return await versions.declare(config, by, others, lacking, check, starts)
