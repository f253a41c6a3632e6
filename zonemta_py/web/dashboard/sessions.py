"""Who has logged in. A session is a file in the folder `dashboard` of the queue's folder, for as long as it lasts.

The cookie is a random number. The file is named by its hash, and says when the session ends, and the hash of the API
key. So a session goes on when this process is started again, and ends with the logout, for good, or when its key is
taken from the configuration. Forms carry a token made from the same number. What waits for the disk has a thread of its
own: it may be slow, and nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import replace_file, sync
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import ApiKeys, Holder, hashed

FOLDER = "dashboard"
COOKIE = "zonemta"
SESSION_S = 12 * 3600
SESSIONS_MAX = 1_000
"""Of more, those end that would end first."""
TRIES, TRIES_S = 10, 300.0
"""So many wrong keys from one client's address in so many seconds; what is wrong then is answered 429, and not logged.
A right key is let in all the same: others may share the address, and 256 bits are not guessed."""
_CLIENTS_MAX = 10_000
_VALUE = re.compile(r"[\w-]{43}", re.ASCII)


class LoginSession(NamedTuple):
    """name: of its file. csrf: what each form has to say."""

    holder: Holder
    name: str
    csrf: str


class Sessions:
    """now: UNIX seconds. Raises OSError if the folder can be neither read nor made."""

    def __init__(self, folder: Path, keys: ApiKeys, now: Callable[[], float]) -> None:
        self._folder, self._keys, self._now = folder / FOLDER, keys, now
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    # -- in

    def wait_s(self, client: str) -> int:
        """For how long further wrong keys of that client are answered so; 0: they are not."""
        tries = [at for at in self._failed.get(client, ()) if at > self._now() - TRIES_S]
        return 0 if len(tries) < TRIES else max(1, round(tries[-TRIES] + TRIES_S - self._now()))

    async def login(self, key: str, client: str) -> str | None:
        """The cookie's value; None: there is no such key. Raises OSError."""
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
        return await asyncio.to_thread(self._begin, key)

    def _begin(self, key: str) -> str:
        self._clear()
        cookie = secrets.token_urlsafe(32)
        said = f"{round(self._now() + SESSION_S)} {hashed(key.strip())}\n"
        replace_file(self._folder / _name(cookie), said.encode(), 0o600)
        return cookie

    def _clear(self) -> None:
        """Removes what has ended, and the oldest if there are too many."""
        left = []
        for path in self._folder.iterdir():
            ends, _ = _read(path)
            if ends > self._now():
                left.append((ends, path))
            else:
                path.unlink(missing_ok=True)
        for _, path in sorted(left)[: -(SESSIONS_MAX - 1)]:
            path.unlink(missing_ok=True)

    # -- while it lasts

    def of(self, cookie: str) -> LoginSession | None:
        """Whose session it is; None: nobody's any more."""
        if not _VALUE.fullmatch(cookie):
            return None
        ends, key = _read(self._folder / (name := _name(cookie)))
        holder = next((one for known, one in self._keys.known() if known == key), None)
        if holder is None or ends <= self._now():
            return None
        return LoginSession(holder, name, hashlib.sha256(f"form {cookie}".encode()).hexdigest())

    async def end(self, session: LoginSession) -> None:
        """Its cookie is worth nothing any more, whatever happens. Raises OSError."""
        await asyncio.to_thread(self._remove, session)

    def _remove(self, session: LoginSession) -> None:
        (self._folder / session.name).unlink(missing_ok=True)
        sync(self._folder)


def _name(cookie: str) -> str:
    """Who sees the folder does not know the cookie."""
    return hashlib.sha256(cookie.encode()).hexdigest()


def _read(path: Path) -> tuple[int, bytes]:
    """When it ends, and the hash of its key; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        ends, key = path.read_bytes().split()
        return int(ends), key
    return 0, b""
