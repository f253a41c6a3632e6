"""`zonemta status`: how an MTA is, for a person, and in one line for Nagios and others that read such lines."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from zonemta_py.cli.config.certificates import spans
from zonemta_py.cli.events.commands import state_of
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run import folder_lock
from zonemta_py.cli.run.running import waits_for
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import counted, print_json, print_table, printable
from zonemta_py.config import Config, ConfigError
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.metrics.quantities import STATES, label, size
from zonemta_py.metrics.quantities import waiting as waiting_in
from zonemta_py.processes.privileges import seen_by
from zonemta_py.queue import questions
from zonemta_py.schedule.policy.standing import LEARNED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD, LOST

OK, WARNING, CRITICAL, UNKNOWN = range(4)
"""Exit statuses of a check."""
_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_SHOWN = 3
Problem = tuple[int, str]


@tabled
def status(
    nagios: Annotated[
        bool, typer.Option("--nagios", help="Print one line with performance data; exit status 0, 1, 2 or 3.")
    ] = False,
    queued: Annotated[
        str, typer.Option(metavar="W,C", help="With --nagios: warning and critical thresholds for queued recipients.")
    ] = "",
    waiting: Annotated[
        str, typer.Option(metavar="W,C", help="Thresholds for all waiting recipients: queued, leased, deferred, held.")
    ] = "",
    in_doubt: Annotated[str, typer.Option(metavar="W,C", help="Thresholds for recipients in doubt.")] = "1,",
    disk: Annotated[str, typer.Option(metavar="W,C", help="Thresholds for free disk space, in MB.")] = "1024,128",
    certificate: Annotated[
        str, typer.Option(metavar="W,C", help="Thresholds for days until a certificate expires.")
    ] = "14,3",
    timeout: Annotated[int, typer.Option(min=1, help="Critical if there is no answer within this many seconds.")] = 8,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show uptime, traffic, backlog, and what needs attention.

    Exit status 69: the MTA is not running. With --nagios: 0 OK, 1 warning, 2 critical, 3 unknown.
    """
    if nagios:
        limits = {"queued": queued, "waiting": waiting, "in_doubt": in_doubt, "disk": disk, "certificate": certificate}
        _check(config, folder, limits, timeout)
    found = state(in_force(config, folder))
    if json:
        return print_json(found | {"running": True})
    return print_table("", ("what", "now"), list(_described(found)))


