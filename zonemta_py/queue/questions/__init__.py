"""Every question to the queue, and every order: its name, what it is asked with, and what it is answered with.

They are declared once, here, for whoever asks (in the queue's own process, over the socket, by HTTP, in the dashboard,
on the command line) and whoever answers (`queue/admin/`). The HTTP interface describes its documents by the same types
(`web/documents/derived.py`), but for what is Unlisted; an answer may have more, on which nobody may rely. Sizes are
O(1); lists walk key ranges in portions: `next` is the cursor of the next one, None: it was the last. Times are UNIX
time in ms.

They fail with `Refused`, one sentence for what is wrong with the question; QueueRefusal; or QueueFault.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from zonemta_py.queue.questions.question import Question

T = TypeVar("T")
question = Question.of
UNLISTED = "unlisted"
Unlisted = Annotated[T, UNLISTED]
"""Not in the documents of the HTTP interface."""


class Default(NamedTuple):
    """What a member is that an answer may leave out; else 0, "", False, null or an empty list."""

    value: Any


Labelled = dict[str, list[list[Any]]]
"""Name of a metric → rows of labels and value (`metrics/table.py`)."""


# -- how much there is


class CountsDocument(TypedDict, total=False):
    """Recipients by state, each in one; docs/METRICS.md defines them."""

    queued: int
    leased: int
    deferred: int
    held: int
    deleted: int
    bounced: int
    """Kept for a time, so that they can be queued again."""


class Total(CountsDocument):
    messages: int
    bytes: int


class Queued(TypedDict):
    zones: dict[str, CountsDocument]
    total: Total


class Size(CountsDocument):
    name: str


class SizesDocument(TypedDict):
    rows: list[Size]
    next: str | None
    of: int
    """How many there are."""
    complete: bool
    """Whether all have been looked at; a first question about a zone's domains has those of a moment: ask again."""
    by_part: NotRequired[Unlisted[bool]]
    """The order is that of the largest part that one of several queues has of each, as there are very many; the numbers
    are those of all queues."""


class Tally(TypedDict):
    counts: dict[str, dict[str, int]]
    """Name → state → how many."""
    walked: int
    next: str | None


class Age(TypedDict):
    name: str
    total: int
    ages: list[int]


class AgesDocument(TypedDict):
    by: Unlisted[str]
    rows: list[Age]
    minutes: list[int]
    """Where each age ends; the last has no end."""
    complete: bool
    """Whether all recipients were counted."""
    at_ms: int
    """When the count began."""
    counting: bool
    """Whether a newer one is being made: ask again."""
    all: Unlisted[Age]
    names: Unlisted[int]
    lacks: NotRequired[Unlisted[int]]
    """So many recipients at most are missing in each row, as several queues have more names than one answer has."""
    walked: Unlisted[int]
    of: Unlisted[int]


class PullZoneSize(TypedDict):
    """A pull zone."""

    queue: str
    zone: str
    ready: int
    leased: int
    delayed: int
    held: int
    deleted: int
    bounced: int
    pushed: int
    """In all; the others came as mail."""
    pullers: int
    """How many wait to take something."""


class Metrics(TypedDict):
    counters: Labelled
    histograms: Labelled
    gauges: Labelled


@question
def size() -> Queued: ...  # By zone, and in all (`admin/browse/counts.py`).
# Of one, of a domain in a zone, or of a tenant's campaign.
def _size_of(
    *, zone: str | None = None, domain: str | None = None, provider: str | None = None, campaign: str | None = None,
    tenant: str | None = None,
) -> CountsDocument: ...  # fmt: skip
# By zone, domain, provider, campaign or tenant, the largest first. names: only these, as far as there are any.
@question
def sizes(
    *, by: str, limit: int = 100, after: str = "", zone: str | None = None, names: list[str] | None = None
) -> SizesDocument: ...  # fmt: skip
# Counts by user, sender, source, subject, class … of what a filter means (`admin/browse/listing.py`).
@question
def tally(*, by: str, after: str = "", **where: Any) -> Tally: ...
# By age and destination (`admin/browse/ages.py`).
@question
def qshape(
    *, by: str = "domain", zone: str | None = None, limit: int = 50, after: int = 0, states: list[str] | None = None,
    minutes: list[int] | None = None, subdomains: int = 0,
) -> AgesDocument: ...  # fmt: skip
@question
def queues() -> list[PullZoneSize]: ...  # Named queues.
@question
def metrics(*, node: bool = False) -> Metrics: ...  # Every counter, histogram and gauge; node: of this node alone.
# What happens a second, over the last minute (`metrics/rates.py`). destinations: so many domains, the busiest.
@question
def now(*, destinations: int = 0) -> dict[str, Any]: ...


size_of = Question.of(_size_of, size)


# -- recipients and messages


class RecipientDocument(TypedDict):
    id: str
    recipient: str
    zone: str
    state: str
    attempts: int
    due_ms: int
    last: str
    """The latest answer."""
    notes: dict[str, Any]
    """What plugins keep with the recipient; the message's own notes are in its envelope."""
    metadata: dict[str, Any]
    """Its metadata, over those of its message."""
    headers: dict[str, Any]
    """Header fields of the message that come back with them."""


