"""The group `zonemta summary`: numbers of a day or another span, from summaries of the archive."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import Brief, Telling, as_records, bar, moment, print_json, print_table, sentence
from zonemta_py.journal import folders
from zonemta_py.logs import setup
from zonemta_py.queue import questions as queue_questions
from zonemta_py.summary import questions, reading
from zonemta_py.summary.questions import SummarySpan
from zonemta_py.summary.shelf import SummaryShelf
from zonemta_py.summary.views import HOUR_MS

if TYPE_CHECKING:
    from zonemta_py.config import Config
    from zonemta_py.logs.privacy import Persons
    from zonemta_py.summary.file import SegmentSummary
    from zonemta_py.summary.views import SegmentCounts

app = typer.Typer(
    help="Count a day's mail, bounces and limits from the archive, in seconds; needs no running MTA and no Java.",
    no_args_is_help=True,
)

_DAY_H = 24
_BAR = 20
_NOBODY = {"provider": "other sites", "source": "no source", "class": "unclassified", "sender": "<>"}
_NOBODY_ELSE = "(none)"

Day = Annotated[
    str | None, typer.Option("--day", metavar="DATE", help="This day (UTC): yesterday, today, or 2026-12-01.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="From this hour on: 10h (ago), 14:30, 2026-12-01; default: 1d."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="Up to this moment, rounded up to the hour; default: now.")
]
Zone = Annotated[str | None, typer.Option(metavar="NAME", help="Only this zone.")]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")]
Provider = Annotated[str | None, typer.Option(metavar="NAME", help="Only this provider.")]
Source = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only this source address.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Rows to show.")]


class SummaryRead(NamedTuple):
    """What is asked, and the segments' numbers for it. begins_ms: of the archive; damages: places in segments that
    could not be read."""

    asked: SummarySpan
    sources: list[SegmentSummary | SegmentCounts]
    begins_ms: int
    damages: int


@app.command("mail")
@tabled
def mail(
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="NAME,…",
            help="Some of provider, source, zone, tenant, campaign, class, hour; or of user, sender (domain), tenant, "
            "campaign, zone, hour; or of domain (recipient's), provider, tenant, hour.",
        ),
    ] = "provider,source",
    day: Day = None, since: Since = None, until: Until = None, zone: Zone = None, tenant: Tenant = None,
    provider: Provider = None, source: Source = None, limit: Limit = 30,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Count attempts and their results, grouped by provider and source, by user and sender, by hour …

    With user or sender also accepted messages, recipients and bytes.
    """
    keys = [one.strip() for one in by.split(",") if one.strip()]
    only = _only(zone=zone, tenant=tenant, provider=provider, source=source)
    try:
        view = questions.view_of([*keys, *only])
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    settings = in_force(config, folder)
    read = _read(settings, day, since, until, only, (view,))
    found = questions.mail(read.sources, keys, read.asked)
    people = setup.people(settings)
    if people is not None and "user" in keys:
        found = _hidden(found, keys.index("user"), people)
    names = sorted(found, key=lambda group: group if keys == ["hour"] else (-_size(found[group]), group))
    columns = [name for name in _COLUMNS if any(name in row for row in found.values())] or ["attempts"]
    if json:
        rows = [dict(zip(keys, _plain(keys, group), strict=True)) | _for_json(found[group]) for group in names[:limit]]
        return print_json(_span(read) | {"rows": rows, "of": len(names)})
    biggest = max((_size(row) for row in found.values()), default=0)
    shown = [
        (*_names(keys, group), *(found[group].get(name, 0) for name in columns), *_bars(_size(found[group]), biggest))
        for group in names[:limit]
    ]
    head = [*keys, *(f"{_COLUMNS[name]} " for name in columns), *(["share"] if _drawn() else [])]
    order = [
        *keys,
        *(
            _COLUMNS[name]
            for name in ("messages", "accepted", "attempts", "delivered", "deferred", "bounced")
            if name in columns
        ),
    ]
    return print_table(f"Mail by {', '.join(keys)}", head, shown, _footer(read, len(names), limit), order, keys)


