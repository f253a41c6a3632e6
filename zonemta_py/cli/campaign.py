"""`zonemta campaign …`: is a template sound, and what would one recipient get; the other commands are beside this."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli import campaign_orders, campaign_send
from zonemta_py.cli.campaign_list import ADDRESS_COLUMNS, Row, address_column, columns, row_of, rows
from zonemta_py.cli.errors import Exit, Stop
from zonemta_py.mail.domain import canonical
from zonemta_py.mail.trace import date

if TYPE_CHECKING:
    from zonemta_py.merge.render import Compiled

app = typer.Typer(help="Send campaigns: one template to a list, each with its own fields.", no_args_is_help=True)
app.command("send")(campaign_send.send)
app.command("pause")(campaign_orders.pause)
app.command("resume")(campaign_orders.resume)
app.command("cancel")(campaign_orders.cancel)
app.command("status")(campaign_orders.status)
app.command("list")(campaign_orders.list_)

Template = Annotated[Path, typer.Argument(metavar="TEMPLATE", help="A folder with template.toml, or a file.")]
List = Annotated[
    Path | None,
    typer.Option("--list", metavar="FILE", help="CSV, JSON lines or Parquet; its column email is the recipient."),
]
_SHOWN = 20
_SPACES = " \t\r\n\v\f\u00a0\u200b\ufeff"


@app.command()
def check(template: Template, list_: List = None) -> None:
    """Say all that is wrong with a template, and with every row of the list it is for."""
    compiled = _compiled(template, list_)
    if list_ is None:
        print(f"{template}: good")
        return
    column = address_column(list_)
    now = date(int(time.time()))
    count = size = bad = 0
    shown: list[str] = []
    for line, row in rows(list_):
        count += 1
        try:
            size += len(_rendered(compiled, row, row[column], "check", now))
        except Stop as stop:
            bad += 1
            if bad <= _SHOWN:
                shown.append(f"{list_}:{line}: {stop.sentence}")
    if bad:
        more = [f"and {bad - _SHOWN} more rows"] if bad > _SHOWN else []
        raise Stop(Exit.DATA, "\n".join([*shown, *more]))
    print(f"{template}: good for all {count} rows of {list_}, {size // max(1, count):,} bytes each on average")


@app.command()
def preview(
    template: Template,
    list_: List = None,
    recipient: Annotated[str, typer.Option(metavar="ADDRESS", help="Whose message; none: the list's first.")] = "",
    field: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A field; can be given again.")] = None,
    campaign: Annotated[str, typer.Option(metavar="NAME", help="What the campaign is called.")] = "preview",
    html: Annotated[bool, typer.Option("--html", help="Write the HTML part to a file, and say which.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write, in place of stdout.")] = None,
) -> None:
    """Print one recipient's message exactly as it would go out, but for its date."""
    compiled = _compiled(template, list_)
    row = row_of(list_, recipient) if list_ else {}
    named = next((row[name] for name in ADDRESS_COLUMNS if row.get(name)), recipient)  # the list's spelling goes out
    row |= _given(field or [])
    address = _spelled(named or next((row[name] for name in ADDRESS_COLUMNS if row.get(name)), "recipient@example.com"))
    message = _rendered(compiled, row, address, campaign, date(int(time.time())))
    if html:
        content = compiled.html_text(row, address, campaign).encode()
        if not content:
            raise Stop(Exit.DATA, f"{template} has no HTML; leave --html out")
        target = output or Path("preview.html")
        target.write_bytes(content)
        print(target)
    elif output:
        output.write_bytes(message)
        print(output)
    else:
        print(message.decode().replace("\r\n", "\n"), end="")


def _spelled(address: str) -> str:
    """As `campaign send` spells it: trimmed, the domain in lower case and A-labels."""
    local, at, domain = address.strip(_SPACES).rpartition("@")
    return f"{local}{at}{canonical(domain) if at else domain}"


def _compiled(template: Path, list_: Path | None) -> Compiled:
    from zonemta_py.merge.compile import compile, prepare
    from zonemta_py.merge.load import load
    from zonemta_py.merge.problems import TemplateRefused, ToolMissing

    names = columns(list_) if list_ else None
    try:
        return compile(prepare(load(template), names))
    except TemplateRefused as refused:
        raise Stop(Exit.DATA, "\n".join(map(str, refused.problems[:_SHOWN]))) from None
    except ToolMissing as missing:
        raise Stop(Exit.UNAVAILABLE, str(missing)) from None


def _rendered(compiled: Compiled, row: Row, address: str, campaign: str, date: str) -> bytes:
    from zonemta_py.merge.problems import RenderRefused

    try:
        return compiled.render(row, address, campaign, date)
    except RenderRefused as refused:
        raise Stop(Exit.DATA, str(refused)) from None


def _given(fields: list[str]) -> Row:
    for one in fields:
        if not one.partition("=")[0].isidentifier() or "=" not in one:
            raise Stop(Exit.USAGE, f"--field {one!r} is not NAME=VALUE; write, for instance, --field first_name=Ada")
    return {name: value for name, _, value in (one.partition("=") for one in fields)}
