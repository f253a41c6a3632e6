"""Campaigns: one sender, one template, many recipients; the settings of each, and its progress.

A campaign is a record, its template in chunks, its counters and its history, all under `campaign <name>` in the store.
It is paused by a stop of the schedule (journalled). Cancel and complete are journal records too, stable before they are
answered; the store follows. Ended campaigns are deleted after `campaign_days`, with all that belongs to them.

A campaign that nobody has put, but that mail names (X-Campaign), has a record too, without a template: it is `named`.
It begins, in memory and in the batch of its first message, with that message, unless there are `campaign_names` of them
already; and it is forgotten when nothing of it waits (`lifecycle/campaign_names.py`).

Failures: a write that the store refuses raises QueueRefusal, and nothing has changed.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.bodies import restore, shrink
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.mail.schedule_fields import name as checked_name
from zonemta_py.queue.api import QueueRefusal, template_name
from zonemta_py.queue.core.campaign_counters import CampaignCounters, CampaignCounts, campaign_of
from zonemta_py.queue.core.commit import StoreLine
from zonemta_py.queue.questions.question import Refused
from zonemta_py.zones import campaign_hours
from zonemta_py.zones.campaign_hours import CampaignHours

REMOTE, NEVER, FAILURE = "remote", "never", "failure"
NOTIFY = (REMOTE, NEVER, FAILURE)
"""Who notifies the return path of an undeliverable recipient. "remote": other servers, about what they accepted; what
we find out is in the journal and the counters. "never": no server; others are asked for silence too (RFC 3461).
"failure": we do too, as for any message."""
IN_DOUBT = ("retry", "hold")
"""What becomes of recipients whose final reply was awaited at a crash."""
BEGIN, CANCEL, COMPLETE, WINNER = "begin", "cancel", "complete", "winner"
ORDERS = (CANCEL, COMPLETE, WINNER)
"""What STANDING records of the kind "campaign" say, besides its stops."""
NO_TEMPLATE = Reply(451, "4.3.0", "the campaign's template is missing")
TEXTS_MAX = 100
"""Names of earlier templates that a campaign keeps."""


@dataclass(slots=True)
class Campaign:
    """What is stored of a campaign. tenant, zone, sender, priority: defaults for its messages.

    planned: the expected number of recipients, 0: unknown. bounds: see `thresholds`. life_h: hours until a recipient is
    given up. template: SHA-256 of its bytes, in hex, shortened to a name; chunks, size: of the template. notify: who
    notifies the return path of a bounce, see NOTIFY. cause: of the latest order. canceled_ms, complete_ms, ended_ms:
    UNIX ms, 0: not yet. base: [delivered, deferred, bounced, blocked, complaints, bounced_later] when it was last
    resumed; thresholds count from there. seq: the number of the journal's next record when it began. named: nobody has
    put it. alone: it was put by somebody who is for mail of some tenants only ("": of none). hours: when its mail may
    go, None: at any time; later: the same, as it was ordered since, at later_ms; moving: not all that wait have been
    looked at after that. in_doubt: of IN_DOUBT, "": as the zone says.
    choice: between variants, see `campaigns.choice`; winner: the variant that has given its template, asked: the
    template that it was put with; texts: those that it had before the present one. What waits gets the present one,
    whichever it came for. first: no message with a lower id is its own, whose name it may have: another campaign was
    called that; "": any may be. deciding: not stored.
    """

    name: str
    sender: str
    tenant: str
    zone: str
    priority: int
    planned: int
    bounds: dict[str, float]
    life_h: float
    created_ms: int
    template: str
    chunks: int
    size: int
    notify: str = REMOTE
    cause: str = ""
    canceled_ms: int = 0
    complete_ms: int = 0
    ended_ms: int = 0
    base: list[int] = field(default_factory=list)
    seq: int = 0
    named: bool = False
    alone: bool = False
    hours: CampaignHours | None = None
    later: CampaignHours | None = None
    later_ms: int = 0
    moving: bool = False
    in_doubt: str = ""
    choice: dict[str, Any] = field(default_factory=dict)
    winner: str = ""
    asked: str = ""
    texts: list[str] = field(default_factory=list)
    first: str = ""
    deciding: bool = False

    def settings(self) -> tuple[Any, ...]:
        """What must be equal if it is put again, with a template that it has or had."""
        return (
            self.sender, self.tenant, self.zone, self.priority, self.planned, self.bounds, self.life_h,
            self.notify, self.hours, self.in_doubt, {**self.choice, "decide_ms": 0} if self.choice else None,
        )  # fmt: skip

    def has_had(self, template: str) -> bool:
        return template in (self.template, self.asked, *self.texts)

    def retext(self, template: str, chunks: int, size: int) -> None:
        """Another template is its own from now on."""
        self.asked = self.asked or self.template
        self.texts = [name for name in (*self.texts, self.template) if name != template][-TEXTS_MAX:]
        self.template, self.chunks, self.size = template, chunks, size

    @property
    def times(self) -> CampaignHours | None:
        """When its mail may go now."""
        times = self.hours if self.later is None else self.later
        return times if times and any(times) else None

    def times_of(self, columns: list[str], values: list[str]) -> campaign_hours.Times | None:
        """The same, of one recipient. values: of `columns`."""
        times = self.times
        return campaign_hours.of(times, self.later_ms or self.created_ms, columns, values) if times else None

    @property
    def of_all(self) -> bool:
        """Whether it is an operator's, for whatever mail there is."""
        return not (self.tenant or self.named or self.alone)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Of whose mail it is, and orders about it are; none: everybody's."""
        if self.of_all:
            return ()
        return (self.tenant, "") if self.tenant and not self.named else (self.tenant,)

    def is_of(self, tenant: str) -> bool:
        """Whether mail of that tenant ("": of none) can be of this campaign."""
        return self.of_all or tenant in self.tenants

    def stored(self) -> dict[str, Any]:
        """Its fields, as they are stored and recorded."""
        return asdict(self) | {"deciding": False}

    def record(self) -> bytes:
        return packing.pack(self.stored())


