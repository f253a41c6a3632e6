"""Checks campaigns: every part of each template, and the counters against the waiting recipients. What is lost of one
that is only known from its mail is made again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import astuple
from typing import NamedTuple

from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.counters import CampaignCounts


class Finding(NamedTuple):
    """As `check.Problem`; operations: what repairs it."""

    severity: str
    what: str
    id: str
    remedy: str
    operations: list[Operation]


def findings(store: Store, waiting: dict[str, int], merged: Container[str]) -> Iterator[Finding]:
    """waiting: recipients found in the store that count for a campaign. merged: campaigns of merged messages."""
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in store.scan(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS)):
        _, name, part = key.decode().split(" ")
        parts.setdefault(name, {})[part] = value if part in "*#~" else b""
    for name, found in parts.items():
        lost = "*" not in found or "#" not in found
        if lost and name not in merged and not found.keys() - {*"*#~"}:
            yield _named(name, waiting.get(name, 0))
            continue
        if lost:
            yield Finding("damage", "a campaign has lost its record", name, "create it again under another name", [])
            continue
        chunks = records.unpack(found["*"])["chunks"]
        missing = [number for number in range(1, chunks + 1) if f"{number:06d}" not in found]
        if missing:
            what = f"a campaign has lost {len(missing)} chunks of its template"
            yield Finding("damage", what, name, "cancel it, and create it again under another name", [])
        yield from _tally(name, CampaignCounts(*records.unpack(found["#"])), waiting.get(name, 0))
    for name in waiting.keys() - parts.keys():
        what = f"{waiting[name]} recipients wait for a campaign that is missing"
        bounce = Finding("damage", what, name, "they bounce", [])
        yield bounce if name in merged else _named(name, waiting[name])


def _named(name: str, waiting: int) -> Finding:
    campaign = Campaign(name, "", "", "", 0, 0, {}, math.inf, 0, "", 0, 0, named=True)
    operations: list[Operation] = [(keys.campaign(name), campaign.record())]
    operations.append((keys.tally(name), records.pack(astuple(CampaignCounts(accepted=waiting)))))
    return Finding("repairable", "figures of a campaign are lost", name, "they begin anew", operations)


def _tally(name: str, tally: CampaignCounts, waiting: int) -> Iterator[Finding]:
    if tally.waiting == waiting:
        return
    what = f"the counters say {tally.waiting} wait, {waiting} found"
    if waiting < tally.waiting:
        tally.removed += tally.waiting - waiting
    else:
        tally.accepted += waiting - tally.waiting
    operations: list[Operation] = [(keys.tally(name), records.pack(astuple(tally)))]
    yield Finding("repairable", what, name, "counted again", operations)
