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
from email.utils import getaddresses
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from zonemta_py.cli.send import options as asking
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import ConfigFile, configuration
from zonemta_py.config import Config
from zonemta_py.mail.headers import Headers, split

_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_LONE_DOT = re.compile(rb"^\.\r\n", re.MULTILINE)
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
    recipients: Annotated[list[str] | None, typer.Argument(metavar="RECIPIENT", help="Addresses to send to.")] = None,
    t: Annotated[bool, typer.Option("-t", help="Take recipients from To, Cc and Bcc, and remove Bcc.")] = False,
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
    host: Annotated[str | None, typer.Option(help="Server to hand it to.")] = None,
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
    """Hand a message in, from stdin or a file. Exit status 0: it is on stable storage."""
    if b != "m":
        raise CommandError(Exit.USAGE, f"-b{b} is not supported; omit it to send, or see `zonemta --help`")
    settings = configuration(config)
    whole = bool(i or file) or any(word.startswith("i") for word in o or ())
    asked = asking.asked(
        time.time_ns() // 1_000_000, campaign=campaign, tenant=tenant, priority=priority, at=at, by=by,
        window=window, time_zone=time_zone, unsubscribe=unsubscribe,
    )  # fmt: skip
    submission = compose(_read(file), list(recipients or ()), from_header=t, sender=f, whole=whole)
    _check(submission)
    submission = submission._replace(message=asking.with_fields(submission.message, asked.fields))
    way = door(settings, host, port)
    hand_in(submission, way, settings.limits.recipients, asked)


def compose(raw: bytes, recipients: list[str], *, from_header: bool, sender: str | None, whole: bool) -> OutgoingMail:
    """Of a message as programs write it, with any line ends. Raises CommandError if there is no recipient."""
    message = _ANY_LINE_END.sub(b"\r\n", raw)
    if not whole:
        message = _LONE_DOT.split(message, maxsplit=1)[0]
    if message and not message.endswith(b"\r\n"):
        message += b"\r\n"
    headers, body = split(message)
    if from_header:
        recipients = recipients + _addresses(headers, "to", "cc", "bcc")
        if headers.remove("bcc"):
            message = headers.build() + message[body:]
    if not recipients:
        raise CommandError(
            Exit.USAGE, "nobody to send to; name recipients, or use -t with a To, Cc or Bcc field in the message"
        )
    if sender is None:
        sender = next(iter(_addresses(headers, "from")), None) or f"{_user()}@{socket.gethostname()}"
    submission = OutgoingMail(sender.strip("<> "), list(dict.fromkeys(recipients)), message)
    _check_printable(submission)
    return submission


def _check_printable(submission: OutgoingMail) -> None:
    for address in (submission.sender, *submission.recipients):
        if not address.isprintable():  # invalid UTF-8 is not printable either
            raise CommandError(
                Exit.DATA, f"{address!a} is not an address: it contains control characters or bytes; correct it"
            )


def _check(submission: OutgoingMail) -> None:
    """What the server would refuse is a mistake of the command line. Raises CommandError."""
    for address, or_else in ((submission.sender, ", or <> for none"), *((one, "") for one in submission.recipients)):
        if address or not or_else:
            local, _, domain = address.rpartition("@")
            if (not (local and domain) or " " in domain) and (address.lower() != "postmaster" or or_else):
                sentence = f"{address!r} is not an address; write it like ann@example.com{or_else}"
                raise CommandError(Exit.USAGE, sentence)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return f"uid{os.getuid()}"


def _addresses(headers: Headers, *names: str) -> list[str]:
    return [address for _, address in getaddresses([value for name in names for value in headers.all(name)]) if address]


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
    try:
        with _connect(way) as server:
            options = _options(server, submission) + asking.parameters(server, asked)
            for start in range(0, len(submission.recipients), at_once):
                part = submission.recipients[start : start + at_once]
                refused |= server.sendmail(submission.sender, part, submission.message, options)
    except smtplib.SMTPRecipientsRefused as error:
        refused |= error.recipients
    except smtplib.SMTPResponseException as error:
        raise CommandError(
            _code(error.smtp_code), f"{where} refused: {_text(error.smtp_code, error.smtp_error)}"
        ) from None
    except smtplib.SMTPServerDisconnected:
        raise CommandError(Exit.TEMPORARY, f"{where} hung up before it took the message; try again") from None
    except smtplib.SMTPNotSupportedError as error:
        raise CommandError(Exit.UNAVAILABLE, f"{where} cannot take it: {error}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "start the MTA with `zonemta run`, or name another with --host and --port"
        raise CommandError(Exit.TEMPORARY, f"no mail server answers at {where} ({reason}); {remedy}") from None
    if refused:
        raise _refusal(where, refused, len(submission.recipients))


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
    options = []
    if not submission.message.isascii() and server.has_extn("8bitmime"):
        options.append("BODY=8BITMIME")
    if not all(address.isascii() for address in (submission.sender, *submission.recipients)):
        options.append("SMTPUTF8")
    return options


def _refusal(where: str, refused: dict[str, tuple[int, bytes]], total: int) -> CommandError:
    address, (code, text) = next(iter(refused.items()))
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    taken = f"; accepted for the other {total - len(refused)}" if len(refused) < total else ""
    lasting = all(reply[0] >= 500 for reply in refused.values())
    code_out = Exit.NO_USER if lasting else Exit.TEMPORARY
    return CommandError(code_out, f"{where} refused {address}{others}: {_text(code, text)}{taken}")


def _code(code: int) -> Exit:
    return Exit.UNAVAILABLE if code >= 500 else Exit.TEMPORARY


def _text(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {' '.join(words.split())}"
