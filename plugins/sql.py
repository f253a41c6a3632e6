"""Asks a database, SQLite or PostgreSQL: for the passwords of SMTP AUTH, and where a recipient's mail goes.

    [plugins]
    enabled = ["sql"]

    [plugins.options.sql]
    url = "postgresql://mta@db.example.com/mail"
    password = "the database's"
    login = "SELECT password FROM users WHERE name = :user AND active"
    route = "SELECT zone, host, port FROM routes WHERE domain = :domain"
    cache_s = 30
    failing = "closed"

`login` gives the password's hash (`zonemta config password` makes one: argon2) of :user, with :client and :listener; no
row means that [users] is asked next. `route` gives one row for :recipient, :domain, :sender, :sender_domain, :user,
:zone, :campaign, :tenant; its columns are those of zone, host, port, protocol, tls, source, pool, priority, delay_s,
reject that are to be set (empty or NULL: as it was), and answers are kept for `cache_s`, `cache_entries` at most. Names
in the queries are given to the database as parameters, never as text. SQLite is opened read-only, in a thread; of
PostgreSQL there are `connections` at most in each process. PostgreSQL needs `pip install zonemta-py[sql]`.

When the database is down, slower than `timeout_s`, or answers what cannot be used: logins get 451, and submitted mail
is deferred (`failing = "closed"`); or [users] alone decides and mail goes where it went without the plugin, which is
counted and logged (`failing = "open"`). timeout_s must be below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import argon2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from zonemta_py.plugin import Auth, Envelope, PluginApi, Reject, Routing, Session

WAITING_MAX = 64
"""Passwords that wait to be checked, in one process."""
REMEMBERED_MAX = 10_000
"""Logins that were right, kept as keyed digests until their hash is another one."""

_PARAMETER = re.compile(r"'[^']*'|(?<![:\w]):([a-z_]+)\b")
_LOGIN_NAMES = frozenset(("user", "client", "listener"))
_ROUTE_NAMES = frozenset(
    ("recipient", "domain", "sender", "sender_domain", "user", "zone", "campaign", "tenant"),
)
_COLUMNS = ("zone", "host", "port", "protocol", "tls", "source", "pool", "priority", "delay_s", "reject")
_REPLY = re.compile(r"(?:([45]\d\d)\s+)?(\S.*)", re.DOTALL)
_NOBODY = argon2.PasswordHasher().hash("nobody has this password")
"""Checked for users that there are not, so that it takes as long."""

Row = dict[str, Any]


class Options(BaseModel):
    """[plugins.options.sql]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: str
    """sqlite:/path/of/file or postgresql://user@host:port/database."""
    password: SecretStr = SecretStr("")
    """PostgreSQL's, if it asks for one."""
    login: str = ""
    """Query for the hash of a user's password; empty: logins are not asked about."""
    route: str = ""
    """Query for where a recipient's mail goes; empty: routes are not asked for."""
    timeout_s: float = Field(2, gt=0)
    """For connecting and the answer; below plugins.timeout_s."""
    failing: Literal["open", "closed"] = "closed"
    """open: as if the plugin were not there; closed: come again."""
    cache_s: float = Field(30, ge=0)
    """How long a route holds; 0: it is asked for each recipient."""
    cache_entries: int = Field(10_000, ge=1)
    """Routes kept."""
    connections: int = Field(4, ge=1, le=100)
    """To PostgreSQL, of each process that asks."""

    @field_validator("login", "route")
    @classmethod
    def _check_query(cls, query: str) -> str:
        if query and not re.match(r"\s*(select|with)\b", query, re.IGNORECASE):
            raise ValueError("is not a query; write SELECT …")
        return query.strip().rstrip(";")

    @model_validator(mode="after")
    def _check(self) -> Options:
        scheme = urlsplit(self.url).scheme
        if scheme not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("url: write sqlite:/path/of/file or postgresql://user@host/database")
        if not self.login and not self.route:
            raise ValueError("the plugin does nothing; give login or route")
        for query, known in ((self.login, _LOGIN_NAMES), (self.route, _ROUTE_NAMES)):
            for name in _names(query):
                if name not in known:
                    raise ValueError(f":{name} is not known there; there are {', '.join(sorted(known))}")
        return self


class SqlFailed(Exception):
    """The database cannot be asked, or answers what cannot be used. One sentence."""


