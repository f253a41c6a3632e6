"""`zonemta queue delete|hold|release|flush|move|set|requeue|purge`: orders about many recipients, each a task.

Promise: nothing is done that was not asked for: a filter must be given, or --all; before many are changed the exact
count is shown and a question asked, which --yes answers. Once ordered, a task is done to its end whatever becomes of
this command.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from zonemta_py.cli.queue.commands import answer, app
from zonemta_py.cli.run.running import me
from zonemta_py.cli.tasks import follow
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.filters import Where, filtered, message_ids
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, Option, extended, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, confirm, counted, print_aside, print_json, print_table
from zonemta_py.config import Config
from zonemta_py.queue import questions

Change = dict[str, Any]

FEW = 10
"""So many recipients are changed without a question."""

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Message ids, or - to read them from stdin; options narrow the selection."),
]
HeldId = Annotated[str, typer.Argument(metavar="ID", help="Message id, as `zonemta queue list --state held` shows it.")]
All = Annotated[bool, typer.Option("--all", help="Everything in the queue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show the exact count and examples; change nothing.")]
Because = Annotated[str, typer.Option("--because", metavar="TEXT", help="Reason, shown with the task.")]
Background = Annotated[bool, typer.Option("--background", help="Return at once; do not wait for the task to finish.")]
UndoFor = Annotated[
    str | None,
    typer.Option("--undo-for", metavar="SPAN", help="How long the task can be undone; default: queue.undo_s."),
]


class How(NamedTuple):
    """What all orders have besides verb, filter and what is set."""

    yes: bool
    dry_run: bool
    because: str
    background: bool
    undo_for: str | None
    json: bool


_HOW: dict[str, Option] = {
    "yes": (Yes, False), "dry_run": (DryRun, False), "because": (Because, ""), "background": (Background, False),
    "undo_for": (UndoFor, None), "config": (ConfigFile, None), "folder": (Folder, None), "json": (AsJson, False),
}  # fmt: skip


def ordering(change: Callable[..., Change]) -> Callable[..., Any]:
    """Makes `zonemta queue VERB` of a function with that name: it says what is set in recipients.

    `chosen`, if it has that, is the filter, to which it adds; else ids and --all say whom it concerns, too.
    """
    verb = change.__name__.rstrip("_")
    own = inspect.signature(change).parameters
    whom: dict[str, Option] = {} if "chosen" in own else {"ids": (Ids, None), "all": (All, False)}

    def run(chosen: Where, config: Path | None, folder: Path | None, **options: Any) -> None:
        how = How(**{name: options.pop(name) for name in How._fields})
        where = _where(chosen, **{name: options.pop(name) for name in whom}) if whom else chosen
        change_ = change(**options) if whom else change(chosen=where, **options)
        _order(in_force(config, folder), verb, where, change_, how)

    command = extended(change, run, {}, whom | _HOW | {"chosen": (Where, None)})
    return app.command(verb)(tabled(filtered(command)))


_NOTHING_SET = {
    "delete": "Delete recipients from the queue. No notices are sent.",
    "hold": "Hold recipients until `zonemta queue release`. They do not expire while held.",
    "release": "Release held recipients for delivery.",
    "flush": "Retry deferred recipients now. Limits, suspensions and rests still apply.",
    "requeue": """\
Retry deferred and held recipients now; with --state bounced, bounced ones that are kept (queue.keep_bounced_s).

