"""Large bodies being received, stored, read and deleted: the queue's side of `disk.body_file`.

Threads wait for the disk, a few at once, so that neither the event loop nor other mail waits for a large body.
Uncommitted bytes are counted, per client and in total: a client that sends body after body without finishing any gets
452, and its remains are deleted when it disconnects.

The file of an ended message is deleted once the store's batch that says so is on stable storage: until then a power cut
could bring the message back, and it would need its body.

Failures: `Uncommitted.add` returns the reply. A file that cannot be deleted now is logged, and deleted at the next
start.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from zonemta_py.config.server import Queue
from zonemta_py.disk import body_file
from zonemta_py.disk.body_file import BodyDamaged
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreFailed, StoreUnreadable
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply

log = logging.getLogger(__name__)

TOO_MUCH_BEGUN = Reply(452, "4.3.1", "too much unfinished mail is being handed in, try again later")
DISK_SHORT = Reply(452, "4.3.1", "the queue's disk is nearly full, try again later")
_SHORT = (
    "a message was refused with 452: with it %d KB would be arriving, and %d KB are free above queue.reserve_bytes; "
    "large mail is refused until there is room"
)
THREADS = 4
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
T = TypeVar("T")


class Stored(NamedTuple):
    """A body file on stable storage: of which message, in how many chunks, the file's bytes."""

    id: str
    chunks: int
    bytes: int


class Uncommitted:
    """Bytes received but not acknowledged. free: bytes that mail may still fill."""

    def __init__(self, bounds: Queue, free: Callable[[], int]) -> None:
        self._free = free
        self.configure(bounds)
        self.total = self._lacked = 0
        self._clients: dict[str, int] = {}

    def configure(self, bounds: Queue) -> None:
        """Other bounds from now on."""
        self._most, self._most_per_client = bounds.arriving_bytes, bounds.arriving_bytes_per_client

    def add(self, client: str, size: int) -> Reply | None:
        """Counts them, or returns a refusal. In total they may fill half of the free space, so that other mail finds
        room."""
        here = self._clients.get(client, 0) + size
        if here > self._most_per_client or self.total + size > self._most:
            return TOO_MUCH_BEGUN
        if self.total + size > (free := self._free()):
            if not self._lacked:
                log.error(_SHORT, (self.total + size) >> 10, max(0, free) >> 10)
            self._lacked = max(self._lacked, self.total + size)
            return DISK_SHORT
        self._clients[client] = here
        self.total += size
        return None

    def short(self) -> bool:
        """Whether mail was refused for want of room that is not there yet. Says once that it is."""
        if self._lacked and self._free() >= self._lacked:
            self._lacked = 0
            log.warning("there is room again for large mail, and it is accepted")
        return bool(self._lacked)

    def release(self, client: str, size: int) -> None:
        """The bytes are acknowledged, or deleted."""
        if not size:
            return
        self.total -= size
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]


class Bodies:
    """The folder of bodies. `ended` is called for each message with a body file when its keys are being deleted."""

    def __init__(
        self, folder: Path, uncommitted: Uncommitted, after_sync: Callable[[Callable[[], None]], None]
    ) -> None:
        """Raises OSError if the folder cannot be made."""
        self.folder = folder / body_file.FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.found = body_file.ids(self.folder)
        """As found at the start, before any mail came."""
        self.uncommitted = uncommitted
        self._after_sync = after_sync
        self._threads = ThreadPoolExecutor(THREADS, "bodies")
        self.ending: set[str] = set()
        """Ids of messages whose last key is being deleted."""
        self._going = 0
        self._gone: asyncio.Event = asyncio.Event()
        self._gone.set()

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Runs a job that waits for the disk in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads, job)

    def close(self) -> None:
        """Waits for the jobs given to `run`; no more are accepted."""
        self._threads.shutdown()

    def read(self, message_id: str, chunks: int, first: int, most: int) -> list[bytes]:
        """Chunks as they are stored (`body_file.read`), for a coroutine. Raises StoreDamaged, StoreUnreadable, and
        StoreFailed for want of memory or descriptors, which passes."""
        try:
            return body_file.read(self.folder, message_id, chunks, first, most)
        except BodyDamaged as damaged:
            raise StoreDamaged(f"message {message_id}: {damaged}") from None
        except OSError as error:
            kind = StoreFailed if error.errno in _PASSING else StoreUnreadable
            raise kind(f"{self.folder / message_id}: {error.strerror}; repair the disk") from None

    def ended(self, message_id: str) -> None:
        """An operation submitted to the store earlier, or right after this call, deletes its last key."""
        self.ending.add(message_id)
        self._after_sync(partial(self._remove, message_id))

    def _remove(self, message_id: str) -> None:
        self.ending.discard(message_id)
        self.dispose(partial(body_file.remove, self.folder, message_id))

    def dispose(self, job: Callable[[], None]) -> None:
        """Deletes something soon; `settled` waits for it."""
        self._going += 1
        self._gone.clear()
        self.run(job).add_done_callback(self._removed)

    def _removed(self, done: asyncio.Future[None]) -> None:
        self._going -= 1
        if not self._going:
            self._gone.set()
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning(
                "a body that is no longer needed could not be removed (%s); the next start removes it", cause(error)
            )

    async def settled(self) -> None:
        """Waits until all deletions requested so far are done."""
        await self._gone.wait()


def client_of(address: str) -> str:
    """The client that an address stands for: for IPv6 its network, since one client may use all of its addresses."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
