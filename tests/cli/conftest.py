"""Commands are run in this process, as `zonemta` runs them: arguments in; exit code, stdout and stderr out."""

import asyncio
import io
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zonemta_py.__main__ import main
from zonemta_py.config import Config
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.wire.server import serve


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def zonemta(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Ran]:
    """zonemta("queue", "size", stdin=b"…") → Ran; in an empty folder, for some commands write where one is."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    monkeypatch.delenv("ZONEMTA_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # tables are not to be wrapped

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["zonemta", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main()
        return Ran(int(code), *capsys.readouterr())

    return run


class Noon(Clock):
    """It was noon (UTC) when it was made, so that no day and no hour ends during a test."""

    def __init__(self) -> None:
        self._apart_ms = 43_200_000 - int(time.time() * 1000) % 86_400_000

    def ms(self) -> int:
        return super().ms() + self._apart_ms


class Served:
    """A real queue in a thread, served on its socket; `do` runs something with it there."""

    def __init__(self, settings: dict[str, Any], clock: Clock | None = None) -> None:
        self.clock = clock
        self.config = Config.model_validate(settings)
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()
        assert self.ready.wait(60), "the queue did not open"

    async def _run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        self.queue = await open_queue(self.config, clock=self.clock)
        await serve(self.queue, self.config.folder)
        self.ready.set()
        await self.end.wait()
        self.queue.close()

    def do(self, work: Callable[[LocalQueue], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(self.queue)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(20)

    def close(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.end.set)
            self.thread.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """served(zones=[…], throttles=[…]) → a queue in tmp_path with that configuration, and perhaps a clock."""
    made: list[Served] = []

    def make(clock: Clock | None = None, **sections: Any) -> Served:
        made.append(Served({"server": {"folder": tmp_path}, **sections}, clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def told(zonemta: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """told("explain", "x.org"): the command, asked of the queue in tmp_path."""
    return lambda *arguments: zonemta(*arguments, "--folder", tmp_path)
