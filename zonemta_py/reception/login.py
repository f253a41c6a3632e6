"""Passwords of [users]: argon2 hashes, checked in one thread of their own.

A check costs tens of milliseconds and megabytes by design. So at most one runs at a time, in a thread, and a client
that connects again and again pays once: the last successes are remembered as keyed digests, never as passwords.
Unknown users cost the same time as known ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from zonemta_py.config import ConfigError

_REMEMBERED_MAX = 1_000


class Login:
    """users: name → hash. Raises ConfigError for a hash that is none."""

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users
        self._hasher = PasswordHasher()
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, None] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="password")
        for name, hashed in users.items():
            try:
                extract_parameters(hashed)
            except InvalidHashError:
                raise ConfigError(
                    f"users.{name}: is not a password hash; make one with `zonemta config password`"
                ) from None

    async def check(self, username: str, password: str) -> bool:
        """Whether the password is the user's."""
        known = self._users.get(username)
        digest = self._digest(username, password, known or "")
        if known is not None and digest in self._remembered:
            return True
        hashed = known or next(iter(self._users.values()), "")  # somebody's, so that it takes the same time
        right = await asyncio.get_running_loop().run_in_executor(self._thread, self._verify, hashed, password)
        if known is None or not right:
            return False
        if len(self._remembered) >= _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = None
        return True

    def _digest(self, username: str, password: str, hashed: str) -> bytes:
        whole = "\0".join((username, password, hashed)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(whole, key=self._key, digest_size=32).digest()

    def _verify(self, hashed: str, password: str) -> bool:
        try:
            return self._hasher.verify(hashed, password)
        except (VerificationError, InvalidHashError, UnicodeEncodeError):
            return False
