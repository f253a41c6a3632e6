"""`zonemta suppression …`: the addresses, domains, patterns and hashes that get no mail, and why; `zonemta forget`:
erases a person from the queue."""

from __future__ import annotations

import csv
import getpass
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from zonemta_py.cli.queue import evidence
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.queue.erasure import (
    Archive,
    DeletePlans,
    FilesOnly,
    InLake,
    Plans,
    Proof,
    Subaddresses,
    in_files,
    in_plans,
    in_reports,
    in_sinks,
    ready,
    there,
)
from zonemta_py.cli.queue.suppression_file import COLUMNS, STDIN, opened
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import Telling, bar, moment, print_json, print_table, printable
from zonemta_py.cli.terminal.rejects import Rejects, apart, beside
from zonemta_py.config import Config
from zonemta_py.mail.fields import utc
from zonemta_py.queue import questions

app = typer.Typer(help="Show and edit the suppression list.", no_args_is_help=True)
for decided in (evidence.explain, evidence.guards, evidence.release, evidence.drop):
    app.command()(decided)

Kind = Literal["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
Listed = Annotated[
    list[str],
    typer.Argument(
        metavar="ADDRESS",
        help="One or more addresses, domains (@example.com, @*.example.com for all below it), patterns (noreply@*), or"
        " sha256:HEX.",
    ),
]
Entry = Annotated[str, typer.Argument(metavar="ADDRESS", help="An address, in any spelling, or another entry.")]
Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="An address, in any spelling.")]
_SCOPES = (
    "all, campaigns, campaigns:TENANT, campaign:NAME, campaign:TENANT/NAME, list:NAME, list:TENANT/NAME, tenant:NAME "
    "or zone:NAME"
)
Scope = Annotated[str | None, typer.Option(metavar="SCOPE", help=f"Only entries of this scope: {_SCOPES}.")]
NewScope = Annotated[
    str,
    typer.Option(
        metavar="SCOPE",
        help=f"Which mail it stops: {_SCOPES}. Default: all; for an unsubscribe campaigns, of the tenant whose"
        " campaign it names.",
    ),
]
AT_ONCE = 1_000


