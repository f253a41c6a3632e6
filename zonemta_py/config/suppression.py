"""What follows from replies, bounces and complaints: after how many of them a person gets no more mail."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from zonemta_py.config.section import Section
from zonemta_py.config.values import Tenant

GROUPS = ("unknown", "inactive", "full", "domain")
"""Keys of `Tolerances` that are about refusals."""


class Tolerance(Section):
    """How many refusals of one kind are borne."""

    agreed: int = Field(0, ge=0, le=10)
    after: int = Field(0, ge=0, le=10)
    within_days: float = Field(30, gt=0, le=90)
    over_days: float = Field(0, ge=0, le=90)


class Unknown(Tolerance):
    """Of addresses that do not exist."""

    agreed: int = Field(1, ge=0, le=10)
    after: int = Field(3, ge=0, le=10)


class Inactive(Unknown):
    """Of mailboxes that are disabled."""


class Full(Tolerance):
    """Of mailboxes that are full."""

    after: int = Field(5, ge=0, le=10)
    over_days: float = Field(10, ge=0, le=90)


class Domain(Tolerance):
    """Of domains that take no mail."""

    after: int = Field(3, ge=0, le=10)
    over_days: float = Field(7, ge=0, le=90)


class Tolerances(Section):
    """What a tenant may have otherwise."""

    automatic: bool = True
    """Whether replies and bounces put people on the suppression list, as hard-bounce; complaints and unsubscribes do
    anyway."""
    scope: Literal["all", "tenant"] = "all"
    """Which mail such an entry stops, and whose refusals count: of all mail, or of the tenant's only."""
    unknown: Unknown = Unknown.model_construct()
    """Refusals because the address does not exist or has moved (classes user-unknown, moved). agreed: so many are
    enough where code, text and stage agree; 0: they count as others. after: so many are enough, each of another message
    and on another day (UTC), all within `within_days`, the last `over_days` or more after the first; 0: never. A
    delivery clears what was refused before it."""
    inactive: Inactive = Inactive.model_construct()
    """The same because the mailbox is disabled or no longer used (classes inactive, suspended)."""
    full: Full = Full.model_construct()
    """The same because the mailbox is full (class mailbox-full)."""
    domain: Domain = Domain.model_construct()
    """The same because the domain does not exist or takes no mail (class host-unknown)."""

    def tolerance(self, group: str) -> Tolerance:
        """group: one of GROUPS."""
        return dict(zip(GROUPS, (self.unknown, self.inactive, self.full, self.domain), strict=True))[group]


class SuppressionSection(Tolerances):
    """When a person gets no more mail because of what was answered: decided by the queue itself, from replies and from
    bounces that come later. Refusals because of us (policy, spam, blocks, rates, network) never count."""

    guard_people: int = Field(20, ge=0, le=10_000)
    """If so many people are newly said not to exist by one provider to one source within `guard_within_s` …; 0: no
    guard."""
    guard_share: float = Field(0.1, ge=0, le=1)
    """… and they are at least this share of those about whom it has answered (within a day, where some of it came by
    mail), nobody is suppressed for that: the provider, or the list, is broken. It is shown (`zonemta status`, `zonemta
    standing`, the log, events) …"""
    guard_within_s: float = Field(60, gt=0, le=3600)
    """Seconds over which both are counted."""
    guard_calm_s: float = Field(900, gt=0, le=86_400)
    """… until that has been over for so long, or `zonemta suppression release` or `drop`. What was held back counts
    afterwards, but is never enough alone: it takes another refusal."""
    tenants: dict[Tenant, dict[str, Any]] = {}
    """[suppression.tenants.NAME]: other values for a tenant's mail: automatic, scope, and parts of unknown, inactive,
    full and domain, such as full = { after = 3 }."""

    @field_validator("tenants")
    @classmethod
    def _check_tenants(cls, values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, row in values.items():
            try:
                _merged(Tolerances(), row)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(str(part) for part in first["loc"])
                raise ValueError(f"tenants.{name}: {key}: {first['msg']}; correct or remove it") from None
        return values

    def of(self, tenant: str) -> Tolerances:
        """What holds for that tenant's mail."""
        row = self.tenants.get(tenant)
        return self if row is None else _of(self, tenant)

    def __hash__(self) -> int:
        return id(self)


@lru_cache(1_000)
def _of(section: SuppressionSection, tenant: str) -> Tolerances:
    return _merged(section, section.tenants[tenant])


def _merged(base: Tolerances, row: dict[str, Any]) -> Tolerances:
    """Raises ValidationError."""
    known = {name: getattr(base, name) for name in Tolerances.model_fields}
    dumped = {name: value.model_dump() if isinstance(value, Tolerance) else value for name, value in known.items()}
    for name, value in row.items():
        before = dumped.get(name)
        dumped[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return Tolerances.model_validate(dumped)
