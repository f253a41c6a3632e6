"""Pushes and pops a second, beside the shell server of the seed and Redis lists that sync each command, in one run.

Rounds alternate between the contenders, and medians are shown. With ncat, one connection and one process a command, one
after another: that is all the shell server can do. With sockets, several clients at once: ours opens a connection for
each command; to Redis each client keeps one. Every message is 40 bytes: base64 makes one line of it, which the shell
server needs. A Redis RPOP is gone when its client dies; a pop of ours is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ports import free_port
from rich.console import Console
from rich.table import Table
from survival.report import bar
from survival.rig import Mta

from named_queues import client
from named_queues.trial import CONFIG

SEED = Path(__file__).parent / "seed"
BODY = b"forty bytes, so that base64 is one line\n"
PATIENCE_S = 30.0
NCAT = "ncat, one at a time"
Rates = dict[str, list[float]]


class Ours:
    """`zonemta run` with [pull]."""

    name = "zonemta-py"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        folder.chmod(0o700)
        self._mta = Mta(folder, 9, processes=1, more=CONFIG.format(port=self.port))
        self._mta.start()
        asyncio.run(self._mta.taking())

    def end(self) -> None:
        self._mta.end()

    async def pushes(self, count: int, clients: int) -> None:
        await _shared(count, clients, lambda: client.push(self.port, "default", BODY, by_size=False))

    async def pops(self, count: int, clients: int) -> None:
        await _shared(count, clients, self._pop)

    async def _pop(self) -> None:
        assert await client.command(self.port, "pop") == BODY


class Shell:
    """The server of the seed, to the letter but for its port."""

    name = "shell (seed)"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        shutil.copytree(SEED, folder, dirs_exist_ok=True)
        launch = folder / "launch"
        launch.write_text(launch.read_text().replace("1234", str(self.port)))
        self._process = subprocess.Popen(
            ["./launch"], cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True, stdin=subprocess.DEVNULL
        )

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Redis:
    """LPUSH and RPOP, with every command synced before it is answered."""

    name = "Redis"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    async def pushes(self, count: int, clients: int) -> None:
        await self._commands(count, clients, b"*3\r\n$5\r\nLPUSH\r\n$1\r\nq\r\n$%d\r\n%s\r\n" % (len(BODY), BODY), 0)

    async def pops(self, count: int, clients: int) -> None:
        await self._commands(count, clients, b"*2\r\n$4\r\nRPOP\r\n$1\r\nq\r\n", len(BODY) + 2)

    async def _commands(self, count: int, clients: int, command: bytes, body_bytes: int) -> None:
        async def one(share: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            for _ in range(share):
                writer.write(command)
                assert (await reader.readline())[:1] in b":$"
                if body_bytes:
                    await reader.readexactly(body_bytes)
            writer.close()

        await asyncio.gather(*(one(share) for share in _shares(count, clients)))


def _shares(count: int, clients: int) -> list[int]:
    return [len(range(number, count, clients)) for number in range(clients)]


async def _shared(count: int, clients: int, work: Callable[[], Awaitable[object]]) -> None:
    async def one(share: int) -> None:
        for _ in range(share):
            await work()

    await asyncio.gather(*(one(share) for share in _shares(count, clients)))


def ncat(port: int, text: bytes, wanted: int = 0) -> bytes:
    """One command as it is typed: ^D comes after the answer, if one is wanted. Again until somebody listens: the shell
    server does so only between two commands."""
    end = time.monotonic() + PATIENCE_S
    while True:
        command = ["ncat", "127.0.0.1", str(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
            assert one.stdin is not None
            assert one.stdout is not None
            with suppress(BrokenPipeError):
                one.stdin.write(text)
                one.stdin.flush()
                said = one.stdout.read(wanted)
                one.stdin.close()
            said += one.stdout.read()
        if one.returncode == 0:
            return said
        if time.monotonic() > end:
            raise RuntimeError(f"nobody answers ncat at port {port}")


def ncat_rates(contender: Ours | Shell, count: int) -> tuple[float, float, int]:
    """Pushes and pops a second, and how many messages were lost: the shell server's launcher and its handler finish the
    same push, each in the other's way."""
    start = time.monotonic()
    for _ in range(count):
        ncat(contender.port, b"push\n" + BODY)
    middle = time.monotonic()
    popped = [ncat(contender.port, b"pop\n", len(BODY)) for _ in range(count)]
    end = time.monotonic()
    return count / (middle - start), count / (end - middle), count - popped.count(BODY)


def socket_rates(contender: Ours | Redis, count: int, clients: int) -> tuple[float, float]:
    start = time.monotonic()
    asyncio.run(contender.pushes(count, clients))
    middle = time.monotonic()
    asyncio.run(contender.pops(count, clients))
    return count / (middle - start), count / (time.monotonic() - middle)


@contextmanager
def contenders() -> Iterator[tuple[Ours, Shell, Redis]]:
    """All three, listening. Each waits in turn while another is measured."""
    with tempfile.TemporaryDirectory(prefix="zonemta-pull-benchmark-") as folder:
        places = [Path(folder) / name for name in ("ours", "shell", "redis")]
        for place in places:
            place.mkdir()
        three = Ours(places[0]), Shell(places[1]), Redis(places[2])
        try:
            assert ncat(three[0].port, b"pop\n") == ncat(three[1].port, b"pop\n") == b""
            yield three
        finally:
            for one in three:
                one.end()


def measure(rounds: int, ncat_count: int, count: int, clients: int, show: Callable[[int, str], None]) -> Rates:
    """Every figure of every round."""
    found: Rates = {}

    def enter(how: str, name: str, rates: Sequence[float]) -> None:
        for what, rate in zip(("pushes", "pops"), rates, strict=True):
            found.setdefault(f"{how}: {what}/s: {name}", []).append(round(rate, 1))

    with contenders() as (ours, shell, redis):
        for number in range(1, rounds + 1):
            for one in (ours, shell):
                *rates, lost = ncat_rates(one, ncat_count)
                enter(NCAT, one.name, rates)
                found.setdefault(f"{NCAT}: lost: {one.name}", []).append(lost)
            for several in dict.fromkeys((1, clients)):
                for other in (ours, redis):
                    some = count if several > 1 else max(1, count // 10)
                    enter(f"sockets, {several} at once", other.name, socket_rates(other, some, several))
            show(number, "")
    return found


def main() -> int:
    about = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="scripts/trials/pull benchmark", description=about)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is measured (default 5)")
    parser.add_argument("--ncat", type=int, default=100, help="messages in a round, by ncat (default 100)")
    parser.add_argument("--messages", type=int, default=5_000, help="messages in a round, by sockets (default 5,000)")
    parser.add_argument("--clients", type=int, default=50, help="clients at once (default 50)")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    for program in ("ncat", "redis-server"):
        if shutil.which(program) is None:
            print(f"{program} is not installed: apt-get install {program}", file=sys.stderr)
            return 1
    console = Console(stderr=options.json)
    with bar(console, "rounds", options.rounds) as show:
        found = measure(options.rounds, options.ncat, options.messages, options.clients, show)
    if options.json:
        print(json.dumps({name: {"median": statistics.median(row), "rounds": row} for name, row in found.items()}))
        return 0
    table = Table("how", "what", "who", "median", "least", "most", title="Named queues")
    for name, row in found.items():
        table.add_row(
            *name.split(": "),
            *(f"{value:,.{value < 100:d}f}" for value in (statistics.median(row), min(row), max(row))),
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
