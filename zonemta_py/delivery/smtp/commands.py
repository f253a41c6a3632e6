"""Builds MAIL and RCPT commands that the server understands (RFC 5321, 1870, 6152, 6531, 3461, 8689).

Pure. A parameter is sent only if the server offers its extension; what cannot be said in RCPT is reported in
`Outcome.relayed`. Addresses that could break the dialogue are never sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from zonemta_py.mail.address import xtext_encode
from zonemta_py.mail.envelope import Notify, Recipient
from zonemta_py.queue.api import Delivery

_ODD = re.compile(r'[\s<>"]')
_ONE_PATH = re.compile(r'[^\s<>"]*|"(?:[^"\\]|\\.)*"@[^\s<>"]+')


def mail(delivery: Delivery, size: int, keywords: Mapping[str, str], smtputf8: bool, eightbit: bool = False) -> str:
    """MAIL with its CRLF. keywords: lower-case EHLO keyword → parameters. eightbit: the message is not ASCII."""
    line = f"MAIL FROM:<{delivery.sender}>"
    if "size" in keywords:
        line += f" SIZE={size}"
    if eightbit and "8bitmime" in keywords:
        line += " BODY=8BITMIME"
    if smtputf8:
        line += " SMTPUTF8"
    if delivery.require_tls and "requiretls" in keywords:
        line += " REQUIRETLS"
    if "dsn" in keywords:
        if delivery.ret:
            line += f" RET={delivery.ret}"
        if delivery.envid:
            line += f" ENVID={xtext_encode(delivery.envid)}"
    return line + "\r\n"


def rcpt(recipient: Recipient, dsn: bool) -> str:
    """RCPT with its CRLF."""
    line = f"RCPT TO:<{recipient.address}>"
    if dsn:
        if recipient.notify:
            line += f" NOTIFY={_notify(recipient.notify)}"
        if recipient.orcpt:
            kind, _, original = recipient.orcpt.partition(";")
            line += f" ORCPT={kind};{xtext_encode(original)}"
    return line + "\r\n"


def rcpts(recipients: Iterable[Recipient], dsn: bool) -> list[str]:
    """RCPT for each."""
    return [
        rcpt(one, dsn) if dsn and (one.notify or one.orcpt) else f"RCPT TO:<{one.address}>\r\n" for one in recipients
    ]


def _notify(flags: int) -> str:
    if flags & Notify.NEVER:
        return "NEVER"
    named = (Notify.SUCCESS, Notify.FAILURE, Notify.DELAY)
    return ",".join(str(flag.name) for flag in named if flags & flag)


def sendable(address: str) -> bool:
    """Whether it is one argument of one command, wherever it came from (a plugin, an older queue): no control
    characters, and blanks and angle brackets in quotes only. "": the null return path."""
    return address.isprintable() and _ONE_PATH.fullmatch(address) is not None


def ordinary(addresses: str) -> bool:
    """Whether all of several addresses, one behind another, are `sendable` for sure: none has blanks or quotes."""
    return addresses.isprintable() and _ODD.search(addresses) is None
