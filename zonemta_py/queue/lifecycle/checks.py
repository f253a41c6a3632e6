"""Check: whether a message is taken, and for which zones. Nothing is stored, and checking twice is harmless.

A merged message gets from its campaign what it leaves open; a queue that something is pushed to is made if there is
none. Failures: QueueRefusal with the client's reply.
"""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Notify
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.campaigns import FAILURE
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.suppression.register import SuppressionList
from zonemta_py.zones import pull

NO_RECIPIENTS = Reply(554, "5.5.1", "no valid recipients")
BEHIND = Reply(451, "4.3.0", "the queue does not know all orders yet; try again in a moment")


def routes(core: Core, envelope: Envelope) -> list[Routed]:
    """Each recipient's zone, by the rules of the configuration; of what is pushed, the queue. Before that, whether its
    campaign takes it."""
    if not envelope.recipients:
        raise QueueRefusal(NO_RECIPIENTS)
    if core.membership is not None and (elsewhere := core.membership.refusal(envelope)) is not None:
        raise QueueRefusal(elsewhere)
    name = envelope.campaign
    if envelope.merged:
        _complete(core, envelope)
    elif name and name in core.campaigns.canceled and envelope.protocol != "LOCAL":
        canceled = core.campaigns.by_name.get(name)
        if canceled is not None and canceled.is_of(envelope.tenant or ""):  # another tenant may use the same name
            raise _refused(f"campaign {name!r} was canceled")
    route, sender, origin, wish = core.router.route, envelope.sender, envelope.origin, envelope.sending_zone
    if envelope.protocol == pull.PUSHED:
        return [Routed(recipient, _queue_of(core, wish or "")) for recipient in envelope.recipients]
    recipients = envelope.recipients
    if len(recipients) > 1:  # a recipient named twice has one key, and counts once
        recipients = list({recipient.address: recipient for recipient in recipients}.values())
    fields = envelope.headers
    routing = {"source": envelope.source} if envelope.source else None
    zones: dict[str, str] = {}  # by domain, which is all of a recipient that decides
    routed = list[Routed]()
    for recipient in recipients:
        domain = recipient.address[recipient.address.rfind("@") + 1 :]
        try:
            zone = zones[domain]
        except KeyError:
            zone = zones[domain] = route(sender, recipient.address, origin, wish, fields).zone
        routed.append(Routed(recipient, zone, routing))
    return routed


def after_routing(
    core: Core, suppression: SuppressionList, envelope: Envelope, routed: list[Routed]
) -> dict[str, str]:  # fmt: skip
    """Source address and quotas. Returns the recipients on the suppression list, with kind and scope of their entry."""
    if envelope.source:
        _source(core.config, envelope.source, {row.zone for row in routed})
    suppressed = suppression.suppressed_by(envelope, routed)
    if envelope.account and len(routed) > len(suppressed):
        reply = core.counters.quotas.refusal(envelope.account, len(routed) - len(suppressed))
        if reply is not None:
            raise QueueRefusal(reply)
    return suppressed


def _complete(core: Core, envelope: Envelope) -> None:
    """Completes a merged envelope from its campaign's settings.

    Filled in if the envelope does not say: sender, tenant, priority, zone, size (then the template's), who notifies of
    bounces, and the lifetime.
    """
    name, campaigns = envelope.campaign or "", core.campaigns
    campaign = campaigns.registered(name)
    if campaign is None and core.membership is not None and not core.membership.may_lease():
        raise QueueRefusal(BEHIND)
    if campaign is None:
        raise _refused(f"there is no campaign {name!r}, create it first")
    if campaign.canceled_ms:
        raise _refused(f"campaign {name!r} was canceled")
    if campaigns.over(campaign):
        raise _refused(f"campaign {name!r} has ended")
    if envelope.tenant and not campaign.is_of(envelope.tenant):
        whose = f"the tenant {campaign.tenant!r}" if campaign.tenant else "no tenant"
        raise _refused(f"campaign {name!r} is of {whose}, not of {envelope.tenant[:80]!r}; leave that out")
    columns = len(envelope.columns)
    if any(one.values is None or len(one.values) != columns for one in envelope.recipients):
        raise _refused(f"every recipient needs {columns} values, one for each column")
    for name_ in campaign.times.columns if campaign.times else ():
        if name_ not in envelope.columns:
            raise _refused(f"campaign {name!r} goes by the column {name_!r}, which this batch lacks; add it")
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


def _source(config: Config, source: str, zones: set[str]) -> None:
    """Whether mail of these zones can be sent from the source address that it asks for."""
    for name in sorted(zones):
        zone = config.zone(name) or config.default_zone
        if source not in {one.address for one in config.sources(zone)}:
            raise _refused(f"zone {name!r} does not send from {source}; use one of its source addresses")


def _queue_of(core: Core, name: str) -> str:
    """The zone of a queue that something is pushed to, made if need be."""
    config, schedule = core.config, core.schedule
    name = name.removeprefix(pull.PREFIX)
    zone = pull.zone_of(config, name)
    if schedule.pull_zone(zone) is not None:
        return zone
    if not pull.is_made(zone):
        raise _refused(f"{name!r} is no name of a queue; use letters, digits, and . _ - within")
    if not config.pull.create:
        raise _refused(f"there is no queue {name!r}; add it as a zone with delivery = 'pull'")
    for _ in range(2):
        if sum(map(pull.is_made, schedule.zones)) < config.pull.queues_max:
            schedule.make(zone)
            return zone
        core.forget_queues()
    raise QueueRefusal(Reply(452, "4.5.3", f"all {config.pull.queues_max} queues of pull.queues_max hold messages"))


def _refused(sentence: str) -> QueueRefusal:
    return QueueRefusal(Reply(554, "5.5.0", sentence))
