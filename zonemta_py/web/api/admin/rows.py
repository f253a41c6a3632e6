"""What operators' questions are answered with, as types; they may get more members at any time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from zonemta_py.web.documents.models import Model

MOST = 1_000
PAIRS_MAX = 1_000


class OpenRow(Model):
    model_config = ConfigDict(extra="allow")


class CountsDocument(OpenRow):
    """Recipients by state, each in one; docs/METRICS.md defines them."""

    queued: int = 0
    leased: int = 0
    deferred: int = 0
    held: int = 0
    deleted: int = 0
    bounced: int = 0
    """Kept for a time, so that they can be queued again."""


class Total(CountsDocument):
    messages: int
    bytes: int


class Status(OpenRow):
    version: str
    hostname: str
    problems: list[str]
    """Why no mail should come now, as /v1/ready says it; empty: it may come."""
    total: Total
    rates: dict[str, Any]
    """What happens a second, over the last minute."""


class Standing(OpenRow):
    """Something that holds mail: a suspension, a rest, or what was learned."""

    kind: str
    name: str
    cause: str
    since_ms: int
    until_ms: int
    """0: until it is lifted, or something happens."""


class ZoneRow(OpenRow):
    name: str
    default: bool
    delivery: Literal["smtp", "pull"]
    host: str
    """The smart host; empty: MX lookup."""
    sources: list[str]
    counts: CountsDocument
    suspended: Standing | None


class ZoneWithSettings(ZoneRow):
    settings: dict[str, Any]
    """Its table of the configuration; secrets are hidden."""


class WarmupRow(OpenRow):
    """Where a new source stands at a provider."""

    source: str
    provider: str
    schedule: str
    step: int
    steps: int
    warm: bool
    cap: int | None
    """Recipients a day; null: no limit."""
    sent: int


class Warming(OpenRow):
    """What a source that is new may send to a provider ("*": to each other one)."""

    source: str
    provider: str
    per_day: list[int]
    """Recipients today, and on each of the next days; after those, and where there are none, without a limit."""


class SendingZone(OpenRow):
    name: str
    default: bool
    sources: list[dict[str, Any]]
    """[{address, weight}]; none: the system's choice."""


class Planning(OpenRow):
    zones: list[SendingZone]
    warming: list[Warming]
    providers: dict[str, str]
    """Recipient domain → provider."""


class SourceRow(OpenRow):
    address: str
    zones: list[str]
    settings: dict[str, Any]
    standing: list[Standing]
    warmups: list[WarmupRow]


class PolicyRow(OpenRow):
    """An MTA-STS policy."""

    domain: str
    mode: str
    id: str
    mx: list[str]
    max_age_s: float


class TlsHost(OpenRow):
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


class TlsDocument(OpenRow):
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


class QuotaRow(OpenRow):
    """A quota of an account."""

    account: str
    what: Literal["messages", "recipients", "sessions"]
    quota: str
    used: int
    left: int
    anew_ms: int | None
    """When it begins anew; null for sessions, of which each ends by itself."""


class LimitsDocument(OpenRow):
    configured: list[dict[str, Any]]
    learned: list[Standing]


class Reason(OpenRow):
    kind: str
    cause: str
    since_ms: int
    until_ms: int


class LaneDocument(OpenRow):
    """A flow queue."""

    zone: str
    site: str
    source: str
    tenant: str
    campaign: str
    waiting: int
    active: int
    reasons: list[Reason]


class Lanes(OpenRow):
    rows: list[LaneDocument]
    next: int | None
    """Pass it as `after` to get the next page; null: this is the last one."""
    whole: list[Reason]
    """Why nothing at all is sent; empty: nothing stops the whole."""


class StandingRows(OpenRow):
    rows: list[Standing]
    next: int | None


class Suspended(OpenRow):
    held: int
    """Flow queues in memory that it stops."""
    standing: list[Standing]


