"""Events over time: a line of JSON for each event, and counts by second, for tests of rates and limits.

    {"t":81234.120101,"kind":"connect","client":"127.1.0.1","connection":7,"server":"127.0.0.1"}
    {"t":81234.123456,"kind":"message","client":"127.1.0.1","connection":7,"bytes":5120,"domains":{"one.test":2}}
    {"t":81234.123501,"kind":"refused","client":"127.1.0.1","connection":7}

kind: connect, close, message (accepted), refused (above the rate). t: seconds of the monotonic clock, which all
processes of a machine share. connection: its number; server: the address that the client connected to. `depth` says
from such times how far a rate was exceeded in any window.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from typing import TextIO

SECONDS_KEPT = 86_400
"""Older counts are dropped: a sink may run for ever."""

Counts = dict[str, dict[str, int]]
"""Of one second: "clients" and "domains" (recipients) → accepted; "refused" → by client."""


class Timeline:
    """seconds: UNIX second → its counts, if they are wanted. log: gets the lines, if anybody reads them."""

    def __init__(self, log: TextIO | None, per_second: bool) -> None:
        self.seconds: dict[int, Counts] = {}
        self._log, self._per_second = log, per_second

    def connection(self, kind: str, client: str, number: int, server: str = "") -> None:
        if self._log is not None:
            self._write(kind, client, number, f',"server":{_quoted(server)}' if server else "")

    def message(self, client: str, number: int, recipients: list[str], size: int) -> None:
        domains: dict[str, int] = {}
        for address in recipients:
            domain = address[address.rfind("@") + 1 :].lower()
            domains[domain] = domains.get(domain, 0) + 1
        if self._per_second:
            counts = self._now()
            counts["clients"][client] = counts["clients"].get(client, 0) + 1
            for domain, count in domains.items():
                counts["domains"][domain] = counts["domains"].get(domain, 0) + count
        if self._log is not None:
            named = ",".join([f"{_quoted(domain)}:{count}" for domain, count in domains.items()])
            self._write("message", client, number, f',"bytes":{size},"domains":{{{named}}}')

    def refused(self, client: str, number: int) -> None:
        if self._per_second:
            counts = self._now()["refused"]
            counts[client] = counts.get(client, 0) + 1
        if self._log is not None:
            self._write("refused", client, number)

    def _write(self, kind: str, client: str, number: int, more: str = "") -> None:
        assert self._log is not None
        who = f'"client":{_quoted(client)},"connection":{number}'
        self._log.write(f'{{"t":{time.monotonic():.6f},"kind":"{kind}",{who}{more}}}\n')

    def _now(self) -> Counts:
        second = int(time.time())
        counts = self.seconds.get(second)
        if counts is None:
            if len(self.seconds) >= SECONDS_KEPT:
                del self.seconds[next(iter(self.seconds))]
            counts = self.seconds[second] = {"clients": {}, "domains": {}, "refused": {}}
        return counts


_quoted = lru_cache(maxsize=10_000)(json.dumps)


def depth(times: Iterable[float], rate: float, costs: Iterable[float] | None = None) -> float:
    """The most by which events exceed rate × seconds in any window: the burst that a token bucket needs to pass them.

    times: ascending seconds. rate: events per second. A limit was kept if this is no more than its burst. costs: what
    each event counts (recipients, bytes …), in the unit of the rate; 1 each if not said.
    """
    level = deepest = last = 0.0
    for now, cost in zip(times, repeat(1.0) if costs is None else costs, strict=False):
        level = max(level - rate * (now - last), 0.0) + cost
        last, deepest = now, max(deepest, level)
    return deepest