class WaitingDocument(RecipientDocument):
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
    user: Unlisted[str]
    source: Unlisted[str]
    priority: Unlisted[int]


class Recipients(TypedDict):
    rows: list[WaitingDocument]
    next: str | None
    """Pass it as `after` to get the next page; null: this is the last one."""
    walked: int
    """Recipients that were looked at."""
    more: bool
    """The page is short because its time was over."""


class Shown(TypedDict):
    id: str
    envelope: dict[str, Any]
    recipients: list[WaitingDocument]
    left: int
    header: str


class MessageContent(TypedDict):
    chunks: int
    """How many the message has."""
    count: int
    """How many of them these are."""
    data: bytes


class Story(TypedDict):
    """What happened, the oldest first, from the journal and its archive."""

    about: str
    kind: Unlisted[str]
    rows: list[dict[str, Any]]
    next: str | None
    """Pass it as `before` to look further back; null: there is nothing older."""
    ids: Unlisted[list[str]]
    back_to_ms: Unlisted[int]
    files: Unlisted[int]


class InDoubt(TypedDict):
    """A recipient whose final answer may have been on its way at a crash."""

    id: str
    zone: str
    recipient: str
    sender: str | None
    since_ms: int
    action: str


# What a filter means (`tasks/where.py`), the oldest first (`admin/browse/listing.py`).
@question
def list_(*, limit: int = 100, after: str = "", order: str = "", **where: Any) -> Recipients: ...
@question
def show(*, id: str) -> Shown: ...  # Envelope, recipients, header section of one message.
@question
def content(
    *, id: str, first: int = 1
) -> MessageContent: ...  # A message's bytes, some chunks of them from `first` on.
# The story of a message or an address (`admin/browse/story.py`).
@question
def trace(*, what: str, before: str = "") -> Story: ...
# The oldest first. after: id and recipient of the last one that an earlier answer had, with a space between.
@question
def in_doubt(*, limit: int = 1_000, after: str = "") -> list[InDoubt]: ...
# Takes them from that list (`admin/doubts.py`); how many that were.
@question
def in_doubt_acknowledge(*, ids: list[str] | None = None, until_ms: int | None = None) -> int: ...
@question
def release(*, id: str) -> int: ...  # What is held of a message goes on; how many recipients that were.
@question
def drop(*, id: str) -> int: ...  # What is held of a message is removed; how many recipients that were.


# -- what holds mail


class Reason(TypedDict):
    kind: str
    cause: str
    since_ms: int
    until_ms: int


class Explained(TypedDict):
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
    counts: NotRequired[Unlisted[dict[str, int]]]
    learned: NotRequired[Unlisted[list[Standing]]]
    suppressed: NotRequired[Unlisted[list[SuppressionRow]]]
    meanwhile: NotRequired[Unlisted[list[Reason]]]


class LaneDocument(TypedDict):
    """A flow queue."""

    zone: str
    site: str
    source: str
    tenant: str
    campaign: str
    waiting: int
    active: int
    reasons: list[Reason]
    provider: Unlisted[str]
    apart: Unlisted[str]
    tables: Unlisted[list[str]]
    priority: Unlisted[int]
    parked: Unlisted[bool]
    window: Unlisted[int]
    counted: Unlisted[bool]
    """All that is parked is counted in `waiting`."""


class Lanes(TypedDict):
    rows: list[LaneDocument]
    next: int | str | None
    """Pass it as `after` to get the next page; null: this is the last one."""
    whole: list[Reason]
    """Why nothing at all is sent; empty: nothing stops the whole."""
    by_part: NotRequired[Unlisted[bool]]
    """As of `SizesDocument`."""


class Standing(TypedDict):
    """Something that holds mail: a suspension, a rest, or what was learned."""

    kind: str
    name: str
    cause: str
    since_ms: int
    until_ms: int
    """0: until it is lifted, or something happens."""
    group: Unlisted[str]
    """suspended, resting, learned or noted."""
    tenants: NotRequired[Unlisted[list[str]]]
    to: NotRequired[Unlisted[str]]
    """Of a reroute: where that mail goes."""
    rate: NotRequired[Unlisted[float]]
    window: NotRequired[Unlisted[int]]
    dead: NotRequired[Unlisted[bool]]
    most: NotRequired[Unlisted[int]]


class RerouteRow(TypedDict):
    """Mail that goes another way for a time."""

    name: str
    zone: str
    """Whose mail; empty: of any zone."""
    destination: str
    """For which domain, site or provider; empty: any."""
    to: str
    """pool NAME, zone NAME, host NAME:PORT, or skip MX-HOST."""
    cause: str
    since_ms: int
    until_ms: int
    """0: until it is removed."""
    lacks: str
    """What the configuration lacks of it, so that it has no effect; empty: nothing."""


class QuotaRow(TypedDict):
    """A quota of an account."""

    account: str
    what: Literal["messages", "recipients", "sessions"]
    quota: str
    used: int
    left: int
    anew_ms: int | None
    """When it begins anew; null for sessions, of which each ends by itself."""


