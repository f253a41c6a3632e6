"""A ledger with a watch: nothing ends or goes before its time, nothing waits for ever, whatever the clock is set to.

All times here are those that really passed. A letter that is held comes after its hold, one that is put off until its
deadline is given up after that, neither much later; nobody else is given up; and no letter waits long that may go.
What is late is judged once the blows are over (`calm`): before, it is they that mail waits for. A delivery to many,
some of whom hang up, is in doubt and begun again at each. A wait that a clock set back has made is longer than that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from survival import mixture
from survival.clock import MachineClock
from survival.ledger import Ledger, failed
from survival.letters import Letter, name_in
from zonemta_py.sink.record import ReceivedMessage

LATE_S = 120.0
"""So long mail may take once nothing is killed any more, on a loaded machine."""
SLACK_S = 2.5
"""Steps of less than two seconds move what waits (`zonemta_py/schedule/time/steady.py`)."""
WAITS_S = {"never": float(mixture.DEADLINE_S), "wait": float(mixture.HOLD_S)}
"""By the first word of a recipient: its letter is given up, or comes, so long after it was handed in."""
PATIENT = ("@stopped.test", "@careful.test")
"""Domains whose mail waits for an operator."""


class Waits(Ledger):
    """clock: the MTA's. forbidden(since, at): whether mail handed in at the one moment must not come at the other."""

    def __init__(self, clock: MachineClock) -> None:
        super().__init__(mixture.again, mixture.REFUSED, mixture.SILENT)
        self._clock = clock
        self._opened: dict[str, float] = {}
        self._taken: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        """When each recipient's letter came, or the notification that none will."""
        self._given_up: list[str] = []
        self._calm = math.inf
        self._slowest_s = 0.0

    def calm(self) -> None:
        """Nothing is killed any more, and no clock is set."""
        self._calm = time.time()

    def open(self, letter: Letter) -> None:
        super().open(letter)
        self._opened[letter.name] = time.time()

    def acknowledge(self, letter: Letter) -> None:
        super().acknowledge(letter)
        self._taken[letter.name] = time.time()

    def arrived(self, message: ReceivedMessage) -> None:
        super().arrived(message)
        whom = message.recipients
        if not message.sender:
            whom = failed(message.body)
            self._given_up += [address for address in whom if not address.startswith(mixture.REFUSED)]
        for address in whom:
            self._ended.setdefault(address.lower(), message.time)

    def untimely(self) -> list[str]:
        """One line for each rule that was broken."""
        early, late = list[str](), list[str]()
        for address, ended in self._ended.items():
            name = name_in(address) or ""
            if name not in self._opened or address.startswith(mixture.SILENT):
                continue
            waits_s = WAITS_S.get(address.partition("-")[0], 0.0)
            opened, taken = self._opened[name], self._taken.get(name, ended)
            if ended < opened + waits_s - SLACK_S and not self._clock.was_off(opened, ended):
                early.append(f"{address} after {ended - opened:.1f} s")
            if not address.endswith(PATIENT):
                due = taken + waits_s
                self._slowest_s = max(self._slowest_s, ended - due)
                if ended > max(due, self._calm) + LATE_S:
                    late.append(f"{address} after {ended - taken:.1f} s")
        return [
            *_line("given up though nobody refused it", self._given_up),
            *_line("before its time", early),
            *_line("long after its time", late),
        ]

    def sent_while(self, forbidden: Callable[[float, float], bool], domain: str) -> list[str]:
        """Recipients in that domain whose letter was handed in and came in a time in which nothing may go there."""
        return [
            address
            for address, ended in self._ended.items()
            if address.endswith(domain) and forbidden(self._opened.get(name_in(address) or "", ended + 1), ended)
        ]

    def figures(self) -> dict[str, Any]:
        return {
            "held": sum(address.startswith("wait-") for address in self._ended),
            "slowest_s": round(self._slowest_s, 1),
        }


def _line(what: str, rows: list[str]) -> list[str]:
    return [f"{what}: {len(rows)} ({', '.join(rows[:5])})"] if rows else []
