"""Mail for tests that is put in by the dozen, and delivered as fast as it may go."""

import asyncio
from typing import Any

from zonemta_py.queue.api import Delivery


async def drain(home: Any) -> list[Delivery]:
    """Delivers whatever may go now."""
    done: list[Delivery] = []
    while batch := await home.leases():
        for delivery in batch:
            await home.settle(delivery, opened=delivery.may_connect)
        done += batch
    return done


async def put_all(home: Any, count: int, domain: str = "x.test", **more: Any) -> None:
    await asyncio.gather(*(home.put(f"r{number}@{domain}", **more) for number in range(count)))
