"""What the nodes say of themselves before a campaign is planned: zones, sources, warm-up, providers.

A node that does not say it (its key may not read, or it is older) leaves the plan to what the options say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.pipeline.prepare.settings import Cap, Lane

if TYPE_CHECKING:
    from zonemta_py.pipeline.nodes.client import NodeAccess, NodeGroup

ANY = "*"


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """zones: name → its sources (address → weight) at every node. warming: (source, provider) → recipients a day, of
    all nodes together; provider ANY: each that is not named. providers: recipient domain → provider."""

    zones: dict[str, dict[str, float]] = field(default_factory=dict)
    warming: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    providers: dict[str, str] = field(default_factory=dict)


def ask(to: NodeAccess) -> NodeTerms | None:
    """None: a node does not say it. Nodes of a cluster that are away are left out. Raises CommandError."""
    from zonemta_py.pipeline.nodes.client import NodeGone, NodeRefused
    from zonemta_py.pipeline.nodes.groups import groups

    answers = []
    try:
        for group in groups(to):
            answers += _answers(group, to)
    except NodeRefused as refused:
        print(f"{refused}: zones, sources and warm-up are taken as the options have them", file=sys.stderr)
        return None
    except NodeGone as gone:
        raise CommandError(Exit.TEMPORARY, str(gone)) from None
    return joined(answers)


def _answers(group: NodeGroup, to: NodeAccess) -> list[dict[str, Any]]:
    """Of each node of it. Raises NodeRefused, NodeGone."""
    from zonemta_py.pipeline.nodes.client import NodeClient, NodeGone
    from zonemta_py.pipeline.nodes.groups import ENOUGH_S

    found, gone = [], NodeGone()
    for url in group.urls:
        with NodeClient(url, replace(to, patience_s=min(ENOUGH_S, to.patience_s)) if group.id else to) as node:
            try:
                found.append(node.planning())
            except NodeGone as error:
                gone = error
    if not found:
        raise gone
    return found


def joined(answers: list[dict[str, Any]]) -> NodeTerms:
    """What all nodes have: a batch may go to any of them."""
    zones: dict[str, dict[str, float]] = {}
    for number, answer in enumerate(answers):
        here = {zone["name"]: {one["address"]: one["weight"] for one in zone["sources"]} for zone in answer["zones"]}
        zones = here if not number else {
            name: {address: weight for address, weight in sources.items() if address in here[name]}
            for name, sources in zones.items()
            if name in here
        }  # fmt: skip
    warming: dict[tuple[str, str], tuple[int, ...]] = {}
    for answer in answers:
        for row in answer["warming"]:  # the node that allows least decides, since all get as much
            days = tuple(len(answers) * cap for cap in row["per_day"])
            key = row["source"], row["provider"]
            warming[key] = min(warming.get(key, days) or days, days or warming.get(key, days))
    return NodeTerms(zones, warming, answers[0]["providers"])


def lanes(terms: NodeTerms | None, chosen: tuple[Lane, ...], days: int) -> tuple[Lane, ...]:
    """The ways out as chosen, checked; a zone with sources that warm up is its sources, if there are days for what
    they cannot send today. Raises CommandError."""
    if terms is None:
        return chosen
    found: list[Lane] = []
    for lane in chosen:
        if not lane.zone:
            found.append(lane)
            continue
        sources = terms.zones.get(lane.zone)
        if sources is None:
            there = ", ".join(terms.zones) or "none that all nodes have"
            raise CommandError(Exit.USAGE, f"--zone {lane.zone}: there is no such zone; there are {there}")
        if lane.source and lane.source not in sources:
            there = ", ".join(sources) or "no source addresses"
            raise CommandError(Exit.USAGE, f"--source {lane.source}: zone {lane.zone} has {there}; name one of them")
        warms = {source for source, _ in terms.warming} & sources.keys()
        whole = sum(sources.values())
        if lane.source or days == 1 or not warms:
            found.append(lane)
        else:
            found += [Lane(lane.zone, one, lane.weight * weight / whole) for one, weight in sources.items()]
    return tuple(found)


def caps(terms: NodeTerms | None, ways: Iterable[Lane], given: tuple[Cap, ...]) -> tuple[Cap, ...]:
    """What sources that warm up may send, as the nodes say, where no option says it."""
    if terms is None:
        return ()
    named = {(cap.source, cap.provider) for cap in given}
    found: dict[tuple[str, str], Cap] = {}
    for source in dict.fromkeys(lane.source for lane in ways if lane.source):
        others = terms.warming.get((source, ANY), ())
        for provider in dict.fromkeys(terms.providers.values()):
            days = terms.warming.get((source, provider), others)
            if days and (source, provider) not in named:
                found[source, provider] = Cap(source, provider, days)
    return tuple(found.values())


def warned(terms: NodeTerms | None, chosen: Iterable[Lane], days: int) -> list[str]:
    """Sentences about zones that will not send all of it today."""
    found = []
    for name in dict.fromkeys(lane.zone for lane in chosen if lane.zone and not lane.source):
        warms = {source for source, _ in terms.warming} & terms.zones[name].keys() if terms else set[str]()
        if warms and days == 1:
            found.append(
                f"zone {name} warms up {', '.join(sorted(warms))}: what exceeds a provider's daily share waits in "
                "the queue, and ages there; --days plans it for later days"
            )
    return found