class Campaigns:
    """The campaigns in the store. `counters` are written with each batch (`core.changes`)."""

    def __init__(self, store: Store) -> None:
        self.by_name: dict[str, Campaign] = {}
        self.counters = CampaignCounters(store)
        self.canceled: set[str] = set()
        self.timed: set[str] = set()
        """Those with hours of their own."""
        self.shortest_life_h = math.inf
        self._store = store
        self._arriving: dict[str, asyncio.Future[None]] = {}
        self.named: dict[str, Campaign] = {}
        self.names_of = Counter[str]()
        """How many named ones each tenant has ("": none), without those that have none."""
        self.unwritten, self.written = set[str](), set[str]()
        """Named ones whose record is to be written; and was, with the last batch."""
        self.replaced: list[str] = []
        """Names that became another campaign's, or nobody's, while mail of it was waiting; the monitor takes them."""
        for name in self.counters.names():
            value = store.get(keys.campaign(name))
            if value is None:
                self.counters.forget(name)
                continue
            self._take(_of(name, value))

    def _take(self, campaign: Campaign) -> None:
        self.by_name[campaign.name] = campaign
        if campaign.named:
            self.named[campaign.name] = campaign
            self.names_of[campaign.tenant] += 1
            return
        self._unname(campaign.name)
        self.unwritten.discard(campaign.name)
        self.written.discard(campaign.name)
        self.shortest_life_h = min(self.shortest_life_h, campaign.life_h)
        if campaign.canceled_ms:
            self.canceled.add(campaign.name)
        self.time(campaign)

    def _unname(self, name: str) -> Campaign | None:
        """It is no named one any more; None: nor was it."""
        named = self.named.pop(name, None)
        if named is not None:
            self._less(named.tenant)
        return named

    def _less(self, tenant: str) -> None:
        self.names_of[tenant] -= 1
        if not self.names_of[tenant]:
            del self.names_of[tenant]

    def _give(self, named: Campaign, tenant: str) -> None:
        """It is another tenant's from now on."""
        self._less(named.tenant)
        named.tenant = tenant
        self.names_of[tenant] += 1

    def time(self, campaign: Campaign) -> None:
        """It has hours of its own, or has none any more."""
        (self.timed.add if campaign.times else self.timed.discard)(campaign.name)

    def get(self, name: str) -> Campaign:
        """Raises ValueError."""
        campaign = self.by_name.get(name)
        if campaign is None:
            raise Refused(f"there is no campaign {name!r}; `zonemta campaign list` shows all campaigns")
        return campaign

    def tally(self, name: str) -> CampaignCounts:
        return self.counters.of(name)

    def registered(self, name: str) -> Campaign | None:
        """One that somebody has put."""
        campaign = self.by_name.get(name)
        return None if campaign is None or campaign.named else campaign

    def lives(self, name: str) -> bool:
        """Whether the campaign exists, ended or not: what belongs to it is kept as long."""
        return self.registered(name) is not None or name in self._arriving

    def arrives(self, name: str) -> bool:
        """Whether it is being made."""
        return name in self._arriving

    def owns(self, name: str, message_id: str) -> bool:
        """Whether a message that counted for a campaign of that name counts for the present one."""
        campaign = self.by_name.get(name)
        return campaign is None or message_id >= campaign.first

    def counted_by(self, message_id: str, metadata: dict[str, Any]) -> str:
        """The campaign whose counters include the recipients of a message; "" if there is none."""
        name = campaign_of(metadata)
        return name if name and self.owns(name, message_id) else ""

    # -- mail that is not merged

    def counts(self, name: str, tenant: str, ms: int, message_id: str, first: str = "") -> bool:
        """Whether a message that names it counts for it; it begins with that. first: as of a new campaign."""
        campaign = self.by_name.get(name)
        if campaign is None:
            return self._name(name, tenant, ms, first)
        return campaign.is_of(tenant) and message_id >= campaign.first and not self.over(campaign)

    def _name(self, name: str, tenant: str, ms: int, first: str) -> bool:
        if name in self._arriving:
            return False
        try:
            checked_name(name)  # a plugin may have named it
        except InvalidValue:
            return False
        self._take(Campaign(name, "", tenant, "", 0, 0, {}, math.inf, ms, "", 0, 0, named=True, first=first))
        self.unwritten.add(name)
        self.counters.open(name)
        return True

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = [(keys.campaign(name), self.by_name[name].record()) for name in self.unwritten]
        if self.counters.left:
            operations += [(keys.left(name), None) for name in self.unwritten & self.counters.left]
            self.counters.left -= self.unwritten
        self.written, self.unwritten = self.unwritten, set()
        return operations

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten |= self.written

    def terms(self, metadata: dict[str, Any], values: list[str] | None, early: bool = False) -> dict[str, Any]:
        """A message's metadata, with what its campaign says of one recipient, as `schedule.time.hours` takes them:
        window, time_zone, hold_until_ms, until_ms, ends_ms; timed: the hold is the campaign's.

        Nothing of it is stored with the recipient: it follows from the campaign's hours and the recipient's `values`
        (None: nothing is merged). early: a task has said when it goes, so no hold counts.
        """
        if early and metadata.get("hold_until_ms"):
            metadata = metadata | {"hold_until_ms": 0}
        if values is None or metadata.get("campaign") not in self.timed:
            return metadata
        campaign = self.by_name[metadata["campaign"]]
        hours, times = campaign.times, campaign.times_of(metadata.get("columns", []), values)
        assert hours is not None
        assert times is not None
        more: dict[str, Any] = {"time_zone": times.time_zone}
        if hours.window:
            more["window"] = hours.window
        if times.from_ms > metadata.get("hold_until_ms", 0) and not early:
            more |= {"hold_until_ms": times.from_ms, "hold_for": False, "timed": True}
        if times.until_ms:
            more |= {"until_ms": times.until_ms, "ends_ms": campaign_hours.ends_ms(hours)}
        return metadata | more

    def over(self, campaign: Campaign) -> bool:
        """Whether it accepts no more mail."""
        if campaign.ended_ms:
            return True
        return bool(campaign.complete_ms or campaign.canceled_ms) and self.tally(campaign.name).waiting <= 0

    # -- changes, each stable before it is answered

    async def create(self, campaign: Campaign, template: bytes, lines: StoreLine) -> bool:
        """False: it exists already, unchanged. Raises ValueError if it exists with other content, QueueRefusal."""
        while (other := self._arriving.get(campaign.name)) is not None:
            await asyncio.wait([other])
        known = self.registered(campaign.name)
        if known is not None:
            if known.settings() != campaign.settings() or not known.has_had(campaign.template):
                raise Refused(_exists(known, campaign))
            return False
        named, before = self.named.get(campaign.name), ""
        goes_on = named is not None and (not named.tenant or campaign.is_of(named.tenant))
        if named is not None:
            self.unwritten.discard(named.name)  # its record would be written after the campaign's
            self.written.discard(named.name)
            if goes_on:
                campaign.first = named.first
            else:
                before = self._replace(named, campaign)
        self._arriving[campaign.name] = asyncio.get_running_loop().create_future()
        try:
            chunks = [template[at : at + CHUNK_BYTES] for at in range(0, len(template), CHUNK_BYTES)]
            campaign.chunks = len(chunks)
            operations: list[Operation] = [
                (keys.template(campaign.name, number), shrink(chunk)) for number, chunk in enumerate(chunks, 1)
            ]
            operations.append((keys.campaign(campaign.name), campaign.record()))
            if not goes_on:
                operations += [(keys.tally(campaign.name), packing.pack([])), (keys.course(campaign.name), None)]
            if campaign.name in self.counters.left:
                operations.append((keys.left(campaign.name), None))
            await _write(lines, operations, keep=False)
            self.counters.left.discard(campaign.name)
            self.counters.open(campaign.name)
            self._take(campaign)
        except QueueRefusal:
            if named is not None:
                self._give(named, before or named.tenant)
                self.unwritten.add(named.name)
            raise
        finally:
            self._arriving.pop(campaign.name).set_result(None)
        return True

    def _replace(self, named: Campaign, campaign: Campaign) -> str:
        """Mail of another tenant has named it before: from now on its name is that of the tenant who makes it, and what
        waits of the other is nobody's, and goes on. Returns whose it was; if the campaign cannot be made, it is that
        one's again, whose figures begin anew."""
        before, named.first = named.tenant, campaign.first
        self._give(named, campaign.tenant)
        self.counters.forget(named.name)
        self.counters.open(named.name)
        self.replaced.append(named.name)
        return before

    def take_over(self, campaign: Campaign) -> None:
        """Another queue had it: it exists here from now on; the caller writes its record and its template."""
        self._take(campaign)
        self.counters.left.discard(campaign.name)
        self.counters.open(campaign.name)

    def apply(self, campaign: Campaign, what: str, ms: int, cause: str) -> None:
        """Applies an order (CANCEL, COMPLETE) in memory."""
        if what == COMPLETE:
            campaign.complete_ms = campaign.complete_ms or ms
        elif not campaign.canceled_ms:
            campaign.canceled_ms, campaign.cause = ms, cause
            self.canceled.add(campaign.name)

    def again(self, order: StandingRecord) -> list[Operation]:
        """Applies an order's record that a crash kept from the store; returns the operations."""
        (_, name), (created_ms, ms, *more) = order.subject, order.value
        campaign = self.by_name.get(name)
        if campaign is None or campaign.named or campaign.created_ms != created_ms:  # another campaign of that name
            return []
        if order.what == WINNER:
            return self._choose(campaign, more[0], order.cause)
        self.apply(campaign, order.what, ms, order.cause)
        return [(keys.campaign(name), campaign.record())]

    def _choose(self, campaign: Campaign, winner: str, cause: str) -> list[Operation]:
        """The winner's template becomes its own, unless another has been chosen. Raises StoreError."""
        other = self.registered(winner)
        if campaign.winner not in ("", winner) or other is None:
            return []
        parts = [self._store.get(keys.template(winner, number)) for number in range(1, other.chunks + 1)]
        if None in parts:
            raise StoreDamaged(f"campaign {winner} has lost a part of its template")
        operations = _parts(campaign, [part for part in parts if part is not None])
        campaign.winner, campaign.cause = winner, cause
        campaign.retext(other.template, other.chunks, other.size)
        return [*operations, (keys.campaign(campaign.name), campaign.record())]

    async def retext(self, campaign: Campaign, template: bytes, lines: StoreLine) -> None:
        """All that waits of it gets this template. Template and record are one batch; until that is stable, nothing has
        changed. Raises QueueRefusal."""
        chunks = [shrink(template[at : at + CHUNK_BYTES]) for at in range(0, len(template), CHUNK_BYTES)]
        after = replace(campaign)
        after.retext(template_name(template), len(chunks), len(template))
        operations = [*_parts(campaign, chunks), (keys.campaign(campaign.name), after.record())]
        await _write(lines, operations, keep=False)
        campaign.retext(after.template, after.chunks, after.size)

    async def save(self, campaign: Campaign, lines: StoreLine) -> None:
        """Returns once its record is stable."""
        await _write(lines, [(keys.campaign(campaign.name), campaign.record())], keep=True)

    def forget(self, campaign: Campaign, left: str = "") -> list[Operation]:
        """Deletes all that there is of it. left: an id above those of its name's mail that waits; "": there is none."""
        del self.by_name[campaign.name]
        remains: list[Operation] = [(keys.left(campaign.name), left.encode())] if left else []
        if left:
            self.counters.left.add(campaign.name)
        if self._unname(campaign.name) is not None:
            self.unwritten.discard(campaign.name)
            self.written.discard(campaign.name)
            self.counters.forget(campaign.name)
            return [*remains, *[(key(campaign.name), None) for key in (keys.campaign, keys.tally, keys.course)]]
        self.shortest_life_h = min((other.life_h for other in self.by_name.values()), default=math.inf)
        self.canceled.discard(campaign.name)
        self.timed.discard(campaign.name)
        self.counters.forget(campaign.name)
        name = campaign.name
        operations: list[Operation] = [(keys.template(name, number), None) for number in range(1, campaign.chunks + 1)]
        return [*remains, *operations, (keys.campaign(name), None), (keys.tally(name), None), (keys.course(name), None)]

    # -- the template

    def chunks(self, name: str, first: int, most: int) -> list[bytes]:
        """Up to `most` chunks of its template from `first` on, as they are stored. Raises QueueRefusal, StoreError."""
        campaign = self.registered(name)
        if campaign is None or not campaign.chunks:  # lost by damage
            raise QueueRefusal(NO_TEMPLATE)
        last = min(first + most - 1, campaign.chunks)
        found = [self._store.get(keys.template(name, number)) for number in range(first, last + 1)]
        if None in found:
            raise StoreDamaged(f"campaign {name} has lost a part of its template")
        return [chunk for chunk in found if chunk is not None]


