"""One source address of four is taken away under load, and given back: where its mail goes, and how soon.

    PYTHONPATH=scripts:scripts/trials .venv/bin/python scripts/trials/sources.py --how address|proxy|silent

address: 10.77.28.1 to .4 on the loopback interface (as root), one of which is removed. proxy: four SOCKS5 servers
(microsocks), one of which is killed; silent: it is stopped instead, so that it takes connections and says nothing. Each
source has a limit, and more mail comes than they take, so that some waits for the lost one. Prints one JSON object;
exits with 1 if something does not hold. Everything is on this machine, and removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ports import free_port
from survival.client import Connection
from survival.letters import Letter
from survival.rig import Mta

from zonemta_py.journal import folders, segments
from zonemta_py.journal.facts import Answered, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import DELIVERED
from zonemta_py.sink import ReceivedMessage, Sink, SinkOptions

ADDRESSES = [f"10.77.28.{n}" for n in range(1, 5)]
LOST = ADDRESSES[3]
RATE, BURST = 25, 25
LEEWAY = 2
"""Between a lease, for which a limit is charged, and the attempt's beginning, which the journal has, some ms pass."""
SECONDS_BEFORE = 10.0

_MORE = """
[[zones]]
name = "pooled"
recipient_domains = ["pool.test"]
host = "127.0.0.1"
port = {sink}
tls = "none"
pool = "four"
connections = 40
[[throttles]]
name = "each"
per = ["source"]
messages = "{rate}/s"
burst = {burst}
[[pools]]
name = "four"
{sources}
"""


class Addresses:
    """On the loopback interface."""

    options = ""

    def __init__(self, silent: bool) -> None:
        for address in ADDRESSES:
            _ip("add", address)

    def settings(self, address: str) -> str:
        return f'[[pools.sources]]\naddress = "{address}"\n'

    def take(self) -> None:
        _ip("del", LOST)

    def give(self) -> None:
        _ip("add", LOST)

    def end(self) -> None:
        for address in ADDRESSES:
            _ip("del", address)


def _ip(what: str, address: str) -> None:
    subprocess.run(["ip", "addr", what, f"{address}/32", "dev", "lo"], check=what == "add", stderr=subprocess.DEVNULL)


