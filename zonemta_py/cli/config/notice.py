"""`zonemta config notice`: what a notice to a sender looks like, with an invented message."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import ConfigFile, configuration
from zonemta_py.mail.dsn import build
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.mail.reply import Reply

HOUR_MS = 3_600_000
_PLAIN = re.compile(r"[\w .-]+")
RECEIVED_MS = 1_795_161_600_000
_HEADER = b"From: ann@example.com\r\nTo: bob@example.net\r\nSubject: Your order\r\nMessage-ID: <1@example.com>\r\n"
_UNKNOWN = Reply(550, "5.1.1", "no such user here")
_BUSY = Reply(451, "4.3.0", "try again later")


class NoticeKind(StrEnum):
    """What is told."""

    failed = "failed"
    expired = "expired"
    delayed = "delayed"
    relayed = "relayed"
    delivered = "delivered"


def notice(
    kind: Annotated[
        NoticeKind, typer.Argument(help="Kind of notice: failed, expired, delayed, relayed or delivered.")
    ] = (NoticeKind.failed),
    config: ConfigFile = None,
    tenant: Annotated[str, typer.Option(help="Tenant whose mail it is about; default: none.")] = "",
    languages: Annotated[str, typer.Option("--language", help="Override the configured languages: de, or de,en.")] = "",
    texts: Annotated[Path | None, typer.Option(help="Folder with texts to try; overrides the configured one.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Print the whole message, not only the readable part.")
    ] = False,
) -> None:
    """Show the text of a notice to a sender, as configured."""
    from zonemta_py.queue.lifecycle.notices import wording

    settings = configuration(config)
    terms = settings.notices.terms(tenant)
    if tenant and all(one.tenant != tenant for one in settings.notices.tenants):
        raise CommandError(
            Exit.USAGE, f"[[notices.tenants]] has no tenant {tenant!r}: its notices are the usual ones; leave it out"
        )
    chosen = tuple(languages.split(",")) if languages else terms.languages
    words = wording(settings, terms._replace(languages=chosen, texts=texts or terms.texts))
    envelope = Envelope("ann@example.com", [], received_ms=RECEIVED_MS, headers={"subject": "Your order"})
    failure, now_ms = _failure(kind), RECEIVED_MS + 5 * HOUR_MS
    form = "failed" if kind == NoticeKind.expired else kind.value
    if whole:
        data = build(form, envelope, [failure], _HEADER, wording=words, now_ms=now_ms, unique="0123456789")  # type: ignore[arg-type]
        sys.stdout.write(data.decode("utf-8", "replace").replace("\r\n", "\n"))
        return
    name = words.shown_name if _PLAIN.fullmatch(words.shown_name) else f'"{words.shown_name}"'
    print(f"From: {name} <{words.address}>\nSubject: {words.subject(form, envelope)}\n")
    print(words.text(form, envelope, [failure], now_ms), end="")


def _failure(kind: NoticeKind) -> Failed:
    remote, who = "mx.example.net[192.0.2.1]:25", Recipient("bob@example.net")
    if kind in (NoticeKind.relayed, NoticeKind.delivered):
        return Failed(who, Reply(250, "2.0.0", "queued as 1234"), remote)
    if kind == NoticeKind.failed:
        return Failed(who, _UNKNOWN, remote, kind="user-unknown")
    return Failed(who, _BUSY, remote, 7, until_ms=RECEIVED_MS + 48 * HOUR_MS)