class WarmupRow(TypedDict):
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
    first: Unlisted[str]
    day: Unlisted[str]
    attempts: Unlisted[int]
    deferred: Unlisted[float]
    blocked: Unlisted[float]
    today: Unlisted[str]
    next: Unlisted[int | None]
    history: Unlisted[list[Any]]


# Why something waits, and until when (`admin/explain.py`).
@question
def explain(*, what: str, after: str = "") -> Explained: ...
# Flow queues in memory with waiting recipients, or that are blocked: the longest first. A page may be short because
# its time was over. names: only those of these zones and names (`schedule/flow.py`).
@question
def lanes(
    *, zone: str | None = None, limit: int = 1_000, after: int | str = 0, names: list[list[str]] | None = None
) -> Lanes: ...  # fmt: skip
# Stops, rests, and learned values. after: how many an earlier answer had.
@question
def standing(*, limit: int = 1_000, after: int = 0) -> list[Standing]: ...
# An operator's stop; seconds None: until lifted; tenants: of a campaign, only their mail. How many flow queues in
# memory it stops.
@question
def stop(
    *, kind: str, name: str, seconds: float | None = None, cause: str = "", tenants: Sequence[str] = ()
) -> int: ...  # fmt: skip
# Lifts a stop or rest, or forgets a learned value; False if there is none.
@question
def lift(*, kind: str, name: str) -> bool: ...
# Sends mail of a zone, or for a destination, another way (`mail/reroute.py`); seconds None: until it is removed.
@question
def reroute(
    *, to: str, zone: str = "", destination: str = "", seconds: float | None = None, cause: str = "", by: str = ""
) -> RerouteRow: ...  # fmt: skip
# Ends one; False if there is none.
@question
def reroute_remove(*, zone: str = "", destination: str = "") -> bool: ...
@question
def reroutes() -> list[RerouteRow]: ...  # Those that hold.
@question
def accounts() -> list[QuotaRow]: ...  # Quotas of accounts.
@question
def warmup() -> list[WarmupRow]: ...  # The warm-up step of each new source at each provider.
@question
def warm(*, source: str, provider: str, step: int | None) -> WarmupRow: ...  # Sets that step (from 1; None: warm).


# -- tasks


class TaskRow(TypedDict):
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
    undone: Unlisted[int]
    undoable: Unlisted[bool]
    zones: Unlisted[dict[str, int]]
    suppressed: Unlisted[int]


# Counts what it would do: counting, then previewed. id: its id, of several queues' the same; "": the next one.
@question
def task_preview(
    *, verb: str, where: dict[str, Any], set: dict[str, Any] | None = None, by: str = "", cause: str = "",
    id: str = "",
) -> TaskRow: ...  # fmt: skip
# Orders it. request, digest: a key, and a hash of what is ordered: the same again is the same task. number: its id, of
# several queues' the same, and once more it is the same order; 0: the next one. preview: this is ordered, which has
# counted so many.
@question
def task(
    *, verb: str, where: dict[str, Any], set: dict[str, Any] | None = None, by: str = "", cause: str = "",
    undo_s: float | None = None, request: str = "", digest: str = "", number: int = 0, preview: str = "",
) -> TaskRow: ...  # fmt: skip
# Orders what was previewed.
@question
def task_start(*, id: str, by: str = "", cause: str = "", undo_s: float | None = None) -> TaskRow: ...
# Previews, then tasks, the newest first. after: the id of the last one that an earlier answer had.
@question
def tasks(*, limit: int = 100, after: str = "") -> list[TaskRow]: ...
@question
def task_states() -> dict[str, str]: ...  # By id, without previews: as `core.tasks` has them.
@question
def task_row(*, id: str) -> TaskRow: ...  # One of them.
@question
def task_cancel(*, id: str, by: str = "") -> TaskRow: ...  # It does nothing more.
@question
def task_undo(*, id: str, by: str = "") -> TaskRow: ...  # Puts back what it changed, as far as nothing was sent.


# -- campaigns


class Created(TypedDict):
    created: bool
    """False: the campaign existed already, with the same content."""


