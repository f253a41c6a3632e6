"""Ten thousand sender domains, beside one key of the configuration: what mail costs, what memory, how soon a change
holds, and what a kill loses.

Both are the whole MTA, in turns: the same mail, each message of another domain at random, signed by RSA keys of 2,048
bits. Costs are the processor's time that the processes themselves have used. Broken is a domain that was answered and
is not there after everything was killed while domains were made, a message that is not signed, and a change that does
not hold within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from survival.client import Connection
from survival.letters import letter
from survival.report import bar, table
from survival.rig import Mta
from zonemta_py.mail.dkim.making import made, pem
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.wire.blocking_client import QueueGone

KEYS, AT_ONCE = 20, 32
HOLDS_S = 1.0
TICKS = os.sysconf("SC_CLK_TCK")
ROLES = ("queue", "receiver", "sender")
_KEY = """
[[dkim]]
domain = "customers.test"
selector = "one"
key = "{file}"
"""
Figures = dict[str, Any]


def domain(number: int) -> str:
    return f"d{number}.customers.test"


def used(mta: Mta) -> dict[str, tuple[float, int]]:
    """By role: seconds of the processor so far, and bytes that are a process's own."""
    found = dict.fromkeys(ROLES, (0.0, 0))
    for pid, role in mta.children().items():
        if role not in found:
            continue
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            rows = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
            own = sum(int(rows[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))
            seconds, size = found[role]
            found[role] = seconds + (int(fields[11]) + int(fields[12])) / TICKS, size + own
    return found


class Trial:
    """sink: of this process. count: domains. mail: messages of each turn."""

    def __init__(self, folder: Path, sink: Sink, count: int, mail: int, seed: int) -> None:
        self._sink, self._count, self._mail, self._dice, self._sent = sink, count, mail, random.Random(seed), 0
        (folder / "one.pem").write_bytes(pem("rsa"))
        settings: dict[str, Any] = {"processes": 1, "segment_bytes": 16_777_216, "write_buffer_bytes": 4_194_304}
        one = _KEY.format(file=folder / "one.pem")
        self.key = Mta(folder / "key" / "queue", sink.port, home=folder / "key", more=one, **settings)
        many = folder / "domains"
        self.domains = Mta(many / "queue", sink.port, home=many, server="sender_domains = true", **settings)
        self._keys = [made("customers.test", f"z{number}", "rsa", ()) for number in range(KEYS)]

    async def put(self, number: int, key: list[str], name: str = "") -> None:
        """A domain whose record is in DNS."""
        name = name or domain(number)
        await asyncio.to_thread(self.domains.ask, "domain-put", name=name, change={"key": key})
        await asyncio.to_thread(self.domains.ask, "domain-looked", name=name, found={key[0]: ["ok", ""]})

    async def fill(self, tell: Callable[[int, str], None]) -> float:
        """Makes all domains; seconds."""
        begun, numbers = time.monotonic(), iter(range(self._count))

        async def work() -> None:
            for number in numbers:
                await self.put(number, self._keys[number % KEYS])
                tell(1, "")

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return time.monotonic() - begun

    async def send(self, mta: Mta) -> dict[str, float]:
        """Milliseconds of the processor for each message, by role."""
        before, there = used(mta), len(self._sink.messages)
        begun = time.monotonic()
        connection = await Connection.open(mta.port)
        for _ in range(self._mail):
            await self._one(connection, domain(self._dice.randrange(self._count)))
        accepted_s = time.monotonic() - begun
        connection.close()
        while len(self._sink.messages) < there + self._mail:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.02)
        after = used(mta)
        return {role: (after[role][0] - before[role][0]) / self._mail * 1000 for role in ROLES} | {
            "accepted_ms": accepted_s / self._mail * 1000
        }

    async def _one(self, connection: Connection, of: str) -> None:
        self._sent += 1
        plain = letter(self._sent, kinds="plain", large=0)
        data = plain.data.replace(b"From: writer@letters.test", f"From: writer@{of}".encode(), 1)
        await connection.transaction(plain._replace(sender=f"writer@{of}", recipients=plain.recipients[:1], data=data))

    async def changes(self) -> list[float]:
        """Seconds from the answer of a change to the first message that has it, each time."""
        found = list[float]()
        for number in range(5):
            key = self._keys[0]
            await self.put(0, [f"new{number}", *key[1:]])
            begun, there = time.monotonic(), len(self._sink.messages)
            while not any(f"s=new{number};".encode() in one.body for one in self._sink.messages[there:]):
                connection = await Connection.open(self.domains.port)
                await self._one(connection, domain(0))
                connection.close()
                await asyncio.sleep(0.02)
            found.append(time.monotonic() - begun)
        return found

    async def killed(self, most: int = 300) -> list[str]:
        """Domains that were answered, and are not there after a kill."""
        there, numbers = list[str](), iter(range(most))

        async def work() -> None:
            for number in numbers:
                name = f"late{number}.test"
                try:
                    await asyncio.to_thread(self.domains.ask, "domain-put", name=name, change={"key": self._keys[0]})
                except (QueueGone, OSError, ValueError):
                    return
                there.append(name)

        workers = [asyncio.create_task(work()) for _ in range(4)]
        while len(there) < most / 3:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.005)
        await asyncio.to_thread(self.domains.end)
        await asyncio.gather(*workers)
        self.domains.start()
        await self.domains.taking()
        return [name for name in there if self.domains.ask("domain", name=name) is None]


