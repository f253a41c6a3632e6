"""Orders about campaigns and their answers: put, pause, resume, cancel, complete; the state of each.

An order is on stable storage before it is answered. A cancel takes effect at once: nothing of the campaign is leased
any more, and waiting recipients are removed in the background (`monitor.py`, by `tick`).
"""

from __future__ import annotations

import heapq
import logging
import math
from dataclasses import asdict
from typing import Any

from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.mail.schedule_fields import name as checked_name
from zonemta_py.queue.api import EVERYBODY, QueueRefusal, template_name
from zonemta_py.queue.campaigns import choice as variants
from zonemta_py.queue.campaigns import thresholds as bounds
from zonemta_py.queue.campaigns import unregistered, waiting_hours
from zonemta_py.queue.campaigns.monitor import CampaignMonitor, order
from zonemta_py.queue.campaigns.thresholds import stop_of
from zonemta_py.queue.core.campaigns import BEGIN, CANCEL, COMPLETE, IN_DOUBT, NOTIFY, REMOTE, Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.feedback.consequences import FIGURES
from zonemta_py.queue.questions.question import Refused, is_given
from zonemta_py.schedule.policy.state import Suspension
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones import campaign_hours
from zonemta_py.zones.campaign_hours import LAST_ZONE, CampaignHours

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
OPERATOR = "by an operator"
ROWS = 1_000
"""Of one answer."""
TEMPLATE_BYTES_MAX = 16 * 1024 * 1024


