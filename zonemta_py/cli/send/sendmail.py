"""`zonemta sendmail`: for programs that call /usr/sbin/sendmail, whose flags it knows.

A link of that name to `zonemta` is the same. Exit status 0 means that the message is on stable storage. Failures are
those of `zonemta send`, with the numbers of sysexits.h.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from email.utils import formataddr

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.running import me
from zonemta_py.cli.send.commands import OutgoingMail, compose, door, hand_in
from zonemta_py.cli.send.compatibility import configuration_of, parsed
from zonemta_py.cli.send.mailq import print_queue
from zonemta_py.cli.terminal.errors import CommandError, Exit, guarded
from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.mail.headers import split
from zonemta_py.queue import questions

_FLAGS = "A:B:b:C:d:Ee:F:f:Gh:Iimn" + "N:O:o:p:q:R:r:sTtUV:vX:L:"
_OPTIONAL = re.compile(r"-[qd]")
"""Flags whose value may be missing."""
_NOT_HERE = {"d": "`zonemta run` is the server", "D": "`zonemta run` is the server"} | dict.fromkeys(
    "vt", "`zonemta route` shows where mail goes"
)


def sendmail(context: typer.Context) -> None:
    """Sendmail-compatible command: submit a message from stdin to the given addresses.

    An address may be a comma-separated list. -t: also send to the addresses in To, Cc and Bcc; Bcc is removed. -i, -oi:
    a line with a single dot does not end the message. -f ADDRESS, -r ADDRESS: return path; default: From, else
    user@host. -F NAME: full name for a missing From field. -bs: speak SMTP on stdin and stdout. -bp: list the queue,
    as `zonemta mailq`. -bi: do nothing, since there are no aliases. -q: retry all deferred mail now, as
    `zonemta queue flush --all`. -C FILE: configuration file.
    Other sendmail flags are accepted and ignored.
    """
    run(context.args)


def main(arguments: list[str]) -> int:
    return guarded(lambda: run(arguments))


def run(arguments: list[str]) -> None:
    """Raises CommandError, ConfigError."""
    flags, recipients = _parsed(arguments)
    mode = "i" if "I" in flags else "q" if "q" in flags else flags.get("b", "m")[:1]
    config = configuration_of(flags.get("C"))
    if mode == "p":
        print_queue(config)
    elif mode == "s":
        _speak(config)
    elif mode == "q":
        answer(config, questions.task, verb="flush", where={"all": True}, by=me(), cause="sendmail -q")
    elif mode == "m":
        _send(config, flags, recipients)
    elif mode != "i":
        instead = _NOT_HERE.get(mode, "see `zonemta sendmail --help`")
        raise CommandError(Exit.USAGE, f"sendmail -b{mode} is not supported; {instead}")


def _parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Flags by letter, those that stand alone with ""; what follows them. Raises CommandError."""
    words = list(arguments)
    for number, word in enumerate(words):
        if word == "--":
            break
        if _OPTIONAL.fullmatch(word):
            words[number] = f"{word}0"
    found, rest = parsed("sendmail", words, _FLAGS)
    flags: dict[str, str] = {}
    for letter, value in found:
        if letter == "o" and value[:1] == "i":
            letter = "i"
        flags["f" if letter == "r" else letter] = value
    return flags, rest


def _send(config: Config, flags: dict[str, str], recipients: list[str]) -> None:
    whole = "i" in flags
    mail = compose(
        _read(whole), recipients, from_header="t" in flags, sender=flags.get("f"), whole=whole,
        local=config.server.name,  # a user's name means one on this machine
    )  # fmt: skip
    hand_in(_with_from(mail, flags.get("F", "")), door(config, None, None), config.limits.recipients)


def _with_from(mail: OutgoingMail, name: str) -> OutgoingMail:
    headers, _ = split(mail.message)
    if headers.all("from") or not mail.sender:
        return mail
    end = b"" if headers or mail.message.startswith(b"\r\n") else b"\r\n"
    field = f"From: {formataddr((name, mail.sender))}\r\n".encode()
    return mail._replace(message=field + end + mail.message)


def _read(whole: bool) -> bytes:
    """Up to the end, or to a line with a single dot: who types a message need not press Ctrl-D."""
    if whole:
        return sys.stdin.buffer.read()
    lines = []
    for line in sys.stdin.buffer:
        lines.append(line)
        if line in (b".\n", b".\r\n"):
            break
    return b"".join(lines)


def _speak(config: Config) -> None:
    """SMTP between stdin, stdout and the MTA. Raises CommandError if that does not run."""
    way = door(config, None, None)
    try:
        server = socket.create_connection((way.host, way.port), timeout=30)
    except OSError as error:
        sentence = (
            f"no mail server answers at {way.host} port {way.port} ({cause(error)}); start the MTA with `zonemta run`"
        )
        raise CommandError(Exit.TEMPORARY, sentence) from None
    server.settimeout(None)

    def pass_on() -> None:
        while block := os.read(sys.stdin.fileno(), 65_536):
            server.sendall(block)
        server.shutdown(socket.SHUT_WR)

    threading.Thread(target=pass_on, daemon=True).start()
    with server:
        while block := server.recv(65_536):
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
