"""The TLS ladder: verified or not, 1.3, then 1.2, then plain text, as far down as the plan allows; and what is
remembered.

For a host that cannot do TLS 1.3, or any TLS, the ladder starts at the step that worked last time, until
`tls.remember_h` has passed; then from the top again. What is remembered belongs to the host, not to a plan: a plan that
requires more starts at its own top.

Pure: the clock is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from zonemta_py.delivery.tls.failures import CERTIFICATE, HANDSHAKE, STARTTLS, TlsTrouble
from zonemta_py.delivery.tls.plan import TlsPlan

HOSTS_MAX = 10_000

_VERIFY = "verify"
"""What a host may be unable to do: a TLS version, or show a valid certificate."""

Place = tuple[str, int]
"""Host and port."""


class Step(NamedTuple):
    """version: the newest offered, "" for plain text. verify: "none", "pkix", "mta-sts", "dane"."""

    version: str
    verify: str = "none"


PLAIN = Step("")


class TlsMemory:
    """What hosts are known not to support; the oldest entry is evicted first."""

    def __init__(self, remember_s: float) -> None:
        self._remember_s = remember_s
        self._known: OrderedDict[Place, tuple[float, frozenset[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def cannot(self, place: Place, now: float) -> frozenset[str]:
        known = self._known.get(place)
        if known is None:
            return frozenset()
        if known[0] <= now:
            del self._known[place]
            return frozenset()
        return known[1]

    def learn(self, place: Place, cannot: frozenset[str], now: float) -> None:
        """Records the features that had to be left out until a connection worked."""
        if not self._remember_s:
            return
        self._known[place] = (now + self._remember_s, cannot)
        self._known.move_to_end(place)
        if len(self._known) > HOSTS_MAX:
            self._known.popitem(last=False)


class Ladder:
    """One sequence of tries. step: what to try now."""

    def __init__(self, plan: TlsPlan, memory: TlsMemory, place: Place, now: float) -> None:
        self._memory, self._place, self._now = memory, place, now
        self._steps = _steps(plan)
        self._before = memory.cannot(place, now)
        self._cannot = set(self._before)
        if not self._next():
            self._cannot = set()
            self._next()

    @property
    def step(self) -> Step:
        return self._steps[0]

    def failed(self, trouble: TlsTrouble) -> bool:
        """Whether there is another step to try; `step` is then that one."""
        step = self._steps.pop(0)
        if trouble.kind == STARTTLS:
            self._cannot |= {"1.3", "1.2"}
        elif trouble.kind == HANDSHAKE:
            self._cannot.add(step.version)
        elif trouble.kind == CERTIFICATE and step.verify != "none":
            self._cannot.add(_VERIFY)
        else:
            return False
        return self._next()

    def worked(self) -> None:
        if self._cannot and self._cannot != self._before:
            self._memory.learn(self._place, frozenset(self._cannot), self._now)

    def _next(self) -> bool:
        """Moves to the next step that needs nothing the host lacks; False if there is none left."""
        left = [step for step in self._steps if not self._asks_too_much(step)]
        if left:
            self._steps = left
        return bool(left)

    def _asks_too_much(self, step: Step) -> bool:
        return step.version in self._cannot or (step.verify != "none" and _VERIFY in self._cannot)


def _steps(plan: TlsPlan) -> list[Step]:
    if plan.mode == "none":
        return [PLAIN]
    versions = ("1.3",) if plan.least == "1.3" else ("1.3", "1.2")
    steps = [Step(version, plan.verify) for version in versions]
    if plan.soft:
        steps += [Step(version) for version in versions]
    return [*steps, PLAIN] if plan.mode == "opportunistic" else steps
