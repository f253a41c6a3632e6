"""`zonemta feedback …`: what came back about mail that was sent; and what of it nobody understood."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, moment, print_aside, print_json, print_table, printable
from zonemta_py.journal.records.people import KINDS
from zonemta_py.queue import questions

app = typer.Typer(help="Show and manage feedback: bounces, complaints, unsubscribes, replies.", no_args_is_help=True)
COLUMNS = ("number", "at", "kind", "recipient", "campaign", "message", "genuine", "class", "said")
_AT_ONCE = 1_000
Number = Annotated[
    int, typer.Argument(metavar="NUMBER", min=1, help="Its number, as `zonemta feedback list` shows it.")
]


@app.command("list")
@tabled
def list_(
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"Only this kind: {', '.join(KINDS)}.")] = "",
    recipient: Annotated[str, typer.Option(metavar="ADDRESS", help="Only about this recipient.")] = "",
    campaign: Annotated[str, typer.Option(metavar="NAME", help="Only of this campaign.")] = "",
    message: Annotated[str, typer.Option(metavar="ID", help="Only about this message.")] = "",
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only from this time on: 2h (ago), 14:30, yesterday 9:00, 2026-12-01."),
    ] = None,
    unread: Annotated[
        bool, typer.Option("--unread", help="Only messages that could not be classified and are still kept.")
    ] = False,
    wishes: Annotated[
        bool, typer.Option("--wishes", help="Only possible unsubscribe requests that await your decision.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Rows to show.")] = 100,
    after: Annotated[
        str, typer.Option(metavar="CURSOR", help="Continue after the cursor printed at the end of an earlier list.")
    ] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """List feedback, newest first. Feedback that is not genuine is unproven and has no effect."""
    start = when.past(since, "--since", time.time_ns() // 1_000_000) if since else 0
    where = {"kind": kind, "recipient": recipient, "campaign": campaign, "message": message, "unread": unread}
    where |= {"wishes": wishes, "since_ms": start}
    rows, next_ = _rows(in_force(config, folder), where, after, limit)
    if json:
        return print_json({"rows": rows, "next": next_})
    more = f"More: --after {shlex.quote(str(next_))}" if next_ else ""
    return print_table("Came back", COLUMNS, map(_cells, rows), more)


def _rows(
    settings: Any, where: dict[str, Any], after: str, limit: int
) -> tuple[list[questions.FeedbackRow], int | str | None]:
    """Until there are as many, or no more: a page may have fewer."""
    rows: list[questions.FeedbackRow] = []
    while True:
        wanted = min(_AT_ONCE, limit - len(rows))
        page = answer(settings, questions.feedback, **where, after=after or 0, limit=wanted)
        rows += page["rows"]
        if page["next"] is None or len(rows) >= limit:
            return rows, page["next"]
        after = str(page["next"])


def _cells(row: questions.FeedbackRow) -> list[str]:
    said = " ".join(str(part) for part in (row["code"] or "", row["enhanced"], row["text"]) if part)
    return [
        str(row["seq"]), moment(row["ms"]), row["kind"], row["recipient"], row["campaign"], row["message"],
        row["genuine"] or "no", row["reply_class"], said,
    ]  # fmt: skip


@app.command()
@tabled
def show(number: Number, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show one entry in full; if it could not be classified, the original message."""
    found = answer(in_force(config, folder), questions.feedback_one, seq=number)
    if found is None:
        raise _not_there(number)
    if json:
        return print_json(found)
    raw, rows = found["raw"], {"number": found["seq"], "at": moment(found["ms"]), **found}
    apart = ("seq", "ms", "raw")
    shown = [[name, str(value)] for name, value in rows.items() if value not in ("", 0) and name not in apart]
    print_table("Came back", ("what", "value"), shown)
    if raw and as_records():
        print_aside("the message itself: without --csv and --plain, or with --json")
    elif raw:
        print_aside(f"the message, its first {len(raw):,} characters:")
        sys.stdout.write("\n".join(map(printable, raw.splitlines())) + "\n")
    return None


@app.command()
def leave(
    numbers: Annotated[list[int], typer.Argument(metavar="NUMBER", help="Their numbers.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Accept possible unsubscribe requests: their authors are unsubscribed. Use `forget` for the others."""
    count = answer(in_force(config, folder), questions.feedback_leave, numbers=numbers)
    if not count:
        raise _not_there(numbers[0], "number {0} is no wish to leave that is kept", "--wishes")
    print_json({"unsubscribed": count}) if json else print(f"{count:,} unsubscribed")


@app.command()
def forget(
    numbers: Annotated[list[int] | None, typer.Argument(metavar="NUMBER", help="Their numbers.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Everything that is kept.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Delete unclassified messages after review. Their records remain."""
    if bool(numbers) == all:
        raise CommandError(Exit.USAGE, "say which: numbers of `zonemta feedback list --unread`, or --all")
    count = answer(in_force(config, folder), questions.feedback_forget, numbers=numbers or [], all=all)
    if not count and numbers:
        raise _not_there(numbers[0], "nothing is kept of number {0}: it was understood, or was never there", "--unread")
    print_json({"forgotten": count}) if json else print(f"{count:,} forgotten")


def _not_there(number: int, what: str = "nothing that came back has number {0}", option: str = "") -> CommandError:
    listed = f"zonemta feedback list {option}".rstrip()
    return CommandError(Exit.DATA, f"{what.format(number)}; `{listed}` shows what there is")
