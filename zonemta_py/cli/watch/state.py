"""The state of an MTA in one dict: asked of its queue, and read from its folder and from the certificates it names.
Which certificate a listener shows is what its processes report: the file may be another one by now.

Failures: CommandError, if it does not run; ConfigError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from zonemta_py.cli.config.certificates import spans
from zonemta_py.cli.events.sinks import state_of
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run import folder_lock
from zonemta_py.config import Config, ConfigError
from zonemta_py.processes.privileges import seen_by
from zonemta_py.queue import questions

RATES = ("in", "out", "deferred", "bounced")


def state(config: Config) -> dict[str, Any]:
    """Cheap at any size of the queue."""
    size, metrics = answer(config, questions.size), answer(config, questions.metrics)
    now, standing = answer(config, questions.now), answer(config, questions.standing)
    running = answer(config, questions.generation)
    gauges, draining = metrics["gauges"], answer(config, questions.draining)
    free, reserve = _one(gauges, "zonemta_disk_free_bytes"), _one(gauges, "zonemta_disk_reserve_bytes")
    return {
        "folder": str(config.folder),
        "since_ms": _since_ms(config, gauges),
        "generation": running["generation"],
        "configuration": running["number"],
        "ending": draining["ending"],
        "draining": draining if draining["ending"] else None,
        "copied": answer(config, questions.copied),
        "rates": {name: round(now[name], 3) for name in RATES} | {"window_s": now["window_s"]},
        "zones": size["zones"],
        "total": size["total"],
        "standing": standing,
        "sessions": {
            "listeners": _by_label(gauges, "zonemta_smtp_sessions_open"),
            "accounts": _by_label(gauges, "zonemta_account_sessions_open"),
        },
        "in_doubt": int(sum(n for _, n in gauges["zonemta_in_doubt"])),
        "disk": {"free": free, "reserve": reserve, "accepting": bool(_one(gauges, "zonemta_accepting"))},
        "sinks": [_sink(state_of(config, sink)) for sink in config.event_sinks],
        "certificates": certificates(config, gauges.get("zonemta_certificate_expiry_timestamp_seconds", ())),
    }


def _one(rows: dict[str, Any], name: str) -> Any:
    return rows[name][0][1]


def _by_label(rows: dict[str, Any], name: str) -> dict[str, int]:
    """Of a gauge with one label that other processes measure; empty if none has reported yet."""
    return {labels[0]: int(value) for labels, value in rows.get(name, ())}


def _since_ms(config: Config, gauges: dict[str, Any]) -> int:
    """Since when its supervisor runs, or else the oldest of its processes; of a queue alone, since it listens."""
    if folder_lock.there(config.folder):
        return round(1000 * folder_lock.since_s(config.folder))
    starts = [start for _, start in gauges["zonemta_process_start_time_seconds"]]
    return round(1000 * (min(starts) if starts else (config.folder / "socket").stat().st_mtime))


def _sink(row: dict[str, Any]) -> dict[str, Any]:
    why = row.get("reason") or row.get("trouble") or ""
    return {name: row.get(name) for name in ("name", "kind", "state", "lag_records", "lag_s")} | {"why": why}


def certificates(config: Config, reported: Iterable[Any] = ()) -> list[dict[str, Any]]:
    """Each with the moment of its end: of the one in force, if a listener has reported it (in_force), else of the file.
    why: the MTA's user cannot use the file. reported: rows of the metric."""
    in_force = {f"listeners.{labels[0]}.certificate": float(end) for labels, end in reported}
    with seen_by(config):
        return [_certificate(*one, in_force.get(one[0])) for one in spans(config)]


def _certificate(where: str, path: Path, read: Callable[[], Any], shown_s: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"where": where, "file": str(path), "in_force": shown_s is not None, "file_ends_ms": None}
    try:
        found["file_ends_ms"] = int(read()[1].timestamp() * 1000)
    except (OSError, ValueError, ConfigError) as error:
        found["why"] = str(error).removeprefix(f"{where}: ")
    ends_ms = found["file_ends_ms"] if shown_s is None else int(shown_s * 1000)
    days = None if ends_ms is None else (ends_ms / 1000 - time.time()) / 86_400
    return found | {"ends_ms": ends_ms, "days": days}