class Database(Protocol):
    """Answers a query with its first row."""

    async def first(self, query: str, values: Mapping[str, str]) -> Row | None:
        """Raises SqlFailed."""


class SqliteDatabase:
    """A file, opened read-only in a thread of its own when it is first asked."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sql")
        self._connection: sqlite3.Connection | None = None

    async def first(self, query: str, values: Mapping[str, str]) -> Row | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, query, dict(values))
        except sqlite3.Error as error:
            raise SqlFailed(f"{error} ({self._path})") from None

    def _ask(self, query: str, values: dict[str, str]) -> Row | None:
        if self._connection is None:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, timeout=self._timeout_s / 2, isolation_level=None)
        end = time.monotonic() + self._timeout_s
        self._connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        try:
            cursor = self._connection.execute(query, values)
            row = cursor.fetchone()
            names = [column[0] for column in cursor.description or ()]
            cursor.close()
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None  # the file may be another one by now
            raise
        return dict(zip(names, row, strict=True)) if row is not None else None


class PostgresDatabase:
    """A pool of connections, made when it is first asked."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pool: Any = None
        self._made = asyncio.Lock()

    async def first(self, query: str, values: Mapping[str, str]) -> Row | None:
        import asyncpg

        text, names = _numbered(query)
        try:
            async with self._made:
                if self._pool is None:
                    options = self._options
                    self._pool = await asyncpg.create_pool(
                        options.url, password=options.password.get_secret_value() or None, min_size=0,
                        max_size=options.connections, timeout=options.timeout_s, command_timeout=options.timeout_s,
                    )  # fmt: skip
            async with self._pool.acquire(timeout=self._options.timeout_s) as connection:
                row = await connection.fetchrow(text, *(values[name] for name in names))
        except TimeoutError:
            raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            raise SqlFailed(str(error) or type(error).__name__) from None
        return dict(row) if row is not None else None


