"""Periodic work on campaigns: `tick`, called about every second, records each campaign's history, pauses those beyond a
threshold, cancels those whose time is over (`until`), removes what waits of canceled ones, ends those with nothing
left, and forgets ended ones. When the machine's clock was set, whoever waits for an hour of theirs is looked at again:
the times in the store's keys are steady, those of campaigns are the clock's (`schedule.time.steady`).

Failures: StoreError on a disk error; the next tick does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.queue.campaigns import choice, thresholds
from zonemta_py.queue.campaigns.history import RATE_MS, CampaignHistory
from zonemta_py.queue.campaigns.purge import Sweep
from zonemta_py.queue.campaigns.thresholds import stop_of
from zonemta_py.queue.core.campaigns import CANCEL, COMPLETE, Campaign
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle import campaign_names
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import campaign_hours

SAVE_MS = 30_000
"""How often a history is saved, at most."""
SWEEP_MS = 60_000
"""How often to look for waiting mail of canceled campaigns."""
READ_AT_ONCE = 1_000
WAITING_MOST = 2_000
"""Keys that are to be read in a zone; beyond, the walk waits."""
_DAY_MS = 86_400_000


class CampaignMonitor:
    """Of all campaigns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._histories: dict[str, CampaignHistory] = {}
        self._moved: dict[str, Moved] = {}
        self._sweep: Sweep | None = None
        self._swept_ms = 0
        self._apart_ms = 0
        """How far steady time was ahead of the clock at the last tick; after a start, as if that had never been set."""

    def sweep_soon(self) -> None:
        """A campaign was canceled: a pass over all canceled ones begins with the next tick."""
        self._sweep, self._swept_ms = None, 0

    def tick(self) -> bool:
        """Checks each campaign; True: there is more to remove at once. Raises StoreError."""
        core, now_ms = self._core, self._core.clock.ms()
        self._follow_clock()
        self.forget_replaced()
        for campaign in list(core.campaigns.by_name.values()):
            if core.campaigns.arrives(campaign.name):
                continue
            operations = self._follow_named(campaign, now_ms) if campaign.named else self._follow(campaign, now_ms)
            if operations:
                core.disk.lines.submit(operations, immediately, sync=False, keep=True)
        for campaign in list(campaign_names.forgotten(core, now_ms)):
            core.disk.lines.submit(self._forget(campaign), immediately, sync=False, keep=True)
        if core.campaigns.counters.left and (operations := campaign_names.gone(core)):
            core.disk.lines.submit(operations, immediately, sync=False, keep=True)
        return self._remove(now_ms)

    def _follow_clock(self) -> None:
        """If it was set, all that wait for an hour are to be looked at again."""
        core, apart_ms = self._core, self._core.clock.apart_ms()
        if apart_ms == self._apart_ms:
            return
        self._apart_ms = apart_ms
        for name in core.campaigns.timed:
            campaign = core.campaigns.by_name[name]
            if not campaign.ended_ms:
                self.move(campaign)
                record: list[Operation] = [(keys.campaign(name), campaign.record())]
                core.disk.lines.submit(record, immediately, sync=False, keep=True)

    def _follow_named(self, campaign: Campaign, now_ms: int) -> list[Operation]:
        """As long as anything happens; a thousand of them may be at rest."""
        if not self._rests(campaign):
            history = self.history(campaign)
            history.look(now_ms, self._core.campaigns.tally(campaign.name))
            self._check(campaign)
            return self._save(campaign, history, now_ms)
        left = self._histories.pop(campaign.name, None)
        return [_saved(campaign, left)] if left is not None and left.dirty else []

    def _follow(self, campaign: Campaign, now_ms: int) -> list[Operation]:
        core = self._core
        tally = core.campaigns.tally(campaign.name)
        if campaign.ended_ms and tally.waiting > 0:  # what had bounced was queued again
            campaign.ended_ms = 0
            return [(keys.campaign(campaign.name), campaign.record())]
        if campaign.ended_ms:
            if core.membership is not None and stop_of(core, campaign) is not None:
                if campaign.canceled_ms:
                    self._lift(campaign)
                else:  # it holds here, too, until it has ended in all queues
                    core.membership.decide(campaign.name)
            old = now_ms > campaign.ended_ms + self._kept_ms()
            return self._forget(campaign) if old and not campaign_names.keeps_bounces(core, campaign) else []
        times = campaign.times
        if times and 0 < campaign_hours.ends_ms(times) <= now_ms and not campaign.canceled_ms:
            self._end(campaign, times.until)
        if campaign.moving and not self._move(campaign):
            return [(keys.campaign(campaign.name), campaign.record())]
        choice.follow(core, campaign, now_ms)
        history = self.history(campaign)
        history.look(now_ms, tally)
        if core.campaigns.over(campaign):
            campaign.ended_ms = now_ms
            del self._histories[campaign.name]
            self._lift(campaign)
            return [(keys.campaign(campaign.name), campaign.record()), _saved(campaign, history)]
        self._check(campaign)
        return self._save(campaign, history, now_ms)

    def _end(self, campaign: Campaign, until: str) -> None:
        """Its time is over for everybody."""
        if (member := self._core.membership) is not None:
            if self._core.campaigns.tally(campaign.name).waiting > 0 or not campaign.complete_ms:
                member.decide(campaign.name)
            return
        if self._core.campaigns.tally(campaign.name).waiting > 0:
            order(self._core, campaign, CANCEL, ended_at(until))
            self.sweep_soon()
        elif not campaign.complete_ms:
            order(self._core, campaign, COMPLETE, ended_at(until))

    def _move(self, campaign: Campaign) -> bool:
        """One portion of those who waited for other hours; False: all have been looked at."""
        walk = self._moved.setdefault(campaign.name, Moved(self._core, campaign))
        if walk.go_on():
            return True
        del self._moved[campaign.name]
        campaign.moving = False
        return False

    def move(self, campaign: Campaign) -> None:
        """It goes at other hours from now on: whoever waits is looked at again."""
        campaign.moving = True
        self._moved.pop(campaign.name, None)

    def _save(self, campaign: Campaign, history: CampaignHistory, now_ms: int) -> list[Operation]:
        if history.dirty and now_ms - history.saved_ms >= SAVE_MS:
            history.dirty, history.saved_ms = False, now_ms
            return [_saved(campaign, history)]
        return []

    def _check(self, campaign: Campaign) -> None:
        """Pauses it if it has passed a threshold."""
        bounds = self.bounds(campaign)
        if not bounds or campaign.canceled_ms or stop_of(self._core, campaign) is not None:
            return
        counted = thresholds.counted(self._core.campaigns.tally(campaign.name), campaign.base)
        if (member := self._core.membership) is not None:
            if thresholds.perhaps_passed(bounds, counted):
                member.decide(campaign.name)
            return
        cause = thresholds.passed(bounds, counted)
        if cause:
            policy = self._core.schedule.policy
            policy.stop("campaign", campaign.name, math.inf, cause, chosen=True, tenants=campaign.tenants)

    def _remove(self, now_ms: int) -> bool:
        """Removes one portion of what waits of canceled campaigns; a pass begins every minute while anything is
        left."""
        campaigns = self._core.campaigns
        if self._sweep is None:
            left = {name: campaigns.get(name) for name in campaigns.canceled if campaigns.tally(name).waiting > 0}
            if not left or now_ms - self._swept_ms < SWEEP_MS:
                return False
            self._sweep = Sweep(self._core, left)
        try:
            more = self._sweep.go_on()
        except StoreError:
            self._sweep = None
            raise
        if not more:
            self._sweep, self._swept_ms = None, now_ms
        return more

    def _kept_ms(self) -> int:
        return int(self._core.config.queue.campaign_days * _DAY_MS)

    def _forget(self, campaign: Campaign) -> list[Operation]:
        self._lift(campaign)
        self._histories.pop(campaign.name, None)
        return campaign_names.forget(self._core, campaign)

    def _lift(self, campaign: Campaign) -> None:
        if stop_of(self._core, campaign) is not None:
            self._core.schedule.policy.lift("campaign", campaign.name, "it has ended", campaign.tenants)

    def forget_replaced(self) -> None:
        """The courses of those whose name has become another campaign's, or nobody's."""
        replaced = self._core.campaigns.replaced
        while replaced:
            self._histories.pop(replaced.pop(), None)

    def bounds(self, campaign: Campaign) -> dict[str, float]:
        """Its thresholds."""
        named = self._core.config.queue.campaign_bounds
        return {str(name): share for name, share in named.items()} if campaign.named else campaign.bounds

    def rate_per_s(self, campaign: Campaign, now_ms: int) -> float:
        """Recipients ended per second; 0: at rest."""
        history = self._histories.get(campaign.name)
        return history.rate_per_s(now_ms, self._core.campaigns.tally(campaign.name)) if history is not None else 0.0

    def history(self, campaign: Campaign) -> CampaignHistory:
        """From memory, or as it was saved. Raises StoreError."""
        history = self._histories.get(campaign.name)
        if history is None:
            value = self._core.disk.store.get(keys.course(campaign.name))
            history = CampaignHistory(packing.unpack(value)) if value else CampaignHistory.begun(campaign.created_ms)
            if not campaign.ended_ms and not self._rests(campaign):
                self._histories[campaign.name] = history
        return history

    def _rests(self, campaign: Campaign) -> bool:
        """Whether it is a named one that is not followed."""
        tally = self._core.campaigns.tally(campaign.name)
        return campaign.named and tally.waiting <= 0 and self._core.clock.ms() - tally.last_ms >= RATE_MS


