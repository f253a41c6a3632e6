"""`zonemta send`: hands one message in, as programs do with `sendmail -t`. Exit codes are sysexits', see `errors.Exit`.

The message goes to the configuration's first listener over SMTP and is accepted by the same rules as any other mail:
exit status 0 means that it is on stable storage. Nothing is added that the server adds (Date, Message-ID, Received).
"""

from __future__ import annotations

import getpass
import os
import re
import smtplib
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from zonemta_py.cli.send import options as asking
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import ConfigFile, configuration
from zonemta_py.config import Config
from zonemta_py.mail.address import AddressRefused, parse_mailbox
from zonemta_py.mail.addresses.mailbox_list import NoMailboxList, mailboxes
from zonemta_py.mail.headers import Headers, name_of, split

_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_LONE_DOT = re.compile(rb"^\.\r\n", re.MULTILINE)
_MBOX = re.compile(rb">?From [^\r]*\r\n")
"""The line before each message of an mbox file, which programs hand in with it."""
_TIMEOUT_S = 300
STARTING_S = 10.0
_Smtp = TypeVar("_Smtp", bound=smtplib.SMTP)


class OutgoingMail(NamedTuple):
    """What is handed in: message has CRLF lines; sender is "" for the null return path."""

    sender: str
    recipients: list[str]
    message: bytes


class ServerAddress(NamedTuple):
    """Where and how: tls is "none", "starttls" or "implicit"."""

    host: str
    port: int
    tls: str


def send(
    recipients: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPIENT", help="Recipient addresses, or comma-separated lists of them."),
    ] = None,
    t: Annotated[bool, typer.Option("-t", help="Take recipients from To, Cc and Bcc; remove Bcc.")] = False,
    f: Annotated[
        str | None, typer.Option("-f", "--from", metavar="SENDER", help="Return path; default: From, else user@host.")
    ] = None,
    i: Annotated[bool, typer.Option("-i", help="A line with a single dot does not end the input.")] = False,
    o: Annotated[
        list[str] | None, typer.Option("-o", metavar="i", help="-oi is the same as -i; others are ignored.")
    ] = None,
    b: Annotated[str, typer.Option("-b", metavar="m", help="-bm, to send, is the default.")] = "m",
    full_name: Annotated[
        str, typer.Option("-F", metavar="NAME", help="For compatibility with sendmail; ignored.")
    ] = "",
    body: Annotated[str, typer.Option("-B", metavar="TYPE", help="For compatibility with sendmail; ignored.")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the message from this file, not from stdin.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Server to submit it to.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of that server.")] = None,
    campaign: asking.Campaign = None,
    tenant: asking.Tenant = None,
    priority: asking.Priority = None,
    at: asking.At = None,
    by: asking.By = None,
    window: asking.Window = None,
    time_zone: asking.TimeZone = None,
    unsubscribe: asking.Unsubscribe = False,
    config: ConfigFile = None,
) -> None:
    """Submit a message from stdin or a file. Exit status 0: it is on stable storage."""
    if b != "m":
        raise CommandError(Exit.USAGE, f"-b{b} is not supported; omit it to send, or see `zonemta --help`")
    settings = configuration(config)
    whole = bool(i or file) or any(word.startswith("i") for word in o or ())
    asked = asking.asked(
        time.time_ns() // 1_000_000, campaign=campaign, tenant=tenant, priority=priority, at=at, by=by,
        window=window, time_zone=time_zone, unsubscribe=unsubscribe,
    )  # fmt: skip
    submission = compose(_read(file), list(recipients or ()), from_header=t, sender=f, whole=whole)
    submission = submission._replace(message=asking.with_fields(submission.message, asked.fields))
    way = door(settings, host, port)
    hand_in(submission, way, settings.limits.recipients, asked)


