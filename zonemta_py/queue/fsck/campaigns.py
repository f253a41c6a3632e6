"""Checks campaigns: every part of each template, and the counters against the waiting recipients. What is lost of one
that is only known from its mail is made again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import astuple, replace
from typing import NamedTuple

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.api import QueueRefusal, template_name
from zonemta_py.queue.core.campaign_counters import CampaignCounts
from zonemta_py.queue.core.campaigns import Campaign, campaign_from, whole

SUSPENDED = "it is suspended: give it its text (zonemta campaign text) and resume it, or cancel it"
"""What becomes of a campaign without a template."""


class Restored(NamedTuple):
    """What the journal knows of a campaign. campaign: None if nobody has put it."""

    campaign: Campaign | None
    counts: CampaignCounts


class Finding(NamedTuple):
    """As `check.Problem`; operations: what repairs it."""

    severity: str
    what: str
    id: str
    remedy: str
    operations: list[Operation]


def firsts(store: Store) -> dict[str, str]:
    """By name of a campaign the lowest id of a message that can be its own."""
    found: dict[str, str] = {}
    for key, value in store.scan(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS)):
        _, name, part = key.decode().split(" ")
        if part in "*-":
            first = value.decode() if part == "-" else packing.unpack(value).get("first", "")
            found[name] = max(first, found.get(name, ""))
    return found


def findings(
    store: Store, waiting: dict[str, int], merged: Container[str], known: Mapping[str, Restored], now_ms: int
) -> Iterator[Finding]:
    """waiting: recipients found in the store that count for a campaign. merged: campaigns of merged messages. known:
    what the journal knows of campaigns, if the store has lost something."""
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in store.scan(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS)):
        _, name, part = key.decode().split(" ")
        parts.setdefault(name, {})[part] = value if part in "*#~-" else b""
    for name, found in parts.items():
        if "-" in found and len(found) == 1:  # it is forgotten
            continue
        if "*" not in found or "#" not in found:
            yield from _again(store, name, found, waiting.get(name, 0), name in merged, known.get(name), now_ms)
            continue
        campaign = campaign_from(name, packing.unpack(found["*"]))
        missing = [number for number in range(1, campaign.chunks + 1) if f"{number:06d}" not in found]
        if missing:
            what = f"a campaign has lost {len(missing)} chunks of its template"
            campaign.chunks = campaign.size = 0
            yield Finding("damage", what, name, SUSPENDED, [(keys.campaign(name), campaign.record())])
        yield from _tally(name, CampaignCounts(*packing.unpack(found["#"])), waiting.get(name, 0))
    for name in {*waiting, *known} - parts.keys():
        yield from _again(store, name, {}, waiting.get(name, 0), name in merged, known.get(name), now_ms)


def _again(
    store: Store, name: str, parts: dict[str, bytes], waiting: int, merged: bool, known: Restored | None, now_ms: int
) -> Iterator[Finding]:
    """A campaign that has lost its record or its figures. parts: what it has. merged: it has a template."""
    counts = replace(known.counts) if known else CampaignCounts()
    if "#" in parts:
        counts = CampaignCounts(*packing.unpack(parts["#"]))
    elif counts.waiting < waiting:
        counts.accepted += waiting - counts.waiting
    else:
        counts.removed += counts.waiting - waiting
    what, remedy = (
        "figures of a campaign are lost",
        "they are counted from the journal" if known else "they restart from zero",
    )
    severity = "repairable"
    if "*" in parts:
        campaign = campaign_from(name, packing.unpack(parts["*"]))
    elif known and known.campaign is not None:
        campaign, what, remedy = known.campaign, "a campaign has lost its record", "it is made again from the journal"
    elif merged or parts.keys() - {*"*#~-"}:
        campaign, what = (
            _new(name, now_ms),
            "a campaign has lost its record, and the journal does not know its settings",
        )
    else:
        campaign = _new(name, now_ms)
        campaign.named = True
    if not campaign.named and (campaign.template or merged) and not _template(store, campaign, parts):
        campaign.chunks = campaign.size = 0
        if not campaign.canceled_ms:
            severity, what, remedy = "damage", f"{what}; its template is lost", SUSPENDED
    operations: list[Operation] = [(keys.campaign(name), campaign.record())]
    yield Finding(severity, what, name, remedy, [*operations, (keys.tally(name), packing.pack(astuple(counts)))])


def _new(name: str, now_ms: int) -> Campaign:
    return Campaign(name, "", "", "", 0, 0, {}, math.inf, now_ms, "", 0, 0)


def _template(store: Store, campaign: Campaign, parts: dict[str, bytes]) -> bool:
    """Whether its template is there, whole: the record then says how large it is."""
    chunks = [store.get(keys.template(campaign.name, number)) for number in range(1, len(parts.keys() - {*"*#~-"}) + 1)]
    try:
        data = whole([chunk for chunk in chunks if chunk is not None])
    except QueueRefusal:
        return False
    if not data or template_name(data) != campaign.template:
        return False
    campaign.chunks, campaign.size = len(chunks), len(data)
    return True


def _tally(name: str, tally: CampaignCounts, waiting: int) -> Iterator[Finding]:
    if tally.waiting == waiting:
        return
    what = f"the counters say {tally.waiting} wait, {waiting} found"
    if waiting < tally.waiting:
        tally.removed += tally.waiting - waiting
    else:
        tally.accepted += waiting - tally.waiting
    operations: list[Operation] = [(keys.tally(name), packing.pack(astuple(tally)))]
    yield Finding("repairable", what, name, "counted again", operations)
