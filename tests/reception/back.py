"""Mail that comes back, and the addresses that it comes to."""

from __future__ import annotations

import time

from zonemta_py.mail.addresses import leaving, srs, verp

SECRET, EARLIER, ID = "0123456789abcdef", "fedcba9876543210", "0199aabbccddeeff"
TODAY = int(time.time()) // 86_400
PATH = {
    "verp": "b.test", "srs": "s.test", "unsubscribe_domain": "u.test", "secret": SECRET, "earlier_secrets": [EARLIER],
    "bounces": ["bounce@ours.test"], "complaints": ["fbl@ours.test"],
}  # fmt: skip
STRANGERS = {"feedback": True, "relay_networks": []}
"""A listener at which nobody may relay."""


def verp_path(recipient: str = "ann@d.test", secret: str = SECRET, today: int = TODAY) -> str:
    return verp.encode(ID, recipient, "b.test", secret, today)


def srs_path(sender: str = "eve@there.test", secret: str = SECRET, today: int = TODAY) -> str:
    return srs.rewrite(sender, "s.test", secret, today)


def leaving_path(recipient: str = "ann@d.test", scope: str = "campaigns", today: int = TODAY) -> str:
    return leaving.encode(ID, recipient, scope, "u.test", SECRET, today)


def report(recipient: str = "ann@d.test", original: str = "", code: str = "5.1.1", kind: str = "failed") -> bytes:
    """A delivery status notification (RFC 3464). original: header fields of the enclosed one."""
    return (
        "From: MAILER-DAEMON@mx.d.test\r\nDate: Mon, 2 Nov 2026 10:00:00 +0000\r\nTo: <>\r\n"
        "Subject: Undelivered Mail Returned to Sender\r\n"
        "Message-ID: <dsn.1@mx.d.test>\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/report; report-type=delivery-status; boundary="X"\r\n\r\n'
        "--X\r\nContent-Type: text/plain\r\n\r\nYour message could not be delivered.\r\n"
        "--X\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.d.test\r\n\r\n"
        f"Final-Recipient: rfc822; {recipient}\r\nAction: {kind}\r\nStatus: {code}\r\n"
        f"Diagnostic-Code: smtp; 550 {code} <{recipient}>: user unknown\r\n"
        f"--X\r\nContent-Type: text/rfc822-headers\r\n\r\n{original}Subject: News\r\nMessage-ID: <m@ours.test>\r\n\r\n"
        "--X--\r\n"
    ).encode()


def complaint(original: str = "") -> bytes:
    """RFC 5965."""
    return (
        "From: Feedback <feedback@provider.test>\r\nTo: fbl@ours.test\r\nSubject: complaint\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/report; report-type=feedback-report; boundary="X"\r\n\r\n'
        "--X\r\nContent-Type: text/plain\r\n\r\nThis is an abuse report.\r\n"
        "--X\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: Provider/1\r\n"
        "Version: 1\r\nOriginal-Rcpt-To: <ann@d.test>\r\n\r\n"
        f"--X\r\nContent-Type: message/rfc822\r\n\r\n{original}Subject: News\r\nMessage-ID: <m@ours.test>\r\n\r\nHi\r\n"
        "--X--\r\n"
    ).encode()
