#!/usr/bin/env python3
"""Synthetic archives: journal segments as the queue writes them, with a realistic mix, the same for the same seed.

    scripts/pipeline/synthetic.py archive FOLDER --messages 100000 --days 3      real segments (about 15,000 messages/s)
    scripts/pipeline/synthetic.py bronze LAKE --attempts 10000000 --days 14      Parquet as ingest makes it (0.3 M/s)

`archive` goes through `journal.segments.Writer`, so framing, rotation and bodies are the real ones; every message comes
to its end. `bronze` draws the same mix by the column, for benchmarks; its rows are like those, not equal to them.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import model  # noqa: E402

from zonemta_py.disk.frame import Record  # noqa: E402
from zonemta_py.disk.packing import pack  # noqa: E402
from zonemta_py.journal import segments  # noqa: E402
from zonemta_py.journal.records import Type  # noqa: E402

START_MS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000


class Mail(NamedTuple):
    """One message in flight. left: recipients that have not ended, by address."""

    id: str
    zone: str
    source: str
    campaign: str
    tenant: str
    size: int
    left: dict[str, list[Any]]


class Try(NamedTuple):
    """An attempt that has been begun. due_ms: when it is to be tried again, 0: never."""

    lease: int
    strand: str
    started_ms: int
    answer: model.Answer
    due_ms: int


class Made(NamedTuple):
    """What an archive holds. rows: as SCHEMA.md counts them."""

    files: list[Path]
    messages: int
    recipients: int
    records: int
    rows: int
    attempts: int


class Factory:
    """Draws the mail and writes the records, in the order of their times."""

    def __init__(self, folder: Path, messages: int, days: float, seed: int, segment_records: int) -> None:
        self.die = random.Random(seed)
        self.writer = segments.Writer(folder)
        self.messages, self.span_ms = messages, int(days * DAY_MS)
        self.segment_records = segment_records
        self.seq = self.rows = self.recipients = self.attempts = self.lease = 0
        self.now_ms = START_MS
        self.begun = 0  # sequence number of the segment's first record
        self.pending: list[Record] = []
        self.events: list[tuple[int, int, Mail, str, Try | None]] = []
        self.counter = itertools.count()
        self.providers = list(model.PROVIDERS)
        self.shares = list(itertools.accumulate(provider.share for provider in self.providers))
        self.zones = list(model.ZONES)
        self.zone_shares = list(itertools.accumulate(share for share, _ in model.ZONES.values()))

    def run(self) -> None:
        self._segment(START_MS)
        for ms in self._arrivals():
            self._until(ms)
            self._accept(ms)
        self._until(sys.maxsize)
        self._record(Type.END, self.now_ms, None)
        self._flush()

    def _arrivals(self) -> Iterator[int]:
        """Times of acceptance, more of them by day than by night."""
        draws = (self.die.random() for _ in range(self.messages))
        day_ms = min(DAY_MS, self.span_ms)
        times = []
        for draw in draws:
            hour = self.die.triangular(0, 1, 0.5) * day_ms
            times.append(START_MS + int(draw * self.span_ms) // day_ms * day_ms + int(hour))
        return iter(sorted(times))

    # -- records

    def _record(self, kind: int, ms: int, body: Any, rows: int = 1) -> None:
        self.seq += 1
        self.rows += rows
        self.pending.append(Record(self.seq, ms, kind, pack(body)))
        if len(self.pending) >= 2000:
            self._flush()

    def _flush(self) -> None:
        self.writer.write(self.pending, sync=False)
        self.pending = []

    def _segment(self, ms: int) -> None:
        floor = f"{ms << 20:016x}"
        self.begun = self.seq + 1
        self._record(Type.SEGMENT, ms, {"version": 1, "first": self.begun, "floor": floor})

    def _turn(self, ms: int) -> None:
        """Ends the segment and begins the next, with what the queue writes at such times."""
        if self.seq - self.begun >= self.segment_records:
            self._record(
                Type.POSITION, ms, {"applied": self.seq, "working": [], "marks": {}, "floor": f"{ms << 20:016x}"}
            )
            self._record(Type.END, ms, None)
            self._segment(ms)

    # -- the life of a message

    def _accept(self, ms: int) -> None:
        die = self.die
        zone = die.choices(self.zones, cum_weights=self.zone_shares)[0]
        many = 1 if zone == "transactional" or die.random() < 0.8 else die.randint(2, 5)
        number = next(self.counter)
        campaign = self._campaign(ms) if zone == "bulk" else ""
        tenant = die.choice(model.TENANTS) if zone != "default" else ""
        source = die.choice(model.ZONES[zone][1])
        mail = Mail(
            f"{ms << 20 | number & 0xFFFFF:016x}", zone, source, campaign, tenant, int(die.lognormvariate(9.5, 0.8)), {}
        )
        for index in range(many):
            provider = die.choices(self.providers, cum_weights=self.shares)[0]
            place = die.randrange(len(provider.domains))
            address = f"user{die.randrange(10 * self.messages + 1000):07d}.{index}@{provider.domains[place]}"
            mail.left[address] = [provider, provider.sites[place % len(provider.sites)], 0, 0]
            self._plan(ms + int(die.expovariate(1 / 2000)), mail, address)
        self.recipients += many
        self._record(
            Type.ENVELOPE, ms, [mail.id, self._metadata(mail, ms), [[zone, who, 0, None] for who in mail.left]], many
        )
        self._turn(ms)

    def _campaign(self, ms: int) -> str:
        """One after the other, overlapping a little."""
        names = model.CAMPAIGNS
        place = (ms - START_MS) / self.span_ms * len(names) + self.die.random() - 0.5
        return names[min(len(names) - 1, max(0, int(place)))]

    def _metadata(self, mail: Mail, ms: int) -> dict[str, Any]:
        subject = f"{mail.campaign or mail.zone}: news of the day"
        row: dict[str, Any] = {"sender": f"bounce+{mail.id}@src.example", "size": mail.size, "received_ms": ms}
        row |= {"body": "8BITMIME", "origin": "198.51.100.7", "protocol": "ESMTPSA", "headers": {"subject": subject}}
        row |= {name: value for name, value in (("campaign", mail.campaign), ("tenant", mail.tenant)) if value}
        return row | {"user": mail.tenant or "office", "chunks": 1}

    def _plan(self, ms: int, mail: Mail, address: str, begun: Try | None = None) -> None:
        heapq.heappush(self.events, (ms, next(self.counter), mail, address, begun))

    def _until(self, ms: int) -> None:
        while self.events and self.events[0][0] < ms:
            self.now_ms, _, mail, address, begun = heapq.heappop(self.events)
            if begun is None:
                self._begin(self.now_ms, mail, address)
            else:
                self._result(self.now_ms, mail, address, begun)

    def _begin(self, ms: int, mail: Mail, address: str) -> None:
        provider, site, tries, due_ms = mail.left[address]
        if tries == 0 and self.die.random() < 0.0005:
            self._record(Type.REMOVED, ms, [mail.id, mail.zone, [address], "dropped by an operator"])
            self._end(ms, mail, address)
            return
        self.lease += 1
        self.attempts += 1
        strand = f"{site}~{mail.source}~~{mail.tenant}~{mail.campaign}"
        who: Any = [address, due_ms] if due_ms else address
        self._record(Type.START, ms, [self.lease, mail.id, mail.zone, strand, [who], ms, provider.name, mail.size])
        answer = self._answer(ms, mail, provider, tries)
        end_ms = ms + max(5, int(self.die.lognormvariate(0, 0.5) * provider.took_ms))
        wait_s = model.RETRY_S[tries] * self.die.uniform(0.8, 1.2) if answer.verdict == model.DEFERRED else 0
        due_ms = end_ms + int(wait_s * 1000) if wait_s else 0
        self._plan(end_ms, mail, address, Try(self.lease, strand, ms, answer, due_ms))

    def _result(self, ms: int, mail: Mail, address: str, begun: Try) -> None:
        provider, site, tries, before_ms = mail.left[address]
        outcome = self._outcome(begun.answer, mail, address, before_ms, begun.due_ms)
        trace = self._trace(begun, ms - begun.started_ms, mail, provider, site)
        self._record(Type.DELIVERY, ms, [begun.lease, mail.id, mail.zone, begun.strand, [outcome], trace])
        if begun.due_ms:
            mail.left[address][2:] = [tries + 1, begun.due_ms]
            self._plan(begun.due_ms, mail, address)
        else:
            self._end(ms, mail, address)
        self._turn(ms)

    def _answer(self, ms: int, mail: Mail, provider: model.Provider, tries: int) -> model.Answer:
        draw, share = self.die.random(), (ms - START_MS) / self.span_ms
        blocked = provider.name == model.BLOCKED_PROVIDER and mail.source == model.BLOCKED_SOURCE
        if blocked and model.BLOCKED_FROM <= share < model.BLOCKED_TO and draw < 0.9:
            return model.BLOCKED if tries < len(model.RETRY_S) else model.EXPIRED
        bounced = model.BAD_SHARE if mail.campaign == model.BAD_CAMPAIGN else provider.bounced
        deferred = provider.deferred if tries == 0 else 0.35
        verdict = model.BOUNCED if draw < bounced else model.DEFERRED if draw < bounced + deferred else model.DELIVERED
        if verdict == model.DEFERRED and tries >= len(model.RETRY_S):
            return model.EXPIRED
        choices = [answer for answer in provider.answers if answer.verdict == verdict]
        return self.die.choices(choices, [answer.share for answer in choices])[0]

    def _outcome(self, answer: model.Answer, mail: Mail, address: str, before: int, due: int) -> list[Any]:
        tag = f"{self.die.getrandbits(40):010x}"
        text = answer.text.format(ip=mail.source, to=address, tag=tag)
        who: Any = [address, before, due] if before or due else address
        return [
            answer.verdict,
            answer.code,
            answer.enhanced,
            text,
            answer.stage,
            [who],
            False,
            answer.kind,
            answer.rule,
        ]

    def _trace(self, begun: Try, took_ms: int, mail: Mail, provider: model.Provider, site: str) -> list[Any]:
        tls = model.TLS[self.die.random() < 0.2] if self.die.random() < provider.tls else ""
        reached = begun.answer.stage not in ("connect", "queue")
        remote = f"{site}[203.0.113.{hash_of(site)}]:25" if reached else ""
        source = mail.source
        return [remote, source, tls if reached else "", begun.started_ms, took_ms, source, site, provider.name, []]

    def _end(self, ms: int, mail: Mail, address: str) -> None:
        del mail.left[address]
        if not mail.left:
            self._record(Type.FINISH, ms, [mail.id])
        if self.die.random() < 0.001:
            value = {"rate": round(self.die.uniform(1, 50), 2)}
            self._record(Type.STANDING, ms, ["rate", [mail.source, "google"], value, "learned"])
        self._turn(ms)


def hash_of(text: str) -> int:
    """A small number that is the same in every run (Python's own hash is not)."""
    return sum(text.encode()) % 250 + 1


def make_archive(
    folder: Path, messages: int = 2000, days: float = 2, seed: int = 1, segment_records: int = 20_000
) -> Made:
    """Writes closed segments into `folder`, of `segment_records` records each; mail arrives over so many days."""
    factory = Factory(folder, messages, days, seed, segment_records)
    factory.run()
    files = segments.files(folder)
    return Made(files, messages, factory.recipients, factory.seq, factory.rows, factory.attempts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    archive = commands.add_parser("archive")
    archive.add_argument("folder", type=Path)
    archive.add_argument("--messages", type=int, default=100_000)
    archive.add_argument("--segment-records", type=int, default=200_000)
    bronze = commands.add_parser("bronze")
    bronze.add_argument("folder", type=Path)
    bronze.add_argument("--attempts", type=int, default=10_000_000)
    for command in (archive, bronze):
        command.add_argument("--days", type=float, default=2)
        command.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.command == "archive":
        made = make_archive(given.folder, given.messages, given.days, given.seed, given.segment_records)
        print(f"{made.records:,} records, {made.rows:,} rows, {len(made.files)} segments in {given.folder}")
        return
    import columns

    rows = columns.make_bronze(given.folder, given.attempts, int(given.days), given.seed)
    print(f"{rows:,} rows in {given.folder}/bronze")


if __name__ == "__main__":
    main()
