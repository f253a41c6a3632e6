"""Both disks of the queue: store and journal, the lines to them, and what is kept beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from zonemta_py.config import Config
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store, StoreDamaged, StoreError
from zonemta_py.disk.leveldb.trouble import NO_QUORUM, NO_SPACE, refusal
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.disk.space import LEAST_BYTES, Space
from zonemta_py.journal.receipts import Receipts
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.bodies import Bodies, Uncommitted
from zonemta_py.queue.core.commit import Closing, Hire, JournalLine, Replica, StoreLine
from zonemta_py.queue.core.compaction import Compaction
from zonemta_py.queue.core.ledger import Ledger
from zonemta_py.queue.core.locator import Places
from zonemta_py.queue.core.policy_copy import PolicyCopy
from zonemta_py.queue.core.segments import Segments
from zonemta_py.queue.core.spool import Spool
from zonemta_py.schedule.time.steady import Steady

SETTLED_S = 0.02
"""How long to wait for a store that lags behind."""


class Disk:
    """Store, journal, and all that is written beside them. closing: what every batch ends with. replica: what keeps
    both elsewhere too."""

    def __init__(
        self, config: Config, store: Store, journal: JournalLine, closing: Closing, *, segments: Segments,
        ids: keys.Ids, clock: Steady, damaged: Callable[[Exception], None], hire: Hire, receipts: Receipts | None,
        bodies: Bodies | None, replica: Replica | None = None,
    ) -> None:  # fmt: skip
        self.store, self.journal, self.segments, self.ids = store, journal, segments, ids
        self._damaged, self.replica = damaged, replica
        self.quarantine = Quarantine(config.folder / "quarantine")
        self.places = Places(store)
        self.receipts = receipts or Receipts(config.folder)
        self.lines = StoreLine(store, closing, damaged, hire, self.receipts, replica)
        if replica is not None:
            self.lines.share(journal)
        self.space = Space(config.folder, _reserved(config))
        uncommitted = Uncommitted(config.queue, lambda: self.space.room(clock.monotonic()))
        self.bodies = bodies or Bodies(config.folder, uncommitted, self.lines.after_sync)
        self.compaction = Compaction()
        self.ledger = Ledger(config.queue, journal, segments, ids, clock, damaged)
        self.policy_copy = PolicyCopy(store, journal, self.lines)
        self.spool: Spool | None = None
        """Of a node of a cluster, where a listener's durability is "node"."""
        self.closed = False

    def configure(self, config: Config) -> None:
        """Other settings from now on."""
        self.space.configure(_reserved(config))
        self.bodies.uncommitted.configure(config.queue)
        self.ledger.configure(config.queue)

    def refusal(self, now: float, here: object = False) -> Reply | None:
        """Why nothing can be accepted now. now: steady seconds. here: it may be that this node alone has it at
        first."""
        trouble = self.lines.trouble or self.journal.trouble
        if trouble is NO_QUORUM and here and self.spool is not None:
            trouble = self.journal.trouble
        return NO_SPACE if trouble is None and self.space.short(now) else trouble

    def unreadable(self, error: StoreError) -> Reply:
        """The reply for a client whose mail needs what could not be read."""
        if isinstance(error, StoreDamaged):
            self.read_failed(error)
        return refusal(error)

    def read_failed(self, error: StoreError) -> None:
        """A range could not be read: the store must be repaired, by a fresh process."""
        if not self.closed:
            self._damaged(error if isinstance(error, StoreDamaged) else StoreDamaged(str(error)))

    async def settled(self, most_s: float = SETTLED_S) -> None:
        """Waits a moment for the store, which lags behind: what somebody has done is seen by what they ask next."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: Reply | None) -> None:
            if not written.done():
                written.set_result(None)

        self.lines.submit([], done, sync=False, keep=True)
        self.lines.flush()
        with suppress(TimeoutError):
            await asyncio.wait_for(written, most_s)

    def close(self) -> None:
        """For a process that continues: ends all threads and closes all files. No more is lost than by the process's
        end."""
        self.closed = True
        self.journal.close()
        self.lines.close()
        self.bodies.close()
        self.receipts.close()
        if self.spool is not None:
            self.spool.close()


def _reserved(config: Config) -> int:
    return max(LEAST_BYTES, config.queue.reserve_bytes)
