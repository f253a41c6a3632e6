"""Source addresses that cannot be used: their own failures are counted, they rest, are probed, and come back.

A failure is a source's own where no server was reached because of it: this machine has lost the address or interface,
has no route from it, or its proxy cannot be reached or refuses us (stages "source" and "proxy"). After the first one it
sends nothing until a probe has looked at it; after `retry.source_failures` in a row, or at once where this machine has
lost it, it rests until a probe finds that it can be used. What waits for it goes by the others of its pool, under their
limits; where it is the only one, its mail waits, without an attempt, and expires as ever.

A probe sends no mail: it binds a socket, or greets the proxy; at growing intervals, PROBE_MAX_S at most. Where it finds
nothing wrong and mail fails again all the same, the intervals go on growing. A rest is a stop of the policy state that
nobody has chosen (`PolicyState.unusable`), and so is known to the other queues of this machine, to events, and after a
restart. Without a prober (a queue alone) it ends by itself after REST_S, and some mail finds out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from zonemta_py.config.sources import Source
from zonemta_py.mail.classify import NO_ROUTE
from zonemta_py.schedule.policy.state import SOURCE, UNUSABLE
from zonemta_py.schedule.shared import Shared

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often it is looked whether a probe is due."""
PROBE_S, PROBE_MAX_S = 1.0, 30.0
"""From the beginning of a rest until its first probe, which doubles; and the most."""
OTHERS_S = 30.0
"""Between probes of what another queue has found: it probes too."""
SUSPECT_S = 10.0
"""For how long one is suspected at most: longer than a probe takes."""
REST_S = 60.0
"""A rest, where nothing is probed."""
BACK = "it can be used again"
_ROUTE = re.compile(rf"{NO_ROUTE} (\S+)")


class SourceProbe(Protocol):
    """Looks at a source without mail."""

    async def __call__(self, source: Source, route_to: str) -> str:
        """Why it cannot be used now; "": it can. route_to: an address that it had no route to, "" none."""


