"""`zonemta queue …`: what is in the queue. Asks the running queue process; nothing here opens a file of the store."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import typer

from zonemta_py.cli.run.ask_queue import ask_queue, runs
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.filters import Where, filtered
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, readable, tabled
from zonemta_py.cli.terminal.output import (
    as_records,
    confirm,
    counted,
    moment,
    print_aside,
    print_json,
    print_table,
    printable,
    sentence,
)  # fmt: skip
from zonemta_py.config import Config
from zonemta_py.disk import identity
from zonemta_py.metrics.quantities import STATES, label
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.zones.pull import settings_of

app = typer.Typer(
    help="Show and change the queue. Named queues are used with ncat or HTTP:"
    " `printf 'help\\n' | ncat localhost 1234` lists the commands (docs/QUEUES.md).",
    no_args_is_help=True,
)

_HEADS = tuple(f"{label(name)} " for name in STATES)
NOTE_MAX = 120
"""Characters of a plugin's note that are shown."""
ZoneName = Annotated[str | None, typer.Option("--zone", metavar="NAME", help="Only this zone.")]


def answer(config: Config, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """Asks the queue process. Raises CommandError if it cannot be asked, or with its refusal."""
    return ask_queue(config.folder, question, *_, **arguments)


def known_zone(config: Config, zone: str | None) -> str | None:
    """The zone as given. Raises CommandError if the configuration has none of that name."""
    if zone is not None and settings_of(config, zone) is None:
        names = ", ".join(zone.name for zone in config.zones)
        raise CommandError(Exit.USAGE, f"there is no zone {zone!r}; the configuration has {names}")
    return zone


By = Literal["zone", "domain", "provider", "campaign", "tenant", "user", "sender", "source", "subject", "class", "site"]
COUNTED = ("zone", "domain", "provider", "campaign", "tenant")
"""What the queue counts anyway; for the others it looks at each recipient."""


@app.command()
@tabled
@filtered
def size(
    by: Annotated[By | None, typer.Option(help="Only the counts by this, largest first.")] = None,
    zone: ZoneName = None,
    domain: Annotated[str | None, typer.Option(help="Only recipients at this domain.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only recipients at this provider.")] = None,
    campaign: Annotated[str | None, typer.Option(help="Only mail of this campaign.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only mail of this tenant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Rows to show.")] = 50,
    after: Annotated[
        str, typer.Option(help="With --by: continue after the cursor printed at the end of the last page.")
    ] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
    *,
    chosen: Where,
) -> None:
    """Count recipients in the queue, per zone and per domain; exact, and fast at any size.

    Counts by user, sender, source, subject, class or site, and counts with a filter, read every recipient and take
    longer: `zonemta queue size --by user --younger 1h` shows who is sending.

    Leased recipients are those being delivered now. Deleted recipients can be restored for a while (`zonemta task
    undo`), and so can bounced ones (`zonemta queue requeue`), if that is configured.
    """
    settings = in_force(config, folder)
    of = {"zone": known_zone(settings, zone), "domain": domain, "provider": provider, "campaign": campaign}
    of = {name: value for name, value in (of | {"tenant": tenant}).items() if value is not None}
    if chosen and not by:
        raise CommandError(Exit.USAGE, "by what is it counted? with a filter, name --by, such as --by user")
    if by and (by not in COUNTED or chosen or of.keys() - {"zone"} or (of and by != "domain")):
        if after:
            raise CommandError(Exit.USAGE, "--after is for what the queue counts; a count of this has one page")
        return _sizes_by(_tallied(settings, by, limit, chosen | of), by, json)
    if by:
        return _sizes_by(
            whole(settings, questions.sizes, by=by, limit=limit, after=after, zone=of.get("zone")), by, json
        )
    if of:
        counts = answer(settings, questions.size_of, **of)
        if json:
            return print_json(counts)
        return print_table("Recipients", [f"{name} " for name in counts], [tuple(counts.values())])
    sizes, copied = answer(settings, questions.size), answer(settings, questions.copied)
    page = answer(settings, questions.sizes, by="domain", limit=1_000 if json or as_records() else limit)
    domains = {row["name"]: {state: n for state, n in row.items() if state != "name"} for row in page["rows"]}
    if json:
        return print_json({**sizes, "domains": domains, "domains_in_all": page["of"]})
    if copied:
        print(f"zonemta: {copied}", file=sys.stderr)
    if as_records():
        return _size_csv({**sizes, "domains": domains})
    total = sizes["total"]
    zones = [(name, *_counts(row)) for name, row in (*sorted(sizes["zones"].items()), ("all", total))]
    footer = f"{counted(total['messages'], 'message')}, {total['bytes']:,} bytes"
    print_table("Recipients by zone", ["zone", *_HEADS], zones, footer)
    if domains:
        rows = [(name, *_counts(row)) for name, row in domains.items()]
        more = f"{page['of']:,} domains; more: zonemta queue size --by domain" if page["next"] else ""
        print_table("Recipients by domain, the largest first", ["domain", *_HEADS], rows, more)
    return None


def _tallied(config: Config, by: str, limit: int, where: Where) -> dict[str, Any]:
    """The largest, of all recipients that are meant."""
    found, after, walked, begun = dict[str, dict[str, int]](), "", 0, time.monotonic()
    at_terminal = sys.stderr.isatty()
    while True:
        page = answer(config, questions.tally, by=by, after=after, **where)
        walked += page["walked"]
        for name, states in page["counts"].items():
            counts = found.setdefault(name, dict.fromkeys(STATES, 0))
            for state, count in states.items():
                counts[state] += count
        if not (after := page["next"] or ""):
            break
        if at_terminal and time.monotonic() > begun + LOOKED_S:
            print(f"\r\x1b[Klooked at {walked:,} recipients", end="", file=sys.stderr, flush=True)
    if at_terminal and time.monotonic() > begun + LOOKED_S:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    names = sorted(found, key=lambda name: (-sum(found[name].values()), name))
    rows = [{"name": name} | found[name] for name in names[:limit]]
    return {"rows": rows, "next": None, "of": len(found), "complete": True}


Page = TypeVar("Page", questions.SizesDocument, questions.AgesDocument)


def whole(config: Config, question: Question[P, Page], *_: P.args, **of: P.kwargs) -> Page:
    """The first answers may be given before all recipients have been seen, or be those of an earlier count: the
    question is asked until they have, and that is new."""
    until = time.monotonic() + _WHOLE_S
    while True:
        page = answer(config, question, *_, **of)
        if (page["complete"] and not page.get("counting")) or time.monotonic() >= until:
            return page
        time.sleep(0.1)


def _sizes_by(page: Mapping[str, Any], by: str, json: bool) -> None:
    if json:
        return print_json(page)
    rows = [(row["name"] or _NAMELESS.get(by, ""), *_counts(row)) for row in page["rows"]]
    more = f"More: --after {shlex.quote(page['next'])}" if page["next"] else ""
    more = more if page["complete"] else "Not all domains have been looked at yet: ask again"
    order = "by their largest part in one queue" if page.get("by_part") else "the largest first"
    return print_table(f"Recipients by {by}, {order}", [by, *_HEADS], rows, more)


_NAMELESS = {"sender": "<>", "user": "(no login)", "subject": "(no subject)", "class": "(not tried)"}
"""What a row is of that has no such name."""


def _size_csv(sizes: dict[str, Any]) -> None:
    """One table for all: a program that reads CSV takes no second."""
    rows = [("total", "", *_counts(sizes["total"]))]
    rows += [
        (kind, name, *_counts(row)) for kind in ("zone", "domain") for name, row in sorted(sizes[f"{kind}s"].items())
    ]
    print_table("", ["what", "name", *STATES], rows)


def _counts(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(row.get(name, 0) for name in STATES)


@app.command("list")
@tabled
@filtered
def list_(
    id: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Of this message.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows to show.")] = 100,
    after: Annotated[str, typer.Option(help="Continue after the cursor printed at the end of an earlier list.")] = "",
    order: Annotated[
        Literal["age"] | None, typer.Option("--order", help="Oldest first; this is the only order.")
    ] = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
    *,
    chosen: Where,
) -> None:
    """List recipients in the queue, in pages, oldest first.

    A recipient that stays in the queue throughout is listed exactly once, even if the queue changes between pages.
    """
    where = chosen | ({"id": id} if id else {})
    settings = in_force(config, folder)
    for zone in where.get("zone", ()) if "*" not in "".join(where.get("zone", ())) else ():
        known_zone(settings, zone)
    page = pages(settings, limit, after, **({"order": order} if order else {}), **where)
    if json:
        return print_json(page)
    more = f"More: --after {shlex.quote(page['next'])}" if page.get("next") else ""
    return print_table(
        "Recipients", _COLUMNS, [_row(row) for row in page["rows"]], footer=more, order=_ORDER, keys=("id", "recipient")
    )


_WHOLE_S = 10.0
"""How long it is waited for an answer that is complete."""
LOOKED_S = 1.0
"""After so long it says how far it has looked."""


def pages(config: Config, limit: int, after: str = "", **where: Any) -> dict[str, Any]:
    """A whole page, though the queue looks only for a moment each time."""
    rows, walked, begun = list[questions.WaitingDocument](), 0, time.monotonic()
    while True:
        page = answer(config, questions.list_, limit=limit - len(rows), after=after, **where)
        rows, walked, after = rows + page["rows"], walked + page["walked"], page["next"] or ""
        if not after or len(rows) >= limit:
            break
        if time.monotonic() > begun + LOOKED_S and sys.stderr.isatty():
            print(f"\rlooked at {walked:,} recipients, found {len(rows):,}", end="", file=sys.stderr, flush=True)
    if time.monotonic() > begun + LOOKED_S and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return {"rows": rows, "next": after or None, "walked": walked}


_COLUMNS = (
    "id",
    "zone",
    "recipient",
    "sender",
    "state",
    "tried ",
    "due",
    "received",
    "bytes ",
    "user",
    "subject",
    "last reply",
    "waits for",
)


_ORDER = ("id", "recipient", "state", "last reply", "due", "tried", "zone", "sender")


def _row(row: questions.WaitingDocument) -> list[object]:
    return [
        row["id"], row["zone"], row["recipient"], row.get("sender") or "<>", row["state"], row.get("attempts", 0),
        moment(row.get("due_ms")), moment(row.get("received_ms")), row.get("size", ""), row.get("user", ""),
        row.get("subject", ""), row.get("last", ""), sentence(row.get("cause", "")),
    ]  # fmt: skip


@app.command()
@readable
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Message id, as `zonemta queue list` shows it.")],
    content: Annotated[
        bool, typer.Option("--content", help="Print the message as it was accepted, byte for byte.")
    ] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show a message's envelope, recipients and header section, or its content."""
    if content:
        return _print_content(in_force(config, folder), id.rstrip("*!"))
    message = answer(in_force(config, folder), questions.show, id=id.rstrip("*!"))
    if json:
        return print_json(message)
    print_table(f"Message {message['id']}", ("envelope", "value"), _envelope(message["envelope"]))
    rows = [
        (row["recipient"], row["zone"], row["state"], row["attempts"], moment(row["due_ms"]), row["last"])
        for row in message["recipients"]
    ]
    print_table(
        "\nRecipients",
        ("recipient", "zone", "state", "tried ", "due", "last reply"),
        rows,
        order=("recipient", "state", "last reply"),
    )
    notes = [(row["recipient"], *note) for row in message["recipients"] for note in shown_notes(row)]
    if notes:
        print_table("\nNotes of recipients", ("recipient", "note", "value"), notes)
    print("\nHeader section")
    print(printable(message["header"].replace("\r\n", "\n")).rstrip("\n"))
    return print_aside(f"\nIts story, from acceptance on: zonemta trace {message['id']}")


def _print_content(config: Config, id: str) -> None:
    """A message that ends meanwhile ends the command: half of it must not look whole. Raises CommandError."""
    number, chunks = 1, 1
    while number <= chunks:
        part = answer(config, questions.content, id=id, first=number)
        sys.stdout.buffer.write(part["data"])
        number, chunks = number + part["count"], part["chunks"]
    sys.stdout.buffer.flush()


def _envelope(envelope: dict[str, Any]) -> list[tuple[str, str]]:
    """In words: moments as such, bytes as hexadecimal, and what is made of several parts one by one."""
    rows = []
    for name, value in envelope.items():
        if name in ("headers", "recipients", "edits"):  # shown below: the header section is as it was edited
            continue
        if name.endswith("_ms"):
            rows.append((name.removesuffix("_ms").replace("_", " "), moment(value)))
        elif isinstance(value, dict):
            rows += [(f"{name.replace('_', ' ')}: {key}", _plain(part)) for key, part in value.items()]
        else:
            rows.append((name.replace("_", " "), _plain(value)))
    return rows


def shown_notes(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, value) of each thing that plugins keep with a recipient, both cut after NOTE_MAX characters. A queue of an
    earlier version names none."""
    for name, value in row.get("notes", {}).items():
        said = _plain(value)
        yield name[:NOTE_MAX], said if len(said) <= NOTE_MAX else f"{said[:NOTE_MAX]}…"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) else "<>" if value == "" else str(value)


@app.command()
def adopt(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if the original is running.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Allow a copy of a queue to send. The original must never run again; asks if it is still running."""
    chosen = in_force(config, folder)
    original = identity.original(chosen.folder)
    if original is not None and not yes and answer(chosen, questions.copied) and runs(original):
        confirm(
            f"the original in {original} still runs, and both would send the same mail: end that first", "Adopt it?"
        )
    adopted = answer(chosen, questions.adopt)
    if json:
        return print_json(adopted)
    return print(f"queue {adopted['queue']} lives here now (incarnation {adopted['incarnation']}), and mail is sent")


@app.command("in-doubt")
@tabled
def in_doubt(
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Acknowledge them: remove them from the list.")
    ] = False,
    id: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only those of this message.")] = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """List recipients whose final reply was pending at a crash: the only ones that can get a message twice.

    They stay listed until seven days after their message has left the queue, or until they are acknowledged.
    """
    chosen, now_ms = in_force(config, folder), int(time.time() * 1000)
    rows = [row for row in answer(chosen, questions.in_doubt) if not id or row["id"] in id]
    if acknowledge:
        count = answer(chosen, questions.in_doubt_acknowledge, ids=id or None, until_ms=now_ms) if rows else 0
        if json:
            return print_json({"acknowledged": count})
        return print(f"{counted(count, 'recipient')} in doubt acknowledged; the journal still has them")
    if json:
        return print_json(rows)
    columns = ("id", "zone", "recipient", "sender", "since", "what is done")
    cells = [
        (row["id"], row["zone"], row["recipient"], _sender(row), moment(row["since_ms"]), row["action"]) for row in rows
    ]
    return print_table(
        f"In doubt: {len(rows)}", columns, cells, order=("id", "recipient", "what is done"), keys=("id", "recipient")
    )


def _sender(row: questions.InDoubt) -> str:
    sender = row.get("sender")
    return "(message has ended)" if sender is None else sender or "<>"


@tabled
def accounts(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List the quotas of [[accounts]]: usage, and when each resets."""
    rows = answer(in_force(config, folder), questions.accounts)
    if json:
        print_json(rows)
        return
    cells = [
        (row["account"], row["what"], row["quota"], row["used"], row["left"], moment(row["anew_ms"])) for row in rows
    ]
    footer = "" if rows else "No account has a quota; [[accounts]] in the configuration gives one"
    print_table(f"Quotas: {len(rows)}", ("account", "of", "quota", "used ", "left ", "begins anew"), cells, footer)
