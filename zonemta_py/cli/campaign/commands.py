"""`zonemta campaign …`: checks a template, and shows what one recipient would get; the other commands are beside this.

Commands that show one recipient's message (`preview`, `test`) render it as a sender process does.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.campaign import orders, report, send, variants
from zonemta_py.cli.campaign.list import CampaignList, Row
from zonemta_py.cli.campaign.options import Encoding
from zonemta_py.cli.campaign.settings import left, status_column
from zonemta_py.cli.send.commands import compose, door, hand_in
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.cli.terminal.rejects import Rejects, apart, beside
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.link import PRINTED, UNKNOWN, WIDENING, Link, Scope, printed
from zonemta_py.mail.addresses.written import bare
from zonemta_py.mail.fields import date
from zonemta_py.mail.headers import split
from zonemta_py.mail.list_id import list_name, list_title
from zonemta_py.pipeline.prepare.source.dialect import ADDRESS_COLUMNS, is_nested

if TYPE_CHECKING:
    from zonemta_py.config import Config
    from zonemta_py.merge.render import Compiled
    from zonemta_py.merge.source import TemplateSource

app = typer.Typer(
    help="Send campaigns: one template to a list of recipients, each with their own fields.", no_args_is_help=True
)
app.command("send")(send.send)
app.command("suspend")(orders.suspend)
app.command("pause", hidden=True)(orders.suspend)
app.command("resume")(orders.resume)
app.command("schedule")(orders.schedule)
app.command("winner")(variants.winner)
app.command("text")(orders.text)
app.command("cancel")(orders.cancel)
app.command("status")(orders.status)
app.command("list")(orders.list_)
app.command("report")(report.report)

Template = Annotated[Path, typer.Argument(metavar="TEMPLATE", help="A folder with template.toml, or a file.")]
List = Annotated[
    Path | None,
    typer.Option(
        "--list", metavar="FILE", help="CSV, JSON lines, Parquet or a folder; recipients are in the column email."
    ),
]
Map = Annotated[
    list[str] | None, typer.Option("--map", metavar="NAME=COLUMN", help="Column of the list for a field; repeatable.")
]
Recipient = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Recipient to render for; default: the first in the list.")
]
Field = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A field, NAME=VALUE; repeatable.")]
_SHOWN = 20
_TIMES = ("X-Deliver-After", "X-Deliver-By", "X-Window", "X-Time-Zone")


@app.command()
def check(
    template: Template,
    list_: List = None,
    map_: Map = None,
    encoding: Encoding = "",
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for bad rows, with reasons; default: LIST.rejects.csv here."),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Check a template, and every row of its list, and what the enabled plugins make of it."""
    settings = configuration(config)
    with Telling(json) as tell:
        if list_ is None:
            _show_plugins(settings, template, _compiled(template, None)[1], tell)
            return tell(f"{template}: good", template=template)
        return _check_list(template, list_, map_, encoding, rejects, tell, settings)


def _show_plugins(settings: Config, template: Path, source: TemplateSource, tell: Telling) -> None:
    if settings.plugins.enabled:
        from zonemta_py.cli.campaign.plugins import look  # mostly there are none

        look(settings, template, source, tell)


def _check_list(
    template: Path, list_: Path, map_: list[str] | None, encoding: str, rejects: Path | None, tell: Telling,
    settings: Config,
) -> None:  # fmt: skip
    """Raises CommandError."""
    chosen = CampaignList(list_, map_ or [], encoding)
    print(chosen.said, file=sys.stderr)
    compiled, source = _compiled(template, chosen)
    _show_plugins(settings, template, source, tell)
    now, count, size = date(int(time.time())), 0, 0
    column = next((name for name in chosen.columns if status_column(name)), "")
    says, broken = Counter[str](), 0
    bad = Rejects(apart(rejects or beside(list_), list_), chosen.columns)
    with closing(bad):
        for line in chosen.rows():
            count += 1
            broken += any("\n" in value for value in line.values if isinstance(value, str))
            try:
                if line.wrong:
                    raise CommandError(Exit.DATA, line.wrong)
                if column:
                    says[line.values[chosen.columns.index(column)]] += 1
                row = compiled.complete(line.row)
                size += len(_rendered(compiled, row, _spelled(line.row[chosen.address]), "check", now))
            except CommandError as stop:
                bad.add(str(line.file), line.line, stop.sentence, line.values)
    if broken:
        what = f"{broken:,} rows have line breaks in their fields; `zonemta campaign send --multiline` takes them"
        print(what, file=sys.stderr)
    if sentence := left(says, column):
        print(sentence, file=sys.stderr)
    mean = size // max(1, count - bad.count)
    tell(template=template, rows=count, rejected=bad.count, rejects=bad.file if bad.count else None, bytes_mean=mean)
    if bad.count:
        raise CommandError(Exit.DATA, bad.sentence(count))
    tell(f"{template}: good for all {count} rows of {list_}, {mean:,} bytes each on average")


@app.command()
def preview(
    template: Template,
    list_: List = None,
    map_: Map = None,
    encoding: Encoding = "",
    recipient: Recipient = "",
    field: Field = None,
    campaign: Annotated[str, typer.Option(metavar="NAME", help="Name of the campaign.")] = "preview",
    html: Annotated[
        bool, typer.Option("--html", help="Write the HTML part to a file, and print the file name.")
    ] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Output file; default: stdout.")] = None,
) -> None:
    """Print one recipient's message as it would be sent, except for its date and for additions of the MTA: links of
    [links] and unsubscribe fields, signatures, return paths. `campaign test` includes these.
    """
    compiled, row, address, _ = _one(template, list_, map_, recipient, field, encoding)
    row = compiled.complete(row)
    message = _rendered(compiled, row, address, campaign, date(int(time.time())))
    if html:
        content = compiled.html_text(row, address, campaign).encode()
        if not content:
            raise CommandError(Exit.DATA, f"{template} has no HTML part; omit --html")
        target = output or Path("preview.html")
        target.write_bytes(content)
        print(target)
    elif output:
        output.write_bytes(message)
        print(output)
    else:
        print(message.decode().replace("\r\n", "\n"), end="")