Bounced recipients start again with a full lifetime and a fresh retry schedule. The sender may already have received a
bounce, and gets another one if the message bounces again. Recipients on the suppression list are skipped; run `zonemta
suppression remove` first.""",
}
"""Orders that say only who is meant, and their help."""


def _plain(verb: str, help: str) -> None:
    def change() -> Change:
        return {}

    change.__name__, change.__doc__ = verb, help
    ordering(change)


for _verb, _help in _NOTHING_SET.items():
    _plain(_verb, _help)


@ordering
def purge(
    zones: Annotated[list[str], typer.Argument(metavar="ZONE", help="Zones, or queues as queue/NAME.")],
    chosen: Where,
) -> Change:
    """Delete everything waiting in a zone or named queue, or the part of it that matches the options."""
    chosen["zone"] = zones
    return {}


@ordering
def move(
    to: Annotated[str, typer.Option("--to", metavar="ZONE", help="The zone to move them to.")],
) -> Change:
    """Move recipients to another zone."""
    return {"zone": to}


@ordering
def set_(
    to_priority: Annotated[int | None, typer.Option("--set-priority", min=-9, max=9, help="New priority.")] = None,
    to_at: Annotated[
        str | None, typer.Option("--set-at", metavar="WHEN", help="Time of the next attempt: 2h, tomorrow 9:00.")
    ] = None,
    to_life: Annotated[
        str | None, typer.Option("--set-life", metavar="SPAN", help="New lifetime, counted from acceptance.")
    ] = None,
    to_source: Annotated[
        str | None, typer.Option("--set-source", metavar="IP", help="Source address to send from; '' for as usual.")
    ] = None,
    to_host: Annotated[
        str | None, typer.Option("--set-host", metavar="HOST:PORT", help="Smart host to send to; '' for as usual.")
    ] = None,
    to_sender: Annotated[
        str | None, typer.Option("--set-return-path", metavar="ADDRESS", help="New return path; <> for nobody.")
    ] = None,
    to_header: Annotated[
        list[str] | None,
        typer.Option(
            "--set-header", metavar="'NAME: VALUE'", help="Header field, replaced before signing; 'NAME:' removes it."
        ),
    ] = None,
    to_campaign: Annotated[
        str | None, typer.Option("--set-campaign", metavar="NAME", help="New campaign; '' for none.")
    ] = None,
    to_tenant: Annotated[
        str | None, typer.Option("--set-tenant", metavar="NAME", help="New tenant; '' for none.")
    ] = None,
) -> Change:
    """Change how recipients are sent: priority, next attempt, lifetime, source, smart host, return path, header fields,
    campaign or tenant."""
    change: Change = {"priority": to_priority}
    change["at_ms"] = when.at(to_at, "--set-at", int(time.time() * 1000)) if to_at is not None else None
    change["life_h"] = when.span(to_life, "--set-life") / 3600 if to_life is not None else None
    change |= {"source": to_source, "host": to_host, "sender": to_sender, "campaign": to_campaign, "tenant": to_tenant}
    change["header"] = dict(map(_field, to_header)) if to_header else None
    change = {name: value for name, value in change.items() if value is not None}
    if not change:
        raise CommandError(Exit.USAGE, "say what is to be set: --set-priority, --set-at, --set-source, … as in --help")
    return change


def _field(text: str) -> tuple[str, str | None]:
    """Raises CommandError."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(
            Exit.USAGE, f"--set-header is {text!a}; write 'Name: value', or 'Name:' to remove that field"
        )
    return name.strip(), value.strip() or None


@app.command(hidden=True)
def drop(id: HeldId, config: ConfigFile = None, folder: Folder = None) -> None:
    """Delete a message's held recipients; deprecated name of `queue delete ID --state held`."""
    how = How(yes=True, dry_run=False, because="", background=False, undo_for=None, json=False)
    _order(in_force(config, folder), "delete", {"id": [id], "state": ["held"]}, {}, how)


def _where(chosen: Where, ids: list[str] | None, all: bool) -> Where:
    """Raises CommandError if nothing says who is meant."""
    if ids == ["-"] and not (ids := sys.stdin.read().split()):
        raise CommandError(Exit.DATA, "there are no ids on stdin, and nothing was changed; give a message id a line")
    where = chosen | ({"id": message_ids(ids)} if ids else {}) | ({"all": True} if all else {})
    if not where:
        raise CommandError(
            Exit.USAGE, "say which recipients: message ids, --recipient, --domain, --zone, … as in --help, or --all"
        )
    return where


def _order(config: Config, verb: str, where: Where, change: Change, how: How) -> None:
    about: dict[str, Any] = {"verb": verb, "where": where, "set": change, "by": me(), "cause": how.because}
    undo: dict[str, Any] = {"undo_s": when.span(how.undo_for, "--undo-for")} if how.undo_for else {}
    if how.yes and not how.dry_run:
        row = answer(config, questions.task, **about, **undo)
    else:
        seen = answer(config, questions.task_preview, **about)
        seen = follow.until(config, seen, lambda row: row["state"] == "previewed", "counting")
        if how.dry_run:
            return _show(seen, how.json)
        if not seen["count"]:
            _nobody(where, seen)
        elif seen["count"] > FEW:
            _ask(seen)
        row = answer(config, questions.task_start, id=seen["id"], **undo)
    if not how.background:
        row = follow.to_the_end(config, row)
    return follow.tell(row, how.json)


def _nobody(where: Where, seen: follow.Row) -> None:
    """Raises CommandError if a message was named that is not there; what is being delivered now is done anyway."""
    if set(where) == {"id"}:
        print(f"zonemta: nothing waits that is to be done now ({seen['words']})", file=sys.stderr)


def _ask(seen: follow.Row) -> None:
    """Raises CommandError if the answer is no, or if nobody is there to answer."""
    sentence = f"{seen['words']}: {counted(seen['count'] or 0, 'recipient')}"
    for remark in seen["remarks"]:
        print_aside(remark)
    confirm(sentence, "Do it?", ", or --dry-run to see examples")


def _show(seen: follow.Row, json: bool) -> None:
    if json:
        return print_json(seen)
    rows = [(one["id"], one["recipient"], one["zone"]) for one in seen["examples"]]
    count = seen["count"] or 0
    if not (rows or as_records()):
        return print_aside(f"{seen['words']}: no recipients match; nothing was changed")
    title = f"{seen['words']}: {counted(count, 'recipient')}" + (
        f", of which {len(rows)}:" if count > len(rows) else ""
    )
    print_table(title, ("id", "recipient", "zone"), rows)
    for remark in seen["remarks"]:
        print_aside(remark)
    if len(seen["zones"]) > 1:
        print_aside("; ".join(f"zone {zone}: {count:,}" for zone, count in sorted(seen["zones"].items())))
    return print_aside("nothing was changed")