class CampaignRow(TypedDict):
    """The state of a campaign. Times are UNIX time in ms."""

    name: str
    state: Literal["running", "paused", "canceled", "complete", "ended", "idle"]
    """idle: it is only known from its mail, of which nothing waits."""
    cause: str
    """The cause of the latest order."""
    sender: str
    tenant: str
    zone: str
    created_ms: int
    of_all: NotRequired[bool]
    """It is an operator's, for mail of whatever tenant."""
    hours: NotRequired[dict[str, str] | None]
    """When its mail may go: at, window, until, time_zone, time_zone_column, at_column; null: at any time."""
    registered: NotRequired[Annotated[bool, Default(True)]]
    """False: nobody has created it; its mail has named it (X-Campaign), since created_ms."""
    planned: int
    accepted: int
    delivered: int
    deferred: int
    """Deferred attempts."""
    bounced: int
    blocked: int
    complaints: int
    bounced_later: NotRequired[int]
    """Delivered, and bounced afterwards, by a message of their server."""
    unsubscribes: NotRequired[int]
    auto_replies: NotRequired[int]
    opens: NotRequired[int]
    clicks: NotRequired[int]
    removed: int
    """Accepted, and left the queue without delivery or bounce: deleted, canceled, suppressed while they waited …"""
    suppressed: int
    """Left out at acceptance, because they are on the suppression list: not among the accepted ones."""
    waiting: int
    """Accepted and not ended, nor deleted."""
    deleted: NotRequired[int]
    """Deleted by a task that can still be undone."""
    first_ms: int
    last_ms: int
    rate_per_s: float
    eta_ms: int | None
    variants: NotRequired[dict[str, Any] | None]
    """What the template is, or was, chosen from: metric, decide_ms, winner ("": not yet), and figures of each (hits of
    `of`); only in the response for a single campaign."""
    history: NotRequired[Annotated[list[list[int]], Default(list)]]
    """[ms, waiting, delivered] at up to 240 times; only in the response for a single campaign."""
    report_ms: NotRequired[int]
    """When its report was made (GET …/report); 0: there is none; only in the response for a single campaign."""
    scheduled: NotRequired[dict[str, Any] | None]
    """zones: [{time_zone, waiting, next_ms}], of who was not tried yet, the next first; last_ms: when the last is due;
    counted: false if there are more. Only where hours are asked for, and the campaign has some."""
    bounds: NotRequired[Unlisted[dict[str, float]]]
    priority: NotRequired[Unlisted[int]]
    life_h: NotRequired[Unlisted[float]]
    notify: NotRequired[Unlisted[str]]
    in_doubt: NotRequired[Unlisted[str]]


class CampaignBasis(TypedDict):
    """What is decided by about a campaign without being asked."""

    state: Literal["running", "paused", "canceled", "complete", "ended", "idle"]
    """As of `CampaignRow`."""
    bounds: dict[str, float]
    counted: list[int]
    """[delivered, deferred, bounced, blocked, complaints, bounced_later] since it was last resumed."""
    waiting: int
    until: str
    """When its time is over, as it was given; "": no such time."""
    ends_ms: int
    choice: dict[str, Any] | None
    """{"of", "metric", "decide_ms", "after_h"}, as long as nothing was chosen."""
    accepted: int
    first_ms: int


class CampaignEnd(TypedDict):
    name: str
    tenant: str
    """As of `campaign_tenant`."""
    seq: int
    """Of the first journal record of its time."""
    created_ms: int
    ended_ms: int
    """0: not yet."""
    accepted: int
    returned: int
    """What came back later, of whatever kind."""


class ZoneHours(TypedDict):
    time_zone: str
    waiting: int
    next_ms: int


class WaitingHours(TypedDict):
    zones: list[ZoneHours]
    """The next first."""
    last_ms: int
    """When the last is due; 0: nobody waits."""
    counted: bool
    """False: there are more."""


# A new campaign (`campaigns/commands.py`).
@question
def campaign_put(
    *, name: str, sender: str, template: bytes, tenant: str = "", zone: str = "", priority: int = 0, planned: int = 0,
    bounds: dict[str, Any] | None = None, life_h: float = 168, notify: str = "remote", alone: bool = False,
    hours: dict[str, Any] | None = None, in_doubt: str = "", choice: dict[str, Any] | None = None,
) -> Created: ...  # fmt: skip
@question
def campaign_pause(*, name: str, cause: str = "") -> CampaignRow: ...  # Suspends it.
@question
def campaign_resume(*, name: str, cause: str = "") -> CampaignRow: ...  # Its thresholds count from here on.
# Nothing more of it is sent. number: of the task that deletes what waits, if nobody has put it; as of `task`.
@question
def campaign_cancel(*, name: str, cause: str = "", number: int = 0) -> CampaignRow: ...
@question
def campaign_complete(*, name: str, cause: str = "") -> CampaignRow: ...  # All batches are in.
# That variant gives the template; "": the best one now.
@question
def campaign_decide(*, name: str, winner: str = "", cause: str = "") -> CampaignRow: ...
# What waits of a suspended one gets this template.
@question
def campaign_text(*, name: str, template: bytes, cause: str = "") -> CampaignRow: ...
# It goes at other hours from now on. None: as it is; "": at any time.
@question
def campaign_schedule(
    *, name: str, at: str | None = None, window: str | None = None, until: str | None = None,
    time_zone: str | None = None,
) -> CampaignRow: ...  # fmt: skip
# [campaign, hash of its template], and of those that it is chosen from.
@question
def campaign_templates(*, name: str) -> list[list[str]]: ...
@question
def campaign(*, name: str) -> CampaignRow: ...  # The state of one, with its history.
# The newest first. after: the name of the last one that an earlier answer had; older_ms: when that began, whether or
# not it is still there. names: only these, as far as they exist.
@question
def campaigns(
    *, limit: int = 1_000, after: str = "", older_ms: int = 0, names: list[str] | None = None
) -> list[CampaignRow]: ...  # fmt: skip
# "" for one without, "*": an operator's, for all mail; None: there is no campaign of that name. registered: only one
# that was made, not one that mail has named.
@question
def campaign_tenant(*, name: str, registered: bool = False) -> str | None: ...
# By what is decided about it (`queues/joined/campaigns.py:decided`).
@question
def campaign_basis(*, name: str) -> CampaignBasis: ...
# Which of those that were put have ended, and when. name: "": of all.
@question
def campaign_ends(*, name: str = "") -> list[CampaignEnd]: ...
@question
def campaign_hours(*, name: str) -> WaitingHours: ...  # Who of it waits for their hour (`campaigns/waiting_hours.py`).


