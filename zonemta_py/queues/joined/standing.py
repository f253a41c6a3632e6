"""What holds mail in several queues: stops, rests and what was learned, flow queues, and why something waits.

Stops are alike in all queues, as orders make them; the rest is each queue's own, and the same kind and name in two of
them is one row. Flow queues of the same name are one row, with sums.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.admin.answers import LANES
from zonemta_py.queue.admin.answers import STANDING as PAGE
from zonemta_py.queue.admin.explain import ROWS_MAX
from zonemta_py.queue.questions.question import Question, Refused, number
from zonemta_py.queues.joined import places
from zonemta_py.queues.joined.asked import AskedQueues
from zonemta_py.schedule.flow import FlowId, flow_queue_name, place_of
from zonemta_py.schedule.policy.standing import LEARNED, NOTED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD, LOST

Row = dict[str, Any]
FEW = 100
"""Flow queues of each queue that are looked at for the first page, to see whether these are all."""
STANDING_MAX = 50_000
"""Rows of one queue that are looked at."""
_ID = re.compile(r"[0-9a-f]{16}")
_KINDS = ("zone", "ip", "campaign", "tenant", "destination", "queue")
"""What a name is, if it is several things: the first of these of which something waits."""
_WALK, _LATER = "walk ", "queues "
"""How cursors begin: of the queues whose recipients were looked through; of how many rows each queue has given."""
_ONE = ("zone", "site", "source", "apart", "priority", "tenant", "campaign")
"""What makes a flow queue."""


# -- stops, rests, and what was learned


async def standing(queues: AskedQueues, limit: int = PAGE, after: int = 0) -> list[Row]:
    rows = await _standing(queues)
    return rows[max(0, after) :][: max(0, limit)]


async def _standing(queues: AskedQueues) -> list[Row]:
    """The lowest queue's in their order, then those of each other one that no lower one has."""
    each = await asyncio.gather(*(_all_of(queues, one) for one in queues.asks))
    found = dict[tuple[str, str], Row]()
    for row in (row for rows in each for row in rows):
        known = found.get(one := (row["kind"], row["name"]))
        found[one] = row if known is None else _stands(known, row)
    return list(found.values())


async def _all_of(queues: AskedQueues, one: int) -> list[Row]:
    rows = list[Row]()
    while len(rows) < STANDING_MAX:
        page = (await queues.each(questions.standing, {"limit": PAGE, "after": len(rows)}, [one]))[one]
        rows += page
        if len(page) < PAGE:
            break
    return rows


def _stands(one: Row, other: Row) -> Row:
    """Both: since the first began, and until the last ends."""
    first = min(one, other, key=lambda row: row["since_ms"] or 1 << 62)
    untils = one["until_ms"], other["until_ms"]
    return first | {"until_ms": 0 if 0 in untils else max(untils)}


async def counted(queues: AskedQueues) -> dict[str, list[list[Any]]]:
    """The gauges of what stands: as many as the list has."""
    found = Counter((row["group"], row["kind"]) for row in await _standing(queues))
    rows: dict[str, list[list[Any]]] = {
        f"zonemta_{group}": [[[kind], n] for (of, kind), n in found.items() if of == group]
        for group in (SUSPENDED, RESTING, LEARNED)
    }
    noted = {"zonemta_suppression_guards_up": found[NOTED, GUARD], "zonemta_damage": found[NOTED, LOST]}
    return rows | {name: [[[], n]] for name, n in noted.items()}


async def stop(queues: AskedQueues, **what: Any) -> int:
    return sum((await queues.ordered(questions.stop, what)).values())


async def lift(queues: AskedQueues, **named: Any) -> bool:
    return any((await queues.ordered(questions.lift, named)).values())


async def reroute(queues: AskedQueues, **what: Any) -> Row:
    row: Row = next(iter((await queues.ordered(questions.reroute, what)).values()))
    return row


async def reroute_remove(queues: AskedQueues, **named: Any) -> bool:
    return any((await queues.ordered(questions.reroute_remove, named)).values())


# -- flow queues