def _described(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    now_ms, total, disk = int(time.time() * 1000), found["total"], found["disk"]
    ending = ", draining: no new mail is accepted" if found["ending"] else ""
    yield "runs", f"since {when.since(found['since_ms'], now_ms)}, in {found['folder']}{ending}"
    if found["ending"]:
        yield "drain", waits_for(found["draining"])
    if found["copied"]:
        yield "copy", found["copied"]
    number = found["configuration"]
    yield "configuration", f"{number}; `zonemta config history` lists them" if number else "not noted yet"
    rates = found["rates"]
    yield "a second", ", ".join(f"{rates[name]:,.1f} {name}" for name in RATES)
    yield "queue", f"{_counts(total)}; {counted(total['messages'], 'message')}, {size(total['bytes'])}"
    if len(found["zones"]) > 1:
        for name, row in sorted(found["zones"].items()):
            yield f"zone {name}", _counts(row)
    yield "sessions", _sessions(found["sessions"])
    yield "suspended", _standing([row for row in found["standing"] if row["group"] == SUSPENDED])
    if rows := _of_kind(found, REROUTE):
        named = ", ".join(f"{row['name']} to {row['to']}" for row in rows[:_SHOWN])
        others = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        yield "rerouted", printable(f"{named}{others}; `zonemta reroute list` says why")
    for group in (RESTING, LEARNED):
        if rows := [row for row in found["standing"] if row["group"] == group]:
            yield group, _standing(rows)
    for row in _of_kind(found, LOST)[:_SHOWN]:
        yield "damage", printable(f"{row['name']}: {row['cause']}; `zonemta resume lost {row['name']}` acknowledges it")
    if (more := len(_of_kind(found, LOST)) - _SHOWN) > 0:
        yield "damage", f"{more} more cases; `zonemta standing` lists them"
    for row in _of_kind(found, GUARD):
        yield "held back", printable(f"{row['name']}: {row['cause']}; `zonemta suppression guards`")
    if found["alone"]:
        yield (
            "alone",
            f"{counted(found['alone'], 'message')} accepted by one node that the NATS servers do not have yet",
        )
    yield "in doubt", f"{found['in_doubt']:,}; `zonemta queue in-doubt` lists them" if found["in_doubt"] else "none"
    short = disk["free"] < disk["reserve"]
    until = f"until {size(disk['reserve'])} are" if short else "for now; the log says why"
    yield "disk", f"{size(disk['free'])} free" + ("" if disk["accepting"] else f"; new mail is refused {until}")
    for sink in found["sinks"]:
        behind = f", {sink['lag_records']:,} records behind" if sink["lag_records"] else ""
        yield f"sink {sink['name']}", f"{sink['state']}{behind}" + (f": {sink['why']}" if sink["why"] else "")
    for name, count in sorted(found["plugins"].items()):
        yield f"plugin {name}", f"fails: {_often(count)} within 5 minutes; the log says where and why"
    for one in found["certificates"]:
        yield f"certificate {one['where']}", "; ".join(_certificate(one))


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _certificate(one: dict[str, Any]) -> Iterator[str]:
    if "why" in one:
        yield one["why"]
    if one["days"] is not None:
        yield f"{'the one in use ' if 'why' in one else ''}ends in {one['days']:,.0f} days"
    if one["in_force"] and one["file_ends_ms"] not in (None, one["ends_ms"]):
        yield "its file has a newer one, which is used within half a minute"


def _counts(row: dict[str, int]) -> str:
    return ", ".join(f"{row[name]:,} {label(name)}" for name in STATES if row[name]) or "empty"


def _sessions(found: dict[str, dict[str, int]]) -> str:
    """Those by SMTP, then what accounts have open."""
    kinds = ("listeners", "accounts")
    listeners, accounts = ([f"{name} {n:,}" for name, n in found[kind].items() if n] for kind in kinds)
    named = f" ({', '.join(listeners)})" if len(found["listeners"]) > 1 and listeners else ""
    shown = f"{sum(found['listeners'].values()):,} by SMTP{named}"
    return printable("; of accounts ".join([shown, *([", ".join(accounts)] if accounts else [])]))


def _standing(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "nothing"
    named = ", ".join(f"{row['kind']} {row['name']}" for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return printable(f"{named}{more}; `zonemta standing` says why")


def _of_kind(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in found["standing"] if row["kind"] == kind]


# -- for Nagios


def _check(file: Any, folder: Any, limits: dict[str, str], timeout_s: int) -> NoReturn:
    """Ends the process: that status is not one of sysexits.h."""
    try:
        limit = {name: _limits(name, text) for name, text in limits.items()}
        config = in_force(file, folder)
    except (CommandError, ConfigError) as error:
        _end(UNKNOWN, str(error))
    signal.signal(signal.SIGALRM, partial(_too_late, timeout_s))
    signal.alarm(timeout_s)
    try:
        found = state(config)
    except CommandError as error:
        _end(UNKNOWN if error.code == Exit.PERMISSION else CRITICAL, error.sentence)
    problems = sorted(_problems(found, limit), reverse=True)
    total = found["total"]
    words = (
        "; ".join(sentence for _, sentence in problems)
        or f"{waiting_in(total):,} waiting, {found['rates']['out']:,.1f}/s go"
    )
    _end(max([level for level, _ in problems], default=OK), words, _data(found, limit))


def _too_late(timeout_s: int, *_: object) -> NoReturn:
    raise CommandError(Exit.UNAVAILABLE, f"no answer within {timeout_s} s; the log may say why")


def _limits(name: str, text: str) -> tuple[float | None, float | None]:
    warning, _, critical = text.partition(",")
    try:
        return float(warning) if warning.strip() else None, float(critical) if critical.strip() else None
    except ValueError:
        sentence = f"--{name.replace('_', '-')}: {text!a} is not two numbers; write it like 1000,5000"
        raise CommandError(Exit.USAGE, sentence) from None


def _problems(found: dict[str, Any], limit: dict[str, Any]) -> Iterator[Problem]:
    total, free = found["total"], found["disk"]["free"] / 1e6
    yield from _above(total["queued"], limit["queued"], f"{counted(total['queued'], 'recipient')} queued")
    yield from _above(waiting_in(total), limit["waiting"], f"{counted(waiting_in(total), 'recipient')} waiting")
    doubt = found["in_doubt"]
    yield from _above(
        doubt, limit["in_doubt"], f"{counted(doubt, 'recipient')} {'is' if doubt == 1 else 'are'} in doubt"
    )
    yield from _above(-free, tuple(one and -one for one in limit["disk"]), f"{size(free * 1e6)} free")
    if not found["disk"]["accepting"]:
        yield CRITICAL, "new mail is refused"
    if found["copied"]:
        yield WARNING, found["copied"]
    if lost := _of_kind(found, LOST):
        yield CRITICAL, f"damage: {', '.join(row['name'] for row in lost[:_SHOWN])} (`zonemta standing`)"
    for row in _of_kind(found, "source"):
        if row["group"] == RESTING:
            yield WARNING, f"source {row['name']}: {row['cause']}"
    for row in _of_kind(found, GUARD):
        yield WARNING, f"{row['name']} refuses very many recipients as unknown"
    for sink in found["sinks"]:
        if sink["state"] not in ("ok", "catching up"):
            yield WARNING, f"sink {sink['name']} is {sink['state']}"
    for name, count in sorted(found["plugins"].items()):
        yield WARNING, f"plugin {name} fails ({_often(count)} within 5 minutes)"
    for one in found["certificates"]:
        if "why" in one:
            yield CRITICAL, f"{one['where']}: {one['why']}"
        if one["days"] is not None:
            bounds = tuple(days and -days for days in limit["certificate"])
            yield from _above(-one["days"], bounds, f"{one['where']} ends in {one['days']:,.0f} days")


def _above(value: float, bounds: tuple[float | None, ...], sentence: str) -> Iterator[Problem]:
    for level, bound in ((CRITICAL, bounds[1]), (WARNING, bounds[0])):
        if bound is not None and value >= bound:
            yield level, sentence
            return


def _data(found: dict[str, Any], limit: dict[str, Any]) -> str:
    """As the guidelines for plugins have it: label=value[unit];warning;critical;least."""
    total = found["total"]
    values = [
        ("waiting", f"{waiting_in(total)}", limit["waiting"]),
        ("queued", f"{total['queued']}", limit["queued"]),
        ("in_doubt", f"{found['in_doubt']}", limit["in_doubt"]),
    ]
    values += [(name, f"{total[name]}", (None, None)) for name in ("leased", "deferred", "held")]
    values += [(name, f"{found['rates'][name]:.1f}", (None, None)) for name in RATES if name != "deferred"]
    values.append(("disk_free", f"{found['disk']['free'] / 1e6:.0f}MB", limit["disk"]))
    return " ".join(
        ";".join((f"{name}={value}", *(_plain(bound, name == "disk_free") for bound in bounds), "0"))
        for name, value, bounds in values
    )


def _plain(bound: float | None, least: bool) -> str:
    """A range; one that ends above, "1024:", where too little is wrong."""
    return "" if bound is None else f"{bound:g}{':' * least}"


def _end(level: int, words: str, data: str = "") -> NoReturn:
    said = " ".join(printable(words).split()).replace("|", "/")
    print(f"ZONEMTA {_WORDS[level]} - {said}" + (f" | {data}" if data else ""), flush=True)
    raise SystemExit(level)


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
        "alone": int(_one(gauges, "zonemta_spooled_messages")),
        "disk": {"free": free, "reserve": reserve, "accepting": bool(_one(gauges, "zonemta_accepting"))},
        "sinks": [_sink(state_of(config, sink)) for sink in config.event_sinks],
        "plugins": _by_label(gauges, "zonemta_plugin_recent_failures"),
        "certificates": certificates(config, gauges.get("zonemta_certificate_expiry_timestamp_seconds", ())),
    }


def _one(rows: dict[str, Any], name: str) -> Any:
    return rows[name][0][1]


def _by_label(rows: dict[str, Any], name: str) -> dict[str, int]:
    """Of a gauge with one label; empty if nothing has been reported yet."""
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
        return [_certificate_state(*one, in_force.get(one[0])) for one in spans(config)]


def _certificate_state(where: str, path: Path, read: Callable[[], Any], shown_s: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"where": where, "file": str(path), "in_force": shown_s is not None, "file_ends_ms": None}
    try:
        found["file_ends_ms"] = int(read()[1].timestamp() * 1000)
    except (OSError, ValueError, ConfigError) as error:
        found["why"] = str(error).removeprefix(f"{where}: ")
    ends_ms = found["file_ends_ms"] if shown_s is None else int(shown_s * 1000)
    days = None if ends_ms is None else (ends_ms / 1000 - time.time()) / 86_400
    return found | {"ends_ms": ends_ms, "days": days}
