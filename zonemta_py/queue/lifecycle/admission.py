"""Merged messages on their way in: their campaign supplies the values that they leave open, or refuses them."""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Notify
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.campaigns import FAILURE, Campaigns


def admit(campaigns: Campaigns, envelope: Envelope) -> Reply | None:
    """Completes a merged envelope from its campaign's settings; returns why it is refused, or None. Doing it twice is
    harmless.

    Filled in if the envelope does not say: sender, tenant, priority, zone, size (then the template's), who notifies of
    bounces, and the lifetime.
    """
    name = envelope.campaign or ""
    campaign = campaigns.by_name.get(name)
    if campaign is None:
        return _refused(f"there is no campaign {name!r}, create it first")
    if campaign.canceled_ms:
        return canceled(name)
    if campaigns.over(campaign):
        return _refused(f"campaign {name!r} has ended")
    columns = len(envelope.columns)
    if any(one.values is None or len(one.values) != columns for one in envelope.recipients):
        return _refused(f"every recipient needs {columns} values, one for each column")
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


def canceled(name: str) -> Reply:
    """Refuses new mail of a canceled campaign."""
    return _refused(f"campaign {name!r} was canceled")


def source_refusal(config: Config, source: str, zones: set[str]) -> Reply | None:
    """Why mail of these zones cannot be sent from the source address that it asks for; None: it can."""
    for name in sorted(zones):
        zone = config.zone(name) or config.default_zone
        if source not in {one.address for one in config.sources(zone)}:
            return _refused(f"zone {name!r} does not send from {source}; use one of its source addresses")
    return None


def _refused(sentence: str) -> Reply:
    return Reply(554, "5.5.0", sentence)
