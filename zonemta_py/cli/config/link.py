"""What a link of ours in a mail says, as `zonemta address URL` shows it."""

from __future__ import annotations

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.config import Config
from zonemta_py.mail.addresses.link import UNKNOWN, Link, LinkRefused, age, decode

_WHAT = {
    "unsubscribe": "a click on its button, or the POST of a mail program, unsubscribes",
    "preferences": "the preferences page",
    "open": "a tracking image; loading it counts as an open",
    "click": "a redirect that counts as a click",
}


def is_link(text: str) -> bool:
    """Rather than an address."""
    return text.lower().startswith(("https://", "http://"))


def row(url: str, settings: Config, today: int) -> dict[str, object]:
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
        "target": link.target, "what": _words(link, days),
    }  # fmt: skip


def _words(link: Link, days: int) -> str:
    where = f" ({link.entry_scope})" if link.purpose == "unsubscribe" else f" to {link.target}" * bool(link.target)
    message = "a message" if link.id == UNKNOWN else f"message {link.id}"
    return f"{_WHAT[link.purpose]}{where}: {message} to {link.recipient}, made {days} days ago"
