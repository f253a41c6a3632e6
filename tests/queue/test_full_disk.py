"""A disk that is full while the store has work to do: what that leaves behind is no reason to stand still."""

import asyncio
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.space import free_bytes
from zonemta_py.metrics.quantities import size
from zonemta_py.queue.core import compaction

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
SIZE_MB = 48


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "zonemta-full", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


async def test_a_compaction_that_finds_no_room_keeps_none(
    house: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unfinished tables take what was left, so that the journal cannot take an answer; the next look frees it."""
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)  # in a large store no second compaction is to be
    home = await house()
    noise = random.Random(7)
    for number in range(240):
        await home.put(f"r{number}@x{number}.test", body=noise.randbytes(60_000))
    deliveries = [delivery for _ in range(99) for delivery in await home.lease()]
    for delivery in deliveries[:50]:
        await home.settle(delivery)
    await home.rest()
    with (folder / "ballast").open("wb") as ballast:
        ballast.write(bytes(free_bytes(folder) - 2 * 1024 * 1024))
    await home.move(100)
    await home.queue.maintenance.cleanse()
    settling = asyncio.gather(*map(home.settle, deliveries[50:]))
    while home.queue.core.disk.journal.trouble is None:
        assert not (await asyncio.wait([settling], timeout=0.1))[0]
    assert not settling.done()
    for _ in range(120):
        await home.queue.maintenance.cleanse()
        if (await asyncio.wait([settling], timeout=0.5))[0]:
            break
    assert settling.done()
    assert free_bytes(folder) > 1024 * 1024


async def test_the_log_says_when_it_begins_and_when_it_is_over(
    house: Callable[..., Any], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once each, with how much has to be free."""
    home = await house()
    (folder / "ballast").write_bytes(bytes(free_bytes(folder) - 2 * 1024 * 1024))
    for _ in range(2):
        await home.move(10)
        await home.queue.maintenance.cleanse()
    (folder / "ballast").unlink()
    for _ in range(2):
        await home.move(10)
        await home.queue.maintenance.cleanse()
    said = [record.getMessage().removeprefix(f"{home.queue.core.config.folder}: ") for record in caplog.records]
    least = size(home.queue.core.disk.space.reserve)
    assert [line for line in said if "free" in line] == [
        f"less than {least} are free (queue.reserve_bytes); mail is refused with 452 until they are",
        "there is free space again, and mail is accepted",
    ]
