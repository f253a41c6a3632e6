"""A provider that takes so many messages a second from one address, answers 421 above that, and relents later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.rig import Mta

from restraint.destination import Destination, destination
from restraint.names import name_server
from restraint.traffic import Feeder, Flow

LIMIT = 50
RECIPIENTS = 100
DOMAINS = ("one.giant.test", "two.giant.test")
SPAN_S = 15.0
"""Over so long the rate is looked at."""
Progress = Callable[[int, str], None]

_CONFIG = """
[dns]
servers = ["127.0.0.1"]
port = {dns}
providers = "{providers}"
[[zones]]
name = "giant"
recipient_domains = {domains}
port = {port}
tls = "none"
allow_private = true
sources = ["127.3.0.1"]
recipients_per_delivery = 1
[learning]
{learning}
"""
_PACE = """
[[throttles]]
name = "pace"
only = {{ zone = "giant" }}
messages = "{pace}"
burst = 5
"""


async def trial(
    folder: Path, *, settle_s: float = 120, hold_s: float = 180, relent_s: float = 180, recipients: int = 60_000,
    learning: str = "", pace: str = "", free_s: float = 3.0, burst: float = LIMIT,
    least: float = 40, refused_most: float = 0.05, rise: float = 1.5,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """After `settle_s` the rate has to stay between `least` and 50 for `hold_s`; `rise`: then it grows so many times.

    learning: lines of its section. pace: a limit from the start, "100/s". burst: what the provider takes at once.
    """
    records = {(domain, "MX"): f"10 mx.{domain}." for domain in DOMAINS}
    records |= {(f"mx.{domain}", "A"): f"127.1.0.{last}" for last, domain in enumerate(DOMAINS, 1)}
    with destination(folder, ["127.1.0.1", "127.1.0.2"], dot_latency_s=0.02) as target:
        providers = folder / "providers.toml"
        providers.write_text('[[providers]]\nname = "giant"\nmx = ["giant.test"]\n')
        async with name_server(records) as names:
            more = _CONFIG.format(
                dns=names.port, providers=providers, port=target.port, domains=list(DOMAINS), learning=learning
            )
            more += _PACE.format(pace=pace) if pace else ""
            mta = Mta(folder / "queue", target.port, home=folder, more=more)
            mta.start()
            try:
                run = _Run(mta, target, progress)
                await run.begin(recipients, free_s)
                return await run.through(burst, settle_s, hold_s, relent_s, (least, refused_most, rise))
            finally:
                mta.end()


class _Run:
    def __init__(self, mta: Mta, target: Destination, progress: Progress) -> None:
        self._mta, self._target, self._progress = mta, target, progress
        self._start = 0.0

    async def begin(self, recipients: int, free_s: float) -> None:
        await self._mta.accepting()
        count = recipients // RECIPIENTS // len(DOMAINS)
        feeds = (Feeder(self._mta.port).feed(Flow(domain, (RECIPIENTS,)).letters(count), 2) for domain in DOMAINS)
        self._feeding = asyncio.gather(*feeds)
        self._start = time.monotonic()
        await self._pass(free_s)

    async def through(
        self, burst: float, settle_s: float, hold_s: float, relent_s: float, promise: tuple[float, float, float]
    ) -> dict[str, Any]:
        least, refused_most, rise = promise
        self._target.change(rate_limit=LIMIT, rate_burst=burst)
        limited = time.monotonic()
        await self._pass(settle_s)
        settled = time.monotonic()
        await self._pass(hold_s)
        (explained, others), relented = await self._explained(), time.monotonic()
        self._target.change(rate_limit=0)
        grown = await self._grows(relent_s, rise)
        await self._feeding
        spans = self._rates(settled, relented)
        refused = self._refused(settled, relented)
        broken = []
        # What the provider takes at once after a quieter moment is no mistake of ours, but counts once only.
        if spans and (min(spans) < least or sum(spans) / len(spans) > LIMIT + burst / hold_s):
            broken.append(f"the rate was {min(spans):.1f} to {max(spans):.1f}/s, not {least:g} to {LIMIT}")
        if refused > refused_most:
            broken.append(f"{refused:.1%} were refused after {settle_s:g} s, more than {refused_most:.0%}")
        if not explained:
            broken.append(f"explain does not name the learned rate, but: {'; '.join(sorted(others)) or 'nothing'}")
        if grown < rise * LIMIT:
            broken.append(f"{relent_s:g} s after the provider relented the rate is {grown:.1f}/s, too little")
        return {
            "free_rate": round(self._count("message", self._start, limited) / (limited - self._start), 1),
            "refused_while_settling": f"{self._refused(limited, settled):.1%}",
            "settled_rates": f"{min(spans):.1f} to {max(spans):.1f}/s" if spans else "",
            "refused_when_settled": f"{refused:.2%}",
            "explained": explained,
            "rate_after_relenting": round(grown, 1),
            "seconds_until_then": round(time.monotonic() - relented, 1),
            "broken": broken,
        }

    async def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(min(1.0, max(0.01, end - time.monotonic())))
            self._show()

    async def _grows(self, seconds: float, rise: float) -> float:
        """The rate at the end, or as soon as it is `rise` times what it was bound to."""
        end, span_s = time.monotonic() + seconds, min(3.0, seconds / 3)
        rate = 0.0
        while time.monotonic() < end and rate < rise * LIMIT:
            await asyncio.sleep(span_s)
            now = time.monotonic() - 0.2  # the diary is as young as that
            rate = self._count("message", now - span_s, now) / span_s
            self._show()
        return rate

    def _show(self) -> None:
        now = time.monotonic()
        rate = self._count("message", now - 5.2, now - 0.2) / 5
        refused = self._refused(now - 5.2, now - 0.2)
        self._progress(int(now - self._start), f"{rate:.1f}/s, {refused:.1%} refused")

    async def _explained(self) -> tuple[str, set[str]]:
        """The learned rate, as explain names it; "" if it does not within a few seconds, and what it named instead."""
        others: set[str] = set()
        for _ in range(60):
            answer = await asyncio.to_thread(self._mta.ask, "explain", what="giant")
            for reason in (reason for row in answer["rows"] for reason in row["reasons"]):
                if reason["kind"] == "rate":
                    return str(reason["cause"]), set()
                others.add(f"{reason['kind']}: {reason['cause']}")
            await asyncio.sleep(0.05)
        return "", others

    def _count(self, kind: str, start: float, end: float) -> int:
        return sum(event["kind"] == kind and start < event["t"] <= end for event in self._target.events())

    def _refused(self, start: float, end: float) -> float:
        refused = self._count("refused", start, end)
        return refused / max(1, refused + self._count("message", start, end))

    def _rates(self, start: float, end: float) -> list[float]:
        spans = max(1, int((end - start) / SPAN_S))
        length = (end - start) / spans
        return [
            self._count("message", start + index * length, start + (index + 1) * length) / length
            for index in range(spans)
        ]
