"""Which site a domain's mail goes to: what DNS said, for as long as it is valid, for the whole queue.

The scheduler counts by site, so the queue's process asks before anything is leased; the answer travels with the lease,
and all senders share it. A `DestinationResolver` asks (answers, their TTLs and their cache are its own business); here
is what the schedule needs without waiting: known, or being looked up.

Without one (tests, a relay with a smart host) nothing is ever asked, and a domain is its own site.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from zonemta_py.mail.classify import NoRoute
from zonemta_py.zones.site import Site

log = logging.getLogger(__name__)

KNOWN_MAX = 50_000
AT_ONCE_MAX = 200
"""Lookups under way; the others wait for their turn."""
REFUSED_S = 60.0
"""How long it is remembered that a domain cannot get mail."""

Found: TypeAlias = Site | NoRoute


class DestinationResolver(Protocol):
    """Looks up DNS."""

    async def site(self, domain: str, now: float) -> Site:
        """Where a domain's mail goes. Raises NoRoute, temporary or permanent."""


class Sites:
    """What is known of domains. now: steady seconds. looked_up(domain, provider): DNS has said whose it is."""

    def __init__(
        self, resolver: DestinationResolver | None, now: Callable[[], float], looked_up: Callable[[str, str], None]
    ) -> None:  # fmt: skip
        self._resolver, self._now, self._looked_up = resolver, now, looked_up
        self.asks = resolver is not None
        self._known: OrderedDict[str, tuple[float, Found]] = OrderedDict()
        self._asked: dict[str, list[Callable[[Found], None]]] = {}
        self._queue: deque[str] = deque()
        self._turns: dict[str, int] = {}  # of those in the queue, and how many had theirs
        self._begun = 0
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def configure(self, resolver: DestinationResolver | None, anew: bool) -> None:
        """Another resolver from now on; what was asked already is answered. anew: nothing is known any more."""
        self.asks = resolver is not None
        self._resolver = resolver or self._resolver
        if anew:
            self._known.clear()

    def known(self, domain: str) -> Found | None:
        """The domain's site, or why it has none for good; None: it has to be looked up."""
        found = self._known.get(domain)
        if found is None or found[0] <= self._now():
            return None
        return found[1]

    def place(self, domain: str) -> str:
        """The provider that the domain's mail went to, or the site that is no provider's, by what was known last, also
        if that is long ago; "": nothing is."""
        found = self._known.get(domain)
        return found[1].provider or found[1].key if found is not None and isinstance(found[1], Site) else ""

    def names(self) -> Iterator[str]:
        """Keys and providers of the sites that are known, as often as they are; "" for none."""
        for _, site in list(self._known.values()):
            if isinstance(site, Site):
                yield site.key
                yield site.provider

    def look(self, domain: str, then: Callable[[Found], None]) -> None:
        """Calls `then` with what DNS says."""
        if domain in self._asked:
            self._asked[domain].append(then)
            return
        self._asked[domain] = [then]
        self._turns[domain] = self._begun + len(self._queue)
        self._queue.append(domain)
        self._start()

    def before(self, domain: str) -> int | None:
        """How many are looked up before the domain is; None: it is being looked up, or was not asked for."""
        turn = self._turns.get(domain)
        return None if turn is None else turn - self._begun

    def _start(self) -> None:
        while self._queue and self._busy < AT_ONCE_MAX:
            self._busy += 1
            self._begun += 1
            domain = self._queue.popleft()
            del self._turns[domain]
            task = asyncio.ensure_future(self._ask(domain))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, domain: str) -> None:
        assert self._resolver is not None
        found: Found
        try:
            found = await self._resolver.site(domain, self._now())
        except NoRoute as error:
            found = error
        except Exception:
            log.exception("internal error while looking up %s", domain)
            found = NoRoute(451, "4.4.3", f"the lookup of {domain} failed, see the log")
        self._busy -= 1
        self._keep(domain, found)
        for then in self._asked.pop(domain):
            then(found)
        self._start()

    def _keep(self, domain: str, found: Found) -> None:
        if isinstance(found, NoRoute) and found.temporary:
            return
        self._looked_up(domain, "" if isinstance(found, NoRoute) else found.provider)
        ttl_s = REFUSED_S if isinstance(found, NoRoute) else max(1.0, found.ttl_s)
        self._known[domain] = (self._now() + ttl_s, found)
        self._known.move_to_end(domain)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
