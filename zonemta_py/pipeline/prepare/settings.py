"""What a plan is made with. Everything here is part of its digest: the same settings and list give the same plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

CHUNK_RECIPIENTS = 500
CHUNK_RECIPIENTS_MAX = 1_000
CHUNK_BYTES = 4 * 1024 * 1024
"""Mean size of a request's recipients; the node takes twice that."""
FIELDS_MAX = 62


class PlanRefused(ValueError):
    """The list, the settings or an earlier plan forbids it; one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A way out. zone: "" for the node's own routing. source: local address, "" for the zone's own choice."""

    zone: str = ""
    source: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Cap:
    """Warm-up: how many recipients of a provider a source may have on each day; the last number repeats."""

    source: str
    provider: str
    per_day: tuple[int, ...]

    def on(self, day: int) -> int:
        return self.per_day[min(day, len(self.per_day) - 1)]


@dataclass(frozen=True, slots=True)
class BestHour:
    """Each goes at their own hour. zone_field: which field has a recipient's time zone, "" for none; zones: its values
    → IANA names; zone: the time zone of all others."""

    zone_field: str = ""
    zones: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Settings:
    """email: the list's column with the address. fields: name in the template → column of the list.

    where: SQL over the list's columns. days: how many there are for what the caps leave over; 1: it is left out. room:
    as caps, where these say nothing: from the nodes, as it is today.
    recent_days: who opened within so many days before as_of ("2026-05-01") comes first; engaged_only: others are out.
    canary: share that goes first (0 to 1); with variants it is theirs, in equal parts: campaigns of their own, named
    after them. providers: recipient domain → provider, as in config/providers.toml. without: campaigns; whom they
    have reached is left out. follows: campaigns; it goes only to those who got one and have not done what
    `unless` says ("opened", "clicked").
    """

    campaign: str
    email: str = "email"
    fields: Mapping[str, str] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = (Lane(),)
    caps: tuple[Cap, ...] = ()
    room: tuple[Cap, ...] = ()
    days: int = 1
    drop_roles: bool = False
    keep_reserved: bool = False
    where: str = ""
    recent_days: int = 0
    as_of: str = ""
    engaged_only: bool = False
    canary: float = 0.0
    variants: tuple[str, ...] = ()
    chunk: int = CHUNK_RECIPIENTS
    multiline: bool = False
    best: BestHour | None = None
    providers: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    unless: str = ""

    def __post_init__(self) -> None:
        """Raises PlanRefused."""
        if len(self.fields) > FIELDS_MAX:
            raise PlanRefused(f"the template has {len(self.fields)} fields; use {FIELDS_MAX} at most")
        if not 1 <= self.chunk <= CHUNK_RECIPIENTS_MAX // 2:
            raise PlanRefused(
                f"--chunk: {self.chunk} recipients per request are not possible; give 1 to {CHUNK_RECIPIENTS_MAX // 2}"
            )
        if not 0 <= self.canary < 1:
            raise PlanRefused(f"--canary: {self.canary:.0%} leaves nothing to send after it; give less than 100%")
        if self.variants and not self.canary:
            raise PlanRefused("--share: variants need some to be tried on; give more than 0%")
        if not self.lanes or any(lane.weight <= 0 for lane in self.lanes):
            raise PlanRefused("every zone and source needs a weight above 0")

    @property
    def all_caps(self) -> tuple[Cap, ...]:
        """Those that were given, and the nodes' own."""
        return self.caps + self.room

    def campaign_of(self, canary: bool, number: int) -> str:
        """Which campaign the `number`-th chunk of a group is of."""
        if not (canary and self.variants):
            return self.campaign
        return variant_name(self.campaign, self.variants[number % len(self.variants)])

    def digest(self) -> str:
        """SHA-256 in hex; as_of, and the nodes' room, are left out, since they change daily."""
        values = asdict(self)
        del values["as_of"], values["room"]
        if not self.variants:  # as in plans of earlier versions
            del values["variants"]
        if not self.without:
            del values["without"]
        if not self.follows:
            del values["follows"], values["unless"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def variant_name(campaign: str, variant: str) -> str:
    """The campaign that a variant is."""
    return f"{campaign}.{variant}"
