"""How many connections a destination takes: a window that replies open and close.

The scheme is the one described in Postfix's SCHEDULER_README ("less-than-1 feedback with hysteresis"). Deliveries that
run at the same time are a cohort. A success adds success / window, a failure takes failure / window away, so that one
whole cohort moves the window by one; the window follows only whole steps, downwards at the first failure after a growth
(or at first) and then once for each whole cohort, so that single failures among successes do not make it swing. When
`dead_after` whole cohorts have failed with no success between them, the destination is dead: the caller rests it and
lets one probe through; the first success opens the window to its initial size.

Only failures of the connection or of the whole session belong here (no banner, 421, a lost connection), never a reply
about one message or recipient.
"""

from __future__ import annotations

from typing import Any

from zonemta_py.config import Learning

_NEARLY = 1e-9
"""Three thirds are one."""


class Concurrency:
    """The window of one destination. most: its upper bound. window: connections at once, 1 or more. dead: see above.

    cause: why it last changed, in words; "" while it never did.
    """

    __slots__ = ("_cohorts", "_failure", "_initial", "_learning", "_success", "cause", "dead", "most", "window")

    def __init__(self, learning: Learning, most: int) -> None:
        self._learning = learning
        self.most = max(1, most)
        self._initial = min(learning.initial, self.most)
        self.window = self._initial
        self.dead = False
        self.cause = ""
        self._success = self._failure = self._cohorts = 0.0

    def configure(self, learning: Learning, most: int) -> None:
        """Other settings from now on; what was learned stays, within the new bound."""
        fresh, self._learning, self.most = not self.learnt, learning, max(1, most)
        self._initial = min(learning.initial, self.most)
        self.window = self._initial if fresh else min(self.window, self.most)

    @property
    def learnt(self) -> bool:
        """Whether it differs from a new one, and so is worth keeping."""
        return self.dead or self.window != self._initial or self._failure != 0 or self._success != 0

    def succeeded(self, busy: int | None = None) -> bool:
        """A delivery went well; True if the window changed.

        busy: connections in use; the window grows no further than what is used and the initial size above it.
        """
        self._cohorts = 0.0
        if self.dead:
            self.clear("a success after the rest")
            return True
        if self.window >= self.most or (busy is not None and self.window >= busy + self._initial):
            return False
        before = self.window
        self._success += self._learning.success / before
        while self._success + _NEARLY >= 1:
            self._success -= 1
            self._failure = 0.0
            self.window = min(self.window + 1, self.most)
        self._note(before, "successes")
        return self.window != before

    def failed(self, cause: str = "failures") -> bool:
        """A connection or session failed; True if the destination is dead now, also while it stays so."""
        if self.dead:
            return True
        before = self.window
        self._cohorts += 1 / before
        if self._cohorts + _NEARLY >= self._learning.dead_after:
            self.dead, self.window = True, 1
            self.cause = f"dead, {before} at once failed {self._learning.dead_after} times over: {cause}"
            return True
        self._failure -= self._learning.failure / before
        while self._failure < -_NEARLY:
            self._failure += 1
            self._success = 0.0
            self.window = max(1, self.window - 1)
        self._note(before, cause)
        return False

    def clear(self, cause: str) -> None:
        """Forgets what was learned."""
        before, self.window, self.dead = self.window, self._initial, False
        self._success = self._failure = self._cohorts = 0.0
        self.cause = f"{before} → {self.window}: {cause}"

    def state(self) -> list[Any]:
        return [self.window, self._success, self._failure, self._cohorts, self.dead, self.cause]

    def restore(self, state: list[Any]) -> None:
        """Takes over `state()`, within the bound of today."""
        window, self._success, self._failure, self._cohorts, self.dead, self.cause = state
        self.window = max(1, min(window, self.most))

    def _note(self, before: int, cause: str) -> None:
        if self.window != before:
            self.cause = f"{before} → {self.window}: {cause}"
