"""The history of a campaign: how many recipients waited and were delivered over time; its rate, and the estimated end.

The number of points is limited: when it is reached, every second one is dropped and the interval doubled. The rate is
that of the last two minutes, and not kept over a restart.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from zonemta_py.queue.core.campaign_counters import CampaignCounts

POINTS_MAX = 240
RATE_MS = 120_000
_FIRST_MS = 1_000


class CampaignHistory:
    """Of one campaign. points: [[ms, waiting, delivered] …]. dirty: some points have not been saved."""

    def __init__(self, saved: list[Any] | None = None) -> None:
        self.points: list[list[int]] = saved[1] if saved else []
        self._every_ms: int = saved[0] if saved else _FIRST_MS
        self._recent: deque[tuple[int, int]] = deque()
        self.dirty = False
        self.saved_ms = 0

    @classmethod
    def begun(cls, ms: int) -> CampaignHistory:
        """For a campaign that began at `ms` with nothing waiting."""
        return cls([_FIRST_MS, [[ms, 0, 0]]])

    def look(self, now_ms: int, tally: CampaignCounts) -> None:
        """Called about every second."""
        self._recent.append((now_ms, tally.ended))
        while self._recent[0][0] < now_ms - RATE_MS:
            self._recent.popleft()
        if self.points and now_ms - self.points[-1][0] < self._every_ms:
            return
        if self.points and self.points[-1][1:] == [tally.waiting, tally.delivered] and self._flat():
            self.points[-1][0] = now_ms  # nothing changed: two points are enough
            return
        self.points.append([now_ms, tally.waiting, tally.delivered])
        self.dirty = True
        if len(self.points) >= POINTS_MAX:
            self.points = self.points[::2]
            self._every_ms *= 2

    def _flat(self) -> bool:
        return len(self.points) > 1 and self.points[-1][1:] == self.points[-2][1:]

    def rate_per_s(self, now_ms: int, tally: CampaignCounts) -> float:
        """Recipients ended per second."""
        if not self._recent:
            return 0.0
        since_ms, ended = self._recent[0]
        return 1000 * (tally.ended - ended) / (now_ms - since_ms) if now_ms > since_ms else 0.0

    def saved(self) -> list[Any]:
        """The points to save, as `CampaignHistory(…)` takes them."""
        return [self._every_ms, self.points]
