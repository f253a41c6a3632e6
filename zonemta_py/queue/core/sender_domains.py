"""Sender domains in the queue: its store has them, and each change is on stable storage before it is answered.

Processes that use them read a table which is made of the store (`disk/domain_book.py`), by the queue that has the MTA's
folder: a change is there before it is answered, and readers notice it at most `domain_book.LOOK_S` later. At a start it
is made anew if it is not what the store has. A store that has lost them gets them back from it.

Failures: DomainRefused for what cannot be; QueueRefusal while the disk has errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from zonemta_py.disk import keys, packing
from zonemta_py.disk.domain_book import DomainBookWriter
from zonemta_py.disk.leveldb.store import Operation, StoreError
from zonemta_py.journal.folders import FOLDER, home_of
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.sender_domain import DomainRefused, SenderDomain
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.core import Core

log = logging.getLogger(__name__)

DOMAINS_MAX = 100_000


class SenderDomains:
    """Of one queue."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._unwritten: dict[str, SenderDomain | None] = {}
        """What the store is about to have."""
        self._version = -1
        """Of all that was changed so far; -1: not read yet."""
        self._count = 0
        self._book: DomainBookWriter | None = None
        self._whole = True
        """The book has every change, as far as it was written."""

    def start(self) -> None:
        """Readers get what the store has, if the configuration wants it."""
        config = self._core.config
        if not config.server.sender_domains or not self._is_home() or self._book is not None:
            return
        try:
            self._load()
            book = self._book = DomainBookWriter(config.folder)
            if not self._version and (known := book.version):
                lost = list(book.every())
                log.error("the store has lost the sender domains; %d are taken back from %s", len(lost), book.path)
                self._version, self._count = known, len(lost)
                rows: list[Operation] = [(keys.domain(one.name), packing.pack(one.pack())) for one in lost]
                self._core.disk.lines.submit([*rows, self._numbered()], lambda _: None, sync=True, keep=True)
            elif book.version != self._version:
                book.make(self.every(), self._version)
        except (StoreError, OSError) as error:
            log.error("sender domains cannot be made ready: %s", cause(error) if isinstance(error, OSError) else error)

    def close(self) -> None:
        if self._book is not None:
            self._book.close()

    def _is_home(self) -> bool:
        """Whether this queue has the MTA's folder."""
        config = self._core.config
        return config.folder.parent.name != FOLDER and home_of(config.folder) == config.queue_number

    def _load(self) -> None:
        """Raises StoreError."""
        if self._version < 0:
            value = self._core.disk.store.get(keys.DOMAINS_STATE)
            self._version, self._count = packing.unpack(value) if value is not None else (0, 0)

    # -- what there is

    def get(self, name: str) -> SenderDomain | None:
        """Raises StoreError."""
        if name in self._unwritten:
            return self._unwritten[name]
        value = self._core.disk.store.get(keys.domain(name))
        return SenderDomain.of(packing.unpack(value)) if value is not None else None

    def every(self, after: str = "") -> Iterator[SenderDomain]:
        """In their order. Raises StoreError."""
        start = keys.domain(after) + b"\0" if after else keys.domain("")
        for key, value in self._core.disk.store.scan(start, keys.end(keys.DOMAINS)):
            if key != keys.DOMAINS_STATE:
                yield SenderDomain.of(packing.unpack(value))

    # -- changes

    async def put(self, domain: SenderDomain) -> None:
        """Raises DomainRefused, QueueRefusal."""
        self._load()
        if self.get(domain.name) is None:
            if self._count >= DOMAINS_MAX:
                raise DomainRefused(f"there are {DOMAINS_MAX:,} sender domains, and no room for more; remove some")
            self._count += 1
        await self._write(domain.name, domain)

    async def remove(self, name: str) -> None:
        """Raises QueueRefusal."""
        self._load()
        if self.get(name) is not None:
            self._count -= 1
        await self._write(name, None)

    async def _write(self, name: str, domain: SenderDomain | None) -> None:
        lines = self._core.disk.lines
        if lines.trouble is not None:
            raise QueueRefusal(lines.trouble)
        self._version += 1
        self._unwritten[name] = domain
        row: Operation = (keys.domain(name), packing.pack(domain.pack()) if domain is not None else None)
        done: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        def written(reply: Reply | None) -> None:
            if self._unwritten.get(name) is domain:
                self._unwritten.pop(name, None)
            if not done.done():
                done.set_result(reply)

        lines.submit([row, self._numbered()], written, sync=True, keep=True)
        await asyncio.shield(done)
        if self._book is not None:
            try:
                version = self._version if self._whole and not self._unwritten else 0  # 0: the next start makes it anew
                self._book.write([domain] if domain is not None else [], [name], version)
            except OSError as error:
                self._whole = False
                log.error("%s; senders have what was there before, until the next start", cause(error))

    def _numbered(self) -> Operation:
        return keys.DOMAINS_STATE, packing.pack([self._version, self._count])
