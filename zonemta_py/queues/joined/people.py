"""People, and who sends to them, in several queues: the suppression list is alike in all, as orders make it; what was
heard of somebody, who is in doubt, what accounts and new sources have used, each queue knows of its own mail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.admin.doubts import ROWS
from zonemta_py.queue.api import EVERYBODY
from zonemta_py.queue.suppression.entry import UNSUBSCRIBE, usual_scope
from zonemta_py.queues.joined.asked import AskedQueues
from zonemta_py.queues.joined.campaigns import tenant

Row = dict[str, Any]
APART_MS = 1000
"""By how much queues may differ about when something was heard, whose clock was set meanwhile."""
_HEARD = ("group", "message", "tenant", "kind", "campaign", "said", "stage", "scope")
"""What makes one thing that was heard, with its time."""


# -- the suppression list


async def suppress(queues: AskedQueues, rows: list[list[Any]]) -> dict[str, int]:
    """What each queue would find out for itself, and not alike, is said to all: the time, and whose campaign it is."""
    now_ms, tenants = queues.now_ms(), dict[str, str | None]()
    given = [_entry(row, now_ms) for row in rows]
    for row in given:
        if _of_campaign(row) and row[5] not in tenants:
            tenants[row[5]] = await tenant(queues, name=row[5])
    for row in given:
        if _of_campaign(row):
            whose = tenants[row[5]] or ""
            row[7] = usual_scope(row[1], "" if whose == EVERYBODY else whose)
    found = (await queues.ordered(questions.suppress, {"rows": given})).values()
    most = max(found, key=lambda one: one["added"])
    return {"added": most["added"], "known": most["known"]}


def _entry(row: Any, now_ms: int) -> Any:
    """With all its values (`suppression.entry.checked`), unless it is none."""
    if not isinstance(row, (list, tuple)) or not 2 <= len(row) <= 8:
        return row
    entry = [*row, *("", "", "", "", 0, "")[len(row) - 2 :]]
    entry[6] = entry[6] or now_ms
    return entry


def _of_campaign(row: Any) -> bool:
    """Whether its scope follows from its campaign."""
    full = isinstance(row, list) and len(row) == 8
    return full and row[1] == UNSUBSCRIBE and isinstance(row[5], str) and bool(row[5]) and not row[7]


async def unsuppress(queues: AskedQueues, **order: Any) -> int:
    found: int = max((await queues.ordered(questions.unsuppress, order)).values())
    return found


async def forget(queues: AskedQueues, **order: Any) -> Row:
    found = (await queues.ordered(questions.forget, order)).values()
    return {
        "removed": sum(one["removed"] for one in found), "under_way": sum(one["under_way"] for one in found),
        "listed": any(one["listed"] for one in found), "kept": any(one["kept"] for one in found),
    }  # fmt: skip


async def evidence(queues: AskedQueues, address: str) -> Row:
    """What one queue has heard it teaches the others: that is told once, as of one that counts it, if any does. Each
    counts for itself (`counted`, `enough`); the one that has counted most is told."""
    found = list((await queues.each(questions.evidence, {"address": address})).values())
    standing = dict[tuple[str, str], Row]()
    for row in (row for one in found for row in one["standing"]):
        known = standing.setdefault((row["group"], row["scope"]), row)
        if (row["enough"], row["counted"]) > (known["enough"], known["counted"]):
            standing[row["group"], row["scope"]] = row
    entries = {(row["address"], row.get("scope", "all")): row for one in reversed(found) for row in one["entries"]}
    return {
        "address": found[0]["address"], "entries": list(entries.values()),
        "heard": _heard(one["heard"] for one in found),
        "standing": list(standing.values()), "guards": list(dict.fromkeys(g for one in found for g in one["guards"])),
    }  # fmt: skip


def _heard(each: Iterable[list[Row]]) -> list[Row]:
    """Each once, also where one queue has learnt it from another; held: if all hold it back."""
    found = list[tuple[Row, set[int]]]()
    for number, items in enumerate(each):
        for item in items:
            same = next((one for one in found if number not in one[1] and _same(one[0], item)), None)
            if same is None:
                found.append((dict(item), {number}))
                continue
            same[1].add(number)
            if not item.get("held"):
                same[0].pop("held", None)
    return sorted((item for item, _ in found), key=lambda item: item["at_ms"])


def _same(one: Row, other: Row) -> bool:
    return abs(one["at_ms"] - other["at_ms"]) < APART_MS and all(one.get(name) == other.get(name) for name in _HEARD)


async def guards(queues: AskedQueues) -> list[Row]:
    """What one holds back it has taught the others, and they hold it back too: the people are those of one queue."""
    found = dict[str, Row]()
    for rows in (await queues.each(questions.guards, {})).values():
        for row in rows:
            known = found.get(row["name"])
            found[row["name"]] = row if known is None else known | {
                "since_ms": min(known["since_ms"], row["since_ms"]), "people": max(known["people"], row["people"])
            }  # fmt: skip
    return list(found.values())


async def guard_release(queues: AskedQueues, **order: Any) -> int:
    """About how many people that is: the same in all, as of `guards`."""
    found: int = max((await queues.ordered(questions.guard_release, order)).values())
    return found


# -- who is in doubt


async def in_doubt(queues: AskedQueues, limit: int = ROWS, after: str = "") -> list[Row]:
    limit = max(1, min(limit, ROWS))
    found = (await queues.each(questions.in_doubt, {"limit": limit, "after": after})).values()
    rows = sorted((row for rows in found for row in rows), key=lambda row: (row["id"], row["recipient"].encode()))
    return rows[:limit]


async def in_doubt_acknowledge(queues: AskedQueues, **which: Any) -> int:
    return sum((await queues.each(questions.in_doubt_acknowledge, which)).values())


# -- accounts and sources


async def accounts(queues: AskedQueues) -> list[Row]:
    found = dict[tuple[str, str, str], Row]()
    for rows in (await queues.each(questions.accounts, {})).values():
        for row in rows:
            known = found.get(one := (row["account"], row["what"], row["quota"]))
            found[one] = row if known is None else _quota(known, row)
    return list(found.values())


def _quota(one: Row, other: Row) -> Row:
    """Of one amount, both have used a part."""
    used, amount = one["used"] + other["used"], max(one["used"] + one["left"], other["used"] + other["left"])
    return one | {"used": used, "left": max(0, amount - used)}


async def warmup(queues: AskedQueues) -> list[Row]:
    found = dict[tuple[str, str], Row]()
    for rows in (await queues.each(questions.warmup, {})).values():
        for row in rows:
            known = found.get(one := (row["source"], row["provider"]))
            found[one] = row if known is None else _warming(known, row)
    return [row for _, row in sorted(found.items())]


def _warming(one: Row, other: Row) -> Row:
    """The step is the same in both; if not, the lower one holds."""
    behind, attempts = min(one, other, key=lambda row: row["step"]), one["attempts"] + other["attempts"]
    shares = {
        name: (one[name] * one["attempts"] + other[name] * other["attempts"]) / attempts if attempts else 0.0
        for name in ("deferred", "blocked")
    }
    firsts = [first for first in (one["first"], other["first"]) if first]
    return behind | shares | {
        "first": min(firsts, default=""), "sent": one["sent"] + other["sent"], "attempts": attempts
    }  # fmt: skip


async def warm(queues: AskedQueues, source: str, provider: str, step: int | None) -> Row:
    order = {"source": source, "provider": provider, "step": step}
    rows = list((await queues.ordered(questions.warm, order)).values())
    found: Row = rows[0]
    for row in rows[1:]:
        found = _warming(found, row)
    return found
