"""Everything at once: mail of every kind by SMTP and HTTP, orders of an operator, and blows of every kind.

Letters (`mixture`), single HTTP requests and batches of a campaign, some of them hung up on and repeated under the same
key; a zone that is stopped and lifted again and again; held, suppressed, throttled, deferred, refused, expiring mail.
Blows: SIGKILL of one process, of all, and again during recovery; `fsck` or `fsck --repair` before the next start, which
must find the queue healthy; the machine's clock set by a minute to a year, forth and back, beneath the running MTA,
while it is down, and over a start of the machine. Then the ledger judges: nothing lost, nothing wrong, nobody twice but
those in doubt, every failure told to its sender, nothing sent to the suppressed or out of the stopped zone, nothing
before its time or long after it, no order and no Idempotency-Key forgotten.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from ports import kept_port

from survival import mixture
from survival.client import Client, Connection
from survival.clock import MachineClock, TrueClock
from survival.command import Progress, command
from survival.http_client import HttpClient
from survival.killer import Killer
from survival.ledger import Ledger
from survival.letters import Letter
from survival.operator import Operator
from survival.rig import PATIENCE_S, Mta, enter, sink
from survival.waits import Waits
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.wire.blocking_client import QueueGone

CAMPAIGN, BATCH = "spring", 50
TEMPLATE = prepare(
    TemplateSource(
        CAMPAIGN, Text("For {{ name }}"), Text("News <news@letters.test>"), text=Text("Dear {{ name }},\nhello.\n")
    )
).pack()
REPEATED = 0.1
"""Share of what was handed in by HTTP that is handed in once more at the end, under the same key."""


async def trial(
    folder: Path,
    *,
    letters: int,
    blows: int,
    seed: int,
    clock_steps: int = 0,
    queues: int = 1,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken. folder: of the queue."""
    clock = MachineClock(folder.with_name(f"{folder.name}-clock")) if clock_steps else TrueClock()
    ledger = Waits(clock)
    begun = time.monotonic()
    async with sink(ledger, rules=mixture.RULES, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        http_socket = kept_port()
        http = http_socket.getsockname()[1]
        more = mixture.CONFIG.format(http=http, sink=running.port)
        mta = Mta(folder, running.port, more=more, environment=clock.environment, queues=queues)
        mta.start()
        try:
            await mta.accepting()
            traffic, operator = Traffic(mta, http, ledger, letters, seed), Operator(mta, clock)
            killer = Killer(mta, clock, seed, blows, clock_steps, progress)
            ordering = asyncio.create_task(operator.work())
            killing = asyncio.create_task(killer.work(lambda: traffic.done + running.counters.messages, letters))
            await traffic.work()
            killer.all_is_in = True
            await killing
            ledger.calm()
            await operator.end(ordering)
            await release_all(mta)
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
            http_socket.close()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        problems = await mta.problems()
    return {
        "seconds": round(time.monotonic() - begun, 1),
        **_happened(killer, traffic, operator),
        **judgement.figures(),
        **ledger.figures(),
        "broken": judgement.broken + _broken(ledger, operator, killer) + [f"check: {one}" for one in problems[:5]],
    }


def _happened(killer: Killer, traffic: Traffic, operator: Operator) -> dict[str, Any]:
    return {
        "blows": dict(killer.struck),
        "blows_at_rest": killer.at_rest,
        "replies": dict(traffic.client.replies),
        "http_answers": dict(traffic.http_answers),
        "hung_up": traffic.http_broken,
        "repeated_late": traffic.repeated,
        "connections_broken": traffic.client.broken,
        "orders": operator.given,
        "fsck_runs": killer.fsck_runs,
    }


def _broken(ledger: Waits, operator: Operator, killer: Killer) -> list[str]:
    """Rules about times, orders and restarts that did not hold."""
    sent = ledger.sent_while(operator.forbidden, "@stopped.test")
    return [
        *ledger.untimely(),
        *(f"sent out of the stopped zone: {address}" for address in sent[:5]),
        *operator.broken[:5],
        *killer.broken[:5],
    ]


class Traffic:
    """Hands in everything, over and over until it is acknowledged."""

    def __init__(self, mta: Mta, http: int, ledger: Ledger, letters: int, seed: int) -> None:
        self._mta, self._http, self._ledger, self._letters = mta, http, ledger, letters
        self._dice = random.Random(f"traffic {seed}")
        self.client = _Client(mta, ledger)
        self.http_answers: Counter[int] = Counter()
        self.http_broken = self.repeated = self._by_http = 0
        self._again: list[Callable[[], Awaitable[None]]] = []

    @property
    def done(self) -> int:
        return self.client.replies[250] + self._by_http

    async def work(self) -> None:
        by_smtp = self._letters * 7 // 10
        async with HttpClient(self._http, self._mta.folder, lambda: self._dice.random() < 0.1) as http:
            await http.campaign(CAMPAIGN, "news@letters.test", TEMPLATE)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.client.hand_in(range(by_smtp)))
                rest = iter(range(by_smtp, self._letters))
                for _ in range(4):
                    group.create_task(self._letters_by_http(http, rest))
                group.create_task(self._batches(http, self._letters // 100))
            for once_more in self._again:
                await once_more()
            await http.complete(CAMPAIGN)
            self.http_answers, self.http_broken = http.answers, http.broken

    async def _letters_by_http(self, http: HttpClient, rest: Any) -> None:
        for number in rest:
            message = mixture.letter(number)
            if mixture.parameters(message):  # which go with MAIL
                continue
            await suppress(self._mta, message)
            self._ledger.open(message)
            await http.letter(message)
            self._ledger.acknowledge(message)
            self._by_http += 1
            self._perhaps_again(partial(http.letter, message))

    async def _batches(self, http: HttpClient, count: int) -> None:
        for number in range(count):
            people = [f"merged-{number}-{one}@{'one' if one % 2 else 'bulk'}.test" for one in range(BATCH)]
            self._ledger.merge(people, _is_for)
            rows = [[address, address.partition("@")[0]] for address in people]
            await http.batch(CAMPAIGN, number, rows, ["name"])
            self._perhaps_again(partial(http.batch, CAMPAIGN, number, rows, ["name"]))

    def _perhaps_again(self, once_more: Callable[[], Awaitable[None]]) -> None:
        if self._dice.random() < REPEATED:
            self._again.append(once_more)
            self.repeated += 1


def _is_for(recipient: str, body: bytes) -> bool:
    name, message = recipient.partition("@")[0], email.message_from_bytes(body, policy=email.policy.default)
    return (message["To"], message["Subject"], message.get_content().split()) == (
        recipient, f"For {name}", ["Dear", f"{name},", "hello."],
    )  # fmt: skip


class _Client(Client):
    """Letters of the mixture, with what they ask of the schedule."""

    def __init__(self, mta: Mta, ledger: Ledger) -> None:
        super().__init__(mta.port, ledger, make=mixture.letter)
        self._mta = mta

    async def give(self, connection: Connection, message: Letter) -> None:
        await suppress(self._mta, message)
        self.ledger.open(message)
        await connection.transaction(message, mixture.parameters(message))
        self.ledger.acknowledge(message)
        self.count(250)


async def suppress(mta: Mta, message: Letter) -> None:
    """The shy are on the list before their letter is handed in."""
    shy = [[address, "manual"] for address in message.recipients if address.startswith(mixture.SILENT)]
    while shy:
        try:
            await asyncio.to_thread(mta.ask, "suppress", rows=shy)
            return
        except (QueueGone, ValueError):
            await asyncio.sleep(0.05)


async def release_all(mta: Mta) -> None:
    """What was held for being in doubt goes after all."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        page = await asyncio.to_thread(mta.ask, "list", state="held", limit=1000)
        held = page["rows"] or page["next"]
        for message_id in {row["id"] for row in page["rows"]}:
            try:
                await asyncio.to_thread(mta.ask, "release", id=message_id)
            except ValueError:
                continue  # it has been released already, by an order whose answer was lost
        total = (await asyncio.to_thread(mta.ask, "size"))["total"]
        if not held and not any(total[state] for state in ("queued", "leased", "deferred", "held")):
            return
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    sys.exit(
        command(
            "mixed", __doc__, "Everything at once", trial,
            letters=(20_000, "letters handed in"), blows=(200, "kills"), clock_steps=(0, "how often the clock is set"),
            queues=(1, "queues"),
        )
    )  # fmt: skip
