"""A flow: mail of one priority, tenant and campaign, which gets one share; and the names of flow queues.

A flow queue's name holds its site, its source address and its flow, and before the site what keeps its mail apart from
other mail to that site, if anything does: "@example.com>mx.example.net". It is in parked keys and in journal records,
so its format must not change.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_BETWEEN = "~"
_APART = ">"
STOPPED = "@"
"""Before a domain: its mail is apart because it is stopped."""
LEAVING = "="
"""Before a zone: its mail is apart because it goes on there at once, by a reroute."""


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


@lru_cache(10_000)
def flow_text(priority: int, tenant: str, campaign: str) -> str:
    """As `FlowId.text`, remembered: every message asks."""
    return FlowId(priority, tenant, campaign).text()


_USUAL = FlowId()
_USUAL_TEXT = "0~~"


def place_of(site: str, apart: str) -> str:
    """The name of an egress path's place: its site, and what keeps it apart from others to that site."""
    return f"{apart}{_APART}{site}" if apart else site


def flow_queue_name(place: str, source: str, flow: str) -> str:
    """The name of a flow queue: in parked keys, and as the destination in journal records."""
    return _BETWEEN.join((place, source, flow or _USUAL_TEXT)) if source or flow else place


def split_key(key: str) -> tuple[str, str, str]:
    """Site, source and flow of a flow queue's name."""
    parts = key.rsplit(_BETWEEN, 4)
    if len(parts) < 5:
        return _split_place(key)[1], "", ""
    flow = _BETWEEN.join(parts[2:])
    return _split_place(parts[0])[1], parts[1], "" if flow == _USUAL_TEXT else flow


def apart_of(key: str) -> str:
    """What keeps a flow queue's mail apart, from its name; "" if nothing does."""
    return _split_place(key)[0] if _APART in key else ""


def _split_place(place: str) -> tuple[str, str]:
    if _APART not in place or place.startswith("/"):  # the path of a unix socket
        return "", place
    apart, _, site = place.partition(_APART)
    return apart, site
