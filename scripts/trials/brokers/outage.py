"""Every receiver of the event feed is killed for a while under load, and started again: is every event there after all?

A real MTA sends real mail to the sink at a steady rate; its events go to RabbitMQ, Redis, NATS, a broker of Kafka's
protocol (Tansu) and an HTTP receiver at the same time. One after the other is killed (SIGKILL), stays away, and is
started again with what it had on disk, while mail goes on. What came to each is compared with the journal: lost,
repeated, out of order within a message; dropped by the sink; and how long it took to catch up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from survival.client import Connection, Refused
from survival.letters import Letter, letter
from survival.rig import Mta

from brokers.receivers import RECEIVERS, Came, Receiver
from zonemta_py.disk import identity
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import id_of
from zonemta_py.journal.tail import JournalTail
from zonemta_py.sink import Sink, SinkOptions

EVENTS_PER_MESSAGE = 5
"""Accepted, queued, attempted, delivered, finished."""
SESSIONS = 8
PATIENCE_S = 120.0
SETTLED_S, SETTLING_S = 3.0, 20.0
LAG_S = 1.5
"""A sink that is behind by no more has caught up: it makes batches for 0.5 s, and writes its state once a second."""
_TOTALS = ("dropped", "missed", "dead")


class Load:
    """Letters at a steady rate, each with one recipient, until it is stopped."""

    def __init__(self, port: int, messages_s: float) -> None:
        self._port, self._gap_s = port, 1 / messages_s
        self._stopped = False
        self._next = 0
        self._begin_s = time.monotonic()
        self.accepted = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._session() for _ in range(SESSIONS)))

    def stop(self) -> None:
        self._stopped = True

    async def _session(self) -> None:
        connection = await Connection.open(self._port)
        while not self._stopped:
            number, self._next = self._next, self._next + 1
            await asyncio.sleep(self._begin_s + number * self._gap_s - time.monotonic())
            try:
                await connection.transaction(_letter(number))
                self.accepted += 1
            except Refused:
                continue
        connection.close()


def _letter(number: int) -> Letter:
    made = letter(number, kinds="plain", large=0)
    return made._replace(recipients=made.recipients[:1])


class Trial:
    """figures: of each receiver, once `run` has ended. broken: what must not be, in words."""

    def __init__(self, folder: Path, events_s: float, down_s: float, only: list[str], say: Callable[..., None]) -> None:
        self.figures: dict[str, dict[str, Any]] = {}
        self.broken: list[str] = []
        self._folder, self._events_s, self._down_s, self._say = folder, events_s, down_s, say
        self._patience_s = max(PATIENCE_S, 5 * down_s)
        self._receivers: list[Receiver] = []
        self._begin = 0
        """Records before this one are older than the sinks, which do not get them."""
        for kind in RECEIVERS:
            if not only or kind.name in only:
                if why := kind.server_class.missing():
                    self.broken.append(f"{kind.name} is left out: {why}")
                else:
                    self._receivers.append(kind(folder))

    async def run(self) -> dict[str, Any]:
        try:
            async with Sink(SinkOptions(listen=("127.0.0.1:0",))) as sink:
                await asyncio.gather(*(asyncio.to_thread(one.server.start) for one in self._receivers))
                for one in self._receivers:
                    await one.prepare()
                return await self._with(self._mta(sink.port))
        finally:
            for one in self._receivers:
                one.server.end()

    def _mta(self, port: int) -> Mta:
        memory = max(100, int(self._events_s * self._down_s / 6))
        keys = f"retry_s = 0.2\nretry_max_s = 2\nmemory_events = {memory}\n"
        tables = "".join(one.table(keys) for one in self._receivers)
        return Mta(self._folder / "queue", port, home=self._folder, more=tables, processes=1)

    async def _with(self, mta: Mta) -> dict[str, Any]:
        mta.start()
        try:
            await mta.taking()
            await self._sinks_ready()
            self._begin = 1 + await asyncio.to_thread(mta.ask, "stable")
            load = Load(mta.port, self._events_s / EVENTS_PER_MESSAGE)
            loading = asyncio.create_task(load.run())
            began = time.monotonic()
            for one in self._receivers:
                await asyncio.sleep(min(5.0, self._down_s))
                await self._outage(one)
            load.stop()
            await loading
            took_s = time.monotonic() - began
            await mta.drained()
            events = await self._compare(mta)
        finally:
            mta.end()
        return {
            "down_s": self._down_s, "messages": load.accepted, "events": events,
            "events_s": round(EVENTS_PER_MESSAGE * load.accepted / took_s, 1), "receivers": self.figures,
            "broken": self.broken,
        }  # fmt: skip

    async def _sinks_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not all(self._state_file(one).exists() for one in self._receivers):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _outage(self, one: Receiver) -> None:
        self._say(f"{one.name}: killed for {self._down_s:g} s")
        one.server.kill()
        await asyncio.sleep(self._down_s)
        waiting = self._state(one)
        await asyncio.to_thread(one.server.start)
        up = time.monotonic()
        while not self._caught_up(one):
            if time.monotonic() > up + self._patience_s:
                self.broken.append(f"{one.name}: not caught up after {self._patience_s:g} s: {self._state(one)}")
                break
            await asyncio.sleep(0.1)
        caught_up_s = time.monotonic() - up
        self.figures[one.name] = {
            "ring_pages": waiting["ring_pages"], "reason": waiting["reason"], "catch_up_s": round(caught_up_s, 1),
        }  # fmt: skip
        self._say(f"{one.name}: back, and caught up after {caught_up_s:.1f} s")

    def _state(self, one: Receiver) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._state_file(one).read_text())
        return found

    def _state_file(self, one: Receiver) -> Path:
        return self._folder / "queue/events" / one.name / "state.json"

    def _caught_up(self, one: Receiver) -> bool:
        state = self._state(one)
        return state["state"] == "ok" and not state["ring_pages"] and state["lag_s"] < LAG_S

    async def _compare(self, mta: Mta) -> int:
        """How many events the sinks must have got, once everybody has had the time to get them."""
        await asyncio.sleep(SETTLED_S)
        places = self._journal(await asyncio.to_thread(mta.ask, "stable"))
        expected = {name for name, seq in places.items() if seq >= self._begin}
        for one in self._receivers:
            end = time.monotonic() + SETTLING_S
            await one.collect()
            while expected - {came.id for came in one.came} and time.monotonic() < end:
                await asyncio.sleep(1)
                await one.collect()
            self._judge(one, places, expected)
        return len(expected)

    def _journal(self, until_seq: int) -> dict[str, int]:
        """Ids of all events, in their order, and the records they come from."""
        source = identity.name_of(self._folder / "queue")
        tail, places = JournalTail(self._folder / "queue"), dict[str, int]()
        while records := tail.read(until_seq, 1000):
            places |= {id_of(event, source): event.seq for record in records for event in events_of(record)}
        tail.close()
        return places

    def _judge(self, one: Receiver, places: dict[str, int], expected: set[str]) -> None:
        counts = Counter(came.id for came in one.came)
        state, lost = self._state(one), sorted(expected - counts.keys())
        figures = self.figures[one.name] = self.figures.get(one.name, {}) | {
            "came": len(one.came),
            "lost": len(lost),
            "unknown": len(counts.keys() - places.keys()),
            "repeated": sum(counts.values()) - len(counts),
            "out_of_order": out_of_order(one.came, list(places)),
            **{name: state[name] for name in _TOTALS},
        }
        for name in ("lost", "unknown", "out_of_order", *_TOTALS):
            if figures[name]:
                which = f", such as {', '.join(lost[:3])}" if name == "lost" else ""
                self.broken.append(f"{one.name}: {figures[name]} {name.replace('_', ' ')}{which}")


def out_of_order(came: list[Came], order: list[str]) -> int:
    """Events that came for the first time after a later one of the same message. order: ids, as in the journal."""
    places = {name: place for place, name in enumerate(order)}
    seen, last, wrong = set[str](), dict[str, int](), 0
    for one in came:
        if one.id not in seen and one.subject:
            place = places.get(one.id, 0)
            wrong += place < last.get(one.subject, -1)
            last[one.subject] = max(place, last.get(one.subject, -1))
        seen.add(one.id)
    return wrong


def _table(figures: dict[str, Any]) -> Table:
    title = f"each killed for {figures['down_s']:g} s, {figures['events_s']:g} events/s, {figures['events']:,} events"
    names = ("came", "lost", "repeated", "out_of_order", "dropped", "dead", "ring_pages", "catch_up_s")
    table = Table("receiver", *(name.replace("_", " ") for name in names), title=title)
    for receiver, row in figures["receivers"].items():
        table.add_row(receiver, *(str(row.get(name, "")) for name in names))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/events", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--down", type=float, default=60, metavar="SECONDS", help="how long each stays away (default 60)"
    )
    parser.add_argument("--rate", type=float, default=500, metavar="EVENTS", help="events a second (default 500)")
    names = [kind.name for kind in RECEIVERS]
    parser.add_argument("--only", action="append", choices=names, default=[], help="this receiver; may be repeated")
    parser.add_argument("--folder", type=Path, help="where queue, servers and logs live; default: a new one, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-events-"))
    console = Console(stderr=options.json)
    console.print(f"queue, servers and logs in {folder}")
    figures = asyncio.run(Trial(folder, options.rate, options.down, options.only, console.print).run())
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        console.print(_table(figures))
    for line in figures["broken"]:
        console.print(f"[red]broken[/red] {line}")
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
