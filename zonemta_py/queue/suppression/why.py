"""Why a person is on the suppression list, or is not: what was heard, whether that is enough, and what would be.
Pure."""

from __future__ import annotations

from typing import Any

from zonemta_py.config.people.suppression import GROUPS, SuppressionSection, Tolerance
from zonemta_py.queue.suppression.evidence import DAY_MS, WHY, Evidence, Item, counted, is_enough
from zonemta_py.queue.suppression.from_evidence import scope_of


def shown(item: Item, apart_ms: int) -> dict[str, Any]:
    """For answers. apart_ms: how far steady time is ahead of the clock."""
    row = item._asdict()
    row["at_ms"], row["by"] = row.pop("ms") - apart_ms, row.pop("at")
    return {name: value for name, value in row.items() if value not in ("", False)}


def standing(evidence: Evidence, terms: SuppressionSection, ms: int) -> list[dict[str, Any]]:
    """One row for each group of refusals and each scope that they may lead to. ms: steady time."""
    rows = list[dict[str, Any]]()
    for tenant, within in dict.fromkeys((item.tenant, item.within) for item in evidence.items):
        of = terms.of(tenant)
        scope = within or scope_of(of.scope, tenant)
        for group in GROUPS if of.automatic else ():
            items = counted(evidence, of, group, tenant, ms, within)
            if items and not any((row["group"], row["scope"]) == (group, scope) for row in rows):
                rows.append({"group": group, "scope": scope} | _row(group, items, of.tolerance(group)))
    return rows


def _row(group: str, items: list[Item], terms: Tolerance) -> dict[str, Any]:
    lasted = (items[-1].ms - items[0].ms) / DAY_MS
    held = sum(item.held for item in items)
    enough = is_enough(items, terms)
    return {
        "counted": len(items), "agreed": sum(item.agreed and not item.held for item in items), "held": held,
        "after": terms.after, "after_agreed": terms.agreed, "within_days": terms.within_days,
        "lasted_days": round(lasted, 2), "over_days": terms.over_days, "enough": enough,
        "said": _sentence(group, len(items), held, lasted, terms, enough),
    }  # fmt: skip


def _sentence(group: str, count: int, held: int, lasted: float, terms: Tolerance, enough: bool) -> str:
    many = "1 refusal" if count == 1 else f"{count} refusals"
    days = "" if count == 1 else f" over {lasted:.0f} days"
    said = f"{WHY[group]}: {many}{days} within {terms.within_days:g} days"
    if held:
        which = "which a guard holds" if held == count == 1 else f"of which a guard holds {held}"
        said += f", {which} back, or did: that is not enough alone"
    if enough:
        return f"{said}; that is enough"
    needed = [f"{terms.agreed} where code, text and stage agree"] if terms.agreed else []
    if terms.after:
        over = f", over {terms.over_days:g} days or more" if terms.over_days else ""
        needed.append(f"{terms.after} of other messages on other days{over}")
    return f"{said}; enough would be {', or '.join(needed)}" if needed else f"{said}; no number is enough"
