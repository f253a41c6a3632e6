"""The dashboard's own application: who may come in, then which page.

Promise: whoever has no session sees nothing but the form to log in; nothing is changed without a token of this session
from a page of this server; every answer carries the policy that lets a browser load and run only what comes from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi.sse import format_sse_event
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zonemta_py.logs.privacy import UserName
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.web.api.events import EventStream
from zonemta_py.web.dashboard import orders
from zonemta_py.web.dashboard.desk import FORM_BYTES_MAX, HEADERS, HOME, Desk, NoPage, QueueAway
from zonemta_py.web.dashboard.pages import Handler, pages_of
from zonemta_py.web.dashboard.sessions import COOKIE, SESSION_S, LoginSession, Sessions
from zonemta_py.web.dashboard.words import Wrong
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.request_context import QueueFace, RequestContext
from zonemta_py.web.shares import RequestShares

LOOK_S = 2.0
AWAY_S = 3.0
SILENT_S = 15.0


class Live:
    """What pages are told while they are open: whether the queue answers, and the figures of the last look.

    However many pages are open, the queue is asked once every LOOK_S, and not at all while none is. A page whose
    figures have not changed is told nothing but, now and then, that the stream lives.
    """

    def __init__(self, queue: QueueFace) -> None:
        self._queue = queue
        self._listening = 0
        self._looking: asyncio.Task[None] | None = None
        self._text = ""
        self._changed = asyncio.Event()
        self._over = False

    def end(self) -> None:
        """Pages are told no more by this process; they ask the next one."""
        self._over = True
        self._changed.set()

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events for one page: `now`, with the figures in JSON, or `away`. Until `end`."""
        yield format_sse_event(retry=2000, comment="zonemta-py")
        self._listening += 1
        try:
            if self._looking is None or self._looking.done():
                self._text = ""
                self._looking = asyncio.ensure_future(self._look())
            said = ""
            while not self._over:
                changed = self._changed
                if self._text and self._text != said:
                    said = self._text
                    yield format_sse_event(event="away" if said == "{}" else "now", data_str=said)
                    continue
                try:
                    async with asyncio.timeout(SILENT_S):
                        await changed.wait()
                except TimeoutError:
                    yield format_sse_event(comment="")
        finally:
            self._listening -= 1

    async def _look(self) -> None:
        """While somebody listens."""
        while self._listening:
            text = await self._asked()
            if text != self._text:
                self._text = text
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def _asked(self) -> str:
        try:
            async with asyncio.timeout(AWAY_S):
                rates: dict[str, Any] = await self._queue.ask(questions.now)
                sizes = (await self._queue.ask(questions.size))["total"]
        except (TimeoutError, QueueRefusal, ValueError):
            return "{}"
        names = ("in", "out", "deferred", "bounced")
        history = {name: [round(value, 1) for value in rates["history"].get(name, [])] for name in names}
        return json.dumps({"rates": {name: round(rates[name], 1) for name in names}, "history": history,
                           "sizes": sizes})  # fmt: skip


log = logging.getLogger(__name__)
_OPEN = (f"{HOME}/login", f"{HOME}/static/")


