"""The options of `zonemta campaign send`, one type each; what their texts mean is in `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Many = list[str] | None

# -- what is sent, and to whom

List = Annotated[str, typer.Argument(metavar="LIST", help="CSV, JSON lines, Parquet, a folder or a table.")]
Template = Annotated[Path | None, typer.Option("--template", "-t", help="A folder with template.toml, or a file.")]
Name = Annotated[str, typer.Option("--name", "-n", help="Name of the campaign; cannot be changed later.")]
Sender = Annotated[str, typer.Option(metavar="ADDRESS", help="Return path, which receives bounces.")]
Map = Annotated[Many, typer.Option("--map", metavar="NAME=COLUMN", help="A field's column; repeatable.")]
Where = Annotated[str, typer.Option(metavar="SQL", help="Which rows to use: a condition on the columns.")]
Multiline = Annotated[bool, typer.Option("--multiline", help="The CSV has line breaks within fields.")]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of a CSV file that is not UTF-8; Excel's plain CSV is cp1252.")
]

# -- by which ways, and how much on a day

Zone = Annotated[Many, typer.Option(metavar="ZONE[=WEIGHT]", help="Sending zone; repeatable.")]
Source = Annotated[Many, typer.Option(metavar="[ZONE/]IP[=WEIGHT]", help="Local address; repeatable.")]
Cap = Annotated[Many, typer.Option(metavar="IP/PROVIDER=N,N…", help="Warm-up: recipients per day.")]
Days = Annotated[int, typer.Option(min=1, max=60, help="Spread what exceeds the caps over this many days; 1: omit it.")]

# -- who is left out, and who is first

KeepOrDrop = Literal["keep", "drop"]
Roles = Annotated[KeepOrDrop, typer.Option(help="Role accounts: info@, sales@ and the like.")]
Reserved = Annotated[KeepOrDrop, typer.Option(help="Reserved domains, such as example.com.")]
Suppressions = Annotated[
    str, typer.Option(metavar="FILE", help="Suppression list, CSV or Parquet; default: ask the nodes.")
]
Except = Annotated[
    Many,
    typer.Option(metavar="NAME", help="Exclude recipients reached by this campaign of this machine; repeatable."),
]
NotOpened = Annotated[
    Many,
    typer.Option(metavar="NAME", help="Only to those who got this campaign and have not opened it; repeatable."),
]
NotClicked = Annotated[
    Many, typer.Option(metavar="NAME", help="The same for those who have clicked none of its links.")
]
Engagement = Annotated[str, typer.Option(metavar="FILE", help="Opens and clicks: address, kind, at.")]
Recent = Annotated[int, typer.Option(metavar="DAYS", min=0, help="Send first to those who opened in the last DAYS.")]
OnlyRecent = Annotated[bool, typer.Option("--only-recent", help="Send only to recent openers.")]

# -- when to stop

Canary = Annotated[str, typer.Option(metavar="SHARE", help="Share to send first and evaluate.")]
CanaryPatience = Annotated[float, typer.Option(metavar="S", help="How long to wait for its results.")]
Bounds = Annotated[
    str, typer.Option(help="Pause automatically above these thresholds: deferred=30%,blocked=2%, or none.")
]
Lake = Annotated[Path | None, typer.Option(help="Take bounds, opens and clicks from this lake.")]

# -- when it goes

At = Annotated[
    str,
    typer.Option(metavar="TIME", help="Earliest local time: 09:00, 2026-11-24, '2026-11-24 09:00', best[,09:00]."),
]
Window = Annotated[
    str,
    typer.Option(
        metavar="HOURS", help="Only during these hours: 'mon-fri 09:00-17:00', 09:00-17:00, or a [[windows]] name."
    ),
]
Until = Annotated[str, typer.Option(metavar="DATE", help="Remove what has not been sent by then, without notices.")]
TimeZone = Annotated[str, typer.Option(metavar="ZONE", help="Time zone of recipients whose own is unknown.")]
TimeZoneColumn = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="Column with time zones, countries or locales; default: time_zone, if present."
    ),
]

# -- how the nodes treat it

Tenant = Annotated[str, typer.Option(help="Tenant it belongs to.")]
Priority = Annotated[int, typer.Option(min=-9, max=9, help="Priority (MT-PRIORITY).")]
Life = Annotated[float, typer.Option(metavar="H", min=1, help="Lifetime in hours, after which recipients expire.")]
InDoubt = Annotated[
    Literal["retry", "hold", "zone"],
    typer.Option(
        help="After a crash, recipients that may already have it: send again, hold, or as the zone is configured."
    ),
]
Notify = Annotated[
    Literal["remote", "never", "failure"],
    typer.Option(help="Which bounces are sent: only those of servers that report later, none, or also this MTA's."),
]
Variant = Annotated[Many, typer.Option(metavar="NAME=TEMPLATE", help="Also test this template; repeatable.")]
Share = Annotated[
    str, typer.Option(metavar="SHARE", help="Share of the list that gets the variants, all together; the rest waits.")
]
Metric = Annotated[
    Literal["clicks", "opens", "unsubscribes", "complaints", "bounced"],
    typer.Option(help="Metric that decides between them."),
]
DecideAfter = Annotated[
    str, typer.Option(metavar="TIME", help="Decide after 4h, 90m, 2d; never: decide with `zonemta campaign winner`.")
]
Seeds = Annotated[
    str, typer.Option(metavar="ADDRESSES", help="Your own addresses that get it first: ADDRESS,… or a file.")
]
Chunk = Annotated[int, typer.Option(min=1, max=500, help="Recipients per request.")]

# -- how it is done

Plans = Annotated[Path, typer.Option(metavar="DIR", help="Folder for plans.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Write the plan; send nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the plan of --name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Master = Annotated[str, typer.Option(metavar="URL", help="Spark master; default: this machine.")]
Memory = Annotated[float, typer.Option(metavar="GB", min=0.5, help="Memory for Spark on this machine.")]
