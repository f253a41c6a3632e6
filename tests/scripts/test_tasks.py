"""scripts/trials/tasks in short: the queue's process is killed while tasks run; an order about many is quick."""

from pathlib import Path

from survival import tasks


async def test_each_task_ends_as_ordered_wherever_it_was_killed(tmp_path: Path) -> None:
    figures = await tasks.kills(tmp_path / "queue", recipients=400, kills=6, seed=7)
    assert figures["broken"] == []
    assert figures["tasks"] > 3


async def test_what_is_deleted_is_not_sent_however_much_it_is(tmp_path: Path) -> None:
    figures = await tasks.speed(tmp_path / "queue", recipients=5_000)
    assert figures["broken"] == []
    assert figures["deleted"] == 1_500
