"""Reloads under full load: another configuration again and again, while clients hand in and senders deliver.

Clients hand in over lasting connections, one is in the middle of its DATA all the time, one is idle, one asks by HTTP.
Each reload has another configuration; now and then a wrong one. Then a drain, and a start. What must not be: a
connection that breaks, an answer by HTTP that does not come, somebody in doubt, anything lost or twice, a delivery that
an event sink does not hear of, or more than a limit allows at any moment: connections as the kernel counts them,
messages as the journal dates their leases, and connections of a client that wants more than it may have.

With --kills, processes are killed all the while: then connections break and some are in doubt, but all else holds.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from open_connections import Opened, established

from survival import drains
from survival.client import Client, Connection
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import PATIENCE_S, Mta, sink
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import RELEASED, DeliveryRecord, StartRecord

CONNECTIONS, RATE_S, BURST = 8, 30, 15
PLACES, CROWD = 12, 20
"""Connections that one client may have, and how many it tries to have."""
LOOK_S = 0.01
WRONG = 5
EVENTS = "events.jsonl"
_LIMITS = f"""
[[throttles]]
name = "few"
per = ["site"]
connections = {CONNECTIONS}
[[throttles]]
name = "slow"
per = ["zone"]
only = {{ zone = "bulk" }}
messages = "{RATE_S}/s"
burst = {BURST}
"""
_MORE = """
[[event_sinks]]
name = "all"
kind = "file"
path = "{events}"
types = ["delivered"]
[http]
enabled = true
port = {port}
"""


def variants(text: str, sink_port: int) -> Iterator[str]:
    """Configurations, each different from the one before; every fifth is wrong."""
    for number in itertools.count(1):
        one = text.replace("connections = 5", f"connections = {4 + number % 3}")
        one = one.replace("receivers = 2", f"receivers = {1 + number % 3}")
        one = one.replace("senders = 2", f"senders = {1 + number % 2}")
        one = one.replace("jitter = 0.5", f"jitter = 0.{4 + number % 2}")
        if number % WRONG == 0:
            yield one.replace("[limits]", "[limits]\nno_such_key = 1")
            continue
        if number % 4 == 1:
            zone = f'[[zones]]\nname = "n{number}"\nheaders = {{ "X-None" = "none" }}\nhost = "127.0.0.1"\n'
            one += f'{zone}port = {sink_port}\ntls = "none"\n'
        if number % 4 == 2:
            one += f'[[throttles]]\nname = "t{number}"\nper = ["zone"]\nmessages = "{1000 + number}/s"\n'
        if number % 4 == 3:
            one += f"[learning]\ninitial = {5 + number % 5}\n[shares.tenants]\na = {number}\n"
        yield one


def open_to(port: int) -> set[Opened]:
    """Established connections to it, as the kernel counts those of who has opened them."""
    return {one for one in established() if one.other[1] == port}


def open_at_once(port: int) -> int:
    """A look takes a while, in which one may be closed and another opened: what two looks see was open between them."""
    return len(open_to(port) & open_to(port))


class Watch:
    """most: connections to a port that were open at once."""

    def __init__(self, port: int) -> None:
        self.port, self.most = port, 0

    async def run(self) -> None:
        while True:
            self.most = max(self.most, await asyncio.to_thread(open_at_once, self.port))
            await asyncio.sleep(LOOK_S)


class Crowd:
    """A client with an address of its own that wants more connections than it may have. most: it had at once."""

    address = "127.0.0.9"

    def __init__(self, port: int, over: asyncio.Event) -> None:
        self.port, self._over, self._dice = port, over, random.Random(1)
        self.most = self.let_in = self._open = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CROWD):
                group.create_task(self._one())

    async def _one(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._stay()
            await asyncio.sleep(0.05)

    async def _stay(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0))
        if (await reader.readline()).startswith(b"220"):
            self._open, self.let_in = self._open + 1, self.let_in + 1
            self.most = max(self.most, self._open)
            with suppress(TimeoutError, OSError):  # it breaks if the receiver is killed
                await asyncio.wait_for(reader.read(1), self._dice.uniform(0.1, 0.5))
            self._open -= 1
        writer.transport.abort()


class Asker:
    """Asks by HTTP over a connection that lasts. broken: answers that did not come."""

    def __init__(self, port: int) -> None:
        self.port, self.asked, self.broken, self.stopped = port, 0, 0, False

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.stopped:
            try:
                connection.request("GET", "/v1/health")
                connection.getresponse().read()
                self.asked += 1
            except (OSError, http.client.HTTPException):
                self.broken += 1
                connection.close()
            time.sleep(0.002)
        connection.close()


async def slowly(port: int, letter: Letter, over: asyncio.Event) -> None:
    """Hands in a letter, the last of it when all is over. Raises what the client raises if its connection breaks."""
    connection = await Connection.open(port)
    writer = connection._writer
    writer.write(f"MAIL FROM:<{letter.sender}>\r\nRCPT TO:<{letter.recipients[0]}>\r\nDATA\r\n".encode())
    for expected in ("250", "250", "354"):
        assert (await connection._reply()).startswith(expected)
    lines = letter.data.split(b"\r\n")[:-1]
    writer.write(lines[0] + b"\r\n")
    await over.wait()
    writer.write(b"".join(line + b"\r\n" for line in lines[1:]) + b".\r\n")
    assert (await connection._reply()).startswith("250")
    connection.close()


async def idly(port: int, over: asyncio.Event) -> None:
    """Says nothing until all is over, and then hands in by the same connection."""
    connection = await Connection.open(port)
    await over.wait()
    await connection.transaction(Letter("1.0", "idle@i.test", ["to@one.test"], b"Subject: idle\r\n\r\nHi\r\n"))
    connection.close()


def overrun(folder: Path, zone: str, until_ms: float) -> float:
    """By how many messages at most the rate of a zone was exceeded before that; 0 or less: never."""
    ended: dict[int, bool] = {}
    given: dict[int, int] = {}
    for record in segments.read(folder / "journal", 0, [], folder / "archive"):
        if record.type == Type.START:
            start = StartRecord.of(unpack(record.body))
            if start.zone == zone and start.since_ms < until_ms:
                given[start.lease] = start.since_ms
        elif record.type == Type.DELIVERY:
            delivery = DeliveryRecord.of(unpack(record.body))
            ended[delivery.lease] = any(outcome.verdict != RELEASED for outcome in delivery.outcomes)
    times = sorted(ms / 1000 for lease, ms in given.items() if ended.get(lease))
    ahead, worst, before = 0.0, 0.0, 0.0
    for now in times:  # a bucket, as the limit is meant
        ahead = max(0.0, ahead - (now - before) * RATE_S) + 1
        before, worst = now, max(worst, ahead - BURST)
    return worst


class Course(NamedTuple):
    """How the trial goes."""

    reloads: int
    pause_s: float
    kills: bool
    http_port: int


async def trial(home: Path, reloads: int, pause_s: float = 0.0, kills: bool = False) -> dict[str, Any]:
    """Figures; `broken` names what must not be."""
    ledger = Ledger(kinds="plain", large=0.01)
    async with sink(ledger, rules=()) as running:
        mta = Mta(home / "queue", running.port, home=home, more=_LIMITS)
        own = Mta(home / "unused", running.port, home=home / "unused")  # its port is free, and kept
        text = mta.config_file.read_text().replace("[limits]", f"[limits]\nconnections_per_client = {PLACES}")
        text += _MORE.format(port=own.port, events=home / EVENTS)
        mta.config_file.write_text(text)
        mta.start()
        try:
            figures = await _reloaded(mta, running.port, ledger, text, Course(reloads, pause_s, kills, own.port))
        except BaseException:
            print(mta.log_tail(80), file=sys.stderr)
            raise
        finally:
            mta.end()
        await asyncio.sleep(0.5)
    judged = ledger.judge(figures.pop("doubtful"))
    figures |= {"recipients": judged.recipients, "acknowledged": judged.acknowledged}
    figures["overrun"] = round(overrun(mta.folder, "bulk", figures.pop("until_ms")), 3)
    figures["unheard"] = len(unheard(home / EVENTS, ledger))
    never = ("unheard", "surprises") if kills else ("dropped", "in_doubt", "http_broken", "surprises", "unheard")
    wrong = {name: figures[name] for name in never if figures[name]}
    if figures["connections_most"] > CONNECTIONS:
        wrong["connections"] = figures["connections_most"]
    if figures["crowd_most"] != PLACES and not kills:  # a dead receiver's connections are gone before the client knows
        wrong["places"] = figures["crowd_most"]
    if figures["overrun"] > 1:
        wrong["rate"] = figures["overrun"]
    foreign = [one for one in judged.foreign if not one.startswith("idle@")]
    judged.foreign = foreign
    return figures | {"broken": [*judged.broken, *(f"{name}: {what}" for name, what in wrong.items())]}


async def _reloaded(mta: Mta, sink_port: int, ledger: Ledger, text: str, course: Course) -> dict[str, Any]:
    await mta.taking()
    watch, asker, over = Watch(sink_port), Asker(course.http_port), asyncio.Event()
    client = Client(mta.port, ledger, kinds="plain", large=0.01)
    numbers = itertools.takewhile(lambda _: not over.is_set(), itertools.count(1))
    watching = asyncio.create_task(watch.run())
    asking = asyncio.create_task(asyncio.to_thread(asker.run))
    killing = asyncio.create_task(killed(mta, over)) if course.kills else None
    lasting = [] if killing else [slowly(mta.port, _slow(), over), idly(mta.port, over)]
    lasting = [asyncio.create_task(one) for one in lasting]
    handing = asyncio.create_task(client.hand_in(numbers, sessions=6))  # type: ignore[arg-type]
    crowd = Crowd(mta.port, over)
    crowding = asyncio.create_task(crowd.run())
    took, refused, surprises, doubtful = [], 0, list[str](), set[str]()
    for number, one in enumerate(itertools.islice(variants(text, sink_port), course.reloads), 1):
        mta.config_file.write_text(one)
        began = time.monotonic()
        found = await asyncio.to_thread(mta.ask, "reload", by="the trial")
        took.append(time.monotonic() - began)
        refused += bool(found["refused"])
        wrong = number % WRONG == 0
        if bool(found["refused"]) != wrong and "recipients wait" not in str(found["refused"]):
            surprises.append(f"{number}: {found['refused']}")
        if killing:
            doubtful |= set(await asyncio.to_thread(mta.in_doubt))
        await asyncio.sleep(course.pause_s)
    over.set()
    asker.stopped = True
    await asyncio.gather(*lasting, handing, asking, crowding, *([killing] if killing else []))
    await asyncio.sleep(0.5)
    until_ms = time.time() * 1000
    drained = await _drain(mta)
    mta.config_file.write_text(text.replace(_LIMITS, ""))
    watching.cancel()
    mta.start()
    await mta.taking()
    await mta.drained()
    await asyncio.sleep(0.5)
    until = time.monotonic() + PATIENCE_S
    while unheard(mta.config_file.with_name(EVENTS), ledger) and time.monotonic() < until:  # noqa: ASYNC110 (a file)
        await asyncio.sleep(0.2)  # the feed stands back behind mail
    doubtful |= set(mta.in_doubt())
    return {
        "reloads": len(took), "refused": refused, "surprises": surprises, "slowest_s": round(max(took), 3),
        "mean_s": round(sum(took) / len(took), 3), "dropped": client.broken, "sent_on": client.replies[421],
        "replies": dict(client.replies), "http": asker.asked, "http_broken": asker.broken,
        "connections_most": watch.most, "crowd_most": crowd.most, "crowd_let_in": crowd.let_in,
        "in_doubt": len(doubtful), "doubtful": doubtful, "drain": drained, "until_ms": until_ms,
    }  # fmt: skip


async def killed(mta: Mta, over: asyncio.Event) -> None:
    """Kills one process after the other."""
    dice = random.Random(1)
    while not over.is_set():
        await asyncio.sleep(dice.random())
        mta.kill(dice.choice(("queue", "receiver", "sender", "http", "events")), dice.random())


def unheard(file: Path, ledger: Ledger) -> set[str]:
    """Recipients whose mail came to the sink, but whose delivery did not come to the file."""
    lines = file.read_text().splitlines() if file.exists() else []
    heard = {json.loads(line)["data"]["recipient"] for line in lines}
    return {address for address in ledger.arrivals if "@" in address} - heard


def _slow() -> Letter:
    data = b"Subject: slow\r\n" + b"\r\n" + b"x" * 70 + b"\r\n"
    return Letter("2.0", "idle@slow.test", ["slow@one.test"], data)


async def _drain(mta: Mta) -> dict[str, Any]:
    """While mail waits: everything that is under way ends, and then the MTA."""
    waiting = (await asyncio.to_thread(mta.ask, "size"))["total"]["queued"]
    began = time.monotonic()
    with suppress(ValueError):
        await asyncio.to_thread(mta.ask, "drain", for_s=60, by="the trial")
    assert mta._process is not None
    status = await asyncio.to_thread(mta._process.wait, 90)
    assert status == 0, f"the drain ends with {status}"
    return {"waiting": waiting, "took_s": round(time.monotonic() - began, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/reload", description=__doc__)
    parser.add_argument("--reloads", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two")
    parser.add_argument("--drains", type=int, default=0, help="instead: so many drains, most of which are canceled")
    parser.add_argument("--kills", action="store_true", help="kill processes all the while")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reload-") as folder:
        if chosen.drains:
            found = asyncio.run(drains.trial(Path(folder), chosen.drains))
        else:
            found = asyncio.run(trial(Path(folder), chosen.reloads, chosen.pause, chosen.kills))
    print(json.dumps(found, indent=2))
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
