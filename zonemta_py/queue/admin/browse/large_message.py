"""The deferred, parked, deleted and bounced recipients of one message, where they are too many to be sorted at once.

The index has a message's recipients by family, zone and time, and a page needs those with the next addresses: so all
keys of the message are looked through for each portion, at one instant, in steps between which others have their turns.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from itertools import islice
from types import TracebackType

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.instant import Instant, KeptInstant
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.admin.browse.of_index import AT_ONCE, InOrder, PlaceInOrder, meant_by
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.tasks.where import Where
from zonemta_py.schedule.time.pace import Pace

STEP = 2_000
"""Keys of a step."""
_MOST = b"\xff"


class LargeMessage:
    """Those behind `passed`, which is in that message or before it. A context: it keeps an instant."""

    def __init__(self, core: Core, where: Where, id_: bytes, passed: PlaceInOrder) -> None:
        self._core, self._where, self.id = core, where, id_
        self.behind = passed.address if passed.id == id_ else b""
        self.rows = list[InOrder]()
        """The next ones, AT_ONCE at most, in their order."""
        self.whole, self.walked = False, 0
        """Whether there are no others behind them; keys that were read."""
        self._kept = KeptInstant()

    def __enter__(self) -> LargeMessage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(StoreError), self._core.disk.store.instant(self._kept):  # fenced, it is closed with the store
            self._kept.close()

    def instant(self) -> AbstractContextManager[Instant]:
        """As of which the rows are: a context."""
        return self._core.disk.store.instant(self._kept)

    async def look(self, pace: Pace) -> None:
        """Finds the rows."""
        meant, first = meant_by(self._where), keys.INDEX + self.id
        start, stop, total = first, first + b"!", 0
        while start:
            with self.instant() as instant:
                step = list(islice(instant.keys(start, stop), STEP))
            self.walked += len(step)
            start = step[-1] + b"\0" if len(step) == STEP else b""
            found = list[InOrder]()
            most = self.rows[-1].address if len(self.rows) == AT_ONCE else _MOST
            for index in step:
                _, _, family, zone, middle, address = index.split(b" ", 5)
                if address > self.behind and meant(family, zone, middle):
                    total += 1
                    if address < most:
                        found.append(InOrder(self.id, address, b" ".join((family, zone, middle, self.id, address))))
            self.rows = sorted(self.rows + found)[:AT_ONCE]
            await pace.turn()
        self.whole = total <= AT_ONCE