class CampaignCommands:
    """The orders of operators and of the clock."""

    def __init__(self, core: Core, delete: unregistered.Delete) -> None:
        self._core, self._delete = core, delete
        self._monitor = CampaignMonitor(core)
        self.tick = self._monitor.tick

    # -- orders

    async def put(
        self, name: str, sender: str, template: bytes, *, tenant: str = "", zone: str = "", priority: int = 0,
        planned: int = 0, bounds: dict[str, Any] | None = None, life_h: float = 168, notify: str = REMOTE,
        alone: bool = False, hours: dict[str, Any] | None = None, in_doubt: str = "",
        choice: dict[str, Any] | None = None,
    ) -> dict[str, bool]:  # fmt: skip
        """A new one. alone: as of `Campaign`; hours: the fields of `CampaignHours`; choice: as of `choice.checked`.

        Raises ValueError for invalid values, or an existing campaign with other content; QueueRefusal."""
        self._check_accepting()
        campaign = Campaign(
            checked_name(name), sender, checked_name(tenant) if tenant else "", zone, int(priority), int(planned),
            _bounds(bounds), float(life_h), self._core.clock.ms(), template_name(_template(template)), 0,
            len(template), notify, alone=bool(alone), hours=self._hours(name, hours or {}), in_doubt=in_doubt,
        )  # fmt: skip
        if not -9 <= campaign.priority <= 9:
            raise Refused(f"the priority is {priority}; use -9 to 9")
        if self._core.schedule.pull_zone(zone):
            raise Refused(f"zone {zone!r} is a pull zone, whose mail is taken as it is; use one that sends")
        if zone and zone not in self._core.schedule.zones:
            raise Refused(f"there is no zone {zone!r}; there are {', '.join(self._core.schedule.zones)}")
        if not 0 < campaign.life_h < math.inf:
            raise Refused(f"life_h is {life_h}; give hours, more than 0")
        if notify not in NOTIFY:
            raise Refused(f"there is no notify {notify!r}; use {', '.join(NOTIFY)}")
        if in_doubt and in_doubt not in IN_DOUBT:
            raise Refused(f"there is no in_doubt {in_doubt!r}; use {', '.join(IN_DOUBT)}, or leave it to the zone")
        if choice:
            campaign.choice = variants.checked(self._core, name, choice, campaign.created_ms)
        campaign.seq = self._core.disk.journal.next_seq
        if any(self._core.counters.sizes.flows.campaigns.of(name)):
            campaign.first = self._core.disk.ids.next(campaign.created_ms)
        created = await self._core.campaigns.create(campaign, template, self._core.disk.lines)
        if created:
            self._monitor.forget_replaced()
            begun(self._core, campaign)
            if campaign.choice:
                variants.pause(self._core, campaign)
            await self._core.disk.journal.stable()
        return {"created": created}

    def _check_accepting(self) -> None:
        """Raises QueueRefusal."""
        if (refusal := self._core.disk.refusal(self._core.clock.monotonic())) is not None:
            raise QueueRefusal(refusal)

    async def decide(self, name: str, winner: str = "", cause: str = "") -> dict[str, Any]:
        """A campaign whose template is to be chosen gets that of a variant; winner "": of the one that is best now."""
        core, campaign = self._core, self._core.campaigns.get(name)
        if not campaign.choice or campaign.canceled_ms:
            raise Refused(f"campaign {name!r} has no variants to choose from, or was canceled")
        if not campaign.winner:
            found = (
                variants.best(campaign.choice["metric"], variants.figures(core, campaign))
                if not winner
                else (winner, cause or OPERATOR)
            )
            if found is None:
                raise Refused("nothing of the variants was delivered yet; name the one to choose")
            if found[0] not in campaign.choice["of"]:
                raise Refused(f"{winner!r} is no variant of {name!r}; use {', '.join(campaign.choice['of'])}")
            core.campaigns.get(found[0])
            variants.choose(core, campaign, *found)
        elif winner and winner != campaign.winner:
            raise Refused(f"{campaign.winner!r} was chosen already: {campaign.cause}")
        return await self._answer(name, campaign)

    async def text(self, name: str, template: bytes, cause: str = "") -> dict[str, Any]:
        """A suspended campaign gets another template, for all that waits of it and all that comes. Raises ValueError,
        QueueRefusal; nothing has changed then."""
        self._check_accepting()
        core, campaign = self._core, self._core.campaigns.get(name)
        if campaign.named:
            raise Refused(f"campaign {name!r} is only known from its mail, which has its text already")
        await self._going(name)
        if variants.undecided(campaign):
            of = ", ".join(campaign.choice["of"])
            raise Refused(f"campaign {name!r} gets the template of one of {of}; correct those, or choose one before")
        if stop_of(core, campaign) is None:
            what = f"campaign {name!r} is not suspended, so some would get the old text and some the new"
            raise Refused(f"{what}; `zonemta campaign suspend {name}` it before")
        if template_name(_template(template)) != campaign.template:
            await core.campaigns.retext(campaign, template, core.disk.lines)
            log.info("campaign %s has another template, %s: %s", name, campaign.template, cause or OPERATOR)
        return await self._answer(name, campaign)

    async def templates(self, name: str) -> list[list[str]]:
        """[campaign, its template's name] of the campaign, and of those that it will be chosen from."""
        known, campaign = self._core.campaigns, self._core.campaigns.get(name)
        of = [name, *(campaign.choice["of"] if variants.undecided(campaign) else ())]
        return [[one, known.by_name[one].template] for one in of if known.registered(one) is not None]

    def _hours(self, name: str, given: dict[str, Any]) -> CampaignHours | None:
        """Raises ValueError."""
        core = self._core
        if (known := core.campaigns.registered(name)) is not None and known.hours == campaign_hours.said(given):
            return known.hours  # it is put again, however late that is
        return self._checked_hours(given)

    def _checked_hours(self, given: dict[str, Any]) -> CampaignHours | None:
        """Raises ValueError."""
        config, now_ms = self._core.config, self._core.clock.ms()
        hours = campaign_hours.checked(given, frozenset(one.name for one in config.windows), now_ms)
        if (
            hours
            and hours.at
            and campaign_hours.moment_ms(hours.at, LAST_ZONE, now_ms)
            > now_ms + (most_ms := int(config.limits.hold_days * DAY_MS))
        ):
            raise Refused(f"mail is held for {most_ms / DAY_MS:g} days at most (limits.hold_days); send it later")
        return hours

    async def pause(self, name: str, cause: str = "") -> dict[str, Any]:
        campaign = await self._going(name)
        tenants = campaign.tenants if campaign is not None else ()
        self._core.schedule.policy.stop("campaign", name, math.inf, cause or OPERATOR, chosen=True, tenants=tenants)
        return await self._answer(name, campaign)

    async def resume(self, name: str, cause: str = "") -> dict[str, Any]:
        """Its thresholds count from here on."""
        campaign, schedule = await self._going(name), self._core.schedule
        if campaign is not None and variants.undecided(campaign):
            raise Refused(f"{name!r} waits for the best of its variants; choose one (`zonemta campaign winner {name}`)")
        if campaign is not None:
            campaign.base = bounds.figures(self._core.campaigns.tally(name))
            await self._core.campaigns.save(campaign, self._core.disk.lines)
        schedule.policy.lift("campaign", name, cause or OPERATOR, campaign.tenants if campaign is not None else ())
        schedule.lift()
        return await self._answer(name, campaign)

    async def schedule(
        self, name: str, at: str | None = None, window: str | None = None, until: str | None = None,
        time_zone: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """It goes at other hours from now on; None: as it is; "": no longer. Raises ValueError."""
        said = {"at": at, "window": window, "until": until, "time_zone": time_zone}
        given = {key: value.strip() for key, value in said.items() if value is not None}
        campaign = await self._going(name)
        if campaign is None or campaign.named:
            self._checked_hours({key: value for key, value in given.items() if value})
            raise Refused(f"campaign {name!r} is only known from its mail, which says itself when it goes")
        before = campaign.times or CampaignHours()
        wanted = before._asdict() | given
        if "at" in given:  # one time for all, instead of each recipient's own
            wanted["at_column"] = ""
        campaign.later = self._checked_hours(wanted) or CampaignHours()
        campaign.later_ms = self._core.clock.ms() if given.get("at") else campaign.later_ms or campaign.created_ms
        self._monitor.move(campaign)
        self._core.campaigns.time(campaign)
        await self._core.campaigns.save(campaign, self._core.disk.lines)
        return await self._answer(name, campaign)

    async def cancel(self, name: str, cause: str = "", number: int = 0) -> dict[str, Any]:
        campaign = self._core.campaigns.registered(name)
        if campaign is None:
            return await self._cancel_named(name, cause or OPERATOR, number)
        if not campaign.canceled_ms:
            if self._core.campaigns.over(campaign) and not is_given():
                raise Refused(f"campaign {name!r} has ended; nothing of it is waiting")
            order(self._core, campaign, CANCEL, cause or OPERATOR)
            self._monitor.sweep_soon()
        return await self._answer(name, campaign)

    async def _cancel_named(self, name: str, cause: str, number: int) -> dict[str, Any]:
        """Deletes what waits of it for good, by a task; what comes later of that name is taken.

        In effect at once, also for what is being delivered and comes back: the task waits for that, this does not.
        """
        core = self._core
        campaign = core.campaigns.named.get(name)
        if not unregistered.waiting(core, name, campaign):
            core.campaigns.get(name)
            raise Refused(f"nothing of campaign {name!r} is waiting")
        removed = await self._delete(name, campaign.tenant if campaign else None, cause, number)
        row = await unregistered.row(core, name, removed) if campaign is None else self.row(campaign)
        return row | {"state": "canceled"}

    async def complete(self, name: str, cause: str = "") -> dict[str, Any]:
        campaign = self._core.campaigns.get(name)
        if campaign.named:
            raise Refused(f"campaign {name!r} is only known from its mail, and more of it can always come")
        if campaign.canceled_ms:
            raise Refused(f"campaign {name!r} was canceled")
        if not campaign.complete_ms:
            order(self._core, campaign, COMPLETE, cause or "all batches are in")
        return await self._answer(name, campaign)

    async def _going(self, name: str) -> Campaign | None:
        """A campaign that can be paused and resumed; None: not registered, but mail with its name is waiting."""
        if name not in self._core.campaigns.by_name and await unregistered.row(self._core, name):
            return None
        campaign = self._core.campaigns.get(name)
        if campaign.canceled_ms:
            raise Refused(f"campaign {name!r} was canceled")
        if self._core.campaigns.over(campaign) and not is_given():  # it goes on elsewhere
            raise Refused(f"campaign {name!r} has ended")
        return campaign

    async def _answer(self, name: str, campaign: Campaign | None) -> dict[str, Any]:
        """Its row, once the order is on stable storage."""
        await self._core.disk.journal.stable()
        return await unregistered.row(self._core, name) if campaign is None else self.row(campaign)

    # -- figures

    def row(self, campaign: Campaign) -> dict[str, Any]:
        """All figures, without the history."""
        tally, now_ms = self._core.campaigns.tally(campaign.name), self._core.clock.ms()
        stop = stop_of(self._core, campaign)
        rate = 0.0 if campaign.ended_ms else self._monitor.rate_per_s(campaign, now_ms)
        state = self._state(campaign, stop)
        deleted = unregistered.deleted(self._core, campaign)
        waiting = max(0, tally.waiting - deleted)
        if campaign.named:
            waiting = unregistered.waiting(self._core, campaign.name, campaign)
        eta_ms = now_ms + int(1000 * waiting / rate) if rate > 0 and waiting > 0 else None
        return {
            "name": campaign.name,
            "state": state,
            "cause": stop.cause if stop is not None and state == "paused" else campaign.cause,
            "sender": campaign.sender,
            "tenant": campaign.tenant,
            "of_all": campaign.of_all,
            "zone": campaign.zone,
            "hours": campaign.times._asdict() if campaign.times else None,
            "created_ms": campaign.created_ms,
            "planned": campaign.planned,
            **asdict(tally),
            "waiting": waiting,
            "deleted": deleted,
            "registered": not campaign.named,
            "rate_per_s": round(rate, 1),
            "eta_ms": eta_ms,
        }

    async def basis(self, name: str) -> dict[str, Any]:
        """Raises ValueError."""
        core, campaign = self._core, self._core.campaigns.get(name)
        tally, times, stop = core.campaigns.tally(name), campaign.times, stop_of(core, campaign)
        return {
            "state": self._state(campaign, stop),
            "bounds": self._monitor.bounds(campaign),
            "counted": bounds.counted(tally, campaign.base),
            "waiting": tally.waiting,
            "until": times.until if times else "",
            "ends_ms": campaign_hours.ends_ms(times) if times else 0,
            "choice": campaign.choice if variants.undecided(campaign) and not campaign.canceled_ms else None,
            "accepted": tally.accepted,
            "first_ms": tally.first_ms,
        }

    async def ends(self, name: str = "") -> list[dict[str, Any]]:
        """Of those that somebody has put; name: only of that one."""
        known = self._core.campaigns.by_name
        chosen = list(known.values()) if not name else [known[name]] if name in known else []
        return [self._end(one) async for one in Pace().each(chosen) if not one.named]

    async def tenant(self, name: str, registered: bool = False) -> str | None:
        known = self._core.campaigns
        campaign = known.registered(name) if registered else known.by_name.get(name)
        return None if campaign is None else EVERYBODY if campaign.of_all else campaign.tenant

    def _end(self, campaign: Campaign) -> dict[str, Any]:
        """When it ended (0: not yet), and what has come of it. seq: the number of the first record of its time;
        returned: what came back later, of whatever kind. tenant: as "campaign-tenant" says it."""
        tally = self._core.campaigns.tally(campaign.name)
        return {
            "name": campaign.name, "tenant": EVERYBODY if campaign.of_all else campaign.tenant, "seq": campaign.seq,
            "created_ms": campaign.created_ms, "ended_ms": campaign.ended_ms, "accepted": tally.accepted,
            "returned": sum(getattr(tally, figure) for figure in FIGURES.values()),
        }  # fmt: skip

    async def full_row(self, name: str) -> dict[str, Any]:
        if name not in self._core.campaigns.by_name and (row := await unregistered.row(self._core, name)):
            return row | {
                "history": [],
                "bounds": {},
                "priority": 0,
                "life_h": 0,
                "notify": "",
                "in_doubt": "",
                "variants": None,
            }
        campaign = self._core.campaigns.get(name)
        row = self.row(campaign)
        now = [self._core.clock.ms(), row["waiting"], row["delivered"]]
        return row | {
            "history": [*self._monitor.history(campaign).points, now],
            "bounds": self._monitor.bounds(campaign),
            "priority": campaign.priority,
            "life_h": 0 if campaign.named else campaign.life_h,
            "notify": campaign.notify,
            "in_doubt": campaign.in_doubt,
            "variants": self._variants(campaign),
        }

    def _variants(self, campaign: Campaign) -> dict[str, Any] | None:
        """What it chooses from: figures, and what was chosen."""
        if not campaign.choice:
            return None
        rows = [row._asdict() for row in variants.figures(self._core, campaign)]
        asked = {name: campaign.choice[name] for name in ("metric", "decide_ms")}
        return asked | {"winner": campaign.winner, "figures": rows}

    async def hours(self, name: str) -> dict[str, Any]:
        """Who waits for their hour: as `waiting_hours.waiting`. Raises ValueError, StoreError."""
        return await waiting_hours.waiting(self._core, self._core.campaigns.get(name))

    async def newest(
        self, limit: int = ROWS, after: str = "", older_ms: int = 0, names: list[str] | None = None
    ) -> list[dict[str, Any]]:
        """The newest first. after: the name of the last one that is not wanted any more; older_ms: when that began, if
        it need not be there. names: only these."""
        known = self._core.campaigns.by_name
        if names is not None:
            return [self.row(known[name]) async for name in Pace().each(names[:ROWS]) if name in known]
        last = known.get(after)
        if after and last is None and not older_ms:
            raise Refused(f"there is no campaign {after!r} any more, after which to go on; begin again")
        passed = (-older_ms, after) if older_ms else _age(last) if last is not None else None
        older = (one for one in known.values() if passed is None or _age(one) > passed)
        chosen = heapq.nsmallest(max(1, min(limit, ROWS)), older, key=_age)
        return [self.row(one) async for one in Pace().each(chosen)]

    def _state(self, campaign: Campaign, stop: Suspension | None) -> str:
        if campaign.canceled_ms:
            return "canceled"
        if self._core.campaigns.over(campaign):
            return "ended"
        if stop is not None:
            return "paused"
        if campaign.named and not unregistered.waiting(self._core, campaign.name, campaign):
            return "idle"
        return "complete" if campaign.complete_ms else "running"


def _age(campaign: Campaign) -> tuple[int, str]:
    """Grows with it."""
    return -campaign.created_ms, campaign.name


def begun(core: Core, campaign: Campaign) -> None:
    """Records that the campaign exists from now on."""
    names = "created_ms", "sender", "tenant", "zone", "planned", "template"
    value = {name: getattr(campaign, name) for name in names} | {"record": campaign.stored()}
    core.disk.ledger.append(Type.STANDING, StandingRecord(BEGIN, ["campaign", campaign.name], value, "").pack())


def _bounds(given: dict[str, Any] | None) -> dict[str, float]:
    return bounds.checked(given or {})


def _template(template: bytes) -> bytes:
    if not isinstance(template, bytes):
        raise Refused("a template is bytes; pack a prepared one")
    if len(template) > TEMPLATE_BYTES_MAX:
        what = f"the template has {len(template):,} bytes with its attachments; {TEMPLATE_BYTES_MAX:,} at most"
        raise Refused(f"{what}: use smaller files, or link to them")
    from zonemta_py.merge.source import TemplateSource  # here, because a start accepts mail before it needs templates

    try:
        source = TemplateSource.unpack(template)
    except (ValueError, TypeError) as error:
        raise Refused(f"this is not a template ({error}); pack a prepared one") from None
    if not source.prepared:
        raise Refused("the template is not prepared; prepare it first (`zonemta campaign check` does)")
    return template
