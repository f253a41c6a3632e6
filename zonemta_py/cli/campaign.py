"""`zonemta campaign …`: is a template sound, and what would one recipient get."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from email.utils import formatdate
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.errors import Exit, Stop

if TYPE_CHECKING:
    from zonemta_py.merge.render import Compiled

app = typer.Typer(help="Check and preview templates of campaigns.", no_args_is_help=True)

Template = Annotated[Path, typer.Argument(metavar="TEMPLATE", help="A folder with template.toml, or a file.")]
List = Annotated[
    Path | None,
    typer.Option("--list", metavar="FILE", help="CSV with a header row; its column email is the recipient."),
]
Row = dict[str, str]
_SHOWN = 20
_ADDRESS_COLUMNS = ("email", "address", "recipient")


@app.command()
def check(template: Template, list_: List = None) -> None:
    """Say all that is wrong with a template, and with every row of the list it is for."""
    compiled = _compiled(template, list_)
    if list_ is None:
        print(f"{template}: good")
        return
    column = _address_column(list_)
    date = formatdate(time.time(), usegmt=True)
    rows = size = bad = 0
    shown: list[str] = []
    for line, row in _rows(list_):
        rows += 1
        try:
            size += len(_rendered(compiled, row, row[column], "check", date))
        except Stop as stop:
            bad += 1
            if bad <= _SHOWN:
                shown.append(f"{list_}:{line}: {stop.sentence}")
    if bad:
        more = [f"and {bad - _SHOWN} more rows"] if bad > _SHOWN else []
        raise Stop(Exit.DATA, "\n".join([*shown, *more]))
    print(f"{template}: good for all {rows} rows of {list_}, {size // max(1, rows):,} bytes each on average")


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
    row = _row(list_, recipient) if list_ else {}
    row |= _given(field or [])
    address = recipient or next((row[name] for name in _ADDRESS_COLUMNS if row.get(name)), "recipient@example.com")
    message = _rendered(compiled, row, address, campaign, formatdate(time.time(), usegmt=True))
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


def _compiled(template: Path, list_: Path | None) -> Compiled:
    from zonemta_py.merge.compile import compile, prepare
    from zonemta_py.merge.load import load
    from zonemta_py.merge.problems import TemplateRefused, ToolMissing

    columns = _columns(list_) if list_ else None
    try:
        return compile(prepare(load(template), columns))
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


def _columns(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        try:
            names = next(csv.reader(lines), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise Stop(Exit.DATA, f"{file}: this is not CSV in UTF-8 ({error}); save it as such") from None
    for name in names:
        if not name.isidentifier():
            raise Stop(Exit.DATA, f"{file}:1: a template cannot name the column {name!r}; use letters, digits and _")
    return names


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    """Line and fields of each row. Raises Stop."""
    names = _columns(file)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines)
        try:
            for values in islice(reader, 1, None):
                if values and len(values) != len(names):
                    sentence = f"the row has {len(values)} fields, the header {len(names)}; mend its commas and quotes"
                    raise Stop(Exit.DATA, f"{file}:{reader.line_num}: {sentence}")
                if values:
                    yield reader.line_num, dict(zip(names, values, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise Stop(Exit.DATA, f"{file}:{reader.line_num + 1}: {error}; save it as CSV in UTF-8") from None


def _address_column(file: Path) -> str:
    names = _columns(file)
    for name in _ADDRESS_COLUMNS:
        if name in names:
            return name
    raise Stop(Exit.DATA, f"{file}:1: no column says who the recipient is; name one of them email")


def _row(file: Path, recipient: str) -> Row:
    column = _address_column(file)
    for _, row in _rows(file):
        if not recipient or row[column].strip().lower() == recipient.strip().lower():
            return row
    raise Stop(
        Exit.DATA, f"{file}: {recipient or 'nobody'} is not in the list; take an address from its column {column}"
    )


def _given(fields: list[str]) -> Row:
    for one in fields:
        if not one.partition("=")[0].isidentifier() or "=" not in one:
            raise Stop(Exit.USAGE, f"--field {one!r} is not NAME=VALUE; write, for instance, --field first_name=Ada")
    return {name: value for name, _, value in (one.partition("=") for one in fields)}
