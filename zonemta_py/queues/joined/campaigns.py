"""Campaigns in several queues. Those that were put are in each of them, by an order; those that only their mail has
named are where that mail is. Each queue counts its own recipients of one, and knows when nothing is left of it there.

Orders by name reach all queues: a stop of a campaign that nobody has put holds in those, too, that have no mail of it
yet. What would be decided by one queue's figures is decided by all of theirs first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.campaigns.choice import VariantFigures, best, due_ms
from zonemta_py.queue.campaigns.commands import ROWS
from zonemta_py.queue.campaigns.history import POINTS_MAX
from zonemta_py.queue.campaigns.monitor import ended_at
from zonemta_py.queue.campaigns.thresholds import passed
from zonemta_py.queue.questions.question import Question, Refused
from zonemta_py.queues.joined.asked import AskedQueues
from zonemta_py.queues.joined.tasks import next_number

Row = dict[str, Any]
_COUNTS = (
    "accepted", "delivered", "deferred", "bounced", "blocked", "complaints", "bounced_later", "unsubscribes",
    "auto_replies", "opens", "clicks", "removed", "suppressed", "waiting", "deleted",
)  # fmt: skip
_STATES = ("canceled", "paused", "running", "complete", "idle", "ended")
"""That of the queue that comes first here is the campaign's."""


# -- figures


async def one(queues: AskedQueues, name: str) -> Row:
    found = await queues.each(questions.campaign, {"name": name})
    return joined(found.values(), queues.now_ms())


async def _known(queues: AskedQueues, name: str) -> Row:
    """The same before an order, which waits for no queue: of those that answer."""
    found = await queues.some(questions.campaign, {"name": name})
    return joined(found.values(), queues.now_ms())


async def rows_of(queues: AskedQueues, names: list[str]) -> dict[str, Row]:
    """Of those of them that there are."""
    found = dict[str, list[Row]]()
    for at in range(0, len(names), ROWS):
        for rows in (await queues.each(questions.campaigns, {"names": names[at : at + ROWS]})).values():
            for row in rows:
                found.setdefault(row["name"], []).append(row)
    now_ms = queues.now_ms()
    return {name: joined(found[name], now_ms) for name in names if name in found}


async def newest(
    queues: AskedQueues, limit: int = ROWS, after: str = "", older_ms: int = 0, names: list[str] | None = None
) -> list[Row]:
    """Each when it began in the first queue: where it began later, it is passed over."""
    if names is not None:
        return list((await rows_of(queues, names[:ROWS])).values())
    found, limit = list[Row](), max(1, min(limit, ROWS))
    passed = {"older_ms": older_ms, "after": after} if older_ms else {}
    if after and not older_ms:
        last = (await rows_of(queues, [after])).get(after)
        if last is None:
            raise Refused(f"there is no campaign {after!r} any more, after which to go on; begin again")
        passed = {"older_ms": last["created_ms"], "after": after}
    while True:
        pages = list((await queues.each(questions.campaigns, {"limit": limit, **passed})).values())
        until = min((_age(page[-1]) for page in pages if len(page) >= limit), default=None)
        there = sorted({_age(row) for page in pages for row in page if until is None or _age(row) <= until})
        whole = await rows_of(queues, list(dict.fromkeys(name for _, name in there)))
        found += [whole[name] for age, name in there if name in whole and _age(whole[name]) == (age, name)]
        if until is None or len(found) >= limit:
            return found[:limit]
        passed = {"older_ms": -until[0], "after": until[1]}


def _age(row: Row) -> tuple[int, str]:
    return -row["created_ms"], row["name"]


def joined(rows: Iterable[Row], now_ms: int) -> Row:
    """One row of several queues' rows of a campaign; those where it was put come first."""
    each = sorted(rows, key=lambda row: (not row.get("registered", True), row["created_ms"]))
    first = min(each, key=lambda row: _STATES.index(row["state"]))
    found = each[0] | {"state": first["state"], "cause": first["cause"]}
    found |= {name: sum(row.get(name, 0) for row in each) for name in _COUNTS}
    found["rate_per_s"] = rate = round(sum(row["rate_per_s"] for row in each), 1)
    found["eta_ms"] = now_ms + int(1000 * found["waiting"] / rate) if rate > 0 and found["waiting"] > 0 else None
    found["created_ms"] = min(row["created_ms"] for row in each)
    found["first_ms"] = min((row["first_ms"] for row in each if row["first_ms"]), default=0)
    found["last_ms"] = max(row["last_ms"] for row in each)
    if "history" in found:
        found["history"] = _history([row["history"] for row in each if row["history"]])
        found["variants"] = _variants([row["variants"] for row in each if row["variants"]])
    return found


