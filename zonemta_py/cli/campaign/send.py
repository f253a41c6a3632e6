"""`zonemta campaign send`: from a list to the queue, exactly once for each recipient, however often it is started.

The list becomes a plan on disk first (`pipeline.prepare.plan`), then the plan goes to the nodes (`pipeline.send`). If
it is interrupted, the same command continues; so does `--resume`, which needs only the plan.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from zonemta_py.cli.campaign import settings as campaign_settings
from zonemta_py.cli.campaign.nodes import Ca, KeyFile, Nodes, Patience, target
from zonemta_py.cli.campaign.work import Work, describe, look, read_columns, readable, rendered, show, sound
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import ConfigFile, Folder
from zonemta_py.pipeline.prepare.source.dialect import ADDRESS_COLUMNS

if TYPE_CHECKING:
    from zonemta_py.pipeline.nodes.nodes import Announcement
    from zonemta_py.pipeline.prepare.plan import Plan
    from zonemta_py.pipeline.prepare.settings import Settings

_LONG_BYTES = 100_000_000
"""Size of a list for which the JVM's slower, better compiler pays."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

Many = list[str] | None


def send(
    list_: Annotated[str, typer.Argument(metavar="LIST", help="CSV, JSON lines, Parquet, a folder or a table.")] = "",
    template: Annotated[
        Path | None, typer.Option("--template", "-t", help="A folder with template.toml, or a file.")
    ] = None,
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the campaign; it cannot be changed.")] = "",
    sender: Annotated[str, typer.Option(metavar="ADDRESS", help="Return path, which bounces go to.")] = "",
    map_: Annotated[Many, typer.Option("--map", metavar="NAME=COLUMN", help="A field's column; repeatable.")] = None,
    where: Annotated[str, typer.Option(metavar="SQL", help="Which rows: a condition on the columns.")] = "",
    zone: Annotated[Many, typer.Option(metavar="ZONE[=WEIGHT]", help="Sending zone; repeatable.")] = None,
    source: Annotated[Many, typer.Option(metavar="[ZONE/]IP[=WEIGHT]", help="Local address; repeatable.")] = None,
    cap: Annotated[Many, typer.Option(metavar="IP/PROVIDER=N,N…", help="Warm-up: recipients per day.")] = None,
    days: Annotated[
        int, typer.Option(min=1, max=60, help="Spread what exceeds the caps over so many days; 1: leave it out.")
    ] = 1,
    roles: Annotated[Literal["keep", "drop"], typer.Option(help="Role accounts: info@, sales@ and the like.")] = "keep",
    reserved: Annotated[Literal["keep", "drop"], typer.Option(help="Reserved domains, such as example.com.")] = "drop",
    suppressions: Annotated[
        str, typer.Option(metavar="FILE", help="Suppression list, CSV or Parquet; default: ask the nodes.")
    ] = "",
    engagement: Annotated[str, typer.Option(metavar="FILE", help="Opens and clicks: address, kind, at.")] = "",
    recent: Annotated[
        int, typer.Option(metavar="DAYS", min=0, help="Send first to those who opened in the last DAYS.")
    ] = 0,
    only_recent: Annotated[bool, typer.Option("--only-recent", help="Send only to those.")] = False,
    canary: Annotated[str, typer.Option(metavar="SHARE", help="Share to send first, and to evaluate.")] = "0",
    canary_patience: Annotated[float, typer.Option(metavar="S", help="How long to wait for its results.")] = 1800,
    bounds: Annotated[
        str, typer.Option(help="Pause automatically above these: deferred=30%,blocked=2%, or none.")
    ] = "",
    lake: Annotated[Path | None, typer.Option(help="Derive bounds from what is usual in this lake.")] = None,
    tenant: Annotated[str, typer.Option(help="Tenant it belongs to.")] = "",
    priority: Annotated[int, typer.Option(min=-9, max=9, help="Priority (MT-PRIORITY).")] = 0,
    life: Annotated[float, typer.Option(metavar="H", min=1, help="Hours after which waiting recipients expire.")] = 168,
    chunk: Annotated[int, typer.Option(min=1, max=500, help="Recipients per request.")] = 500,
    multiline: Annotated[bool, typer.Option("--multiline", help="The CSV has line breaks in its fields.")] = False,
    plans: Annotated[Path, typer.Option(metavar="DIR", help="Where plans are kept.")] = Path(),
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Write the plan; send nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the plan of --name.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    nodes: Nodes = "",
    key_file: KeyFile = None,
    ca: Ca = None,
    patience: Patience = 600,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master; default: this machine.")] = "local[*]",
    memory: Annotated[float, typer.Option(metavar="GB", min=0.5, help="Memory for Spark on this machine.")] = 2,
    config: ConfigFile = None,
    folder: Folder = None,
) -> None:
    """Send a template to everyone on a list, exactly once each, however often this is started or killed."""
    from zonemta_py.pipeline.nodes.nodes import Announcement, store

    if not _NAME.fullmatch(name):
        raise CommandError(
            Exit.USAGE, f"--name {name!r}: name it with up to 63 letters, digits, dots, underscores and hyphens"
        )
    plan_folder = plans / f"{name}.plan"
    if list_ and not resume:
        look(list_, multiline, master)
    to = None if plan_only else target(nodes, key_file, config, folder, patience, ca)
    if resume:
        work = Work(to, master, memory, None)
        _send(work, work.found(plan_folder), _announcement(plan_folder), canary_patience)
        return
    if not list_ or template is None:
        raise CommandError(
            Exit.USAGE, "a list and a template are needed; write `zonemta campaign send LIST --template T`"
        )
    work = Work(to, master, memory, config, long=_bytes(list_) > _LONG_BYTES)
    with readable(list_, plan_folder) as (copy, name_of):
        names = read_columns(work, copy, multiline)
        fields = campaign_settings.with_recipient(campaign_settings.mapping(map_ or [], names), list_, names)
        email = next(fields[one] for one in ADDRESS_COLUMNS if one in fields)
        print(describe(list_, names, email), file=sys.stderr)
        packed, used, default = sound(template, fields)
        settings = _settings(
            campaign=name, email=email, fields={one: fields[one] for one in sorted(used & fields.keys())},
            lanes=campaign_settings.lanes(zone or [], source or []), caps=campaign_settings.caps(cap or []), days=days,
            drop_roles=roles == "drop", keep_reserved=reserved == "keep", where=where, recent_days=recent,
            as_of=f"{datetime.now(UTC):%Y-%m-%d}", engaged_only=only_recent,
            canary=campaign_settings.share("--canary", canary), chunk=chunk, multiline=multiline,
            providers=work.providers(),
        )  # fmt: skip
        announced: dict[str, Any] = {
            "name": name, "sender": sender or default, "template": packed, "tenant": tenant, "priority": priority,
            "zone": settings.lanes[0].zone if len(settings.lanes) == 1 else "", "life_h": life,
            "bounds": work.bounds(campaign_settings.bounds(bounds), lake),
        }  # fmt: skip
        if not announced["sender"]:
            raise CommandError(
                Exit.USAGE, "the template's From is made from fields; name the sender with --sender ADDRESS"
            )
        plan = work.plan(settings, copy, plan_folder, suppressions, engagement, name_of)
    announced["bounds"] = campaign_settings.for_canary(announced["bounds"], plan.report["canary"])
    announcement = Announcement(**announced, planned=plan.report["kept"])
    store(announcement, plan_folder)
    show(plan)
    _warn_of_canary(announcement.bounds, plan.report["canary"])
    rendered(work, plan, packed)
    if plan_only:
        print(f"{plan_folder}: planned; `zonemta campaign send --resume --name {name}` sends it")
        return
    if not yes and not typer.confirm(f"Send {name} to {plan.report['kept']:,} recipients?", err=True):
        raise CommandError(Exit.OK)
    _send(work, plan, announcement, canary_patience)


