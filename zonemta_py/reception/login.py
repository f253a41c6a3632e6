"""Passwords of [users]: argon2 hashes, checked in one thread of their own, so that guessing is slow and harms no other
client.

A check costs tens of milliseconds and megabytes by design. So one runs at a time, in a thread, and the waiting ones are
bounded: those whose user, then whose client, has the fewest failures and the fewest others waiting go first, and when
the queue is full the last of them is told to try again. A client that reconnects again and again pays once:
the last successes are remembered as keyed digests, never as passwords, and equal tries share a check. Unknown users
cost the same time as known ones, and count as one user.

Wrong tries are remembered (`failures.FORGET_S`), by client (`connection_limits.network_of`) and by user, for all
receivers together. `fail` says how long the client is to wait for its refusal. A user who has once logged in from an
address is not delayed there by failures elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from zonemta_py.config import ConfigError
from zonemta_py.config.senders import password_digest
from zonemta_py.reception.connection_limits import network_of
from zonemta_py.reception.smtp.failures import Failures

WAITING_MAX = 64
"""Checks that wait."""
FREE_TRIES = 3
"""Failures before refusals are delayed."""
CLIENT_DELAY_S_MAX = 15.0
USER_DELAY_S_MAX = 5.0
_REMEMBERED_MAX = 1_000
_FIRST_DELAY_S = 0.25


class TooBusy(Exception):
    """Too many passwords are waiting to be checked."""


def delay_s(failures: int, most_s: float) -> float:
    """None for the first few, then twice as long each time."""
    over = failures - FREE_TRIES
    return min(most_s, _FIRST_DELAY_S * 2.0 ** min(over, 16)) if over >= 0 else 0.0


@dataclass(order=True, slots=True)
class _Check:
    """One that waits. rank: (trouble with its user, trouble with its client, its turn)."""

    rank: tuple[int, int, int]
    hashed: str = field(compare=False)
    password: str = field(compare=False)
    names: tuple[str, str] = field(compare=False)
    right: asyncio.Future[bool] = field(compare=False)


class Login:
    """users: name → hash. failures: shared by all receivers; its own if not said. Raises ConfigError for an invalid
    hash."""

    def __init__(self, users: dict[str, str], failures: Failures | None = None) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, None] = {}
        self._failures = failures or Failures()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="password")
        self._same: dict[bytes, asyncio.Future[bool]] = {}
        self._waiting: list[_Check] = []
        self._waiting_by: dict[str, int] = {}
        self._turns = 0
        self._running = False
        for name, hashed in users.items():
            if not _is_hash(hashed):
                raise ConfigError(f"users.{name}: is not a password hash; make one with `zonemta config password`")

    async def check(self, username: str, password: str, client: str = "") -> bool:
        """Whether the password is the user's. client: its IP address. Raises TooBusy."""
        known = self._users.get(username)
        digest = self._digest(username, password, known or "")
        if known is not None and digest in self._remembered:
            return True
        same = self._same.get(digest)
        if same is None:
            hashed = known or next(iter(self._users.values()), "")  # any hash, so that it takes the same time
            same = self._same[digest] = self._enqueue(username if known else "", hashed, password, network_of(client))
            same.add_done_callback(lambda _: self._same.pop(digest, None))
        right = await asyncio.shield(same) and known is not None
        if right:
            self._remember(digest, username, network_of(client))
        return right

    def digest_of(self, username: str) -> str:
        """Of the password's hash, as `config.senders` has it; username: of a known user."""
        return password_digest(self._users[username])

    def fail(self, client: str, username: str = "") -> float:
        """Counts a wrong try, or another refusal, of that client; seconds to wait before it is refused."""
        network = network_of(client)
        wait_s = delay_s(self._failures.add("client " + network), CLIENT_DELAY_S_MAX)
        if username:
            times = self._failures.add(self._user(username))
            if not self._failures.at_home(username, network):
                wait_s = max(wait_s, delay_s(times, USER_DELAY_S_MAX))
        return wait_s

    def _user(self, username: str) -> str:
        return "user " + (username if username in self._users else "")

    def _enqueue(self, user: str, hashed: str, password: str, network: str) -> asyncio.Future[bool]:
        names = ("user " + user, "client " + network)
        right: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._turns += 1
        trouble = [self._failures.count(name) + self._waiting_by.get(name, 0) for name in names]
        if self._failures.at_home(user, network):
            trouble[0] = 0
        heapq.heappush(self._waiting, _Check((trouble[0], trouble[1], self._turns), hashed, password, names, right))
        self._count(names, 1)
        if len(self._waiting) > WAITING_MAX:
            self._turn_away()
        self._next()
        return right

    def _turn_away(self) -> None:
        worst = max(self._waiting)
        self._waiting.remove(worst)
        heapq.heapify(self._waiting)
        self._count(worst.names, -1)
        worst.right.set_exception(TooBusy())

    def _count(self, names: tuple[str, str], more: int) -> None:
        for name in names:
            now = self._waiting_by.pop(name, 0) + more
            if now:
                self._waiting_by[name] = now

    def _next(self) -> None:
        if self._running or not self._waiting:
            return
        self._running = True
        check = heapq.heappop(self._waiting)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._verify, check.hashed, check.password)
        work.add_done_callback(lambda done: self._checked(check, done))

    def _checked(self, check: _Check, done: asyncio.Future[bool]) -> None:
        self._running = False
        self._count(check.names, -1)
        if done.cancelled():
            check.right.cancel()
        elif (error := done.exception()) is not None:
            check.right.set_exception(error)
        else:
            check.right.set_result(done.result())
        self._next()

    def _remember(self, digest: bytes, username: str, network: str) -> None:
        if len(self._remembered) >= _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = None
        self._failures.settle(username, network)

    def _digest(self, username: str, password: str, hashed: str) -> bytes:
        whole = "\0".join((username, password, hashed)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(whole, key=self._key, digest_size=32).digest()

    def _verify(self, hashed: str, password: str) -> bool:
        import argon2

        try:
            return argon2.PasswordHasher().verify(hashed, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError, UnicodeEncodeError):
            return False


def _is_hash(hashed: str) -> bool:
    import argon2  # here: most listeners have no users

    try:
        argon2.extract_parameters(hashed)
    except argon2.exceptions.InvalidHashError:
        return False
    return True
