"""Everything at once: mail of every kind by SMTP and HTTP, orders of an operator, and blows of every kind.

Letters (`mixture`), single HTTP requests and batches of a campaign, some of them hung up on and repeated under the same
key; a zone that is stopped and lifted again and again; held, suppressed, throttled, deferred, refused, expiring mail.
Blows: SIGKILL of one process, of all, and again during recovery; `fsck` or `fsck --repair` before the next start, which
must find the queue healthy. Then the ledger judges: nothing lost, nothing wrong, nobody twice but those in doubt, every
failure told to its sender, nothing sent to the suppressed or out of the stopped zone, no order forgotten.
"""

from __future__ import annotations

import argparse
import asyncio
import email
import email.policy
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ports import free_port
from rich.console import Console

from survival import mixture
from survival.client import Client, Connection
from survival.http_client import HttpClient
from survival.ledger import Ledger
from survival.letters import Letter
from survival.report import bar, table
from survival.rig import PATIENCE_S, TOP, Mta, enter, sink
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import Source, Text
from zonemta_py.wire.client import QueueGone

BLOWS = ("queue", "receiver", "sender", "supervisor", "all", "twice")
"""twice: everything, and everything again while it recovers."""
CAMPAIGN, BATCH = "spring", 50
TEMPLATE = prepare(
    Source(CAMPAIGN, Text("For {{ name }}"), Text("News <news@letters.test>"), text=Text("Dear {{ name }},\nhello.\n"))
).pack()
FSCK_SHARE = 0.5
GRACE_S = 0.5
"""What a sender had begun when its zone was stopped may come so much later."""
Progress = Callable[[int, str], None]


