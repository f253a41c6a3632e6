"""`zonemta report …`: one HTML page with plots of a day, campaign, source, provider or zone, from the lake's tables."""

from __future__ import annotations

import difflib
import re
import time
import webbrowser
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from zonemta_py.cli.lake.close_segment import node_of, up_to_now
from zonemta_py.cli.lake.commands import Lake
from zonemta_py.cli.lake.spark import Master, Memory, spark, told
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, Option, extended
from zonemta_py.cli.terminal.output import Telling, bar, printable
from zonemta_py.config.section import shipped
from zonemta_py.disk.files import replace_file
from zonemta_py.zones.site import Providers

if TYPE_CHECKING:
    from zonemta_py.pipeline.report.scope import Kind, ReportScope
    from zonemta_py.pipeline.spark.session import SparkSession

app = typer.Typer(help="Write HTML reports with plots: deliveries, failures and their causes.", no_args_is_help=True)

DAYS = 7
"""Period of a page where none is given: so many of the lake's last days."""
_TABLES = ("deliverability", "outcomes", "deliveries")
_NAMED_MAX = 5

Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Output file or folder; default: report-WHAT-NAME.html here."),
]
Csv = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the tables as CSV files to this folder.")]
Open = Annotated[bool, typer.Option("--open", help="Open the report in the browser.")]
_DAY = {"formats": ["%Y-%m-%d"], "metavar": "DATE"}
FromArchive = Annotated[
    Path | None,
    typer.Option(
        "--archive", metavar="DIR", help="First update the lake from this archive/ of the MTA, but no findings."
    ),
]
From = Annotated[datetime | None, typer.Option("--from", **_DAY, help="First day (UTC); default: a week.")]
To = Annotated[datetime | None, typer.Option("--to", **_DAY, help="Last day (UTC); default: the lake's last.")]
Bounds = tuple[int | None, int | None]
Resolve = Callable[["SparkSession"], "ReportScope"]


class How(NamedTuple):
    """What all pages have besides what they are about. lent: the lake is for this page alone; it gets what the archive
    has from the record `since`, or the time `since_ms` on."""

    lake: Path
    archive: Path | None
    output: Path | None
    csv: Path | None
    open_: bool
    json: bool
    master: str | None
    memory: float
    lent: bool = False
    since: int = 0
    since_ms: int = 0


_HOW: dict[str, Option] = {
    "lake": (Lake, Parameter.empty), "archive": (FromArchive, None), "output": (Output, None), "csv": (Csv, None),
    "open_": (Open, False), "json": (AsJson, False), "master": (Master, None), "memory": (Memory, 2),
}  # fmt: skip
_DAYS: dict[str, Option] = {"since": (From, None), "until": (To, None)}


def reporting(about: Callable[..., Resolve]) -> Callable[..., Any]:
    """Makes `zonemta report NAME` of a function with that name: of its own options and `days`, if it has them, the two
    ends of the time, and of the lake, it makes what finds the scope of the page."""
    timed = "days" in signature(about).parameters

    def run(**options: Any) -> None:
        how = How(**{name: options.pop(name) for name in _HOW})
        if timed:
            options["days"] = _bounds(*(options.pop(name) for name in _DAYS))
        report(about(lake=how.lake, **options), how)

    return app.command()(extended(about, run, {}, (_DAYS if timed else {}) | _HOW, without=("lake", "days")))


@reporting
def day(
    day: Annotated[str, typer.Argument(metavar="DATE", help="2026-03-04, today or yesterday (UTC).")], lake: Path
) -> Resolve:
    """Report on all mail of a day, compared with the day before."""
    from zonemta_py.pipeline.report.scope import of_day

    scope = of_day(_date(day))
    return lambda session: scope


@reporting
def campaign(name: Annotated[str, typer.Argument(metavar="NAME")], lake: Path, days: Bounds) -> Resolve:
    """Report on a campaign with its burn-down, compared with the campaign before it. Default: its whole duration."""

    def resolve(session: SparkSession) -> ReportScope:
        from zonemta_py.pipeline.report import facts

        found = facts.spans(session, lake)
        scope = facts.of_campaign(found, name, *days)
        if scope is None:
            raise _unknown("campaign", name, [span.name for span in found])
        return scope

    return resolve


@reporting
def ip(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Source address of this MTA.")],
    lake: Path,
    days: Bounds,
) -> Resolve:
    """Report on one source address: what it sent, and the state of its warm-up."""
    return _named("IP", address, lake, days)


@reporting
def provider(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name in the provider map, for example google.")],
    lake: Path,
    days: Bounds,
) -> Resolve:
    """Report on mail to a provider."""
    return _named("PROVIDER", name, lake, days)


@reporting
def zone(name: Annotated[str, typer.Argument(metavar="NAME")], lake: Path, days: Bounds) -> Resolve:
    """Report on mail of a sending zone."""
    return _named("ZONE", name, lake, days)


def _named(kind: str, name: str, lake: Path, days: Bounds) -> Resolve:
    """What has that name, between two days."""
    from zonemta_py.pipeline.report.scope import Kind

    return lambda session: _scope(lake, Kind[kind], name, *days)


