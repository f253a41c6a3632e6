"""A receiver of webhooks on a real socket, and events to send."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import uvicorn

from zonemta_py.events.sinks.base import Ready


class Post(NamedTuple):
    """A request that came. headers: names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    def ids(self) -> list[str]:
        """Of the events in it, whatever their form."""
        text = self.body.decode()
        if self.headers["content-type"].startswith("application/x-ndjson"):
            rows = [json.loads(line) for line in text.splitlines()]
        else:
            rows = json.loads(text)
        return [row["id"] for row in (rows if isinstance(rows, list) else [rows])]


Answer = Callable[[Post], tuple[int, dict[str, str], bytes]]


class HttpReceiver:
    """answer: what it says to a request; may be changed while it runs."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.posts = answer, list[Post]()
        self.delay_s = 0.0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    async def start(self, **settings: Any) -> None:
        options = uvicorn.Config(self._app, interface="asgi3", log_level="error", lifespan="off", **settings)
        self._server = uvicorn.Server(options)
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        self._task = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        await self._task
        self._socket.close()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        post = Post(scope["path"], headers, body)
        self.posts.append(post)
        await asyncio.sleep(self.delay_s)
        status, extra, text = self.answer(post)
        rows = [(name.encode(), value.encode()) for name, value in extra.items()]
        await send({"type": "http.response.start", "status": status, "headers": rows})
        await send({"type": "http.response.body", "body": text})

    @property
    def ids(self) -> list[str]:
        return [one for post in self.posts for one in post.ids()]


@pytest.fixture
async def receiver() -> AsyncIterator[Callable[..., Awaitable[HttpReceiver]]]:
    """await receiver(answer) → a receiver that listens; without an answer it says 204 to everything."""
    made: list[HttpReceiver] = []

    async def make(answer: Answer = lambda _: (204, {}, b""), **settings: Any) -> HttpReceiver:
        made.append(HttpReceiver(answer))
        await made[-1].start(**settings)
        return made[-1]

    yield make
    for one in made:
        await one.stop()


@pytest.fixture
def ready() -> Callable[..., Ready]:
    """ready(7) → the only event of record 7."""

    def make(seq: int, part: int = 0, subject: str = "", size: int = 0) -> Ready:
        name, subject = f"0a1b2c-{seq}-{part}", subject or f"m{seq % 5}"
        row = {
            "specversion": "1.0", "id": name, "source": "urn:zonemta:0a1b2c", "type": "zonemta.delivered",
            "subject": subject, "time": "2026-01-02T03:04:05.678Z", "data": {"n": seq, "filler": "x" * size},
        }  # fmt: skip
        body = json.dumps(row, separators=(",", ":")).encode()
        return Ready(seq, part, name, "delivered", subject, 1_767_323_045_678, body)

    return make
