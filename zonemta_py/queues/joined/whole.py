"""What the MTA as a whole is: whether it is ready, how far a reload or its end is, whether it is a copy."""

from __future__ import annotations

from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queues.joined.asked import AskedQueues


async def ready(queues: AskedQueues) -> list[str]:
    """It should get mail while one queue takes it: mail of the others goes there, or is tried again."""
    found = await queues.each(questions.ready, {})
    if not all(found.values()):
        return []
    if len({tuple(said) for said in found.values()}) == 1:
        return list(next(iter(found.values())))
    return [f"queue {number}: {one}" for number, said in found.items() for one in said]


async def generation(queues: AskedQueues) -> dict[str, Any]:
    """That which all have come to."""
    found = (await queues.each(questions.generation, {})).values()
    return dict(min(found, key=lambda one: one["generation"]))


async def draining(queues: AskedQueues) -> dict[str, Any]:
    """Deliveries of each process are its queue's; connections of clients, which all queues see, are counted once."""
    found, processes = list((await queues.each(questions.draining, {})).values()), dict[str, dict[str, Any]]()
    for row in (row for one in found for row in one["processes"]):
        known = processes.get(row["process"], {"process": row["process"], "deliveries": 0, "connections": 0})
        processes[row["process"]] = known | {
            "deliveries": known["deliveries"] + row["deliveries"],
            "connections": max(known["connections"], row["connections"]),
        }
    lefts = [one["left_s"] for one in found if one["left_s"] is not None]
    return {
        "leases": sum(one["leases"] for one in found),
        "recipients": sum(one["recipients"] for one in found),
        "connections": sum(row["connections"] for row in processes.values()),
        "processes": [row for _, row in sorted(processes.items())],
        "ending": any(one["ending"] for one in found),
        "left_s": max(lefts) if lefts else None,
    }


async def copied(queues: AskedQueues) -> str:
    found = (await queues.each(questions.copied, {})).values()
    return next((one for one in found if one), "")


async def adopt(queues: AskedQueues) -> Any:
    """All that are copies; told of the lowest."""
    return next(iter((await queues.each(questions.adopt, {})).values()))


async def rotate(queues: AskedQueues) -> dict[str, str]:
    found = (await queues.each(questions.rotate, {})).values()
    return {"closed": " ".join(one["closed"] for one in found if one["closed"])}


async def spooled(queues: AskedQueues, ids: list[str]) -> list[str]:
    found = (await queues.each(questions.spooled, {"ids": ids})).values()
    return sorted({one for there in found for one in there})


async def alone(queues: AskedQueues) -> dict[str, int]:
    found = (await queues.each(questions.alone, {})).values()
    return {name: sum(one[name] for one in found) for name in ("messages", "bytes")}
