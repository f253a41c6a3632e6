"""Asks a web service whether a login is right: SMTP AUTH by an HTTP request.

    [plugins]
    enabled = ["http_auth"]

    [plugins.options.http_auth]
    url = "https://accounts.example.com/smtp-login"
    method = "POST"
    remember_s = 60
    failing = "closed"

GET sends the login as HTTP's Basic authentication; POST a JSON document with username and password. Both say who asks:
client, helo, listener, tls (in the query of a GET). An answer of 200 or 204 means yes, and a JSON document in it with
"user" gives the user another name; 401, 403 and 404 mean no, and [users] is asked next. A yes is remembered for
`remember_s`, a no for `remember_no_s`, as a keyed digest and for `entries` logins at most; nobody can read a password
from it. At most `connections` requests are under way.

When the service is down, slower than `timeout_s`, or answers anything else, a login gets 451 and the client comes again
(`failing = "closed"`), or [users] alone decides, which is counted and logged (`failing = "open"`). timeout_s must be
below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import os
import time
from collections import OrderedDict
from typing import Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from zonemta_py.plugin import Auth, PluginApi, Session

ANSWER_BYTES_MAX = 65_536
LOGIN_CHARACTERS_MAX = 1_000
"""Of name and password; longer ones are nobody's."""

_YES = frozenset((200, 204))
_NO = frozenset((401, 403, 404))


class Options(BaseModel):
    """[plugins.options.http_auth]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: str
    """https, or http on this machine: passwords travel in it."""
    method: Literal["GET", "POST"] = "POST"
    """How it is asked."""
    token: SecretStr = SecretStr("")
    """What we identify ourselves with, as "Authorization: Bearer"; only with POST."""
    timeout_s: float = Field(4, gt=0)
    """For the whole request; below plugins.timeout_s."""
    failing: Literal["open", "closed"] = "closed"
    """open: [users] alone decides; closed: the client is to come again."""
    remember_s: float = Field(60, ge=0)
    """How long a yes holds; a password that was changed works as long."""
    remember_no_s: float = Field(5, ge=0)
    """How long a no holds."""
    entries: int = Field(10_000, ge=1)
    """Logins remembered, by each receiver."""
    connections: int = Field(20, ge=1, le=1000)
    """Requests at the same time, of each receiver."""

    @model_validator(mode="after")
    def _check(self) -> Options:
        url = httpx.URL(self.url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"{self.url!r} is not a URL such as https://accounts.example.com/login")
        if url.scheme == "http" and not _is_here(url.host):
            raise ValueError(f"{self.url}: passwords must not travel in the clear; use https")
        if self.method == "GET" and self.token.get_secret_value():
            raise ValueError("a GET has the login in its Authorization; use POST with a token")
        return self


class HttpAuthFailed(Exception):
    """The service cannot be asked, or does not answer as it should. One sentence."""


class RememberedLogins:
    """Logins and what became of them, by digests with a key that only this process knows; the oldest go first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._key = os.urandom(32)
        self._found: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def digest(self, auth: Auth) -> bytes:
        name = auth.username.encode("utf-8", "surrogatepass")
        password = auth.password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, hashlib.sha256)

    def get(self, digest: bytes) -> str | None:
        """The user's name, "" for a no; None: it is not known any more."""
        until, user = self._found.get(digest, (0.0, ""))
        return user if until > time.monotonic() else None

    def put(self, digest: bytes, user: str, seconds: float) -> None:
        self._found.pop(digest, None)
        if seconds > 0:
            self._found[digest] = (time.monotonic() + seconds, user)
            while len(self._found) > self._entries:
                self._found.popitem(last=False)


_api: PluginApi
_options: Options
_logins: RememberedLogins
_client: httpx.AsyncClient | None = None


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without the service."""
    global _api, _options, _logins
    _api, _options, _logins = api, options, RememberedLogins(options.entries)
    if options.timeout_s >= api.timeout_s:
        raise ValueError(
            f"timeout_s = {options.timeout_s:g} must be below plugins.timeout_s, which is {api.timeout_s:g}"
        )


async def smtp_auth(auth: Auth, session: Session) -> None:
    """Sets session.user if the service knows the login."""
    if not auth.password or max(len(auth.username), len(auth.password)) > LOGIN_CHARACTERS_MAX:
        return
    digest = _logins.digest(auth)
    user = _logins.get(digest)
    if user is None:
        try:
            async with asyncio.timeout(_options.timeout_s):
                user = await _asked(auth, session)
        except (httpx.HTTPError, HttpAuthFailed, OSError, TimeoutError) as error:
            late = f"it does not answer within {_options.timeout_s:g} s"
            said = late if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            sentence = f"{_without_login(_options.url)}: {said}; start the service, or correct url and timeout_s"
            if _options.failing == "closed":
                raise HttpAuthFailed(f'{sentence}, or let [users] decide alone by failing = "open"') from None
            _api.count("not_asked")
            _api.log.warning("%s; [users] alone decides on a login", sentence)
            return
        _logins.put(digest, user, _options.remember_s if user else _options.remember_no_s)
        _api.count("asked", label="yes" if user else "no")
    session.user = user or session.user


async def _asked(auth: Auth, session: Session) -> str:
    """The user's name; "": no. Raises HttpAuthFailed, and what httpx raises."""
    says = {"client": session.client, "helo": session.helo, "listener": session.listener, "tls": session.tls}
    client = _connected()
    if _options.method == "GET":
        login = (auth.username.encode("utf-8", "replace"), auth.password.encode("utf-8", "replace"))
        request = client.build_request("GET", httpx.URL(_options.url).copy_merge_params(says))
        asking = client.send(request, auth=httpx.BasicAuth(*login), stream=True)
    else:
        token = _options.token.get_secret_value()
        document = {"username": auth.username, "password": auth.password, **says}
        content = json.dumps(document).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        asking = client.send(client.build_request("POST", _options.url, content=content, headers=headers), stream=True)
    response = await asking
    try:
        if response.status_code in _NO:
            return ""
        if response.status_code not in _YES:
            raise HttpAuthFailed(f"it answers {response.status_code}, which is neither a yes nor a no")
        answer = bytearray()
        async for block in response.aiter_bytes():
            answer += block
            if len(answer) > ANSWER_BYTES_MAX:
                raise HttpAuthFailed(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    return _named(bytes(answer), response.headers.get("Content-Type", "")) or auth.username


def _named(answer: bytes, kind: str) -> str:
    """The name that it gives the user, if it does. Raises HttpAuthFailed."""
    if not kind.startswith("application/json"):
        return ""
    try:
        found = json.loads(answer)
        user = found.get("user", "") if isinstance(found, dict) else ""
    except ValueError:
        raise HttpAuthFailed(f"its answer is no JSON: {answer[:100]!r}") from None
    if not isinstance(user, str) or not user.isprintable():
        raise HttpAuthFailed(f"it gives the user a name that is none: {user!r:.100}")
    return user


def _connected() -> httpx.AsyncClient:
    """One client for each process, made when it is first needed."""
    global _client
    if _client is None:
        limits = httpx.Limits(max_connections=_options.connections, keepalive_expiry=30)
        _client = httpx.AsyncClient(
            limits=limits, timeout=_options.timeout_s, trust_env=False, follow_redirects=False,
        )  # fmt: skip
    return _client


def _without_login(url: str) -> str:
    return str(httpx.URL(url).copy_with(userinfo=b"", query=None))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