@app.command("test")
def to_oneself(
    template: Template,
    to: Annotated[list[str], typer.Option("--to", metavar="ADDRESS", help="Your address; repeatable.")],
    list_: List = None,
    map_: Map = None,
    encoding: Encoding = "",
    recipient: Recipient = "",
    field: Field = None,
    sender: Annotated[str, typer.Option(metavar="ADDRESS", help="Return path; default: the template's From.")] = "",
    host: Annotated[str | None, typer.Option(help="Server to submit it to; default: the running MTA.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of that server.")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Send one recipient's message to yourself, through the running MTA. The recipient gets nothing.

    Fields of the template that set the sending time are ignored: it is sent at once. Its unsubscribe links are for your
    address: they unsubscribe you, not the recipient.
    """
    settings = configuration(config)
    compiled, row, address, source = _one(template, list_, map_, recipient, field, encoding)
    now, way = date(int(time.time())), door(settings, host, port)
    made = []
    for one in dict.fromkeys(map(_spelled, to)):
        links = _links(settings, source, row, one)
        message = _rendered(compiled, compiled.complete(row, links), address, "test", now)
        headers, body = split(message)
        for name in _TIMES:
            headers.remove(name)
        message = headers.build() + message[body:]
        made.append(compose(message, [one], from_header=False, sender=sender or None, whole=True))
    for submission in made:
        hand_in(submission, way, settings.limits.recipients)
    to = [one for submission in made for one in submission.recipients]
    with Telling(json) as tell:
        words = f"the message of {address} is in the queue for {', '.join(to)}"
        if compiled.links - row.keys():
            words += "; who leaves by its links leaves by the tester's own address"
        tell(words, recipient=address, to=to)


def _links(settings: Config, source: TemplateSource, row: Row, address: str) -> dict[str, str]:
    """What the template prints for somebody, beside the row's fields, as it is sent. Raises CommandError."""
    from zonemta_py.merge.compile import wanted
    from zonemta_py.merge.schedule_fields import list_id, said

    links, day = settings.links, int(time.time()) // 86_400
    if not links.enabled:
        if lacking := (PRINTED.keys() & wanted(source).keys()) - row.keys():
            what = f"the template prints {min(lacking)}, which a server makes that has [links] enabled = true"
            raise CommandError(Exit.CONFIG, f"{what}; enable it, or give the list such a column")
        return {}
    asked = said(source).get("X-Unsubscribe", "").lower()
    scope: Scope = asked if asked in WIDENING else links.scope
    said_list = list_id(source)
    list_ = {"list_name": list_name(said_list), "list_title": list_title(said_list)}
    link = Link("unsubscribe", UNKNOWN, address, "test", "", scope, day, **list_)
    return printed(links.url, link, links.secrets)


def _one(
    template: Path, list_: Path | None, map_: list[str] | None, recipient: str, field: list[str] | None, encoding: str
) -> tuple[Compiled, Row, str, TemplateSource]:
    """The data of one recipient's message, the address as it is sent, and the prepared template. Raises
    CommandError."""
    chosen = CampaignList(list_, map_ or [], encoding) if list_ else None
    compiled, source = _compiled(template, chosen)
    row = chosen.row_of(recipient) if chosen else {}
    named = next((row[name] for name in ADDRESS_COLUMNS if row.get(name)), recipient)  # the list's spelling is sent
    row |= _given(field or [])
    named = named or next((row[name] for name in ADDRESS_COLUMNS if row.get(name)), "recipient@example.com")
    return compiled, row, _spelled(named), source


def _spelled(address: str) -> str:
    """As `campaign send` spells it: the address alone, the domain in lower case and A-labels."""
    local, at, domain = bare(address).rpartition("@")
    return f"{local}{at}{canonical(domain) if at else domain}"


def _compiled(template: Path, list_: CampaignList | None) -> tuple[Compiled, TemplateSource]:
    """Raises CommandError."""
    from zonemta_py.merge.compile import compile, prepare
    from zonemta_py.merge.compile import fields as fields_of
    from zonemta_py.merge.load import load
    from zonemta_py.merge.problems import TemplateRefused, ToolMissing

    names = list(list_.fields) if list_ else None
    try:
        source = prepare(load(template), names)
        compiled = compile(source)
        if list_ and (nested := sorted(one for one in fields_of(source) if list_.fields.get(one) in list_.nested)):
            raise CommandError(Exit.DATA, f"{list_.path}: {is_nested(nested[0])}")
        return compiled, source
    except TemplateRefused as refused:
        raise CommandError(Exit.DATA, "\n".join(map(str, refused.problems[:_SHOWN]))) from None
    except ToolMissing as missing:
        raise CommandError(Exit.UNAVAILABLE, str(missing)) from None


def _rendered(compiled: Compiled, row: Row, address: str, campaign: str, date: str) -> bytes:
    from zonemta_py.merge.problems import RenderRefused

    try:
        return compiled.render(row, address, campaign, date)
    except RenderRefused as refused:
        raise CommandError(Exit.DATA, str(refused)) from None


def _given(fields: list[str]) -> Row:
    for one in fields:
        if not one.partition("=")[0].isidentifier() or "=" not in one:
            raise CommandError(
                Exit.USAGE, f"--field {one!r} is not NAME=VALUE; write, for instance, --field first_name=Ada"
            )
    return {name: value for name, _, value in (one.partition("=") for one in fields)}
