"""What mail on its way in has to fit: a merged message its campaign, which supplies the values that it leaves open;
what is pushed a queue, which is made if there is none."""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Notify
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.campaigns import FAILURE, Campaigns
from zonemta_py.queue.core.core import Core
from zonemta_py.zones import pull


def admit(campaigns: Campaigns, envelope: Envelope) -> Reply | None:
    """Completes a merged envelope from its campaign's settings; returns why it is refused, or None. Doing it twice is
    harmless.

    Filled in if the envelope does not say: sender, tenant, priority, zone, size (then the template's), who notifies of
    bounces, and the lifetime.
    """
    name = envelope.campaign or ""
    campaign = campaigns.registered(name)
    if campaign is None:
        return _refused(f"there is no campaign {name!r}, create it first")
    if campaign.canceled_ms:
        return _canceled(name)
    if campaigns.over(campaign):
        return _refused(f"campaign {name!r} has ended")
    if envelope.tenant and not campaign.is_of(envelope.tenant):
        whose = f"the tenant {campaign.tenant!r}" if campaign.tenant else "no tenant"
        return _refused(f"campaign {name!r} is of {whose}, not of {envelope.tenant[:80]!r}; leave that out")
    columns = len(envelope.columns)
    if any(one.values is None or len(one.values) != columns for one in envelope.recipients):
        return _refused(f"every recipient needs {columns} values, one for each column")
    for name_ in campaign.times.columns if campaign.times else ():
        if name_ not in envelope.columns:
            return _refused(f"campaign {name!r} goes by the column {name_!r}, which this batch lacks; add it")
    envelope.sender = envelope.sender or campaign.sender
    envelope.tenant = envelope.tenant or campaign.tenant or None
    envelope.sending_zone = envelope.sending_zone or campaign.zone or None
    envelope.size = envelope.size or campaign.size
    if envelope.priority is None and campaign.priority:
        envelope.priority = campaign.priority
    if campaign.notify != FAILURE:
        for one in envelope.recipients:
            one.notify = one.notify or int(Notify.NEVER)
    envelope.life_h = envelope.life_h or campaign.life_h
    return None


def not_canceled(campaigns: Campaigns, envelope: Envelope) -> Reply | None:
    """Refuses new mail that names a canceled campaign; not that of another tenant, who uses the same name."""
    campaign = campaigns.get(envelope.campaign or "")
    return _canceled(campaign.name) if campaign.is_of(envelope.tenant or "") else None


def _canceled(name: str) -> Reply:
    return _refused(f"campaign {name!r} was canceled")


def source_refusal(config: Config, source: str, zones: set[str]) -> Reply | None:
    """Why mail of these zones cannot be sent from the source address that it asks for; None: it can."""
    for name in sorted(zones):
        zone = config.zone(name) or config.default_zone
        if source not in {one.address for one in config.sources(zone)}:
            return _refused(f"zone {name!r} does not send from {source}; use one of its source addresses")
    return None


def queue_of(core: Core, name: str) -> str:
    """The zone of a queue that something is pushed to, made if need be. Raises QueueRefusal."""
    config, schedule = core.config, core.schedule
    name = name.removeprefix(pull.PREFIX)
    zone = pull.zone_of(config, name)
    if schedule.pull_zone(zone) is not None:
        return zone
    if not pull.is_made(zone):
        raise QueueRefusal(_refused(f"{name!r} is no name of a queue; use letters, digits, and . _ - within"))
    if not config.pull.create:
        raise QueueRefusal(_refused(f"there is no queue {name!r}; add it as a zone with delivery = 'pull'"))
    for _ in range(2):
        if sum(map(pull.is_made, schedule.zones)) < config.pull.queues_max:
            schedule.make(zone)
            return zone
        core.forget_queues()
    raise QueueRefusal(Reply(452, "4.5.3", f"all {config.pull.queues_max} queues of pull.queues_max hold messages"))


def _refused(sentence: str) -> Reply:
    return Reply(554, "5.5.0", sentence)