class Dashboard:
    """An ASGI application for all paths of the dashboard. Raises OSError."""

    def __init__(self, here: RequestContext) -> None:
        self._here, self._desk, self._live = here, Desk(here), Live(here.queue)
        here.streams.at_end(self._live.end)
        self._sessions = Sessions(here.config.folder, here.keys, time.time)
        pages = pages_of(here.config)
        self._desk.there = frozenset((*pages, *orders.ORDERS))
        routes = [Route(HOME + path, self._shown(handler)) for path, handler in pages.items()]
        routes += [
            Route(f"{HOME}/login", self._login, methods=["GET", "POST"]),
            Route(f"{HOME}/logout", self._logout, methods=["POST"]),
            Route(f"{HOME}/live", self._stream),
            Route(f"{HOME}/order/{{name}}", self._order, methods=["GET", "POST"]),
            Route(f"{HOME}/static/{{name}}", serve),
        ]
        told: dict[Any, Any] = {
            NoPage: self._tell, QueueAway: self._tell, Wrong: self._tell, HTTPException: self._tell,
            RequestProblem: self._tell, Exception: self._tell, ClientDisconnect: _gone,
        }  # fmt: skip
        self._app: ASGIApp = Starlette(routes=routes, exception_handlers=told)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, guarded = Request(scope), _guarded(send)
        session = self._sessions.of(request.cookies.get(COOKIE, ""))
        if session is None and not scope["path"].startswith(_OPEN):
            await _to_login(request)(scope, receive, guarded)
            return
        scope["state"]["session"] = session
        client = scope["state"]["visit"].client
        shares = self._here.streams if scope["path"] == f"{HOME}/live" else self._here.shares
        try:
            with self._place(shares, session, client):
                await self._app(scope, receive, guarded)
        except RequestProblem as problem:
            busy = Response(problem.detail, problem.status, {**problem.headers}, "text/plain")
            await busy(scope, receive, guarded)

    def _place(
        self, shares: RequestShares, session: LoginSession | None, client: str
    ) -> contextlib.AbstractContextManager[None]:
        """Counted beside the requests that programs make with the same key."""
        if session is None:
            return shares.stranger(client)
        return shares.one(f"{session.holder.name} dashboard", client, session.holder.operates)

    def _shown(self, handler: Handler) -> Any:
        async def show(request: Request) -> Response:
            return await handler(self._desk, request)

        return show

    async def _stream(self, request: Request) -> Response:
        return EventStream(self._live.events(), self._here.streams)

    # -- in and out

    async def _login(self, request: Request) -> Response:
        client, there = request.state.visit.client, _ours(request.query_params.get("next", ""))
        if request.method == "GET":
            return self._desk.page(request, "login", next=there, wrong="")
        _same_origin(request)
        form = await _form(request)
        wait_s = self._sessions.wait_s(client)
        cookie = await self._sessions.login(form.get("key", ""), client)  # a right one is one whatever came before
        session = self._sessions.of(cookie) if cookie else None
        if (cookie is None or session is None) and wait_s:
            sentence = f"Too many wrong keys came from {client}: try again in {wait_s} seconds."
            shown = self._desk.page(request, "login", 429, next=there, wrong=sentence)
            shown.headers["retry-after"] = str(wait_s)
            return shown
        if cookie is None or session is None:
            log.warning("dashboard: a wrong key from %s", client)
            wrong = "There is no such key. “zonemta api-key list” shows the names of those there are."
            return self._desk.page(request, "login", 403, next=there, wrong=wrong)
        if refusal := _refusal(session):
            return self._desk.page(request, "login", 403, next=there, wrong=refusal)
        log.info("dashboard: the key %r logged in from %s", UserName(session.holder.name), client)
        away = RedirectResponse(_ours(form.get("next", "")), 303)
        away.set_cookie(COOKIE, cookie, max_age=SESSION_S, path=HOME, secure=_secure(request), httponly=True,
                        samesite="strict")  # fmt: skip
        return away

    async def _logout(self, request: Request) -> Response:
        session = await _trusted(request, await _form(request))
        await self._sessions.end(session)
        away = RedirectResponse(f"{HOME}/login", 303)
        away.delete_cookie(COOKIE, HOME, httponly=True, samesite="strict", secure=_secure(request))
        return away

    # -- orders

    async def _order(self, request: Request) -> Response:
        """What it will do, with the button that does it; then what it did, on the page where one came from."""
        session: LoginSession = request.state.session
        if request.method == "GET":
            given = dict(request.query_params)
            order = orders.find(request.path_params["name"], session)
            words = await order.words(self._desk, given)
            return self._desk.page(request, "order", order=order, words=words, given=given,
                                   back=_ours(given.get("back", "")))  # fmt: skip
        form = await _form(request)
        await _trusted(request, form)
        order = orders.find(request.path_params["name"], session)
        try:
            done = await order.do(self._desk, form, session.holder.name)
        except QueueAway as away:
            raise QueueAway(f"{away}, so look whether this was done before you order it again") from None
        log.info("dashboard: %s by the key %r: %s", order.name, UserName(session.holder.name), done.said)
        back = _ours(done.there or form.get("back", ""))
        join = "&" if "?" in back else "?"
        return RedirectResponse(f"{back}{join}done={self._desk.keep(session, done)}", 303)

    async def _tell(self, request: Request, error: Exception) -> Response:
        status, sentence = 500, "the server failed on this page; its log says why"
        if isinstance(error, QueueAway):
            status, sentence = 503, str(error)
        elif isinstance(error, NoPage | HTTPException | RequestProblem):
            status = getattr(error, "status", 0) or getattr(error, "status_code", 500)
            sentence = "there is no such page" if status == 404 and isinstance(error, HTTPException) else str(error)
        elif isinstance(error, Wrong):
            status, sentence = 422, str(error)
        return self._desk.page(request, "problem", status, status=status, sentence=sentence)


