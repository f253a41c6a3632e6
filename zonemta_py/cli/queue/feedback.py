"""`zonemta feedback …`: what came back about mail that was sent; and what of it nobody understood."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, moment, print_aside, print_json, print_table, printable
from zonemta_py.config import Config
from zonemta_py.config.own_addresses import own_addresses
from zonemta_py.journal.records.people import KINDS
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reports.letters import read_report
from zonemta_py.mail.reports.reputation import FILE_BYTES_MAX, read_table
from zonemta_py.mail.reports.unpacking import ReportRefused
from zonemta_py.mail.reports.words import sentence, share
from zonemta_py.queue import questions
from zonemta_py.queue.api import Feedback
from zonemta_py.wire.frames import feedback_row

app = typer.Typer(help="Show and manage feedback: bounces, complaints, unsubscribes, replies.", no_args_is_help=True)
DMARC_COLUMNS = (
    "domain", "receiver", "signed", "reports ", "ours ", "ours passed ", "others ", "others passed "
)  # fmt: skip
SOURCE_COLUMNS = ("domain", "source", "whose", "messages ", "failed ", "DKIM failed ", "SPF failed ", "what")
TLS_COLUMNS = ("domain", "sender", "signed", "reports ", "sessions ", "failed ")
FAILURE_COLUMNS = ("domain", "failure", "server", "policy", "sessions ")
REPUTATION_COLUMNS = ("provider", "of", "day", "reputation", "complaints ", "traps ", "comment")
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
    apart = ("seq", "ms", "raw", "report")
    shown = [[name, str(value)] for name, value in rows.items() if value not in ("", 0) and name not in apart]
    print_table("Came back", ("what", "value"), shown)
    report = found.get("report", {})
    if told := [*report.get("rows", ()), *report.get("failures", ())] if not as_records() else []:
        columns = list(dict.fromkeys(name for row in told for name in row))
        print_table("The report", columns, [[_said(row.get(name, "")) for name in columns] for row in told])
    if raw and as_records():
        print_aside("the message itself: without --csv and --plain, or with --json")
    elif raw:
        print_aside(f"the message, its first {len(raw):,} characters:")
        sys.stdout.write("\n".join(map(printable, raw.splitlines())) + "\n")
    return None


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


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


@app.command()
@tabled
def reports(
    days: Annotated[int, typer.Option(metavar="N", min=1, max=400, help="Reports about the last N days.")] = 7,
    domain: Annotated[str, typer.Option(metavar="DOMAIN", help="Only about this domain of ours.")] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show what receivers report about our mail: DMARC and TLS reports summed up, and reputation."""
    found = answer(in_force(config, folder), questions.feedback_reports, days=days, domain=domain.lower())
    if json:
        return print_json(found)
    tables = (
        ("DMARC", DMARC_COLUMNS, map(_dmarc, found["dmarc"])),
        ("Sources", SOURCE_COLUMNS, map(_source, found["sources"])),
        ("TLS to our servers", TLS_COLUMNS, map(_tls, found["tls"])),
        ("TLS failures", FAILURE_COLUMNS, map(_failure, found["tls_failures"])),
        ("Reputation", REPUTATION_COLUMNS, map(_reputation, found["reputation"])),
    )
    if as_records():
        rows = [[title, *row] for title, _, its in tables for row in its]
        wide = max(map(len, rows), default=1)
        columns = ("table", *(f"value{number}" for number in range(1, wide)))
        return print_table("Reports", columns, ([*row, *[""] * (wide - len(row))] for row in rows))
    shown = [(title, columns, rows) for title, columns, its in tables if (rows := list(its))]
    for title, columns, rows in shown:
        print_table(title, columns, rows)
    if not shown:
        print(f"No reports about the last {days} days. docs/FEEDBACK.md says how to get them.")
    if not found["whole"]:
        print_aside("there are more reports than are added up at once; give fewer --days")
    return None