CAMPAIGN_ORDERS: dict[str, Question[..., CampaignRow]] = {
    "pause": campaign_pause, "resume": campaign_resume, "cancel": campaign_cancel
}  # fmt: skip


# -- people


class Added(TypedDict):
    added: int
    known: int
    """Entries that existed already."""


class SuppressionRow(TypedDict):
    address: str
    kind: str
    since_ms: int
    reason: str
    evidence: str
    by: str
    campaign: NotRequired[str]
    scope: NotRequired[Annotated[str, Default("all")]]
    also: NotRequired[list[str]]
    """Lower-ranking kinds recorded for the same address and scope."""


class SuppressionRowsOf(SuppressionRow):
    """An address's entry of scope all, or else its first one."""

    others: NotRequired[list[SuppressionRow]]
    """Its entries in other scopes."""


class SuppressionRows(TypedDict):
    rows: list[SuppressionRow]
    next: str | None
    """Pass it as `after` to get the next page; null: this is the last one."""


class HeardItem(TypedDict):
    """One refusal, complaint or unsubscribe. message: our id of the message, if known."""

    at_ms: int
    group: str
    """unknown, inactive, full, domain, complaint or unsubscribe."""
    message: str
    said: NotRequired[str]
    """The reply."""
    agreed: NotRequired[bool]
    """Code, text and stage agree."""
    held: NotRequired[bool]
    """A guard holds it back, or did: it is not enough alone."""
    by: NotRequired[str]
    """Which provider said it, to which source."""
    tenant: NotRequired[Unlisted[str]]
    kind: NotRequired[Unlisted[str]]
    campaign: NotRequired[Unlisted[str]]


class StandingItem(TypedDict):
    """How far the refusals of one kind are enough, for the mail of one scope."""

    group: str
    scope: str
    counted: int
    enough: bool
    said: str
    """The same in words, with what would be enough."""


class EvidenceOf(TypedDict):
    """Why a person is or is not on the suppression list."""

    address: str
    entries: list[SuppressionRow]
    heard: list[HeardItem]
    standing: list[StandingItem]
    guards: list[str]
    """Those that hold some of it back now."""


class GuardRow(TypedDict):
    """Where refusals are held back, as very many people were said not to exist at once."""

    name: str
    """Provider or site, and our source address if there are several."""
    cause: str
    since_ms: int
    people: int


class Forgotten(TypedDict):
    """What was removed: recipients that waited in the queue, and Idempotency-Keys that are not in use."""

    removed: int
    under_way: Unlisted[int]
    listed: Unlisted[bool]
    kept: Unlisted[bool]


# Adds to the suppression list (`queue/suppression/entry.py`): all rows, or none if one is invalid.
@question
def suppress(*, rows: list[list[Any]]) -> Added: ...
# scope: only that entry of each address; otherwise all. How many entries that were.
@question
def unsuppress(*, addresses: list[str], by: str = "", scope: str | None = None) -> int: ...
# scopes: only those; tenant: what does not stop its mail is left out.
@question
def suppression(*, address: str, scopes: list[str] | None = None, tenant: str = "") -> SuppressionRowsOf | None: ...
# The list, by address.
@question
def suppressions(
    *, after: str = "", limit: int = 1_000, kind: str | None = None, scope: str | None = None
) -> SuppressionRows: ...  # fmt: skip
@question
def evidence(*, address: str) -> EvidenceOf: ...  # What was heard of a person (`queue/suppression/told.py`).
@question
def guards() -> list[GuardRow]: ...  # Where refusals are held back.
# It counts from now on, or is dropped; of how many people that was.
@question
def guard_release(*, name: str, drop: bool = False) -> int: ...
# Erases a person from the queue (`admin/erasure.py`). keep: the address stays on the list, only as erased.
@question
def forget(*, address: str, keep: bool = False, by: str = "") -> Forgotten: ...


# -- sender domains


class DomainKeyRow(TypedDict):
    """A DKIM key, without what is private."""

    selector: str
    state: Literal["waits", "signs", "retired"]
    """waits: its record was not seen in DNS yet; signs; retired: a newer one signs, and its record stays for mail that
    is on its way."""
    since_ms: int
    name: str
    """Of its record in DNS."""
    record: str
    """The TXT record."""


class DomainRecordSeen(TypedDict):
    """What DNS said of a record when it was asked."""

    record: str
    """The selector of a key, return_path, spf or link."""
    status: Literal["ok", "missing", "wrong", "unknown"]
    words: str
    ok_ms: int
    """When it was right last; 0: never."""
    at_ms: int


