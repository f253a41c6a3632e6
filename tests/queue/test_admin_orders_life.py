"""A random life of the scheduler: random limits, sources, shares and hours; mail of many flows; replies that teach it.

The promise: no limit is ever exceeded, nothing that is stopped is sent, and whatever has happened (crashes, lost
senders, destinations that moved or died, orders of operators), all mail comes to its end once nothing holds it back: a
flow queue that is never listed again would be mail that waits for ever.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from zonemta_py.config.limits import rate
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, POSTPONED, RELEASED, Delivery, Outcome, Result
from zonemta_py.zones.site import Site

DOMAINS = ("a.test", "b.test", "c.test", "d.test", "bulk.test", "e.test")
SOURCES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
TENANTS = ("", "", "one", "two")
CAMPAIGNS = ("", "", "news", "shop", "spring")
DIMENSIONS = ("zone", "source", "site", "provider", "tenant", "campaign")
KINDS = ("messages", "recipients", "new_connections", "bytes")
REPLIES = (
    (DEFERRED, "mail", Reply(421, "4.7.0", "Too many messages from your IP, slow down"), 0),
    (DEFERRED, "rcpt", Reply(451, "4.7.1", "Greylisted, please try again later"), None),
    (DEFERRED, "banner", Reply(421, "4.3.2", "closing"), 0),
    (DEFERRED, "connect", Reply(451, "4.4.1", "timed out while connecting"), 30),
    (BOUNCED, "mail", Reply(550, "5.7.1", "Your IP is listed in the Spamhaus blocklist"), None),
    (BOUNCED, "rcpt", Reply(550, "5.1.1", "user unknown"), None),
    (DEFERRED, "ehlo", Reply(421, "4.7.0", "too many concurrent connections from your IP"), 0),
    (DEFERRED, "rcpt", Reply(452, "4.2.2", "mailbox full"), None),
)
BODIES = (b"Subject: x\r\n\r\nshort\r\n", b"Subject: x\r\n\r\n" + b"y" * 300)


class Directory:
    """A destination resolver whose answers change."""

    def __init__(self, die: random.Random) -> None:
        self.die, self.healthy = die, False

    async def site(self, domain: str, now: float) -> Site:
        for _ in range(self.die.randint(0, 4)):
            await asyncio.sleep(0)
        chance = 1.0 if self.healthy else self.die.random()
        if domain == "src.test":
            chance = 1.0
        if chance < 0.12:
            raise NoRoute(451, "4.4.3", "no answer")
        if chance < 0.14:
            raise NoRoute(556, "5.1.10", "takes no mail")
        key = self.die.choice((domain, "shared", "other")) if chance < 0.5 else domain
        provider = self.die.choice(("", "giant")) if key == "shared" else "giant" if key == "other" else ""
        address = self.die.choice(("192.0.2.99", "2001:db8::99")) if chance < 0.6 else "192.0.2.99"
        ttl_s = self.die.choice((1, 20, 300))
        return Site(key, provider, ((f"mx.{key}", (address,)),), ((10, f"mx.{key}"),), ttl_s, False)


def options(die: random.Random) -> dict[str, Any]:
    """A configuration."""
    zone: dict[str, Any] = {
        "name": "default",
        "default": True,
        "connections": die.choice((1, 3, 8, 40)),
        "connections_per_destination": die.choice((1, 2, 5, 20)),
        "recipients_per_delivery": die.choice((1, 3, 100)),
    }
    found: dict[str, Any] = {"queue": {"window": 100, "segment_bytes": 65536}}
    pooled = die.random()
    if pooled < 0.3:
        zone["sources"] = list(SOURCES[: die.randint(1, 3)])
    elif pooled < 0.7:
        sources: list[dict[str, Any]] = [
            {"address": address, "weight": die.choice((1, 3))} for address in SOURCES[: die.randint(1, 3)]
        ]
        if die.random() < 0.4:
            sources[0]["warmup"] = "w"
            found["warmups"] = [{"name": "w", "caps": [10, 20, 60], "least": 3}]
        if len(sources) > 1 and die.random() < 0.3:
            sources[1]["disabled_domains"] = ["a.test"]
        zone["pool"], found["pools"] = "p", [{"name": "p", "sources": sources}]
    found["zones"] = [zone]
    if die.random() < 0.8:
        found["zones"].append({**zone, "name": "bulk", "default": False, "recipient_domains": ["bulk.test"]})
    if die.random() < 0.3:
        found["windows"] = [{"name": "day", "hours": "09:00-18:00", "time_zone": "recipient"}]
    found["throttles"] = [throttle(die, f"t{number}") for number in range(die.choice((0, 1, 2, 4)))]
    if len(found["zones"]) == 1:  # a limit of a zone that is not there is a mistake
        found["throttles"] = [one for one in found["throttles"] if one.get("only") != {"zone": "bulk"}]
    found["shares"] = {"tenants": {"one": 3}, "campaigns": {"n*": 0.5, "shop": 2}}
    found["learning"] = {"initial": die.choice((1, 5, 20)), "dead_after": die.choice((1, 3))}
    found["retry"] = {"schedule_min": [0.2, 1, 3], "life_h": 10_000, "down_s": die.choice((5, 30))}
    return found


def throttle(die: random.Random, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "per": die.sample(DIMENSIONS, die.choice((0, 1, 1, 2, 3)))}
    if die.random() < 0.3:
        found["only"] = die.choice(({"campaign": "?*"}, {"provider": "giant"}, {"tenant": "one"}, {"zone": "bulk"}))
    kinds = die.sample((*KINDS, "connections"), die.choice((1, 1, 2)))
    for kind in kinds:
        if kind == "connections":
            found[kind] = die.choice((1, 2, 5))
        elif kind == "bytes":
            found[kind] = die.choice(("200B/s", "1KB/s", "20KB/min"))
        else:
            found[kind] = die.choice(("1/s", "5/s", "20/min", "1/10s"))
    if die.random() < 0.3 and len({*kinds} & {*KINDS}) == 1 and "bytes" not in kinds:
        found["burst"] = die.choice((1, 3, 10))
    if die.random() < 0.2:
        found["recipients_per_delivery"] = 2
    return found


class Referee:
    """Counts what is leased, by itself, and says where a limit is exceeded."""

    def __init__(self, config: Any) -> None:
        self.throttles = config.throttles
        self.warmups = {s.address: w for p in config.pools for s in p.sources for w in config.warmups if s.warmup}
        self.used: dict[tuple[Any, ...], list[list[float]]] = defaultdict(list)
        self.open: dict[tuple[Any, ...], int] = defaultdict(int)
        self.days: dict[tuple[str, str, int], int] = defaultdict(int)
        self.leases: dict[int, list[tuple[tuple[Any, ...], str, list[float]]]] = {}
        self.connected: dict[int, list[tuple[Any, ...]]] = {}

    def keys(self, delivery: Delivery) -> list[tuple[Any, tuple[Any, ...]]]:
        scope = {name: getattr(delivery, name) for name in DIMENSIONS}
        only = {"?*": bool}
        found = []
        for rule in self.throttles:
            if all(only[p](scope[d]) if p in only else scope[d] == p for d, p in rule.only.items()):
                values = {**scope, "provider": scope["provider"] or scope["site"]}
                found.append((rule, (rule.name, *(values[d] for d in rule.per))))
        return found

    def granted(self, delivery: Delivery, now: float, size: int) -> None:
        connecting = any(rule.new_connections for rule in self.throttles)
        costs = {
            "messages": 1, "recipients": len(delivery.recipients), "bytes": size,
            "new_connections": int(delivery.may_connect and connecting),
        }  # fmt: skip
        charged: list[tuple[tuple[Any, ...], str, list[float]]] = []
        self.connected[delivery.lease] = []
        for rule, key in self.keys(delivery):
            self.connected[delivery.lease].append(key)
            self.open[key] += 1
            assert not rule.connections or self.open[key] <= rule.connections, f"{key}: too many connections"
            if rule.recipients_per_delivery:
                assert len(delivery.recipients) <= rule.recipients_per_delivery
            for kind in KINDS:
                if getattr(rule, kind) and costs[kind]:
                    row = [now, float(costs[kind])]
                    self.used[rule.name, key, kind].append(row)
                    charged.append((key, kind, row))
        self.leases[delivery.lease] = charged
        if delivery.source in self.warmups:
            day = (delivery.source, delivery.provider or delivery.site, int(now // 86_400))
            self.days[day] += len(delivery.recipients)

    def ended(self, lease: int, tried: bool, opened: bool) -> None:
        for key in self.connected.pop(lease):
            self.open[key] -= 1
        for _, kind, row in self.leases.pop(lease):
            if not tried or (kind == "new_connections" and not opened):
                row[1] = 0.0

    def crashed(self) -> None:
        self.open.clear()
        self.connected.clear()
        self.leases.clear()

    def verdict(self) -> None:
        """The generic cell rate algorithm over what was really used (ITU-T I.371)."""
        by_name = {rule.name: rule for rule in self.throttles}
        for (name, key, kind), rows in self.used.items():
            rule = by_name[name]
            amount, seconds = rate(getattr(rule, kind))
            interval, burst = seconds / amount, rule.burst or max(1.0, amount / seconds)
            tat = 0.0
            for now, cost in rows:
                if not cost:
                    continue
                ahead = max(0.0, tat - now)
                room = max(0.0, burst - cost) * interval
                assert ahead <= room + 0.002, f"{key} {kind}: {cost} too early by {ahead - room} s"
                tat = max(tat, now) + cost * interval


class Life:
    """Mail, what becomes of it, and what operators and fate do."""

    def __init__(self, house: Any, seed: int) -> None:
        self.house, self.die = house, random.Random(seed)
        self.referee = Referee(house.config)
        self.count = 0
        self.alive: set[str] = set()
        self.out: dict[int, tuple[Delivery, str]] = {}
        self.stopped: set[tuple[str, str]] = set()

    async def put(self) -> None:
        die, now_ms = self.die, self.house.clock.ms()
        domains = die.choice((DOMAINS, DOMAINS[:1]))
        addresses = []
        for _ in range(die.choice((1, 1, 2, 6))):
            self.count += 1
            addresses.append(f"r{self.count}@{die.choice(domains)}")
        more: dict[str, Any] = {"tenant": die.choice(TENANTS), "campaign": die.choice(CAMPAIGNS)}
        if die.random() < 0.2:
            more["priority"] = die.choice((-4, 3, 9))
        if die.random() < 0.1:
            more["hold_until_ms"] = now_ms + die.choice((1_000, 300_000))
        if die.random() < 0.1:
            more["deadline_ms"], more["deadline_mode"] = now_ms + die.choice((1_000, 100_000)), die.choice("NR")
        if self.house.config.windows and die.random() < 0.2:
            more["window"], more["time_zone"] = "day", die.choice(("UTC", "Asia/Tokyo"))
        self.alive.update(addresses)
        await self.house.put(*addresses, body=die.choice(BODIES), **more)

    async def lease(self, worker: str, most: int = 4) -> list[Delivery]:
        core = self.house.queue.core
        task = asyncio.ensure_future(self.house.queue.lease(most, worker))
        for _ in range(4):
            for _ in range(5):
                await asyncio.sleep(0)
            if task.done():
                break
            if not any(line._busy or line._soon or line._waiting for line in (core.disk.lines, core.disk.journal)):
                continue  # no disk is waited for
            await core.disk.lines.stable()
            await core.disk.journal.stable()
        else:
            task.cancel()
            await asyncio.wait([task])
            return []
        for delivery in task.result():
            self.given(delivery, worker)
        return list(task.result())

    def given(self, delivery: Delivery, worker: str) -> None:
        self.referee.granted(delivery, self.house.clock.now_s, delivery.size)
        for kind, name in self.stopped:
            domains = [recipient.domain for recipient in delivery.recipients]
            value = domains if kind == "domain" else [getattr(delivery, {"destination": "site"}.get(kind, kind))]
            assert name not in value, f"{kind} {name} is stopped, and sends"
        if delivery.sender:
            for recipient in delivery.recipients:
                assert recipient.address in self.alive, f"{recipient.address} has ended"
        self.out[delivery.lease] = delivery, worker

    async def settle(self, number: int, kind: str = "random") -> None:
        delivery, _ = self.out.pop(number)
        die, everyone = self.die, list(range(len(delivery.recipients)))
        chance = 0.0 if kind == "well" or not delivery.sender else die.random()
        opened = delivery.may_connect and die.random() < 0.7
        down_s, verdict, stage = None, DELIVERED, "dot"
        if chance > 0.9:
            verdict, stage = die.choice(((RELEASED, "limit"), (RELEASED, "plugin"), (POSTPONED, "plugin")))
            outcome = Outcome(verdict, Reply(451, "4.3.0", "not tried"), stage, everyone, delay_s=20)
            opened = False
        elif chance > 0.45:
            verdict, stage, reply, down_s = die.choice(REPLIES)
            outcome = Outcome(verdict, reply, stage, everyone)
        else:
            outcome = Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", everyone)
        tried = stage not in ("limit", "plugin")
        self.referee.ended(number, tried, opened)
        result = Result(number, [outcome], down_s, remote="mx.test[127.0.0.9]:25", opened=opened)
        await self.house.queue.settle(result)
        await self.house.queue.core.disk.lines.stable()
        self.alive -= self._gone(delivery)

    def _gone(self, delivery: Delivery) -> set[str]:
        """Those that are in no key of the store any more."""
        store = self.house.queue.core.disk.store
        prefix = f"message {delivery.id} ".encode()
        left: set[str] = set()
        if any(True for _ in store.keys(prefix, prefix + b"\xff")):
            names = {recipient.address for recipient in delivery.recipients}
            for family in (b"delivery-zone ", b"parked ", b"deferred ", b"held "):
                for key in store.keys(family, family[:-1] + b"!"):
                    address = key.decode().rpartition(" ")[2]
                    if address in names:
                        left.add(address)
        return {recipient.address for recipient in delivery.recipients} - left

    def lose(self, worker: str) -> None:
        self.house.queue.lost(worker)
        for number in [number for number, (_, who) in self.out.items() if who == worker]:
            del self.out[number]
            self.referee.ended(number, tried=True, opened=True)

    async def crash(self) -> None:
        """Sometimes the configuration is another one afterwards: zones, limits, sources and hours come and go."""
        await self.house.rest()
        if other := self.die.random() < 0.3:
            self.house.options = options(self.die)
        await self.house.crash(drop=self.die.random() < 0.5)
        self.out.clear()
        self.referee.crashed()
        if other:
            self.referee.verdict()
            self.referee = Referee(self.house.config)

    async def order(self) -> None:
        die, ask = self.die, self.house.queue.ask
        kind, names = die.choice(
            (
                ("destination", (*DOMAINS, "shared", "other")), ("tenant", TENANTS[2:]), ("campaign", CAMPAIGNS[2:]),
                ("source", SOURCES), ("zone", ("default", "bulk")),
            )
        )  # fmt: skip
        name = die.choice(names)
        if die.random() < 0.5:
            seconds = die.choice((None, 10, 300))
            try:
                await ask("stop", kind=kind, name=name, seconds=seconds, cause="a whim")
            except ValueError:
                return  # there is no such zone any more
            for_good = {(row["kind"], row["name"]) for row in await ask("standing") if not row["until_ms"]}
            self.stopped |= {(kind, name), ("domain", name)} & for_good  # its mail may go to another site
        else:
            await ask("lift", kind=kind, name=name)
            self.stopped &= {(row["kind"], row["name"]) for row in await ask("standing")}

    async def step(self) -> None:
        choice = self.die.random()
        if choice < 0.25:
            await asyncio.gather(*(self.put() for _ in range(self.die.choice((1, 1, 1, 15)))))
        elif choice < 0.5:
            await self.lease(self.die.choice(("one", "two")), self.die.choice((1, 4, 30)))
        elif choice < 0.78:
            numbers = self.die.sample(sorted(self.out), min(len(self.out), self.die.choice((1, 1, 5, 30))))
            await asyncio.gather(*(self.settle(number) for number in numbers))
        elif choice < 0.8:
            self.lose(self.die.choice(("one", "two")))
        elif choice < 0.91:
            await self.house.move(self.die.choice((0.02, 0.3, 1, 7, 61, 400)))
        elif choice < 0.95:
            await self.order()
        elif choice < 0.97:
            await self.house.queue.sweep()
        elif choice < 0.98:
            await self.house.queue.position()
        else:
            await self.crash()

    # -- the end

    async def drain(self) -> None:
        """Nothing holds anything back any more: all of it must go, and within the time that the limits ask for."""
        if self.house.resolver is not None:
            self.house.resolver.healthy = True
        for row in await self.house.queue.ask("standing"):
            if (row["kind"], row["name"]) in self.stopped:  # all else ends by itself
                await self.house.queue.ask("lift", kind=row["kind"], name=row["name"])
        self.stopped.clear()
        await asyncio.gather(*(self.settle(number, "well") for number in list(self.out)))
        idle_since, schedule = 0.0, self.house.queue.core.schedule
        while (await self.house.sizes())["messages"]:
            found = await self.lease(self.die.choice(("one", "two")), 50)
            await asyncio.gather(*(self.settle(delivery.lease, "well") for delivery in found))
            if found:
                idle_since = self.house.clock.now_s
                continue
            idle_since = idle_since or self.house.clock.now_s
            waited = self.house.clock.now_s - idle_since
            assert waited < 3 * 86_400, await self.why()
            await self.house.move(max(0.02, waited / 8, schedule.next_wake(schedule.now())))

    async def why(self) -> str:
        rows = (await self.house.queue.ask("lanes"))["rows"]
        zones = [(z.zone.name, z.active, z.loaded, z.held) for z in self.house.queue.core.schedule.zones.values()]
        return f"it waits for ever: {await self.house.sizes()} {rows} {zones}"


@pytest.mark.parametrize("seed", seeds(3))
async def test_a_random_life_of_the_scheduler(house: Callable[..., Any], seed: int) -> None:
    """Limits hold, stops hold, and in the end all mail has ended; nothing is left in memory of it."""
    die = random.Random(seed)
    home = await house(resolver=Directory(die) if die.random() < 0.8 else None, **options(die))
    life = Life(home, seed)
    for _ in range(120):
        await life.step()
    await home.sound()
    await life.drain()
    life.referee.verdict()
    await home.sound()
    gone = ("queued", "deferred", "held", "deleted", "bounced", "leased", "messages", "bytes")
    assert await home.sizes() == dict.fromkeys(gone, 0)
    for zone in home.queue.core.schedule.zones.values():
        assert (zone.active, zone.loaded, zone.stuck) == (0, 0, 0)
    assert not home.queue.core.schedule.busy
