"""A task is in effect at once for whoever looks, however long its sweep takes."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import ended
from zonemta_py.queue.tasks.sweep import WAIT, TaskSweep

COUNT = 3_000


@pytest.fixture
async def swept(house: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A queue with waiting mail of two campaigns; sweeps wait until `go` is set."""
    home = await house(queue={"window": 100})
    home.go = False
    run = TaskSweep.run

    def late(sweep: TaskSweep) -> Iterator[int]:
        while not home.go:
            yield WAIT
        yield from run(sweep)

    monkeypatch.setattr(TaskSweep, "run", late)
    for campaign in ("c", "d"):
        for part in range(COUNT // 1_000):
            addresses = [f"r{part}-{number}@{campaign}.test" for number in range(1_000)]
            await home.put(*addresses, campaign=campaign, hold_until_ms=(home.clock.ms() + 10**9) * (part % 2))
    await home.rest()
    return home


@pytest.mark.parametrize("undo_s", [0, 600])
async def test_what_is_deleted_is_not_listed(swept: Any, undo_s: int) -> None:
    """Nor explained as waiting, nor in the preview of another task; it is listed as deleted, before and after."""
    row = await swept.queue.ask("task", verb="delete", where={"campaign": "c"}, undo_s=undo_s)
    for _ in range(2):
        listed = await swept.listed()
        assert len(listed) == COUNT
        assert {one["campaign"] for one in listed} == {"d"}
        assert await swept.listed(campaign="c") == []
        assert await swept.listed(campaign="c", state=["queued", "deferred", "held"]) == []
        deleted = await swept.listed(state="deleted")
        assert len(deleted) == (COUNT if undo_s or not swept.go else 0)
        assert all(f"task {row['id']} " in one["cause"] for one in deleted)
        preview = await swept.queue.ask("task-preview", verb="hold", where={"all": True})
        assert (await ended(swept, preview))["count"] == COUNT
        if not swept.go:
            answer = await swept.queue.ask("explain", what="r0-1@c.test")
            assert "deletes it" in str(answer)
            assert "'queued'" not in str(answer)
        swept.go = True
        await ended(swept, row)


async def test_what_is_held_is_listed_as_held(swept: Any) -> None:
    """Before and after."""
    row = await swept.queue.ask("task", verb="hold", where={"campaign": "c"})
    for _ in range(2):
        assert {one["campaign"] for one in await swept.listed(state=["queued", "deferred"])} == {"d"}
        assert len(await swept.listed(state="held")) == COUNT
        swept.go = True
        await ended(swept, row)
