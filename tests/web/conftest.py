"""A real HTTP listener and a real queue: HTTP on a real socket, the queue behind its unix socket, the store on disk.

Both run in a thread, so that tests are plain clients; `do` runs something beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from tests.reception.conftest import Rounds, certificate  # noqa: F401  # a fixture
from zonemta_py.config import Config
from zonemta_py.merge import trial
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Delivery
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.web.api.templates.workshop import Workshop
from zonemta_py.web.keys import hashed
from zonemta_py.web.outbound import fetching, tls_terms
from zonemta_py.web.server import serve as serve_door
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve as serve_queue

SHOP = "zmta_shop"
"""A key that may hand in mail, and nothing else."""


class HttpDoor:
    """sections: of the configuration. `client` speaks with the key of the token file."""

    def __init__(self, folder: Path, host: Host, sections: dict[str, Any]) -> None:
        self.fetch = sections.pop("fetch", None)
        keys = [{"name": "shop", "hash": hashed(SHOP)}]
        http = {"enabled": True, "keys": keys, **sections.pop("http", {})}
        server = {"folder": folder, "hostname": "mx.test"}
        queue = {"reserve_bytes": 0, **sections.pop("queue", {})}
        sections.setdefault("dns", {"servers": ["127.0.0.1"], "port": 1, "timeout_s": 0.1})  # nobody answers
        self.config = Config.model_validate(
            {"server": server, "http": http, "queue": queue, "learning": {"initial": 100}, **sections}
        )
        self.host, self.folder = host, folder
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.port = self.bound.getsockname()[1]
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self.thread.start()
        assert self.ready.wait(60), "the door did not open"
        self.token = (folder / "http.token").read_text().strip()
        self.scheme = "https" if self.config.http.certificate else "http"
        self.client = self.client_with(self.token)

    async def _run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        self.queue = await open_queue(self.config)
        self.wire = await serve_queue(self.queue, self.config.folder)
        self.remote = await RemoteQueue.connect(self.config.folder, "http", reconnect=True)
        fetch = self.fetch or fetching(self.config)
        door = asyncio.ensure_future(
            serve_door(self.config, self.bound, self.remote, self.host, tls_terms(self.config), fetch=fetch)
        )
        await asyncio.sleep(0)
        self.ready.set()
        await self.end.wait()
        self.remote._reconnect = False
        door.cancel()
        await asyncio.wait([door])
        self.bound.close()
        self.queue.close()

    def rounds(self) -> AbstractContextManager[Rounds]:
        """Watches the loop of listener and queue for a while."""
        return Rounds.watched(self.loop)

    @contextlib.contextmanager
    def others_are_served(self) -> Iterator[None]:
        """The loop has its turns: whatever holds it up, in its thread or in another of this process, is counted in
        processor time, which is the same however busy the machine is."""
        longest, over, before = 0.0, False, time.process_time()

        def turn() -> None:
            nonlocal longest, before
            now = time.process_time()
            longest, before = max(longest, now - before), now
            if not over:
                self.loop.call_later(0.005, turn)

        self.loop.call_soon_threadsafe(turn)
        try:
            yield
        finally:
            over = True
        with self.client_with("") as client:
            assert client.get("/v1/health").status_code == 200
        assert 0 < longest < 5, f"nobody was served for {longest:.1f} s"

    def client_with(self, key: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(
            base_url=f"{self.scheme}://127.0.0.1:{self.port}", headers=headers, timeout=60, verify=False
        )

    def do(self, work: Callable[[LocalQueue], Awaitable[Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(self.queue), self.loop).result(30)

    def deliveries(self, count: int) -> list[Delivery]:
        """Takes so many from the queue."""

        async def lease(queue: LocalQueue) -> list[Delivery]:
            found: list[Delivery] = []
            while len(found) < count:
                found += await asyncio.wait_for(queue.lease(count - len(found)), 60)
            return found

        return list(self.do(lease))

    def body(self, delivery: Delivery) -> bytes:
        async def whole(queue: LocalQueue) -> bytes:
            return b"".join([await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)])

        return bytes(self.do(whole))

    def messages(self) -> int:
        """How many there are in the queue, leased ones too."""
        return int(self.do(lambda queue: queue.ask("size"))["total"]["messages"])

    def stop(self) -> None:
        """Also twice."""
        if not self.thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(60)


@pytest.fixture
def open_http(tmp_path: Path) -> Iterator[Callable[..., HttpDoor]]:
    """open_http(host=…, **sections)."""
    opened: list[HttpDoor] = []

    def start(host: Host | None = None, **sections: Any) -> HttpDoor:
        folder = tmp_path / f"queue{len(opened)}"
        folder.mkdir()
        opened.append(HttpDoor(folder, host or Host.empty(), sections))
        return opened[-1]

    yield start
    for door in opened:
        door.stop()


@pytest.fixture
def http_door(open_http: Callable[..., HttpDoor]) -> HttpDoor:
    """One with the default settings."""
    return open_http()


@pytest.fixture(scope="module")
def tried_here() -> Iterator[None]:
    """Templates are tried by the code of `merge.trial`, but in this process: for tests that send very many of them."""

    def work(what: str, given: bytes) -> bytes:
        if what == "render":
            return trial.render(trial.RenderOrder.unpack(given)).pack()
        return (trial.prepare if what == "prepare" else trial.look)(given).pack()

    async def run(_: Workshop, what: str, given: bytes, holder: str) -> bytes | None:
        with contextlib.suppress(Exception):
            return await asyncio.to_thread(work, what, given)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workshop, "run", run)
        yield


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    """One with the default settings, for all tests of a module."""
    door = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {})
    yield door
    door.stop()


@pytest.fixture(scope="session")
def template() -> bytes:
    """A prepared template with the field `name`, packed."""
    source = TemplateSource(
        "t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Dear {{ name }}\n"), prepared=True
    )
    return source.pack()
