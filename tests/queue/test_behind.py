"""What goes on behind an answer, and is ended with its queue."""

from __future__ import annotations

import asyncio

import pytest

from zonemta_py.schedule.time.pace import behind


async def test_what_is_cancelled_before_its_first_step_was_never_made() -> None:
    made = list[str]()

    async def work() -> str:
        made.append("it")
        return "done"

    task = asyncio.ensure_future(behind(work, 0.0))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made == []
    assert await behind(work, 0.0) == "done"
