"""What the queue counts: recipients by state, messages, what accounts have used, and what metrics show.

Sizes, quotas and what was sent are written in the batch that changes them; the rest is of this process alone.
"""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.metrics.meter import Meter
from zonemta_py.metrics.rates import DestinationRates, Rates
from zonemta_py.queue.core.plugin_failures import PluginFailures
from zonemta_py.queue.core.sent import Sent
from zonemta_py.queue.core.sizes import Sizes
from zonemta_py.queue.core.sums.quotas import Quotas
from zonemta_py.queue.core.sums.sessions import SessionQuotas
from zonemta_py.schedule.time.steady import Steady


class QueueCounters:
    """The counters of one queue; those of campaigns are in `Campaigns`. messages: how many, and their bytes."""

    def __init__(self, store: Store, config: Config, clock: Steady, messages: tuple[int, int]) -> None:
        self.message_count, self.message_bytes = messages
        self.sizes = Sizes(store)
        self.sent = Sent(store, config)
        self.quotas = Quotas(store, config, clock)
        self.sessions = SessionQuotas(config)
        self.meter = Meter()
        self.rates, self.destinations = Rates(self.meter), DestinationRates()
        self.plugin_failures = PluginFailures()
        self.providers: set[str] = set()
        """Those that have a label of their own in metrics."""

    def configure(self, config: Config) -> None:
        """Other accounts and settings from now on."""
        self.sent.configure(config)
        self.quotas.configure(config)
        self.sessions.configure(config)
