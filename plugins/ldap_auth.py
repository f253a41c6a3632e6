"""Asks an LDAP directory whether a login is right: SMTP AUTH by a bind.

    [plugins]
    enabled = ["ldap_auth"]

    [plugins.options.ldap_auth]
    url = "ldaps://ldap.example.com"
    base = "ou=people,dc=example,dc=com"
    filter = "(&(objectClass=inetOrgPerson)(uid={user}))"
    search_dn = "cn=mta,dc=example,dc=com"
    search_password = "the MTA's"
    failing = "closed"

Either `dn` names the entry of a user ("uid={user},ou=people,dc=example,dc=com"), or the one entry below `base` that
`filter` matches is searched for, as `search_dn` or as nobody; then the directory is bound to as that entry with the
user's password. What stands for {user} is escaped. An empty password is never asked about, for directories take it for
a visitor's. No entry, several, or a wrong password mean no, and [users] is asked next. A yes is remembered for
`remember_s`, a no for `remember_no_s`, as a keyed digest and for `entries` logins at most. Needs
`pip install zonemta-py[ldap]`; at most `connections` logins are asked about at the same time, in threads.

When the directory is down, slower than `timeout_s`, or answers anything else, a login gets 451 and the client comes
again (`failing = "closed"`), or [users] alone decides, which is counted and logged (`failing = "open"`). timeout_s must
be below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import os
import ssl
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import ldap3
from ldap3.core.exceptions import LDAPException
from ldap3.core.results import (
    RESULT_INAPPROPRIATE_AUTHENTICATION,
    RESULT_INVALID_CREDENTIALS,
    RESULT_NO_SUCH_OBJECT,
    RESULT_SIZE_LIMIT_EXCEEDED,
    RESULT_SUCCESS,
)
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from zonemta_py.plugin import Auth, PluginApi, Reject, Session

LOGIN_CHARACTERS_MAX = 256
"""Of name and password; longer ones are nobody's."""
WAITING_MAX = 64
"""Logins that wait for a thread, in one process."""

_NO = frozenset((RESULT_INVALID_CREDENTIALS, RESULT_INAPPROPRIATE_AUTHENTICATION, RESULT_NO_SUCH_OBJECT))
_USER = "{user}"


class Options(BaseModel):
    """[plugins.options.ldap_auth]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: str
    """ldaps://host:port, or ldap://host:port with starttls or on this machine."""
    starttls: bool = False
    """Whether ldap:// begins with TLS."""
    ca_file: Path | None = None
    """Certificates that the directory's is checked by; none: the system's."""
    dn: str = ""
    """Entry of a user, with {user}."""
    base: str = ""
    """Below which it is searched for, if dn is not given."""
    filter: str = "(uid={user})"
    """What matches the entry, with {user}."""
    search_dn: str = ""
    """As whom it is searched; empty: as nobody."""
    search_password: SecretStr = SecretStr("")
    """Its password."""
    timeout_s: float = Field(4, gt=0)
    """For all that is asked about a login; below plugins.timeout_s."""
    failing: Literal["open", "closed"] = "closed"
    """open: [users] alone decides; closed: the client is to come again."""
    remember_s: float = Field(60, ge=0)
    """How long a yes holds; a password that was changed works as long."""
    remember_no_s: float = Field(5, ge=0)
    """How long a no holds."""
    entries: int = Field(10_000, ge=1)
    """Logins remembered, by each receiver."""
    connections: int = Field(4, ge=1, le=100)
    """At the same time, of each receiver."""

    @model_validator(mode="after")
    def _check(self) -> Options:
        url = urlsplit(self.url)
        if url.scheme not in ("ldap", "ldaps") or not url.hostname:
            raise ValueError(f"{self.url!r} is not a URL such as ldaps://ldap.example.com")
        if url.scheme == "ldap" and not self.starttls and not _is_here(url.hostname):
            raise ValueError(f"{self.url}: passwords must not travel in the clear; use ldaps, or starttls = true")
        if bool(self.dn) == bool(self.base):
            raise ValueError("give dn, or base and filter")
        if _USER not in (self.dn or self.filter):
            raise ValueError(f"{'dn' if self.dn else 'filter'} must have {_USER} in it, or every user is the same one")
        if bool(self.search_dn) != bool(self.search_password.get_secret_value()):
            raise ValueError("search_dn and search_password belong together")
        return self


class LdapFailed(Exception):
    """The directory cannot be asked, or does not answer as it should. One sentence."""


class RememberedLogins:
    """Logins and what became of them, by digests with a key that only this process knows; the oldest go first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._key = os.urandom(32)
        self._found: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()

    def digest(self, auth: Auth) -> bytes:
        name, password = auth.username.encode("utf-8", "surrogatepass"), auth.password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, hashlib.sha256)

    def get(self, digest: bytes) -> bool | None:
        """None: it is not known any more."""
        until, right = self._found.get(digest, (0.0, False))
        return right if until > time.monotonic() else None

    def put(self, digest: bytes, right: bool, seconds: float) -> None:
        self._found.pop(digest, None)
        if seconds > 0:
            self._found[digest] = (time.monotonic() + seconds, right)
            while len(self._found) > self._entries:
                self._found.popitem(last=False)


_api: PluginApi
_options: Options
_logins: RememberedLogins
_threads: ThreadPoolExecutor | None = None
_waiting = 0


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without the directory."""
    global _api, _options, _logins
    _api, _options, _logins = api, options, RememberedLogins(options.entries)
    if options.timeout_s >= api.timeout_s:
        raise ValueError(
            f"timeout_s = {options.timeout_s:g} must be below plugins.timeout_s, which is {api.timeout_s:g}"
        )
    if options.ca_file and not options.ca_file.expanduser().is_file():
        raise ValueError(f"ca_file {options.ca_file}: there is no such file")


