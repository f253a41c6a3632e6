"""The election of a leader, over a bucket of JetStream: `election.py` says what to do, this does it.

A leader whose renewals find no quorum leads until its term is over, and then does not: `ends` is called by its own
clock, whatever waits for an answer. Where the bucket's own leader dies, that takes some five seconds, in which nobody
leads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from zonemta_py.cluster.election import TERM_S, Bid, Election, LeaderEntry
from zonemta_py.cluster.nats import Nats, NatsError, NotThere, WrongSequence
from zonemta_py.config import Config
from zonemta_py.disk import packing

log = logging.getLogger(__name__)

BUCKET, KEY = "leader", "leader"
ROUND_S = 0.25
LEAVE_S = 2.0


class Leadership:
    """As one process of a node takes part in it; its next one is another. begins: called with the term when this node
    may act; ends: when it may not any more. Both are called in the event loop, in turns."""

    def __init__(self, nats: Nats, config: Config, instance: str) -> None:
        self._bucket = nats.bucket(BUCKET)
        self._election = Election(config.node, f"{instance} {token_hex(8)}")
        self.begins: Callable[[int], None] = lambda term: None
        self.ends: Callable[[], None] = lambda: None
        self._leads = False
        self._timer: asyncio.Handle | None = None
        self._told = True

    @property
    def leader(self) -> str:
        """The name of the node that leads, as far as is known; "": none does."""
        return self._election.leader(time.monotonic())

    @property
    def term(self) -> int:
        return self._election.entry.term

    @property
    def until(self) -> float:
        """Up to when (`time.monotonic`) this node may act as the leader; 0.0: it does not lead."""
        return self._election.until if self._leads else 0.0

    async def run(self) -> None:
        """For ever; cancelled, it leaves the lead to another in order."""
        try:
            while True:
                try:
                    await self._bucket.make()
                    await self._look()
                    if not self._told:
                        log.warning("the bucket of the cluster's leader can be read again")
                    self._told = True
                    while True:
                        await self._round()
                        await asyncio.sleep(ROUND_S)
                except NatsError as error:
                    if self._told:
                        log.warning("nobody can be elected: %s; trying again", error)
                    self._told = False
                self._settle()
                await asyncio.sleep(ROUND_S)
        finally:
            await self._leave()

    async def _round(self) -> None:
        sent_at = time.monotonic()
        bid = self._election.bid(sent_at)
        if bid is None:
            if not self._election.is_mine:
                await self._look()
        else:
            try:
                revision = await self._write(bid, TERM_S)
                self._election.taken(bid, revision, sent_at, time.monotonic())
            except WrongSequence:
                await self._look()
        self._settle()

    async def _look(self) -> None:
        try:
            found = await self._bucket.get(KEY, TERM_S)
        except NotThere:
            self._election.seen(LeaderEntry("", "", 0), 0, time.monotonic())
            return
        node, instance, term = packing.unpack(found.value or b"")
        self._election.seen(LeaderEntry(node, instance, term), found.revision, time.monotonic())

    async def _write(self, bid: Bid, timeout_s: float) -> int:
        return await self._bucket.update(KEY, packing.pack(list(bid.entry)), bid.revision, timeout_s)

    def _settle(self) -> None:
        """Calls what is due, and again when the term ends."""
        left = self._election.until - time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(left, self._settle) if left > 0 else None
        if (left > 0) == self._leads:
            return
        self._leads = left > 0
        if self._leads:
            log.info("this node leads the cluster (term %d)", self.term)
            self.begins(self.term)
        else:
            log.info("this node does not lead the cluster any more")
            self.ends()

    async def _leave(self) -> None:
        bid = self._election.resign()
        self._settle()
        if bid is not None:
            with suppress(NatsError):
                await self._write(bid, LEAVE_S)
