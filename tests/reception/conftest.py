"""A real listener on a real socket, its loop in a thread of its own, so that blocking clients can talk to it.

The queue behind it keeps messages in memory; `intakes` makes it, and is the place to put another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop
from argon2 import PasswordHasher
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Feedback, QueueRefusal, Receipt
from zonemta_py.reception.listeners import serve

PASSWORD = "correct horse"


@dataclass
class MemoryIntake:
    """Keeps what it is given. refusal: raised by put, write or commit, whichever is named in `refuse_at`.

    gate: while clear, everything waits for it (it is opened from another thread, hence no asyncio.Event).
    """

    kept: list[tuple[Envelope, bytes]] = field(default_factory=list)
    begun: int = 0
    aborted: int = 0
    writes: int = 0
    refusal: QueueRefusal | None = None
    refuse_at: str = "accept"
    keep_nothing: bool = False
    sessions: dict[str, str] = field(default_factory=dict)
    heard: list[Feedback] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def settle(self, envelope: Envelope, body: bytes) -> Receipt:
        self.waiting.set()
        await asyncio.to_thread(self.gate.wait)
        assert envelope.size == len(body) or self.keep_nothing
        self.kept.append((envelope, body))
        return Receipt(f"id{len(self.kept)}", len(envelope.recipients), 0)

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        assert len(body) <= CHUNK_BYTES
        if self.refusal and self.refuse_at == "accept":
            raise self.refusal
        return await self.settle(envelope, body)

    def begin(self, client: str = "", envelope: Envelope | None = None) -> MemoryIncoming:
        self.begun += 1
        return MemoryIncoming(self)

    async def enter(self, session: str, account: str) -> None:
        if sum(one == account for one in self.sessions.values()) >= 1:
            raise QueueRefusal(Reply(421, "4.7.0", f"account {account!r} has its session"))
        self.sessions[session] = account

    def leave(self, session: str) -> None:
        self.sessions.pop(session, None)

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        if self.refusal and self.refuse_at == "feedback":
            raise self.refusal
        known = [row.name for row in self.heard if row.name]
        self.heard += [row for row in rows if row.name not in known]
        return [row.name not in known for row in rows]


class MemoryIncoming:
    def __init__(self, submission: MemoryIntake) -> None:
        self.submission, self.done = submission, False
        self.chunks: list[bytes] = []
        self.size = 0

    async def write(self, chunk: bytes) -> None:
        assert len(chunk) == CHUNK_BYTES
        self.submission.writes += 1
        if self.submission.refusal and self.submission.refuse_at == "write":
            raise self.submission.refusal
        if not self.submission.gate.is_set():
            await asyncio.to_thread(self.submission.gate.wait)
        self.size += len(chunk)
        if not self.submission.keep_nothing:
            self.chunks.append(chunk)

    async def accept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        assert 0 < len(last_chunk) <= CHUNK_BYTES
        if self.submission.refusal and self.submission.refuse_at == "commit":
            raise self.submission.refusal
        assert envelope.size == self.size + len(last_chunk)
        receipt = await self.submission.settle(envelope, b"".join(self.chunks) + last_chunk)
        self.done = True
        return receipt

    def abort(self) -> None:
        if not self.done:
            self.submission.aborted += 1
            self.done = True


class Rounds:
    """How long the rounds of a loop are, in calls of functions: as many on any machine, however busy it is, and
    whatever has run in the process before. A million are about a third of a second.

    longest: since the loop was last held.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._over, self.longest, self._calls = loop, False, 0, 0

    def _tick(self) -> None:
        if sys.getprofile() is None:
            sys.setprofile(self._count)
        else:
            self.longest = max(self.longest, self._calls)
        self._calls = 0
        if self._over:
            sys.setprofile(None)
        else:
            self._loop.call_soon(self._tick)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        self._calls += event in ("call", "c_call")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile the loop stands still; what comes then it finds all at once, and only that is looked at."""
        go_on = threading.Event()
        self._loop.call_soon_threadsafe(go_on.wait)
        try:
            yield
        finally:
            self.longest = 0
            go_on.set()

    @classmethod
    @contextlib.contextmanager
    def watched(cls, loop: asyncio.AbstractEventLoop) -> Iterator[Rounds]:
        rounds = cls(loop)
        gc.collect()
        gc.freeze()  # what a thousand tests before have left is not this one's, and takes long to walk through
        loop.call_soon_threadsafe(rounds._tick)
        try:
            yield rounds
        finally:
            rounds._over = True


@dataclass
class OpenDoor:
    """A running listener."""

    port: int
    submission: MemoryIntake
    address: str = "127.0.0.1"
    loop: asyncio.AbstractEventLoop | None = None

    def rounds(self) -> contextlib.AbstractContextManager[Rounds]:
        """Watches the loop for a while."""
        assert self.loop is not None
        return Rounds.watched(self.loop)

    def wire(self, read_banner: bool = True) -> Wire:
        return Wire(socket.create_connection((self.address, self.port), timeout=60), read_banner)

    def greeted(self) -> Wire:
        """A wire on which EHLO has been said."""
        wire = self.wire()
        wire.ask("EHLO client.test")
        return wire


class Wire:
    """A bare socket with a view of SMTP replies."""

    def __init__(self, connection: socket.socket, read_banner: bool = True) -> None:
        self.socket = connection
        self.file = connection.makefile("rb")
        self.banner = self.reply() if read_banner else ""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> str:
        """All lines of one reply joined by a line feed; "" at the end of the connection."""
        lines = []
        while True:
            line = self.file.readline().decode()
            lines.append(line.rstrip("\r\n"))
            if line[3:4] != "-":
                return "\n".join(lines)

    def ask(self, line: str | bytes) -> str:
        self.send((line.encode() if isinstance(line, str) else line) + b"\r\n")
        return self.reply()

    def mail(self, body: bytes, sender: str = "a@b.test", recipients: tuple[str, ...] = ("c@d.test",)) -> str:
        """A whole transaction; body goes out as it is, with the end of DATA behind it. Returns the last reply."""
        for command in (f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{r}>" for r in recipients), "DATA"):
            answer = self.ask(command)
            if answer[0] not in "23":
                return answer
        self.send(body + (b".\r\n" if body.endswith(b"\r\n") or not body else b"\r\n.\r\n"))
        return self.reply()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class _Thread:
    def __init__(self, config: Config, submission: Any, host: Host, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.bind((address, 0))
        self.socket.listen(128)
        self._arguments = (config, [(config.listeners[0], self.socket)], submission, host)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60), "the listener did not open"

    def _run(self) -> None:
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(serve(*self._arguments))
        self._ready.set()
        await asyncio.gather(self._task, return_exceptions=True)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(60)
        self.socket.close()


@pytest.fixture
def intakes() -> Callable[[], MemoryIntake]:
    return MemoryIntake


@pytest.fixture
def open_door(intakes: Callable[[], MemoryIntake]) -> Iterator[Callable[..., OpenDoor]]:
    """open_door(limits={…}, host=…, sections={…}, **listener) starts a listener."""
    threads: list[_Thread] = []

    def start(
        limits: dict[str, Any] | None = None, host: Host | None = None,
        users: dict[str, str] | None = None, address: str = "127.0.0.1", sections: dict[str, Any] | None = None,
        **listener: Any,
    ) -> OpenDoor:  # fmt: skip
        config = Config.model_validate(
            {
                "server": {"hostname": "mx.test"},
                "listeners": [{"address": address, **listener}],
                "limits": limits or {},
                "users": users or {},
                **(sections or {}),
            }
        )
        submission = intakes()
        threads.append(_Thread(config, submission, host or Host.empty(), address))
        return OpenDoor(threads[-1].socket.getsockname()[1], submission, address, threads[-1].loop)

    yield start
    for thread in threads:
        thread.stop()


@pytest.fixture
def door(open_door: Callable[..., OpenDoor]) -> OpenDoor:
    """A listener with the default settings."""
    return open_door()


@pytest.fixture(scope="session")
def users() -> dict[str, str]:
    """anna, whose password is PASSWORD (a cheap hash, to keep the tests quick)."""
    return {"anna": PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a key and a certificate for localhost, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path