def _to_login(request: Request) -> Response:
    """A part of a page that is loaded again sends the whole page there."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    there = f"{HOME}/login?next={quote(asked)}"
    if "hx-request" in request.headers:
        return Response(headers={"hx-redirect": there})
    return RedirectResponse(there, 303)


def _guarded(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _refusal(session: LoginSession) -> str:
    """Why this key may not see the dashboard."""
    holder = session.holder
    if holder.scope.bound:
        return f"The key “{holder.name}” has a scope (tenants, campaigns), and pages show all mail: use one without."
    if "read" in holder.rights:
        return ""
    return f"The key “{holder.name}” may not see this: give it the role read or operate in [[http.keys]]."


def _ours(there: str) -> str:
    """An address of a page of ours; the first page for any other."""
    whole = urlsplit(there)
    path = whole.path
    fits = there.isascii() and there.isprintable() and "\\" not in there and not whole.netloc and not whole.scheme
    page = f"{path}/".startswith(f"{HOME}/") and not path.startswith((f"{HOME}/log", f"{HOME}/live"))
    if not fits or not page:
        return HOME
    kept = [one for one in whole.query.split("&") if one and not one.startswith("done=")]
    return path + (f"?{'&'.join(kept)}" if kept else "")


def _secure(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > FORM_BYTES_MAX:
            raise NoPage(413, f"the form is longer than {FORM_BYTES_MAX:,} bytes; order it in several parts")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=200))
    except ValueError:
        raise NoPage(400, "the form cannot be read; send it from a page of the dashboard") from None


def _same_origin(request: Request) -> None:
    """Raises NoPage if a page of somebody else sent this form. (A browser that is to name no referrer says the origin
    null; then it says what kind of site it was.)"""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        fits = site in ("same-origin", "none")
    else:
        fits = origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
    if not fits:
        raise NoPage(403, "the form came from another site; a proxy in front has to pass the field Host on as it is")


async def _trusted(request: Request, form: dict[str, str]) -> LoginSession:
    """The session, if the form is of one of its pages. Raises NoPage."""
    _same_origin(request)
    session: LoginSession = request.state.session
    if form.get("csrf") != session.csrf:
        raise NoPage(403, "the form is not of this session: go back, load the page again, and send it once more")
    return session


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)


FOLDER = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, tuple[str, Path]]:
    """Kind and file by name, of those that are served."""
    files = [path for path in FOLDER.rglob("*") if path.suffix in KINDS]
    return {path.name: (KINDS[path.suffix], path) for path in files}


@cache
def _content(path: Path) -> tuple[str, bytes]:
    content = path.read_bytes()
    return f'"{hashlib.sha256(content).hexdigest()[:20]}"', content


async def serve(request: Request) -> Response:
    """A browser that has it is told to use that."""
    kind, path = _files().get(request.path_params["name"], ("", FOLDER))
    if not kind:
        return Response(status_code=404)
    tag, content = _content(path)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