def ended_at(until: str) -> str:
    """The cause of the end of one that had such a time."""
    return f"it was to go until {until}"


def order(core: Core, campaign: Campaign, what: str, cause: str) -> None:
    """CANCEL or COMPLETE: in effect at once, permanent once it is in the journal; then the store is updated."""
    now_ms = core.clock.ms()
    core.campaigns.apply(campaign, what, now_ms, cause)
    said = StandingRecord(what, ["campaign", campaign.name], [campaign.created_ms, now_ms], cause)

    def apply() -> None:
        operations: list[Operation] = [(keys.campaign(campaign.name), campaign.record())]
        core.disk.lines.submit(operations, immediately, sync=False, keep=True)

    core.disk.ledger.write(Type.STANDING, said.pack(), apply)


def _saved(campaign: Campaign, history: CampaignHistory) -> Operation:
    return keys.course(campaign.name), packing.pack(history.saved())


class Moved:
    """One walk over what is deferred, for a campaign that is to go at other hours than before: who waits for the
    earlier ones is looked at again, in portions.

    They are read before they are due, as mail whose destination is there again (`schedule.away`): who may go now goes,
    the others are put off anew, each to their own time. Until all have been read the campaign is `moving`; after a
    restart it is begun again.
    """

    def __init__(self, core: Core, campaign: Campaign) -> None:
        self._core, self._campaign = core, campaign
        self._zones: Iterator[ZoneSchedule] = iter(list(core.schedule.zones.values()))
        self._zone = next(self._zones, None)
        self._start = b""

    def go_on(self) -> bool:
        """One portion; True: there is more. Raises StoreError."""
        zone = self._zone
        if zone is None:
            return False
        if len(zone.away.back) >= WAITING_MOST:
            return True
        start = self._start or b"%s%012x " % (keys.deferred_range(zone.zone.name), self._core.clock.steady_ms() + 1)
        stop = keys.end(keys.deferred_range(zone.zone.name))
        rows = list(islice(self._core.disk.store.scan(start, stop), READ_AT_ONCE))
        zone.away.back.extend(key for key, value in rows if self._meant(Note.of(value)))
        if len(rows) < READ_AT_ONCE:
            self._zone, self._start = next(self._zones, None), b""
        else:
            self._start = rows[-1][0] + b"\0"
        self._core.changed()
        return self._zone is not None

    def _meant(self, note: Note) -> bool:
        return not note.attempts and note.values is not None and FlowId.of(note.flow).campaign == self._campaign.name