class DomainRow(TypedDict):
    """A sender domain."""

    name: str
    tenant: str
    keys: list[DomainKeyRow]
    return_path: str
    """The domain of its return paths, once it leads here; empty: that of the configuration."""
    link: str
    """The name that links in its mail begin with, once it leads here; empty: that of the configuration."""
    seen: list[DomainRecordSeen]
    signs: bool
    """Whether a key of its own signs its mail."""
    uses_return_path: bool
    uses_link: bool
    made_ms: int
    changed_ms: int
    by: str


class DomainsPage(TypedDict):
    rows: list[DomainRow]
    next: str | None


# Makes or changes one. change: tenant, return_path, link, key: [selector, pem, record]. own: only one of these tenants
# may have it. now_ms: 0: the queue's time.
@question
def domain_put(
    *, name: str, change: dict[str, Any], own: list[str] | None = None, by: str = "", now_ms: int = 0
) -> DomainRow: ...  # fmt: skip
# What DNS says of its records: record → [status, words]. changed_ms: as it was when DNS was asked; what has been
# changed since is not judged by that.
@question
def domain_looked(
    *, name: str, found: dict[str, list[str]], changed_ms: int = 0, now_ms: int = 0
) -> DomainRow: ...  # fmt: skip
@question
def domain_remove(*, name: str, own: list[str] | None = None, by: str = "") -> bool: ...  # Whether it was there.
# One; none if there is none, or if it is not of these tenants.
@question
def domain(*, name: str, own: list[str] | None = None) -> DomainRow | None: ...
@question
def domains(*, after: str = "", limit: int = 100, own: list[str] | None = None) -> DomainsPage: ...  # By name.


# -- what came back


class FeedbackRow(TypedDict):
    """What came back."""

    seq: int
    """The number of its journal record."""
    ms: int
    kind: Literal[
        "bounce", "delay", "delivered", "complaint", "unsubscribe", "auto-reply", "challenge", "other", "open", "click",
        "dmarc-report", "tls-report", "reputation",
    ]  # fmt: skip
    recipient: str
    message: str
    message_id: str
    campaign: str
    tenant: str
    zone: str
    code: int
    enhanced: str
    text: str
    reporter: str
    form: str
    via: str
    genuine: str
    """What proves it: token, dkim, spf, key; empty: nothing, and nothing follows from it."""
    scope: str
    reply_class: str
    rule: str
    agreed: bool
    tied: str
    raw_bytes: int
    again: bool
    place: str
    """Of a bounce: the provider that had taken the mail, or the site; empty: unknown."""
    raw: NotRequired[Unlisted[str]]
    """Of what nobody understood the message, as text; only where one is asked for."""
    report: NotRequired[Unlisted[dict[str, Any]]]
    """What a report on our mail as a whole says; only where one is asked for."""


class FeedbackFound(TypedDict):
    rows: list[FeedbackRow]
    next: int | str | None


# The newest first. unread: only what nobody understood, and is kept. wishes: of that, what may be a wish to leave.
# within: names of tenants and of campaigns, none of a kind: all.
@question
def feedback(
    *, kind: str = "", recipient: str = "", campaign: str = "", message: str = "", since_ms: int = 0,
    after: int | str = 0, limit: int = 100, unread: bool = False, wishes: bool = False,
    within: tuple[Collection[str], Collection[str]] = ((), ()),
) -> FeedbackFound: ...  # fmt: skip
@question
def feedback_one(*, seq: int) -> FeedbackRow | None: ...  # All of one.
# What each is about, without recording it: [message, campaign, tenant, whether that message is known]. rows: all
# fields of `queue.api.Feedback`.
@question
def feedback_ties(*, rows: list[list[Any]]) -> list[list[Any]]: ...
# Deletes the messages of those; how many there were.
@question
def feedback_forget(*, numbers: list[int], all: bool = False) -> int: ...
# These kept wishes are ones: who wrote them has unsubscribed; how many there were.
@question
def feedback_leave(*, numbers: list[int]) -> int: ...


class DmarcSums(TypedDict):
    """What one receiver has reported of a domain."""

    domain: str
    org: str
    """Who reports, by its own word."""
    proof: str
    """"dkim DOMAIN": whose valid signature the mail had; "key": an operator or a program has given it; empty: none."""
    reports: int
    messages: int
    passed: int
    ours: int
    """Of these messages, those from our own sources."""
    ours_passed: int


class SourceSums(TypedDict):
    """What all receivers with a proof have reported of an address."""

    domain: str
    ip: str
    """Empty: unknown."""
    ours: bool
    messages: int
    failed: int
    """Neither DKIM nor SPF was aligned."""
    dkim_failed: int
    spf_failed: int


class TlsSums(TypedDict):
    domain: str
    org: str
    proof: str
    reports: int
    sessions: int
    failed: int


class TlsFailureSums(TypedDict):
    domain: str
    kind: str
    """The result type (RFC 8460 4.3)."""
    mx: str
    policy: str
    sessions: int


class ReputationRow(TypedDict, total=False):
    """The latest of a domain or address at a provider."""

    provider: str
    what: Literal["domain", "ip"]
    name: str
    day: str
    reputation: str
    complaint_rate: float
    traps: int
    messages: int
    begin_s: int
    bad: bool
    spf: float
    dkim: float
    dmarc: float
    tls: float
    errors: float
    comment: str