async def lanes(queues: AskedQueues, **asked: Any) -> Row:
    found = await _lanes(queues, **asked)
    return found | {"rows": await _with_limits(queues, found["rows"])}


async def _lanes(
    queues: AskedQueues, zone: str | None = None, limit: int = LANES, after: int | str = 0,
    names: list[list[str]] | None = None,
) -> Row:  # fmt: skip
    """As many as each queue gives at once are in the order of their length; of more, a page has some of each queue: the
    longest there, whole rows in the order of their length, each on the page where its longest part is."""
    limit = max(1, min(limit, LANES))
    if names is not None:
        known, found = await _named(queues, dict.fromkeys(queues.asks, names))
        rows = _longest(row for each in known.values() for row in each.values())
        return {"rows": rows, "next": None, "whole": _whole(found)}
    if isinstance(after, str) and after.startswith(_LATER):
        return await _later(queues, zone, limit, _offsets(queues, after))
    start, share = max(0, number(after)), max(1, limit // len(queues.asks))
    first = LANES if start else min(LANES, max(share, FEW))
    found = await queues.each(questions.lanes, {"zone": zone, "limit": first})
    if start:
        found = {one: await _rest_of(queues, zone, one, page) for one, page in found.items()}
    if any(page["next"] is not None for page in found.values()):
        if start:
            raise Refused("there are more flow queues now than at the first page; begin again")
        return await _later(queues, zone, limit, dict.fromkeys(queues.asks, 0), found if first == share else None)
    rows = _longest(row for page in found.values() for row in page["rows"])
    following = start + limit if len(rows) > start + limit else None
    return {"rows": rows[start : start + limit], "next": following, "whole": _whole(found)}


async def _rest_of(queues: AskedQueues, zone: str | None, one: int, page: Row) -> Row:
    """Of one whose page was short because its time was over: up to LANES."""
    while page["next"] is not None and page["next"] < LANES:
        asked = {"zone": zone, "limit": LANES - page["next"], "after": page["next"]}
        more = (await queues.each(questions.lanes, asked, [one]))[one]
        page = page | {"rows": page["rows"] + more["rows"], "next": more["next"]}
    return page


async def _later(
    queues: AskedQueues, zone: str | None, limit: int, offsets: dict[int, int], found: dict[int, Row] | None = None
) -> Row:
    """found: the pages, if they are there."""
    if found is None:
        share = max(1, limit // len(offsets))
        asked = {one: {"zone": zone, "limit": share, "after": at} for one, at in offsets.items()}
        some = dict(list(asked.items())[:limit])
        found = await queues.each_its(questions.lanes, some)
    rows = _longest(row for page in found.values() for row in page["rows"])
    rows = await _largest_parts(queues, rows, {one: page["rows"] for one, page in found.items()})
    left = {one: at for one, at in offsets.items() if one not in found}
    left |= {one: page["next"] for one, page in found.items() if page["next"] is not None}
    return {"rows": rows, "next": _cursor(dict(sorted(left.items()))), "whole": _whole(found), "by_part": True}


async def _named(
    queues: AskedQueues, asked: Mapping[int, list[list[str]]]
) -> tuple[dict[tuple[Any, ...], dict[int, Row]], dict[int, Row]]:
    """What each queue has of the flow queues with these names, by what makes one; and its last page."""
    known, left, pages = dict[tuple[Any, ...], dict[int, Row]](), dict(asked), dict[int, Row]()
    while left := {one: names for one, names in left.items() if names}:
        some = {one: {"names": names[:LANES]} for one, names in left.items()}
        for one, page in (await queues.each_its(questions.lanes, some)).items():
            pages[one] = page
            for row in page["rows"]:
                known.setdefault(_key(row), {})[one] = row
            left[one] = left[one][LANES if page["next"] is None else page["next"] :]
    return known, pages


async def _largest_parts(queues: AskedQueues, rows: list[Row], parts: Mapping[int, list[Row]]) -> list[Row]:
    """Whole rows of those whose largest part, or the first of them, is among the parts."""
    mine = {one: {_key(row): row for row in parts.get(one, ())} for one in queues.asks}
    others = {one: [[row["zone"], _name(row)] for row in rows if _key(row) not in own] for one, own in mine.items()}
    known, _ = await _named(queues, others)
    for one, own in mine.items():
        for key, row in own.items():
            known.setdefault(key, {})[one] = row
    here = {(one, _key(row)) for one, some in parts.items() for row in some}
    whole = list[Row]()
    for row in rows:
        there = known.get(_key(row), {})
        first = min(there, key=lambda one: (-there[one]["waiting"], one), default=None)
        if first is None or (first, _key(row)) in here:
            whole += _longest(there.values()) or [row]
    return whole


def _name(row: Row) -> str:
    flow = FlowId(row["priority"], row["tenant"], row["campaign"]).text()
    return flow_queue_name(place_of(row["site"], row["apart"]), row["source"], flow)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _ONE)


def _longest(rows: Iterable[Row]) -> list[Row]:
    """One for each flow queue."""
    found = dict[tuple[Any, ...], Row]()
    for row in rows:
        known = found.get(_key(row))
        found[_key(row)] = row if known is None else _together(known, row)
    return sorted(found.values(), key=lambda row: (-row["waiting"], _key(row)))


def _together(one: Row, other: Row) -> Row:
    """window: of all connections; limits are the same, and the fuller one is told, if they are not shared
    (`_with_limits`)."""
    reasons = {(reason["kind"], reason["cause"]): reason for reason in (*other["reasons"], *one["reasons"])}
    limits = {(limit["name"], limit["of"]): limit for limit in other["limits"]}
    for limit in one["limits"]:
        same = limits.get((limit["name"], limit["of"]), limit)
        limits[limit["name"], limit["of"]] = max(limit, same, key=lambda row: row["ahead_s"])
    return one | {
        "waiting": one["waiting"] + other["waiting"], "active": one["active"] + other["active"],
        "window": one["window"] + other["window"], "parked": one["parked"] or other["parked"],
        "counted": one["counted"] and other["counted"], "learned": one["learned"] or other["learned"],
        "reasons": list(reasons.values()), "limits": list(limits.values()),
    }  # fmt: skip


async def _with_limits(queues: AskedQueues, rows: list[Row]) -> list[Row]:
    """Limits that queues share with what all of them have used, also those that have nothing of a row."""
    shared = {tuple(limit["id"]): limit for row in rows for limit in row.get("limits", ()) if "id" in limit}
    if not shared:
        return rows
    ids = [list(id) for id in shared]
    each = (await queues.each(questions.shared, {"ids": ids})).values()
    ahead_s = {
        id: round((sum(units) + queues.used(id)) * limit["every_s"], 3)
        for (id, limit), units in zip(shared.items(), zip(*each, strict=True), strict=True)
    }
    for limit in (limit for row in rows for limit in row.get("limits", ()) if "id" in limit):
        limit["ahead_s"] = ahead_s[tuple(limit.pop("id"))]
    return rows


def _whole(found: Mapping[int, Row]) -> list[Row]:
    """Why nothing at all is sent: something is, if one queue sends."""
    each = [page["whole"] for page in found.values()]
    if not all(each):
        return []
    return list({(reason["kind"], reason["cause"]): reason for some in each for reason in some}.values())


def _offsets(queues: AskedQueues, after: str) -> dict[int, int]:
    try:
        found = {int(one): int(at) for one, _, at in (part.partition(":") for part in after.split()[1:])}
    except ValueError:
        found = {}
    if not found or not found.keys() <= queues.asks.keys():
        raise Refused(f"{after[:80]!a} is not a cursor; use the one that the previous page ended with, or omit it")
    return found


def _cursor(offsets: Mapping[int, int]) -> str | None:
    return _LATER + " ".join(f"{one}:{at}" for one, at in offsets.items()) if offsets else None


# -- why something waits


async def explain(queues: AskedQueues, what: str, after: str = "") -> Row:
    found = await _explain(queues, what, after)
    return found | {"rows": await _with_limits(queues, found["rows"])}


async def _explain(queues: AskedQueues, what: str, after: str) -> Row:
    what, asked = what.strip(), {"what": what, "after": after}
    question: Question[..., Any] = questions.explain
    if _ID.fullmatch(what):
        found: Row = await queues.one(question, asked, what, lambda answer: bool(answer["rows"] or answer["next"]))
        return found

    async def ask(numbers: Sequence[int], cursor: str) -> dict[int, Row]:
        return await queues.each(question, {"what": what, "after": cursor}, numbers)

    if "@" in what:
        listed = await places.listed(ask, list(queues.asks), after, ROWS_MAX)
        return _explained([*map(dict, listed.pages.values())], listed.rows, listed.next)
    if after:
        numbers, cursor = _walkers(queues, after)
        listed = await places.listed(ask, numbers, cursor, ROWS_MAX)
        return _explained([*map(dict, listed.pages.values())], listed.rows, _walk(numbers, listed.next))
    pages = await queues.each(question, asked)
    kind = min(pages.values(), key=_kind)["kind"]
    some = {one: page for one, page in pages.items() if page["kind"] == kind}
    walked = {one: page for one, page in some.items() if page["next"] or any("recipient" in r for r in page["rows"])}
    rows = [row for one, page in some.items() if one not in walked for row in page["rows"]]
    flows = _longest(row for row in rows if "stopped" not in row)
    following, more = None, sum(page["more"] for page in some.values())
    if walked:
        listed = await places.of_pages(ask, walked, list(walked), "", ROWS_MAX)
        flows, following = flows + listed.rows, _walk(list(walked), listed.next)
        more += sum(len(page["rows"]) for page in walked.values()) - len(listed.rows)
    if not flows:
        flows = list({(row["stopped"], row["name"]): row for row in rows}.values())
    whole = {**_explained(list(some.values()), flows[:ROWS_MAX], following), "kind": kind}
    if whole.get("counts") and kind == "destination":  # also those in queues that have nothing of it in memory
        whole["counts"] = await _counts(queues, what)
    return whole | {"more": more + len(flows[ROWS_MAX:])}


async def _counts(queues: AskedQueues, domain: str) -> dict[str, int]:
    found = Counter[str]()
    for counts in (await queues.each(questions.size_of, {"domain": domain})).values():
        found.update(counts)
    return {state: count for state, count in found.items() if count or state != "leased"}


def _kind(page: Row) -> tuple[bool, bool, int]:
    waits = any("stopped" not in row for row in page["rows"])
    place = _KINDS.index(page["kind"]) if page["kind"] in _KINDS else len(_KINDS)
    return not waits, not page["rows"], place


def _explained(pages: Sequence[Row], rows: list[Row], following: str | None) -> Row:
    found = pages[0] | {"rows": rows, "next": following, "looked": sum(page["looked"] for page in pages)}
    found["whole"], found["more"] = _whole(dict(enumerate(pages))), 0
    counts = Counter[str]()
    for page in pages:
        counts.update(page.get("counts", {}))
    if any("counts" in page for page in pages):
        found["counts"] = dict(counts)
    if meanwhile := {row["cause"]: row for page in pages for row in page.get("meanwhile", ())}:
        found["meanwhile"] = list(meanwhile.values())
    learned = [row for page in pages for row in page.get("learned", ())]
    if any("learned" in page for page in pages):
        found["learned"] = list({(row["kind"], row["name"]): row for row in learned}.values())
    return found


def _walk(numbers: Sequence[int], cursor: str | None) -> str | None:
    return None if cursor is None else f"{_WALK}{','.join(map(str, numbers))} {cursor}"


def _walkers(queues: AskedQueues, after: str) -> tuple[list[int], str]:
    of, _, cursor = after.removeprefix(_WALK).partition(" ")
    numbers = [int(one) for one in of.split(",") if one.isdecimal()]
    if not after.startswith(_WALK) or not numbers or not {*numbers} <= queues.asks.keys():
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    return numbers, cursor
