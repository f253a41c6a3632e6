"""The end of a queue in a process that goes on."""

import asyncio
import os
import threading
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import StoreDamaged
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.core.commit import Inline
from zonemta_py.queue.recovery.start import open_queue


def held(folder: Path) -> set[str]:
    """Files below the folder that this process has open."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return {target for target in targets if target.startswith(str(folder))}


async def test_a_closed_queue_leaves_no_thread_and_no_file(memory: Path) -> None:
    """After all that makes it open one: the store, the journal, the receipts, a body with a file of its own."""
    before = set(threading.enumerate())
    queue = await open_queue(Config.model_validate({"server": {"folder": memory}, "queue": {"reserve_bytes": 0}}))
    queue.start()
    await queue.accept(Envelope("ann@src.test", [Recipient("bob@x.test")], 1), b"x")
    incoming = queue.begin()
    for _ in range(20):
        await incoming.write(bytes(CHUNK_BYTES))
    await incoming.accept(Envelope("ann@src.test", [Recipient("bob@x.test")], 20 * CHUNK_BYTES), b"")
    await queue.core.disk.journal.stable()
    assert {"store", "journal", "receipts"} <= {Path(path).parent.name for path in held(memory)}
    assert set(threading.enumerate()) - before
    queue.close()
    assert held(memory) == set()
    assert set(threading.enumerate()) <= before, "others may have ended"


async def test_what_still_waits_when_a_queue_is_closed_is_no_damage(memory: Path) -> None:
    """Its turn comes when the store is closed already, as in `fsck --repair`, where that was once taken for damage."""
    found: list[StoreDamaged] = []
    config = Config.model_validate({"server": {"folder": memory}, "queue": {"reserve_bytes": 0}})
    queue = await open_queue(config, hire=Inline)
    await queue.accept(Envelope("ann@src.test", [Recipient("bob@x.test")], 1), b"x")
    queue.close()
    queue = await open_queue(config, damaged=found.append, hire=Inline)
    queue.core.changed()  # the schedule has not read yet
    queue.core.disk.lines.submit([(b"probe", b"x")], lambda _: None, sync=False, keep=True)
    queue.core.disk.lines.flush()
    queue.close()
    await asyncio.sleep(0.6)  # a store that cannot be written is tried again after half a second
    assert found == []
    assert held(memory) == set()
