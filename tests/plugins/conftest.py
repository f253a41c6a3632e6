"""The whole real MTA with bundled plugins, between a client in front and the sink behind; and other programs, run for a
test."""

from __future__ import annotations

import asyncio
import os
import shutil
import smtplib
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from survival.rig import Mta

from zonemta_py.sink import ReceivedMessage, Sink, SinkOptions

PATIENCE_S = 60


@dataclass
class Running:
    """An MTA whose mail goes to the sink."""

    mta: Mta
    sink: Sink

    @property
    def port(self) -> int:
        return self.mta.port

    def send(self, message: bytes, *recipients: str, sender: str = "ann@a.test") -> str:
        """The last reply: "250 …", or the refusal's."""
        with smtplib.SMTP("127.0.0.1", self.port, timeout=PATIENCE_S) as client:
            client.ehlo("client.test")
            client.mail(sender)
            for recipient in recipients:
                code, text = client.rcpt(recipient)
                if code >= 400:
                    return f"{code} {text.decode()}"
            code, text = client.data(message)
            return f"{code} {text.decode()}"

    def came(self, recipient: str) -> ReceivedMessage:
        """What the sink got for that recipient; waits for it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for message in list(self.sink.messages):
                if recipient in message.recipients:
                    return message
            time.sleep(0.005)
        raise AssertionError(f"nothing came for {recipient}: {self.mta.log_tail()}")


Start = Callable[..., Running]


@pytest.fixture(scope="module")
def start_mta() -> Iterator[Start]:
    """start_mta(configuration): [plugins] and what else is to be said; it ends with the module's tests."""
    with ExitStack() as stack:

        def start(more: str) -> Running:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zonemta-plugins-")))
            sink = stack.enter_context(_sink_in_a_thread())
            mta = Mta(folder / "queue", sink.port, home=folder, more=more, processes=1)
            mta.start()
            stack.callback(mta.end)
            asyncio.run(mta.accepting())
            return Running(mta, sink)

        yield start


@contextmanager
def _sink_in_a_thread() -> Iterator[Sink]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sink = Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True))
    asyncio.run_coroutine_threadsafe(sink.__aenter__(), loop).result()
    try:
        yield sink
    finally:
        asyncio.run_coroutine_threadsafe(sink.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def program(name: str, package: str) -> str:
    """Where it is; skips the test, and says what is missing."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/lib/postgresql/15/bin")
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    return found


class Server:
    """A program that serves a port, or a socket's path, in the foreground."""

    def __init__(self, command: list[str], where: int | Path, log: Path, user: str = "") -> None:
        self.command, self.where, self.log, self.user = command, where, log, user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Waits until it can be connected to."""
        with self.log.open("ab") as log:
            user = self.user if self.user and os.geteuid() == 0 else None
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, user=user, cwd="/")
        end = time.monotonic() + PATIENCE_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(
                    f"{self.command[0]} does not serve: {self.log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _serves(self) -> bool:
        unix = isinstance(self.where, Path)
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe, suppress(OSError):
            probe.settimeout(5)
            probe.connect(str(self.where) if unix else ("127.0.0.1", self.where))
            return True
        return False


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Server]]:
    """serve(command, port or path, log, user): started; it ends with the module's tests."""
    started: list[Server] = []

    def start(command: list[str], where: int | Path, log: Path, user: str = "") -> Server:
        server = Server(command, where, log, user)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
