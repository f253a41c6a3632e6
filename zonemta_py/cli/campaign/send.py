"""`zonemta campaign send`: from a list to the queue, exactly once for each recipient, however often it is started.

The list becomes a plan on disk first (`pipeline.prepare.plan`), then the plan goes to the nodes (`pipeline.send`). If
it is interrupted, the same command continues; so does `--resume`, which needs only the plan.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.cli.campaign import hours, planning, variants
from zonemta_py.cli.campaign import options as option
from zonemta_py.cli.campaign import settings as campaign_settings
from zonemta_py.cli.campaign.nodes import Ca, KeyFile, Nodes, Patience, target
from zonemta_py.cli.campaign.work import Work, describe, look, read_columns, readable, rendered, sentences, show, sound
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import Telling, confirm, counted
from zonemta_py.pipeline.prepare.source.dialect import ADDRESS_COLUMNS

if TYPE_CHECKING:
    from zonemta_py.pipeline.nodes.client import NodeAccess
    from zonemta_py.pipeline.nodes.nodes import Announcement
    from zonemta_py.pipeline.prepare.plan import Plan
    from zonemta_py.pipeline.prepare.settings import Settings

_LONG_BYTES = 100_000_000
"""Size of a list for which the JVM's slower, better compiler pays."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def send(
    list_: option.List = "", template: option.Template = None, name: option.Name = "", sender: option.Sender = "",
    map_: option.Map = None, where: option.Where = "",
    zone: option.Zone = None, source: option.Source = None, cap: option.Cap = None, days: option.Days = 1,
    roles: option.Roles = "keep", reserved: option.Reserved = "drop", suppressions: option.Suppressions = "",
    except_campaign: option.Except = None,
    not_opened: option.NotOpened = None, not_clicked: option.NotClicked = None,
    engagement: option.Engagement = "", recent: option.Recent = 0, only_recent: option.OnlyRecent = False,
    canary: option.Canary = "0", canary_patience: option.CanaryPatience = 1800,
    at: option.At = "", window: option.Window = "", until: option.Until = "", time_zone: option.TimeZone = "",
    time_zone_column: option.TimeZoneColumn = "",
    variant: option.Variant = None, share: option.Share = "20%", metric: option.Metric = "clicks",
    decide_after: option.DecideAfter = "4h", seeds: option.Seeds = "",
    bounds: option.Bounds = "", lake: option.Lake = None,
    tenant: option.Tenant = "", priority: option.Priority = 0, life: option.Life = 168,
    in_doubt: option.InDoubt = "zone", notify: option.Notify = "remote", chunk: option.Chunk = 500,
    multiline: option.Multiline = False, encoding: option.Encoding = "",
    plans: option.Plans = Path(), plan_only: option.PlanOnly = False,
    resume: option.Resume = False, yes: option.Yes = False,
    nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None, patience: Patience = 600,
    master: option.Master = "local[*]", memory: option.Memory = 2, config: ConfigFile = None, folder: Folder = None,
    json: AsJson = False,
) -> None:  # fmt: skip
    """Send a template to everyone on a list, exactly once each, even if the command is interrupted and run again."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            Exit.USAGE, f"--name {name!r}: name it with up to 63 letters, digits, dots, underscores and hyphens"
        )
    plan_folder = plans / f"{name}.plan"
    times = hours.given(at, window, until, time_zone)
    if "at_column" in times and not (engagement or lake or resume):
        raise CommandError(
            Exit.USAGE, "--at best: no recipient's hour is known; name opens with --engagement, or a --lake"
        )
    if only_recent and not recent:
        raise CommandError(Exit.USAGE, "--only-recent: since when? say within how many days by --recent DAYS")
    if recent and not (engagement or lake or resume):
        raise CommandError(Exit.USAGE, "--recent: no opens are known; name them with --engagement, or a --lake")
    if at and campaign_settings.share("--canary", canary):
        raise CommandError(Exit.USAGE, "a canary has no result while --at lets it wait; leave out one of them")
    tried = variants.asked(variant or [], share, metric, decide_after, len(nodes.split(",")))
    if tried.names and campaign_settings.share("--canary", canary):
        raise CommandError(Exit.USAGE, "--variant has the part of the list that goes first; leave out --canary")
    if list_ and not resume:
        look(list_, multiline, master, encoding)
    if not_opened and not_clicked:
        sentence = "--not-opened and --not-clicked name two groups of people; choose one, or send twice"
        raise CommandError(Exit.USAGE, sentence)
    named = {"--except-campaign": except_campaign, "--not-opened": not_opened, "--not-clicked": not_clicked}
    asked = next((word for word, names in named.items() if names), "")
    if asked and nodes:
        what = f"{asked} reads the journal of this machine's MTA, and other nodes are named"
        raise CommandError(Exit.USAGE, f"{what}; run it there without --nodes, or name the people with --suppressions")
    to = None if plan_only else target(nodes, key_file, config, folder, patience, ca)
    if resume:
        work = Work(to, master, memory, None)
        _send(work, work.found(plan_folder), _announcement(plan_folder), canary_patience, json)
        return
    if not list_ or template is None:
        raise CommandError(
            Exit.USAGE, "a list and a template are needed; write `zonemta campaign send LIST --template T`"
        )
    _sound_options(
        maps=map_ or [], templates=[template, *tried.templates], sender=sender, times=times,
        column=time_zone_column, zones=zone or [], sources=source or [], caps=cap or [], bounds=bounds, seeds=seeds,
        campaign=name, canary=tried.share or campaign_settings.share("--canary", canary), variants=tried.names,
        chunk=chunk, days=days,
    )  # fmt: skip
    work = Work(to, master, memory, config, long=_bytes(list_) > _LONG_BYTES)
    with readable(list_, plan_folder, encoding) as (copy, name_of):
        mail = _matched(work, list_, copy, multiline, map_ or [], [template, *tried.templates], encoding)
        when = hours.asked(times, time_zone_column, mail.columns)
        zones = _time_zones(work, copy, when, multiline)
        _say_who_left(work, copy, mail.columns, where, multiline)
        settings = _settings(
            campaign=name, email=mail.email, fields=when.fields(mail.fields), where=where, multiline=multiline,
            **_ways(work, zone or [], source or [], cap or [], days),
            drop_roles=roles == "drop", keep_reserved=reserved == "keep", recent_days=recent, engaged_only=only_recent,
            as_of=f"{datetime.now(UTC):%Y-%m-%d}", chunk=chunk, variants=tried.names,
            canary=tried.share or campaign_settings.share("--canary", canary),
            providers=work.providers(), best=when.best_hour(zones), without=tuple(except_campaign or ()),
            follows=tuple(not_opened or not_clicked or ()),
            unless="opened" if not_opened else "clicked" if not_clicked else "",
        )  # fmt: skip
        announcement = _announced(
            name=name, sender=sender or mail.sender, template=mail.templates[0], tenant=tenant, priority=priority,
            zone=settings.lanes[0].zone if len(settings.lanes) == 1 else "", life_h=life,
            bounds=work.bounds(campaign_settings.bounds(bounds), lake), hours=when.hours,
            variants=dict(zip(tried.campaigns(name), mail.templates, strict=False)),
            choice=tried.choice | {"of": tried.campaigns(name)} if tried.names else {},
            seeds=campaign_settings.seeds(seeds), notify=notify, in_doubt=in_doubt.removeprefix("zone"),
        )  # fmt: skip
        plan = work.plan(
            settings,
            copy,
            plan_folder,
            suppressions,
            engagement,
            lake,
            name_of,
            tenant=tenant,
            list_ids=mail.list_ids,
            mta=configuration(config, folder).folder if asked else None,
        )
    announcement = _stored(announcement, plan, to)
    show(plan, table=not json)
    _warn_of_canary(announcement.bounds, plan.report["canary"])
    for one in mail.templates:
        rendered(work, plan, one)
    if plan_only:
        with Telling(json) as tell:
            words = f"{plan_folder}: planned; `zonemta campaign send --resume --name {name}` sends it"
            tell(words, campaign=name, plan=plan_folder, planned=plan.report["kept"])
        return
    if not yes:
        people = counted(plan.report["kept"], "recipient")
        confirm(f"{name} goes to {people}", "Send it?", f", or later `zonemta campaign send --resume --name {name}`")
    _send(work, plan, announcement, canary_patience, json)


def _sound_options(
    maps: list[str], templates: list[Path], sender: str, times: dict[str, str], column: str,
    zones: list[str], sources: list[str], caps: list[str], bounds: str, seeds: str, **plan: Any,
) -> None:  # fmt: skip
    """What can be said against the options without Spark and without the list, before that is started. Raises
    CommandError."""
    campaign_settings.mapping(maps, ())
    campaign_settings.caps(caps)
    campaign_settings.bounds(bounds)
    campaign_settings.seeds(seeds)
    hours.meant(times, column)
    _settings(lanes=campaign_settings.lanes(zones, sources), **plan)
    found = [sound(one, None) for one in templates]
    _checked_sender(sender or found[0][2])


class _Mail(NamedTuple):
    """email: the list's column with the address. fields: those the templates use. templates: prepared. sender: the
    first's From, "" where that is made from fields. columns: of the list. list_ids: of each template, see
    `merge.said.list_id`."""

    email: str
    fields: dict[str, str]
    templates: list[bytes]
    sender: str
    columns: list[str]
    list_ids: list[str]


def _matched(
    work: Work, list_: str, copy: str, multiline: bool, maps: list[str], templates: list[Path], encoding: str
) -> _Mail:  # fmt: skip
    """What of the list the templates need; says how the list is understood. copy: the list as Spark can read it."""
    names = read_columns(work, copy, multiline)
    fields = campaign_settings.with_recipient(campaign_settings.mapping(maps, names), list_, names)
    email = next(fields[one] for one in ADDRESS_COLUMNS if one in fields)
    print(describe(list_, names, email, encoding), file=sys.stderr)
    found = [sound(template, fields) for template in templates]
    used = set[str]().union(*(names_of for _, names_of, *_ in found))
    wanted = {one: fields[one] for one in sorted(used & fields.keys())}
    list_ids = [one for *_, one in found]
    return _Mail(email, wanted, [packed for packed, *_ in found], found[0][2], names, list_ids)


def _ways(work: Work, zones: list[str], sources: list[str], caps: list[str], days: int) -> dict[str, Any]:
    """Ways out, caps and days, as settings; says what of it will not go today. Raises CommandError."""
    chosen, given = campaign_settings.lanes(zones, sources), campaign_settings.caps(caps)
    ways = planning.lanes(work.terms, chosen, days)
    for sentence in planning.warned(work.terms, chosen, days):
        print(sentence, file=sys.stderr)
    return {"lanes": ways, "caps": given, "room": planning.caps(work.terms, ways, given), "days": days}


def _time_zones(work: Work, copy: str, when: hours.SendingTimes, multiline: bool) -> dict[str, int]:
    """Which time zones the list has, which it says: texts, and how many rows have each. copy: the list as Spark can
    read it."""
    if not when.column:
        return {}
    counts = work.counts(copy, when.column, multiline)
    print(*hours.told(counts, when.column, when.hours.get("time_zone", "")), sep="\n", file=sys.stderr)
    return counts


def _say_who_left(work: Work, copy: str, columns: list[str], where: str, multiline: bool) -> None:
    """Of a list that says who wants no mail, unless the condition asks for that column."""
    column = next((name for name in columns if campaign_settings.status_column(name)), "")
    if column and column.lower() not in where.lower():
        sentence = campaign_settings.left(work.counts(copy, column, multiline), column)
        print(sentence, end="\n" if sentence else "", file=sys.stderr)


def _announced(**values: Any) -> Announcement:
    from zonemta_py.pipeline.nodes.nodes import Announcement

    _checked_sender(values["sender"])
    return Announcement(**values)


def _checked_sender(sender: str) -> None:
    if not sender:
        raise CommandError(Exit.USAGE, "the template's From is made from fields; name the sender with --sender ADDRESS")


def _stored(announcement: Announcement, plan: Plan, to: NodeAccess | None) -> Announcement:
    """With what only the plan knows; kept beside it. Raises CommandError."""
    from zonemta_py.pipeline.nodes.nodes import keep

    bounds = campaign_settings.for_canary(announcement.bounds, plan.report["canary"])
    of_variants = plan.report["canary"] if announcement.variants else 0  # these are campaigns of their own
    announcement = replace(announcement, bounds=bounds, planned=plan.report["kept"] - of_variants)
    with sentences():
        keep(announcement, plan.folder, to)
    return announcement


def _send(work: Work, plan: Plan, announcement: Announcement, canary_patience_s: float, json: bool) -> None:
    first = plan.report["as_of"]
    day = (datetime.now(UTC).date() - date.fromisoformat(first)).days if first else 0
    outcome = work.send(plan, announcement, day, canary_patience_s)
    later = sum(way["n"] for way in plan.report["ways"] if way["day"] > day)
    words = (
        f"{announcement.name}: {outcome.accepted:,} recipients are in the queue, {outcome.suppressed:,} were "
        f"suppressed there; {outcome.chunks:,} requests, {outcome.repeated:,} of them repeated"
    )
    with Telling(json) as tell:
        counts = {"accepted": outcome.accepted, "suppressed": outcome.suppressed, "requests": outcome.chunks}
        tell(words, campaign=announcement.name, plan=plan.folder, later=later, repeated=outcome.repeated, **counts)
        if later:
            again = f"zonemta campaign send --resume --name {announcement.name}"
            tell(f"{later:,} recipients are planned for later days; run `{again}` daily")


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