async def smtp_auth(auth: Auth, session: Session) -> None:
    """Sets session.user if the directory knows the login."""
    longest = max(len(auth.username), len(auth.password))
    if not auth.username or not auth.password or "\0" in auth.username or longest > LOGIN_CHARACTERS_MAX:
        return
    digest = _logins.digest(auth)
    right = _logins.get(digest)
    if right is None:
        try:
            right = await _asked(auth)
        except LdapFailed as error:
            sentence = f"{_options.url}: {error}; start the directory, or correct url, search_dn and timeout_s"
            if _options.failing == "closed":
                raise LdapFailed(f'{sentence}, or let [users] decide alone by failing = "open"') from None
            _api.count("not_asked")
            _api.log.warning("%s; [users] alone decides on a login", sentence)
            return
        _logins.put(digest, right, _options.remember_s if right else _options.remember_no_s)
        _api.count("asked", label="yes" if right else "no")
    if right:
        session.user = auth.username


async def _asked(auth: Auth) -> bool:
    """In a thread, within the time limit. Raises LdapFailed, Reject."""
    global _threads, _waiting
    if _waiting >= WAITING_MAX:
        raise Reject(454, "4.7.0 Too many logins at once, try again later")
    _threads = _threads or ThreadPoolExecutor(max_workers=_options.connections, thread_name_prefix="ldap")
    end = time.monotonic() + _options.timeout_s
    _waiting += 1
    try:
        async with asyncio.timeout(_options.timeout_s):
            return await asyncio.get_running_loop().run_in_executor(_threads, _bound, auth, end)
    except TimeoutError:
        raise LdapFailed(f"it does not answer within {_options.timeout_s:g} s") from None
    finally:
        _waiting -= 1


def _bound(auth: Auth, end: float) -> bool:
    """Whether the directory can be bound to as the user. Raises LdapFailed."""
    try:
        dn = _options.dn.replace(_USER, escape_rdn(auth.username)) if _options.dn else _found(auth.username, end)
        return bool(dn) and _is_bound(dn, auth.password, end)
    except (LDAPException, OSError, ssl.SSLError, UnicodeError, ValueError) as error:
        raise LdapFailed(f"{type(error).__name__}: {str(error)[:200]}") from None


def _found(user: str, end: float) -> str:
    """The DN of the user's entry, "" if there is none, or more than one."""
    connection = _connection(_options.search_dn, _options.search_password.get_secret_value(), end)
    try:
        _must(connection.bind(), connection, "it does not take search_dn")
        wanted = _options.filter.replace(_USER, escape_filter_chars(user))
        connection.search(_options.base, wanted, attributes=[ldap3.NO_ATTRIBUTES], size_limit=2)
        if connection.result["result"] not in (RESULT_SUCCESS, RESULT_SIZE_LIMIT_EXCEEDED):
            _must(False, connection, "it does not search")
        entries = [one for one in connection.response or () if one.get("type") == "searchResEntry"]
        return str(entries[0]["dn"]) if len(entries) == 1 else ""
    finally:
        _close(connection)


def _is_bound(dn: str, password: str, end: float) -> bool:
    connection = _connection(dn, password, end)
    try:
        if connection.bind():
            return True
        if connection.result.get("result") not in _NO:
            _must(False, connection, "it does not say yes or no")
        return False
    finally:
        _close(connection)


def _must(holds: Any, connection: Any, what: str) -> None:
    if not holds:
        result = connection.result or {}
        said = f"{result.get('description', 'no answer')} {result.get('message', '')}".strip()
        raise LdapFailed(f"{what} ({said[:200]})")


def _connection(dn: str, password: str, end: float) -> Any:
    """Open, and under TLS if that is wanted; not bound yet."""
    left = max(0.05, end - time.monotonic())
    url = urlsplit(_options.url)
    secure = url.scheme == "ldaps" or _options.starttls
    tls = None
    if secure:
        file = str(_options.ca_file.expanduser()) if _options.ca_file else None
        tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=file, valid_names=[url.hostname], sni=url.hostname)
    server = ldap3.Server(
        url.hostname, port=url.port or (636 if url.scheme == "ldaps" else 389), use_ssl=url.scheme == "ldaps", tls=tls,
        get_info=ldap3.NONE, connect_timeout=left,
    )  # fmt: skip
    connection = ldap3.Connection(
        server, user=dn or None, password=password or None, authentication=ldap3.SIMPLE if dn else ldap3.ANONYMOUS,
        receive_timeout=math.ceil(left), raise_exceptions=False, auto_referrals=False,
        check_names=False, read_only=True,
    )  # fmt: skip
    try:
        connection.open(read_server_info=False)
        if _options.starttls and url.scheme == "ldap":
            _must(connection.start_tls(read_server_info=False), connection, "it does not begin with TLS")
    except BaseException:
        _close(connection)
        raise
    return connection


def _close(connection: Any) -> None:
    with suppress(LDAPException, OSError):
        connection.unbind()


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