def _parts(campaign: Campaign, chunks: list[bytes]) -> list[Operation]:
    """Writes these in place of its template."""
    operations: list[Operation] = [(keys.template(campaign.name, n), chunk) for n, chunk in enumerate(chunks, 1)]
    operations += [(keys.template(campaign.name, n), None) for n in range(len(chunks) + 1, campaign.chunks + 1)]
    return operations


def _exists(known: Campaign, given: Campaign) -> str:
    name = known.name
    if known.settings() == given.settings():
        what = f"campaign {name!r} already exists with another template, which stays"
        return f"{what}; suspend it, and correct its text (`zonemta campaign text {name}`)"
    return f"campaign {name!r} already exists with other settings, which stay; choose another name"


def canceled(campaign: Campaign) -> str:
    """The reason for which its recipients are removed, as recorded in the journal."""
    return f"campaign {campaign.name} was canceled: {campaign.cause}"


def whole(kept: list[bytes]) -> bytes:
    """The template from its stored chunks. Raises QueueRefusal."""
    try:
        return b"".join(restore(chunk, CHUNK_BYTES) for chunk in kept)
    except ValueError:
        raise QueueRefusal(NO_TEMPLATE) from None


def _of(name: str, value: bytes) -> Campaign:
    return campaign_from(name, packing.unpack(value))


def campaign_from(name: str, row: dict[str, Any]) -> Campaign:
    """Of its stored fields."""
    for name_ in ("hours", "later"):
        if row.get(name_) is not None:
            row[name_] = CampaignHours(*row[name_])
    known = Campaign.__dataclass_fields__
    return Campaign(**{key: value for key, value in row.items() if key in known} | {"name": name})


async def _write(lines: StoreLine, operations: list[Operation], keep: bool) -> None:
    done: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    lines.submit(operations, lambda reply: None if done.done() else done.set_result(reply), sync=True, keep=keep)
    refused = await asyncio.shield(done)
    if refused is not None:
        raise QueueRefusal(refused)
