"""Manners: what was learned about the SMTP dialogue with a site; kept across restarts, and for FORGOTTEN_S at most.

    recipients   so many recipients a message does it take (RFC 5321 4.5.3.1.10); no lease has more
    pipelining   a group of commands was not answered in time: it gets one at a time

Each is a STANDING record with its cause; operators see them (`rows`) and may clear them (`zonemta resume`). After
FORGOTTEN_S it is learned again, which costs one interrupted transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

from zonemta_py.schedule.policy.saved import Packed, Saved
from zonemta_py.schedule.policy.standing import LEARNED, Portions, Row, portions
from zonemta_py.schedule.time.pace import Pace

RECIPIENTS, PIPELINING = "recipients", "pipelining"
KINDS = (RECIPIENTS, PIPELINING)
FORGOTTEN_S = 7 * 86_400
MANNERS_MAX = 10_000


class Manner(NamedTuple):
    """value: recipients a message; of pipelining 0."""

    value: int
    since_ms: int
    cause: str


class Manners:
    """By kind and site (`known`). record: writes a change to the journal."""

    def __init__(self, now_ms: Callable[[], int], record: Callable[[list[Any]], None]) -> None:
        self._now_ms, self._record = now_ms, record
        self.known: OrderedDict[tuple[str, str], Manner] = OrderedDict()
        self._saved = Saved(self._state_of)

    def recipients(self, site: str, most: int) -> int:
        """How many may go together: `most`, or as few as the site takes."""
        found = self._of(RECIPIENTS, site)
        return most if found is None else max(1, min(most, found.value))

    def stepwise(self, site: str) -> bool:
        return self._of(PIPELINING, site) is not None

    def learn(self, site: str, recipients: int, stalled: bool, cause: str) -> None:
        """recipients: so many it takes; 0: nothing new. A lower known value stays."""
        if recipients and recipients < self.recipients(site, recipients + 1):
            self._change(RECIPIENTS, site, recipients, cause)
        if stalled and not self.stepwise(site):
            self._change(PIPELINING, site, 0, cause)

    def _of(self, kind: str, site: str) -> Manner | None:
        found = self.known.get((kind, site))
        if found is not None and found.since_ms + FORGOTTEN_S * 1000 <= self._now_ms():
            del self.known[kind, site]
            return None
        return found

    def _change(self, kind: str, site: str, value: int, cause: str) -> None:
        body = ["manner", [kind, site], [value, self._now_ms()], cause]
        self._record(body)
        self.apply(kind, site, body[2], cause)

    def knows(self, kind: str, site: str) -> bool:
        return self._of(kind, site) is not None

    def apply(self, kind: str, site: str, value: Any, cause: str) -> None:
        """Makes a record true. value: [value, since_ms]; None: it is forgotten."""
        if value is None:
            self.known.pop((kind, site), None)
        else:
            self.known[kind, site] = Manner(int(value[0]), int(value[1]), cause)
            if len(self.known) > MANNERS_MAX:
                self._saved.changed(self.known.popitem(last=False)[0])
        self._saved.changed((kind, site))

    async def gather(self, pace: Pace) -> None:
        """Prepares `state`, in portions."""
        await self._saved.gather(self.known, pace)

    def state(self) -> list[list[Any]] | Packed:
        """For position records."""
        return self._saved.rows(self.known)

    def _state_of(self, key: tuple[str, str]) -> list[Any] | None:
        found = self.known.get(key)
        return None if found is None else [*key, *found]

    def restore(self, state: list[list[Any]]) -> None:
        for kind, site, *manner in state:
            self.known[kind, site] = Manner(*manner)

    def rows(self, sites: Iterable[str] | None = None) -> Portions:
        """For people. sites: only theirs; others are not looked at."""
        return portions(list(self.known) if sites is None else list(product(KINDS, sites)), self._row)

    def _row(self, key: tuple[str, str]) -> Row | None:
        found = self._of(*key)
        if found is None:
            return None
        until_ms = found.since_ms + FORGOTTEN_S * 1000
        return {"kind": key[0], "name": key[1], "most": found.value, "cause": found.cause, "since_ms": found.since_ms,
                "until_ms": until_ms, "group": LEARNED}  # fmt: skip
