"""Checks campaigns: every part of each template, and the counters against the waiting recipients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import NamedTuple

from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.counters import CampaignCounts


class Finding(NamedTuple):
    """As `check.Problem`; operations: what repairs it."""

    severity: str
    what: str
    id: str
    remedy: str
    operations: list[Operation]


def findings(store: Store, waiting: dict[str, int]) -> Iterator[Finding]:
    """waiting: recipients of merged messages found in the store, by campaign."""
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in store.scan(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS)):
        _, name, part = key.decode().split(" ")
        parts.setdefault(name, {})[part] = value if part in "*#~" else b""
    for name, found in parts.items():
        if "*" not in found or "#" not in found:
            yield Finding("damage", "a campaign has lost its record", name, "create it again under another name", [])
            continue
        chunks = records.unpack(found["*"])["chunks"]
        missing = [number for number in range(1, chunks + 1) if f"{number:06d}" not in found]
        if missing:
            what = f"a campaign has lost {len(missing)} chunks of its template"
            yield Finding("damage", what, name, "cancel it, and create it again under another name", [])
        yield from _tally(name, CampaignCounts(*records.unpack(found["#"])), waiting.get(name, 0))
    for name in waiting.keys() - parts.keys():
        yield Finding(
            "damage", f"{waiting[name]} recipients wait for a campaign that is missing", name, "they bounce", []
        )


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
