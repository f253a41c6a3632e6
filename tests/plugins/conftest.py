"""The whole real MTA with bundled plugins, between a client in front and the sink behind."""

from __future__ import annotations

import asyncio
import smtplib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from survival.rig import Mta

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ports import free_port
from programs import VIRUS, Server, program

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

    def zonemta(self, *words: str) -> str:
        """What a command of an operator says."""
        command = [sys.executable, "-m", "zonemta_py", *words, "--config", str(self.mta.config_file)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

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


CLAMD = """
Foreground yes
LocalSocket {folder}/socket
TCPSocket {port}
TCPAddr 127.0.0.1
DatabaseDirectory {folder}/signatures
TemporaryDirectory {folder}
PidFile {folder}/pid
MaxThreads 2
StreamMaxLength 3M
AllowAllMatchScan no
"""


@pytest.fixture(scope="module")
def clamd(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., Server]) -> Server:
    """With one signature of our own, since freshclam reaches nobody; its socket's path is its log's folder's."""
    where, folder, port = program("clamd", "clamav-daemon"), tmp_path_factory.mktemp("clamd"), free_port()
    (folder / "signatures").mkdir()
    (folder / "signatures" / "own.ndb").write_text(f"Test.Own:0:*:{VIRUS.hex()}\n")
    (folder / "clamd.conf").write_text(CLAMD.format(folder=folder, port=port))
    return serve([where, "-c", str(folder / "clamd.conf")], port, folder / "log")
