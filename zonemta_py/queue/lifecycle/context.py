"""What a queue is made of: the lines to both disks and the schedule (`core`), and the parts that decide about mail."""

from __future__ import annotations

from zonemta_py.queue.api import Supervising
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.plugin_store import PluginStore
from zonemta_py.queue.core.sender_domains import SenderDomains
from zonemta_py.queue.feedback.register import FeedbackRegister
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.queue.lifecycle.lost import DamagedMessages
from zonemta_py.queue.lifecycle.settle import Settling
from zonemta_py.queue.poison import PoisonMessages
from zonemta_py.queue.suppression.policy import SuppressionPolicy
from zonemta_py.queue.suppression.register import SuppressionList


class QueueContext:
    """For the parts that work on the queue as a whole: recovery, answers, orders, maintenance."""

    def __init__(self, core: Core, first_lease: int) -> None:
        self.core = core
        self.suppression = SuppressionList(core)
        self.policy = SuppressionPolicy(core, self.suppression)
        self.damaged = DamagedMessages(core)
        self.acceptance = Acceptance(core, self.suppression)
        self.leases = Leases(core, first_lease, self.suppression, self.damaged)
        self.settling = Settling(core, self.leases, self.acceptance, self.policy)
        self.feedback_register = FeedbackRegister(core, self.settling.classification.quoted, self.policy)
        self.plugin_store = PluginStore(core)
        self.sender_domains = SenderDomains(core)
        self.poison = PoisonMessages(core.config.folder)
        self.generation = 0
        """Of the configuration; each reload begins one."""
        self.configuration = 0
        """Its number in the history, over all starts; 0: it is not noted yet, or could not be."""
        self.remarks: list[str] = []
        """What the last configuration that was looked at leaves without effect."""
        self.supervisor: Supervising | None = None
        """None: nobody has started this process."""
        self.ends_at: float | None = None
        """When a drain cuts off what has not ended, by the loop's time."""
