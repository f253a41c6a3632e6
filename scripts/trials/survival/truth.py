"""One truth: lives of three queues under random orders, reloads and kills; two things are asked of each.

Whatever is answered is the sum of what the files at rest say: now and then all sending is stopped, everything is asked,
everything is killed, and the files of each queue are read by themselves; what all have in common (suppressions,
suspensions) must be the same in each. And nothing goes out that an answered order had stopped: no attempt may begin, as
the journals date it, after the answer to a suspension, a suppression, a hold or a delete that it goes against, and
before that is taken back. At the end all is let go: whoever was not deleted or suppressed gets the mail, once.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from survival import at_rest
from survival.client import Client
from survival.command import Progress, command
from survival.deaths import Deaths
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import PATIENCE_S, Mta, enter, sink
from zonemta_py.journal import folders, segments
from zonemta_py.journal.facts import Accepted, Attempted, Fact, Removed, TaskDid, facts_of

QUEUES = 3
DOMAINS = [f"d{number}.test" for number in range(7)]
CAMPAIGNS = ("c1", "c2", "c3")
ZONES = ("default", "bulk")
ROLES = ("queue", "queue", "two queues", "all", "authority", "supervisor", "sender", "receiver", "any")
STATES = ("queued", "deferred", "held", "deleted")
ENDED = ("undoable", "done", "canceled", "undone")
RULES = ("rcpt:/^later-/ 450 4.2.1 not now, 60%",)
OPERATORS = (
    {"stop": 5, "lift": 4, "reload": 1},
    {"task": 5, "undo": 3},
    {"suppress": 3, "unsuppress": 1, "look": 2},
)
"""Each gives orders about other things than the others, at the same time, each so often."""
ORDERS_LEAST = 8
"""Of each operator in a round."""
FIGURES = ("accepted", "delivered", "bounced", "removed", "suppressed")


def letter(number: int, attempt: int = 0) -> Letter:
    """To some domains at once now and then; every third is of a campaign."""
    dice, name = random.Random(f"truth {number}"), f"{number}.{attempt}"
    people = [
        f"{dice.choice(('plain', 'plain', 'later'))}-{name}.{one}@{dice.choice((*DOMAINS, 'bulk.test'))}"
        for one in range(dice.choice((1, 1, 1, 2, 8)))
    ]
    return Letter(name, f"writer-{name}@letters.test", people, _head(name) + b"\r\n" + b"x" * 70 + b"\r\n")


def _head(name: str) -> bytes:
    dated = "Date: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: writer@letters.test\r\n"
    return f"Message-ID: <{name}@letters.test>\r\n{dated}".encode()


def campaign_of(number: int) -> str:
    return CAMPAIGNS[number // 3 % 3] if number % 3 == 0 else ""


@dataclass
class Forbidden:
    """No attempt may begin from `since` to `until`, UNIX ms. what: a kind of what is stopped, "address", or "task":
    what was accepted before `sent`, to that domain."""

    what: str
    name: str
    since: float
    sent: float = 0.0
    until: float = math.inf

    def meets(self, zone: str, address: str, campaign: str, accepted_ms: int) -> bool:
        domain = address.rpartition("@")[2]
        if self.what == "task":
            return domain == self.name and accepted_ms < self.sent
        return self.name == {"zone": zone, "domain": domain, "campaign": campaign, "address": address}[self.what]


@dataclass
class Orders:
    """What was ordered and answered."""

    mta: Mta
    dice: random.Random
    letters: list[Letter] = field(default_factory=list)
    spans: list[Forbidden] = field(default_factory=list)
    holds: dict[str, list[Forbidden]] = field(default_factory=dict)
    """Of domains: what a hold forbids, until it is released."""
    undoable: dict[str, tuple[str, list[Forbidden]]] = field(default_factory=dict)
    suppressed: set[str] = field(default_factory=set)
    given: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    numbers: Any = field(default_factory=lambda: count(1))

    async def ask(self, question: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self.mta.ask, question, **arguments)

    async def one(self, orders: dict[str, int]) -> None:
        what = self.dice.choices(list(orders), list(orders.values()))[0]
        try:
            await getattr(self, f"_{what}")()
            self.given[what] += 1
        except ValueError as error:
            self.refused[str(error)[:60]] += 1

    # -- what is stopped

    async def _stop(self) -> None:
        kind = self.dice.choice(("zone", "domain", "domain", "campaign", "campaign"))
        await self.stop(kind, self.dice.choice({"zone": ZONES, "domain": DOMAINS, "campaign": CAMPAIGNS}[kind]))

    async def stop(self, kind: str, name: str) -> None:
        await self.ask("stop", kind=kind, name=name, cause="trial")
        self.spans.append(Forbidden(kind, name, _now()))

    async def _lift(self) -> None:
        standing = [one for one in self.spans if one.what in ("zone", "domain", "campaign") and one.until == math.inf]
        if standing:
            one = self.dice.choice(standing)
            await self.lift(one.what, one.name)

    async def lift(self, kind: str, name: str) -> None:
        self._end(kind, name)
        await self.ask("lift", kind=kind, name=name)

    def _end(self, what: str, name: str) -> None:
        for one in self.spans:
            if (one.what, one.name) == (what, name) and one.until == math.inf:
                one.until = _now()

    async def _suppress(self) -> None:
        if not self.letters:
            return
        people = [self.dice.choice(self.dice.choice(self.letters[-300:]).recipients) for _ in range(3)]
        self.suppressed.update(people)
        await self.ask("suppress", rows=[[one, "manual", "trial"] for one in people])
        self.spans += [Forbidden("address", one, _now()) for one in people]

    async def _unsuppress(self) -> None:
        if self.suppressed:
            one = self.dice.choice(sorted(self.suppressed))
            self._end("address", one)
            await self.ask("unsuppress", addresses=[one])

    # -- tasks

    async def _task(self) -> None:
        verb, domain = self.dice.choice(("hold", "release", "delete", "set", "flush")), self.dice.choice(DOMAINS)
        await self.task(verb, {"domain": domain})

    async def task(self, verb: str, where: dict[str, Any]) -> dict[str, Any]:
        sent, name = _now(), f"order {next(self.numbers)}"
        change = {"priority": self.dice.randrange(9)} if verb == "set" else None
        domains = [where["domain"]] if "domain" in where else DOMAINS
        if verb == "release":
            for span in (span for domain in domains for span in self.holds.pop(domain, [])):
                span.until = min(span.until, sent)
        row = await self.ask(
            "task", verb=verb, where=where, set=change, undo_s=86_400, cause=name, request=name, digest=name
        )
        if verb in ("hold", "delete"):
            span = Forbidden("task", domains[0], _now(), sent)
            self.spans.append(span)
            if verb == "hold":
                self.holds.setdefault(domains[0], []).append(span)
            self.undoable[row["id"]] = (verb, [span])
        return dict(row)

    async def _undo(self) -> None:
        if self.undoable:
            await self.undo(self.dice.choice(sorted(self.undoable)))

    async def undo(self, task: str) -> None:
        verb, spans = self.undoable.pop(task)
        if verb == "delete":  # what comes back was not there for what was ordered meanwhile
            spans = [one for one in self.spans if one.what == "task" and one.name == spans[0].name]
        for span in spans:
            span.until = min(span.until, _now())
        await self.ended(task)
        await self.ask("task-undo", id=task)

    async def ended(self, task: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while (await self.ask("task-row", id=task))["state"] not in ENDED:
            assert time.monotonic() < until, f"task {task} does not end"
            await asyncio.sleep(0.02)

    # -- all else

    async def _reload(self) -> None:
        text = self.mta.config_file.read_text()
        line = next(line for line in text.splitlines() if line.startswith("jitter = "))
        self.mta.config_file.write_text(text.replace(line, f"jitter = 0.{self.dice.randint(1, 5)}"))
        found = await self.ask("reload", by="the trial")
        self.refused.update(sentence[:60] for sentence in found["refused"])

    async def _look(self) -> None:
        await self.ask(self.dice.choice(("size", "standing", "tasks", "campaigns", "qshape", "now")))

    async def let_go(self) -> None:
        """Nothing is stopped any more; half of what was deleted comes back."""
        for task, (verb, _) in list(self.undoable.items()):
            if verb == "delete" and self.dice.random() < 0.5:
                await self.undo(task)
                await self.ended(task)
        await self.ended((await self.task("release", {"all": True}))["id"])
        for row in await self.ask("standing"):
            if row["kind"] in ("zone", "domain", "campaign"):
                await self.lift(row["kind"], row["name"])


def _now() -> float:
    return time.time() * 1000


async def trial(
    folder: Path, *, rounds: int, letters: int, kills: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists what was. letters: of each round; kills: of all."""
    begun, dice, broken = time.monotonic(), random.Random(f"truth {seed}"), list[str]()
    ledger, struck = Ledger(_again, ()), Counter[str]()
    blows = Counter(dice.randrange(rounds) for _ in range(kills))
    deaths = Deaths(folder.with_name(f"{folder.name}-deaths"), dice)
    async with sink(ledger, rules=RULES, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        mta = Mta(folder, running.port, queues=QUEUES, environment=deaths.environment)
        orders, client = Orders(mta, dice), _Client(mta.port, ledger, make=letter)
        mta.start()
        try:
            await mta.taking()
            for number in range(rounds):
                numbers = range(number * letters, (number + 1) * letters)
                await _live(mta, orders, client, numbers, blows[number], deaths, struck)
                broken += [f"round {number + 1}: {one}" for one in await _compared(mta, orders)]
                progress(number + 1 + struck.total(), f"{sum(orders.given.values()):,} orders")
            await orders.let_go()
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
        enter(running, ledger)
    facts = list(_facts(folder))
    gone = {one for _, fact in facts if isinstance(fact, Removed) for one in fact.recipients} | orders.suppressed
    gone |= _deleted(fact for _, fact in facts)
    judgement = ledger.judge(in_doubt)
    judgement.lost = [one for one in judgement.lost if one not in gone]
    against = list(_against(facts, orders.spans))
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "rounds": rounds,
        "kills": dict(struck),
        "kills_at_writes": deaths.at_writes,
        "orders": dict(orders.given),
        "orders_refused": dict(orders.refused.most_common(5)),
        "times_forbidden": len(orders.spans),
        "attempts": sum(isinstance(fact, Attempted) for _, fact in facts),
        "deleted_or_suppressed": len(gone),
        **judgement.figures(),
        "against_an_order": len(against),
        "broken": [*judgement.broken, *against[:5], *broken[:10], *(f"check: {one}" for one in await mta.problems())],
    }


