"""Who passes whom: receipts a newsletter of very many recipients, and campaigns each other by their weights."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.rig import Mta

from restraint.destination import Destination, Event, destination
from restraint.traffic import Feeder, Flow

PRIORITY = 6
WEIGHTS = {"one": 1, "two": 2, "four": 4}
RECIPIENTS = 100
"""Of a letter as it is handed in; each is a delivery of its own."""
PATIENCE_S = 120.0
BEGUN_S = 0.5
Progress = Callable[[int, str], None]

_CONFIG = """
[[zones]]
name = "fair"
recipient_domains = ["*.fair.test"]
host = "127.0.0.1"
port = {port}
tls = "none"
connections = 20
connections_per_destination = 20
recipients_per_delivery = 1
[shares]
campaigns = {{ {weights} }}
"""
_LIMIT = """
[[throttles]]
name = "pace"
only = {{ zone = "fair" }}
recipients = "{rate}/s"
"""


def _mta(folder: Path, port: int, rate: float) -> Mta:
    weights = ", ".join(f"{name} = {weight}" for name, weight in WEIGHTS.items())
    more = _CONFIG.format(port=port, weights=weights) + (_LIMIT.format(rate=rate) if rate else "")
    mta = Mta(folder / "queue", port, home=folder, more=more)
    mta.start()
    return mta


def newsletter(campaign: str, recipients: int) -> tuple[Flow, int]:
    fields = {"X-Campaign": campaign}
    return Flow(f"{campaign}.fair.test", (RECIPIENTS,), fields=fields), max(1, recipients // RECIPIENTS)


# ---------------------------------------------------------------- priority


async def priority(
    folder: Path, *, recipients: int = 100_000, urgent: int = 100, most_s: float = 2.0, rate: float = 0,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """How long urgent messages wait behind a newsletter that is queued and being sent."""
    with destination(folder, dot_latency_s=0.02, log=True) as target:
        mta = _mta(folder, target.port, rate)
        try:
            await mta.accepting()
            feeder, (flow, letters) = Feeder(mta.port), newsletter("news", recipients)
            await feeder.feed(flow.letters(letters), sessions=4)
            left = await asyncio.to_thread(_left, mta)
            receipts = Flow("receipt.fair.test", fields={"X-Priority-Level": str(PRIORITY)})
            before = len(target.events())
            await feeder.feed(receipts.letters(urgent))
            waits = await _waits(target, feeder, urgent, progress)
            meanwhile = Counter(_domain(event) for event in target.events()[before:] if event["kind"] == "message")
            after = await asyncio.to_thread(_left, mta)
        finally:
            mta.end()
    return _judged(waits, most_s, urgent, {
        "newsletter": letters * RECIPIENTS, "left_of_it_before": left, "left_of_it_after": after,
        "sent_of_it_meanwhile": meanwhile["news.fair.test"],
    })  # fmt: skip


def _left(mta: Mta) -> int:
    total = mta.ask("size")["total"]
    return int(total["queued"] + total["leased"])


async def _waits(target: Destination, feeder: Feeder, urgent: int, progress: Progress) -> list[float]:
    """From each urgent message's 250 to its arrival, seconds, ascending. Those that never come are not among them."""
    end = time.monotonic() + PATIENCE_S
    while True:
        rows = [row for row in target.came() if row["message_id"].endswith("@receipt.fair.test>")]
        progress(len(rows), "urgent ones have come")
        if len(rows) >= urgent or time.monotonic() > end:
            return sorted(max(0.0, row["time"] - feeder.accepted[row["message_id"].strip("<>")]) for row in rows)
        await asyncio.sleep(0.2)


def _judged(waits: list[float], most_s: float, urgent: int, figures: dict[str, Any]) -> dict[str, Any]:
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))] if waits else float("inf")
    broken = []
    if len(waits) < urgent:
        broken.append(f"only {len(waits)} of {urgent} urgent messages came")
    if p99 > most_s:
        broken.append(f"the p99 of urgent messages' queue time is {p99:.2f} s, more than {most_s:g} s")
    if not figures["left_of_it_after"]:
        broken.append("the newsletter was gone before the urgent messages, so nothing was shown; make it larger")
    elif not figures["sent_of_it_meanwhile"]:
        broken.append("nothing of the newsletter was sent while urgent messages were")
    median = waits[len(waits) // 2] if waits else float("inf")
    times = {"median_s": round(median, 3), "p99_s": round(p99, 3)}
    return {"urgent": len(waits), **times, **figures, "broken": broken}


# ---------------------------------------------------------------- shares


async def shares(
    folder: Path, *, seconds: float = 30.0, rate: float = 0, recipients: int = 10_000, within: float = 0.05,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """What campaigns of different weights get while all of them have mail. rate: a limit on all; 0: connections are.

    recipients: for each part of weight.
    """
    with destination(folder, dot_latency_s=0.02) as target:
        mta = _mta(folder, target.port, rate)
        try:
            await mta.accepting()
            flows = dict(newsletter(name, weight * recipients) for name, weight in WEIGHTS.items())
            await asyncio.gather(*(Feeder(mta.port).feed(flow.letters(n), sessions=2) for flow, n in flows.items()))
            await asyncio.sleep(BEGUN_S)
            begin = len(target.events())
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(0.2)
                progress(int(seconds - max(0.0, end - time.monotonic())), f"{len(target.events()):,} events")
            events = target.events()
        finally:
            mta.end()
    whole = Counter(_domain(event) for event in events if event["kind"] == "message")
    got = Counter(_domain(event) for event in events[begin:] if event["kind"] == "message")
    return _shared(got, whole, {flow.domain: count * RECIPIENTS for flow, count in flows.items()}, within)


def _shared(got: Counter[str], whole: Counter[str], had: dict[str, int], within: float) -> dict[str, Any]:
    figures, broken = {}, []
    total, weights = sum(got.values()), sum(WEIGHTS.values())
    for name, weight in WEIGHTS.items():
        domain = f"{name}.fair.test"
        share, fair = got[domain] / max(1, total), weight / weights
        figures[f"weight_{weight}"] = f"{got[domain]:,}, {share:.2%} where {fair:.2%} are fair"
        if abs(share / fair - 1) > within:
            broken.append(f"weight {weight} got {share:.2%} where {fair:.2%} are fair")
        if whole[domain] >= had[domain]:
            broken.append(f"campaign {name} was sent before the end, so nothing was shown; make it larger")
    return {"deliveries": total, **figures, "broken": broken}


def _domain(event: Event) -> str:
    return str(next(iter(event["domains"])))
