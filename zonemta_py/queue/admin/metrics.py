"""The numbers of a running queue: "metrics" for Prometheus, "now" for people, "report" from the other processes.

Everything is counted already or read in O(1); what is walked is bounded by the configuration: zones, campaigns, leases
that are out, stops, processes; and tasks, of which not many more than a thousand are kept.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from zonemta_py.disk.space import free_bytes
from zonemta_py.metrics.processes import PROCESSES
from zonemta_py.metrics.report import ALIVE_S
from zonemta_py.metrics.table import METRICS
from zonemta_py.queue import questions
from zonemta_py.queue.admin import doubts
from zonemta_py.queue.admin.browse import oldest
from zonemta_py.queue.admin.browse.counts import leased
from zonemta_py.queue.campaigns import unregistered
from zonemta_py.queue.core import plugin_failures, sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.tasks import STATES
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.observe import zone_label
from zonemta_py.queue.questions.question import AnswerTable
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.policy.standing import LEARNED, NOTED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD, LOST
from zonemta_py.schedule.time.pace import Pace

ANSWERS = AnswerTable[QueueContext]()
_OF_ZONES = [one.name for one in METRICS.values() if one.kind == "counter" and one.labels == ("zone",)]
OF_CAMPAIGNS = {
    "zonemta_campaign_recipients": (
        "accepted", "waiting", "delivered", "bounced", "deleted", "removed", "suppressed", "complaints",
        "bounced_later", "unsubscribes", "auto_replies", "opens", "clicks",
    ),
    "zonemta_campaign_attempts": ("delivered", "deferred", "bounced", "blocked"),
}  # fmt: skip
DESTINATIONS_MAX = 1_000
LOOK_S = 0.1
"""How often the delay of the loop is measured."""


async def metrics(queue: QueueContext) -> dict[str, Any]:
    """{counters, histograms, gauges}: name → rows of labels and value, as in `metrics.table`."""
    core = queue.core
    meter, now = core.counters.meter, core.clock.monotonic()
    for name in _OF_ZONES:  # so that a first one is seen as an increase
        for zone in core.config.zones:
            meter.add(name, (zone.name,), 0)
    gauges = meter.gauges(now - ALIVE_S) | await _of_campaigns(queue) | _gauges(queue) | await _standing(core)
    doubtful = await doubts.counted(core)
    zones = {zone.name for zone in core.config.zones}
    gauges["zonemta_in_doubt"] = _summed((zone_label(name), doubtful[name]) for name in zones | doubtful.keys())
    gauges["zonemta_oldest_recipient_age_seconds"] = await oldest.ages(core)
    return {"counters": meter.rows() | _counters(queue), "histograms": meter.histograms(), "gauges": gauges}


def _counters(queue: QueueContext) -> dict[str, list[list[Any]]]:
    """Those that are kept elsewhere."""
    core, processes = queue.core, list(PROCESSES.rows())
    return {
        "zonemta_journal_bytes_total": [[[], core.disk.ledger.written_bytes]],
        "zonemta_journal_records_total": [[[], core.disk.ledger.written_records]],
        "zonemta_journal_syncs_total": [[[], core.disk.journal.syncs]],
        "zonemta_store_syncs_total": [[[], core.disk.lines.syncs]],
        "zonemta_limits_reached_total": [[[name], n] for name, n in core.schedule.admission.reached.items()],
        "zonemta_source_failures_total": [
            [[source], core.schedule.source_health.failures[source]] for source in sorted(core.config.source_addresses)
        ],
        "zonemta_process_starts_total": [[[one.name], one.starts] for one in processes],
        "zonemta_process_failures_total": [[[one.name], one.failures] for one in processes],
        "zonemta_process_cpu_seconds_total": [[[one.name], one.cpu_s] for one in processes if one.resident_bytes],
    }


def _gauges(queue: QueueContext) -> dict[str, list[list[Any]]]:
    core, every = queue.core, list(PROCESSES.rows())
    spool = core.disk.spool
    processes = [one for one in every if one.resident_bytes]
    out = Counter(zone_label(lease.batch.zone.zone.name) for lease in queue.leases.out.values())
    tasks = Counter(task.state for task in core.tasks.listed)
    return {
        "zonemta_queue_recipients": _recipients(queue),
        "zonemta_queue_messages": [[[], core.counters.message_count]],
        "zonemta_queue_bytes": [[[], core.counters.message_bytes]],
        "zonemta_spooled_messages": [[[], spool.count if spool is not None else 0]],
        "zonemta_spooled_bytes": [[[], spool.bytes if spool is not None else 0]],
        "zonemta_leases_out": [[[name], out[name]] for name in {zone.name for zone in core.config.zones} | out.keys()],
        "zonemta_plugin_recent_failures": _summed(
            (
                *core.counters.plugin_failures.rows(core.clock.monotonic()),
                *queue.poison.deaths.lately(plugin_failures.WINDOW_S),
            )
        ),
        "zonemta_source_resting": [
            [[source], int(core.schedule.source_health.rests(source))]
            for source in sorted(core.config.source_addresses)
        ],
        "zonemta_tasks": [[[state], tasks[state]] for state in STATES],
        "zonemta_accepting": [[[], int(queue.core.disk.refusal(queue.core.clock.monotonic()) is None)]],
        "zonemta_disk_free_bytes": [[[], free_bytes(core.config.folder)]],
        "zonemta_disk_reserve_bytes": [[[], core.config.queue.reserve_bytes]],
        "zonemta_process_resident_memory_bytes": [[[one.name], one.resident_bytes] for one in processes],
        "zonemta_process_failure_time_seconds": [[[one.name], one.failed] for one in every if one.failed],
        "zonemta_process_start_time_seconds": [[[one.name], one.started] for one in processes],
    }


def _summed(rows: Iterable[tuple[str, int]]) -> list[list[Any]]:
    """By label."""
    found = Counter[str]()
    for name, n in rows:
        found[name] += n
    return [[[name], n] for name, n in found.items()]


async def _standing(core: Core) -> dict[str, list[list[Any]]]:
    """As many as the list has."""
    pace, found = Pace(), Counter[tuple[str, str]]()
    for portion in admin_orders.rows(core.schedule):
        found.update((row["group"], row["kind"]) for row in portion)
        await pace.turn()
    rows: dict[str, list[list[Any]]] = {
        f"zonemta_{group}": [[[kind], n] for (of, kind), n in found.items() if of == group]
        for group in (SUSPENDED, RESTING, LEARNED)
    }
    noted = {"zonemta_suppression_guards_up": found[NOTED, GUARD], "zonemta_damage": found[NOTED, LOST]}
    return rows | {name: [[[], n]] for name, n in noted.items()}


async def _of_campaigns(queue: QueueContext) -> dict[str, list[list[Any]]]:
    """Of the largest: those of which most recipients wait, then those whose last result is the newest."""
    core, pace, largest = queue.core, Pace(), list[tuple[int, int, str]]()
    most = core.config.http.metrics_campaigns
    async for name in pace.each(list(core.campaigns.by_name) if most else []):
        if name in core.campaigns.by_name:
            tally = core.campaigns.tally(name)
            row = tally.waiting, tally.last_ms, name
            (heapq.heappush if len(largest) < most else heapq.heappushpop)(largest, row)
    named = [(name, _figures(core, name)) for _, _, name in largest if name in core.campaigns.by_name]
    return {
        metric: [[[name, what], figures[what]] for name, figures in named for what in of]
        for metric, of in OF_CAMPAIGNS.items()
    }


def _figures(core: Core, name: str) -> dict[str, int]:
    tally, deleted = core.campaigns.tally(name), unregistered.deleted(core, core.campaigns.by_name[name])
    return asdict(tally) | {"waiting": max(0, tally.waiting - deleted), "deleted": deleted}


def _recipients(queue: QueueContext) -> list[list[Any]]:
    """By zone and state; those that are leased count as leased only."""
    core = queue.core
    names = (*sizes.NAMES, "leased")
    found = {zone.name: [0] * len(names) for zone in core.config.zones}
    for name, counts in core.counters.sizes.zones.items():
        row = found.setdefault(zone_label(name), [0] * len(names))
        for state, count in enumerate(counts):
            row[state] += count
    for one in leased(queue):
        row = found.setdefault(zone_label(one.lease.zone.name), [0] * len(names))
        row[one.state] -= 1
        row[-1] += 1
    return [[[zone, state], n] for zone, row in found.items() for state, n in zip(names, row, strict=True)]


@ANSWERS.to(questions.now)
async def now(queue: QueueContext, destinations: int = 0) -> dict[str, Any]:
    found = queue.core.counters.rates.rows()
    if destinations > 0:
        found["destinations"] = queue.core.counters.destinations.rows(min(destinations, DESTINATIONS_MAX))
    return found


@ANSWERS.to(questions.report)
async def report(queue: QueueContext, process: str, counts: list[list[Any]], gauges: list[list[Any]]) -> None:
    """From another process, once a second (`metrics.report`)."""
    counters, now = queue.core.counters, queue.core.clock.monotonic()
    counters.meter.reported(process, counts, gauges, now)
    for metric, labels, n in counts:
        if metric == plugin_failures.METRIC:
            counters.plugin_failures.note(labels[0], n, now)


async def watch(queue: QueueContext) -> None:
    """For ever: measures how late the loop comes to what is due, and notes each second what has happened."""
    loop, meter, looks = asyncio.get_running_loop(), queue.core.counters.meter, 0
    while True:
        due = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        meter.observe("zonemta_loop_delay_seconds", (), loop.time() - due)
        looks += 1
        if looks % 10 == 0:
            queue.core.counters.rates.note(loop.time())
            queue.core.counters.destinations.note(loop.time())