_api: PluginApi
_options: Options
_database: Database
_routes: OrderedDict[tuple[str, ...], tuple[float, Row | None]] = OrderedDict()
_key = os.urandom(32)
_right: OrderedDict[bytes, None] = OrderedDict()
_hasher = argon2.PasswordHasher()
_checking: ThreadPoolExecutor | None = None
_waiting = 0


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without the database."""
    global _api, _options, _database
    _api, _options = api, options
    if options.timeout_s >= api.timeout_s:
        raise ValueError(
            f"timeout_s = {options.timeout_s:g} must be below plugins.timeout_s, which is {api.timeout_s:g}"
        )
    if options.url.startswith("sqlite:"):
        path = Path(options.url.removeprefix("sqlite:").removeprefix("//"))
        if not path.is_absolute():
            raise ValueError(f"{options.url}: write the whole path of the file")
        _database = SqliteDatabase(path, options.timeout_s)
    else:
        try:
            import asyncpg  # noqa: F401 (the start says what is missing, and not the first login)
        except ImportError:
            raise ValueError("PostgreSQL needs asyncpg; pip install zonemta-py[sql]") from None
        _database = PostgresDatabase(options)


async def smtp_auth(auth: Auth, session: Session) -> None:
    """Sets session.user if the password is the one whose hash the database has."""
    if not _options.login:
        return
    values = {"user": auth.username, "client": session.client, "listener": session.listener}
    try:
        row = await _first(_options.login, values)
        hashed = _hash(row)
    except SqlFailed as error:
        _failed(error, "[users] alone decides on a login")
        return
    if await _is_right(auth, hashed or _NOBODY) and hashed:
        session.user = auth.username
    _api.count("logins", label="right" if session.user else "wrong" if hashed else "unknown")


async def queue_route(envelope: Envelope, routing: Routing) -> None:
    """Sets what the row for the recipient has."""
    if not _options.route:
        return
    values = {
        "recipient": routing.recipient, "domain": _domain(routing.recipient), "sender": envelope.sender,
        "sender_domain": _domain(envelope.sender), "user": envelope.user or "", "zone": routing.zone,
        "campaign": envelope.campaign or "", "tenant": envelope.tenant or "",
    }  # fmt: skip
    try:
        row = await _route(values)
        decided = _decided(row) if row else {}
    except SqlFailed as error:
        _failed(error, f"{routing.recipient} goes where it went without it")
        return
    _api.count("routes", label="found" if decided else "none")
    if reject := decided.pop("reject", ""):
        found = _REPLY.fullmatch(reject)
        raise Reject(int(found[1] or 550) if found else 550, found[2] if found else reject)
    for name, value in decided.items():
        setattr(routing, name, value)


def _failed(error: SqlFailed, instead: str) -> None:
    """Raises SqlFailed if it is closed."""
    sentence = f"{_shown(_options.url)}: {error}; start the database, or correct url and query"
    if _options.failing == "closed":
        raise SqlFailed(f'{sentence}, or do without it meanwhile by failing = "open"') from error
    _api.count("not_asked")
    _api.log.warning("%s; %s", sentence, instead)


async def _first(query: str, values: Mapping[str, str]) -> Row | None:
    """Within the time limit. Raises SqlFailed."""
    names = _names(query)
    clean = {name: values[name].encode("utf-8", "replace").decode().replace("\0", "") for name in names}
    try:
        async with asyncio.timeout(_options.timeout_s):
            return await _database.first(query, clean)
    except TimeoutError:
        raise SqlFailed(f"it does not answer within {_options.timeout_s:g} s") from None


async def _route(values: Mapping[str, str]) -> Row | None:
    """From memory, or the database. Raises SqlFailed."""
    key = tuple(values[name] for name in _names(_options.route))
    until, row = _routes.get(key, (0.0, None))
    if until > time.monotonic():
        return row
    row = await _first(_options.route, values)
    if _options.cache_s:
        _routes.pop(key, None)
        _routes[key] = (time.monotonic() + _options.cache_s, row)
        while len(_routes) > _options.cache_entries:
            _routes.popitem(last=False)
    return row


def _decided(row: Row) -> Row:
    """What is to be set. Raises SqlFailed for a column that is none of ours, or a number that is none."""
    decided = Row()
    for name, value in row.items():
        if name not in _COLUMNS:
            raise SqlFailed(f"the query gives a column {name!r}; there are {', '.join(_COLUMNS)}")
        if value is None or value == "":
            continue
        try:
            kind = float if name == "delay_s" else int if name in ("port", "priority") else str
            decided[name] = kind(value)
        except (ValueError, TypeError):
            raise SqlFailed(f"column {name} is {str(value)[:50]!r}, which is no number") from None
    return decided


def _hash(row: Row | None) -> str:
    """Of the row's only column; "": there is no such user. Raises SqlFailed."""
    if row is None:
        return ""
    if len(row) != 1:
        raise SqlFailed(f"the query for logins gives {len(row)} columns; it must give one, the password's hash")
    (value,) = row.values()
    if not isinstance(value, str) or not value.startswith("$argon2"):
        raise SqlFailed("the query for logins gives what is no argon2 hash; `zonemta config password` makes one")
    return value


async def _is_right(auth: Auth, hashed: str) -> bool:
    """Checked in a thread, one at a time, for that costs tens of milliseconds and megabytes by design."""
    global _checking, _waiting
    parts = (auth.username, auth.password, hashed)
    digest = hmac.digest(_key, "\0".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256)
    if digest in _right:
        return True
    if _waiting >= WAITING_MAX:
        raise Reject(454, "4.7.0 Too many logins at once, try again later")
    _checking = _checking or ThreadPoolExecutor(max_workers=1, thread_name_prefix="sql-password")
    _waiting += 1
    try:
        right = await asyncio.get_running_loop().run_in_executor(_checking, _verify, hashed, auth.password)
    finally:
        _waiting -= 1
    if right:
        _right[digest] = None
        while len(_right) > REMEMBERED_MAX:
            _right.popitem(last=False)
    return right


def _verify(hashed: str, password: str) -> bool:
    try:
        return _hasher.verify(hashed, password.encode("utf-8", "surrogatepass"))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _names(query: str) -> list[str]:
    """Of its parameters, each once."""
    return list(dict.fromkeys(found[1] for found in _PARAMETER.finditer(query) if found[1]))


def _numbered(query: str) -> tuple[str, Sequence[str]]:
    """With PostgreSQL's $1, $2 …, and what they stand for."""
    names = _names(query)
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}" if found[1] else found[0], query), names


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _shown(url: str) -> str:
    """Without a password that somebody has written into it."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", url).partition("?")[0]