def _history(each: list[list[list[int]]]) -> list[list[int]]:
    """[ms, waiting, delivered]: at each moment that any queue has, what each had last; as many as one queue keeps."""
    moments = sorted({point[0] for points in each for point in points})
    while len(moments) > POINTS_MAX:
        moments = [*moments[:-1:2], moments[-1]]
    found = list[list[int]]()
    for ms in moments:
        there = [points[at - 1] for points in each if (at := bisect_right(points, ms, key=lambda point: point[0]))]
        found.append([ms, sum(point[1] for point in there), sum(point[2] for point in there)])
    return found


def _variants(each: list[Row]) -> Row | None:
    if not each:
        return None
    figures = dict[str, Row]()
    for row in (row for one in each for row in one["figures"]):
        known = figures.get(row["name"], {"hits": 0, "of": 0})
        figures[row["name"]] = row | {name: row[name] + known[name] for name in ("hits", "of")}
    winner = next((one["winner"] for one in each if one["winner"]), "")
    return each[0] | {"winner": winner, "figures": list(figures.values())}


async def tenant(queues: AskedQueues, **asked: Any) -> str | None:
    found = (await queues.each(questions.campaign_tenant, asked)).values()
    return next((one for one in found if one is not None), None)


async def templates(queues: AskedQueues, name: str) -> list[list[str]]:
    """Of one that knows it."""
    found: list[list[str]] = next(iter((await queues.each(questions.campaign_templates, {"name": name})).values()))
    return found


async def ends(queues: AskedQueues, name: str = "") -> list[Row]:
    """seq: of the lowest queue's journal."""
    rows = dict[str, Row]()
    for found in (await queues.each(questions.campaign_ends, {"name": name})).values():
        for row in found:
            known = rows.get(row["name"])
            rows[row["name"]] = row if known is None else known | {
                "created_ms": min(known["created_ms"], row["created_ms"]),
                "ended_ms": known["ended_ms"] and row["ended_ms"] and max(known["ended_ms"], row["ended_ms"]),
                "accepted": known["accepted"] + row["accepted"], "returned": known["returned"] + row["returned"],
            }  # fmt: skip
    return list(rows.values())


async def hours(queues: AskedQueues, name: str) -> Row:
    found, zones = await queues.each(questions.campaign_hours, {"name": name}), dict[str, Row]()
    for row in (row for one in found.values() for row in one["zones"]):
        known = zones.get(row["time_zone"])
        zones[row["time_zone"]] = row if known is None else known | {
            "waiting": known["waiting"] + row["waiting"], "next_ms": min(known["next_ms"], row["next_ms"])
        }  # fmt: skip
    return {
        "zones": sorted(zones.values(), key=lambda row: (row["next_ms"], row["time_zone"])),
        "last_ms": max(one["last_ms"] for one in found.values()),
        "counted": all(one["counted"] for one in found.values()),
    }


# -- orders


async def decided(queues: AskedQueues, name: str) -> None:
    """Does what one queue does each second by itself (`queue/campaigns/monitor.py`), by the figures of all: pauses it
    if it has passed a threshold, chooses among its variants, ends it when its time is over, and when it has ended lifts
    what paused it. Raises ValueError, QueueRefusal."""
    rows, now_ms = await _basis(queues, name), queues.now_ms()
    states = {row["state"] for row in rows}
    choice = next((row["choice"] for row in rows if row["choice"]), None)
    if states == {"ended"}:
        await queues.ordered(questions.lift, {"kind": "campaign", "name": name})
    if not rows or "canceled" in states or states == {"ended"}:
        return
    if (ends_ms := max(row["ends_ms"] for row in rows)) and ends_ms <= now_ms:
        cause = ended_at(next(row["until"] for row in rows if row["until"]))
        if sum(row["waiting"] for row in rows) > 0:
            await cancel(queues, name, cause)
        elif not states <= {"complete", "ended"}:
            await complete(queues, name, cause)
    elif choice:
        each = [await _basis(queues, one) for one in choice["of"]]
        firsts = [
            (sum(row["accepted"] for row in of), min((row["first_ms"] for row in of if row["first_ms"]), default=0))
            for of in each
        ]
        if 0 < due_ms(choice, firsts, now_ms) <= now_ms:
            await decide(queues, name)
    elif "paused" not in states:
        counted = [sum(figures) for figures in zip(*(row["counted"] for row in rows), strict=True)]
        bounds: dict[str, float] = next((row["bounds"] for row in rows if row["bounds"]), {})
        if cause := passed(bounds, counted):
            await pause(queues, name, cause)


