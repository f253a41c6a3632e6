"""Delivery status notifications: what a sender is told of failures, delays, success (RFC 3461, 3462, 3464, 6533).

`build` makes the whole message as bytes with CRLF lines: what people read (`notices.wording`), the machine-readable
status, and the original's header section (or all of it: failures with RET=FULL). `wanted` says who gets one. `enclose`
makes the envelope it travels in: null return path, so that a notification never causes another.

Promise: nothing from a remote server, a client or an address can start a header field or a MIME part of its own;
controls become spaces, long values are folded. `unique` must not be guessable, since it is the MIME boundary too.
The result is 7-bit unless an address or the returned original is not.
"""

from __future__ import annotations

import quopri
import re
import textwrap
from typing import Literal

from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.mail.fields import date, one_line
from zonemta_py.mail.notices.wording import Failed, Wording

Kind = Literal["failed", "delayed", "relayed", "delivered"]
"""relayed: to a server that will not tell more. delivered: into the mailbox, which LMTP servers look after."""

_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,200}@[!-;=?-~]{1,200}>")
_ORCPT = re.compile(r"[A-Za-z0-9-]{1,40};\s*\S.*")
_FOLD_CHARACTERS = 76


def enclose(envelope: Envelope, notification: bytes, now_ms: int) -> Envelope:
    """The envelope for a notification about `envelope`: from nobody, to its sender, never answered (RFC 3461 6.2)."""
    return Envelope(
        sender="",
        recipients=[Recipient(envelope.sender, int(Notify.NEVER))],
        size=len(notification),
        body="7BIT" if notification.isascii() else "8BITMIME",
        smtputf8=not envelope.sender.isascii(),
        protocol="LOCAL",
        received_ms=now_ms,
        campaign=envelope.campaign,
        tenant=envelope.tenant,
        require_tls=envelope.require_tls,  # RFC 8689 5
    )


def build(
    kind: Kind,
    envelope: Envelope,
    failures: list[Failed],
    original: bytes,
    *,
    wording: Wording,
    now_ms: int,
    unique: str,
    whole: bool = False,
) -> bytes:
    """The notification, ready to be queued.

    original: header section of the message as stored, or with `whole` all of it; `whole` counts for failures only (RFC
    3461 4.3), and not under REQUIRETLS (RFC 8689 5). wording: in whose name it is, and what it says to people. unique:
    unguessable letters and digits, for Message-ID and boundary.
    Raises ValueError for a null sender or no failures: such a notification must not exist (RFC 5321 4.5.5).
    """
    if not envelope.sender or not failures:
        raise ValueError("a notification needs a sender to go to and a recipient to be about")
    wide = _international(envelope, failures)
    parts = (
        _explanation(wording.text(kind, envelope, failures, now_ms)),
        _status(kind, envelope, failures, wording.host, wide),
        _returned(original, whole and kind == "failed" and not envelope.require_tls),
    )
    boundary = f"=_{unique}"
    lines = [_header(kind, envelope, wording, now_ms, unique, boundary)]
    for part in parts:
        lines += [f"--{boundary}\r\n".encode(), part, b"\r\n"]
    lines.append(f"--{boundary}--\r\n".encode())
    return b"".join(lines)


def _international(envelope: Envelope, failures: list[Failed]) -> bool:
    addresses = [envelope.sender, *(text for f in failures for text in (f.recipient.address, f.recipient.orcpt or ""))]
    return not all(address.isascii() for address in addresses)


def _header(kind: Kind, envelope: Envelope, wording: Wording, now_ms: int, unique: str, boundary: str) -> bytes:
    from email.utils import formataddr  # only a notice needs it, and a start has none

    fields = [
        ("From", formataddr((one_line(wording.shown_name), wording.address))),
        ("To", f"<{envelope.sender}>"),
        ("Subject", _encoded(wording.subject(kind, envelope))),
        ("Date", _date(now_ms)),
        ("Message-ID", f"<{unique}@{wording.host}>"),
        ("Auto-Submitted", "auto-replied"),
    ]
    about = _MESSAGE_ID.fullmatch(envelope.headers.get("message-id", "").strip())
    if about:
        fields += [("In-Reply-To", about[0]), ("References", about[0])]
    fields.append(("MIME-Version", "1.0"))
    fields.append(("Content-Type", f'multipart/report; report-type=delivery-status; boundary="{boundary}"'))
    return _fields(fields, wide=not envelope.sender.isascii()) + b"\r\n"


