"""Random configurations of throttles, demand and disturbances, for trials of limits that several queues share.

Each is made from its number alone, so that it can be had again. Its mail goes to six domains of four sites and two
providers, from two zones with three source addresses, of two tenants and their campaigns.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

from sharing import Fault

from zonemta_py.zones.site import Site

DIMENSIONS = ("zone", "source", "site", "provider", "tenant", "campaign")
USUAL: tuple[tuple[str, ...], ...] = (
    (), (), ("zone",), ("source",), ("site",), ("provider",), ("source", "site"), ("tenant",), ("campaign",),
)  # fmt: skip
ONLY: tuple[dict[str, str], ...] = (
    {"zone": "one"}, {"provider": "great"}, {"tenant": "ann*"}, {"campaign": "?*"}, {"site": "mx.two.test"},
    {"source": "127.0.0.11"}, {"zone": "t*", "provider": "small"},
)  # fmt: skip
ZONES = {"one": ["127.0.0.11", "127.0.0.12"], "two": ["127.0.0.13"]}
DOMAINS = {
    "a.test": ("mx.one.test", "great"),
    "b.test": ("mx.one.test", "great"),
    "c.test": ("mx.two.test", "great"),
    "d.test": ("mx.three.test", "small"),
    "e.test": ("mx.three.test", "small"),
    "f.test": ("mx.four.test", ""),
}
"""Site and provider."""
FLOWS = (("", ""), ("anna", ""), ("anna", "spring"), ("bert", "autumn"))
"""Tenant and campaign."""
WHEN = ("always", "always", "one", "moving", "now and then")
"""At which queues there is mail."""
COUNTED = ("connections", "messages", "recipients", "new_connections")
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Stream:
    """Mail of one kind at one queue. spans: from and until when there is any."""

    queue: int
    zone: str
    domain: str
    tenant: str
    campaign: str
    recipients: int
    size: int
    spans: tuple[tuple[float, float], ...] = ((0.0, math.inf),)


@dataclass
class Configuration:
    """throttles, zones: tables of the configuration file. factors: of each throttle, by each reload in turn."""

    number: int
    queues: int
    throttles: list[dict[str, Any]]
    zones: list[dict[str, Any]]
    streams: list[Stream]
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    factors: list[list[float]] = field(default_factory=list)
    holds_s: float = 0.1
    delay_s: float = 0.001
    """Of a message between a queue and the authority, on average."""

    def alone(self) -> Configuration:
        """The same mail and reloads with one queue, and nothing that goes wrong."""
        streams = [Stream(0, *_but_queue(stream)) for stream in self.streams]
        reloads = [Fault(fault.at, fault.what) for fault in self.faults if fault.what == "reload"]
        return Configuration(
            self.number, 1, self.throttles, self.zones, streams, self.seconds, reloads, self.factors, self.holds_s,
            self.delay_s,
        )  # fmt: skip


def _but_queue(stream: Stream) -> tuple[Any, ...]:
    return tuple(getattr(stream, name) for name in Stream.__dataclass_fields__ if name != "queue")


async def site_of(domain: str) -> Site:
    """As DNS would say."""
    site, provider = DOMAINS[domain]
    return Site(site, provider, ((site, ("127.0.0.1",)),), ((10, site),), 1e6, False)


def configuration(number: int, queues: int = 3, seconds: float = 60.0) -> Configuration:
    """The one of that number."""
    chance = random.Random(number)
    throttles = [_throttle(chance, f"limit-{index}") for index in range(chance.randint(1, 4))]
    zones: list[dict[str, Any]] = [
        {"name": name, "sources": sources, "connections": chance.choice([2, 5, 8, 12])}
        for name, sources in ZONES.items()
    ]
    found = Configuration(number, queues, throttles, zones, _streams(chance, queues, seconds), seconds)
    found.holds_s = chance.choice([0.05, 0.1, 0.3])
    found.delay_s = chance.choice([0.0005, 0.002, 0.01])
    found.faults = [_fault(chance, queues, seconds) for _ in range(chance.randint(2, 4))]
    reloads = sum(fault.what == "reload" for fault in found.faults)
    found.factors = [[chance.choice([0.3, 0.5, 1.0, 2.0, 3.0]) for _ in throttles] for _ in range(reloads)]
    return found


def _throttle(chance: random.Random, name: str) -> dict[str, Any]:
    per = chance.choice(USUAL) if chance.random() < 0.7 else tuple(chance.sample(DIMENSIONS, chance.randint(1, 3)))
    found: dict[str, Any] = {"name": name, "per": list(per)}
    if chance.random() < 0.3:
        found["only"] = dict(chance.choice(ONLY))
    kinds = ["bytes"] if chance.random() < 0.2 else chance.sample(COUNTED, chance.choice([1, 1, 2]))
    for kind in kinds:
        if kind == "connections":
            found[kind] = chance.choice([1, 1, 2, 3, 5])
            continue
        a_second = chance.choice([0.5, 1, 2, 5, 10, 30]) * (1000 if kind == "bytes" else 1)
        unit = chance.choice([unit for unit, seconds in UNITS.items() if (a_second * seconds).is_integer()])
        found[kind] = f"{round(a_second * UNITS[unit])}{'B' if kind == 'bytes' else ''}/{unit}"
        if chance.random() < 0.6:
            found["burst"] = (
                chance.choice([20, 1000, 5000, 50_000]) if kind == "bytes" else chance.choice([1, 2, 5, 20])
            )
    return found


def _streams(chance: random.Random, queues: int, seconds: float) -> list[Stream]:
    when, found = chance.choice(WHEN), list[Stream]()
    kinds = [_kind(chance) for _ in range(chance.randint(1, 3))]
    alone, third = chance.randrange(queues), seconds / queues
    for queue in range(queues):
        spans: tuple[tuple[float, float], ...] = ((0.0, math.inf),)
        if when == "one" and queue != alone:
            spans = ()
        elif when == "moving":
            spans = ((queue * third, (queue + 1) * third),)
        elif when == "now and then":
            spans = _now_and_then(chance, seconds)
        mine = kinds if chance.random() < 0.8 else [_kind(chance) for _ in range(2)]  # that no other queue has
        found += [Stream(queue, *kind, spans) for kind in mine if spans]
    return found


def _kind(chance: random.Random) -> tuple[str, str, str, str, int, int]:
    tenant, campaign = chance.choice(FLOWS)
    recipients, size = chance.choice([1, 1, 3, 10]), chance.choice([400, 400, 2000, 30_000])
    return chance.choice(list(ZONES)), chance.choice(list(DOMAINS)), tenant, campaign, recipients, size


def _now_and_then(chance: random.Random, seconds: float) -> tuple[tuple[float, float], ...]:
    spans, at = list[tuple[float, float]](), chance.uniform(0, 4)
    while at < seconds:
        end = at + chance.uniform(0.2, 8)
        spans.append((at, end))
        at = end + chance.uniform(0.2, 6)
    return tuple(spans)


def _fault(chance: random.Random, queues: int, seconds: float) -> Fault:
    what = chance.choice(
        ["kill", "stop", "kill-authority", "kill-authority", "stop-authority", "cut", "reload", "clock"]
    )
    fault = Fault(chance.uniform(3, seconds - 3), what, chance.randrange(queues))
    if what in ("kill", "kill-authority", "cut"):
        fault.for_s = chance.uniform(0.2, 1.5)
    elif what in ("stop", "stop-authority"):
        fault.for_s = 5.0
    elif what == "clock":
        fault.factor = chance.choice([-3600, -30, -1.5, 1.5, 30, 3600])
    return fault