async def trial(
    folder: Path, count: int, mail: int, rounds: int, seed: int, tell: Callable[[int, str], None]
) -> Figures:
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        one = Trial(folder, sink, count, mail, seed)
        try:
            for mta in (one.key, one.domains):
                mta.start()
                await mta.taking()
            seconds = await one.fill(tell)
            found: dict[str, list[dict[str, float]]] = {"key": [], "domains": []}
            for _ in range(rounds):
                found["key"].append(await one.send(one.key))
                found["domains"].append(await one.send(one.domains))
            memory = {name: used(mta) for name, mta in (("key", one.key), ("domains", one.domains))}
            unsigned = sum(b"DKIM-Signature" not in each.body for each in sink.messages)
            changes = await one.changes()
            lost = await one.killed()
        finally:
            one.key.end()
            one.domains.end()
    figures: Figures = {"made_per_s": round(count / seconds)}
    for name in (*ROLES, "accepted_ms"):
        middle = {what: statistics.median(each[name] for each in rows) for what, rows in found.items()}
        unit = "" if name == "accepted_ms" else "_cpu_ms"
        figures |= {f"{what} {name}{unit}": round(value, 3) for what, value in middle.items()}
        figures[f"ratio {name}{unit}"] = round(middle["domains"] / middle["key"], 2) if middle["key"] else None
    figures |= {f"{what} {role}_mb": round(memory[what][role][1] / 1e6, 1) for what in memory for role in ROLES}
    figures["change_s"] = [round(value, 2) for value in changes]
    late = [f"a change took {value:.2f} s" for value in changes if value > HOLDS_S]
    figures["broken"] = [*late, *(f"{name} is lost" for name in lost), *[f"{unsigned} unsigned"] * bool(unsigned)]
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/domains", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="domains")
    parser.add_argument("--mail", type=int, default=2_000, help="messages of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the same mail again")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    folder = Path(tempfile.mkdtemp(prefix="zonemta-domains-", dir="/var/tmp"))
    console.print(f"seed {options.seed}, queues in {folder}")
    with bar(console, "domains", options.count) as advance:
        figures = asyncio.run(
            trial(folder, options.count, options.mail, options.rounds, options.seed, advance)
        )  # fmt: skip
    if options.json:
        print(json.dumps({"seed": options.seed, **figures}, indent=1))
    else:
        table(console, "Sender domains", figures)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
