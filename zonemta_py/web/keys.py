"""API keys, with the role, the rights and the scope of each.

A key is 256 random bits, so it cannot be guessed, and the configuration may hold its plain SHA-256: slow hashes (argon2
and the like) protect passwords that people choose, and would cost every request tens of milliseconds here. Comparison
takes constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from zonemta_py.config import HttpKey, Right, Role
from zonemta_py.config.services.http import OF_ALL
from zonemta_py.config.services.pull import names_queue
from zonemta_py.disk.files import replace_file
from zonemta_py.mail.addresses.senders import ANYBODY, Senders
from zonemta_py.reception.permission import Permissions
from zonemta_py.reception.scope import EVERYTHING, KeyScope, OutOfScope
from zonemta_py.web.documents.problem import BUSY_S, RequestProblem

TOKEN_FILE = "http.token"
LOCAL = "local"
"""Name of the key in the token file."""
PREFIX = "zmta_"
"""Prefix of every key, so that secret scanners find leaked ones."""
RIGHTS: tuple[Right, ...] = get_args(Right)
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may; but only inject and admin hand in mail."""
OF_ROLE: dict[Role, tuple[Right, ...]] = {
    "inject": ("inject",),
    "read": ("read", "events", "metrics"),
    "operate": ("read", "events", "metrics", "campaigns", "suppressions", "domains"),
    "admin": RIGHTS,
}
"""The rights that come with a role."""
NOT_AS = "may not send as"
REMEDY = "name that address or its domain in [[http.keys]] senders"
_SCHEME = "bearer "
_KEY_MAX = 500
_TOKEN = re.compile(PREFIX + r"[\w-]{43}", re.ASCII)
_CHALLENGE = {"www-authenticate": 'Bearer realm="zonemta"'}


def new_key() -> str:
    """256 bits, in letters that are allowed in a header field."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """The hash as the configuration has it."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Holder:
    """Who sends the request."""

    name: str
    rights: frozenset[Right]
    senders: Senders = ANYBODY
    queues: tuple[str, ...] = ("*",)
    role: Role | None = None
    scope: KeyScope = EVERYTHING

    @classmethod
    def of(cls, key: HttpKey, senders: Senders, tenants: list[str] | None = None) -> Holder:
        """tenants: as of `Permissions`, of the key with its account; default: the key's."""
        given: list[Right] = key.rights if key.rights is not None else []
        if key.rights is None and not key.role:
            given = ["inject"]
        scope = KeyScope(frozenset(key.tenants if tenants is None else tenants), frozenset(key.campaigns))
        of_role = frozenset[Right](OF_ROLE[key.role] if key.role else ())
        rights: frozenset[Right] = of_role.difference(OF_ALL if scope.bound else ()).union(given)
        return cls(key.name, rights, senders, tuple(key.queues), key.role, scope)

    @property
    def operates(self) -> bool:
        """Whether it is an operator's, for whom places are kept."""
        return self.role in ("operate", "admin") and not self.scope.bound

    def check_role(self, least: Role, whole: bool = False) -> None:
        """Whether the key has this role, or one that may more. whole: it is about mail of everybody. Raises
        RequestProblem."""
        if self.role is None or ROLES.index(self.role) < ROLES.index(least):
            raise RequestProblem(
                "no-right", f"the key {self.name!r} lacks the role {least}; give it in [[http.keys]] role"
            )
        if whole:
            self.check_whole()

    def check_whole(self) -> None:
        """Whether it may see mail of everybody. Raises RequestProblem."""
        if self.scope.bound:
            raise RequestProblem(
                "no-right",
                f"the key {self.name!r} has a scope (tenants, campaigns, those of its account), and this is about all"
                " mail; use one without",
            )

    def narrowed(self, where: dict[str, Any]) -> dict[str, Any]:
        """The filter, of what is in its scope. Raises RequestProblem."""
        try:
            return self.scope.narrowed(where)
        except OutOfScope as error:
            raise RequestProblem("no-right", f"the key {self.name!r} {error}") from None

    def owner(self, tenant: str) -> str:
        """Of what the key brings, naming that tenant or none (""). Raises RequestProblem."""
        try:
            return self.scope.owner(tenant)
        except OutOfScope as error:
            raise RequestProblem("no-right", f"the key {self.name!r} {error}") from None

    def speak(self, *addresses: str) -> None:
        """Whether the key may send mail from all of these. Raises RequestProblem."""
        for address in addresses:
            if not self.senders.may(address):
                raise RequestProblem("no-right", f"the key {self.name!r} {NOT_AS} {address[:80]}; {REMEDY}")

    def check(self, *rights: Right) -> None:
        """Whether the key has any of these rights. Raises RequestProblem."""
        if not self.rights.intersection(rights):
            wanted = " or ".join(rights)
            raise RequestProblem(
                "no-right", f"the key {self.name!r} lacks the right {wanted}; give it in [[http.keys]] rights"
            )

    def check_queue(self, queue: str) -> None:
        """Whether the key is for that queue. Raises RequestProblem."""
        if not names_queue(self.queues, queue):
            raise RequestProblem(
                "no-right", f"the key {self.name!r} is not for the queue {queue!r}; name it in [[http.keys]] queues"
            )


