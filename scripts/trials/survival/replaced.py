"""Nodes of a cluster that die one after the other: how soon their mail moves again elsewhere, and whether anything else
pauses meanwhile.

One node has many recipients queued, for a destination that takes a few hundred a second; the others get mail all the
time. The one is killed, all of it, with kill -9; its mail is taken over; it is started again and gets its queue back.
What is measured: seconds from the kill until its mail moves; until it is served at home again; and the longest time in
which one of the other nodes has acknowledged nothing, or none of their mail was delivered.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from survival.client import Client, Connection, Refused
from survival.cluster import Nodes
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.letters import Letter, letter, name_in
from survival.rig import SHIPPED, enter, sink
from zonemta_py.queues import layout
from zonemta_py.sink.record import ReceivedMessage

TOGETHER = 100
KIND = "plain"
PACE = 150
"""Recipients a second that the destination of what is queued gets."""
SETTLE_S = 10.0
PATIENCE_S = 120.0
_MORE = """
[[zones]]
name = "slow"
recipient_domains = ["queued.test"]
host = "127.0.0.1"
port = {port}
tls = "none"
recipients_per_delivery = 20
[[throttles]]
name = "slow"
only = {{ zone = "slow" }}
recipients = "{pace}/s"
"""
DATA = b"From: news@queued.example\r\nSubject: queued\r\n\r\n" + b"A line of the news that everybody gets.\r\n" * 40


class TimedLedger(Ledger):
    """moments: when mail came, by the node that had accepted it; "queued": what waits on the first."""

    def __init__(self) -> None:
        super().__init__(kinds=KIND, large=0.0)
        self.moments = defaultdict[str, list[float]](list)
        self.nodes = dict[str, str]()
        """Letters, and which node acknowledged them."""

    def arrived(self, message: ReceivedMessage) -> None:
        if message.sender.startswith("news@"):
            self.moments["queued"].append(time.monotonic())
        elif message.sender:
            self.moments[self.nodes.get(name_in(message.sender) or "", "")].append(time.monotonic())
        super().arrived(message)


class TimedClient(Client):
    """Notes when letters are acknowledged."""

    def __init__(self, node: str, port: int, ledger: TimedLedger) -> None:
        super().__init__(port, ledger, make=letter, kinds=KIND, large=0.0)
        self.node, self.timed, self.acknowledged = node, ledger, list[float]()

    async def give(self, connection: Connection, message: Letter) -> None:
        self.timed.nodes[message.name] = self.node
        await super().give(connection, message)
        self.acknowledged.append(time.monotonic())


async def trial(
    folder: Path, *, recipients: int, deaths: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ledger, rows = TimedLedger(), list[dict[str, float]]()
    async with sink(ledger, seed=seed) as running:
        nodes = Nodes(folder, running.port, more=_MORE.format(port=running.port, pace=PACE), processes=1, **SHIPPED)
        await nodes.start()
        try:
            a, *others = nodes.all
            people = [f"q{number}@queued.test" for number in range(recipients)]
            ledger.merge(people, lambda recipient, body: body.endswith(DATA[DATA.index(b"\r\n\r\n") :]))
            await _fill(a.mta.port, people)
            clients = [TimedClient(node.name, node.mta.port, ledger) for node in others]
            stop = asyncio.Event()
            steady = [asyncio.create_task(_steady(client, at, len(clients), stop)) for at, client in enumerate(clients)]
            await asyncio.sleep(SETTLE_S)
            home = layout.home_of(a.mta.folder)
            for number in range(deaths):
                begun = time.monotonic()
                a.mta.kill("all")
                enter(running, ledger)
                moved = await _moved(ledger, time.monotonic())
                taken = time.monotonic()
                await asyncio.sleep(SETTLE_S)
                again = time.monotonic()
                a.again()
                while not await _is_home(nodes, home, a.name):
                    assert time.monotonic() < again + PATIENCE_S, f"the node does not come back: {a.mta.log_tail()}"
                    await asyncio.sleep(0.1)
                back = time.monotonic()
                served = await _moved(ledger, back)
                await asyncio.sleep(SETTLE_S)
                rows.append(
                    {
                        "moved_s": moved - begun, "home_s": served - again,
                        **_pauses(clients, ledger, begun, taken, "taking over"),
                        **_pauses(clients, ledger, again, served, "coming back"),
                    }
                )  # fmt: skip
                progress(number + 1, f"moved after {moved - begun:.1f} s")
            stop.set()
            await asyncio.gather(*steady)
            left = (await nodes.asked(others[0], "size"))["total"]
            await nodes.asked(others[0], "task", verb="delete", where={"domain": "queued.test"}, set=None, cause="end")
            await nodes.drained()
            in_doubt = await asyncio.to_thread(others[0].mta.in_doubt)
        finally:
            nodes.end()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
    waiting = left["queued"] + left["deferred"]
    judgement.lost = [one for one in judgement.lost if not one.endswith("@queued.test")]
    return {
        "recipients": recipients, "left": waiting,
        **{name: [round(row[name], 1) for row in rows] for name in rows[0]},
        "acknowledged": sum(client.replies[250] for client in clients),
        **judgement.figures(),
        "broken": judgement.broken,
    }  # fmt: skip


async def _fill(port: int, people: list[str]) -> None:
    connection = await Connection.open(port)
    for at in range(0, len(people), TOGETHER):
        message = Letter(f"queued {at}", "news@queued.example", people[at : at + TOGETHER], DATA)
        while True:
            try:
                await connection.transaction(message)
                break
            except Refused:
                await asyncio.sleep(0.1)
    connection.close()


async def _steady(client: TimedClient, at: int, of: int, stop: asyncio.Event) -> None:
    """Some letters, all the time."""
    number = at
    while not stop.is_set():
        await client.hand_in(range(number, number + 10 * of, of), sessions=2)
        number += 10 * of
        await asyncio.sleep(0.1)


async def _moved(ledger: TimedLedger, since: float) -> float:
    """When something of what is queued came after a second in which what was under way may still have come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        moments = ledger.moments["queued"]
        if moments and moments[-1] > since + 1.0:
            return next(one for one in moments if one > since + 1.0)
        await asyncio.sleep(0.05)
    raise AssertionError("what was queued does not move")


async def _is_home(nodes: Nodes, queue: int, node: str) -> bool:
    found = await nodes.asked(nodes.all[1], "cluster")
    return any(row["queue"] == queue and row["node"] == node for row in found["queues"])


def _pauses(clients: list[TimedClient], ledger: TimedLedger, begin: float, end: float, when: str) -> dict[str, float]:
    """The longest time without an acknowledgement of, and without a delivery for, one of the other nodes."""
    accepted = max(_longest(client.acknowledged, begin, end) for client in clients)
    delivered = max(_longest(ledger.moments[client.node], begin, end) for client in clients)
    return {f"no 250, {when}": accepted, f"no delivery, {when}": delivered}


def _longest(moments: list[float], begin: float, end: float) -> float:
    points = [begin, *(one for one in moments if begin < one < end), end]
    return max(later - earlier for earlier, later in pairwise(points))


if __name__ == "__main__":
    sys.exit(
        command(
            "replaced", __doc__, "A node dies and comes back", trial,
            recipients=(100_000, "recipients queued"), deaths=(3, "deaths"),
        )
    )  # fmt: skip