async def trial(
    folder: Path, *, letters: int, blows: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ledger = Ledger(mixture.again, mixture.REFUSED, mixture.SILENT)
    begun = time.monotonic()
    async with sink(ledger, rules=mixture.RULES, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        http = free_port()
        mta = Mta(folder, running.port, more=mixture.CONFIG.format(http=http, sink=running.port))
        mta.start()
        try:
            await mta.accepting()
            traffic = _Traffic(mta, http, ledger, letters, seed)
            operator = _Operator(mta)
            killer = _Killer(mta, seed, blows, progress)
            ordering = asyncio.create_task(operator.work())
            killing = asyncio.create_task(killer.work(lambda: traffic.done + running.counters.messages, letters))
            await traffic.work()
            killer.all_is_in = True
            await killing
            await operator.end(ordering)
            await _release_all(mta)
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
        early = [
            one
            for one in running.messages
            if operator.forbidden(one.time) and "@stopped.test" in "".join(one.recipients)
        ]
        operator.broken += [f"sent out of the stopped zone: {one.recipients[0]}" for one in early]
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        problems = await mta.problems()
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "blows": dict(killer.struck),
        "replies": dict(traffic.client.replies),
        "http_answers": dict(traffic.http_answers),
        "hung_up": traffic.http_broken,
        "connections_broken": traffic.client.broken,
        "orders": operator.given,
        "fsck_runs": killer.fsck_runs,
        **judgement.figures(),
        "broken": judgement.broken + operator.broken[:5] + killer.broken[:5] + [f"fsck: {one}" for one in problems[:5]],
    }


class _Traffic:
    """Hands in everything, over and over until it is acknowledged."""

    def __init__(self, mta: Mta, http: int, ledger: Ledger, letters: int, seed: int) -> None:
        self._mta, self._http, self._ledger, self._letters = mta, http, ledger, letters
        self._dice = random.Random(f"traffic {seed}")
        self.client = _Client(mta, ledger)
        self.http_answers: Counter[int] = Counter()
        self.http_broken = 0
        self._by_http = 0

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
            await http.complete(CAMPAIGN)
            self.http_answers, self.http_broken = http.answers, http.broken

    async def _letters_by_http(self, http: HttpClient, rest: Any) -> None:
        for number in rest:
            message = mixture.letter(number)
            if mixture.has_deadline(message):  # a deadline goes with MAIL
                continue
            await suppress(self._mta, message)
            self._ledger.open(message)
            await http.letter(message)
            self._ledger.acknowledge(message)
            self._by_http += 1

    async def _batches(self, http: HttpClient, count: int) -> None:
        for number in range(count):
            people = [f"merged-{number}-{one}@{'one' if one % 2 else 'bulk'}.test" for one in range(BATCH)]
            self._ledger.merge(people, _is_for)
            await http.batch(CAMPAIGN, number, ([address, address.partition("@")[0]] for address in people), ["name"])


def _is_for(recipient: str, body: bytes) -> bool:
    name, message = recipient.partition("@")[0], email.message_from_bytes(body, policy=email.policy.default)
    return (message["To"], message["Subject"], message.get_content().split()) == (
        recipient, f"For {name}", ["Dear", f"{name},", "hello."],
    )  # fmt: skip


class _Client(Client):
    """Letters of the mixture; those with recipients that never come get a deadline (RFC 2852)."""

    def __init__(self, mta: Mta, ledger: Ledger) -> None:
        super().__init__(mta.port, ledger, make=mixture.letter)
        self._mta = mta

    async def give(self, connection: Connection, message: Letter) -> None:
        await suppress(self._mta, message)
        self.ledger.open(message)
        parameters = f" BY={mixture.DEADLINE_S};R" if mixture.has_deadline(message) else ""
        await connection.transaction(message, parameters)
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


async def _release_all(mta: Mta) -> None:
    """What was held for being in doubt goes after all."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        held = (await asyncio.to_thread(mta.ask, "list", state="held", limit=1000))["rows"]
        for message_id in {row["id"] for row in held}:
            try:
                await asyncio.to_thread(mta.ask, "release", id=message_id)
            except ValueError:
                continue  # it has been released already, by an order whose answer was lost
        total = (await asyncio.to_thread(mta.ask, "size"))["total"]
        if not held and not any(total[state] for state in ("queued", "leased", "deferred", "held")):
            return
        await asyncio.sleep(0.1)


class _Operator:
    """Stops a zone and lifts it, again and again. given: orders that were acknowledged."""

    def __init__(self, mta: Mta) -> None:
        self._mta, self._done = mta, False
        self.given, self.broken, self._spans = 0, list[str](), list[tuple[float, float]]()

    async def work(self) -> None:
        while not self._done:
            await self._ask("stop", kind="zone", name="stopped", cause="trial")
            since = time.time()
            for _ in range(10):
                await asyncio.sleep(0.1)
                if self._done:
                    break
            standing = await self._ask("standing")
            if not any(row.get("name") == "stopped" for row in _rows(standing)):
                self.broken.append("an order to stop was forgotten")
            self._spans.append((since + GRACE_S, time.time()))
            await self._ask("lift", kind="zone", name="stopped")
            await asyncio.sleep(0.5)

    async def _ask(self, question: str, **arguments: Any) -> Any:
        while True:
            try:
                answer = await asyncio.to_thread(self._mta.ask, question, **arguments)
                self.given += 1
                return answer
            except (QueueGone, ValueError):
                await asyncio.sleep(0.05)

    async def end(self, working: asyncio.Task[None]) -> None:
        self._done = True
        await working

    def forbidden(self, moment: float) -> bool:
        return any(since < moment < until for since, until in self._spans)


def _rows(standing: Any) -> list[dict[str, Any]]:
    return standing if isinstance(standing, list) else [row for rows in standing.values() for row in rows]


class _Killer:
    """The moments are drawn over the progress of the run, as in `crash`."""

    def __init__(self, mta: Mta, seed: int, blows: int, progress: Progress) -> None:
        self._mta, self._dice, self._blows, self._progress = mta, random.Random(seed), blows, progress
        self.struck: Counter[str] = Counter()
        self.fsck_runs, self.broken = 0, list[str]()
        self.all_is_in = False

    async def work(self, done: Callable[[], int], letters: int) -> None:
        moments = sorted(self._dice.randrange(2 * letters) for _ in range(self._blows))
        for number, moment in enumerate(moments, 1):
            until = time.monotonic() + 5
            while done() < moment and not (self.all_is_in and time.monotonic() > until):
                self._start_again()
                await asyncio.sleep(0.002)
            await asyncio.sleep(self._dice.random() * 0.05)
            await self._strike()
            self._progress(number, f"{done():,} in and out")
        self._start_again()

    async def _strike(self) -> None:
        blow = self._dice.choice(BLOWS)
        while not self._mta.kill("all" if blow == "twice" else blow, self._dice.random()):
            self._start_again()
            await asyncio.sleep(0.01)
        self.struck[blow] += 1
        if blow == "twice":
            self._mta.start()
            await asyncio.sleep(self._dice.random() * 1.5)
            self._mta.kill("all")
        if not self._mta.alive and blow != "supervisor" and self._dice.random() < FSCK_SHARE:
            await self._fsck()
        self._start_again()

    async def _fsck(self) -> None:
        """A queue that was killed is a healthy one."""
        repair = ["--repair"] if self._dice.random() < 0.5 else []
        command = [sys.executable, "-m", "zonemta_py", "fsck", "--config", str(self._mta.config_file), *repair]
        ran = await asyncio.to_thread(subprocess.run, command, cwd=TOP, capture_output=True, text=True)
        self.fsck_runs += 1
        if ran.returncode != 0:
            self.broken.append(
                f"fsck {' '.join(repair)} exits with {ran.returncode}: {ran.stdout[-600:]} {ran.stderr[-300:]}"
            )

    def _start_again(self) -> None:
        if not self._mta.alive:
            self._mta.start()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mixed", description=f"{__doc__}".split("\n\n")[0])
    parser.add_argument("--letters", type=int, default=20_000, help="letters handed in (default 20,000)")
    parser.add_argument("--blows", type=int, default=200, help="kills (default 200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run's moments")
    parser.add_argument("--folder", type=Path, help="where the queue lives; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-mixed-"))
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, queue and log in {folder}")
    with bar(console, "struck", options.blows) as advance:
        work = trial(folder, letters=options.letters, blows=options.blows, seed=options.seed, progress=advance)
        figures = {"seed": options.seed, **asyncio.run(work)}
    if options.json:
        print(json.dumps(figures))
    else:
        table(console, "Everything at once", figures)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
