"""What happens now, what waits, and what is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.metrics.quantities import size, waiting
from zonemta_py.queue import questions
from zonemta_py.schedule.policy.standing import LEARNED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD
from zonemta_py.web.dashboard.desk import HOME, Desk
from zonemta_py.web.dashboard.words import count, distance

RECENT_S = 3600


class Trouble(NamedTuple):
    """grave: mail is not taken, or not sent."""

    grave: bool
    said: str
    there: str
    remedy: str


async def now(desk: Desk, request: Request) -> Response:
    rates, sizes, standing, copied, campaigns, numbers = await asyncio.gather(
        desk.ask(questions.now), desk.ask(questions.size), desk.ask(questions.standing), desk.ask(questions.copied),
        desk.ask(questions.campaigns), desk.ask(questions.metrics),
    )  # fmt: skip
    total, doubt = sizes["total"], int(sum(n for _, n in numbers["gauges"]["zonemta_in_doubt"]))
    found = [*_of_machine(copied, numbers), *_of_mail(total, doubt), *_of_orders(standing, campaigns)]
    zones = sorted(sizes["zones"].items(), key=lambda one: -waiting(one[1]))
    processes = _processes(numbers)
    return desk.page(request, "now", rates=rates, total=total, zones=zones[:12], more=max(0, len(zones) - 12),
                     troubles=sorted(found, key=lambda one: not one.grave), processes=processes,
                     disk=_one(numbers, "zonemta_disk_free_bytes"))  # fmt: skip


def _one(numbers: questions.Metrics, name: str) -> float:
    rows = numbers["gauges"].get(name, [])
    return float(rows[0][1]) if rows else 0.0


def _of_machine(copied: str, numbers: questions.Metrics) -> Iterator[Trouble]:
    if copied:
        yield Trouble(True, f"Nothing is sent: {copied}", "", "“zonemta queue adopt” makes this the one that sends.")
    free, reserve = _one(numbers, "zonemta_disk_free_bytes"), _one(numbers, "zonemta_disk_reserve_bytes")
    if not _one(numbers, "zonemta_accepting"):
        yield Trouble(True, "New mail is refused.", "", f"The disk has {size(free)} free, {size(reserve)} are kept in "
                      "reserve: free space, or see the log.")  # fmt: skip
    elif free < 2 * reserve:
        yield Trouble(False, f"The disk has only {size(free)} left; at {size(reserve)} new mail is refused.", "", "")
    for one in _processes(numbers):
        if time.time() - one["failed"] < RECENT_S:
            said = f"{one['name']} ended unexpectedly {distance(1000 * one['failed'])}, and was restarted."
            yield Trouble(False, said, "", "The log says how it ended.")


def _of_mail(total: questions.Total, doubt: int) -> Iterator[Trouble]:
    if doubt:
        yield Trouble(False, f"{count(doubt)} in doubt: whether they were delivered is not known.",
                      f"{HOME}/doubt", "See who they are.")  # fmt: skip
    if total["held"]:
        yield Trouble(False, f"{count(total['held'])} held: they wait for an operator.", f"{HOME}/queue?state=held",
                      "Look at them.")  # fmt: skip


def _of_orders(standing: list[questions.Standing], campaigns: list[questions.CampaignRow]) -> Iterator[Trouble]:
    stopped = [row for row in standing if row["group"] == SUSPENDED and row["kind"] != "campaign"]
    for row in stopped[:5]:
        yield Trouble(row["kind"] == "zone", f"{row['kind'].capitalize()} {row['name']} is suspended: {row['cause']}",
                      f"{HOME}/suspensions", "See suspensions.")  # fmt: skip
    if len(stopped) > 5:
        yield Trouble(False, f"{count(len(stopped) - 5)} more are suspended.", f"{HOME}/suspensions", "See all.")
    for row in [row for row in standing if row["kind"] == GUARD][:3]:
        yield Trouble(True, f"{row['name']}: {row['cause']}", f"{HOME}/suppressions", "Decide what that means.")
    away = [row for row in standing if row["kind"] == "resting"]
    if away:
        named = ", ".join(row["name"].split()[1] for row in away[:3] if len(row["name"].split()) > 1)
        named += " …" if len(away) > 3 else ""
        yield Trouble(False, f"Destinations that cannot be reached: {count(len(away))} ({named})",
                      f"{HOME}/suspensions#resting", "See why, and until when.")  # fmt: skip
    for named, rows in (
        ("Resting sources, and what replies have stopped", [row for row in standing if row["group"] == RESTING]),
        ("Limits learned from replies", [row for row in standing if row["group"] == LEARNED]),
    ):
        if rows := [row for row in rows if row["kind"] != "resting"]:
            yield Trouble(False, f"{named}: {count(len(rows))}", f"{HOME}/suspensions", "See which, and why.")
    for one in [one for one in campaigns if one["state"] == "paused"][:5]:
        yield Trouble(False, f"Campaign {one['name']} is paused: {one['cause']}", f"{HOME}/campaigns/{one['name']}",
                      "Look at it.")  # fmt: skip


def _processes(numbers: questions.Metrics) -> list[dict[str, Any]]:
    """Name, starts, memory, since when, and when it last ended by itself (0: never)."""

    def by_name(of: questions.Labelled, metric: str) -> dict[str, float]:
        return {row[0][0]: row[1] for row in of.get(metric, [])}

    failed = by_name(numbers["gauges"], "zonemta_process_failure_time_seconds")
    started = by_name(numbers["gauges"], "zonemta_process_start_time_seconds")
    starts = by_name(numbers["counters"], "zonemta_process_starts_total")
    memory = by_name(numbers["gauges"], "zonemta_process_resident_memory_bytes")
    return [{"name": name, "started": at, "starts": int(starts.get(name, 1)), "failed": failed.get(name, 0.0),
             "bytes": memory.get(name, 0)}
            for name, at in sorted(started.items())]  # fmt: skip