def report(resolve: Resolve, how: How) -> None:
    """Makes the page and says where it is. Raises CommandError."""
    from zonemta_py.pipeline.report import page, words

    if how.archive is None:
        _check(how.lake)
    else:
        up_to_now(how.archive)
    with spark(how.master, how.memory) as session, told():
        from zonemta_py.pipeline.report import facts

        if how.archive is not None:
            _bring_up_to_date(session, how.archive, how)
            _check(how.lake)
        with bar("page"):
            scope = resolve(session)
            found = facts.gather(session, how.lake, scope, Providers.load(shipped("providers.toml")).domains)
        if found.empty:
            _check_name(session, how.lake, scope)
    file = _file(how.output, f"report-{scope.kind.name.lower()}-{_slug(scope.name)}.html")
    replace_file(file, page.page(found, scope, f"{words.second(int(time.time()))} UTC").encode())
    with Telling(how.json) as tell:
        tell(str(file), page=file, kind=scope.kind.name.lower(), name=scope.name)
        if how.csv is not None:
            how.csv.mkdir(parents=True, exist_ok=True)
            tables = {how.csv / f"{table.name}.csv": table.csv for table in page.tables(found, scope)}
            for place, content in tables.items():
                place.write_bytes(content)
            tell(tables=[*tables])
    if how.open_:
        webbrowser.open(file.resolve().as_uri())


def _file(output: Path | None, name: str) -> Path:
    """Where the page goes: the file, or one of that name in the folder. Raises CommandError."""
    file = Path(name) if output is None else output / name if output.is_dir() else output
    if not file.parent.is_dir():
        raise CommandError(Exit.CANT_CREATE, f"{file.parent}: there is no such folder; create it, or name another")
    return file


def _bring_up_to_date(session: SparkSession, archive: Path, how: How) -> None:
    """As `lake ingest` and `lake update` do it; of the tables, those that pages read."""
    from zonemta_py.pipeline.journal.reader import Archive
    from zonemta_py.pipeline.lake import bronze, update

    lake = how.lake
    with bar("segments") as moved:
        named = Archive(archive, node_of(archive))
        bronze.ingest(session, named, lake, moved=moved, since=how.since, since_ms=how.since_ms)
    begun: list[str] = []
    with bar("tables") as moved:

        def began(name: str) -> None:
            moved(len(begun), len(update.JOBS))
            begun.append(name)

        try:
            update.update(session, lake, began=began)
        except update.NoBronze as error:
            sentence = f"{archive}: there is nothing in it from then on; name the MTA's archive/"
            raise CommandError(Exit.NO_INPUT, sentence if how.lent else str(error)) from None


def _scope(lake: Path, kind: Kind, name: str, start: int | None, end: int | None) -> ReportScope:
    from zonemta_py.pipeline.report import facts
    from zonemta_py.pipeline.report.scope import DAY_S, ReportScope

    last = facts.last_day(lake)
    if end is None:
        end = (start or 0) + DAYS * DAY_S if last is None else last + DAY_S
    if start is None:
        start = end - DAYS * DAY_S
    if start >= end:
        newest = datetime.fromtimestamp(end - DAY_S, UTC).date()
        raise CommandError(Exit.USAGE, f"--from: the lake ends with {newest}; name a day up to then")
    return ReportScope(kind, name, start, end)


def _check(lake: Path) -> None:
    """Before Spark is started. Raises CommandError."""
    from zonemta_py.pipeline.lake import table

    if not lake.is_dir():
        raise CommandError(
            Exit.NO_INPUT, f"{lake}: there is no such folder; create a lake with --archive DIR, the MTA's archive/"
        )
    missing = [name for name in _TABLES if not table.manifest(lake, name).schema]
    if missing:
        remedy = "create what is missing with `zonemta lake update`"
        raise CommandError(Exit.NO_INPUT, f"{lake}: there is no table {' and no '.join(missing)} yet; {remedy}")


def _check_name(session: SparkSession, lake: Path, scope: ReportScope) -> None:
    """An empty page is right for a time without mail, not for a name that nothing has. Raises CommandError."""
    from zonemta_py.pipeline.report import facts
    from zonemta_py.pipeline.report.scope import Kind

    if scope.kind in (Kind.DAY, Kind.CAMPAIGN):
        return
    names = facts.names(session, lake, scope.kind)
    if scope.name not in names:
        what = {Kind.IP: "source address", Kind.PROVIDER: "provider", Kind.ZONE: "zone"}[scope.kind]
        raise _unknown(what, scope.name, names)


def _unknown(what: str, name: str, names: list[str]) -> CommandError:
    if not names:
        return CommandError(
            Exit.DATA, f"the lake has no {what} {name!a}, nor any other; ingest new segments, then update its tables"
        )
    near = difflib.get_close_matches(name, names, _NAMED_MAX, 0.5)
    nearest = ", ".join(printable(one) for one in near or names[:_NAMED_MAX])
    return CommandError(
        Exit.DATA, f"the lake has no {what} {name!a}; {'the nearest are' if near else 'it has'} {nearest}"
    )


def _date(text: str) -> date:
    today = datetime.now(UTC).date()
    if text in ("today", "yesterday"):
        return today - timedelta(days=text == "yesterday")
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise CommandError(Exit.USAGE, f"{text!a} is not a day; write it like 2026-03-04, today or yesterday") from None


def _bounds(since: datetime | None, until: datetime | None) -> Bounds:
    """UNIX seconds: the first of the first day, and the first behind the last day. Raises CommandError."""
    from zonemta_py.pipeline.report.scope import DAY_S, seconds

    if since and until and since > until:
        raise CommandError(Exit.USAGE, "--from: the first day is after the last; swap it with --to")
    return seconds(since.date()) if since else None, seconds(until.date()) + DAY_S if until else None


def _slug(name: str) -> str:
    """What can stand in a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:60].strip("-.") or "unnamed"
