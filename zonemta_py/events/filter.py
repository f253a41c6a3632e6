"""Which events somebody wants: by type, zone, domain, campaign, tenant, message and recipient. Pure.

Of the values given for one name any may match, and all names must. An event that lacks what is asked for is left out:
`finished` has no zone. The tenant "" means mail of no tenant: what says whose mail it is, and names none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from zonemta_py.events.event import TYPE_PREFIX, Event
from zonemta_py.events.schema import TYPES

_OF_MAIL = frozenset((
    "accepted", "queued", "attempted", "delivered", "deferred", "bounced", "expired", "held", "postponed", "in_doubt",
    "released", "deleted",
))  # fmt: skip
"""Types that name the tenant of the mail, if it has one."""


class EventFilter(NamedTuple):
    """Empty: everything. Domains and recipients are in lower case; a domain may be *.example.com."""

    types: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    campaigns: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()
    recipients: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, types: Iterable[str] = (), zones: Iterable[str] = (), domains: Iterable[str] = (),
        campaigns: Iterable[str] = (), tenants: Iterable[str] = (), messages: Iterable[str] = (),
        recipients: Iterable[str] = (),
    ) -> EventFilter:  # fmt: skip
        """Raises ValueError for an unknown type: one sentence."""
        return cls(
            frozenset(map(checked_type, types)), frozenset(zones), _lower(domains), frozenset(campaigns),
            frozenset(tenants), frozenset(messages), _lower(recipients),
        )  # fmt: skip

    def wants(self, event: Event) -> bool:
        if self.types and event.type not in self.types:
            return False
        return self == _ALL or self._has(event.type, event.data)

    def _has(self, kind: str, data: dict[str, Any]) -> bool:
        get = data.get
        return (
            (not self.zones or get("zone") in self.zones or not self.zones.isdisjoint(get("zones") or ()))
            and (not self.domains or _covered(get("domain"), self.domains))
            and (not self.campaigns or get("campaign") in self.campaigns)
            and (not self.tenants or self._is_of(kind, get("tenant")))
            and (not self.messages or get("message") in self.messages)
            and (not self.recipients or str(get("recipient", "")).lower() in self.recipients)
        )

    def _is_of(self, kind: str, tenant: str | None) -> bool:
        return tenant in self.tenants if tenant else "" in self.tenants and kind in _OF_MAIL


_ALL = EventFilter()


def _covered(domain: str | None, wanted: frozenset[str]) -> bool:
    """*.example.com covers all below it."""
    if domain is None or domain in wanted:
        return domain is not None
    parts = domain.split(".")
    return any("*." + ".".join(parts[start:]) in wanted for start in range(1, len(parts)))


def checked_type(name: str) -> str:
    """The type without its prefix. Raises ValueError: one sentence."""
    bare = name.strip().lower().removeprefix(TYPE_PREFIX).replace("-", "_")
    if bare not in TYPES:
        raise ValueError(f"there is no type of event {name[:80]!a}; there are {', '.join(TYPES)}")
    return bare


def _lower(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text.lower() for text in texts)
