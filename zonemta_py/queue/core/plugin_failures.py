"""How often each plugin has failed lately, in all processes, as these report it: for status and metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

WINDOW_S = 300.0
METRIC = "zonemta_plugin_failures_total"


class PluginFailures:
    """Of this queue's process. now: monotonic seconds."""

    def __init__(self) -> None:
        self._by_plugin = dict[str, deque[tuple[float, float]]]()

    def note(self, plugin: str, count: float, now: float) -> None:
        self._by_plugin.setdefault(plugin, deque(maxlen=int(WINDOW_S) + 1)).append((now, count))

    def rows(self, now: float) -> Iterator[tuple[str, int]]:
        """Plugin, failures within WINDOW_S; of those that failed then."""
        for plugin, noted in list(self._by_plugin.items()):
            while noted and noted[0][0] < now - WINDOW_S:
                noted.popleft()
            if noted:
                yield plugin, round(sum(count for _, count in noted))
            else:
                del self._by_plugin[plugin]
