"""The store's line when the disk fails: what was written and not yet synced, and what a failed batch leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from zonemta_py.disk.leveldb.store import Operation, Store, StoreFailed
from zonemta_py.disk.leveldb.trouble import DISK_ERROR
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import commit
from zonemta_py.queue.core.commit import StoreLine

PATIENCE_S = 60


class Disk:
    """A store whose syncs can fail: then all that was not synced is lost or, with `leaves`, there all the same."""

    def __init__(self) -> None:
        self.stable: dict[bytes, bytes] = {}
        self.cache: dict[bytes, bytes] = {}
        self.fails = self.leaves = False
        self.folder = Path("store")

    def write(self, operations: Iterable[Operation], sync: bool) -> None:
        before = dict(self.cache)
        for key, value in operations:
            if value is None:
                self.cache.pop(key, None)
            else:
                self.cache[key] = value
        if sync and self.fails:
            self.fails = False
            self.cache = self.stable = self.cache if self.leaves else dict(self.stable)
            raise StoreFailed(f"IO error, {len(before)} keys before")
        if sync:
            self.stable = dict(self.cache)

    def reopen(self) -> None:
        self.cache = dict(self.stable)


class Nothing:
    """Closes batches with nothing."""

    batches = 0

    def first(self) -> list[Operation]:
        return []

    def changes(self) -> list[Operation]:
        return []

    def again(self) -> None:
        return


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def line(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> StoreLine:
    monkeypatch.setattr(commit, "RETRY_S", 0.01)
    return StoreLine(cast(Store, disk), Nothing(), lambda error: None)


async def written(line: StoreLine, operations: list[Operation], *, sync: bool, keep: bool) -> Reply | None:
    future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    line.submit(operations, future.set_result, sync=sync, keep=keep)
    line.flush()
    async with asyncio.timeout(PATIENCE_S):
        return await future


async def test_a_failing_sync_loses_nothing_written_before_it(disk: Disk, line: StoreLine) -> None:
    """Results that the store had taken, unsynced, are written again, in their order."""
    assert await written(line, [(b"a", b"1"), (b"b", b"1")], sync=False, keep=True) is None
    assert await written(line, [(b"a", None), (b"b", b"2")], sync=False, keep=True) is None
    disk.fails = True
    assert await written(line, [(b"mail", b"x")], sync=True, keep=False) == DISK_ERROR
    await line.stable()
    assert disk.stable == {b"b": b"2"}


async def test_refused_mail_does_not_stay(disk: Disk, line: StoreLine) -> None:
    """A batch that failed may be on the disk all the same: its mail was refused, so its keys are deleted."""
    disk.fails = disk.leaves = True
    assert await written(line, [(b"mail", b"x")], sync=True, keep=False) == DISK_ERROR
    await line.stable()
    assert disk.stable == {}


async def test_a_lot_of_unsynced_work_is_synced(disk: Disk, line: StoreLine) -> None:
    """What is kept in memory for the case is bounded."""
    for number in range(3):
        await written(line, [(b"%d" % number, bytes(commit.UNSYNCED_BYTES_MAX // 2))], sync=False, keep=True)
    await written(line, [(b"last", b"")], sync=False, keep=True)
    assert set(disk.stable) == {b"0", b"1", b"2"}
