"""Limits that several queues share, in random configurations: in simulated time, and with the MTA's real processes.

The first part runs what decides about limits in the server over hours of simulated time (`simulated.py`); the second
the whole MTA, some limits of different dimensions at a time, with blows in random order.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from restraint import rates
from restraint.configurations import configuration
from restraint.limits import DIMENSIONS, KINDS, Kind, Limit
from restraint.simulated import Simulation, simulated

LEAST = 0.9
ALONE = 0.95
"""What one queue with the same mail reaches of a limit that is judged; what it does not reach, nobody misses."""
WANTED_S = 8.0
"""A limit is judged if there was mail that only it held up for so long."""
WANTED_TIMES = 10
"""And if it allowed so many times the largest cost meanwhile."""
STARVED_S = 15.0
WORKERS = 2
Progress = Callable[[int, str], None]


class Judged(NamedTuple):
    """One limit of one configuration: shares that were used."""

    where: str
    calm: float
    overall: float


class Outcome(NamedTuple):
    """Of one configuration."""

    number: int
    judged: list[Judged]
    exceeded: list[str]
    starved_s: float
    events: int


def outcome(number: int, queues: int = 3, seconds: float = 60.0) -> Outcome:
    """Tries the configuration of that number."""
    logging.disable(logging.WARNING)
    try:
        return _outcome(number, queues, seconds)
    finally:
        logging.disable(logging.NOTSET)


def _outcome(number: int, queues: int, seconds: float) -> Outcome:
    terms = configuration(number, queues, seconds)
    world = simulated(terms)
    alone: Simulation | None = None
    judged = []
    for (key, kind), use in world.used.items():
        largest = max((cost for _, cost in world.taken.get((key, kind), ())), default=1)
        if use.calm_s < WANTED_S or use.calm_wanted < WANTED_TIMES * (largest if kind != "connections" else 0):
            continue
        if min(use.calm, use.overall) < LEAST:
            alone = alone or simulated(terms.alone())
            if alone.used[key, kind].calm < ALONE:
                continue
        judged.append(Judged(f"{number}: {kind} of {' '.join(filter(None, key))}", use.calm, use.overall))
    exceeded = [f"{number}: {line}" for line in world.check()]
    return Outcome(number, judged, exceeded, max(world.starved.values(), default=0.0), world.events)


def simulate(first: int, count: int, queues: int, progress: Progress, seconds: float = 60.0) -> dict[str, Any]:
    """Tries so many, and returns figures."""
    found = list[Outcome]()
    with ProcessPoolExecutor(WORKERS) as workers:
        tasks = [workers.submit(outcome, number, queues, seconds) for number in range(first, first + count)]
        for task in as_completed(tasks):
            found.append(task.result())
            progress(len(found), f"{sum(len(one.exceeded) for one in found)} exceeded")
    return figures(sorted(found, key=lambda one: one.number))


def figures(found: Sequence[Outcome]) -> dict[str, Any]:
    judged = sorted((one for outcome in found for one in outcome.judged), key=lambda one: one.calm)
    calm, overall = [one.calm for one in judged], sorted(one.overall for one in judged)
    starved = [f"{one.number}: a queue had nothing of a limit of one connection for {one.starved_s:.1f} s"
               for one in found if one.starved_s > STARVED_S]  # fmt: skip
    low = [
        f"{one.where}: {one.calm:.1%} used, {one.overall:.1%} with disturbances" for one in judged if one.calm < LEAST
    ]
    return {
        "configurations": len(found),
        "events": f"{sum(one.events for one in found):,}",
        "limits with demand": len(judged),
        "exceeded": sum(bool(one.exceeded) for one in found),
        "used outside of disturbances and 3 s after": _shares(calm),
        "used overall": _shares(overall),
        "longest wait for a limit of one connection": f"{max((one.starved_s for one in found), default=0.0):.1f} s",
        "broken": [*(line for one in found for line in one.exceeded), *starved, *low],
    }


def _shares(shares: Sequence[float]) -> str:
    if not shares:
        return "nothing"
    enough = sum(share >= LEAST for share in shares)
    return f"least {min(shares):.1%}, median {median(shares):.1%}, {enough} of {len(shares)} at least {LEAST:.0%}"


# -- real processes


def drawn(number: int) -> list[Limit]:
    """Some limits of differing dimensions, kinds and sizes."""
    chance = random.Random(number)
    dimensions = chance.sample(list(DIMENSIONS), chance.randint(2, 4))
    return [
        Limit(dimension, kind, place, _kind(chance, kind))
        for place, dimension in enumerate(dimensions, 1)
        for kind in [chance.choice(list(KINDS))]
    ]


def _kind(chance: random.Random, name: str) -> Kind:
    """As the usual one, but for size and burst."""
    usual = KINDS[name]
    if name == "connections":
        most = chance.choice([1, 2, 4, 6])
        return usual._replace(config=f"connections = {most}", rate=most, load=usual.load * most / usual.rate)
    factor = chance.choice([0.25, 0.5, 1.0])
    rate, burst = usual.rate * factor, usual.burst * chance.choice([0.5, 1, 1, 4])
    size = f"{round(rate * 60)}{'B' if name == 'bytes' else ''}/min"
    burst = max(burst, *usual.sizes) if name == "bytes" else max(1, round(burst), *usual.recipients)
    return usual._replace(
        config=f'{name} = "{size}"\nburst = {burst:g}',
        rate=round(rate * 60) / 60,
        burst=burst,
        load=usual.load * factor,
    )


def real(folder: Path, first: int, count: int, queues: int, seconds: float, progress: Progress) -> dict[str, Any]:
    """The whole MTA, in so many configurations one after the other."""
    broken, rows = list[str](), list[dict[str, Any]]()
    for done, number in enumerate(range(first, first + count)):
        progress(done, f"configuration {number}, {len(broken)} broken")
        blows = list(rates.BLOWS)
        random.Random(number).shuffle(blows)
        terms = {"seconds": seconds, "least": LEAST, "queues": queues, "kills": blows[:BLOWS_MAX]}
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        try:
            tried = asyncio.run(rates.trial(place, drawn(number), **terms))
        except AssertionError as error:
            broken.append(f"{number}: {error}")
            continue
        rows += tried["limits"]
        broken += [f"{number}: {line}" for line in tried["broken"]]
    progress(count, "")
    reached = [row["reached_least"] for row in rows]
    return {
        "configurations of processes": count,
        "limits": len(rows),
        "exceeded": sum("are the most" in line for line in broken),
        "used with disturbances": _shares(reached),
        "longest time without any after a blow": f"{max((row['away_s'] for row in rows), default=0.0):.1f} s",
        "broken": broken,
    }


BLOWS_MAX = 3
