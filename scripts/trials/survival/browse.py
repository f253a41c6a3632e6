"""Many recipients queued on the three nodes of a cluster, and how long any node takes to answer for all of them.

Asked of each node in turn: pages of the queue (with and without a filter, from the beginning to the end), sizes, what
waits for one domain, one message's story. Sizes are compared with what was handed in, and every page with the others:
each recipient once.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from survival.client import Connection, Refused
from survival.cluster import Nodes
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import SHIPPED, sink
from zonemta_py.wire.blocking_client import ask

TOGETHER, DOMAINS, PAGE, SESSIONS = 100, 1_000, 100, 8
FILTERED = 20
DATA = b"From: news@queued.example\r\nSubject: queued\r\n\r\n" + b"A line of the news that everybody gets.\r\n" * 40


async def trial(
    folder: Path, *, recipients: int, pages: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures (ms); "broken" lists what was not right."""
    broken, times = list[str](), defaultdict[str, list[float]](list)
    async with sink(Ledger(), seed=seed) as running:
        nodes = Nodes(folder, running.port, processes=1, **SHIPPED)
        await nodes.start()
        try:
            for zone in ("default", "bulk"):
                await nodes.asked(nodes.all[0], "stop", kind="zone", name=zone)
            begun = time.monotonic()
            await asyncio.gather(
                *(
                    _fill(node.mta.port, range(at, recipients // TOGETHER, len(nodes.all) * SESSIONS))
                    for number, node in enumerate(nodes.all)
                    for at in range(number, len(nodes.all) * SESSIONS, len(nodes.all))
                )
            )
            filled_s = time.monotonic() - begun
            handed_in = recipients // TOGETHER * TOGETHER
            for at in range(pages):
                node = nodes.all[at % len(nodes.all)]
                await asyncio.to_thread(_questions, node.mta.folder, at, handed_in, times, broken)
                progress(at + 1, f"page {statistics.median(times['page']):.0f} ms")
            seen = await asyncio.to_thread(_all_of_a_domain, nodes.all[0].mta.folder)
            if len(seen) != len(set(seen)) or len(seen) != handed_in // DOMAINS:
                broken.append(f"pages of one domain have {len(seen)} rows, {len(set(seen))} recipients")
        finally:
            nodes.end()
    figures = {
        name: f"{statistics.median(ms):.1f} (median), {max(ms):.1f} at most of {len(ms)}" for name, ms in times.items()
    }
    return {"recipients": handed_in, "filled_s": round(filled_s, 1), **figures, "broken": broken}


async def _fill(port: int, numbers: range) -> None:
    connection = await Connection.open(port)
    for number in numbers:
        people = [f"p{number}.{at}@d{(number * TOGETHER + at) % DOMAINS}.test" for at in range(TOGETHER)]
        while True:
            try:
                await connection.transaction(Letter(f"{number}", "news@queued.example", people, DATA))
                break
            except Refused:
                await asyncio.sleep(0.1)
    connection.close()


def _questions(folder: Path, at: int, handed_in: int, times: dict[str, list[float]], broken: list[str]) -> None:
    def timed(name: str, question: str, **arguments: Any) -> Any:
        begin = time.perf_counter()
        found = ask(folder, question, **arguments)  # type: ignore[arg-type]
        times[name].append((time.perf_counter() - begin) * 1000)
        return found

    total = timed("size", "size")["total"]
    waiting = sum(total[state] for state in ("queued", "deferred", "leased", "held"))
    if waiting != handed_in:
        broken.append(f"size is {waiting:,} of {handed_in:,}")
    page = timed("page", "list", limit=PAGE)
    if not page["rows"] or (len(page["rows"]) != PAGE and not page["next"]):
        broken.append(f"a page has {len(page['rows'])} rows")
    times["rows of a page"].append(len(page["rows"]))
    timed("next page", "list", limit=PAGE, after=page["next"])
    found = timed("page of a domain", "list", limit=FILTERED, domain=f"d{at % DOMAINS}.test")
    if {row["recipient"].partition("@")[2] for row in found["rows"]} - {f"d{at % DOMAINS}.test"}:
        broken.append(f"a page of d{at % DOMAINS}.test has others")
    timed("story of a message", "trace", what=page["rows"][0]["id"])


def _all_of_a_domain(folder: Path) -> list[str]:
    seen, after = list[str](), ""
    while True:
        page: dict[str, Any] = ask(folder, "list", limit=PAGE, domain="d7.test", **({"after": after} if after else {}))  # type: ignore[call-overload, arg-type]
        seen += [row["recipient"] for row in page["rows"]]
        after = page["next"]
        if not after:
            return seen


if __name__ == "__main__":
    sys.exit(
        command(
            "browse", __doc__, "A cluster's queue, browsed", trial,
            recipients=(1_000_000, "recipients queued"), pages=(60, "rounds of questions"),
        )
    )  # fmt: skip