class ApiKeys:
    """configured: from the configuration. local: the key of the token file, which has all rights. permissions: the
    listener's."""

    def __init__(self, configured: list[HttpKey], local: str, permissions: Permissions | None = None) -> None:
        self._changed = set[bytes]()
        self._holders = [(key.hash.encode(), _holder(key, permissions)) for key in configured]
        self._holders.append((hashed(local).encode(), Holder(LOCAL, frozenset(RIGHTS), role="admin")))

    def known(self) -> list[tuple[bytes, Holder]]:
        """The hash and holder of each key."""
        return self._holders

    def revise(self, before: dict[str, str], now: dict[str, str], local: bool) -> bool:
        """Another configuration holds: forgets keys that are not in it, and puts off those that have other rights there
        until the next process is asked. local: the key of the token file is still there. Returns whether there are
        any. before, now: name → what its rights depend on."""
        names = {name for name, digest in before.items() if now.get(name) != digest}
        if not local:
            names.add(LOCAL)
        lost = [(known, holder) for known, holder in self._holders if holder.name in names]
        self._holders = [one for one in self._holders if one not in lost]
        self._changed |= {known for known, holder in lost if holder.name in now}
        return bool(lost)

    def holder(self, authorization: str) -> Holder:
        """authorization: the field's value, "" if there is none. Raises RequestProblem."""
        if not authorization:
            raise _refused("no key was sent; send Authorization: Bearer <key>; `zonemta api-key new NAME` makes one")
        if authorization[: len(_SCHEME)].lower() != _SCHEME or len(authorization) > _KEY_MAX:
            raise _refused("the field Authorization has no bearer key; write it as Bearer <key> (RFC 6750)")
        shown = hashed(authorization[len(_SCHEME) :].strip()).encode()
        found = None
        for known, holder in self._holders:  # always to the end, for constant time
            if hmac.compare_digest(shown, known):
                found = holder
        if shown in self._changed:
            raise RequestProblem("unavailable", "this key has other rights now; send the request again", retry_s=BUSY_S)
        if found is None:
            raise _refused("the key is unknown; `zonemta api-key list` shows those that are known")
        return found


def _holder(key: HttpKey, permissions: Permissions | None) -> Holder:
    if permissions is None:
        return Holder.of(key, Senders(key.senders))
    return Holder.of(key, permissions.key(key.name, key.senders), permissions.tenants(key))


def _refused(detail: str) -> RequestProblem:
    return RequestProblem("no-key", detail, headers=dict(_CHALLENGE))


def kept_token(folder: Path) -> str:
    """The key for programs of this user: that of the token file, or a new one if there is none, or if the file is not
    as we write it, or others may read it. So it is the same after a reload and a restart. Raises OSError."""
    key = token(folder)
    if not _TOKEN.fullmatch(key):
        key = new_key()
        replace_file(folder / TOKEN_FILE, f"{key}\n".encode(), 0o600)
    return key


def token(folder: Path) -> str:
    """What the token file says; nothing if it is not there, or not ours alone."""
    try:
        with open(
            os.open(folder / TOKEN_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            about = os.fstat(file.fileno())
            ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
            return file.read(_KEY_MAX).decode("ascii", "replace").removesuffix("\n") if ours else ""
    except OSError:
        return ""
