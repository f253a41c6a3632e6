"""Other programs, run for a test, and servers of a test's own that misbehave."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

PATIENCE_S = 120
TRIES = 3
VIRUS = b"This-Is-No-Virus-But-Taken-For-One"


def program(name: str, package: str) -> str:
    """Where it is; skips the test, and says what is missing."""
    postgres = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    found = shutil.which(name, path=":".join([os.environ["PATH"], "/usr/sbin", "/sbin", *postgres]))
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    return found


class Server:
    """A program that serves a port, or a socket's path, in the foreground."""

    def __init__(self, command: list[str], where: int | Path, log: Path, user: str = "") -> None:
        self.command, self.where, self.log, self.user = command, where, log, user
        self.ends_by = signal.SIGTERM
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Waits until it can be connected to."""
        self._begin()
        tries, end = 1, time.monotonic() + PATIENCE_S
        while not self._serves():
            ended = self._process.poll() if self._process is not None else None
            if ended is not None and tries < TRIES:  # whatever it lacked on a busy machine
                tries += 1
                self._begin()
            elif ended is not None or time.monotonic() > end:
                raise AssertionError(
                    f"{self.command[0]} does not serve ({'it runs' if ended is None else f'status {ended}'}): "
                    f"{self.log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.05)

    def _begin(self) -> None:
        with self.log.open("ab") as log:
            user = self.user if self.user and os.geteuid() == 0 else None
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, user=user, cwd="/")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.ends_by)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It can be connected to, and answers nothing meanwhile."""
        assert self._process is not None
        family = _family(self._process.pid)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)

    def _serves(self) -> bool:
        unix = isinstance(self.where, Path)
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe, suppress(OSError):
            probe.settimeout(5)
            probe.connect(str(self.where) if unix else ("127.0.0.1", self.where))
            return True
        return False


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


@asynccontextmanager
async def answering(answer: bytes, asked: bytes = b"\r\n\r\n", stays: bool = False) -> AsyncIterator[int]:
    """The port of a server that says this, once it has heard `asked`, whatever it means. stays: and nothing more, but
    the connection stays open; else it is closed."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(asked) if asked else None
            writer.write(answer)
            await writer.drain()
            if stays:
                await over.wait()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        over.set()
        server.close()
