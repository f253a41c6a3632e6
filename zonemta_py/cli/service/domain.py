"""`zonemta domain`: sender domains with keys, return paths and links of their own, and their DNS records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, print_aside, print_json, print_table, printable
from zonemta_py.config import Config
from zonemta_py.mail.sender_domain import DomainRefused, checked_domain
from zonemta_py.queue import questions

app = typer.Typer(help="Sender domains of customers: keys, return paths, links, DNS records.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the senders' addresses.")]
Selector = Annotated[
    str | None, typer.Option("--selector", metavar="NAME", help="Of the key; default: of the month, such as z202611.")
]
Kind = Annotated[Literal["rsa", "ed25519"], typer.Option("--type", help="Kind of key.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="PEM file with a private key; default: one is made.")
]
_PAGE = 1_000


@app.command("list")
@tabled
def list_(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List the sender domains: whose they are, and whether their keys, return paths and links are used."""
    chosen = in_force(config, folder)
    rows = list(every(chosen))
    if json:
        return print_json(rows)
    cells = [
        (row["name"], row["tenant"], _signing(row), _used(row["return_path"], row["uses_return_path"]),
         _used(row["link"], row["uses_link"]), lacking(row))
        for row in rows
    ]  # fmt: skip
    columns = ("domain", "tenant", "signs with", "return path", "links", "to do in DNS")
    footer = "" if rows else "There are none; `zonemta domain add DOMAIN` makes one"
    return print_table(f"Sender domains: {len(rows)}", columns, cells, footer, ("domain", "to do in DNS"))


