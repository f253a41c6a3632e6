"""The options of `zonemta campaign send`, one type each; what their texts mean is in `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Many = list[str] | None

# -- what is sent, and to whom

List = Annotated[str, typer.Argument(metavar="LIST", help="CSV, JSON lines, Parquet, a folder or a table.")]
Template = Annotated[Path | None, typer.Option("--template", "-t", help="A folder with template.toml, or a file.")]
Name = Annotated[str, typer.Option("--name", "-n", help="Name of the campaign; it cannot be changed.")]
Sender = Annotated[str, typer.Option(metavar="ADDRESS", help="Return path, which bounces go to.")]
Map = Annotated[Many, typer.Option("--map", metavar="NAME=COLUMN", help="A field's column; repeatable.")]
Where = Annotated[str, typer.Option(metavar="SQL", help="Which rows: a condition on the columns.")]
Multiline = Annotated[bool, typer.Option("--multiline", help="The CSV has line breaks in its fields.")]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="What CSV is written in that is not UTF-8: cp1252 is Excel's plain CSV.")
]

# -- by which ways, and how much on a day

Zone = Annotated[Many, typer.Option(metavar="ZONE[=WEIGHT]", help="Sending zone; repeatable.")]
Source = Annotated[Many, typer.Option(metavar="[ZONE/]IP[=WEIGHT]", help="Local address; repeatable.")]
Cap = Annotated[Many, typer.Option(metavar="IP/PROVIDER=N,N…", help="Warm-up: recipients per day.")]
Days = Annotated[
    int, typer.Option(min=1, max=60, help="Spread what exceeds the caps over so many days; 1: leave it out.")
]

# -- who is left out, and who is first

KeepOrDrop = Literal["keep", "drop"]
Roles = Annotated[KeepOrDrop, typer.Option(help="Role accounts: info@, sales@ and the like.")]
Reserved = Annotated[KeepOrDrop, typer.Option(help="Reserved domains, such as example.com.")]
Suppressions = Annotated[
    str, typer.Option(metavar="FILE", help="Suppression list, CSV or Parquet; default: ask the nodes.")
]
Except = Annotated[
    Many, typer.Option(metavar="NAME", help="Leave out whom this campaign of this machine has reached; repeatable.")
]
Engagement = Annotated[str, typer.Option(metavar="FILE", help="Opens and clicks: address, kind, at.")]
Recent = Annotated[int, typer.Option(metavar="DAYS", min=0, help="Send first to those who opened in the last DAYS.")]
OnlyRecent = Annotated[bool, typer.Option("--only-recent", help="Send only to those.")]

# -- when to stop

Canary = Annotated[str, typer.Option(metavar="SHARE", help="Share to send first, and to evaluate.")]
CanaryPatience = Annotated[float, typer.Option(metavar="S", help="How long to wait for its results.")]
Bounds = Annotated[str, typer.Option(help="Pause automatically above these: deferred=30%,blocked=2%, or none.")]
Lake = Annotated[Path | None, typer.Option(help="Take bounds, opens and clicks from this lake.")]

# -- when it goes

At = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="From when on, by their clocks: 09:00, 2026-11-24, '2026-11-24 09:00', best[,09:00]."
    ),
]
Window = Annotated[
    str, typer.Option(metavar="HOURS", help="Only then: 09:00-17:00, 'mon-fri 09:00-17:00', or a [[windows]] name.")
]
Until = Annotated[str, typer.Option(metavar="DATE", help="What has not gone by then is removed; nobody is told.")]
TimeZone = Annotated[str, typer.Option(metavar="ZONE", help="Time zone of those whose own is not known.")]
TimeZoneColumn = Annotated[
    str, typer.Option(metavar="COLUMN", help="Their time zones, countries or locales; default: time_zone, if there.")
]

# -- how the nodes treat it

Tenant = Annotated[str, typer.Option(help="Tenant it belongs to.")]
Priority = Annotated[int, typer.Option(min=-9, max=9, help="Priority (MT-PRIORITY).")]
Life = Annotated[float, typer.Option(metavar="H", min=1, help="Hours of trying after which they expire.")]
InDoubt = Annotated[
    Literal["retry", "hold", "zone"],
    typer.Option(help="After a crash, those who may have got it: send again, hold, or as the zone says."),
]
Notify = Annotated[
    Literal["remote", "never", "failure"],
    typer.Option(help="Who notifies the sender of bounces: the servers that report later, nobody, this one too."),
]
Variant = Annotated[Many, typer.Option(metavar="NAME=TEMPLATE", help="Try another template too; repeatable.")]
Share = Annotated[str, typer.Option(metavar="SHARE", help="Of the list, for all variants together; the rest waits.")]
Metric = Annotated[
    Literal["clicks", "opens", "unsubscribes", "complaints", "bounced"], typer.Option(help="What decides between them.")
]
DecideAfter = Annotated[
    str, typer.Option(metavar="TIME", help="When: 4h, 90m, 2d; never: `zonemta campaign winner` does.")
]
Seeds = Annotated[
    str, typer.Option(metavar="ADDRESSES", help="Addresses of yours that get it first, between commas, or a file.")
]
Chunk = Annotated[int, typer.Option(min=1, max=500, help="Recipients per request.")]

# -- how it is done

Plans = Annotated[Path, typer.Option(metavar="DIR", help="Where plans are kept.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Write the plan; send nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the plan of --name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Master = Annotated[str, typer.Option(metavar="URL", help="Spark master; default: this machine.")]
Memory = Annotated[float, typer.Option(metavar="GB", min=0.5, help="Memory for Spark on this machine.")]
