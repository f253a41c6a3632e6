"""The rig: the real MTA as processes of its own, the real sink in this one, and the ledger between them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ports import kept_port

from survival.client import Connection, Refused
from survival.ledger import Ledger
from survival.recover import problems
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.wire.blocking_client import QueueGone, ask, ask_all

TOP = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0
TEMPORARY = re.compile(r"4\d\d ")
"""How a question is refused that one of the queues cannot answer now."""
ROLES = ("queue", "authority", "receiver", "sender", "events", "pull", "http", "moving")
RULES = ("rcpt:/^later-/ 450 4.2.1 not now, 50%", "rcpt:/^gone-/ 550 5.1.1 nobody here")

_CONFIG = """
[server]
{server}
hostname = "mta.test"
folder = "{folder}"
receivers = {processes}
senders = {processes}
queues = {queues}
[[listeners]]
name = "smtp"
port = {port}
[limits]
errors_per_connection = 100000
[retry]
schedule_min = [{retry_min}]
jitter = 0.5
down_s = 0.2
down_max_s = 0.5
[queue]
segment_bytes = {segment_bytes}
write_buffer_bytes = {write_buffer_bytes}
position_s = {position_s}
reserve_bytes = {reserve_bytes}
archive_days = 60
request_h = 1440
undo_s = 86_400
[[zones]]
name = "default"
default = true
host = "127.0.0.1"
port = {sink}
tls = "{tls}"
in_doubt = "retry"
[[zones]]
name = "bulk"
recipient_domains = ["bulk.test"]
host = "127.0.0.1"
port = {sink}
tls = "{tls}"
connections = 5
"""

SHIPPED = {"segment_bytes": 16_777_216, "write_buffer_bytes": 4_194_304, "position_s": 5}
"""As configured where nothing is said: for what measures speed."""


class Mta:
    """`zonemta run` with small segments and buffers, so that a short run sees many; SHIPPED has the usual ones."""

    def __init__(
        self,
        folder: Path,
        sink_port: int,
        *,
        environment: dict[str, str] | None = None,
        home: Path | None = None,
        more: str = "",
        **settings: Any,
    ) -> None:
        """folder: where the queue lives. home: for configuration and log; `folder` if not said. more: configuration."""
        self._kept = kept_port()  # else another trial takes it while we are down, and gets our mail
        self.folder, self.port = folder, self._kept.getsockname()[1]
        home = home or folder
        home.mkdir(parents=True, exist_ok=True)
        self.config_file, self.log = home / "zonemta.toml", home / "zonemta.log"
        values = {
            "processes": 2,
            "queues": 1,
            "segment_bytes": 262_144,
            "write_buffer_bytes": 262_144,
            "reserve_bytes": 0,
            "position_s": 0.5,
            "tls": "none",
            "retry_min": 0.01,
            "server": "",
        }
        self.queues = int(settings.get("queues", 1))
        text = _CONFIG.format(folder=folder, port=self.port, sink=sink_port, **values | settings)
        self.config_file.write_text(text + more)
        self.environment = environment or {}
        self.python = sys.executable
        self.program = ["-m", "zonemta_py", "run", "--config", str(self.config_file)]
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: dict[int, str] = {}
        """Processes that were killed, or that die with the supervisor, and when each was born."""

    def start(self) -> None:
        command = [self.python, *self.program]
        with self.log.open("ab") as log:
            environment = os.environ | {"PYTHONPATH": str(TOP)} | self.environment
            own = "DEATH_CONTROL" in environment  # else whoever ends the group of the tests ends it too
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=TOP, start_new_session=own
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def children(self) -> dict[int, str]:
        """Process ids and what they are: one of ROLES."""
        if self._process is None:
            return {}
        found = {}
        try:
            pids = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for pid in pids:
                name = Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("zonemta ")
                found[int(pid)] = next((role for role in ROLES if role[:6] in name), "new")
        except OSError:
            return found  # one that has just died
        return found

    def kill(self, role: str, choice: float = 0.0) -> bool:
        """SIGKILL to one process of that role ("supervisor", "all" too); False if there is none just now."""
        if role in ("supervisor", "all"):
            if self._process is None:
                return False
            children = self.children()
            self._dying = {pid: born for pid, born in self._dying.items() if _born(pid) == born}
            self._dying |= {pid: _born(pid) for pid in (*children, *_of_group(self._process.pid))}
            victims = [self._process.pid, *(children if role == "all" else ())]
        else:
            victims = [pid] if (pid := self.one(role, choice)) else []
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if role in ("supervisor", "all") and self._process is not None:
            self._process.wait()
        return bool(victims)

    def one(self, role: str, choice: float = 0.0) -> int:
        """A process of that role ("supervisor" too); 0: there is none just now."""
        if role == "supervisor":
            return self._process.pid if self._process is not None and self.alive else 0
        some = [pid for pid, its_role in self.children().items() if its_role == role]
        return some[int(choice * len(some))] if some else 0

    def stop(self) -> None:
        """SIGTERM: what has begun may end."""
        assert self._process is not None
        self._process.terminate()

    def terminate(self) -> None:
        """SIGTERM to all of it, as a service manager does it: to the supervisor."""
        if self._process is not None:
            self._process.terminate()

    def reload(self) -> None:
        """SIGHUP to the supervisor: it reads its configuration again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def waited(self, seconds: float = PATIENCE_S) -> int:
        """Its exit status, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(seconds)

    def end(self) -> None:
        """Kills all of it, and waits until nobody has the store open."""
        self.kill("all")
        self.dead()

    def dead(self) -> None:
        """Waits until everybody who was killed has the store open no more. Raises AssertionError: somebody has."""
        end = time.monotonic() + PATIENCE_S
        while left := [pid for pid, born in self._dying.items() if born and _born(pid) == born]:
            if time.monotonic() > end:
                raise AssertionError(f"killed, and not dead: {[_command(pid) for pid in left]}")
            time.sleep(0.005)
        self._dying.clear()

    def fsck(self, *options: str) -> str:
        """Checks the queue of an MTA that was killed. Empty: it is healthy, exit status 0; else what was said."""
        self.dead()
        command = [self.python, "-m", "zonemta_py", "fsck", "--config", str(self.config_file), *options]
        environment = os.environ | {"PYTHONPATH": str(TOP)} | self.environment
        ran = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True)
        said = f"fsck {' '.join(options)} exits with {ran.returncode}: {ran.stdout[-600:]} {ran.stderr[-300:]}"
        return said if ran.returncode else ""

    def ask(self, question: str, **arguments: Any) -> Any:
        """Raises QueueGone after a while; ValueError: refused for good, or for so long."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(self.folder, question, **arguments)
            except (QueueGone, ValueError) as error:
                if time.monotonic() > end or (isinstance(error, ValueError) and not TEMPORARY.match(str(error))):
                    raise
            time.sleep(0.05)

    async def accepting(self) -> float:
        """Waits until a client is greeted; returns how many seconds that took."""
        start = time.monotonic()
        while time.monotonic() < start + PATIENCE_S:
            try:
                (await Connection.open(self.port)).close()
                return time.monotonic() - start
            except (OSError, EOFError, Refused):
                if not self.alive:
                    raise AssertionError(f"the MTA has ended: {self.log_tail()}") from None
            await asyncio.sleep(0.02)
        raise AssertionError(f"the MTA does not accept: {self.log_tail()}")

    async def taking(self) -> None:
        """Waits until the queue is there too: clients are greeted before it is, and wait for it with their mail."""
        await self.accepting()
        await asyncio.to_thread(self.ask, "size")

    async def drained(self) -> None:
        """Waits until nothing is queued, leased or deferred any more, as long as it gets less."""
        least, end = sys.maxsize, 0.0
        while True:
            total = (await asyncio.to_thread(self.ask, "size"))["total"]
            left = sum(total[state] for state in ("queued", "leased", "deferred"))
            if not left:
                return
            if left < least:
                least, end = left, time.monotonic() + PATIENCE_S
            if time.monotonic() > end:
                raise AssertionError(f"the queue does not drain: {total}; {self.log_tail()}")
            await asyncio.sleep(0.1)

    def in_doubt(self) -> list[str]:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return [row["recipient"] for row in ask_all(self.folder, "in-doubt")]
            except (QueueGone, ValueError):
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    async def problems(self) -> list[str]:
        """What a check of the ended MTA's queue finds after one more recovery."""
        return await asyncio.to_thread(problems, self.config_file)

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def _of_group(group: int) -> list[int]:
    """Processes of a process group: those that a supervisor leaves behind are in its own."""
    found = list[int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[2] == str(group):
                found.append(int(path.parent.name))
    return found


def _born(pid: int) -> str:
    """When a process began; "": it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _command(pid: int) -> str:
    with suppress(OSError):
        return f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}"
    return str(pid)


@asynccontextmanager
async def sink(ledger: Ledger, *, rules: tuple[str, ...] = RULES, port: int = 0, **options: Any) -> AsyncIterator[Sink]:
    """A sink that enters into the ledger what comes; the last of it when the block ends."""
    settings = SinkOptions(listen=(f"127.0.0.1:{port}",), keep=True, rules=rules, **options)
    async with Sink(settings) as running:
        taking = asyncio.create_task(_take(running, ledger))
        try:
            yield running
        finally:
            taking.cancel()
            enter(running, ledger)


def enter(running: Sink, ledger: Ledger) -> None:
    """Everything that has come until now."""
    messages = list(running.messages)
    running.messages.clear()
    for message in messages:
        ledger.arrived(message)


async def _take(running: Sink, ledger: Ledger) -> None:
    while True:
        await asyncio.sleep(0.2)
        enter(running, ledger)
