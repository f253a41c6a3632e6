"""What operators' questions are answered with where that is not an answer of the queue (`queue/questions/`)."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from zonemta_py.queue import questions

MOST = 1_000
PAIRS_MAX = 1_000


class Status(TypedDict):
    version: str
    hostname: str
    problems: list[str]
    """Why no mail should come now, as /v1/ready says it; empty: it may come."""
    total: questions.Total
    rates: dict[str, Any]
    """What happens a second, over the last minute."""


class NodeIdentity(TypedDict):
    cluster: str
    """Its name; empty: this MTA is no node of one."""
    id: str
    """The cluster's own: two may have one name. Empty: as above."""
    node: str


class ZoneRow(TypedDict):
    name: str
    default: bool
    delivery: Literal["smtp", "pull"]
    host: str
    """The smart host; empty: MX lookup."""
    sources: list[str]
    counts: questions.CountsDocument
    suspended: questions.Standing | None


class ZoneWithSettings(ZoneRow):
    settings: dict[str, Any]
    """Its table of the configuration; secrets are hidden."""


class Warming(TypedDict):
    """What a source that is new may send to a provider ("*": to each other one)."""

    source: str
    provider: str
    per_day: list[int]
    """Recipients today, and on each of the next days; after those, and where there are none, without a limit."""


class SendingZone(TypedDict):
    name: str
    default: bool
    sources: list[dict[str, Any]]
    """[{address, weight}]; none: the system's choice."""


class Planning(TypedDict):
    zones: list[SendingZone]
    warming: list[Warming]
    providers: dict[str, str]
    """Recipient domain → provider."""


class SourceRow(TypedDict):
    address: str
    zones: list[str]
    settings: dict[str, Any]
    standing: list[questions.Standing]
    warmups: list[questions.WarmupRow]


class PolicyRow(TypedDict):
    """An MTA-STS policy."""

    domain: str
    mode: str
    id: str
    mx: list[str]
    max_age_s: float


class TlsHost(TypedDict):
    """What holds at a host. tls, certificate and policy are null where it gets no mail; `problem` says why."""

    host: str
    port: int
    addresses: list[str]
    mx: bool
    """DNS names it; otherwise it is a smart host, where policies of the domain do not count."""
    tls: Literal["none", "opportunistic", "required", "implicit"] | None
    certificate: Literal["none", "reported", "pkix", "mta-sts", "dane"] | None
    """By what it must be valid; reported: an invalid one is only reported."""
    policy: Literal["none", "mta-sts", "dane"] | None
    problem: str


class TlsDocument(TypedDict):
    """Which TLS mail for a domain gets."""

    domain: str
    zone: str
    destinations: list[str]
    """The [[destinations]] tables that apply."""
    tls: Literal["none", "opportunistic", "required", "implicit"]
    tls_min: Literal["1.2", "1.3"]
    dnssec: bool
    """DNSSEC vouches for the MX records."""
    problem: str
    """Why there is no route; empty: there is one."""
    notes: list[str]
    mta_sts: list[PolicyRow]
    hosts: list[TlsHost]


class LimitsDocument(TypedDict):
    configured: list[dict[str, Any]]
    learned: list[questions.Standing]


class StandingRows(TypedDict):
    rows: list[questions.Standing]
    next: int | None


class Suspended(TypedDict):
    held: int
    """Flow queues in memory that it stops."""
    standing: list[questions.Standing]


class Lifted(TypedDict):
    lifted: Literal[True]


class RerouteEnded(TypedDict):
    removed: Literal[True]


class InDoubts(TypedDict):
    rows: list[questions.InDoubt]
    next: str | None


class Acknowledged(TypedDict):
    acknowledged: int
    """Recipients taken from the list."""


class Configuration(TypedDict):
    """Every section with its values in force; secrets are hidden."""

    settings: dict[str, Any]


class MessageWithStory(TypedDict):
    id: str
    envelope: dict[str, Any] | None
    """null: the message has ended."""
    recipients: list[questions.RecipientDocument]
    """Those that have not ended."""
    header: str | None
    """Its header section."""
    story: questions.Story


class Draining(TypedDict):
    """What is under way."""
