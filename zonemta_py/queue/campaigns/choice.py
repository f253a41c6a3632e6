"""A campaign whose template is chosen: variants of it have been sent to some, as campaigns of their own; the rest waits
until the variant that did best gives its template.

The campaign is paused from the beginning, so its mail does not age. The choice is an order (WINNER) in the journal:
then template and winner are in the store in one batch, and the pause is lifted. A person may choose at any time; the
queue does at `decide_ms`, but not sooner than so many hours after the first results of each variant (they may have
waited for their hour), and not while nothing of any was delivered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.campaigns.thresholds import stop_of
from zonemta_py.queue.core.campaigns import WINNER, Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.questions.question import Refused

MORE_IS_BETTER = {"clicks": True, "opens": True, "unsubscribes": False, "complaints": False, "bounced": False}
"""Metric → whether the variant with the larger share wins. Of the delivered ones; bounced: of attempts."""
METRICS = tuple(MORE_IS_BETTER)
VARIANTS_MAX = 10
WAITS = "waits for the best of "
"""How the cause of the pause begins."""
_HOUR_MS = 3_600_000


class VariantFigures(NamedTuple):
    """What is known of a variant: `hits` of `of`, the delivered or tried ones."""

    name: str
    hits: int
    of: int

    @property
    def share(self) -> float:
        return self.hits / self.of if self.of else 0.0


def checked(core: Core, name: str, given: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """The choice as it is stored: {"of", "metric", "decide_ms", "after_h"}. Raises ValueError."""
    of, metric, after_h = list(given.get("of", ())), given.get("metric", METRICS[0]), given.get("after_h", 4)
    if metric not in METRICS:
        raise Refused(f"there is no metric {metric!r}; use {', '.join(METRICS)}")
    if not 2 <= len(set(of)) == len(of) <= VARIANTS_MAX:
        raise Refused(f"variants are 2 to {VARIANTS_MAX} campaigns, each once; name them")
    for variant in of:
        if core.campaigns.registered(variant) is None or variant == name:
            raise Refused(f"there is no campaign {variant!r}, to be a variant; create it before")
    if isinstance(after_h, bool) or not isinstance(after_h, int | float) or not 0 <= after_h <= 24 * 30:
        raise Refused(f"after_h is {after_h!r}; give hours, 720 at most (0: a person chooses)")
    decide_ms = now_ms + int(after_h * _HOUR_MS) if after_h else 0
    return {"of": of, "metric": metric, "decide_ms": decide_ms, "after_h": after_h}


def undecided(campaign: Campaign) -> bool:
    """Whether its mail waits for a template."""
    return bool(campaign.choice) and not campaign.winner


def figures(core: Core, campaign: Campaign) -> list[VariantFigures]:
    """Of its variants that there still are."""
    found, metric = [], campaign.choice["metric"]
    for name in campaign.choice["of"]:
        if core.campaigns.registered(name) is None:
            continue
        tally = core.campaigns.tally(name)
        if metric == "bounced":
            bounced = tally.bounced + tally.bounced_later
            found.append(VariantFigures(name, bounced, tally.delivered + tally.bounced))
        else:
            found.append(VariantFigures(name, getattr(tally, metric), tally.delivered))
    return found


def best(metric: str, rows: list[VariantFigures]) -> tuple[str, str] | None:
    """The winner, and why; the first named of equals. None: nothing is known yet."""
    if not any(row.of for row in rows):
        return None
    sign = -1 if MORE_IS_BETTER[metric] else 1
    first, *others = sorted((row for row in rows if row.of), key=lambda row: sign * row.share)
    said = f"{first.name} has {_told(first)} {metric}"
    if not others:
        return first.name, f"{said}; nothing of the others was delivered"
    return first.name, f"{said}, {others[0].name} {_told(others[0])}; certain to {certainty(first, others[0]):.0%}"


def due_ms(choice: dict[str, Any], accepted: Iterable[tuple[int, int]], now_ms: int) -> int:
    """When the queue is to choose; 0: a person does. accepted: how many, and when the first had a result (0: none had),
    of each variant."""
    if not choice["decide_ms"]:
        return 0
    firsts = [first_ms or now_ms for count, first_ms in accepted if count]
    due_ms: int = max([choice["decide_ms"], *(first + int(choice["after_h"] * _HOUR_MS) for first in firsts)])
    return due_ms


def _is_due(core: Core, campaign: Campaign, now_ms: int) -> bool:
    choice = campaign.choice
    known = [core.campaigns.tally(name) for name in choice["of"] if core.campaigns.registered(name) is not None]
    return 0 < due_ms(choice, ((tally.accepted, tally.first_ms) for tally in known), now_ms) <= now_ms


def _told(row: VariantFigures) -> str:
    return f"{row.share:.1%} ({row.hits:,} of {row.of:,})"


def certainty(one: VariantFigures, other: VariantFigures) -> float:
    """How likely the difference of two shares is none of chance: 0.5 for none (two-proportion z-test, one-sided)."""
    of = one.of + other.of
    share = (one.hits + other.hits) / of if of else 0.0
    spread = math.sqrt(share * (1 - share) * (1 / one.of + 1 / other.of)) if one.of and other.of else 0.0
    if not spread:
        return 0.5
    return 0.5 * (1 + math.erf(abs(one.share - other.share) / spread / math.sqrt(2)))


def pause(core: Core, campaign: Campaign) -> None:
    """Its mail waits; repeated, it changes nothing."""
    policy = core.schedule.policy
    if stop_of(core, campaign) is not None:
        return
    cause = f"{WAITS}{', '.join(campaign.choice['of'])}"
    policy.stop("campaign", campaign.name, math.inf, cause, chosen=True, tenants=campaign.tenants)


def choose(core: Core, campaign: Campaign, winner: str, cause: str) -> None:
    """Orders it: permanent once it is in the journal."""
    campaign.deciding = True
    value = [campaign.created_ms, core.clock.ms(), winner]
    said = StandingRecord(WINNER, ["campaign", campaign.name], value, cause)

    def apply() -> None:
        operations = core.campaigns.again(said)
        core.disk.lines.submit(operations, partial(_written, core, campaign, cause), sync=False, keep=True)

    core.disk.ledger.write(Type.STANDING, said.pack(), apply)


def _written(core: Core, campaign: Campaign, cause: str, _: Reply | None) -> None:
    """The store has the template: its mail may go."""
    campaign.deciding = False
    go(core, campaign, cause)


def go(core: Core, campaign: Campaign, cause: str) -> None:
    """Lifts the pause of an undecided campaign, and no other."""
    stop = stop_of(core, campaign)
    if stop is not None and stop.cause.startswith(WAITS):
        core.schedule.policy.lift("campaign", campaign.name, cause, campaign.tenants)
        core.schedule.lift()


def follow(core: Core, campaign: Campaign, now_ms: int) -> None:
    """Each second: what a crash has left undone, and the choice when it is time."""
    if not campaign.choice or campaign.canceled_ms or campaign.deciding:
        return
    if campaign.winner:
        go(core, campaign, f"{campaign.winner} was chosen")
        return
    pause(core, campaign)
    if core.membership is not None:
        if 0 < campaign.choice["decide_ms"] <= now_ms:
            core.membership.decide(campaign.name)
    elif (
        _is_due(core, campaign, now_ms)
        and (found := best(campaign.choice["metric"], figures(core, campaign))) is not None
    ):
        choose(core, campaign, *found)
