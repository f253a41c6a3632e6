"""A real listener for links and a real queue behind its unix socket, in a thread; tests are plain HTTP clients."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from zonemta_py.config import Config
from zonemta_py.mail.addresses.link import Link, encode
from zonemta_py.plugin.host import Host
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.web.links.app import serve as serve_links
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve as serve_queue

SECRET = "0123456789abcdef"
ID = "0199aabbccddeeff"
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def today() -> int:
    return int(time.time()) // 86_400


class LinksDoor:
    """links: the section. more: other sections."""

    def __init__(self, folder: Path, links: dict[str, Any], more: dict[str, Any]) -> None:
        section = {"enabled": True, "url": "https://mail.example", "secrets": [SECRET], **links}
        server = {"folder": folder, "hostname": "mx.test"}
        queue = {"reserve_bytes": 0}
        dns = {"servers": ["127.0.0.1"], "port": 1, "timeout_s": 0.1}  # nobody answers
        self.config = Config.model_validate({"server": server, "links": section, "queue": queue, "dns": dns, **more})
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.port = self.bound.getsockname()[1]
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self.thread.start()
        assert self.ready.wait(60), "the door did not open"
        scheme = "https" if self.config.links.certificate else "http"
        self.client = httpx.Client(base_url=f"{scheme}://127.0.0.1:{self.port}", timeout=60, verify=False)

    async def _run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        self.queue = await open_queue(self.config)
        wire = await serve_queue(self.queue, self.config.folder)
        self.remote = await RemoteQueue.connect(self.config.folder, "links", reconnect=True)
        door = asyncio.ensure_future(serve_links(self.config, self.bound, self.remote, Host.empty()))
        await asyncio.sleep(0)
        self.ready.set()
        await self.end.wait()
        self.remote._reconnect = False
        door.cancel()
        await asyncio.wait([door])
        wire.close()
        self.queue.close()

    def do(self, work: Callable[[LocalQueue], Awaitable[Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(self.queue), self.loop).result(30)

    def listed(self, address: str = "ann@example.com") -> dict[str, str]:
        """Scope → kind of each entry of an address."""
        row = self.do(lambda queue: queue.ask("suppression", address=address))
        return {one["scope"]: one["kind"] for one in [row, *row["others"]]} if row else {}

    def lists(self, expected: dict[str, str], address: str = "ann@example.com") -> bool:
        """Whether it does soon: the entry follows from what was recorded."""
        end = time.monotonic() + 60
        while self.listed(address) != expected and time.monotonic() < end:
            time.sleep(0.01)
        return self.listed(address) == expected

    def stop(self) -> None:
        self.client.close()
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(60)


def path(link: Link | None = None, secret: str = SECRET, **changed: Any) -> str:
    """Of a link for ann@example.com, made today."""
    made = link or Link("unsubscribe", ID, "ann@example.com", "spring", "acme", "campaigns", today())
    made = made._replace(**changed)
    return f"/{made.purpose[0]}/{encode(made, [secret])}"


@pytest.fixture
def open_links(tmp_path: Path) -> Iterator[Callable[..., LinksDoor]]:
    """open_links(more={…}, **settings of [links])."""
    opened: list[LinksDoor] = []

    def start(more: dict[str, Any] | None = None, **links: Any) -> LinksDoor:
        folder = tmp_path / f"queue{len(opened)}"
        folder.mkdir()
        opened.append(LinksDoor(folder, links, more or {}))
        return opened[-1]

    yield start
    for one in opened:
        one.stop()