class _Client(Client):
    """Keeps what it has handed in; a letter of a campaign says so in its header, which the MTA takes off."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.handed: list[Letter] = []

    async def give(self, connection: Any, message: Letter) -> None:
        self.ledger.open(message)
        campaign = campaign_of(int(message.name.partition(".")[0]))
        header = f"X-Campaign: {campaign}\r\n".encode() if campaign else b""
        await connection.transaction(message._replace(data=header + message.data))
        self.ledger.acknowledge(message)
        self.handed.append(message)
        self.count(250)


def _again(name: str) -> Letter:
    number, _, attempt = name.partition(".")
    return letter(int(number), int(attempt))


async def _live(
    mta: Mta, orders: Orders, client: _Client, numbers: range, kills: int, deaths: Deaths, struck: Counter[str]
) -> None:
    """A round: mail, orders and kills at once."""
    over, first = asyncio.Event(), len(client.handed)
    orders.letters = client.handed

    async def order(what: dict[str, int]) -> None:
        given = 0
        while given < ORDERS_LEAST or len(client.handed) - first < len(numbers):
            await orders.one(what)
            given += 1
            await asyncio.sleep(orders.dice.random() * 0.05)

    async def work() -> None:
        await asyncio.gather(client.hand_in(numbers), *map(order, OPERATORS))
        over.set()

    async def strike() -> None:
        moments = sorted(orders.dice.choice(numbers) - numbers.start for _ in range(kills))
        for moment in moments:
            while len(client.handed) - first < moment and not over.is_set():
                await _running(mta)
                await asyncio.sleep(0.005)
            role = orders.dice.choice(ROLES)
            for one in ["queue", "queue"] if role == "two queues" else [role]:
                while not await deaths.strike(mta, one):
                    await _running(mta)
                    await asyncio.sleep(0.01)
            struck[role] += 1
            await _running(mta)
        while not over.is_set():
            await _running(mta)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:  # where one fails, nobody starts the MTA again
        group.create_task(work())
        group.create_task(strike())


async def _running(mta: Mta) -> None:
    if not mta.alive:
        await asyncio.to_thread(mta.dead)
        mta.start()


# -- what is answered, and what the files say


async def _compared(mta: Mta, orders: Orders) -> list[str]:
    """Stops everything, asks, kills, reads, and starts again."""
    for zone in ZONES:
        await orders.stop("zone", zone)
    await _rest(orders)
    answered = await _answers(orders)
    await asyncio.to_thread(mta.end)
    files = await asyncio.to_thread(at_rest.said, mta.config_file)
    mta.start()
    await mta.taking()
    for zone in ZONES:
        await orders.lift("zone", zone)
    return list(_differences(answered, files))


async def _rest(orders: Orders) -> None:
    """Waits until nothing is under way."""
    quiet, before, until = 0, None, time.monotonic() + PATIENCE_S
    while quiet < 3:
        assert time.monotonic() < until, f"it does not come to rest: {before}"
        size = (await orders.ask("size"))["total"]
        tasks = [row for row in await orders.ask("tasks", limit=10_000) if row["state"] not in ENDED]
        quiet = quiet + 1 if size == before and not size["leased"] and not tasks else 0
        before = size
        await asyncio.sleep(0.1)


async def _answers(orders: Orders) -> dict[str, Any]:
    recipients = await _pages(orders, "list", state=[*STATES, "leased", "bounced"])
    listed = await _pages(orders, "suppressions")
    campaigns = {}
    for row in await orders.ask("campaigns", limit=1_000):
        found = await orders.ask("campaign", name=row["name"])
        campaigns[row["name"]] = {name: found[name] for name in FIGURES}
    return {
        "size": (await orders.ask("size"))["total"],
        "domains": {row["name"]: row for row in await _pages(orders, "sizes", by="domain")},
        "recipients": sorted([row["id"], row["recipient"], row["state"], row["zone"]] for row in recipients),
        "suppressed": sorted([row["address"], row.get("scope", "all"), row["kind"]] for row in listed),
        "stops": sorted(
            [row["kind"], row["name"]]
            for row in await orders.ask("standing")
            if row["group"] == "suspended" and row["kind"] in at_rest.STOPS
        ),
        "tasks": {row["id"]: [row["done"], row["undone"]] for row in await orders.ask("tasks", limit=10_000)},
        "campaigns": campaigns,
        "doubts": sorted([row["id"], row["recipient"]] for row in await _doubts(orders)),
    }


async def _pages(orders: Orders, question: str, **where: Any) -> list[dict[str, Any]]:
    rows, after = list[dict[str, Any]](), dict[str, Any]()
    while True:
        page = await orders.ask(question, limit=1_000, **where, **after)
        rows += page["rows"]
        if page["next"] is None:
            return rows
        after = {"after": page["next"]}


async def _doubts(orders: Orders) -> list[dict[str, Any]]:
    found = await orders.ask("in-doubt", limit=100_000)
    return list(found["rows"] if isinstance(found, dict) else found)


def _differences(answered: dict[str, Any], files: list[dict[str, Any]]) -> Iterable[str]:
    rows = sorted(row for one in files for row in one["recipients"])
    yield from _lists("recipients", answered["recipients"], rows)
    states, domains = Counter(row[2] for row in rows), Counter(row[1].rpartition("@")[2] for row in rows)
    for state in STATES:
        if answered["size"][state] != states[state]:
            yield f"{answered['size'][state]} are said to be {state}, and {states[state]} are"
    if answered["size"]["messages"] != len({row[0] for row in rows}):
        yield f"{answered['size']['messages']} messages are said to be there, and {len({row[0] for row in rows})} are"
    for name in {*domains, *answered["domains"]}:
        row = answered["domains"].get(name, {})
        said = sum(row.get(state, 0) for state in (*STATES, "leased", "bounced"))
        if said != domains[name]:
            yield f"{name} is said to have {said}, and has {domains[name]}"
    for number, one in enumerate(files):
        for what in ("suppressed", "stops"):
            yield from _lists(f"{what} in queue {number}", answered[what], one[what])
    yield from _lists("in doubt", answered["doubts"], sorted(row for one in files for row in one["doubts"]))
    for name, figures in answered["tasks"].items():
        sums = [sum(one["tasks"].get(name, [0, 0])[at] for one in files) for at in (0, 1)]
        if figures != sums:
            yield f"task {name} is said to have done and undone {figures}, and has {sums}"
        if missing := [number for number, one in enumerate(files) if name not in one["tasks"]]:
            yield f"task {name} is unknown in {missing}"
    for name, figures in answered["campaigns"].items():
        sums_of = {what: sum(one["campaigns"].get(name, {}).get(what, 0) for one in files) for what in FIGURES}
        if figures != sums_of:
            yield f"campaign {name} is said to have {figures}, and has {sums_of}"


def _lists(what: str, answered: list[Any], files: list[Any]) -> Iterable[str]:
    if answered != files:
        mine, theirs = {tuple(row) for row in answered}, {tuple(row) for row in files}
        yield (
            f"{what}: {len(answered)} are answered, {len(files)} are in files;"
            f" only answered: {sorted(mine - theirs)[:3]}, only in files: {sorted(theirs - mine)[:3]}"
        )


# -- what went out


def _facts(folder: Path) -> Iterable[tuple[int, Fact]]:
    """Of all queues, each with its time."""
    for place in folders.every(folder).values():
        for record in segments.read_files(segments.every_file(place / "journal", place / "archive")):
            for fact in facts_of(record):
                yield record.ms, fact


def _deleted(facts: Iterable[Fact]) -> set[str]:
    """Whom a task has deleted for good."""
    found = set[str]()
    for fact in facts:
        if isinstance(fact, TaskDid) and fact.verb == "delete":
            (found.discard if fact.undone else found.add)(fact.recipient)
    return found


def _against(facts: list[tuple[int, Fact]], spans: list[Forbidden]) -> Iterable[str]:
    """Attempts that began while something that was answered forbade them."""
    mail = {fact.id: (ms, fact.metadata.get("campaign") or "") for ms, fact in facts if isinstance(fact, Accepted)}
    for fact in (fact for _, fact in facts if isinstance(fact, Attempted)):
        accepted_ms, campaign = mail[fact.id]
        met = [one for one in spans if one.since + 1 < fact.since_ms < one.until - 1]
        for address in fact.people:
            for one in met:
                if one.meets(fact.zone, address, campaign, accepted_ms):
                    late, early = fact.since_ms - one.since, one.until - fact.since_ms
                    what = f"{one.what} {one.name} was stopped, and {early:.0f} ms before that was taken back"
                    yield f"{address} of {fact.id} was tried {late:.0f} ms after {what}"


if __name__ == "__main__":
    sys.exit(
        command(
            "truth", __doc__, "One truth", trial, letters=(150, "letters of a round"),
            rounds=(50, "how often files and answers are compared"), kills=(150, "blows"),
        )
    )  # fmt: skip