class SourceHealth:
    """Of all sources. redirect(source, back): lets what waits for it, or could, go where it belongs now."""

    def __init__(self, shared: Shared, redirect: Callable[[str, bool], None]) -> None:
        self._shared, self._redirect = shared, redirect
        self.failures = Counter[str]()
        """Of mail, by source, since the start."""
        self._in_a_row: dict[str, int] = {}
        self._delays: dict[str, float] = {}
        """Until the next probe, of those that no mail has gone by since their first failure."""
        self._due: dict[str, float] = {}
        self._resting: set[str] = set()
        """Those whose mail has been redirected."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._probe: SourceProbe | None = None

    # -- what mail says

    def failed(self, source: str, text: str) -> None:
        """Mail could not go by it, through no fault of its destination."""
        self.failures[source] += 1
        policy = self._shared.policy
        if policy.stopped(SOURCE, source) and source not in policy.suspected:
            return  # it rests, or an operator has stopped it
        self._count(source, text, PROBE_S)

    def _count(self, source: str, text: str, wait_s: float) -> None:
        """wait_s: until it is looked at; what has just failed goes by others meanwhile."""
        count = self._in_a_row[source] = self._in_a_row.get(source, 0) + 1
        if count >= (1 if _is_lost(text) else self._shared.config.retry.source_failures):
            self._rest(source, text)
            return
        self._shared.policy.suspect(source, SUSPECT_S if self._probe else PROBE_S, f"it is looked at: {text}")
        self._due[source] = self._shared.now() + wait_s

    def _rest(self, source: str, text: str) -> None:
        log.warning("source %s cannot be used: %s; it rests, and its mail goes by others of its pool", source, text)
        delay = self._delays.setdefault(source, PROBE_S)
        self._due[source] = self._shared.now() + delay
        self._shared.policy.stop(SOURCE, source, math.inf if self._probe else REST_S, f"{UNUSABLE}: {text}")
        self.look()
        self._shared.changed()

    def rests(self, source: str) -> bool:
        """Whether it cannot be used; one that is only looked at does not rest."""
        return source in self._shared.policy.unusable and source not in self._shared.policy.suspected

    @property
    def troubled(self) -> bool:
        """Whether one has failed lately."""
        return bool(self._delays or self._in_a_row)

    def worked(self, source: str) -> None:
        """A server has answered to mail from it."""
        self._in_a_row.pop(source, None)
        self._delays.pop(source, None)

    def configure(self, before: set[str], after: set[str]) -> None:
        """Other source addresses are configured from now on: what is gone rests no longer."""
        for source in [one for one in self._shared.policy.unusable if one in before - after]:
            self._shared.policy.lift(SOURCE, source, "it is not configured any more")

    # -- what probes say

    async def watch(self, probe: SourceProbe) -> None:
        """For ever: probes those that cannot be used."""
        self._probe = probe
        while True:
            await asyncio.sleep(LOOK_S)
            if self._shared.policy.unusable or self._resting:
                try:
                    self.look()
                    self._start(probe)
                except Exception:
                    log.exception("internal error while looking after source addresses")

    def look(self) -> None:
        """Redirects mail where a rest has begun or ended, whoever has begun or ended it."""
        policy = self._shared.policy
        resting = {one for one in list(policy.unusable) if policy.stopped(SOURCE, one)} - policy.suspected
        for source in resting - self._resting:
            self._resting.add(source)
            self._redirect(source, False)
        for source in self._resting - resting:
            self._resting.discard(source)
            self._due.pop(source, None)
            if not policy.stopped(SOURCE, source):  # else an operator has stopped it meanwhile
                self._redirect(source, True)

    def _start(self, probe: SourceProbe) -> None:
        now = self._shared.now()
        for source in list(self._shared.policy.unusable):
            if self._due.setdefault(source, now + OTHERS_S) > now + PROBE_MAX_S:
                self._due[source] = now + PROBE_MAX_S  # the clock was set back
            if self._due[source] <= now and source not in self._tasks:
                self._tasks[source] = asyncio.ensure_future(self._look_at(probe, source))

    async def _look_at(self, probe: SourceProbe, source: str) -> None:
        """One probe."""
        cause, why = self._shared.policy.unusable[source].cause, ""
        try:
            route = _ROUTE.search(cause)
            for settings in self._settings(source):
                why = why or await probe(settings, route[1] if route else "")
        except Exception as error:
            log.exception("internal error while looking at source %s", source)
            why = f"internal error ({type(error).__name__}), see the log"
        finally:
            del self._tasks[source]
        if source not in self._shared.policy.unusable:
            return
        if why:
            self._failed_again(source, why)
        elif source in self._shared.policy.suspected:
            self._due.pop(source, None)
            self._shared.policy.trust(source)
            self._redirect(source, True)
        else:
            log.warning("source %s %s", source, BACK.removeprefix("it "))
            self._delays[source] = min(2 * self._delays.get(source, PROBE_S), PROBE_MAX_S)
            self._in_a_row.pop(source, None)
            self._shared.policy.lift(SOURCE, source, BACK)
            self.look()

    def _failed_again(self, source: str, why: str) -> None:
        if source in self._shared.policy.suspected:
            self._count(source, why, 0)
            return
        delay = self._delays[source] = min(2 * self._delays.get(source, OTHERS_S), PROBE_MAX_S)
        self._due[source] = self._shared.now() + delay

    def _settings(self, source: str) -> list[Source]:
        """Those of all pools that have it."""
        pools = [one for pool in self._shared.config.pools for one in pool.sources if one.address == source]
        return pools or [Source(address=source)]


def _is_lost(text: str) -> bool:
    """Whether this machine does not have the address or interface at all."""
    return text.startswith(_LOST) and NO_ROUTE not in text


_LOST = "cannot send from here"
"""What `SourceUnusable` says."""
