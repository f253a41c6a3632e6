"""What `zonemta send` can ask for besides delivery: options, and how they travel with the message.

Priority, hold and deadline go as parameters of MAIL, which other servers know too; the rest as header fields that
our listeners take out again (`mail.schedule_fields`).
"""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import typer

from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.mail.fields import utc
from zonemta_py.mail.headers import split
from zonemta_py.mail.schedule_fields import BY_S_MIN, InvalidValue, name

T = TypeVar("T")
Campaign = Annotated[str | None, typer.Option(help="Campaign it belongs to.")]
Tenant = Annotated[str | None, typer.Option(help="Tenant it belongs to.")]
Priority = Annotated[int | None, typer.Option(min=-9, max=9, help="Priority (MT-PRIORITY).")]
At = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Hold it until then: 2h, 14:30, tomorrow 9:00, 2026-12-01 09:00.")
]
By = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Return it if not delivered by then; same formats as --at.")
]
Window = Annotated[
    str | None, typer.Option(metavar="NAME", help="Send it only during the hours of this [[windows]] table.")
]
TimeZone = Annotated[str | None, typer.Option(metavar="NAME", help="The recipients' time zone (Europe/Berlin).")]
Unsubscribe = Annotated[bool, typer.Option("--unsubscribe", help="Add List-Unsubscribe fields to it.")]

_FIELDS = {"--campaign": "X-Campaign", "--tenant": "X-Tenant", "--window": "X-Window", "--time-zone": "X-Time-Zone"}


class Asked(NamedTuple):
    """fields: name → value. priority, hold and deadline: the keyword a server must offer → parameter of MAIL."""

    fields: dict[str, str]
    parameters: dict[str, str]


NOTHING = Asked({}, {})
JUST_NOW_MS = 60_000
"""A time that passed no longer ago than this means now."""


def asked(
    now_ms: int, *, campaign: str | None = None, tenant: str | None = None, priority: int | None = None,
    at: str | None = None, by: str | None = None, window: str | None = None, time_zone: str | None = None,
    unsubscribe: bool = False,
) -> Asked:  # fmt: skip
    """Checks what can be checked here; the server has the last word. Raises CommandError."""
    options = {"--campaign": campaign, "--tenant": tenant, "--window": window, "--time-zone": time_zone}
    said = {option: text for option, text in options.items() if text is not None}
    fields = {
        _FIELDS[option]: _checked(option, _time_zone if "zone" in option else name, said[option]) for option in said
    }
    if unsubscribe:
        fields["X-Unsubscribe"] = "yes"
    parameters = {"MT-PRIORITY": f"MT-PRIORITY={priority}"} if priority is not None else {}
    if at is not None:
        parameters |= _hold(at, now_ms)
    if by is not None:
        parameters |= _deadline(by, now_ms)
    return Asked(fields, parameters)


def _hold(at: str, now_ms: int) -> dict[str, str]:
    at_ms, seconds = when.at(at, "--at", now_ms), when.ahead(at, "--at", now_ms)
    if at_ms <= now_ms:
        if now_ms - at_ms < JUST_NOW_MS:
            return {}
        raise CommandError(
            Exit.USAGE, f"--at: {at!a} is in the past; give a later time, or leave it out to send at once"
        )
    return {"FUTURERELEASE": f"HOLDUNTIL={utc(at_ms)}" if seconds is None else f"HOLDFOR={max(1, round(seconds))}"}


def _deadline(by: str, now_ms: int) -> dict[str, str]:
    by_s = (when.at(by, "--by", now_ms) - now_ms) // 1000
    if by_s < BY_S_MIN:
        raise CommandError(Exit.USAGE, f"--by: {by!a} is in the past; give a later deadline, or omit it")
    return {"DELIVERBY": f"BY={by_s};R"}


def _time_zone(text: str) -> str:
    """Which ones there are the server knows."""
    if not text or not text.isascii() or not text.isprintable():
        raise InvalidValue(f"{text!a} is not a time zone; give one such as Europe/Berlin")
    return text


def _checked(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text.strip())
    except InvalidValue as unclear:
        raise CommandError(Exit.USAGE, f"{option}: {unclear}") from None


def with_fields(message: bytes, fields: dict[str, str]) -> bytes:
    """The message with the fields on top: of several equal ones the first counts. message: CRLF lines."""
    if not fields:
        return message
    added = "".join(f"{field}: {value}\r\n" for field, value in fields.items()).encode()
    headers, _ = split(message)
    bare = message and not headers and not message.startswith(b"\r\n")  # all body, so it needs an empty line now
    return added + (b"\r\n" if bare else b"") + message


def parameters(server: smtplib.SMTP, asked: Asked) -> list[str]:
    """Parameters of MAIL. Raises SMTPNotSupportedError naming what the server does not offer."""
    for keyword in asked.parameters:
        if not server.has_extn(keyword):
            raise smtplib.SMTPNotSupportedError(f"it does not offer {keyword}; omit the option, or use another server")
    return list(asked.parameters.values())
