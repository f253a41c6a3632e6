"""A random life of three queues and of one, with the same mail, orders and answers: whatever is asked, they say the
same.

What may differ: ids, how much was looked at, and what is about one queue's own connections.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.conftest import BODY
from tests.queue.lives import seeds
from tests.queue.test_campaigns import template
from tests.queues.conftest import One, Three, envelope
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.admin.browse import ages, by_id, counts, of_index, ranges, story
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Feedback, QueueRefusal
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.joined import standing as joined_standing

Make = Callable[..., Any]
DOMAINS = [f"d{number}.test" for number in range(6)]
STATES = ["queued", "deferred", "leased", "held", "deleted", "bounced"]
OPTIONS: dict[str, Any] = {
    "zones": [
        {"name": "a", "default": True, "connections": 1000},
        {"name": "b", "recipient_domains": ["d1.test"], "connections": 1000},
        {"name": "jobs", "delivery": "pull"},
    ],
    "queue": {"keep_bounced_s": 10**6},
    "retry": {"life_h": 100_000},
    "accounts": [{"name": "shop", "messages": ["1000/day"]}],
}
LEFT_OUT = frozenset((
    "walked", "looked", "before", "counted", "since_ms", "seq", "window", "limits", "rate_per_s", "eta_ms", "worker",
    "history", "of", "examples", "more", "counting", "at_ms",
))  # fmt: skip


def differs(three: Any, one: Any, where: str = "") -> str:
    """The first place where they do; "": nowhere."""
    if isinstance(three, dict) and isinstance(one, dict) and three.keys() == one.keys():
        return next(filter(None, (differs(three[name], one[name], f"{where}.{name}") for name in one)), "")
    if isinstance(three, list) and isinstance(one, list) and len(three) == len(one):
        return next(
            filter(None, (differs(*two, f"{where}[{at}]") for at, two in enumerate(zip(three, one, strict=True)))), ""
        )
    return "" if three == one else f"{where}: three say {three!r}, one says {one!r}"


class Both:
    """Three queues and one. names: by any id of theirs, what it is called in both."""

    def __init__(self, three: Three, one: One, seed: int) -> None:
        self.three, self.one, self.die = three, one, random.Random(seed)
        self.names = dict[str, str]()
        self.ids = list[tuple[str, str]]()
        self.tasks = list[tuple[str, str]]()
        self.counter = 0

    def number(self) -> int:
        self.counter += 1
        return self.counter

    def plain(self, said: Any) -> Any:
        """What was said, as far as it must be the same."""
        if isinstance(said, dict):
            return {self.plain(name): self.plain(value) for name, value in said.items() if name not in LEFT_OUT}
        if isinstance(said, (list, tuple)):
            return [self.plain(one) for one in said]
        if not isinstance(said, str):
            return said
        return re.sub(r"\b[0-9a-f]{16}\b|\bp?[0-9a-f]+\b", lambda found: self.names.get(found[0], found[0]), said)

    async def ask(self, question: str, **asked: Any) -> Any:
        """Of both, which must say the same; what three say."""
        pair = [await self._said(queue, question, asked) for queue in (self.three, self.one)]
        assert differs(self.plain(pair[0]), self.plain(pair[1])) == "", (question, asked)
        return pair[0]

    async def _said(self, queue: Three, question: str, asked: dict[str, Any]) -> Any:
        """asked: a pair for what differs."""
        mine = {name: value[queue is self.one] if name == "id" else value for name, value in asked.items()}
        try:
            return await queue.ask(question, **mine)
        except (Refused, ValueError) as error:
            return ["refused", str(error)]

    async def rest(self) -> None:
        for queue in (self.three, self.one):
            await queue.rest()

    # -- what happens

    async def put(self, mail: Callable[[], Envelope], body: bytes = BODY) -> None:
        await self.move(0.01)  # so that ids grow alike
        try:
            pair = await self.three.put_envelope(mail(), body), await self.one.put_envelope(mail(), body)
        except QueueRefusal:
            return
        self.ids.append(pair)
        self.names |= dict.fromkeys(pair, f"m{len(self.ids)}")

    async def mail(self) -> None:
        people = [
            f"{self.die.choice('abcde')}{self.number()}@{self.die.choice(DOMAINS)}"
            for _ in range(self.die.randint(1, 4))
        ]
        more: dict[str, Any] = self.die.choice((
            {}, {}, {"campaign": "c1", "tenant": "acme"}, {"tenant": "acme"}, {"campaign": "c2"}, {"priority": 3},
            {"account": "shop"}, {"headers": {"subject": f"s{self.die.randint(1, 3)}"}, "user": "joe"},
        ))  # fmt: skip
        if self.die.random() < 0.2:
            more |= {"hold_until_ms": self.one.clock.ms() + 10**7}
        await self.put(lambda: envelope(*people, received_ms=self.one.clock.ms(), **more))

    async def push(self) -> None:
        name = self.die.choice(("jobs", "more", "Other"))
        await self.put(lambda: Envelope("", [Recipient(f"{name}@queue")], len(BODY), protocol="PULL"))

    async def batch(self) -> None:
        people = [f"m{self.number()}@{self.die.choice(DOMAINS)}" for _ in range(3)]
        await self.put(
            lambda: Envelope("", [Recipient(one, values=["x"]) for one in people], columns=["name"], campaign="spring",
                             received_ms=self.one.clock.ms()), b"",
        )  # fmt: skip

    async def deliver(self) -> None:
        """What may go goes, and is answered alike."""
        verdicts = {domain: self.die.choice((DELIVERED, DEFERRED, BOUNCED, HELD)) for domain in DOMAINS}
        few = self.die.choice(DOMAINS)
        for home in (*self.three.houses.values(), *self.one.houses.values()):
            back = list[int]()
            while deliveries := await home.leases():
                for delivery in deliveries:
                    domain = delivery.recipients[0].domain
                    if domain == few:
                        back.append(delivery.lease)
                    else:
                        await home.settle(delivery, verdicts.get(domain, DEFERRED))
                home.hang_up()
            for lease in back:
                home.queue.leases.take_back(home.queue.leases.out[lease])
        await self.rest()

    async def come_back(self) -> None:
        if not self.ids:
            return
        place = self.die.randrange(len(self.ids))
        kind = self.die.choice(("auto-reply", "open", "bounce", "click"))
        await self.move(0.01)
        for queue, id in zip((self.three, self.one), self.ids[place], strict=True):
            home = queue.houses.get(int(id, 16) % 1024) or queue.houses[0]
            home = home if queue is self.three else queue.houses[0]
            await home.queue.feedback(
                [Feedback(kind, "ann@d0.test", message=id, genuine="key", name=f"n{place}{kind}")]
            )

    async def move(self, seconds: float) -> None:
        self.one.clock.now_s += seconds
        for queue in (self.three, self.one):
            await queue.move(0)

    async def later(self) -> None:
        await self.move(self.die.choice((1, 60, 3600)))
        await self.rest()

    async def list_of_people(self) -> None:
        people = [f"{self.die.choice('abc')}{self.die.randint(1, 9)}@{self.die.choice(DOMAINS)}" for _ in range(5)]
        if self.die.random() < 0.7:
            rows = [[one, self.die.choice(("unsubscribe", "manual")), "", "", "", self.die.choice(("", "c1", "spring"))]
                    for one in people]  # fmt: skip
            await self.ask("suppress", rows=rows)
        else:
            await self.ask("unsuppress", addresses=people)

    async def stop(self) -> None:
        kind, name = self.die.choice((("domain", "d2.test"), ("tenant", "acme"), ("zone", "b"), ("campaign", "c1"),
                                      ("tenant", "nobody"), ("zone", "no"), ("destination", "d3.test")))  # fmt: skip
        await self.rest()
        await self._same_kind("stop", kind=kind, name=name, cause="so")

    async def _same_kind(self, question: str, **asked: Any) -> None:
        """Refused or not by both; they may count, and name, what they know otherwise."""
        pair = [await self._said(queue, question, asked) for queue in (self.three, self.one)]
        refused = [isinstance(said, list) and said[:1] == ["refused"] for said in pair]
        assert refused[0] == refused[1], (question, asked, pair)

    async def lift(self) -> None:
        kind, name = self.die.choice((("domain", "d2.test"), ("tenant", "acme"), ("zone", "b"), ("campaign", "c1")))
        await self.ask("lift", kind=kind, name=name)

    async def task(self) -> None:
        """Previewed, ordered, perhaps canceled or undone."""
        where: dict[str, Any] = self.die.choice((
            {"domain": self.die.choice(DOMAINS)}, {"tenant": "acme"}, {"all": True}, {"campaign": "c1"},
            {"recipient": "a*"}, {"state": "held"}, {"domain": "nowhere.test"},
        ))  # fmt: skip
        verb, change = self.die.choice((
            ("hold", None), ("release", None), ("delete", None), ("flush", None), ("move", {"zone": "b"}),
            ("set", {"priority": 2}), ("requeue", None), ("set", {"at_ms": self.one.clock.ms() + 10**6}),
        ))  # fmt: skip
        if verb == "requeue":
            where = {"state": "bounced"}
        await self.rest()
        if self.die.random() < 0.5:
            row = await self._task("task-preview", verb=verb, where=where, set=change)
            await self._task("task-start", id=row, by="bob")
        else:
            await self._task("task", verb=verb, where=where, set=change, by="bob")
        if self.die.random() < 0.4 and self.tasks:
            await self._task(self.die.choice(("task-undo", "task-cancel")), id=self.die.choice(self.tasks))

    async def _task(self, question: str, **asked: Any) -> tuple[str, str]:
        pair = [await self._said(queue, question, asked) for queue in (self.three, self.one)]
        if any(isinstance(said, list) for said in pair):
            assert self.plain(pair[0]) == self.plain(pair[1]), (question, asked)
            return "", ""
        ids = pair[0]["id"], pair[1]["id"]
        if ids not in self.tasks:
            self.names |= dict.fromkeys(ids, f"t{len(self.names)}")
            if ids[0].isdigit():
                self.tasks.append(ids)
        for queue, id in zip((self.three, self.one), ids, strict=True):
            for _ in range(3000):
                row = await queue.ask("task-row", id=id)
                if row["state"] not in ("counting", "running"):
                    break
                await asyncio.sleep(0.01)
        await self.rest()
        await self.ask("task-row", id=ids)
        return ids

    async def campaign(self) -> None:
        verb = self.die.choice(("put", "pause", "resume", "pause", "resume", "cancel", "complete", "text"))
        name = self.die.choice(("spring", "c1", "c2", "no"))
        await self.rest()
        if verb == "put":
            await self.ask("campaign-put", name="spring", sender="news@src.test", template=template())
        elif verb == "text":
            await self.ask("campaign-text", name="spring", template=template("Ho {{ name }}\n"))
        elif verb != "cancel" or self.die.random() < 0.2:
            await self.ask(f"campaign-{verb}", name=name)
        await self.rest()

    async def one_message(self) -> None:
        if self.ids:
            await self.rest()
            await self.ask(self.die.choice(("release", "drop")), id=self.die.choice(self.ids))

    async def step(self) -> None:
        verb = self.die.choice((
            self.mail, self.mail, self.mail, self.deliver, self.deliver, self.later, self.list_of_people, self.stop,
            self.lift, self.task, self.task, self.campaign, self.campaign, self.one_message, self.push, self.batch,
            self.come_back, self.come_back,
        ))  # fmt: skip
        await verb()

    # -- what is asked

    async def pages(self, question: str, most: int, **asked: Any) -> list[Any]:
        """All rows of both, page by page, with pages of any length."""
        lists = list[list[Any]]()
        for queue in (self.three, self.one):
            rows, after = list[Any](), asked.pop("begin", "")
            for _ in range(2000):
                limit = self.die.randint(1, most)
                page = await queue.ask(question, limit=limit, after=after, **asked)
                assert len(page["rows"]) <= limit
                assert len(str(page["next"])) < 400
                rows, after = rows + page["rows"], page["next"]
                if after is None:
                    break
            lists.append(self.plain(rows))
        assert differs(*lists) == "", (question, asked)
        return lists[0]

    async def compare(self) -> None:
        await self.move(61)  # how old mail is, is counted anew
        await self.rest()
        await self.ask("size")
        for by in ("zone", "domain", "provider", "campaign", "tenant"):
            await self.pages("sizes", 4, by=by)
        await self.pages("sizes", 4, by="domain", zone="a")
        for domain in DOMAINS[:2]:
            await self.ask("size", domain=domain)
        for where in (
            {},
            {"state": STATES},
            {"order": "age"},
            {"domain": DOMAINS[0]},
            {"tenant": "acme"},
            {"zone": "b"},
        ):
            await self.pages("list", 7, **where)
        for by in ("user", "sender", "subject", "class"):
            assert (await self.ask("tally", by=by))["next"] is None
        for queue in (self.three, self.one):
            while (found := await queue.ask("qshape"))["counting"] or not found["complete"]:  # noqa: ASYNC110 (it is asked)
                await asyncio.sleep(0.01)
        await self.ask("qshape", by="domain")
        await self.ask("qshape", by="domain", subdomains=2, limit=3, after=1)
        await self.ask("queues")
        await self.ask("accounts")
        await self.ask("guards")
        await self.pages("suppressions", 3)
        await self.pages("feedback", 3)
        await self.ask("in-doubt")
        for pair in self.die.sample(self.ids, min(3, len(self.ids))):
            await self.ask("show", id=pair)
        await self.explained()
        await self.standing()
        await self.lanes()
        await self.tasks_listed()
        await self.campaigns()
        await self.gauges()

    async def explained(self) -> None:
        """Recipients and names: the same rows; what a name is called that is several things may differ."""
        for what in (
            *(f"a{number}@{DOMAINS[number % 6]}" for number in range(9)),
            *DOMAINS,
            "acme",
            "c1",
            "spring",
            "b",
        ):
            pair = [await self._said(queue, "explain", {"what": what}) for queue in (self.three, self.one)]
            refused = [isinstance(said, list) for said in pair]
            assert refused[0] == refused[1], what
            if refused[0]:
                continue
            kinds = {"recipient" if "recipient" in row else "flow" for said in pair for row in said["rows"]}
            if kinds == {"recipient"}:
                waits = [{(self.plain(row["id"]), row["recipient"]) for row in said["rows"]} for said in pair]
                assert waits[0] == waits[1], what
            elif kinds == {"flow"}:
                assert self.flows(pair[0]["rows"]) == self.flows(pair[1]["rows"]), what
            if "counts" in pair[0] and "counts" in pair[1]:
                assert pair[0]["counts"] == pair[1]["counts"], what

    @staticmethod
    def flows(rows: list[dict[str, Any]]) -> set[Any]:
        """Flow queues of which something waits."""
        return {
            (row["zone"], row["site"], row["tenant"], row["campaign"], row["waiting"])
            for row in rows
            if row.get("waiting")
        }

    async def standing(self) -> None:
        pair = [await queue.ask("standing") for queue in (self.three, self.one)]
        stops = [
            sorted((row["kind"], row["name"], row["cause"]) for row in rows if row["group"] == "suspended")
            for rows in pair
        ]
        assert stops[0] == stops[1]
        three, rows = list[Any](), list[Any]()
        while rows := await self.three.ask("standing", limit=2, after=len(three)):
            three += rows
        assert three == pair[0]

    async def lanes(self) -> None:
        lists = list[list[Any]]()
        for queue in (self.three, self.one):
            rows, after = list[Any](), 0
            while after is not None:
                page = await queue.ask("lanes", limit=self.die.randint(1, 5), after=after)
                rows, after = rows + page["rows"], page["next"]
            lists.append(rows)
        assert self.flows(lists[0]) == self.flows(lists[1])

    async def tasks_listed(self) -> None:
        pair = [await queue.ask("tasks") for queue in (self.three, self.one)]
        for ids in zip(*([row["id"] for row in rows] for rows in pair), strict=True):
            if not self.names.keys() & {*ids}:  # by the cancel of a campaign
                self.names |= dict.fromkeys(ids, f"t{len(self.names)}")
        whole = await self.ask("tasks")
        rows, after = list[Any](), ""
        while page := await self.three.ask("tasks", limit=self.die.randint(1, 3), after=after):
            rows, after = rows + page, page[-1]["id"]
        assert rows == whole

    async def campaigns(self) -> None:
        whole = await self.ask("campaigns")
        rows, after = list[Any](), ""
        while page := await self.three.ask("campaigns", limit=self.die.randint(1, 2), after=after):
            rows, after = rows + page, page[-1]["name"]
        assert rows == whole
        for row in whole:
            await self.ask("campaign", name=row["name"])
            await self.ask("campaign-tenant", name=row["name"])
        await self.ask("campaign-ends")

    async def gauges(self) -> None:
        pair = [(await queue.ask("metrics"))["gauges"] for queue in (self.three, self.one)]
        for name in ("queue_recipients", "queue_messages", "campaign_recipients", "suspended", "in_doubt", "tasks"):
            rows = [sorted(found[f"zonemta_{name}"]) for found in pair]
            assert rows[0] == rows[1], name


@pytest.mark.parametrize("seed", seeds(2))
async def test_three_queues_answer_as_one(three_and_one: Make, seed: int) -> None:
    both = Both(*await three_and_one(**OPTIONS), seed)
    for _ in range(6):
        await both.mail()
    for _ in range(4):
        for _ in range(7):
            await both.step()
        await both.compare()


async def every(queue: Three, question: str, die: random.Random, most: int, **asked: Any) -> list[Any]:
    """All rows, page by page."""
    rows, after = list[Any](), ""
    while after is not None:
        limit = die.randint(1, most)
        page = await queue.ask(question, limit=limit, after=after, **asked)
        assert len(page["rows"]) <= limit
        rows, after = rows + page["rows"], page["next"]
    return rows


async def many(both: Both, count: int) -> None:
    """Mail to many domains, each with some of its recipients in other queues, as they are not a message's first."""
    for number in range(count):
        first, others = (
            f"a@w{number}.test",
            [f"b{one}@w{both.die.randrange(count)}.test" for one in range(both.die.randint(0, 3))],
        )
        await both.put(lambda first=first, others=others: envelope(first, *others, received_ms=both.one.clock.ms()))
    await both.rest()


