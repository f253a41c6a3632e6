"""TLS failures: what may help next, what to report (RFC 8460), and what to tell the user.

kind says what may help: STARTTLS (no handshake took place: another version does not help), HANDSHAKE (an older version
may), CERTIFICATE (only not verifying would), POLICY (the host must not be used at all). result is the result-type of
RFC 8460 4.3. The stage is "tls" while mail might still go without TLS, and TLS_POLICY otherwise: then the failure is
not held against the host (`demanded`).
"""

from __future__ import annotations

import asyncio
import ssl

from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import TLS_POLICY, DeliveryError, TlsFailed
from zonemta_py.mail.reply import Reply

STARTTLS, HANDSHAKE, CERTIFICATE, POLICY = "starttls", "handshake", "certificate", "policy"

UNDECIDED = "4.7.0"
"""Enhanced code of temporary trouble: DNS did not answer."""
NOT_OFFERED = Reply(451, "4.7.4", "TLS is required, and the server does not offer it")
_NOT_TRUSTED = frozenset((2, 18, 19, 20, 21, 27))
"""OpenSSL's X509_V_ERR_… for an issuer that is unknown, or not trusted."""
_EXPIRED = frozenset((9, 10))
_OTHER_NAME = frozenset((62, 63, 64))


class TlsTrouble(TlsFailed):
    """kind: see above. result: for the report. source: which policy it comes from, as in `Plan.source`."""

    def __init__(self, kind: str, result: str, detail: str, reply: Reply | None = None, source: str = "") -> None:
        super().__init__(TLS_POLICY if kind == POLICY else "tls", detail, reply)
        self.kind, self.result, self.detail, self.source = kind, result, detail, source

    def demanded(self) -> None:
        """Marks it as a failed requirement of some mail, which must not count against the host for other mail."""
        self.stage = TLS_POLICY
        if self.reply is not NOT_OFFERED and self.kind != POLICY:
            self.reply = Reply(451, self.reply.enhanced, f"required TLS failed: {self.detail}")
            self.args = (str(self.reply),)


class TlsUnmet(DeliveryError):
    """The sender asked for REQUIRETLS, and this host does not provide it (RFC 8689 4.2.1): final for this message.

    Its stage is "mail", since the message cannot go; the host need not rest. enhanced: 5.7.30 if the server does not
    offer REQUIRETLS, 5.7.10 if TLS is not as required.
    """

    code, what = 550, "REQUIRETLS cannot be met"
    reply_class = "tls"

    def __init__(self, detail: str, enhanced: str = "5.7.10") -> None:
        super().__init__("mail", reply=Reply(self.code, enhanced, f"{self.what}: {detail}"))


def of_handshake(error: BaseException) -> TlsTrouble:
    """The trouble for the error that ended a handshake."""
    broken = _ssl_error(error)
    if isinstance(broken, ssl.SSLCertVerificationError):
        return TlsTrouble(CERTIFICATE, _result(broken.verify_code), broken.verify_message)
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return TlsTrouble(HANDSHAKE, "validation-failure", "the handshake took too long")
    if broken is not None:
        return TlsTrouble(HANDSHAKE, "validation-failure", broken.reason or str(broken))
    why = cause(error) if str(error) else "the connection was closed in the handshake"
    return TlsTrouble(HANDSHAKE, "validation-failure", why)


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error itself, or one in its chain of causes."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _result(verify_code: int) -> str:
    if verify_code in _EXPIRED:
        return "certificate-expired"
    if verify_code in _OTHER_NAME:
        return "certificate-host-mismatch"
    return "certificate-not-trusted" if verify_code in _NOT_TRUSTED else "validation-failure"
