"""`zonemta tls …`: which policy a domain has and what its servers offer; the daily reports on TLS."""

from __future__ import annotations

import asyncio
import datetime
import json as jsonlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, tabled
from zonemta_py.cli.terminal.output import print_json, print_table
from zonemta_py.config import Config, Zone

if TYPE_CHECKING:
    from zonemta_py.mail.tls.reports import TlsReport

app = typer.Typer(help="Check TLS policies of other servers, and send TLS reports.", no_args_is_help=True)

_COLUMNS = ("Host", "Address", "Policy", "Delivers", "Certificate")


@app.command()
@tabled
def check(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Recipient domain.")],
    zone: Annotated[str | None, typer.Option(help="Check for this zone; default: the default zone.")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Connect to a domain's servers and show policy, offered TLS, and whether mail would be sent. Sends nothing."""
    from zonemta_py.delivery.tls_check import look

    settings = configuration(config)
    found = asyncio.run(look(settings, _zone(settings, zone), domain))
    if found.problem:
        raise CommandError(Exit.UNAVAILABLE, found.problem)
    if json:
        print_json({"domain": domain, "notes": found.notes, "hosts": [row._asdict() for row in found.rows]})
    else:
        print_table(f"TLS with {domain}", _COLUMNS, found.rows, "\n".join(found.notes))
    if not any(row.delivers.startswith("yes") for row in found.rows):
        raise CommandError(Exit.PROBLEMS)


def _zone(settings: Config, name: str | None) -> Zone:
    if name is None:
        return settings.default_zone
    found = settings.zone(name)
    if found is None:
        names = ", ".join(zone.name for zone in settings.zones)
        raise CommandError(Exit.USAGE, f"--zone: there is no zone {name!r}; use one of {names}")
    return found


@app.command()
@tabled
def report(
    day: Annotated[
        datetime.datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day (UTC); default: yesterday.")
    ] = None,
    send: Annotated[bool, typer.Option("--send", help="Send each report to the addresses published in DNS.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Create TLS reports (RFC 8460) for a day from journal and archive; needs tls.reports = true."""
    from zonemta_py.delivery.tls.mail import reporter
    from zonemta_py.delivery.tls.reports import seen_on
    from zonemta_py.mail.tls.reports import reports_for

    settings = configuration(config, folder)
    which = day.date() if day else datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    reports = reports_for(which, seen_on(settings.folder, which), reporter(settings))
    if json:
        print(jsonlib.dumps([report.body for report in reports], indent=2, ensure_ascii=False))
    else:
        print_table(f"TLS on {which} (UTC)", ("Domain", "Policy", "Good ", "Failed ", "Why"), _rows(reports))
    if send:
        for said in asyncio.run(_send(settings, which)):
            print(said)


def _rows(reports: list[TlsReport]) -> list[list[Any]]:
    return [
        [
            report.domain,
            policy["policy"]["policy-type"],
            policy["summary"]["total-successful-session-count"],
            policy["summary"]["total-failure-session-count"],
            ", ".join(sorted({row["result-type"] for row in policy.get("failure-details", [])})),
        ]
        for report in reports
        for policy in report.body["policies"]
    ]


async def _send(settings: Config, day: datetime.date) -> list[str]:
    """Mail goes through our own listener, and so through our own queue."""
    from zonemta_py.cli.send import commands as sending
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.delivery.tls.mail import send_day

    async def hand_in(sender: str, recipients: list[str], message: bytes) -> None:
        submission = sending.OutgoingMail(sender, recipients, message)
        way = sending.door(settings, None, None)
        try:
            await asyncio.to_thread(sending.hand_in, submission, way, settings.limits.recipients)
        except CommandError as stop:
            raise OSError(stop.sentence) from None

    return await send_day(settings, day, DnsDestinationResolver(settings), hand_in)