@app.command()
@tabled
def show(domain: Name, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show a sender domain, and the DNS records to publish."""
    chosen = in_force(config, folder)
    _print(chosen, _known(chosen, domain), json)


@app.command()
@tabled
def add(
    domain: Name,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Whose it is.")] = None,
    return_path: Annotated[
        str | None,
        typer.Option("--return-path", metavar="DOMAIN", help="Of its return paths; default: bounces. and its name."),
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="DOMAIN", help="Name that links in its mail begin with.")
    ] = None,
    selector: Selector = None,
    kind: Kind = "rsa",
    key: KeyFile = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Make a sender domain with a DKIM key, or change one; print the DNS records to publish.

    Nothing of it is used before its records were seen in DNS, by `zonemta domain check`, or within minutes by the MTA
    itself where [http] is enabled."""
    from zonemta_py.web import sender_domains

    chosen, name = in_force(config, folder), _checked(domain)
    before = answer(chosen, questions.domain, name=name)
    given = {"tenant": tenant, "return_path": return_path, "link": link}
    given = {field: value for field, value in given.items() if value is not None}
    try:
        change = sender_domains.change(chosen, name, given, before)
        if key is not None or before is None or not before["keys"]:
            change |= asyncio.run(sender_domains.key(name, selector, kind, _pem(key), before))
    except sender_domains.FieldRefused as error:
        raise CommandError(Exit.DATA, f"--{error.field.replace('_', '-')}: {error}") from None
    _print(chosen, answer(chosen, questions.domain_put, name=name, change=change, by="command"), json)


@app.command()
@tabled
def check(
    domain: Annotated[str | None, typer.Argument(metavar="DOMAIN", help="Only this one; default: all.")] = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Ask DNS for the records of sender domains, and use what is right. Exit status 1: something is to do."""
    chosen = in_force(config, folder)
    rows = [_known(chosen, domain)] if domain else list(every(chosen))
    if not rows:
        raise CommandError(Exit.DATA, "there are no sender domains; `zonemta domain add DOMAIN` makes one")
    rows = asyncio.run(_looked(chosen, rows))
    if len(rows) == 1:
        _print(chosen, rows[0], json)
    elif json:
        print_json(rows)
    else:
        cells = [(row["name"], _signing(row), lacking(row) or "nothing") for row in rows]
        print_table(f"Sender domains: {len(rows)}", ("domain", "signs with", "to do in DNS"), cells)
    if any(lacking(row) for row in rows):
        raise CommandError(Exit.PROBLEMS)


@app.command()
@tabled
def rotate(
    domain: Name,
    selector: Selector = None,
    kind: Kind = "rsa",
    key: KeyFile = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Make another DKIM key for a sender domain; it signs once its record was seen, and until then the present one."""
    from zonemta_py.web import sender_domains

    chosen = in_force(config, folder)
    before = _known(chosen, domain)
    try:
        change = asyncio.run(sender_domains.key(before["name"], selector, kind, _pem(key), before))
    except sender_domains.FieldRefused as error:
        raise CommandError(Exit.DATA, f"--key: {error}") from None
    _print(chosen, answer(chosen, questions.domain_put, name=before["name"], change=change, by="command"), json)


@app.command()
def remove(domain: Name, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Remove a sender domain with its keys. What comes back to its own return paths is refused from then on."""
    chosen, name = in_force(config, folder), _checked(domain)
    if not answer(chosen, questions.domain_remove, name=name, by="command"):
        raise _nobody(name)
    print_json({"removed": name}) if json else print(printable(f"{name} is removed"))


# -- what is asked


def _checked(domain: str) -> str:
    try:
        return checked_domain(domain)
    except DomainRefused as error:
        raise CommandError(Exit.DATA, str(error)) from None


def _known(chosen: Config, domain: str) -> questions.DomainRow:
    name = _checked(domain)
    row = answer(chosen, questions.domain, name=name)
    if row is None:
        raise _nobody(name)
    return row


def _nobody(name: str) -> CommandError:
    return CommandError(
        Exit.DATA, f"there is no sender domain {name}; `zonemta domain list` shows those that there are"
    )


def every(chosen: Config) -> Iterator[questions.DomainRow]:
    after: str | None = ""
    while after is not None:
        page = answer(chosen, questions.domains, after=after, limit=_PAGE)
        yield from page["rows"]
        after = page["next"]


def _pem(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise CommandError(Exit.NO_INPUT, f"{path}: {why}; name a PEM file with a private key") from None


async def _looked(chosen: Config, rows: list[questions.DomainRow]) -> list[questions.DomainRow]:
    from zonemta_py.web import sender_domains

    places = asyncio.Semaphore(8)

    async def ask(question: Any, *_: Any, **arguments: Any) -> Any:
        return await asyncio.to_thread(lambda: answer(chosen, question, **arguments))

    async def one(row: questions.DomainRow) -> questions.DomainRow:
        async with places:
            return await sender_domains.looked(ask, chosen, row)

    return list(await asyncio.gather(*map(one, rows)))


# -- what is shown


def _signing(row: questions.DomainRow) -> str:
    return ", ".join(key["selector"] for key in row["keys"] if key["state"] == "signs") or "nothing"


def _used(name: str, used: bool) -> str:
    return name if used or not name else f"({name})"


def lacking(row: questions.DomainRow) -> str:
    """Which records are not right, as far as DNS was asked."""
    seen = {one["record"]: one for one in row["seen"]}
    needed = [key["selector"] for key in row["keys"] if key["state"] != "retired"]
    needed += ["return_path", "spf"] * bool(row["return_path"]) + ["link"] * bool(row["link"])
    return ", ".join(name for name in needed if name not in seen or not _right(seen[name]))


def _right(one: questions.DomainRecordSeen) -> bool:
    """Also where DNS did not answer just now, and had it before."""
    return one["status"] == "ok" or (one["status"] == "unknown" and one["ok_ms"] > 0)


def _print(chosen: Config, row: questions.DomainRow, json: bool) -> None:
    from zonemta_py.web import sender_domains

    whole = sender_domains.with_records(chosen, row)
    if json:
        return print_json(whole)
    now_ms = int(time.time() * 1000)
    records = [
        (one["record"], one["name"], one["type"], one["value"],
         one["status"] if one["at_ms"] else "not asked yet", one["words"] or one["why"])
        for one in whole["records"]
    ]  # fmt: skip
    of = f", of {row['tenant']}" if row["tenant"] else ""
    title = f"{row['name']}{of}: signs with {_signing(row)}"
    if as_records():
        return print_table(title, ("record", "name", "type", "value", "status", "notes"), records)
    cells = [(record, name, kind, status, notes) for record, name, kind, _, status, notes in records]
    print_table(title, ("record", "name", "type", "status", "notes"), cells, "", ("name", "notes"))
    retired = {key["selector"] for key in row["keys"] if key["state"] == "retired"}
    wrong = [one for one in whole["records"] if one["status"] != "ok" and one["record"] not in retired]
    for one in wrong:
        print(printable(f"publish: {one['line']}"))
    asked = max((one["at_ms"] for one in whole["records"]), default=0)
    if asked:
        print_aside(f"DNS was asked {when.since(asked, now_ms)}")
    elif wrong:
        print_aside(f"then: zonemta domain check {row['name']}")
    return None
