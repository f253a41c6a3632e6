"""Cursors of pages that name what a client must not see: sealed for the time that this process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.reception.http.documents.problem import FieldError, invalid

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


class Cursors:
    """The secret is made when it is first needed."""

    def __init__(self) -> None:
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
            raise invalid([FieldError("query after", "is no cursor of a page, or of another start; begin again")])
        return cursor

    def _secret(self) -> Fernet:
        if self._made is None:
            from cryptography.fernet import Fernet

            self._made = Fernet(Fernet.generate_key())
        return self._made
