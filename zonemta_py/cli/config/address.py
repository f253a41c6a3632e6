"""`zonemta verp …`, `zonemta srs …`, `zonemta address`: decodes our return paths, and says what comes of mail there."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import print_json
from zonemta_py.config import Config
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import folders, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import EnvelopeRecord
from zonemta_py.mail.addresses import srs as srs_paths
from zonemta_py.mail.addresses import verp as verp_paths
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.link import UNKNOWN, Link, LinkRefused, age, decode
from zonemta_py.mail.addresses.ours import NotOurs, Ours

verp = typer.Typer(help="Decode VERP return paths, which carry message and recipient.", no_args_is_help=True)
srs = typer.Typer(help="Decode SRS return paths, rewritten from other domains.", no_args_is_help=True)

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="A return path.")]
_DAY_S = 86_400


@verp.callback()
def _verp() -> None:
    """A group, though it has one command."""


@srs.callback()
def _srs() -> None:
    """A group, though it has one command."""


@verp.command("decode")
def decode_verp(address: Address, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show which message and recipient a VERP return path belongs to, if it is genuine.

    A recipient that was too long to be encoded is looked up in journal and archive.
    """
    settings = configuration(config, folder)
    path = _settings(settings)
    try:
        found = verp_paths.decode(_bare(address), path.secrets, _today(), path.days)
    except verp_paths.VerpRefused as refused:
        raise CommandError(Exit.DATA, f"{address}: {refused}") from None
    _check_ours(address, path.verp, "return_path.verp")
    recipient = found.recipient or _looked_up(found, settings)
    if json:
        print_json({"id": found.id, "recipient": recipient, "days": found.days})
    else:
        print(f"message {found.id} to {recipient or 'an unknown recipient'}, made {found.days} days ago")


def _looked_up(found: verp_paths.Return, settings: Config) -> str:
    """ "" if the message is not in journal or archive (any more)."""
    places = [place / part for place in folders.every(settings.folder).values() for part in ("journal", "archive")]
    for record in (record for place in places for record in segments.read(place)):
        if record.type == Type.ENVELOPE and (envelope := EnvelopeRecord.of(unpack(record.body))).id == found.id:
            return next((row.address for row in envelope.rows() if found.is_to(row.address)), "")
    return ""


@srs.command("decode")
def decode_srs(address: Address, config: ConfigFile = None, json: AsJson = False) -> None:
    """Print the original address of an SRS return path, if it is genuine."""
    path = _settings(configuration(config))
    try:
        stands_for = srs_paths.reverse(_bare(address), path.secrets, _today(), path.srs_days)
    except srs_paths.SrsRefused as refused:
        raise CommandError(Exit.DATA, f"{address}: {refused}") from None
    _check_ours(address, path.srs, "return_path.srs")
    print_json({"address": stands_for}) if json else print(stands_for)


def address_(address: Address, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show what an address or link of this MTA is for, and how mail to it is handled.

    Decodes VERP, SRS and unsubscribe addresses, and links made by [links]. Exit status 65: it is refused.
    """
    settings = configuration(config, folder)
    if is_link(address):
        found_row = link_row(address, settings, _today())
        print_json(found_row) if json else print(found_row["what"])
        return
    taking = [one.name for one in settings.listeners if one.feedback]
    try:
        found = settings.return_path.domains.find(_bare(address), _today())
    except NotOurs as refused:
        raise CommandError(Exit.DATA, f"{address}: refused with 550 5.1.1: {refused}") from None
    if found is None:
        at_ours = settings.return_path.domains.holds(_bare(address))
        why = (
            "not one of this MTA's addresses at that domain"
            if at_ours
            else "not an address of [return_path]; only who may relay"
        )
        raise CommandError(Exit.DATA, f"{address}: {why}{'' if at_ours else ' can send to it'}")
    row = _row(found, settings)
    if json:
        print_json(row | {"listeners": taking})
        return
    where = f"at {', '.join(taking)}" if taking else "by no listener here: none has feedback = true"
    print(f"{row['what']}; taken {where}")


def _row(found: Ours, settings: Config) -> dict[str, object]:
    row: dict[str, object] = {"purpose": found.purpose}
    if found.forward:
        return row | {"forward": found.forward, "what": f"bounces (null sender only) are forwarded to {found.forward}"}
    if found.purpose == "report":
        return row | {"what": "a configured address: takes DMARC aggregate reports and TLS reports"}
    if found.returned is None:
        return row | {"what": f"a configured address ({found.purpose}): suppresses only what proves to be genuine"}
    returned = found.returned
    recipient = returned.recipient or _looked_up(returned, settings)
    row |= {"id": returned.id, "recipient": recipient, "days": returned.days}
    whose = f"message {returned.id} to {recipient or 'an unknown recipient'}, made {returned.days} days ago"
    if found.purpose == "unsubscribe":
        return row | {"scope": found.scope, "what": f"any mail here unsubscribes ({found.scope}): {whose}"}
    return row | {"what": f"a report here is about {whose}"}


def _settings(settings: Config) -> ReturnPath:
    path = settings.return_path
    if not path.secret:
        raise CommandError(Exit.CONFIG, "return_path.secret is empty; name the MTA's configuration with --config")
    return path


def _check_ours(address: str, ours: str, key: str) -> None:
    """The address must be at that domain; without such a key this is another host's configuration. Raises
    CommandError."""
    domain = _bare(address).rpartition("@")[2]
    if ours and canonical(domain) != canonical(ours):
        raise CommandError(Exit.DATA, f"{address}: {domain} is not ours; {key} is {ours}")


def _bare(address: str) -> str:
    return address.strip().removeprefix("<").removesuffix(">")


def _today() -> int:
    return int(time.time()) // _DAY_S


_PURPOSES = {
    "unsubscribe": "a click on its button, or the POST of a mail program, unsubscribes",
    "preferences": "the preferences page",
    "open": "a tracking image; loading it counts as an open",
    "click": "a redirect that counts as a click",
}


def is_link(text: str) -> bool:
    """Rather than an address."""
    return text.lower().startswith(("https://", "http://"))


def link_row(url: str, settings: Config, today: int) -> dict[str, object]:
    """What it is for; "what" in words. Raises CommandError for one that would be refused."""
    links = settings.links
    if not links.secrets:
        raise CommandError(Exit.CONFIG, "links.secrets is empty; name the MTA's configuration with --config")
    try:
        link = decode(url.partition("?")[0].rstrip("/").rpartition("/")[2], links.secrets)
    except LinkRefused as refused:
        raise CommandError(Exit.DATA, f"{url}: refused with 403: {refused}") from None
    days = age(link, today)
    if days > links.days and link.purpose in ("unsubscribe", "preferences"):
        raise CommandError(Exit.DATA, f"{url}: refused with 410: it is {days} days old, links.days is {links.days}")
    return {
        "purpose": link.purpose, "id": "" if link.id == UNKNOWN else link.id, "recipient": link.recipient,
        "campaign": link.campaign, "tenant": link.tenant, "scope": link.entry_scope, "days": days,
        "target": link.target, "what": _link_words(link, days),
    }  # fmt: skip


def _link_words(link: Link, days: int) -> str:
    where = f" ({link.entry_scope})" if link.purpose == "unsubscribe" else f" to {link.target}" * bool(link.target)
    message = "a message" if link.id == UNKNOWN else f"message {link.id}"
    return f"{_PURPOSES[link.purpose]}{where}: {message} to {link.recipient}, made {days} days ago"