def _explanation(text: str) -> bytes:
    """The human-readable part (RFC 3462 1)."""
    if text.isascii():
        form, coding = text.encode(), "us-ascii\r\nContent-Transfer-Encoding: 7bit"
    else:
        form = quopri.encodestring(text.encode("utf-8", "replace"))
        coding = "utf-8\r\nContent-Transfer-Encoding: quoted-printable"
    head = f"Content-Description: Notification\r\nContent-Type: text/plain; charset={coding}\r\n\r\n"
    return head.encode() + form.replace(b"\n", b"\r\n")


def _encoded(text: str) -> str:
    """In encoded words if it is not ASCII (RFC 2047); `_fields` folds between them."""
    if text.isascii():
        return text
    from email.header import Header

    return Header(text.encode("utf-8", "replace"), "utf-8", header_name="Subject").encode()


def _status(kind: Kind, envelope: Envelope, failures: list[Failed], mta: str, wide: bool) -> bytes:
    """The machine-readable part: per-message fields, a blank line, then the fields of each recipient (RFC 3464 2.1)."""
    message = [("Reporting-MTA", f"dns; {mta}")]
    if envelope.envid:
        message.insert(0, ("Original-Envelope-Id", envelope.envid))
    message.append(("Arrival-Date", _date(envelope.received_ms)))
    form = "global-delivery-status" if wide else "delivery-status"
    coding = "8bit" if wide else "7bit"
    head = (
        f"Content-Description: Delivery report\r\nContent-Type: message/{form}\r\nContent-Transfer-Encoding: {coding}"
    )
    groups = [message, *(_recipient_fields(kind, failed) for failed in failures)]
    return head.encode() + b"\r\n\r\n" + b"\r\n".join(_fields(group, wide) for group in groups)


def _recipient_fields(kind: Kind, failed: Failed) -> list[tuple[str, str]]:
    """RFC 3464 2.3, in its order."""
    address, orcpt = failed.recipient.address, failed.recipient.orcpt or ""
    fields = [("Original-Recipient", orcpt)] if _ORCPT.fullmatch(one_line(orcpt)) else []
    fields += [
        ("Final-Recipient", f"{'rfc822' if address.isascii() else 'utf-8'}; {address}"),
        ("Action", kind),
        ("Status", _code(kind, failed)),
    ]
    if failed.remote:
        fields.append(("Remote-MTA", f"dns; {_remote_name(failed.remote)}"))
    fields.append(("Diagnostic-Code", f"{'smtp' if failed.remote else 'x-zonemta'}; {failed.said}"))
    if failed.last_ms:
        fields.append(("Last-Attempt-Date", _date(failed.last_ms)))
    if kind == "delayed" and failed.until_ms:
        fields.append(("Will-Retry-Until", _date(failed.until_ms)))
    return fields


def _returned(original: bytes, whole: bool) -> bytes:
    """The original, or its header section, labelled by what is in it (RFC 3462 2, RFC 6532 3.7, RFC 6533 4)."""
    head, blank, _ = original.partition(b"\r\n\r\n")
    if not whole:
        original = head.removesuffix(b"\r\n") + b"\r\n" + (b"\r\n" if blank else b"")
    if head.isascii() or not _is_utf8(head):
        form = "message/rfc822" if whole else "text/rfc822-headers"
    else:
        form = "message/global" if whole else "message/global-headers"
    coding = "7bit" if original.isascii() else "8bit"
    text = f"Content-Description: Your message\r\nContent-Type: {form}\r\nContent-Transfer-Encoding: {coding}\r\n\r\n"
    return text.encode() + original


def _code(kind: Kind, failed: Failed) -> str:
    """Status (RFC 3463): a temporary failure that became final is 5.4.7, delivery time expired."""
    if kind == "failed" and failed.expired:
        return "5.4.7"
    digit = {"failed": "5", "delayed": "4"}.get(kind, "2")
    return failed.reply.enhanced if failed.reply.enhanced[:1] == digit else f"{digit}.0.0"


def _remote_name(remote: str) -> str:
    name, _, rest = remote.partition("[")
    return name or f"[{rest.partition(']')[0]}]"


def _date(ms: int | None) -> str:
    return date((ms or 0) // 1000)


def _wrapped(text: str, width: int, indent: str) -> str:
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _fields(fields: list[tuple[str, str]], wide: bool) -> bytes:
    """Header fields, folded (RFC 5322 2.2.3); without `wide`, what is not ASCII becomes a question mark."""
    text = "".join(_wrapped(f"{name}: {one_line(value)}", _FOLD_CHARACTERS, " ") + "\n" for name, value in fields)
    return text.replace("\n", "\r\n").encode("utf-8" if wide else "ascii", "replace")


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError:
        return False
    return True
