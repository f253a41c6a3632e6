"""A backup of a running queue: equal to what a SIGKILL at one instant would leave, so that recovery can open it.

Both disk threads pause between two jobs while it is made, for as long as copying the store's log and the journal's open
segment (some MB) takes: all other files never change once written, and are hard-linked. It is made inside the queue's
folder, since links need the same file system; the caller moves it from there. Its `identity` marks it as a copy, so
that it sends nothing until it is adopted.

Failures: OSError, also if LevelDB keeps changing the store meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from zonemta_py.disk import attachments, identity
from zonemta_py.queue.api import ORDERS_NOTE
from zonemta_py.queue.core.commit import Worker
from zonemta_py.queue.core.core import Core

MAKING = "backup.making"
TRIES = 50
_LINKED = ("archive", "bodies", attachments.FOLDER)
_COPIED = ("receipts",)


async def make(core: Core) -> Path:
    """The folder of the copy. Raises OSError."""
    folder = core.config.folder
    target = folder / MAKING
    await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
    held = [_held(line._worker) for line in (core.disk.lines, core.disk.journal)]
    try:
        for reached, _ in held:
            await reached
        await asyncio.to_thread(_make, folder, target)
    finally:
        for _, release in held:
            release()
    return target


def _held(worker: Worker) -> tuple[asyncio.Future[None], Callable[[], None]]:
    """A future that is done when the thread pauses, and the function that resumes it."""
    loop, go = asyncio.get_running_loop(), threading.Event()
    reached: asyncio.Future[None] = loop.create_future()

    def stand() -> None:
        loop.call_soon_threadsafe(reached.set_result, None)
        go.wait()

    worker.run(stand, lambda _: None)
    return reached, go.set


def _make(folder: Path, target: Path) -> None:
    target.mkdir(mode=0o700)
    _take_store(folder / "store", target / "store")
    (target / "journal").mkdir()
    for path in (folder / "journal").glob("*.journal"):
        # Closed segments are in the archive; the open one grows.
        (_link if path.stat().st_nlink > 1 else shutil.copy2)(path, target / "journal" / path.name)
    for names, take in ((_LINKED, _link), (_COPIED, shutil.copy2)):
        for name in names:
            if (folder / name).is_dir():
                (target / name).mkdir()
                for path in (folder / name).iterdir():
                    take(path, target / name / path.name)
    for name in (identity.NAME, ORDERS_NOTE):
        if (folder / name).exists():
            shutil.copy2(folder / name, target / name)


def _link(source: Path, target: Path) -> None:
    """A body may have been deleted just now: its message has ended, and the store has no key of it."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return


def _take_store(store: Path, target: Path) -> None:
    for _ in range(TRIES):
        before = _listed(store)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            for name, _ in before:
                (_hard if name.endswith((".ldb", ".sst")) else shutil.copy2)(store / name, target / name)
        except FileNotFoundError:
            continue  # LevelDB was compacting
        if _listed(store) == before:
            return
    raise OSError(f"{store}: LevelDB is changing its files without a pause; try again")


def _hard(source: Path, target: Path) -> None:
    os.link(source, target)


def _listed(store: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in store.iterdir() if path.name not in ("LOCK", "LOG"))
