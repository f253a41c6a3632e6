"""Who has logged in. A session is a signed cookie; nothing about it is kept, but which ones have logged out.

The cookie names when it ends and a random number; its signature is by the file dashboard.key of the queue's folder and
the hash of the API key. So a session goes on when this process is started again, and ends when its key is taken from
the configuration, or, for http.token, with the process that wrote it. Forms carry a token made from the same number.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import replace_file
from zonemta_py.reception.http.documents.problem import RequestProblem
from zonemta_py.reception.http.keys import ApiKeys, Holder

KEY_FILE = "dashboard.key"
COOKIE = "zonemta"
SESSION_S = 12 * 3600
TRIES, TRIES_S = 10, 300.0
"""So many wrong keys from one client's address in so many seconds; then none is looked at."""
_CLIENTS_MAX = 10_000
_GONE_MAX = 10_000


class LoginSession(NamedTuple):
    """csrf: what each form has to say."""

    holder: Holder
    nonce: str
    csrf: str


class Sessions:
    """now: UNIX seconds. Raises OSError if the key's file can be neither read nor made."""

    def __init__(self, folder: Path, keys: ApiKeys, now: Callable[[], float]) -> None:
        self._secret, self._keys, self._now = _secret(folder / KEY_FILE), keys, now
        self._gone: OrderedDict[str, float] = OrderedDict()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    # -- in

    def wait_s(self, client: str) -> int:
        """For how long no further key of that client is looked at."""
        tries = [at for at in self._failed.get(client, ()) if at > self._now() - TRIES_S]
        return 0 if len(tries) < TRIES else max(1, round(tries[-TRIES] + TRIES_S - self._now()))

    def login(self, key: str, client: str) -> str | None:
        """The cookie's value; None: there is no such key."""
        try:
            self._keys.holder(f"Bearer {key.strip()}")
        except RequestProblem:
            tries = self._failed.setdefault(client, [])
            tries.append(self._now())
            del tries[:-TRIES]
            self._failed.move_to_end(client)
            while len(self._failed) > _CLIENTS_MAX:
                self._failed.popitem(last=False)
            return None
        shown = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).hexdigest().encode()
        said = f"{round(self._now() + SESSION_S)}.{secrets.token_urlsafe(18)}"
        return f"{said}.{self._signature(shown, said)}"

    # -- while it lasts

    def of(self, cookie: str) -> LoginSession | None:
        """Whose session it is; None: nobody's any more."""
        parts = cookie.split(".")
        if len(parts) != 3 or not parts[0].isdecimal() or len(cookie) > 200 or not cookie.isascii():
            return None
        ends, nonce, signature = parts
        if int(ends) <= self._now() or nonce in self._gone:
            return None
        found = None
        for known, holder in self._keys.known():
            if hmac.compare_digest(self._signature(known, f"{ends}.{nonce}"), signature):
                found = holder
        return None if found is None else LoginSession(found, nonce, self._made(b"form", nonce))

    def end(self, session: LoginSession) -> None:
        """Its cookie is worth nothing any more."""
        self._gone[session.nonce] = self._now() + SESSION_S
        while len(self._gone) > _GONE_MAX or next(iter(self._gone.values())) < self._now():
            self._gone.popitem(last=False)

    def _signature(self, key: bytes, said: str) -> str:
        return self._made(b"session " + key, said)

    def _made(self, purpose: bytes, said: str) -> str:
        return hmac.new(self._secret, purpose + b" " + said.encode(), hashlib.sha256).hexdigest()


def _secret(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        replace_file(fresh, secrets.token_bytes(32), 0o600)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(fresh, path)
        fresh.unlink()
        return path.read_bytes()
