"""Cursors of pages that name what a client must not see: sealed with a key made from the one of the token file, so that
they outlive reloads and restarts, and no longer that file."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

from zonemta_py.web.documents.problem import FieldError, invalid

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_PURPOSE = b"zonemta-py: cursors of pages"


class Cursors:
    """local: the key of the token file. The secret is made when it is first needed."""

    def __init__(self, local: str) -> None:
        self._local = local
        self._made: Fernet | None = None

    def sealed(self, who: str, cursor: str) -> str:
        """Text that only `opened` can read, for the same client."""
        return self._secret().encrypt(f"{who}\n{cursor}".encode()).decode()

    def opened(self, who: str, text: str) -> str:
        """Raises RequestProblem."""
        if not text:
            return ""
        from cryptography.fernet import InvalidToken

        try:
            owner, _, cursor = self._secret().decrypt(text.encode()).decode().partition("\n")
        except (InvalidToken, ValueError):
            owner, cursor = "", ""
        if owner != who:
            raise invalid([FieldError("query after", "is no cursor of a page; begin again without it")])
        return cursor

    def _secret(self) -> Fernet:
        if self._made is None:
            from cryptography.fernet import Fernet

            self._made = Fernet(base64.urlsafe_b64encode(hmac.digest(self._local.encode(), _PURPOSE, "sha256")))
        return self._made
