"""`zonemta status`: how an MTA is, for a person, and in one line for Nagios and others that read such lines."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from zonemta_py.cli.run.running import waits_for
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.in_force import in_force
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, tabled
from zonemta_py.cli.terminal.output import counted, print_json, print_table, printable
from zonemta_py.cli.watch.state import RATES, state
from zonemta_py.config import ConfigError
from zonemta_py.metrics.quantities import STATES, label
from zonemta_py.metrics.quantities import waiting as waiting_in
from zonemta_py.metrics.units import size
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
    for group in (RESTING, LEARNED):
        if rows := [row for row in found["standing"] if row["group"] == group]:
            yield group, _standing(rows)
    for row in _of_kind(found, LOST)[:_SHOWN]:
        yield "damage", printable(f"{row['name']}: {row['cause']}; `zonemta resume lost {row['name']}` acknowledges it")
    if (more := len(_of_kind(found, LOST)) - _SHOWN) > 0:
        yield "damage", f"{more} more cases; `zonemta standing` lists them"
    for row in _of_kind(found, GUARD):
        yield "held back", printable(f"{row['name']}: {row['cause']}; `zonemta suppression guards`")
    yield "in doubt", f"{found['in_doubt']:,}; `zonemta queue in-doubt` lists them" if found["in_doubt"] else "none"
    short = disk["free"] < disk["reserve"]
    until = f"until {size(disk['reserve'])} are" if short else "for now; the log says why"
    yield "disk", f"{size(disk['free'])} free" + ("" if disk["accepting"] else f"; new mail is refused {until}")
    for sink in found["sinks"]:
        behind = f", {sink['lag_records']:,} records behind" if sink["lag_records"] else ""
        yield f"sink {sink['name']}", f"{sink['state']}{behind}" + (f": {sink['why']}" if sink["why"] else "")
    for one in found["certificates"]:
        yield f"certificate {one['where']}", "; ".join(_certificate(one))


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
