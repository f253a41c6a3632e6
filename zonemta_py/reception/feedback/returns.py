"""What one receiver process does with what comes back, for all its listeners with feedback = true.

Promises: an address is decided at RCPT, from itself alone. 250 is said after the dot only when the queue has the news
on stable storage; a message that comes again, since the answer was lost, is known there. Nothing is ever sent in
answer: what is not wanted is refused in the dialogue, so that nobody else gets mail by it.

A flood of it does not starve other mail: strangers hand in so many messages at once, and so many a second; more are
told to come again (451), before they have sent anything.

Failures: `take` raises QueueRefusal, 451, if the queue or DNS cannot be asked: the client keeps the message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from zonemta_py.config import Config
from zonemta_py.config.own_addresses import own_addresses
from zonemta_py.journal.folders import mta_of
from zonemta_py.mail.addresses.ours import Ours
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.queue.api import Feedback, QueueRefusal, Reception
from zonemta_py.reception.connection_limits import network_of
from zonemta_py.reception.feedback.proof import Lookups, Prover, SentBy

if TYPE_CHECKING:
    from zonemta_py.disk.domain_book import DomainBook

log = logging.getLogger(__name__)

TOO_MUCH = Reply(451, "4.3.2", "Too much comes back at once; try again in a minute")
NO_DNS = Reply(451, "4.4.3", "DNS does not answer, so that the report cannot be checked; try again later")
NOT_TAKEN = Reply(451, "4.3.0", "Local error, try again later")
_BURST_S = 10
_DAY_MS = 86_400_000
_PROVABLE = ("bounce", "complaint", "postmaster")
_REPORTED = ("report", *_PROVABLE)
"""At which addresses reports on our mail are taken, if there is one for them."""


class Returns:
    """lookups: None if nothing can ask DNS; then nothing is proven by it. clock_ms: UNIX time. now_s: steady."""

    def __init__(
        self, config: Config, queue: Reception, lookups: Lookups | None, clock_ms: Callable[[], int],
        now_s: Callable[[], float],
    ) -> None:  # fmt: skip
        path = config.return_path
        self.domains, self.read_bytes, self.forward_zone = path.domains, path.read_bytes, path.forward_zone
        self.postmasters = frozenset(("postmaster", f"postmaster@{config.server.name.lower()}"))
        if config.server.sender_domains:
            self.domains = replace(path.domains, more=partial(_is_return_path, _book(config), now_s))
        self._queue, self._clock_ms, self._now_s = queue, clock_ms, now_s
        self._prover = Prover(path.reporters, lookups) if (path.reporters or path.reports) and lookups else None
        self._reports, self._own = bool(path.reports), own_addresses(config)
        self._at_once, self._per_second = path.at_once, path.per_second
        self._clients = Counter[str]()
        self._left, self._seen_s = path.per_second * _BURST_S, now_s()

    # --- at RCPT

    @property
    def today(self) -> int:
        """Days since 1970."""
        return self._clock_ms() // _DAY_MS

    def find(self, address: str) -> Ours | None:
        """Whether what comes back may come to that address. Raises NotOurs."""
        return self.domains.find(address, self.today)

    def enter(self, client: str) -> bool:
        """A stranger begins to hand in a message; False: it is to come again. Ends with `leave`. client: IP address;
        one has a quarter of the places, so that nobody can take them all."""
        network = network_of(client)
        now_s = self._now_s()
        self._left = min(self._per_second * _BURST_S, self._left + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
        if self._clients.total() >= self._at_once or self._clients[network] * 4 >= self._at_once or self._left < 1:
            return False
        self._clients[network] += 1
        self._left -= 1
        return True

    def leave(self, client: str) -> None:
        """Its message is taken, or was given up."""
        network = network_of(client)
        self._clients[network] -= 1
        if not self._clients[network]:
            del self._clients[network]

    # --- after the dot

    async def take(self, ours: Sequence[Ours], beginning: bytes, whole: bool, sent: SentBy) -> None:
        """The message is complete. beginning: of its bytes, CRLF; whole: that is all of it. Raises QueueRefusal."""
        # Here: they are large, and needed only where mail comes back (`roles.RECEIVER` loads them there).
        from zonemta_py.mail.feedback.read import read
        from zonemta_py.reception.feedback.rows import Came, rows

        found = list[Feedback]()
        if self._reports and any(one.purpose in _REPORTED for one in ours):
            ours, found = await self._aggregates(ours, beginning, whole, sent)
        if ours:
            report = read(beginning, sent.sender)
            genuine = await self._proof(ours, beginning, whole, sent)
            came = Came(beginning, report, genuine, not sent.sender)
            found += [row for one in ours for row in rows(one, came, self.domains, self.today)]
        try:
            new = await self._queue.feedback(found)
        except ValueError:
            log.exception("what came back from %s cannot be recorded", sent.client)
            raise QueueRefusal(NOT_TAKEN) from None
        for row, first in zip(found, new, strict=True):
            count("zonemta_returns_total", (row.kind, (row.genuine or "unproven") if first else "repeated"))

    async def _aggregates(
        self, ours: Sequence[Ours], beginning: bytes, whole: bool, sent: SentBy
    ) -> tuple[Sequence[Ours], list[Feedback]]:
        """The addresses at which it is still to be read as anything else; rows of the reports on our mail that it has.
        They are read beside the loop: those with ten thousand rows take a while. Raises QueueRefusal."""
        from zonemta_py.mail.feedback.report import Report
        from zonemta_py.mail.reports.letters import read_reports
        from zonemta_py.reception.feedback.rows import Came, report_rows, unread_report

        reports, refused = await asyncio.to_thread(read_reports, beginning, self._own)
        if not (reports or refused):
            return ours, []
        author, signer = await self._signer(beginning, whole)
        if reports:
            return [one for one in ours if one.purpose not in _REPORTED], report_rows(reports, author, signer)
        if not whole:
            refused = f"the message is longer than return_path.read_bytes ({self.read_bytes:,})"
        came = Came(beginning, Report("", [], "", "", "", {}, ""), "", not sent.sender)
        kept = [unread_report(one.address, came, author, refused) for one in ours if one.purpose == "report"]
        return [one for one in ours if one.purpose != "report"], kept

    async def _signer(self, beginning: bytes, whole: bool) -> tuple[str, str]:
        """Raises QueueRefusal."""
        if self._prover is None:
            return "", ""
        try:
            return await self._prover.signer(beginning, whole)
        except NoRoute:
            raise QueueRefusal(NO_DNS) from None

    async def _proof(self, ours: Sequence[Ours], beginning: bytes, whole: bool, sent: SentBy) -> str:
        """Raises QueueRefusal."""
        if self._prover is None or not any(one.purpose in _PROVABLE for one in ours):
            return ""
        try:
            return await self._prover.proof(beginning, whole, sent)
        except NoRoute:
            raise QueueRefusal(NO_DNS) from None


def _book(config: Config) -> DomainBook:
    from zonemta_py.disk.domain_book import DomainBook  # here: SQLite, where there may be any

    return DomainBook(mta_of(config.folder))


def _is_return_path(book: DomainBook, now_s: Callable[[], float], domain: str) -> bool:
    """Raises QueueRefusal: it comes again."""
    from zonemta_py.disk.domain_book import BookUnreadable

    try:
        return book.at(domain, now_s()) is not None
    except BookUnreadable as error:
        log.error("%s", error)
        raise QueueRefusal(NOT_TAKEN) from None