@app.command()
def add(
    addresses: Listed,
    kind: Annotated[Kind, typer.Option(help="Why they are listed.")] = "manual",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason in words.")] = "",
    proof: Annotated[str, typer.Option("--evidence", metavar="TEXT", help="Evidence: where it is documented.")] = "",
    campaign: Annotated[str, typer.Option(metavar="NAME", help="The campaign it came from.")] = "",
    scope: NewScope = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Add addresses to the list: new mail skips them, and waiting mail to them is removed without a bounce.

    A domain, a pattern or a hash of an address is added in the same way, and stops every address that it covers.
    An unsubscribe applies to campaigns only; the `suppress` setting of a zone lists the kinds that stop its mail.
    """
    rows = [[address, kind, reason, proof, _me(), campaign, 0, scope] for address in addresses]
    with Telling(json) as tell:
        _say(tell, answer(in_force(config, folder), questions.suppress, rows=rows))


def _say(tell: Telling, counts: questions.Added) -> None:
    tell(f"{counts['added']:,} added to the suppression list, {counts['known']:,} already known", **counts)


@app.command()
def remove(
    addresses: Listed, scope: Scope = None, config: ConfigFile = None, folder: Folder = None, json: AsJson = False
) -> None:
    """Remove addresses from the list, in all scopes or one; they receive mail again.

    An address that a domain, a pattern or a hash covers as well still gets none."""
    chosen = in_force(config, folder)
    count = answer(chosen, questions.unsuppress, addresses=addresses, by=_me(), scope=scope)
    row = answer(chosen, questions.suppression, address=addresses[0]) if not count and len(addresses) == 1 else None
    if row is not None and scope is None:
        raise CommandError(
            Exit.DATA, f"{printable(addresses[0])} has no entry of its own; {row['address']} covers it: remove that one"
        )
    if not count:
        raise CommandError(
            Exit.DATA, "none of them is on the suppression list; `zonemta suppression list` shows who is"
        )
    print_json({"removed": count}) if json else print(f"{count:,} removed from the suppression list")


@app.command()
@tabled
def show(address: Entry, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show whether an address is on the list, or covered by an entry for many, for which mail, and why."""
    row = answer(in_force(config, folder), questions.suppression, address=address)
    if json:
        return print_json(row)
    if row is None:
        raise CommandError(Exit.DATA, f"{printable(address)} is not on the suppression list")
    rows = [row, *row["others"]]
    values = [f"value {number}" if len(rows) > 1 else "value" for number in range(1, len(rows) + 1)]
    return print_table("Suppressed", ("what", *values), zip(COLUMNS, *map(_cells, rows), strict=True))


@app.command("list")
@tabled
def list_(
    kind: Annotated[Kind | None, typer.Option(help="Only entries of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows to show.")] = 100,
    scope: Scope = None,
    after: Annotated[str, typer.Option(help="Continue after this entry.")] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """List entries, in pages: first those that stop all mail, by address, then each other scope."""
    page = answer(in_force(config, folder), questions.suppressions, after=after, limit=limit, kind=kind, scope=scope)
    if json:
        return print_json(page)
    more = f"More: --after {shlex.quote(page['next'])}" if page["next"] else ""
    return print_table("Suppressed", COLUMNS, map(_cells, page["rows"]), printable(more))


def _exported(row: questions.SuppressionRow) -> list[str]:
    """For programs, so the time is UTC."""
    cells: dict[str, Any] = {**row, "since": utc(row["since_ms"]).replace("T", " ")}
    return [cells[name] for name in COLUMNS]


def _cells(row: questions.SuppressionRow) -> list[str]:
    cells: dict[str, Any] = {**row, "since": moment(row["since_ms"])}
    return [cells[name] for name in COLUMNS]


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv", help="CSV file with a header line, or one entry a line; - for standard input."
        ),
    ],
    kind: Annotated[Kind, typer.Option(help="Kind for rows without one.")] = "manual",
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for bad rows, with reasons; default: NAME.rejects.csv here."),
    ] = None,
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="Scope for rows without one, as for `add`.")] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Import entries from a CSV file: column address (or email), and any other column that `export` writes.

    Addresses, domains, patterns and hashes may be mixed, as for `add`. A column sha256 or domain will do instead; so
    will a list without a header, one entry a line, such as 64 hexadecimal digits each.

    Files written by `export` can be imported unchanged; importing twice changes nothing. Bad rows do not stop the
    import: they are reported and written to a separate file with the reasons, and the exit status is 65.
    """
    chosen = in_force(config, folder)
    with opened(file) as source:
        if file != STDIN:
            print(source.said, file=sys.stderr)
        other = Path("suppressions.rejects.csv") if file == STDIN else beside(file)
        bad = Rejects(apart(rejects or other, file), source.columns)
        with closing(bad), bar("importing") as move:
            total = _import(chosen, source.rows(kind, scope, _me(), bad), lambda: move(source.bytes_read, source.bytes))
    with Telling(json) as tell:
        _say(tell, total)
        tell(rows=source.count, rejected=bad.count, rejects=bad.file if bad.count else None)
    if bad.count:
        raise CommandError(Exit.DATA, bad.sentence(source.count))


def _import(config: Config, rows: Iterator[list[Any]], moved: Callable[[], object]) -> questions.Added:
    total: questions.Added = {"added": 0, "known": 0}
    while portion := list(islice(rows, AT_ONCE)):
        added = answer(config, questions.suppress, rows=portion)
        total = {"added": total["added"] + added["added"], "known": total["known"] + added["known"]}
        moved()
    return total


@app.command()
def export(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.csv", help="Default: standard output.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only entries of this kind.")] = None,
    config: ConfigFile = None,
    folder: Folder = None,
) -> None:
    """Export the whole list as CSV, in the format that `import` reads."""
    chosen, count = in_force(config, folder), 0
    pages = _pages(chosen, kind)
    first = next(pages)  # the queue answers, before a file is made
    stream = file.open("w", encoding="utf-8", newline="") if file else sys.stdout
    with bar("exporting") as move:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for rows in (first, *pages):
            writer.writerows(_exported(row | {"kind": kind}) for row in rows for kind in (row["kind"], *row["also"]))
            count += len(rows)
            move(count, count)
    if file:
        stream.close()
        print(f"{count:,} entries written to {file}")


def _pages(config: Config, kind: str | None) -> Iterator[list[questions.SuppressionRow]]:
    after: str | None = ""
    while after is not None:
        page = answer(config, questions.suppressions, after=after, limit=AT_ONCE, kind=kind)
        yield page["rows"]
        after = page["next"]


def forget(
    address: Address,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep only the address, on the suppression list, so that nothing more is sent to it."
        ),
    ] = False,
    archive: Archive = None,
    lake: InLake = None,
    proof: Proof = Path("forgotten.json"),
    subaddresses: Subaddresses = False,
    files_only: FilesOnly = False,
    plans: Plans = None,
    delete_plans: DeletePlans = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Erase a person from the queue, and optionally from the archive and the lake.

    In the queue, waiting mail to the address and everything stored about it is removed. In the archive, the lake and
    files of event sinks on this machine a random pseudonym replaces the address. Campaign reports that name the
    person are removed; campaign plans that do are listed, or deleted."""
    chosen = in_force(config, folder)
    if files_only and not (archive or lake or plans):
        raise CommandError(Exit.USAGE, "--files-only needs files; name them with --archive, --lake or --plans")
    if archive or lake:
        ready(proof, archive, lake)
    there(plans or ())
    with Telling(json) as tell:
        done = None if files_only else _forget_in_queue(chosen, address, keep, tell)
        in_sinks(chosen, address, subaddresses, tell)
        in_reports(chosen, address, subaddresses, tell)
        if archive or lake:
            in_files(address, proof, archive, lake, chosen.folder, subaddresses, done, tell)
        _say_logs(chosen, tell)
        in_plans(address, plans or [Path()], subaddresses, delete_plans, tell)


def _say_logs(chosen: Config, tell: Telling) -> None:
    """Lines on standard error belong to whoever keeps them."""
    tell(log_lines=chosen.log.personal)
    if chosen.log.personal != "whole":
        return
    tell(
        "log lines written until now may name the person for as long as journald or logrotate keeps them: they are not "
        'changed; [log] personal = "hashed" or "cut" keeps addresses out of lines to come'
    )


def _forget_in_queue(chosen: Config, address: str, keep: bool, tell: Telling) -> questions.Forgotten:
    done = answer(chosen, questions.forget, address=address, keep=keep, by=_me())
    tell(f"{done['removed']:,} recipients removed from the queue", **done)
    if done["listed"] and not keep:
        tell("its entry was removed from the suppression list: mail may be sent to it again (--keep prevents that)")
    if done["under_way"]:
        tell(f"{done['under_way']:,} are being delivered right now; run the command again when they have an answer")
    return done


def _me() -> str:
    """The user that gives the order, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "an operator"