@app.command("replies")
@tabled
def replies(
    verdict: Annotated[
        str, typer.Option("--verdict", metavar="VERDICT", help="bounced, deferred, or both: bounced,deferred.")
    ] = "bounced",
    day: Day = None, since: Since = None, until: Until = None, zone: Zone = None, tenant: Tenant = None,
    provider: Provider = None, source: Source = None, limit: Limit = 30,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Show what bounced or was deferred, by provider, and why: the reply's class, with one of them as an example."""
    verdicts = [one.strip() for one in verdict.split(",")]
    if not verdicts or any(one not in ("bounced", "deferred") for one in verdicts):
        raise CommandError(Exit.USAGE, f"--verdict: {verdict!r} is not bounced, deferred or bounced,deferred")
    settings = in_force(config, folder)
    read = _read(
        settings, day, since, until, _only(zone=zone, tenant=tenant, provider=provider, source=source), ("replies",)
    )
    rows = questions.replies(read.sources, verdicts, read.asked)
    people = setup.people(settings)
    if people is not None:
        rows = [row._replace(example=people.text(row.example)) for row in rows]
    if json:
        said = [
            {
                "provider": row.provider,
                "verdict": row.verdict,
                "class": row.kind,
                "attempts": row.n,
                "example": row.example,
            }
            for row in rows[:limit]
        ]
        return print_json(_span(read) | {"rows": said, "of": len(rows)})
    shown = [
        (row.provider or _NOBODY["provider"], row.verdict, row.kind or _NOBODY["class"], row.n, sentence(row.example))
        for row in rows[:limit]
    ]
    head = ("provider", "verdict", "class", "attempts ", "example")
    title = "Replies, by provider and class"
    return print_table(
        title, head, shown, _footer(read, len(rows), limit), ("attempts", "provider", "class", "example")
    )


@app.command("limits")
@tabled
def limits(
    day: Day = None, since: Since = None, until: Until = None, limit: Limit = 30,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Show for how long each limit held mail: the time during which mail waited at it, and how often it was reached."""
    read = _read(in_force(config, folder), day, since, until, {}, ("limits",))
    found = questions.sums(read.sources, "limits", ["limit"], read.asked)
    rows = sorted(
        ((str(name), ms / 1000, times) for (name,), (ms, times) in found.items()), key=lambda row: (-row[1], row[0])
    )
    if json:
        said = [{"limit": name, "held_s": held_s, "reached": times} for name, held_s, times in rows[:limit]]
        return print_json(_span(read) | {"rows": said, "of": len(rows)})
    biggest = max((int(row[1] * 1000) for row in rows), default=0)
    shown = [
        (name, round(held_s), when.length(held_s), times, *_bars(int(held_s * 1000), biggest))
        for name, held_s, times in rows[:limit]
    ]
    head = ("limit", "held s ", "about ", "reached ", *(["share"] if _drawn() else []))
    return print_table(
        "Limits that held mail", head, shown, _footer(read, len(rows), limit), ("limit", "held s", "about", "reached")
    )


@app.command("make")
def make(
    discard: Annotated[
        bool, typer.Option("--discard", help="First delete summaries that no longer hold, as after an erasure.")
    ] = False,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Make the summaries that archived segments lack, so that later questions take no longer; others make their own.

    Each is a small file beside its segment. A summary that is damaged or outdated is made again.
    """
    settings = in_force(config, folder)
    with Telling(json) as tell:
        if discard:
            from zonemta_py.summary.shelf import discard as removed

            count = removed([settings.folder / "archive"])
            tell(f"{count:,} summaries removed", removed=count)
        shelf = _shelf(settings)
        lacking = shelf.lacking(shelf.within(0, 1 << 62))
        unwritten = _make(shelf, lacking)
        made = len(lacking) - len(unwritten)
        tell(f"{made:,} summaries made, {len(shelf):,} segments", made=made, segments=len(shelf))
        if unwritten:
            where = next(iter(unwritten)).parent
            raise CommandError(
                Exit.CANT_CREATE, f"{where}: {len(unwritten):,} summaries cannot be written; run this as the MTA's user"
            )


def _shelf(settings: Config) -> SummaryShelf:
    """Raises CommandError."""
    archive = settings.folder / "archive"
    if not folders.beside(archive):
        raise CommandError(
            Exit.NO_INPUT, f"{archive}: there is no archive yet; name the MTA's folder with --folder or --config"
        )
    return SummaryShelf([archive])


def _make(shelf: SummaryShelf, lacking: Sequence[Any]) -> dict[Path, SegmentCounts]:
    if not lacking:
        return {}
    with bar("segments counted") as moved:
        return shelf.make(lacking, moved)


def _read(
    settings: Config,
    day: str | None,
    since: str | None,
    until: str | None,
    only: dict[str, list[str]],
    views: tuple[str, ...],
) -> SummaryRead:
    """Raises CommandError."""
    now_ms = time.time_ns() // 1_000_000
    since_ms, until_ms = _bounds(day, since, until, now_ms)
    _close(settings.folder, until_ms, now_ms)
    shelf = _shelf(settings)
    with bar("segments counted") as moved:
        sources = reading.read(shelf, since_ms, until_ms, moved, views)
    damages = sum(one.damages for one in sources)
    return SummaryRead(
        SummarySpan(since_ms // HOUR_MS, -(-until_ms // HOUR_MS), only), sources, shelf.first_ms(), damages
    )


def _close(folder: Path, until_ms: int, now_ms: int) -> None:
    """The running MTA closes its open segment where it may hold what is asked for: it does so itself once an hour."""
    from zonemta_py.wire.blocking_client import QueueGone, ask

    if until_ms < now_ms - 2 * HOUR_MS or not (folder / "socket").exists():
        return
    try:
        ask(folder, queue_questions.rotate)
    except (QueueGone, ValueError):
        print("zonemta: the MTA is not running, so what it wrote last is missing until it runs again", file=sys.stderr)


def _bounds(day: str | None, since: str | None, until: str | None, now_ms: int) -> tuple[int, int]:
    """UNIX ms. Raises CommandError."""
    if day is not None:
        if since or until:
            raise CommandError(Exit.USAGE, "--day is a whole day, and --since and --until are other spans; leave one")
        start = int(datetime.combine(_date(day), datetime.min.time(), UTC).timestamp()) * 1000
        return start, start + _DAY_H * HOUR_MS
    start = when.past(since or "1d", "--since", now_ms)
    end = when.past(until, "--until", now_ms) if until else now_ms
    if end <= start:
        raise CommandError(Exit.USAGE, f"--until {moment(end)} is not after --since {moment(start)}")
    return start, end


def _date(text: str) -> date:
    today = datetime.now(UTC).date()
    named = {"today": today, "yesterday": today - timedelta(1)}
    try:
        return named.get(text.strip().lower()) or date.fromisoformat(text.strip())
    except ValueError:
        raise CommandError(
            Exit.USAGE, f"--day: {text!a} is not a day; write it like yesterday, today or 2026-12-01"
        ) from None


def _only(**values: str | None) -> dict[str, list[str]]:
    return {
        name: ["" if value in ("", _NOBODY.get(name)) else value] for name, value in values.items() if value is not None
    }


_COLUMNS = {
    "messages": "messages accepted", "accepted": "accepted", "bytes": "bytes", "attempts": "attempts",
    "delivered": "delivered", "deferred": "attempts deferred", "bounced": "bounced", "held": "held",
    "blocked": "attempts blocked", "secure": "encrypted",
}  # fmt: skip
"""Numbers by their names in tables (docs/METRICS.md); blocked ones are among the deferred and bounced."""


def _for_json(row: dict[str, int]) -> dict[str, str | int]:
    return {_COLUMNS[name].replace(" ", "_"): n for name, n in row.items()}


def _size(row: dict[str, int]) -> int:
    return row["attempts"] or row.get("accepted", 0)


def _plain(keys: Sequence[str], group: Sequence[str | int]) -> list[str | int]:
    return [int(one) * HOUR_MS if key == "hour" else one for key, one in zip(keys, group, strict=True)]


def _names(keys: Sequence[str], group: Sequence[str | int]) -> list[str]:
    return [
        moment(int(one) * HOUR_MS) if key == "hour" else str(one) or _NOBODY.get(key, _NOBODY_ELSE)
        for key, one in zip(keys, group, strict=True)
    ]


def _hidden(
    found: dict[tuple[str | int, ...], dict[str, int]], at: int, people: Persons
) -> dict[tuple[str | int, ...], dict[str, int]]:
    """Users as the log writes them; those that are alike then are one."""
    rows: dict[tuple[str | int, ...], dict[str, int]] = {}
    for group, numbers in found.items():
        fields: dict[str, Any] = {"user": group[at]}
        people.fields(fields)
        row = rows.setdefault((*group[:at], fields["user"], *group[at + 1 :]), dict.fromkeys(numbers, 0))
        for name, n in numbers.items():
            row[name] += n
    return rows


def _drawn() -> bool:
    """Whether bars are drawn: for people, at a terminal."""
    return sys.stdout.isatty() and not as_records()


def _bars(number: int, biggest: int) -> list[str]:
    if not _drawn():
        return []
    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    length = round(_BAR * number / biggest) if biggest else 0
    return [Brief.of(("\u2588" if utf else "#") * length, ("\u2588" if utf else "#") * (length // 2))]


def _span(read: SummaryRead) -> dict[str, Any]:
    return {
        "since_ms": read.asked.since * HOUR_MS, "until_ms": read.asked.until * HOUR_MS,
        "archive_since_ms": read.begins_ms, "damages": read.damages,
    }  # fmt: skip


def _footer(read: SummaryRead, rows: int, limit: int) -> str:
    said = [f"from {moment(read.asked.since * HOUR_MS)} to {moment(read.asked.until * HOUR_MS)}"]
    if read.begins_ms >= (read.asked.since + 1) * HOUR_MS:
        said.append(f"the archive begins {moment(read.begins_ms)}")
    if read.damages:
        said.append(f"{read.damages:,} places in the archive cannot be read: zonemta fsck")
    if rows > limit:
        said.append(f"{rows - limit:,} more rows: --limit")
    return "; ".join(said)
