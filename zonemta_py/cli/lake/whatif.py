"""`zonemta whatif`: what would have happened to the mail of a period under another configuration."""

from __future__ import annotations

import csv
import json as jsonlib
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson
from zonemta_py.cli.terminal.output import bar, print_table, printable
from zonemta_py.config import Config, ConfigError, load
from zonemta_py.logs.causes import cause

if TYPE_CHECKING:
    from zonemta_py.whatif.compare import GroupFigures
    from zonemta_py.whatif.history import History
    from zonemta_py.whatif.replay import Replayed, Span

Rows = dict[tuple[str, str], "GroupFigures"]
_SHOWN = 12


def whatif(
    other: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration to try.")],
    archive: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Folder with segments: archive/, and journal/ for the newest.")
    ],
    day: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day to replay (UTC); default: the archive's last.")
    ] = None,
    hours: Annotated[float, typer.Option(help="Number of hours.", min=0.01, max=168)] = 24,
    since: Annotated[
        datetime | None, typer.Option(help="Start at this time (UTC) instead of replaying a calendar day.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The configuration in use that day, replayed for comparison.")
    ] = None,
    drain_hours: Annotated[
        float, typer.Option(help="How long to continue after the end for mail that is still waiting.", min=0)
    ] = 24,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed gives the same result.")] = 1,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write all figures as CSV.")] = None,
    json: AsJson = False,
) -> None:
    """Replay a day from the archive under another configuration, and show the differences.

    The real queue code runs in simulated time; providers answer as they did that day. Without --config the new
    configuration is compared only with what actually happened.
    """
    from zonemta_py.whatif.compare import facts

    configs = {"tried": _config(other)} | ({"as it was": _config(config)} if config else {})
    history = _read(archive)
    span = _span(history, since or day, since is not None, hours, drain_hours)
    columns: dict[str, Rows] = {"recorded": facts(history, history, span)}
    if not columns["recorded"]:
        begins = datetime.fromtimestamp(span.since_ms / 1000, UTC)
        begins_at = f"{begins:%Y-%m-%d %H:%M} UTC"
        sentence = f"the archive has no mail in the {hours:g} hours from {begins_at} on; {_has(history)}"
        raise CommandError(Exit.DATA, sentence)
    for name, tried in sorted(configs.items()):
        for sentence in _unlike(tried, history, span):
            typer.echo(f"{name}: {sentence}", err=True)
    beyond: dict[str, list[tuple[str, int, int]]] = {}
    for name in sorted(configs):
        replayed = _replayed(configs[name], history, span, seed, name)
        columns[name] = facts(replayed.history, history, span)
        beyond[name] = replayed.beyond
        if replayed.refused:
            typer.echo(f"{name}: the queue did not take {replayed.refused} messages; they count as waiting", err=True)
    _show(columns, beyond, table, json)


def _unlike(config: Config, history: History, span: Span) -> Iterator[str]:
    """What the configuration would do with new mail, and cannot with that of the archive."""
    from zonemta_py.reception.ingest import KEPT
    from zonemta_py.whatif.replay import arrivals

    if config.plugins.enabled:
        names = ", ".join(config.plugins.enabled)
        yield f"plugins are not asked ({names}); mail goes as it would without them"
    asked = {name.lower(): zone.name for zone in config.zones for name in zone.headers if name.lower() not in KEPT}
    there = {name for arrival in arrivals(history, span) for name in arrival.envelope.headers} if asked else set()
    for field, zone in sorted(asked.items()):
        if field not in there:
            yield (
                f"zones[{zone}].headers: no mail of the archive has the field {field}, which stays with mail while"
                " a rule needs it; the rule decides nothing here"
            )


def _config(path: Path) -> Config:
    try:
        return load(path)
    except ConfigError as error:
        raise CommandError(Exit.CONFIG, str(error)) from None


def _read(folders: list[Path]) -> History:
    from zonemta_py.whatif.history import read as read_history

    for folder in folders:
        if not folder.is_dir():
            raise CommandError(
                Exit.NO_INPUT, f"{folder} is not a folder; name one with segments, such as archive/ of the queue"
            )
    with bar("reading segments") as move:
        history = read_history(folders, move)
    if not history.mails:
        raise CommandError(
            Exit.NO_INPUT, f"{folders[0]} has no segment with mail in it; name the archive/ of a queue's folder"
        )
    for fault in history.faults:
        typer.echo(f"damage: {fault}; its records are ignored", err=True)
    return history