def compose(
    raw: bytes, recipients: list[str], *, from_header: bool, sender: str | None, whole: bool, local: str = ""
) -> OutgoingMail:
    """Of a message as programs write it, with any line ends. recipients: addresses, and lists of them. local: the
    domain of a bare name; "": it is a mistake. Raises CommandError, also if there is no recipient."""
    message = _ANY_LINE_END.sub(b"\r\n", raw)
    if not whole:
        message = _LONE_DOT.split(message, maxsplit=1)[0]
    if message and not message.endswith(b"\r\n"):
        message += b"\r\n"
    if (line := _MBOX.match(message)) and name_of(message[line.end() :]):
        message = message[line.end() :]
    headers, body = split(message)
    found = [one for text in recipients for one in _listed(text, Exit.USAGE)]
    if from_header:
        found += [
            one for name in ("to", "cc", "bcc") for text in headers.all(name) for one in _listed(text, Exit.DATA, name)
        ]
        if headers.remove("bcc"):
            message = headers.build() + message[body:]
    if not found:
        raise CommandError(Exit.USAGE, "no recipients; name some, or use -t with a To, Cc or Bcc field in the message")
    if sender is None:
        sender = _author(headers) or f"{_user()}@{socket.gethostname()}"
        checked = _sender(sender, local, Exit.DATA)
    else:
        checked = _sender(sender, local, Exit.USAGE)
    addresses = [_checked(_full(one, local), Exit.USAGE) for one in found]
    return OutgoingMail(checked, list(dict.fromkeys(addresses)), message)


def _listed(text: str, code: Exit, field: str = "") -> list[str]:
    """All of a list of addresses. Raises CommandError."""
    if not field:
        _check_printable(text, code)
    try:
        return mailboxes(text)
    except NoMailboxList as error:
        what = f"{field.capitalize()} field {text!r}" if field else repr(text)
        raise CommandError(
            code, f"{what} is not an address; write it like ann@example.com, several with commas ({error})"
        ) from None


def _check_printable(text: str, code: Exit) -> None:
    if not text.isprintable():  # invalid UTF-8 is not printable either
        raise CommandError(code, f"{text!a} is not an address: it contains control characters or bytes; correct it")


def _sender(given: str, local: str, code: Exit) -> str:
    """One address, or "" for the null return path. Raises CommandError."""
    if given.strip("<> ") == "":
        return ""
    found = _listed(given, code)
    if len(found) != 1:
        raise CommandError(code, f"{given!r} names {len(found)} senders; give one, or <> for none")
    return _checked(_full(found[0], local), code, ", or <> for none")


def _full(address: str, local: str) -> str:
    return address if "@" in address or not local else f"{address}@{local}"


def _checked(address: str, code: Exit, or_else: str = "") -> str:
    """As it is sent. What the server would refuse is a mistake of the command line. Raises CommandError."""
    _check_printable(address, code)
    try:
        return address if address.lower() == "postmaster" and not or_else else parse_mailbox(address)
    except AddressRefused:
        sentence = f"{address!r} is not an address; write it like ann@example.com{or_else}"
        raise CommandError(code, sentence) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return f"uid{os.getuid()}"


def _author(headers: Headers) -> str:
    """The first author's address; "" if the From field names none."""
    for value in headers.all("from"):
        try:
            found = mailboxes(value)
        except NoMailboxList:
            continue
        if found:
            return next((one for one in found if "@" in one), found[0])
    return ""


def _read(file: Path | None) -> bytes:
    try:
        return sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise from_os(error) from None


def door(config: Config, host: str | None, port: int | None) -> ServerAddress:
    """The first listener that a plain client on this machine can use; --host and --port override its address."""
    if host is not None:
        return ServerAddress(host, port or 25, "none")
    usable = [listener for listener in config.listeners if not listener.proxy_protocol] or config.listeners
    listener = min(usable, key=lambda listener: (listener.tls == "implicit", listener.require_tls))
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.address, listener.address)
    tls = "implicit" if listener.tls == "implicit" else "starttls" if listener.require_tls else "none"
    return ServerAddress(address, port or listener.port, tls)


