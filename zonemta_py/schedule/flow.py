"""A flow: mail of one priority, tenant and campaign, which gets one share; and the names of flow queues.

A flow queue's name holds its site, its source address and its flow. It is in parked keys and in journal records, so
its format must not change.
"""

from __future__ import annotations

from typing import NamedTuple

_BETWEEN = "~"


class FlowId(NamedTuple):
    """A flow: the levels at which shares are divided. priority: MT-PRIORITY (RFC 6710)."""

    priority: int = 0
    tenant: str = ""
    campaign: str = ""

    def text(self) -> str:
        """As it stands in notes; "" for the usual one."""
        return "" if self == _USUAL else _BETWEEN.join((str(self.priority), self.tenant, self.campaign))

    @classmethod
    def of(cls, text: str) -> FlowId:
        if not text:
            return _USUAL
        priority, tenant, campaign = text.split(_BETWEEN)
        return cls(int(priority), tenant, campaign)


_USUAL = FlowId()
_USUAL_TEXT = "0~~"


def flow_queue_name(site: str, source: str, flow: str) -> str:
    """The name of a flow queue: in parked keys, and as the destination in journal records."""
    return _BETWEEN.join((site, source, flow or _USUAL_TEXT)) if source or flow else site


def split_key(key: str) -> tuple[str, str, str]:
    """Site, source and flow of a flow queue's name."""
    parts = key.rsplit(_BETWEEN, 4)
    if len(parts) < 5:
        return key, "", ""
    flow = _BETWEEN.join(parts[2:])
    return parts[0], parts[1], "" if flow == _USUAL_TEXT else flow
