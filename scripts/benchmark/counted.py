"""What one message costs, counted instead of timed: by process, the same on any machine.

The whole MTA runs with `counter.c` preloaded. Messages go in one at a time, each when the one before has been delivered
and all processes rest. Of the messages of one scenario the least counts: what a timer did, or a thread that came too
late for company, is no part of what a message costs.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from smtplib import SMTP
from typing import NamedTuple

from ports import free_port

from benchmark.bodies import body
from benchmark.contenders import BenchError, Zonemta
from benchmark.destination import Destination
from benchmark.processes import Group

HERE = Path(__file__).resolve().parent
_SLOT = struct.Struct("=8Q")
_SLOTS = 256
FIGURES = ("calls", "c_calls", "allocations", "socket_bytes", "file_bytes", "transfers", "syncs")
REST_S, PATIENCE_S = 0.02, 60.0
WARM, COUNTED = 10, 30


class Shape(NamedTuple):
    """What is sent, over and over. reuse: all over one connection."""

    recipients: int = 1
    bytes: int = 5120
    reuse: bool = True
    body: str = "letter"


SHAPES = {
    "A": Shape(),
    "B": Shape(reuse=False),
    "C": Shape(recipients=50),
    "H": Shape(bytes=100 * 1024, body="mixed"),
}
Counts = dict[str, dict[str, int]]
"""Role → figure → how many a message."""


def built(folder: Path) -> Path:
    """The library. Raises BenchError where it cannot be compiled."""
    made = folder / "counter.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(made), str(HERE / "counter.c"), "-ldl", "-lpthread"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise BenchError("nothing can be counted without a C compiler: apt-get install gcc libc6-dev") from None
    except subprocess.CalledProcessError as error:
        raise BenchError(f"counter.c does not compile: {error.stderr.strip()[:500]}") from None
    return made


class Counters:
    """The page that all processes of a program count in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_SLOT.size * (_SLOTS + 1)))

    def read(self) -> dict[int, tuple[int, ...]]:
        """Process id → counts, as FIGURES."""
        data = self.path.read_bytes()
        slots = list(_SLOT.iter_unpack(data))
        return {slot[0]: slot[1:] for slot in slots[1 : 1 + slots[0][0]] if slot[0]}


class Counted(Zonemta):
    """This MTA, or that of another checkout, with its processes counted."""

    def __init__(self, folder: Path, sink_port: int, root: Path | None = None) -> None:
        if root is not None:
            self.root = root
        super().__init__(folder, sink_port)
        self.library, self.counters = built(folder), Counters(folder / "counters")

    def command(self) -> list[str]:
        variables = f"LD_PRELOAD={self.library}", f"ZONEMTA_COUNTERS={self.counters.path}"
        run = [sys.executable, str(HERE / "counted_run.py"), str(self.library), "run", "--config", str(self.config)]
        return ["env", *variables, *run]


@contextmanager
def _running(folder: Path, root: Path | None) -> Iterator[tuple[Counted, Group, Destination]]:
    sink_port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    mta, group = Counted(folder / "mta", sink_port, root), Group()
    try:
        with Destination(folder, sink_port, every_s=0.01) as sink:
            mta.start(group)
            yield mta, group, sink
    finally:
        group.close()


def count(folder: Path, shapes: Sequence[str] = tuple(SHAPES), root: Path | None = None) -> dict[str, Counts]:
    """Scenario → role → figure → how many a message. root: another checkout. Raises BenchError."""
    with _running(folder, root) as (mta, group, sink):
        found, roles, sent = {}, dict[int, str](), 0
        for name in shapes:
            shape, rows = SHAPES[name], list[dict[int, tuple[int, ...]]]()
            client = _Client(mta.port, shape)
            for _ in range(WARM + COUNTED):
                client.send()
                sent += shape.recipients
                sink.wait(sent, PATIENCE_S)
                rows.append(_at_rest(mta.counters))
            roles = roles or group.roles(mta.port)
            client.close()
            steps = list(zip(rows[WARM - 1 :], rows[WARM:], strict=False))
            found[name] = {
                role: _least([_gone_up(before[pid], after[pid]) for before, after in steps])
                for pid, role in roles.items()
                if role != "supervisor"
            }
        return found


def _gone_up(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(b - a for a, b in zip(before, after, strict=True))


def _least(rows: list[tuple[int, ...]]) -> dict[str, int]:
    return {figure: min(column) for figure, column in zip(FIGURES, zip(*rows, strict=True), strict=True)}


def _at_rest(counters: Counters) -> dict[int, tuple[int, ...]]:
    """Once nothing has been counted for REST_S."""
    last, end = counters.read(), time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        time.sleep(REST_S)
        now = counters.read()
        if now == last:
            return now
        last = now
    raise BenchError(f"the MTA did not come to rest within {PATIENCE_S:.0f} s")


class _Client:
    """Sends one message after another."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._port, self._shape = port, shape
        self._smtp: SMTP | None = None
        head = b"From: sender@src.test\r\nTo: list@src.test\r\nMessage-ID: <bench@src.test>\r\nSubject: x\r\n\r\n"
        self._message = head + body(shape.body, shape.bytes)
        self._to = [f"{number}-user@dest.test" for number in range(shape.recipients)]

    def send(self) -> None:
        if self._smtp is None:
            self._smtp = SMTP("127.0.0.1", self._port, "source.bench", timeout=PATIENCE_S)
        self._smtp.sendmail("sender@src.test", self._to, self._message)
        if not self._shape.reuse:
            self.close()

    def close(self) -> None:
        if self._smtp is not None:
            self._smtp.quit()
            self._smtp = None