class ReportsFound(TypedDict):
    days: int
    whole: bool
    """False: there are more reports than are added up for one answer; give fewer days."""
    dmarc: list[DmarcSums]
    sources: list[SourceSums]
    tls: list[TlsSums]
    tls_failures: list[TlsFailureSums]
    reputation: list[ReputationRow]


# Sums of DMARC and TLS reports about the last days, and the latest reputation.
@question
def feedback_reports(*, days: int = 7, domain: str = "") -> ReportsFound: ...
# Records reports that an operator gives, all fields of `queue.api.Feedback` each; whether each is new.
@question
def feedback_import(*, rows: list[list[Any]]) -> list[bool]: ...


# -- what runs


class Reloaded(TypedDict):
    changes: list[Any]
    """[key, old value, new value], without secrets."""
    refused: list[str]
    """Why it was not taken; empty: it was, or would be."""
    generation: int
    """1 at a start, one more with each reload."""
    number: int
    """In the history, of what holds now; 0: it could not be noted."""
    later: Unlisted[list[str]]
    """Keys that hold from the next start on."""
    plugins: Unlisted[list[str]]
    """Files of plugins that are others than those that were loaded."""
    remarks: Unlisted[list[str]]
    """Reroutes that have no effect by it."""


class Generation(TypedDict):
    generation: int
    number: int


class ProcessWork(TypedDict):
    process: str
    deliveries: int
    connections: int


class DrainState(TypedDict):
    leases: int
    recipients: int
    connections: int
    processes: list[ProcessWork]
    """Those with deliveries, or connections of clients, with those before them that have not ended yet."""
    ending: bool
    left_s: float | None
    """Until what has not ended is cut off."""


class ConfigurationRow(TypedDict):
    number: int
    ms: int
    by: str
    file: str
    changes: list[Any]


class Adopted(TypedDict):
    queue: str
    incarnation: int


class Positions(TypedDict):
    marks: dict[str, dict[str, str]]
    stable: int
    applied: int
    segments: list[Any]


class Closed(TypedDict):
    closed: str
    """Its name in the archive; "" if it held only position records."""


class NodeAlone(TypedDict):
    messages: int
    bytes: int


class NodeAgreed(TypedDict):
    version: int
    """The newest version of the cluster's configuration that the node's own was alike; 0: none, or it is not known."""
    differs: list[list[Any]]
    """Where it is behind: keys, with the node's value and the cluster's."""


class ClusterVersion(TypedDict):
    number: int
    node: str
    by: str
    ms: int
    digest: str
    changes: list[list[Any]]
    """Since the one before: keys, with the values before and in this one."""
    values: dict[str, Any]


class NodeVersion(NodeAgreed):
    node: str
    alive: bool


class ClusterVersions(TypedDict):
    versions: list[ClusterVersion]
    """The oldest first."""
    nodes: list[NodeVersion]


class ClusterNode(TypedDict):
    node: str
    alive: bool
    leads: bool
    seen_s: float
    """Since its last sign of life."""
    version: str
    hostname: str
    sizes: dict[str, int]
    """Recipients by state: queued, deferred, held."""
    agreed: NodeAgreed
    alone: NodeAlone
    """What it has accepted, and no other machine has yet."""
    serves: list[str]
    """Zones whose mail it can send."""
    away: dict[str, int]
    """Recipients that wait there in zones that it cannot send, by zone."""


class ClusterQueue(TypedDict):
    queue: int
    node: str
    """The one that serves it."""
    epoch: int
    """One more with each node that took it over."""
    log: dict[str, int]
    """Of its log: bytes, first, last (sequences); empty where NATS does not say so."""


class Gave(TypedDict):
    """What has gone to another queue, and how many recipients of the zone still wait. why: nothing can go now; "" it
    can."""

    messages: int
    recipients: int
    left: int
    why: str


class AwayZones(TypedDict):
    serves: list[str]
    """Zones that this node can send."""
    waiting: dict[str, int]
    """Recipients that wait in others."""


class ZoneMove(TypedDict):
    """What went to another node. left: recipients of the zone that still wait elsewhere. why: some cannot go now."""

    zone: str
    messages: int
    recipients: int
    left: int
    why: list[str]


class BalanceStep(TypedDict):
    zone: str
    giver: str
    taker: str
    recipients: int


class Balance(TypedDict):
    waiting: dict[str, dict[str, int]]
    """Recipients that waited before, by node and zone."""
    steps: list[BalanceStep]
    """What would have to go where."""
    recipients: int
    """How many have gone."""


class ClusterState(TypedDict):
    cluster: str
    id: str
    """The cluster's own: two may have one name."""
    node: str
    """The one that answers."""
    leader: str
    """Empty: none, or it is not known."""
    connected: bool
    """Whether this node is connected with NATS."""
    nodes: list[ClusterNode]
    queues: list[ClusterQueue]