async def _basis(queues: AskedQueues, name: str) -> list[Row]:
    """Of the queues that know it. Raises QueueRefusal."""
    with suppress(ValueError):
        return list((await queues.each(questions.campaign_basis, {"name": name})).values())
    return []


async def put(queues: AskedQueues, **given: Any) -> Row:
    found = await queues.ordered(questions.campaign_put, given)
    return {"created": any(one["created"] for one in found.values())}


async def ordered(queues: AskedQueues, question: Question[..., Any], given: Mapping[str, Any]) -> Row:
    found = await queues.ordered(question, dict(given))
    return joined(found.values(), queues.now_ms())


async def _going(queues: AskedQueues, name: str) -> Row:
    """Raises Refused: it has ended in all queues; in one it may have sooner."""
    there = await _known(queues, name)
    if there["state"] == "ended":
        raise Refused(f"campaign {name!r} has ended")
    return there


async def complete(queues: AskedQueues, name: str, cause: str = "") -> Row:
    return await ordered(queues, questions.campaign_complete, {"name": name, "cause": cause})


async def text(queues: AskedQueues, **given: Any) -> Row:
    await _going(queues, given["name"])
    return await ordered(queues, questions.campaign_text, given)


async def schedule(queues: AskedQueues, **given: Any) -> Row:
    await _going(queues, given["name"])
    return await ordered(queues, questions.campaign_schedule, given)


async def pause(queues: AskedQueues, name: str, cause: str = "") -> Row:
    there = await _going(queues, name)
    if there.get("registered", True):
        return await ordered(queues, questions.campaign_pause, {"name": name, "cause": cause})
    tenants = [] if there.get("of_all") else [there["tenant"]]
    order = {"kind": "campaign", "name": name, "cause": cause or "by an operator", "tenants": tenants}
    await queues.ordered(questions.stop, order)
    return await _short(queues, name)


async def resume(queues: AskedQueues, name: str, cause: str = "") -> Row:
    there = await _going(queues, name)
    row = await ordered(queues, questions.campaign_resume, {"name": name, "cause": cause})
    if there.get("registered", True):
        return row
    await queues.ordered(questions.lift, {"kind": "campaign", "name": name})
    return await _short(queues, name)


async def _short(queues: AskedQueues, name: str) -> Row:
    """As orders are answered: without what only the row of a single one has."""
    row, more = (
        await _known(queues, name),
        ("history", "bounds", "priority", "life_h", "notify", "in_doubt", "variants"),
    )
    return {key: value for key, value in row.items() if key not in more}


async def cancel(queues: AskedQueues, name: str, cause: str = "", number: int = 0) -> Row:
    if (await _known(queues, name))["state"] == "ended":
        raise Refused(f"campaign {name!r} has ended; nothing of it is waiting")
    order = {"name": name, "cause": cause, "number": number or next_number(queues)}
    return await ordered(queues, questions.campaign_cancel, order)


async def decide(queues: AskedQueues, name: str, winner: str = "", cause: str = "") -> Row:
    """By the figures of all queues."""
    if not winner:
        variants = (await one(queues, name)).get("variants")
        if variants and not variants["winner"]:
            rows = [VariantFigures(row["name"], row["hits"], row["of"]) for row in variants["figures"]]
            found = best(variants["metric"], rows)
            if found is None:
                raise Refused("nothing of the variants was delivered yet; name the one to choose")
            winner, cause = found
    return await ordered(queues, questions.campaign_decide, {"name": name, "winner": winner, "cause": cause})
