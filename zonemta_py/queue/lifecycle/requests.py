"""Requests: a client that repeats a request, because it got no answer, gets the first receipt, and nothing is stored
twice.

The key of a request is in the same atomic synced batch as its mail: a crash leaves both, or neither. It is kept for
`queue.request_h`, or as long as its campaign. Only a hash of the client's key is stored. A repeated request waits while
the first is in progress; if the first fails, the second is tried itself.

Failures: the same key with other content is refused permanently; an unreadable store, temporarily.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError
from zonemta_py.disk.leveldb.trouble import DISK_ERROR
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core

OTHER_CONTENT = Reply(554, "5.5.0", "this key was used for other content; repeat that request, or use a new key")
AT_ONCE = 1_000
"""Keys that are read, or deleted, before the event loop runs."""
CAMPAIGN = "campaign "
_HOUR_MS = 3_600_000


class RequestRecord(NamedTuple):
    """Value of a request's key. until_ms: 0 if it is kept as long as its campaign."""

    ms: int
    id: str
    accepted: int
    suppressed: int
    digest: bytes
    until_ms: int

    @classmethod
    def of(cls, value: bytes) -> RequestRecord:
        """Raises ValueError, TypeError."""
        return cls(*packing.unpack(value)[:6])


def key_of(request: str) -> bytes:
    """ "campaign <name> <key>" belongs to that campaign's scope; all others to the scope "-"."""
    name = hashlib.sha256(request.encode()).hexdigest()[:32]
    words = request.split(" ", 2)
    return keys.request(f"{CAMPAIGN}{words[1]}" if _is_campaigns(request) else "-", name)


class Request(NamedTuple):
    """A client's request. key: in the store; digest: of what it asked for; campaigns: it is kept as long as those."""

    key: bytes
    digest: bytes
    campaigns: bool

    @classmethod
    def of(cls, envelope: Envelope) -> Request | None:
        """The one that an envelope is of."""
        asked = envelope.request
        return cls(key_of(asked), envelope.digest, _is_campaigns(asked)) if asked else None


def recorded(operations: list[Operation]) -> list[Any]:
    """What a record of the journal says of a request, for which these are the operations: from that its key can be made
    again. The number of recipients is the record's own."""
    key, value = operations[-1]
    kept = RequestRecord.of(value or b"")
    return [key.decode(), kept.ms, kept.suppressed, kept.digest, kept.until_ms]


def _is_campaigns(request: str) -> bool:
    return request.startswith(CAMPAIGN) and request.count(" ") > 1


class Requests:
    """The keys in the store, and the requests in progress."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._under_way: dict[bytes, asyncio.Future[Receipt]] = {}
        self._refused: set[bytes] = set()
        """Keys of failed batches: they may still be found in the store until they are deleted."""

    async def once(self, request: Request, take: Callable[[], Coroutine[Any, Any, Receipt]]) -> Receipt:
        """Returns the result of `take`, or of an earlier call for the same request. Raises QueueRefusal.

        `take` runs to its end even if its caller is gone: its batch may be on the way to the disk.
        """
        key = request.key
        while (first := self._under_way.get(key)) is not None:
            await asyncio.wait([first])
        if key in self._refused:
            raise QueueRefusal(self._core.disk.lines.trouble or DISK_ERROR)
        known = self._known(request)
        if known is not None:
            return known
        task = self._under_way[key] = asyncio.ensure_future(take())
        task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    def _done(self, key: bytes, task: asyncio.Future[Receipt]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # the client may be gone

    def _known(self, request: Request) -> Receipt | None:
        core = self._core
        try:
            value = core.disk.store.get(request.key)
        except StoreError as error:
            raise QueueRefusal(core.disk.unreadable(error)) from None
        if value is None:
            return None
        record = RequestRecord.of(value)
        if record.until_ms and record.until_ms <= core.clock.steady_ms():
            return None
        if record.digest != request.digest:
            raise QueueRefusal(OTHER_CONTENT)
        return Receipt(record.id, record.accepted, record.suppressed, repeated=True)

    def operations(self, request: Request, receipt: Receipt) -> list[Operation]:
        """What goes into the batch with its mail."""
        now_ms, until_ms, operations = self._core.clock.steady_ms(), 0, list[Operation]()
        if not request.campaigns:
            until_ms = now_ms + int(self._core.config.queue.request_h * _HOUR_MS)
            operations.append((keys.request_end(until_ms, request.key), b""))
        record = RequestRecord(now_ms, receipt.id, receipt.accepted, receipt.suppressed, request.digest, until_ms)
        return [*operations, (request.key, packing.pack(record))]

    def undo(self, request: Request) -> Callable[[], None]:
        """After its batch failed: the key is ignored until it is deleted, when the returned function is called."""
        self._refused.add(request.key)
        return lambda: self._refused.discard(request.key)

    # -- expired keys

    def tidy(self) -> bool:
        """Deletes a portion of the expired keys; True: there may be more. Raises StoreError."""
        return self._tidy_ended() | self._tidy_campaigns()

    def _tidy_ended(self) -> bool:
        core, operations = self._core, list[Operation]()
        stop = b"%s%012x " % (keys.REQUEST_ENDS, core.clock.steady_ms() + 1)
        ended = list(islice(core.disk.store.keys(keys.REQUEST_ENDS, stop), AT_ONCE))
        for end in ended:
            key = keys.REQUESTS + end.split(b" ", 2)[2]
            if key in self._under_way:
                continue
            operations.append((end, None))
            value = core.disk.store.get(key)
            if (
                value is not None and keys.request_end(RequestRecord.of(value).until_ms, key) == end
            ):  # otherwise it was renewed
                operations.append((key, None))
        core.disk.lines.submit(operations, immediately, sync=False, keep=True)
        return len(ended) == AT_ONCE

    def _tidy_campaigns(self) -> bool:
        """Deletes keys of campaigns that do not exist (any more), skipping the others campaign by campaign."""
        core, start = self._core, keys.REQUESTS + CAMPAIGN.encode()
        stop = keys.end(start)
        over_ms = core.clock.steady_ms() - int(core.config.queue.request_h * _HOUR_MS)
        while (first := core.disk.store.first(start, stop)) is not None:
            mine = b" ".join(first.split(b" ")[:3]) + b" "
            start = keys.end(mine)
            if core.campaigns.lives(first.split(b" ")[2].decode()):
                continue
            rows = list(islice(core.disk.store.scan(mine, start), AT_ONCE))
            gone = [key for key, value in rows if RequestRecord.of(value).ms <= over_ms and key not in self._under_way]
            core.disk.lines.submit([(key, None) for key in gone], immediately, sync=False, keep=True)
            if gone and len(rows) == AT_ONCE:
                return True
        return False