def hand_in(submission: OutgoingMail, way: ServerAddress, at_once: int, asked: asking.Asked = asking.NOTHING) -> None:
    """Sends it, `at_once` recipients in a transaction. Raises CommandError with what the server said if it refused."""
    where = f"{way.host} port {way.port}"
    refused: dict[str, tuple[int, bytes]] = {}
    taken = 0
    try:
        with _connect(way) as server:
            options = _options(server, submission) + asking.parameters(server, asked)
            for start in range(0, len(submission.recipients), at_once):
                part = submission.recipients[start : start + at_once]
                refused_here = _transaction(server, submission.sender, part, submission.message, options)
                refused |= refused_here
                taken += len(part) - len(refused_here)
    except smtplib.SMTPResponseException as error:
        raise CommandError(
            _code(error.smtp_code), f"{where} refused: {_text(error.smtp_code, error.smtp_error)}{_taken(taken)}"
        ) from None
    except smtplib.SMTPServerDisconnected:
        sentence = f"{where} hung up before it took the message; try again{_taken(taken)}"
        raise CommandError(Exit.TEMPORARY, sentence) from None
    except smtplib.SMTPNotSupportedError as error:
        raise CommandError(Exit.UNAVAILABLE, f"{where} cannot take it: {error}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "start the MTA with `zonemta run`, or name another with --host and --port"
        raise CommandError(Exit.TEMPORARY, f"no mail server answers at {where} ({reason}); {remedy}") from None
    if refused:
        raise _refusal(where, refused, taken)


def _transaction(
    server: smtplib.SMTP, sender: str, recipients: list[str], message: bytes, options: list[str]
) -> dict[str, tuple[int, bytes]]:
    """Who was refused. Each address is said as it was checked: smtplib's own methods parse it once more, their way.

    Raises SMTPException.
    """
    if "SMTPUTF8" in options:
        if not server.has_extn("smtputf8"):
            raise smtplib.SMTPNotSupportedError("it does not offer SMTPUTF8, which an address needs")
        server.command_encoding = "utf-8"
    said = " ".join((f"FROM:<{sender}>", *options))
    code, text = server.docmd("MAIL", said)
    if code != 250:
        raise smtplib.SMTPResponseException(code, text)
    refused: dict[str, tuple[int, bytes]] = {}
    for recipient in recipients:
        code, text = server.docmd("RCPT", f"TO:<{recipient}>")
        if code == 421:
            raise smtplib.SMTPResponseException(code, text)
        if code not in (250, 251):
            refused[recipient] = (code, text)
    if len(refused) == len(recipients):
        server.rset()
        return refused
    code, text = server.data(message)
    if code != 250:
        raise smtplib.SMTPResponseException(code, text)
    return refused


def _connect(way: ServerAddress) -> smtplib.SMTP:
    # The MTA's own certificate need not name 127.0.0.1: privacy from this machine to itself is not at stake.
    context = ssl._create_unverified_context()
    if way.tls == "implicit":
        return _open(lambda: smtplib.SMTP_SSL(way.host, way.port, timeout=_TIMEOUT_S, context=context))
    server = _open(lambda: smtplib.SMTP(way.host, way.port, timeout=_TIMEOUT_S))
    if way.tls == "starttls":
        server.starttls(context=context)
    return server


def _open(connect: Callable[[], _Smtp]) -> _Smtp:
    """Waits a moment for a server that has just been started."""
    until, told = time.monotonic() + STARTING_S, not sys.stderr.isatty()
    while True:
        try:
            return connect()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            if not told:
                print(f"zonemta: no mail server answers yet; waiting up to {STARTING_S:.0f} s", file=sys.stderr)
                told = True
            time.sleep(0.1)


def _options(server: smtplib.SMTP, submission: OutgoingMail) -> list[str]:
    server.ehlo_or_helo_if_needed()
    options = [f"SIZE={len(submission.message)}"] if server.has_extn("size") else []
    if not submission.message.isascii() and server.has_extn("8bitmime"):
        options.append("BODY=8BITMIME")
    if not all(address.isascii() for address in (submission.sender, *submission.recipients)):
        options.append("SMTPUTF8")
    return options


def _refusal(where: str, refused: dict[str, tuple[int, bytes]], taken: int) -> CommandError:
    address, (code, text) = next(iter(refused.items()))
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    lasting = all(reply[0] >= 500 for reply in refused.values())
    code_out = Exit.NO_USER if lasting else Exit.TEMPORARY
    return CommandError(code_out, f"{where} refused {address}{others}: {_text(code, text)}{_taken(taken)}")


def _taken(recipients: int) -> str:
    return f"; accepted for the other {recipients}" if recipients else ""


def _code(code: int) -> Exit:
    return Exit.UNAVAILABLE if code >= 500 else Exit.TEMPORARY


def _text(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {' '.join(words.split())}"