def _dmarc(row: questions.DmarcSums) -> list[str]:
    others, others_passed = row["messages"] - row["ours"], row["passed"] - row["ours_passed"]
    return [
        row["domain"], row["org"], row["proof"] or "no", f"{row['reports']:,}", f"{row['ours']:,}",
        share(row["ours_passed"], row["ours"]) if row["ours"] else "", f"{others:,}",
        share(others_passed, others) if others else "",
    ]  # fmt: skip


def _source(row: questions.SourceSums) -> list[str]:
    failed = row["failed"]
    what = "not aligned" if failed and row["ours"] else "forged, or forwarded" if failed else ""
    return [
        row["domain"], row["ip"] or "unknown", "ours" if row["ours"] else "others", f"{row['messages']:,}",
        f"{failed:,}", f"{row['dkim_failed']:,}", f"{row['spf_failed']:,}", what,
    ]  # fmt: skip


def _tls(row: questions.TlsSums) -> list[str]:
    numbers = [f"{row['reports']:,}", f"{row['sessions']:,}", f"{row['failed']:,}"]
    return [row["domain"], row["org"], row["proof"] or "no", *numbers]


def _failure(row: questions.TlsFailureSums) -> list[str]:
    return [row["domain"], row["kind"], row["mx"], row["policy"], f"{row['sessions']:,}"]


def _reputation(row: questions.ReputationRow) -> list[str]:
    rate = f"{row['complaint_rate'] * 100:.3g} %" if "complaint_rate" in row else ""
    traps = f"{row['traps']:,}" if "traps" in row else ""
    return [row["provider"], row["name"], row["day"], row.get("reputation", ""), rate, traps, row.get("comment", "")]


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="CSV tables, or reports as they were attached.")],
    domain: Annotated[
        str, typer.Option(metavar="DOMAIN", help="The domain of a table that has no column for one.")
    ] = "",
    provider: Annotated[
        str, typer.Option(metavar="NAME", help="Whose table it is: google, microsoft …; default: by its columns.")
    ] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Import reputation (CSV of Postmaster Tools, SNDS) and DMARC and TLS reports from files.

    All files are read first: if one cannot be, nothing is imported. What was imported before counts once."""
    settings = in_force(config, folder)
    rows = [row for file in files for row in _imported(file, settings, domain.lower(), provider.lower())]
    new = 0
    for at in range(0, len(rows), _AT_ONCE):
        packed = [feedback_row(row) for row in rows[at : at + _AT_ONCE]]
        found: list[bool] = answer(settings, questions.feedback_import, rows=packed)
        new += sum(found)
    known = len(rows) - new
    print_json({"imported": new, "known": known}) if json else print(f"{new:,} imported, {known:,} known already")


def _imported(file: Path, settings: Config, domain: str, provider: str) -> list[Feedback]:
    """Raises CommandError."""
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ReportRefused(f"it has more than {FILE_BYTES_MAX // 1_000_000} MB")
        content = file.read_bytes()
        report = read_report(content, own_addresses(settings))
        if report is not None:
            text, form = sentence(report.kind, report.said), report.kind.partition("-")[0]
            return [Feedback(report.kind, text=text, form=form, genuine="key", name=report.name, report=report.said)]
        return [
            Feedback("reputation", text=sentence("reputation", row.said), form="csv", genuine="key", name=row.name,
                     report=row.said) for row in read_table(content, domain, provider)
        ]  # fmt: skip
    except OSError as error:
        raise CommandError(Exit.NO_INPUT, f"{cause(error)}; name a CSV file or a report that can be read") from None
    except ReportRefused as error:
        raise CommandError(Exit.DATA, f"{file}: {error}") from None


def _not_there(number: int, what: str = "nothing that came back has number {0}", option: str = "") -> CommandError:
    listed = f"zonemta feedback list {option}".rstrip()
    return CommandError(Exit.DATA, f"{what.format(number)}; `{listed}` shows what there is")
