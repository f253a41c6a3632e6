"""Questions about the configuration, and orders to the supervisor (`queue/questions/`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from zonemta_py.config.senders import Rights, rights
from zonemta_py.metrics.connections import CONNECTIONS
from zonemta_py.queue import questions
from zonemta_py.queue.api import Supervising
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused
from zonemta_py.queue.reload import history

ANSWERS = AnswerTable[QueueContext]()


@ANSWERS.to(questions.reload)
async def _reload(queue: QueueContext, check: bool = False, by: str = "") -> dict[str, Any]:
    queue.remarks = []
    found: dict[str, Any] = await _supervisor(queue).ask("reload", check=bool(check), by=str(by))
    number = queue.configuration
    if number and not check and found["generation"] > queue.generation:  # this process ends, the next one notes it
        number += 1
    return found | {"number": number, "remarks": queue.remarks}


@ANSWERS.to(questions.drain)
async def _drain(
    queue: QueueContext, for_s: float = 0.0, by: str = "", cancel: bool = False, to_cluster: bool = False
) -> dict[str, Any]:
    if not 0 <= float(for_s) < 1e6:
        raise Refused(f"a drain cannot take {for_s} seconds; give it 0 to 1,000,000")
    if to_cluster and not queue.core.config.cluster.enabled:
        raise Refused(
            "this MTA is no node of a cluster, so there is no other node for its mail; leave out --to-cluster"
        )
    said = {"for_s": float(for_s), "by": str(by), "cancel": bool(cancel), "to_cluster": bool(to_cluster)}
    found: dict[str, Any] = await _supervisor(queue).ask("drain", **said)
    queue.ends_at = None if cancel else asyncio.get_running_loop().time() + float(for_s)
    return found


@ANSWERS.to(questions.generation)
async def _generation(queue: QueueContext) -> dict[str, Any]:
    return {"generation": queue.generation, "number": queue.configuration}


@ANSWERS.to(questions.rights)
async def _rights(queue: QueueContext) -> Rights:
    return rights(queue.core.config)


@ANSWERS.to(questions.draining)
async def _draining(queue: QueueContext) -> dict[str, Any]:
    out = [lease for lease in queue.leases.out.values() if not lease.until_s]  # a reservation outlives a restart
    deliveries = Counter(lease.worker.rpartition("-")[0] for lease in out)
    opened = Counter[str]()
    for one in CONNECTIONS.rows():
        opened[one.process] += one.connections
    left_s = None if queue.ends_at is None else max(0.0, queue.ends_at - asyncio.get_running_loop().time())
    return {
        "leases": len(out),
        "recipients": sum(len(lease.open) for lease in out),
        "connections": opened.total(),
        "processes": [
            {"process": name, "deliveries": deliveries[name], "connections": opened[name]}
            for name in sorted({*deliveries, *+opened})
        ],
        "ending": queue.core.stopping,
        "left_s": left_s,
    }


@ANSWERS.to(questions.configurations)
async def _configurations(queue: QueueContext) -> list[dict[str, Any]]:
    return await asyncio.to_thread(history.rows, queue.core.config.folder)


def _supervisor(queue: QueueContext) -> Supervising:
    if queue.supervisor is None:
        raise Refused("this queue was not started by `zonemta run`, which alone can do that")
    return queue.supervisor
