"""Limits of requests in progress, in total, per key and per account, and of open streams; those above get a
Retry-After.

A key may have another place while it has fewer than are free: alone it gets half of them, two get a third each, and
the next finds one, however slowly the others send their bodies. Clients without a key have places beside these, a
quarter of the number, of which one address has an eighth at most. An eighth of the places is kept for operators' keys,
so that the state can always be queried, and things set right. The processes before and after a reload count together
(`metrics.connections`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple

from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.queue.api import QueueRefusal, Reception
from zonemta_py.reception.connection_limits import network_of
from zonemta_py.reception.permission import Accounts
from zonemta_py.web.documents.problem import BUSY_S, RequestProblem, of_reply

_TOO_MANY = 421

TAKEN_S, GOODBYE_S = 60.0, 5.0
"""How long the client of a stream may take nothing; the same when all streams are to end."""
_TRIES = 3
"""For a place that another process has counted at the same instant: each sees then that it is one too many."""


class HttpCounts(NamedTuple):
    """What this process counts, with those that share the limits."""

    connections: OpenConnections
    requests: OpenConnections
    streams: OpenConnections

    @classmethod
    def alone(cls) -> HttpCounts:
        return cls(*(OpenConnections.alone() for _ in range(3)))


class RequestShares:
    """what: is counted; named: its plural. A key may have `most_per_key` at once."""

    what, named = "requests are in progress", "requests"

    def __init__(self, most: int, most_per_key: int, opened: OpenConnections | None = None) -> None:
        self._most, self._most_per_key = most, most_per_key
        self._most_of_others = max(1, most - max(1, most // 8))
        self._most_of_strangers = max(2, most // 4)
        self._most_per_address = max(1, self._most_of_strangers // 8)
        self._opened = opened or OpenConnections.alone()

    @contextmanager
    def one(self, key: str, client: str, operator: bool = False) -> Iterator[None]:
        """Counts a request with that key in, and out at the end. Raises RequestProblem (429, 503)."""
        owner = self._owner(key, client, operator)
        with self._place(owner, partial(self._check, owner, operator), stranger=False):
            yield

    @contextmanager
    def stranger(self, client: str) -> Iterator[None]:
        """The same for one without a key. Raises RequestProblem (429, 503)."""
        owner = f"the address {network_of(client)}"
        with self._place(owner, partial(self._check_stranger, owner), stranger=True):
            yield

    @contextmanager
    def _place(self, owner: str, check: Callable[[int], None], stranger: bool) -> Iterator[None]:
        """check: whether there is one; 1 if this has been counted in. Raises RequestProblem."""
        for left in reversed(range(_TRIES)):
            check(0)
            self._opened.add(owner, 1, stranger)
            try:
                check(1)
                break
            except RequestProblem:
                self._opened.add(owner, -1, stranger)
                if not left:
                    raise
        try:
            yield
        finally:
            self._opened.add(owner, -1, stranger)

    def _check(self, owner: str, operator: bool, counted: int) -> None:
        total, strangers, here = self._opened.sums(owner)
        others, here = total - strangers - counted, here - counted
        free = (self._most if operator else self._most_of_others) - others
        if here >= self._most_per_key:
            sentence = f"{here} {self.named} with {owner} are in progress; try again when one of them is answered"
            raise RequestProblem("share", sentence, retry_s=BUSY_S)
        if 0 < free <= here:
            raise RequestProblem("share", self._kept(owner, here, free), retry_s=BUSY_S)
        if free <= 0:
            raise RequestProblem("unavailable", f"{others} {self.what}; try again in a moment", retry_s=BUSY_S)

    def _check_stranger(self, owner: str, counted: int) -> None:
        _, strangers, here = self._opened.sums(owner)
        if here - counted >= self._most_per_address:
            sentence = f"{here - counted} {self.named} from {owner} are in progress; try again when one is answered"
            raise RequestProblem("share", sentence, retry_s=BUSY_S)
        if strangers - counted >= self._most_of_strangers:
            sentence = f"{strangers - counted} {self.what} without a key; try again in a moment"
            raise RequestProblem("unavailable", sentence, retry_s=BUSY_S)

    def _owner(self, key: str, client: str, operator: bool) -> str:
        return f"the key {key!r}"

    def _kept(self, owner: str, here: int, free: int) -> str:
        return (
            f"{here} {self.what} with {owner}, and the last {free} places are kept for others; try again when one of"
            " them is answered, or raise http.requests"
        )


class StreamShares(RequestShares):
    """Of event streams. The operator's key, which many may have, counts per address of a client."""

    what, named = "streams are open", "streams"

    def __init__(self, most: int, opened: OpenConnections | None = None) -> None:
        super().__init__(most, most, opened)
        self.ending = False
        self._at_end: list[Callable[[], None]] = []
        self._sending: set[asyncio.Timeout] = set()

    def at_end(self, told: Callable[[], None]) -> None:
        """Is called when all streams are to end: what waits to send something sends no more."""
        self._at_end.append(told)

    def end(self) -> None:
        """Clients see the end of what they have asked for, and come again."""
        self.ending = True
        for told in self._at_end:
            told()
        for limit in self._sending:
            limit.reschedule(asyncio.get_running_loop().time() + GOODBYE_S)

    async def taken(self, sending: Awaitable[None]) -> None:
        """Raises TimeoutError if the client takes nothing."""
        async with asyncio.timeout(GOODBYE_S if self.ending else TAKEN_S) as limit:
            self._sending.add(limit)
            try:
                await sending
            finally:
                self._sending.discard(limit)

    def _owner(self, key: str, client: str, operator: bool) -> str:
        return f"the key {key!r} from {client}" if operator else super()._owner(key, client, operator)

    def _kept(self, owner: str, here: int, free: int) -> str:
        sentence = f"{here} streams with {owner} are open, and the last {free} places are kept for others"
        return f"{sentence}; close one of them, or raise http.streams"


class AccountSessions:
    """Requests in progress by account: each is one of its open sessions, beside those of SMTP, and counts for its quota
    of them, if it has one, in all processes together (`queue.core.sums.sessions`)."""

    def __init__(self, accounts: Accounts, queue: Reception) -> None:
        self._accounts, self._queue = accounts, queue
        self.open = Counter[str]()

    @asynccontextmanager
    async def one(self, account: str, id: str) -> AsyncIterator[None]:
        """Counts a request in, and out at the end. Raises RequestProblem (429, 503)."""
        counts = self._accounts.by_name[account].sessions > 0
        self.open[account] += 1
        try:
            if counts:
                await self._enter(account, id)
            yield
        finally:
            self.open[account] -= 1
            if counts:
                self._queue.leave(id)

    async def _enter(self, account: str, id: str) -> None:
        try:
            await self._queue.enter(id, account)
        except QueueRefusal as refused:
            if refused.reply.code == _TOO_MANY:
                raise RequestProblem("share", refused.reply.text, retry_s=BUSY_S) from None
            raise of_reply(refused.reply) from None
