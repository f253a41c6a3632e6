"""What a queue is made of: the disk's two lines and the schedule (`core`), and the three that decide about mail."""

from __future__ import annotations

from zonemta_py.queue.accept import Acceptance
from zonemta_py.queue.campaigning import Campaigning
from zonemta_py.queue.core import Core
from zonemta_py.queue.lease import Leases
from zonemta_py.queue.making import Deaths
from zonemta_py.queue.settle import Settling


class Parts:
    """Handed to whoever works on the queue as a whole: browse, doubt, orders, replay, upkeep."""

    def __init__(self, core: Core, first_lease: int) -> None:
        self.core = core
        self.acceptance = Acceptance(core)
        self.leases = Leases(core, first_lease)
        self.settling = Settling(core, self.leases, self.acceptance)
        self.campaigning = Campaigning(core)
        self.deaths = Deaths(core.config.folder)
