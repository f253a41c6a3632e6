"""Queries and orders about the suppression list, and the erasure of a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zonemta_py.config.suppression import GROUPS, SuppressionSection, Tolerance
from zonemta_py.mail.addresses.entries import is_covering, literal
from zonemta_py.queue import questions
from zonemta_py.queue.admin import feedback
from zonemta_py.queue.admin.erasure import forget
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused
from zonemta_py.queue.suppression.entry import (
    ERASED,
    KINDS,
    Suppressed,
    checked,
    checked_person,
    checked_range,
    checked_scope,
    checked_spelling,
    usual_scope,
)
from zonemta_py.queue.suppression.evidence import DAY_MS, WHY, Evidence, Item, counted, is_enough
from zonemta_py.queue.suppression.from_evidence import HARD_BOUNCE, scope_of
from zonemta_py.schedule.policy.state import GUARD
from zonemta_py.schedule.time.pace import Pace

ANSWERS = AnswerTable[QueueContext](feedback.ANSWERS)
LAKE = "zonemta lake"
"""Who adds what Spark has found (`pipeline.findings.apply_suppressions`)."""
ROWS_MAX, LIST_MAX = 100_000, 10_000
_TURN = 250
"""People that are processed before the event loop runs."""


@ANSWERS.to(questions.suppress)
async def _suppress(queue: QueueContext, rows: list[list[Any]]) -> dict[str, int]:
    """Adds all rows, or none if one is invalid (ValueError). What the lake found, and a guard holds back here, counts
    as known."""
    if len(rows) > ROWS_MAX:
        raise Refused(f"{len(rows):,} rows at once are too many; give {ROWS_MAX:,} at most")
    now_ms = queue.core.clock.ms()
    entries = [_scoped(queue, checked(row, now_ms)) async for row in _in_turns(rows)]
    found = [entry for entry in entries if not (entry.by == LAKE and entry.kind == HARD_BOUNCE and _held(queue, entry))]
    await queue.suppression.check_room(found)
    counts = await queue.suppression.add(found)
    return counts | {"known": counts["known"] + len(entries) - len(found)}


def _held(queue: QueueContext, entry: Suppressed) -> bool:
    return not is_covering(entry.address) and queue.policy.holds(entry.address)


async def _in_turns(rows: Iterable[Any]) -> AsyncIterator[Any]:
    """Lets the event loop run between them."""
    for number, row in enumerate(rows, 1):
        yield row
        if number % _TURN == 0:
            await asyncio.sleep(0)


def _scoped(queue: QueueContext, entry: Suppressed) -> Suppressed:
    campaign = queue.core.campaigns.by_name.get(entry.campaign)
    return entry._replace(scope=entry.scope or usual_scope(entry.kind, campaign.tenant if campaign else ""))


@ANSWERS.to(questions.unsuppress)
async def _unsuppress(queue: QueueContext, addresses: list[str], by: str = "", scope: str | None = None) -> int:
    people = [checked_spelling(address) async for address in _in_turns(addresses)]
    return await queue.suppression.remove(people, by, checked_scope(scope) if scope else None)


@ANSWERS.to(questions.suppression)
async def _suppression(
    queue: QueueContext, address: str, scopes: list[str] | None = None, tenant: str = ""
) -> dict[str, Any] | None:
    """The entry of scope "all", or else the first; `others`: the rest of them, and those for many addresses that cover
    it. scopes: only those; tenant: what does not stop its mail is left out."""
    every = queue.suppression.every(checked_spelling(address), scopes and [checked_scope(scope) for scope in scopes])
    found = [entry.shown() for entry in every if not (tenant and entry.exact)]
    return {**found[0], "others": found[1:]} if found else None


@ANSWERS.to(questions.suppressions)
async def _suppressions(
    queue: QueueContext, after: str = "", limit: int = 1_000, kind: str | None = None, scope: str | None = None
) -> dict[str, Any]:
    if kind is not None and kind not in KINDS:
        raise Refused(f"there is no kind {kind!r}; use {', '.join(KINDS)}")
    if after and not _is_cursor(after):
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    scope = checked_range(scope) if scope else None
    following: str | None = after
    rows, limit, pace = list[dict[str, Any]](), max(1, min(limit, LIST_MAX)), Pace()
    for _ in range(LIST_MAX // _TURN):
        page, following = queue.suppression.page(following or "", min(limit - len(rows), _TURN), kind, scope)
        rows += [row.shown() for row in page]
        if following is None or len(rows) >= limit:
            break
        await pace.turn()
    return {"rows": rows, "next": following}


def _is_cursor(after: str) -> bool:
    """Whether it is an entry's spelling, or that and a scope: both without spaces, unless the address is quoted."""
    first, _, last = after.rpartition(" ")
    address = first if first and "@" not in last else after
    return ("@" in address or is_covering(address)) and (" " not in address or address.startswith('"'))


@ANSWERS.to(questions.forget)
async def _forget(queue: QueueContext, address: str, keep: bool = False, by: str = "") -> dict[str, Any]:
    who, suppression = checked_person(address), queue.suppression
    listed = await suppression.remove([who], by) > 0
    if keep:
        await suppression.add([Suppressed(who, ERASED, queue.core.clock.ms(), "", "", by, "")])
    return {**await forget(queue, who), "listed": listed, "kept": keep}


@ANSWERS.to(questions.evidence)
async def _evidence(queue: QueueContext, address: str) -> dict[str, Any]:
    who, clock, terms = checked_spelling(address), queue.core.clock, queue.core.config.suppression
    await queue.core.disk.settled()
    found, policy = queue.policy.store.get(who), queue.core.schedule.policy
    items = found.items if found is not None else []
    guards = dict.fromkeys(item.at for item in items if item.held)
    return {
        "address": literal(who),
        "entries": [entry.shown() for entry in queue.suppression.every(who)],
        "heard": [_shown(item, clock.apart_ms()) for item in items],
        "standing": _standing(found, terms, clock.steady_ms()) if found is not None else [],
        "guards": [name for name in guards if policy.stopped(GUARD, name)],
    }


@ANSWERS.to(questions.guards)
async def _guards(queue: QueueContext) -> list[dict[str, Any]]:
    return await queue.policy.guards()


@ANSWERS.to(questions.guard_release)
async def _release_guard(queue: QueueContext, name: str, drop: bool = False) -> int:
    return await queue.policy.release(name.strip(), drop)


# -- why a person is on the list, or is not


def _shown(item: Item, apart_ms: int) -> dict[str, Any]:
    """For answers. apart_ms: how far steady time is ahead of the clock."""
    row = item._asdict()
    row["at_ms"], row["by"] = row.pop("ms") - apart_ms, row.pop("at")
    return {name: value for name, value in row.items() if value not in ("", False)}


def _standing(evidence: Evidence, terms: SuppressionSection, ms: int) -> list[dict[str, Any]]:
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
