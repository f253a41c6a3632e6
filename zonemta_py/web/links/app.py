"""The application: each request is about one signed link, and nothing else is here.

GET and HEAD change nothing, whoever sends them; a POST does only if its body says so (RFC 8058 3.1), and is answered
200 once that is on stable storage. What is answered depends on the link alone, never on whether an address exists. A
link that comes again within KNOWN_S is answered the same, and the queue is not asked.

Failures: 403 for a link that is not ours, 410 for one that is too old, 429 for a client that tries many, 503 while the
queue is away; each with a page that says what to do.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.mail.addresses import link as links
from zonemta_py.mail.addresses.link import Link, LinkRefused
from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.metrics.report import count
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import ConnectionLimits, Networks, network_of, plain_ip
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.retirement import Retirement
from zonemta_py.web.links import forms, pages, unsubscribe
from zonemta_py.web.links.pages import LinkPage, PageChoice, Pages, PageTexts, shown
from zonemta_py.web.links.tracking import GIF, Interest
from zonemta_py.web.links.unsubscribe import LinksQueue
from zonemta_py.web.serving.connection import HttpServer, behind, settings
from zonemta_py.wire.channel import Lost

T = TypeVar("T")
log = logging.getLogger(__name__)

ANSWER_S = 20.0
"""How long the queue may take."""
AGAIN_S = 0.1
BODY_S = 10.0
KNOWN_MAX = 50_000
KNOWN_S = 10.0
_DAY_S = 86_400
_STYLE = "style-src 'unsafe-inline'; img-src data:"
_POLICY = f"default-src 'none'; {_STYLE}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": _POLICY,
    "x-robots-tag": "noindex, nofollow",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
METHODS = {
    "u": "GET, HEAD, POST, OPTIONS", "p": "GET, HEAD, POST, OPTIONS", "o": "GET, HEAD, OPTIONS",
    "c": "GET, HEAD, OPTIONS",
}  # fmt: skip
PICTURE = {**HEADERS, "cross-origin-resource-policy": "cross-origin"}
_TARGET = re.compile("https?://[!-~]+", re.IGNORECASE)
_PURPOSES = {path: purpose for purpose, path in links.PATHS.items()}


class Answered(Exception):
    """The response that ends a request early."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class LinksApp:
    """unix_s: the real clock; tests pass another."""

    def __init__(self, config: Config, queue: LinksQueue, unix_s: Callable[[], float] = time.time) -> None:
        self._links, self._queue, self._unix_s = config.links, queue, unix_s
        self._base = urlsplit(config.links.url).path
        self._pages = Pages.load(config.links.pages)
        self._clients = Clients(config.links.trusted_proxies)
        self.interest = Interest(queue)
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """By recipient: the link by which he has left last, and when that was."""
        self._notes = LogThrottle(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Answered as answered:
            response = answered.response
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a link could not be answered")
            response = self._page(request, LinkPage("busy", self._words(request)), 500)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        what, token = self._place(request.url.path)
        if what == "robots.txt" or (what == "health" and not token):
            body = "User-agent: *\nDisallow: /\n" if what == "robots.txt" else "zonemta links\n"
            return Response(body, media_type="text/plain", headers=HEADERS)
        if what not in METHODS:
            return self._page(request, LinkPage("none", self._words(request)), 404)
        if request.method not in METHODS[what].split(", "):
            return Response(status_code=405, headers={**HEADERS, "allow": METHODS[what]})
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={**HEADERS, "allow": METHODS[what]})
        link = self._link(request, what, token)
        if what in ("o", "c"):
            return self._interest(request, link)
        return await (self._unsubscribe if what == "u" else self._preferences)(request, link, token)

    def _place(self, path: str) -> tuple[str, str]:
        """What comes first, and the token; a proxy may have taken off the beginning of links.url."""
        if path.startswith(f"{self._base}/"):
            path = path[len(self._base) :]
        what, _, token = path.strip("/").partition("/")
        return what, token

    # -- who asks, by which link

    def _link(self, request: Request, what: str, token: str) -> Link:
        """Raises Answered."""
        try:
            link = links.decode(token, self._links.secrets)
            if link.purpose != _PURPOSES[what]:
                raise LinkRefused("it is a link for another purpose")
            if link.purpose == "click" and not _TARGET.fullmatch(link.target):
                raise LinkRefused("it leads to what is no web page")  # we sign no such link
        except LinkRefused as refused:
            raise Answered(self._wrong(request, "wrong", 403, str(refused))) from None
        if link.purpose not in ("open", "click") and self._age(link) > self._links.days:
            raise Answered(self._wrong(request, "old", 410, f"it is older than {self._links.days} days", link.tenant))
        return link

    def _age(self, link: Link) -> int:
        return links.age(link, int(self._unix_s()) // _DAY_S)

    def _wrong(self, request: Request, name: str, status: int, why: str, tenant: str = "") -> Response:
        """Links that work are never counted: those of a provider's people come from few addresses."""
        client = self._client(request)
        if self._clients.excess("wrong", client, self._links.wrong_per_minute):
            return self._too_many(request)
        count("zonemta_links_requests_total", (name,))
        self._notes.line(logging.INFO, "wrong", client, "client %s came with a link that is refused: %s", client, why)
        return self._page(request, LinkPage(name, self._words(request), tenant=tenant), status)

    def _client(self, request: Request) -> str:
        peer = request.client.host if request.client else ""
        return self._clients.address(peer, request.headers.getlist("x-forwarded-for"))

    def _looks(self, request: Request) -> None:
        """Counts a page. Raises Answered."""
        if self._clients.excess("pages", self._client(request), self._links.pages_per_minute):
            raise Answered(self._too_many(request))
        count("zonemta_links_requests_total", ("page",))

    def _too_many(self, request: Request) -> Response:
        count("zonemta_links_requests_total", ("limited",))
        client = self._client(request)
        if self._clients.trusted(client):
            why = "does not say for whom it asks, so all of its clients count as one; have it send X-Forwarded-For"
            self._notes.line(logging.WARNING, "proxy", client, "the proxy %s %s", client, why)
        return self._page(request, LinkPage("busy", self._words(request)), 429, {"retry-after": "60"})

    # -- what is done

    async def _unsubscribe(self, request: Request, link: Link, token: str) -> Response:
        page = self._about(request, "ask", link)
        if request.method != "POST":
            self._looks(request)
            return self._page(request, page)
        said = await self._said(request)
        if not forms.is_one_click(said):
            self._looks(request)
            count("zonemta_links_requests_total", ("nothing",))
            return self._page(request, page._replace(name="nothing"), 400)
        known = self._knows(link.recipient, token)
        if not known:
            await self._in_time(request, partial(unsubscribe.left, self._queue, link, link.entry_scope))
            self._know(link.recipient, token)
        count("zonemta_links_requests_total", ("repeated" if known else "unsubscribed",))
        if "page" in said:
            return self._page(request, page._replace(name="done"))
        return Response("unsubscribed\n", media_type="text/plain", headers=HEADERS)

    def _interest(self, request: Request, link: Link) -> Response:
        """A picture, or the way on to where the link leads, which is signed, so to nowhere else. It leads there however
        old it is, but then nothing is told; nor of looking ahead without a person."""
        ahead = any("prefetch" in request.headers.get(name, "") for name in ("purpose", "sec-purpose", "x-moz"))
        if request.method == "GET" and not ahead and self._age(link) <= self._links.days:
            self.interest.add(link)
        if link.purpose == "open":
            return Response(GIF, media_type="image/gif", headers=PICTURE)
        return Response(status_code=302, headers={**HEADERS, "location": link.target})

    async def _preferences(self, request: Request, link: Link, token: str) -> Response:
        self._looks(request)
        page, done = self._about(request, "settings", link), False
        if request.method == "POST":
            done = await self._change(request, link, await self._said(request))
        found = await self._in_time(request, partial(unsubscribe.entries, self._queue, link))
        choices = tuple(
            PageChoice(one, _label(page, one, link), unsubscribe.state(found, one, link)) for one in self._offered(link)
        )  # fmt: skip
        status = 400 if request.method == "POST" and not done else 200
        return self._page(request, page._replace(choices=choices, saved=done), status)

    def _offered(self, link: Link) -> list[links.Scope]:
        """From the narrowest to the widest; always what the link itself stops."""
        unknown = {"campaign": not link.campaign, "list": not link.list_name}
        there = [one for one in links.WIDENING if not unknown.get(one)]
        wanted = {link.scope if link.scope in there else "campaigns", *self._links.choices}
        return [one for one in there if one in wanted]

    async def _change(self, request: Request, link: Link, said: dict[str, str]) -> bool:
        for verb, act in (("leave", unsubscribe.left), ("rejoin", unsubscribe.rejoin)):
            if (choice := said.get(verb, "")) in self._offered(link):
                await self._in_time(request, partial(act, self._queue, link, link.entry_for(choice)))
                self._known.pop(link.recipient.lower(), None)
                count("zonemta_links_requests_total", ("unsubscribed" if verb == "leave" else "rejoined",))
                return True
        count("zonemta_links_requests_total", ("nothing",))
        return False

    def _knows(self, recipient: str, token: str) -> bool:
        last, at = self._known.get(recipient.lower(), ("", 0.0))
        return last == token and time.monotonic() - at < KNOWN_S

    def _know(self, recipient: str, token: str) -> None:
        self._known[recipient.lower()] = token, time.monotonic()
        self._known.move_to_end(recipient.lower())
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def _said(self, request: Request) -> dict[str, str]:
        """The form's fields. Raises Answered for a body that is too large or too slow."""
        body, most = b"", forms.BODY_BYTES_MAX
        try:
            async with asyncio.timeout(BODY_S):
                async for block in request.stream():
                    body += block
                    if len(body) > most:
                        raise Answered(self._page(request, LinkPage("wrong", self._words(request)), 413))
        except TimeoutError:
            raise Answered(self._page(request, LinkPage("busy", self._words(request)), 408)) from None
        return forms.fields(request.headers.get("content-type", ""), body)

    async def _in_time(self, request: Request, ask: Callable[[], Awaitable[T]]) -> T:
        """What the queue says, also one that had to be started again meanwhile: providers do not come twice. ask:
        harmless twice. Raises Answered if it says nothing."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    try:
                        return await ask()
                    except Lost:
                        await asyncio.sleep(AGAIN_S)
        except (QueueRefusal, TimeoutError) as error:
            count("zonemta_links_requests_total", ("unavailable",))
            self._notes.line(logging.WARNING, "queue", "", "a link cannot be answered now: %s", cause(error))
            page = LinkPage("busy", self._words(request))
            raise Answered(self._page(request, page, 503, {"retry-after": "60"})) from None

    # -- how it looks

    def _words(self, request: Request) -> PageTexts:
        return pages.wanted(request.headers.get("accept-language", ""))

    def _about(self, request: Request, name: str, link: Link) -> LinkPage:
        token = links.encode(link._replace(purpose="preferences", target=""), self._links.secrets)
        more = f"../p/{token}" if link.purpose == "unsubscribe" else ""
        return LinkPage(name, self._words(request), shown(link.recipient), link.tenant, link.campaign, more)

    def _page(
        self, request: Request, page: LinkPage, status: int = 200, headers: dict[str, str] | None = None
    ) -> Response:
        about = {"content-language": page.words.language, "vary": "Accept-Language", **(headers or {})}
        return HTMLResponse(self._pages.html(page), status, {**HEADERS, **about})


def _label(page: LinkPage, choice: links.Scope, link: Link) -> str:
    if choice == "campaign":
        return page.words("campaign", campaign=link.campaign)
    if choice == "list":
        return page.words("list", list=link.list_title or link.list_name)
    return page.words(f"{choice}_of", tenant=page.tenant) if page.tenant else page.words(choice)


CLIENTS_MAX = 20_000
_MINUTE_S = 60.0


class Clients:
    """Who asks, and how often: addresses behind proxies that are trusted, and limits per minute for each. Of too many
    at once the one that came first is forgotten. An IPv6 client is its /64.

    trusted: networks of proxies. clock: seconds of a steady clock.
    """

    def __init__(self, trusted: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.trusted, self._clock = Networks(trusted).contain, clock
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def address(self, peer: str, forwarded: list[str]) -> str:
        """peer: the connection's. forwarded: the X-Forwarded-For fields; each proxy adds whom it has talked to."""
        named = [plain_ip(_bare(one.strip())) for field in forwarded for one in field.split(",")]
        address = plain_ip(peer)
        while self.trusted(address) and named:
            address = named.pop()
        return address

    def excess(self, what: str, client: str, most: int) -> bool:
        """Counts it; whether there were more than so many in this minute."""
        now, key = self._clock(), (what, network_of(client))
        began, count = self._counts.get(key, (now, 0))
        if now - began >= _MINUTE_S:
            began, count = now, 0
        self._counts[key] = began, count + 1
        if len(self._counts) > CLIENTS_MAX:
            self._counts.popitem(last=False)
        return count >= most


def _bare(address: str) -> str:
    """Without a port: "192.0.2.1:4711", "[2001:db8::1]:4711"."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


async def serve(
    config: Config, bound: socket.socket, queue: LinksQueue, host: Host, opened: OpenConnections | None = None
) -> None:
    """Serves in a process of its own until SIGTERM or SIGUSR1 (`reception.retirement`): a flood of requests here is
    nobody else's, and nothing of the other HTTP listener is here. bound: listening. opened: connections that this
    process counts; alone if not said. Raises ConfigError."""
    listener, loop = config.links.listener, asyncio.get_running_loop()
    gate = ConnectionLimits(config.limits, opened)
    gate.watch(loop)
    context = tls.context(listener, host)
    if context is not None:
        tls.Renewal(listener, context).watch(loop)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    connections = behind(gate)
    app = LinksApp(config, queue)
    server = HttpServer(settings(app, connections, context))
    await server.until_end(bound, connections, Retirement(told=host.retire))
    await app.interest.end()