async def test_of_very_many_names_each_is_there_once_with_its_sum(
    three_and_one: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one answer of a queue has: the largest part of each says where it is."""
    both = Both(*await three_and_one(**OPTIONS), 1)
    await many(both, 30)
    whole = await every(both.one, "sizes", both.die, 100, by="domain")
    assert max(map(_all_of, whole)) > min(map(_all_of, whole))
    monkeypatch.setattr(counts, "PAGE_MAX", 5)
    monkeypatch.setattr(joined_standing, "LANES", 4)
    assert (await both.three.ask("sizes", by="domain", limit=3))["by_part"]
    assert (await both.three.ask("lanes", limit=3))["by_part"]
    for most in (1, 3, 5):
        rows = await every(both.three, "sizes", both.die, most, by="domain")
        assert sorted(rows, key=_name) == sorted(whole, key=_name)
        parts = [max(_all_of(part) for part in await _parts(both.three, row["name"])) for row in rows]
        assert parts == sorted(parts, reverse=True)
        flows = await every(both.three, "lanes", both.die, most)
        assert Counter((row["site"], row["waiting"]) for row in flows) == Counter(
            (row["name"], _all_of(row)) for row in whole if row["queued"]
        )


async def test_what_ages_may_lack_is_said(three_and_one: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each queue lists the ages of its largest names only."""
    both = Both(*await three_and_one(**OPTIONS), 3)
    await many(both, 30)
    whole = {row["name"]: row["total"] for row in (await both.three.ask("qshape", limit=1000))["rows"]}
    assert "lacks" not in await both.three.ask("qshape")
    monkeypatch.setattr(ages, "PAGE_MAX", 4)
    for home in both.three.houses.values():
        ages._shapes.pop(home.queue.core)
    found = await both.three.ask("qshape", limit=1000)
    assert len(found["rows"]) == 4
    assert found["lacks"] > 0
    for row in found["rows"]:
        assert row["total"] <= whole[row["name"]] <= row["total"] + found["lacks"]


async def _parts(three: Three, domain: str) -> list[dict[str, Any]]:
    return [await home.queue.ask("size", domain=domain) for home in three.houses.values()]


def _all_of(row: dict[str, Any]) -> int:
    return sum(value for name, value in row.items() if name != "name")


def _name(row: dict[str, Any]) -> str:
    return str(row["name"])


async def test_nobody_is_lost_or_twice_where_pages_are_short(
    three_and_one: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their time is over before they are full, in one queue sooner than in another."""
    both = Both(*await three_and_one(**OPTIONS), 2)
    await many(both, 20)
    await both.deliver()
    whole = both.plain(await every(both.one, "list", both.die, 1000, state=STATES))
    tally = (await both.one.ask("tally", by="domain"))["counts"]
    monkeypatch.setattr("zonemta_py.schedule.time.pace.Pace.__init__.__defaults__", (0.0,))
    for at_once in (1, 3):
        for module in (ranges, by_id, of_index):
            monkeypatch.setattr(module, "AT_ONCE", at_once)
        for most in (2, 50):
            assert both.plain(await every(both.three, "list", both.die, most, state=STATES)) == whole
        found, after, pages = dict[str, Counter[str]](), "", 0
        while after is not None:
            page = await both.three.ask("tally", by="domain", after=after)
            for name, states in page["counts"].items():
                found.setdefault(name, Counter()).update(states)
            after, pages = page["next"], pages + 1
        assert found == tally
        assert pages > 3
    people, after = list[Any](), ""
    while after is not None:
        page = await both.three.ask("explain", what="b1@w3.test", after=after)
        people, after = people + page["rows"], page["next"]
    wanted = [row["id"] for row in whole if row["recipient"] == "b1@w3.test"]
    assert both.plain([row["id"] for row in people]) == wanted


async def test_one_queue_after_another_where_one_cannot_list_by_age(three_and_one: Make) -> None:
    both = Both(*await three_and_one(**OPTIONS), 3)
    await many(both, 15)
    await both.deliver()
    whole = both.plain(await every(both.one, "list", both.die, 1000))
    both.three.houses[1].queue.core.disk.places.complete = False
    rows = both.plain(await every(both.three, "list", both.die, 4))
    assert sorted(map(str, rows)) == sorted(map(str, whole))


async def test_stories_are_told_once_and_in_their_order(three_and_one: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of somebody to whom all queues have sent, over many files of each."""
    monkeypatch.setattr(story, "LOOK_S", 0.0)
    both = Both(*await three_and_one(**OPTIONS), 4)
    for number in range(12):
        first = f"a@{both.die.choice(DOMAINS)}"
        await both.put(lambda first=first: envelope(first, "who@all.test", received_ms=both.one.clock.ms()))
        if number % 3 == 0:
            await both.deliver()
        if both.die.random() < 0.6:
            await both.move(1)
            for home in both.three.houses.values():
                if both.die.random() < 0.5:
                    await home.queue.ask("rotate")
    await both.rest()
    pages, before = list[list[Any]](), ""
    while before is not None:
        page = await both.three.ask("trace", what="who@all.test", before=before)
        pages, before = [page["rows"], *pages], page["next"]
        assert len(str(before)) < 400
    assert len(pages) > 2
    rows = [row for page in pages for row in page]
    assert [row["ms"] for row in rows] == sorted(row["ms"] for row in rows)
    lone, before = list[Any](), ""
    while before is not None:
        page = await both.one.ask("trace", what="who@all.test", before=before)
        lone, before = page["rows"] + lone, page["next"]
    told = [Counter((row["ms"], both.plain(row["id"]), row["what"]) for row in each) for each in (rows, lone)]
    assert told[0] == told[1]
