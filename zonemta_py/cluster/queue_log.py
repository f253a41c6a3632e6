"""What the process of a queue does before it opens its files, on a node of a cluster: it opens the queue's log, fences
it, and lets both agree.

Failures: as long as NATS cannot be reached, or the disk fails, it tries again and says so. A queue that belongs to
another node ends its process (`log.stop`).
"""

from __future__ import annotations

import asyncio

from zonemta_py.cluster.catch_up import catch_up
from zonemta_py.cluster.log import Replaced, ReplicatedLog, stop
from zonemta_py.cluster.nats import Nats, NatsError, NotThere
from zonemta_py.cluster.nodes import BUCKET, QUEUE, Owner
from zonemta_py.cluster.stream import NotReached
from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.packing import unpack
from zonemta_py.logs.causes import cause
from zonemta_py.queue.recovery.open_store import say

AGAIN_S = 1.0


async def opened(config: Config) -> ReplicatedLog:
    """Of the queue of that configuration; its disks have what the log has."""
    number = config.queue_number
    while True:
        nats: Nats | None = None
        log: ReplicatedLog | None = None
        try:
            node = config.node
            nats = await Nats.connect(config.cluster, f"{node}: queue {number}")
            log = await ReplicatedLog.open(nats, config.cluster.name, number, await _epoch(nats, number, node), node)
            await catch_up(config, log)
            return log
        except Replaced as error:
            stop(error)
        except (NatsError, NotReached, StoreError, OSError) as error:
            why = cause(error) if isinstance(error, OSError) else str(error)
            say(f"the log of queue {number} cannot be opened: {why}; trying again")
        if log is not None:
            log.close()
        if nats is not None:
            await nats.close()
        await asyncio.sleep(AGAIN_S)


async def _epoch(nats: Nats, number: int, node: str) -> int:
    """Of this node as the queue's owner. Raises Replaced: another one is; NotReached, NatsError."""
    try:
        found = Owner(*unpack((await nats.bucket(BUCKET).get(f"{QUEUE}{number}")).value or b""))
    except NotThere:
        raise NotReached("this node has not joined the cluster with it yet") from None
    if found.node != node:
        raise Replaced(f"queue {number} is {found.node}'s now, which goes on with its mail; this one ends")
    return found.epoch