def _span(history: History, begin: datetime | None, moment: bool, hours: float, drain_hours: float) -> Span:
    from zonemta_py.whatif.replay import Span

    if begin is None:
        newest = datetime.fromtimestamp(max(mail.ms for mail in history.mails.values()) / 1000, UTC)
        begin = newest.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = begin.replace(tzinfo=UTC) if begin.tzinfo is None else begin
    since_ms = int(begin.timestamp() * 1000)
    length = int(timedelta(hours=hours).total_seconds() * 1000)
    return Span(since_ms, since_ms + length, int(drain_hours * 3_600_000))


def _has(history: History) -> str:
    times = [mail.ms for mail in history.mails.values()]
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times)))
    return f"it has mail from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def _replayed(config: Config, history: History, span: Span, seed: int, name: str) -> Replayed:
    from zonemta_py.disk.leveldb.store import StoreError
    from zonemta_py.whatif.replay import replay

    length = max(1, span.until_ms - span.since_ms)
    shared = Path("/dev/shm")
    place = shared if shared.is_dir() else None  # nothing of it need outlast the command
    with tempfile.TemporaryDirectory(prefix="zonemta-whatif-", dir=place) as folder, bar(f"replaying ({name})") as move:
        try:
            return replay(
                config, history, span, seed, Path(folder) / "queue",
                lambda now_ms: move(min(length, now_ms - span.since_ms), length),
            )  # fmt: skip
        except ConfigError as error:
            raise CommandError(Exit.CONFIG, str(error)) from None
        except (OSError, StoreError) as error:
            raise CommandError(Exit.DISK, f"the replay needs room in {place or folder}: {cause(error)}") from None


def _show(
    columns: dict[str, Rows], beyond: dict[str, list[tuple[str, int, int]]], table: Path | None, json: bool
) -> None:
    from zonemta_py.whatif.compare import differences

    keys = list(dict.fromkeys(key for rows in columns.values() for key in differences(rows, rows)))
    figures = {key: {name: rows[key].row() for name, rows in columns.items() if key in rows} for key in keys}
    if table:
        _write(table, figures)
    if json:
        every = [{"group": group, "name": name, **by} for (group, name), by in figures.items()]
        print(jsonlib.dumps({"rows": every, "beyond": beyond}, ensure_ascii=False))
        return
    _print(figures, list(columns))
    for name, rows in beyond.items():
        for provider, seen, most in rows[:_SHOWN]:
            print(f"{name}: {provider} was sent {most} a minute, more than ever observed ({seen})")


_FIGURES = ("recipients", "delivered", "bounced", "waiting", "attempts", "deferred", "p50_s", "p95_s", "p99_s",
            "peak_per_minute")  # fmt: skip
_SHORT = ("delivered", "waiting", "deferred", "p50_s", "p95_s", "peak_per_minute")
_NAMES = {"p50_s": "p50", "p95_s": "p95", "p99_s": "p99", "peak_per_minute": "most/min"}


def _write(path: Path, figures: dict[tuple[str, str], dict[str, dict[str, Any]]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("group", "name", "run", *_FIGURES))
        for (group, name), by in figures.items():
            for run, row in by.items():
                out.writerow((group, name, run, *(row[figure] for figure in _FIGURES)))


def _print(figures: dict[tuple[str, str], dict[str, dict[str, Any]]], runs: list[str]) -> None:
    everybody = figures["all", ""]
    whole = [
        (_NAMES.get(figure, figure), *(_text(figure, everybody[run][figure]) for run in runs)) for figure in _FIGURES
    ]
    for kind in sorted({kind for run in runs for kind in everybody[run]["deferred_by_class"]}):
        counts = [everybody[run]["deferred_by_class"].get(kind, 0) for run in runs]
        whole.append((f"  deferred: {kind}", *(f"{count:,}" for count in counts)))
    print_table("", ["figure", *(f"{run} " for run in runs)], whole)
    for group in dict.fromkeys(group for group, _ in figures if group != "all"):
        rows = [(name, by) for (where, name), by in figures.items() if where == group]
        rows.sort(key=lambda row: -max(one["recipients"] for one in row[1].values()))
        cells = [
            (printable(name) or "–", run, *(_text(figure, by[run][figure]) for figure in _SHORT))
            for name, by in rows[:_SHOWN]
            for run in runs
            if run in by
        ]
        more = f"and {len(rows) - _SHOWN} more; --csv writes all" if len(rows) > _SHOWN else ""
        columns = [group, "run", *(f"{_NAMES.get(figure, figure)} " for figure in _SHORT)]
        print_table(f"By {group}", columns, cells, more, keys=(group, "run"))


def _text(figure: str, value: float | None) -> str:
    if value is None:
        return "–"
    if not figure.endswith("_s"):
        return f"{value:,}"
    return str(timedelta(seconds=round(value))) if value >= 60 else f"{value:.1f} s"
