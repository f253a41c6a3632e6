"""Removes ended mail from the disk: LevelDB keeps deleted data until a compaction reaches it.

Recipient keys, and the range of message ids with ended messages, are compacted within the hour, or at once when space
is short; mail continues meanwhile. Measured in another thread: 0.2 to 0.4 s for 100 MB of dead bodies beside 5 MB of
live ones, and about a second if the live ones are spread among them, since live data have to be rewritten. Large bodies
have files, and need none of this (`bodies`).

Promise: an hour after its end, a message's bytes are gone from a store of up to `SMALL_BYTES`; in a larger one some may
remain until LevelDB's next own compaction. Failures: a disk error fences the store, as with any write.
"""

from __future__ import annotations

import asyncio

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.commit import StoreLine

EVERY_S = 3600.0
EVERY_S_IF_SHORT = 60.0
SMALL_BYTES = 64 * 1024 * 1024
_BEFORE_ALL: list[Operation] = [(b"-", None)]
_ALL = ("0" * 16, "f" * 16)


class Compaction:
    """Remembers where mail has ended since the last compaction. `slice`: the first and the last such id; none: ()."""

    def __init__(self) -> None:
        self.slice: tuple[str, ...] = _ALL
        self._since_s = self._done_s = 0.0

    def resume(self, ended: list[str] | None) -> None:
        """The slice that the previous process recorded; None: unknown."""
        self.slice = _ALL if ended is None else tuple(ended)

    def ended(self, message_id: str) -> None:
        """Keys of the message were in the store, and are deleted."""
        if not self.slice:
            self.slice = message_id, message_id
        else:
            first, last = self.slice
            if not first <= message_id <= last:
                self.slice = min(first, message_id), max(last, message_id)

    def due(self, now_s: float, short: bool) -> bool:
        """Whether it is time. now_s: monotonic. short: space is short now."""
        if not self.slice:
            return False
        self._since_s = self._since_s or now_s
        return now_s - self._since_s >= EVERY_S or (short and now_s - self._done_s >= EVERY_S_IF_SHORT)

    async def run(self, store: Store, lines: StoreLine, now_s: float) -> None:
        """Compacts, in threads.

        LevelDB writes its buffer, with deleted data and deletions, into a table at the lowest level without overlap,
        and does not compact that again. So a small store is compacted once more, with a second table that overlaps the
        first.
        """
        slice_, self.slice = self.slice, ()
        self._since_s, self._done_s = 0.0, now_s
        start, stop = keys.message_range(slice_[0]), keys.end(keys.message_range(slice_[1]))
        for first, last in ((b"", keys.MESSAGES), (start, stop), (keys.end(keys.MESSAGES), b"\xff")):
            await asyncio.to_thread(store.compact, first, last)
        if store.table_bytes() <= SMALL_BYTES:
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lines.submit(_BEFORE_ALL, lambda _: written.set_result(None), sync=False, keep=True)
            await asyncio.shield(written)
            await asyncio.to_thread(store.compact, b"", b"\xff")
