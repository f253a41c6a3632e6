"""A day of a queue whose log three NATS servers have, in a few minutes: what the log takes, beside what is queued.

The queue is the real one; its clock is moved, five minutes at a time. Mail of all kinds comes in waves: letters that
programs send one by one, all day long; three campaigns of HTML, in the morning, at noon and in the evening; papers and
pictures in base64, a few of them large. A quarter of each campaign goes to a provider that puts it off for hours, and a
little to hosts that never answer; so a backlog stands all day. Only so much is sent in five minutes.

All the while it is asked how many bytes the stream takes. *Queued* is `cluster.log.queued_bytes`: all messages that
wait, as they were handed in; the most of the last ten minutes, for a copy that takes a second would seem to last as
long. While it is made the log has all that was there before it as well, so it is largest when one ends. Broken is the
promise of docs/CLUSTER.md: twice what is queued, and 8 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from nats_servers import ThreeServers
from rich.console import Console

from survival.report import bar, table
from zonemta_py.cluster import log
from zonemta_py.cluster.catch_up import catch_up
from zonemta_py.cluster.log import ReplicatedLog, queued_bytes
from zonemta_py.cluster.log_stream import QueueLogStream
from zonemta_py.cluster.nats import Nats
from zonemta_py.cluster.stream import Stream
from zonemta_py.config import ClusterSection, Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, DELIVERED, Delivery, Outcome, Result
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import begin
from zonemta_py.schedule.time.clock import Clock

STEP_S, STEPS = 300, 288
CAMPAIGNS = {8: "morning", 12: "noon", 17: "evening"}
"""By the hour at which each begins."""
SLOW_S = 5 * 3600
"""So long after its campaign the slow provider takes nothing."""
SLOW, DEAD = 0.25, 0.02
AT_ONCE = 20
RECENT_H = 1 / 6
TIMES_MOST = 2.0
LOOK_S = 0.1
MB = 1e6
REPLIES = {DELIVERED: Reply(250, "2.0.0", "ok"), DEFERRED: Reply(451, "4.2.0", "come back later")}


class DayClock(Clock):
    """A clock that is moved. From midnight on."""

    def __init__(self) -> None:
        self.now_s = 1_700_006_400.0
        self.began_s = self.now_s

    def ms(self) -> int:
        return int(self.now_s * 1000)

    def boot(self) -> str:
        return "this"

    def monotonic(self) -> float:
        return self.now_s - self.began_s + 1_000.0

    def random(self) -> float:
        return 0.5

    @property
    def hour(self) -> float:
        return (self.now_s - self.began_s) / 3600


class Text:
    """Words as people write them: the most frequent half as often again as the next."""

    def __init__(self, dice: random.Random) -> None:
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        falling = [1 / (rank + 2) for rank in range(4000)]
        lengths = [min(14, max(1, round(dice.gauss(1.5 + rank**0.25, 1.5)))) for rank in range(4000)]
        self._words = ["".join(dice.choices(letters, falling[: len(letters)], k=length)) for length in lengths]
        self._weights, self._dice = list(accumulate(falling)), dice

    def letter(self, size: int) -> bytes:
        lines = list[str]()
        while size > 0:
            lines.append(" ".join(self._dice.choices(self._words, cum_weights=self._weights, k=11)))
            size -= len(lines[-1]) + 2
        return "\r\n".join([*lines, ""]).encode()

    def html(self, size: int) -> bytes:
        parts = list[bytes]()
        while size > 0:
            link = self._dice.randbytes(12).hex()
            words = self.letter(160).replace(b"\r\n", b" ")
            parts.append(
                b'<tr><td class="text" style="padding:0 12px;font-family:Arial,sans-serif">%b<a href="https://news.src'
                b'.test/c/%b">%b</a></td></tr>\r\n' % (words, link.encode(), words[:30])
            )
            size -= len(parts[-1])
        return b"".join(parts)

    def attachment(self, size: int) -> bytes:
        return base64.encodebytes(self._dice.randbytes(size * 57 // 78)).replace(b"\n", b"\r\n")


class Sample(NamedTuple):
    hour: float
    held: int
    queued: int

    @property
    def of_queued(self) -> float:
        return self.held / self.queued if self.queued else math.inf

    @property
    def beyond(self) -> float:
        """Without the bytes that any log may have, of what is queued."""
        more = max(0, self.held - log.SLACK_BYTES)
        return more / self.queued if self.queued else math.inf if more else 0.0


@dataclass
class Day:
    """share: of the usual amount of mail. tell: called after each step, with its number and a remark. first_h: the hour
    at which it begins."""

    folder: Path
    stream: Stream
    share: float
    seed: int
    tell: Callable[[int, str], None]
    steps: int = STEPS
    first_h: int = 0
    samples: list[Sample] = field(default_factory=list)
    handed_in: int = 0
    handed_in_bytes: int = 0
    _queued: deque[tuple[float, int]] = field(default_factory=deque)

    async def run(self) -> None:
        self.clock, self.dice = DayClock(), random.Random(self.seed)
        self.clock.now_s += self.first_h * 3600
        self.text, self.due, self.campaigns = Text(self.dice), 0.0, dict[str, float]()
        config = Config.model_validate(
            {
                "server": {"folder": self.folder, "hostname": "mta.test"}, "queue": {"reserve_bytes": 0},
                "learning": {"initial": 100}, "retry": {"life_h": 72}, "suppression": {"automatic": False},
            }
        )  # fmt: skip
        self.log = await ReplicatedLog.fenced(self.stream, 0, 1, "day", _replaced)
        await catch_up(config, self.log)
        opening = await begin(config, None, self.clock, _damaged, None, replica=self.log)
        self.queue: LocalQueue = opening.queue
        await opening.finish()
        looking = asyncio.create_task(self._look())
        try:
            for number in range(1, self.steps + 1):
                await self._step()
                last = self.samples[-1] if self.samples else Sample(0, 0, 0)
                queued, held = f"{last.queued / MB:,.0f} MB queued", f"the log {last.held / MB:,.0f} MB"
                self.tell(number, f"{self.clock.hour:4.1f} h: {queued}, {held}")
            await self._rest()
            await self._sample()
        finally:
            looking.cancel()
            self.log.close()
            core = self.queue.core
            core.ready, core.stopping = False, True
            self.queue.close()

    async def _look(self) -> None:
        while True:
            with suppress(Exception):
                await self._sample()
            await asyncio.sleep(LOOK_S)

    async def _sample(self) -> None:
        held = (await self.stream.info()).bytes
        now = self.clock.hour
        self._queued.append((now, queued_bytes(self.queue.core.disk.store)))
        while self._queued[0][0] < now - RECENT_H:
            self._queued.popleft()
        self.samples.append(Sample(now, held, max(queued for _, queued in self._queued)))

    async def _rest(self) -> None:
        core = self.queue.core
        for _ in range(2):
            await core.disk.lines.stable()
            await core.disk.journal.stable()

    async def _step(self) -> None:
        self.clock.now_s += STEP_S
        self.queue.core.changed()
        mail = self._mail()
        await asyncio.gather(*(self._hand_in(mail) for _ in range(AT_ONCE)))
        await self._deliver(round(self.share * 900))
        await self.queue.position()

    # -- what comes

    def _mail(self) -> Iterator[tuple[str, bytes]]:
        hour = self.clock.hour % 24
        self.due += self.share * 60 * (0.3 + max(0.0, math.sin((hour - 6) / 16 * math.pi)))
        while self.due >= 1:
            self.due -= 1
            yield self._single()
        if (name := CAMPAIGNS.get(int(hour))) and name not in self.campaigns:
            self.campaigns[name] = self.clock.now_s
            for number in range(round(self.share * 5000)):
                kind = self.dice.random()
                where = "slow" if kind < SLOW else "dead" if kind < SLOW + DEAD else f"p{number % 7}"
                yield f"{name}-{number}@{where}.test", self.text.html(self.dice.randint(10_000, 30_000))

    def _single(self) -> tuple[str, bytes]:
        kind = self.dice.random()
        address = f"r{self.handed_in}@{'slow' if kind < 0.05 else f'q{self.handed_in % 23}'}.test"
        kind = self.dice.random()
        if kind < 0.6:
            return address, self.text.letter(self.dice.randint(2_000, 10_000))
        if kind < 0.9:
            return address, self.text.html(self.dice.randint(8_000, 20_000))
        size = 100_000 if kind < 0.995 else 1_000_000
        return address, self.text.letter(2_000) + self.text.attachment(self.dice.randint(size // 2, size))

    async def _hand_in(self, mail: Iterator[tuple[str, bytes]]) -> None:
        for address, body in mail:
            text = b"Subject: %d\r\n\r\n" % self.handed_in + body
            self.handed_in += 1
            self.handed_in_bytes += len(text)
            envelope = Envelope("ann@src.test", [Recipient(address, 0, None)], len(text), received_ms=self.clock.ms())
            await self.queue.accept(envelope, text)

    # -- what goes

    async def _deliver(self, most: int) -> None:
        while most > 0:
            asked = asyncio.ensure_future(self.queue.lease(min(most, 50)))
            await self._rest()
            await asyncio.wait([asked], timeout=0.02)
            if not asked.done():
                asked.cancel()
                await asyncio.wait([asked])
                if asked.cancelled():
                    return
            deliveries = asked.result()
            await asyncio.gather(*(self._settle(one) for one in deliveries))
            most -= len(deliveries)

    async def _settle(self, delivery: Delivery) -> None:
        name, _, domain = delivery.recipients[0].address.partition("@")
        campaign = self.campaigns.get(name.partition("-")[0], self.clock.now_s - self.clock.now_s % (4 * STEP_S))
        off = domain == "dead.test" or (domain == "slow.test" and self.clock.now_s < campaign + SLOW_S)
        verdict = DEFERRED if off else DELIVERED
        outcome = Outcome(verdict, REPLIES[verdict], "dot", list(range(len(delivery.recipients))))
        await self.queue.settle(Result(delivery.lease, [outcome], None, remote="mx.test[127.0.0.9]:25", took_ms=0))

    def figures(self) -> dict[str, Any]:
        busy = [one for one in self.samples if one.queued > 2 * log.SLACK_BYTES]
        peak = max(self.samples, key=lambda one: one.held)
        worst = max(self.samples, key=lambda one: one.beyond)
        found: dict[str, Any] = {
            "messages handed in": self.handed_in,
            "MB handed in": round(self.handed_in_bytes / MB),
            "copies": self.log.copies,
            "MB appended": round(self.log.appended_bytes / MB),
            "most MB queued": round(max(one.queued for one in self.samples) / MB, 1),
            "peak of the log, MB": round(peak.held / MB, 1),
            "queued then, MB": round(peak.queued / MB, 1),
            "peak of the log, of what is queued": round(peak.of_queued, 2),
            f"at its worst, without {log.SLACK_BYTES >> 20} MB": round(worst.beyond, 2),
        }
        if busy:
            found[f"at its worst while more than {2 * log.SLACK_BYTES >> 20} MB are queued"] = round(
                max(one.of_queued for one in busy), 2
            )
        end = self.samples[-1]
        found |= {"MB queued at the end": round(end.queued / MB, 1), "log at the end, MB": round(end.held / MB, 1)}
        found["broken"] = []
        if worst.beyond > TIMES_MOST:
            found["broken"].append(
                f"at {worst.hour:.1f} h the log has {worst.held / MB:.1f} MB, of {worst.queued / MB:.1f} MB queued"
            )
        return found


def _replaced(error: Exception) -> None:
    raise AssertionError(error)


def _damaged(error: Exception) -> None:
    raise AssertionError(error)


async def on_servers(folder: Path, share: float, seed: int, tell: Callable[[int, str], None]) -> dict[str, Any]:
    servers = ThreeServers(folder / "nats")
    try:
        servers.start()
        servers.ready()
        section = ClusterSection.model_validate(servers.settings(name="day"))
        nats = await Nats.connect(section, "day")
        try:
            day = Day(folder / "queue", await QueueLogStream.make(nats, section.name, 0), share, seed, tell)
            await day.run()
        finally:
            await nats.close()
    finally:
        servers.end()
    return day.figures()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/day", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of a day's mail (about 30,000 messages)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the same mail again")
    parser.add_argument("--folder", type=Path, help="where queue and servers live; default: a new one, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-day-", dir="/var/tmp"))
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, queue and servers in {folder}")
    begun = time.monotonic()
    with bar(console, "steps", STEPS) as advance:
        figures = asyncio.run(on_servers(folder, options.share, options.seed, advance))
    figures["seconds"] = round(time.monotonic() - begun)
    if options.json:
        print(json.dumps({"seed": options.seed, "share": options.share, **figures}, indent=1))
    else:
        table(console, "A day's log", figures)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
