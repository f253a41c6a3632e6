"""Trace and identification fields that a message gets when it comes in (RFC 5321 4.4, RFC 5322 3.6.1 and 3.6.4).

Pure: the moment is passed in, in UNIX ms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from zonemta_py.mail.fields import date

_UNSAFE = re.compile(r"[^!-'*-\[\]-~]")


@dataclass(slots=True)
class Trace:
    """The client that handed in a message. helo: its name for itself. address: its IP. host: our name. protocol: RFC
    3848's.

    tls: "" or "TLSv1.3 TLS_AES_256_GCM_SHA384". The user's name is not disclosed, only that there was one
    (ESMTPA, ESMTPSA).
    """

    helo: str
    address: str
    host: str
    protocol: str
    tls: str = ""

    def opening(self) -> str:
        """The part of the field that is the same for all messages of a session: up to the id."""
        literal = f"IPv6:{self.address}" if ":" in self.address else self.address
        tls = f"\r\n (using {comment(self.tls)})" if self.tls else ""
        return (
            f"Received: from {_atom(self.helo)} ([{literal}]){tls}\r\n"
            f" by {_atom(self.host)} with {self.protocol} id "
        )  # fmt: skip


def received(opening: str, transaction: str, recipient: str | None, now_ms: int) -> bytes:
    """The whole field with its CRLF. recipient: named with "for" if there is just one: others stay private."""
    clause = f"\r\n for <{recipient}>" if recipient else ""
    return f"{opening}{transaction}{clause};\r\n {date(now_ms // 1000)}\r\n".encode()


def protocol(extended: bool, tls: bool, user: bool, smtputf8: bool) -> str:
    """RFC 3848 and RFC 6531 4.3: SMTP, ESMTP, ESMTPS, ESMTPSA, UTF8SMTPSA …"""
    if not extended:
        return "SMTP"
    return ("UTF8SMTP" if smtputf8 else "ESMTP") + "S" * tls + "A" * user


def date_field(now_ms: int) -> bytes:
    """A Date field for a message that has none."""
    return f"Date: {date(now_ms // 1000)}\r\n".encode()


def message_id_field(transaction: str, now_ms: int, host: str) -> bytes:
    """A Message-ID field for a message that has none. transaction: unique on this host within the millisecond."""
    return f"Message-ID: <{now_ms:x}.{transaction}@{_atom(host)}>\r\n".encode()


def comment(text: str) -> str:
    """Text that may stand in parentheses in a header field."""
    return " ".join(_UNSAFE.sub("?", word) for word in text.split())


def _atom(text: str) -> str:
    return _UNSAFE.sub("?", text) or "unknown"