class Lifted(Model):
    lifted: Literal[True]


class RecipientDocument(OpenRow):
    id: str
    recipient: str
    zone: str
    state: str
    attempts: int
    due_ms: int
    last: str
    """The latest answer."""


class Waiting(RecipientDocument):
    """A recipient in a list."""

    sender: str
    subject: str
    cause: str
    """What it waits for."""
    tenant: str
    campaign: str
    site: str
    provider: str
    received_ms: int
    size: int


class Recipients(OpenRow):
    rows: list[Waiting]
    next: str | None
    """Pass it as `after` to get the next page; null: this is the last one."""
    walked: int
    """Recipients that were looked at."""
    more: bool
    """The page is short because its time was over."""


class Size(CountsDocument):
    name: str


class SizesDocument(OpenRow):
    rows: list[Size]
    next: str | None
    of: int
    """How many there are."""
    complete: bool
    """Whether all have been looked at; a first question about a zone's domains has those of a moment: ask again."""


class Age(OpenRow):
    name: str
    total: int
    ages: list[int]


class Ages(OpenRow):
    rows: list[Age]
    minutes: list[int]
    """Where each age ends; the last has no end."""
    complete: bool
    """Whether all recipients were counted."""
    at_ms: int
    """When the count began."""
    counting: bool
    """Whether a newer one is being made: ask again."""


class InDoubt(OpenRow):
    """A recipient whose final answer may have been on its way at a crash."""

    id: str
    zone: str
    recipient: str
    sender: str | None
    since_ms: int
    action: str


class InDoubts(OpenRow):
    rows: list[InDoubt]
    next: str | None


class Acknowledged(OpenRow):
    acknowledged: int
    """Recipients taken from the list."""


class Explained(OpenRow):
    about: str
    kind: str
    rows: list[dict[str, Any]]
    """Each with its `reasons`, the first being what holds it now; without any it goes when its turn comes."""
    more: int
    """How many there are besides, if that is known."""
    next: str | None
    """To go on with; null: that is all."""
    looked: int
    """Recipients that were looked at for it."""
    whole: list[Reason]
    """Why nothing at all is sent, as reasons: a copy, a drain, recovery, trouble with the disk; empty: nothing does."""


class Configuration(OpenRow):
    """Every section with its values in force; secrets are hidden."""

    settings: dict[str, Any]


class TaskRow(OpenRow):
    id: str
    verb: str
    where: dict[str, Any]
    words: str
    """The order as a sentence."""
    set: dict[str, Any]
    by: str
    cause: str
    state: Literal["counting", "previewed", "running", "undoable", "done", "canceled", "undone"]
    count: int | None
    """Recipients that it means; null: not known yet."""
    done: int
    examples: list[dict[str, Any]]
    remarks: list[str]
    """What else is to be known, each a sentence."""
    created_ms: int
    ended_ms: int
    undo_until_ms: int
    """0: it cannot be undone, or runs."""


class Story(OpenRow):
    """What happened, the oldest first, from the journal and its archive."""

    about: str
    rows: list[dict[str, Any]]
    next: str | None
    """Pass it as `before` to look further back; null: there is nothing older."""


class MessageWithStory(OpenRow):
    id: str
    envelope: dict[str, Any] | None
    """null: the message has ended."""
    recipients: list[RecipientDocument]
    """Those that have not ended."""
    header: str | None
    """Its header section."""
    story: Story


class Reloaded(OpenRow):
    changes: list[Any]
    """[key, old value, new value], without secrets."""
    refused: list[str]
    """Why it was not taken; empty: it was, or would be."""
    generation: int
    """1 at a start, one more with each reload."""
    number: int
    """In the history, of what holds now; 0: it could not be noted."""


class ConfigurationRow(OpenRow):
    number: int
    ms: int
    by: str
    file: str
    changes: list[Any]


class Draining(OpenRow):
    """What is under way."""