class Proxies:
    """SOCKS5 servers that send from 127.77.28.1 to .4."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._ports = {address: free_port() for address in ADDRESSES}
        self._running = {address: self._start(address) for address in ADDRESSES}

    def _start(self, address: str) -> subprocess.Popen[bytes]:
        bound = address.replace("10.", "127.", 1)
        command = ["microsocks", "-i", "127.0.0.1", "-p", str(self._ports[address]), "-b", bound]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def settings(self, address: str) -> str:
        return f'[[pools.sources]]\naddress = "{address}"\nproxy = "socks5://127.0.0.1:{self._ports[address]}"\n'

    def take(self) -> None:
        process = self._running[LOST]
        if self._silent:
            process.send_signal(signal.SIGSTOP)
        else:
            process.kill()
            process.wait()

    def give(self) -> None:
        if self._silent:
            self._running[LOST].send_signal(signal.SIGCONT)
        else:
            self._running[LOST] = self._start(LOST)

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


async def load(port: int, ends: float, rate: float, sent: dict[str, float]) -> None:
    """So many letters a second, over one connection; sent: when each was acknowledged."""
    connection, began, number = await Connection.open(port), time.time(), 0
    while time.time() < ends:
        await asyncio.sleep(max(0.0, began + number / rate - time.time()))
        name = f"n{number}"
        data = f"Message-ID: <{name}@letters.test>\r\nSubject: {name}\r\n\r\nHello\r\n".encode()
        await connection.transaction(Letter(name, "writer@letters.test", [f"{name}@pool.test"], data))
        sent[name] = time.time()
        number += 1
    connection.close()


def waiting(mta: Mta, source: str) -> int:
    found = mta.ask("lanes", zone="pooled", limit=1000)
    return sum(row["waiting"] + row["parked"] for row in found["rows"] if row["source"] == source)


async def emptied(mta: Mta, ends: float) -> float:
    """When nothing waited for the lost one any more."""
    while time.time() < ends:
        if not await asyncio.to_thread(waiting, mta, LOST):
            return time.time()
        await asyncio.sleep(0.1)
    return float("inf")


def over(times: list[float], window_s: float) -> float:
    """By how many messages at most a stretch of that length has more than the limit allows; negative: it never has."""
    times = sorted(times)
    most = max((bisect_right(times, at + window_s) - number for number, at in enumerate(times)), default=0)
    return most - (RATE * window_s + BURST)


def attempted(folder: Path) -> dict[str, list[float]]:
    """When each attempt that reached a server began, by source: as the journal has it, and a limit counts it."""
    found = {source: list[float]() for source in ADDRESSES}
    seen = set[tuple[str, int]]()
    for part in ("journal", "archive"):  # a file leaves the former once it is in the latter
        places = folders.beside(folder / part).values()
        for path in sorted(path for place in places for path in folders.files(place)):
            with suppress(FileNotFoundError):
                _read(path, seen, found)
    return found


def _read(path: Path, seen: set[tuple[str, int]], found: dict[str, list[float]]) -> None:
    queue = str(path.parent.parent)
    for record in segments.read_file(path, []):
        if record.type == Type.DELIVERY and (queue, record.seq) not in seen:
            seen.add((queue, record.seq))
            for fact in facts_of(record):
                if isinstance(fact, Answered) and fact.number == DELIVERED:
                    found[fact.trace.source].append(int(fact.trace.started_ms) / 1000)


def answers(metrics: dict[str, Any]) -> Counter[str]:
    found = Counter[str]()
    for labels, count in metrics["counters"].get("zonemta_answers_total", ()):
        found[labels[1]] += count
    return found


def by_source(message: ReceivedMessage) -> str:
    return message.client.replace("127.77.", "10.77.", 1)


async def trial(how: str, seconds: float, queues: int) -> dict[str, Any]:
    sources = (Addresses if how == "address" else Proxies)(how == "silent")
    try:
        with tempfile.TemporaryDirectory(prefix="zonemta-sources-") as name:
            async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
                text = "".join(map(sources.settings, ADDRESSES))
                more = _MORE.format(sink=sink.port, sources=text, rate=RATE, burst=BURST)
                mta = Mta(Path(name) / "queue", sink.port, home=Path(name), more=more, retry_min=1, queues=queues)
                mta.start()
                try:
                    return await _run(mta, sink, sources, how, seconds)
                finally:
                    mta.end()
    finally:
        sources.end()


async def _run(mta: Mta, sink: Sink, sources: Addresses | Proxies, how: str, seconds: float) -> dict[str, Any]:
    await mta.taking()
    sent = dict[str, float]()
    begun = time.time()
    ends = begun + SECONDS_BEFORE + seconds + 45
    loading = asyncio.ensure_future(load(mta.port, ends, 4 * RATE * 1.1, sent))
    await asyncio.sleep(SECONDS_BEFORE)
    before = await asyncio.to_thread(waiting, mta, LOST)
    lost = time.time()
    sources.take()
    moved = await emptied(mta, lost + seconds)
    await asyncio.sleep(max(0.0, lost + seconds - time.time()))
    standing = [row for row in await asyncio.to_thread(mta.ask, "standing") if row["kind"] == "source"]
    explained = await asyncio.to_thread(mta.ask, "explain", what=LOST)
    metrics = await asyncio.to_thread(mta.ask, "metrics")
    given = time.time()
    sources.give()
    await loading
    await mta.drained()
    total = (await asyncio.to_thread(mta.ask, "size"))["total"]
    answered = answers(await asyncio.to_thread(mta.ask, "metrics"))
    attempts = await asyncio.to_thread(attempted, mta.folder)
    times = {source: [one.time for one in sink.messages if by_source(one) == source] for source in ADDRESSES}
    came = Counter(one.recipients[0] for one in sink.messages)
    share = lambda begins, stops: {  # noqa: E731 - once, for the table
        source: sum(begins <= at < stops for at in found) for source, found in times.items()
    }
    found: dict[str, Any] = {
        "how": how,
        "accepted": len(sent),
        "delivered": len(came),
        "twice": sum(count > 1 for count in came.values()),
        "never": len({f"{one}@pool.test" for one in sent} - came.keys()),
        "waiting for it when it was lost": before,
        "nothing waits for it after s": round(moved - lost, 2),
        "the last by it came after s": round(max([at - lost for at in times[LOST] if at < given], default=0.0), 2),
        "the first by it after its return came after s": round(
            min([at - given for at in times[LOST] if at > given], default=float("inf")), 2
        ),
        "shares before": share(lost - SECONDS_BEFORE + 1, lost),
        "shares while it was away": share(lost + 5, given),
        "shares after": share(ends - 10, ends),
        "over its limit by at most, within 1, 5, 10, 30 s": {
            source: [round(over(found, window), 1) for window in (1, 5, 10, 30)] for source, found in attempts.items()
        },
        "attempts": {source: len(found) for source, found in attempts.items()},
        "answers": dict(answered),
        "left": {state: count for state, count in total.items() if count},
        "standing": [(row["name"], row["group"], row["cause"]) for row in standing],
        "explained": [row.get("reasons") for row in explained["rows"] if "stopped" in row],
        "metrics": {
            name: {labels[0]: value for labels, value in table.get(name, ())}
            for table in (metrics["gauges"], metrics["counters"])
            for name in table
            if name.startswith("zonemta_source_")
        },
        "log": [line for line in mta.log.read_text().splitlines() if "source 10." in line][:12],
    }
    found["holds"] = (
        not found["twice"] + found["never"]
        and found["nothing waits for it after s"] <= 5
        and found["the first by it after its return came after s"] <= 60
        and not answered["deferred"] + answered["bounced"]
        and all(
            more <= LEEWAY
            for each in found["over its limit by at most, within 1, 5, 10, 30 s"].values()
            for more in each
        )
    )
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--how", choices=("address", "proxy", "silent"), default="address")
    options.add_argument("--seconds", type=float, default=40, help="how long it is away")
    options.add_argument("--queues", type=int, default=1)
    given = options.parse_args()
    if given.how == "address" and os.geteuid():
        sys.exit("only root may take an address away; use --how proxy")
    found = asyncio.run(trial(given.how, given.seconds, given.queues))
    print(json.dumps(found, indent=1))
    sys.exit(not found["holds"])


if __name__ == "__main__":
    main()