def _send(work: Work, plan: Plan, announcement: Announcement, canary_patience_s: float) -> None:
    first = plan.report["as_of"]
    day = (datetime.now(UTC).date() - date.fromisoformat(first)).days if first else 0
    outcome = work.send(plan, announcement, day, canary_patience_s)
    later = sum(way["n"] for way in plan.report["ways"] if way["day"] > day)
    print(
        f"{announcement.name}: {outcome.accepted:,} recipients are in the queue, {outcome.suppressed:,} were "
        f"suppressed there; {outcome.chunks:,} requests, {outcome.repeated:,} of them repeated"
    )
    if later:
        again = f"zonemta campaign send --resume --name {announcement.name}"
        print(f"{later:,} recipients are planned for later days; run `{again}` daily")


def _settings(**values: Any) -> Settings:
    from zonemta_py.pipeline.prepare.settings import PlanRefused, Settings

    try:
        return Settings(**values)
    except PlanRefused as refused:
        raise CommandError(Exit.USAGE, str(refused)) from None


def _warn_of_canary(bounds: dict[str, float], canary: int) -> None:
    if bounds and 0 < canary < bounds["least"]:
        text = (
            f"the canary has only {canary:,} recipients: bounds are not checked before {bounds['least']:.0f} attempts"
        )
        print(text, file=sys.stderr)


def _bytes(list_: str) -> int:
    """Of the list, where it is a file or a folder here."""
    path = Path(list_)
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _announcement(folder: Path) -> Announcement:
    from zonemta_py.pipeline.nodes.nodes import stored

    try:
        return stored(folder)
    except FileNotFoundError:
        sentence = f"{folder}: there is no plan to continue; send the list first, or name the folder with --plans"
        raise CommandError(Exit.NO_INPUT, sentence) from None
