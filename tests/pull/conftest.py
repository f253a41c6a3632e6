"""The real MTA, with its queues on a real port, spoken to by ncat and by plain sockets."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

from ports import kept_port  # noqa: E402
from survival.rig import Mta  # noqa: E402

SECTION = "[pull]\nenabled = true\nport = {port}\n"


class Server:
    """more: further lines of [pull], and sections."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self._kept = kept_port()
        self.port = self._kept.getsockname()[1]
        self.mta = Mta(folder, 9, processes=1, more=SECTION.format(port=self.port) + more)
        self.mta.start()
        asyncio.run(self.mta.taking())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 60)

    def say(self, text: bytes, end: bool = True) -> bytes:
        """One connection: all it answers until its clean end. Raises ConnectionResetError."""
        with self.connect() as connection:
            connection.sendall(text)
            if end:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while block := connection.recv(65_536):
                answer += block
            return answer

    def refused(self, text: bytes, end: bool = False) -> str:
        """The line before the reset."""
        with self.connect() as connection:
            connection.sendall(text)
            if end:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while block := connection.recv(65_536):
                    answer += block
            except ConnectionResetError:
                return answer.decode()
            raise AssertionError(f"a clean end after {answer!r}")

    def ncat(self, text: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
        """What a person at a terminal has: lines, and ^D."""
        if shutil.which("ncat") is None:
            pytest.skip("ncat is not installed (apt-get install ncat)")
        command = ["ncat", *options, "127.0.0.1", str(self.port)]
        return subprocess.run(command, input=text, capture_output=True, timeout=120, check=False)

    def end(self) -> None:
        self.mta.end()
        self._kept.close()


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """open_server(more)"""
    opened: list[Server] = []

    def start(more: str = "") -> Server:
        folder = tmp_path_factory.mktemp("queue")
        folder.chmod(0o700)
        opened.append(Server(folder, more))
        return opened[-1]

    yield start
    for server in opened:
        server.end()


@pytest.fixture(scope="module")
def server(open_server: Callable[..., Server]) -> Server:
    """One with default settings, for all tests of a module; each has queues of its own."""
    return open_server()