# Messages of a zone go to a node, from `giver` or from all others, for a moment: to be asked again until none went.
@question
def cluster_move_zone(*, zone: str, to: str, giver: str = "") -> ZoneMove: ...
# The same so that nodes hold about as many recipients of zones that several can send. dry_run: only says what would go.
@question
def cluster_balance(*, dry_run: bool = False) -> Balance: ...
# A queue goes to another node, with all its mail.
@question
def cluster_move(*, number: int, node: str) -> None: ...
# What the configurations of all nodes must have alike (`zonemta_py/cluster/agreed.py`).
@question
def cluster_versions() -> ClusterVersions: ...
@question
def cluster() -> ClusterState: ...  # Its nodes and queues; a node's agent answers (`zonemta_py/cluster/agent.py`).
@question
def ready() -> list[str]: ...  # Why it should get no mail now (`admin/readiness.py`); answered during recovery, too.
# Another configuration, from where the first came (`processes/generations.py`). check: only says what it would do.
@question
def reload(*, check: bool = False, by: str = "") -> Reloaded: ...
# Takes nothing new, ends what is under way, and then itself; cancel: no longer. to_cluster: other nodes take over at
# once what waits.
@question
def drain(
    *, for_s: float = 0.0, by: str = "", cancel: bool = False, to_cluster: bool = False
) -> dict[str, Any] | None: ...
# That of the configuration: 1 at a start, one more with each reload; number: its own in the history, 0: it has none
# yet.
@question
def generation() -> Generation: ...
@question
def rights() -> dict[str, Any]: ...  # What gives clients their rights in the configuration (`config/senders.py`).
@question
def draining() -> DrainState: ...  # What the queue would wait for before it ends, and whether it is to end.
@question
def configurations() -> list[ConfigurationRow]: ...  # Those it has had, the newest first (`queue/reload/history.py`).
@question
def copied() -> str: ...  # Why nothing is sent, as this is a copy; "" if it is no copy.
@question
def adopt() -> Adopted: ...  # The copy replaces the original.
@question
def backup() -> str: ...  # Makes a copy of the queue (`admin/backup.py`); its folder.
@question
def positions() -> Positions: ...  # Low-water marks and journal numbers.
@question
def rotate() -> Closed: ...  # Closes the journal's open segment.


# -- what other processes of the MTA ask in the course of their work


# Number of the journal's last stable record; waits so long for one behind `after`. written: what has been written
# until now is synced at once.
@question
def stable(*, after: int = 0, wait_s: float = 0, written: bool = False) -> int: ...
# The queue whose message a pulled lease is; None if it is not out any more.
@question
def leased(*, lease: int, id: str) -> str | None: ...
# What another process has counted (`metrics/report.py`).
@question
def report(*, process: str, counts: list[list[Any]], gauges: list[list[Any]]) -> None: ...


# -- what the authority of several queues asks each of them (`queues/`)


# Carries out an order that all queues have, and notes its number: ["done", answer, arguments by which the others carry
# it out] or ["refused", why]. sure: another queue has taken it, so names are not checked. repeated: another one tells
# of it in events.
@question
def order(
    *, number: int, asked: str, arguments: dict[str, Any], sure: bool = False, repeated: bool = False
) -> list[Any]: ...
# Learns what one of the queues has been told by servers and people. lessons: rows [number, kind, row], as of
# `queue.api.Membership.lesson`.
@question
def learn(*, origin: int, lessons: list[list[Any]]) -> None: ...
# Gives messages of a zone to another queue, about so many recipients at a time (`queues/transfers.py`). there: zones
# that can be sent from there; here: from here, None: which does not count.
@question
def give(*, to: int, zone: str, there: list[str], here: list[str] | None = None, most: int = 500) -> Gave: ...
# where: of zones, which other node can send them, in a sentence, and whether that lives.
@question
def away(*, where: dict[str, list[Any]]) -> AwayZones: ...
# Takes messages that another queue gives: ["taken", ids] or ["later", why]. number: of what that queue offers, the same
# when it is offered again. order: the last one that they have heard. apart_ms: of that queue's steady time.
@question
def take(
    *,
    giver: int,
    number: int,
    order: int,
    apart_ms: int,
    messages: list[list[Any]],
    campaigns: list[list[Any]],
    tasks: list[bytes],
) -> list[Any]: ...
# Before it, parts of their files.
@question
def take_body(*, id: str, at: int, data: bytes) -> None: ...
@question
def order_number() -> int: ...  # Of the last one that it has carried out; 0: none.
# It may grant leases until then (seconds of the machine's monotonic clock). messages: about shared limits, whose
# answers come at once if there are any, or after wait_s.
@question
def share(*, until: float, messages: list[Any], wait_s: float = 0.0) -> list[Any]: ...
# Of shared limits with these ids (`queues.grants.messages.Id`), units that are missing in what this queue has.
@question
def shared(*, ids: list[list[str]]) -> list[float]: ...


# Of these messages, which a node had accepted before its queue had them (`core/spool.py`), those that a queue has had.
@question
def spooled(*, ids: list[str]) -> list[str]: ...
@question
def alone() -> NodeAlone: ...  # What this node alone has accepted, and no other machine has yet.


UNMEASURED = frozenset((leased, stable, report, share))
