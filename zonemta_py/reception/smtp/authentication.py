"""AUTH PLAIN and LOGIN (RFC 4954, 4616): the client's answers become a user name and a password.

Failures: an answer that contains neither is refused (`*` cancels).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable

from zonemta_py.mail.reply import Reply
from zonemta_py.reception.smtp import replies

_USER, _PASSWORD = b"Username:", b"Password:"
"""What LOGIN asks for. Several clients compare the words, and stop at those of draft-murchison-sasl-login."""

Challenge = Callable[[bytes], Awaitable[bytes]]
"""Sends a challenge, in base64, and returns the client's next line."""


class Unusable(Exception):
    """The client's answer contains no credentials."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


async def credentials(ask: Challenge, mechanism: str, initial: str | None = None) -> tuple[bytes, bytes]:
    """User name and password. Raises Unusable, and what ask raises."""
    if mechanism == "LOGIN":
        return await _response(ask, _USER, initial), await _response(ask, _PASSWORD)
    parts = (await _response(ask, b"", initial)).split(b"\0")
    if len(parts) != 3:
        raise Unusable(replies.NOT_PLAIN)
    return parts[1], parts[2]  # the authorization identity, which comes first, must be the user here


async def _response(ask: Challenge, challenge: bytes, initial: str | None = None) -> bytes:
    """The answer to a challenge, which is not made where the client has answered it with the command."""
    if initial is not None:
        line = b"" if initial == "=" else initial.encode()
    else:
        line = (await ask(b64encode(challenge))).strip()
        if line == b"*":
            raise Unusable(replies.LOGIN_CANCELLED)
    try:
        return b64decode(line, validate=True)
    except binascii.Error:
        raise Unusable(replies.NOT_BASE64) from None
