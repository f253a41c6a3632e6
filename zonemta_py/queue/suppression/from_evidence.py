"""From evidence that is enough to entries of the suppression list. Pure."""

from __future__ import annotations

import json
import time

from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.queue.suppression.entry import ALL, TEXT_CHARACTERS_MAX, Suppressed, usual_scope
from zonemta_py.queue.suppression.evidence import COMPLAINT, UNSUBSCRIBE, WHY, Enough, Evidence, Item, enough

BY = "policy"
"""Who added an entry that the queue has decided itself."""
GUARD_BY = "policy guard"
"""Who took one off because the evidence is held back; it keeps the evidence."""
HARD_BOUNCE = "hard-bounce"
REPLIES_MAX = 4


def wanted(
    evidence: Evidence, terms: SuppressionSection, ms: int, apart_ms: int = 0
) -> dict[tuple[str, str], Suppressed]:
    """The entries that this evidence asks for, by scope and kind. ms: steady time; apart_ms: how far it is ahead of the
    clock."""
    made: dict[tuple[str, str], Suppressed] = {}
    for item in evidence.items:
        if item.group in (COMPLAINT, UNSUBSCRIBE):
            scope = item.scope or usual_scope(item.group, item.tenant)
            entry = _entry(evidence.who, Enough(item.group, [item]), item.group, scope, apart_ms)
            made.setdefault((scope, item.group), entry)
    for tenant, within in dict.fromkeys((item.tenant, item.within) for item in evidence.items):
        of = terms.of(tenant)
        found = enough(evidence, of, tenant, ms, within)
        if found is not None:
            scope = within or scope_of(of.scope, tenant)
            made.setdefault((scope, HARD_BOUNCE), _entry(evidence.who, found, HARD_BOUNCE, scope, apart_ms))
    return made


def scope_of(scope: str, tenant: str) -> str:
    """Of an entry that replies lead to. scope: as configured."""
    return f"tenant:{tenant}" if scope == "tenant" and tenant else ALL


def _entry(who: str, found: Enough, kind: str, scope: str, apart_ms: int) -> Suppressed:
    first, last = found.items[0], found.items[-1]
    many = f" ({len(found.items)} messages in {last.day - first.day + 1} days)" if len(found.items) > 1 else ""
    reason = f"{WHY[found.group]}{many}" + (f": {last.said}" if last.said else "")
    told = {"rule": found.group, "since": _utc(first, apart_ms), "messages": len(found.items)}
    return Suppressed(
        who, kind, last.ms - apart_ms, reason[:TEXT_CHARACTERS_MAX], _fitting(told, found.items, apart_ms), BY,
        last.campaign, scope,
    )  # fmt: skip


def _fitting(told: dict[str, object], items: list[Item], apart_ms: int) -> str:
    """As JSON, with as many replies as there is room for, the latest first."""
    replies = [f"{_utc(item, apart_ms)} {item.message} {item.stage} {item.kind}: {item.said}" for item in items]
    replies = replies[::-1][:REPLIES_MAX]
    while len(text := json.dumps(told | {"replies": replies}, ensure_ascii=False)) > TEXT_CHARACTERS_MAX and replies:
        replies.pop()
    return text


def _utc(item: Item, apart_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((item.ms - apart_ms) / 1000))
