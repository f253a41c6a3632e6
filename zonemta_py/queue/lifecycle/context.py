"""What a queue is made of: the disk's two lines and the schedule (`core`), and the three that decide about mail."""

from __future__ import annotations

from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.queue.lifecycle.settle import Settling
from zonemta_py.queue.poison import PoisonMessages


class QueueContext:
    """Handed to whoever works on the queue as a whole: browse, doubt, orders, replay, upkeep."""

    def __init__(self, core: Core, first_lease: int) -> None:
        self.core = core
        self.acceptance = Acceptance(core)
        self.leases = Leases(core, first_lease)
        self.settling = Settling(core, self.leases, self.acceptance)
        self.campaigning = CampaignCommands(core)
        self.deaths = PoisonMessages(core.config.folder)
