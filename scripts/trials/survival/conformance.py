"""The queue's contract, case by case, against three nodes on three NATS servers, with a node or a server killed in the
middle of each: the node whose queue the case is about, another one, the one that leads, a NATS server.

Without --all the cases share four blows, one of each kind; with it, each case has each of them for itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from sharing import exceeded

from survival.cluster import ROUNDED_MS, leased
from survival.contract.caller import Caller
from survival.contract.cases import CASES
from survival.contract.stage import BURST, KINDS, RATE, Round, Stage, stage
from survival.report import table


async def each_round(there: Stage, rounds: list[tuple[str, list[str]]]) -> AsyncIterator[tuple[Round, dict[str, str]]]:
    """Each round that is over, and what went wrong, by case. While its cases look at what has become of theirs, those
    of the next one prepare themselves."""
    before: tuple[Round, asyncio.Task[dict[str, str]]] | None = None
    for kind, names in rounds:
        round = await there.round(kind)
        cases = {name: partial(CASES[name], Caller(round, there.next_number())) for name in names}
        task = asyncio.create_task(round.run(cases, before[1] if before else None))
        if before is not None:
            yield before[0], await before[1]
        await asyncio.wait([asyncio.create_task(round.over()), task], return_when=asyncio.FIRST_COMPLETED)
        before = round, task
    if before is not None:
        yield before[0], await before[1]


def above_limit(there: Stage) -> list[str]:
    """Whether all nodes together have sent more than they may, as their journals say. For the end."""
    moments = sorted(leased([node.mta.folder for node in there.nodes.all], "paced").values())
    above = exceeded([(ms / 1000, 1.0) for ms in moments], (RATE, BURST))
    if above is None or above[2] <= ROUNDED_MS / 1000 * RATE:
        return []
    return [f"limit: {above[2]:.3g} messages more than {RATE:g}/s and {BURST:g} at once allow"]


def _odd(log: Path) -> str:
    """Its last lines that are about no single message."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([one[:300] for one in lines if " INFO mail: " not in one][-40:])


def shared(names: list[str], kinds: tuple[str, ...] = KINDS) -> list[tuple[str, list[str]]]:
    """Each case once: the kinds take turns."""
    return [(kind, names[at :: len(kinds)]) for at, kind in enumerate(kinds)]


def each(names: list[str], together: int = 1) -> list[tuple[str, list[str]]]:
    """Each case with each kind; together: so many share a blow."""
    groups = [names[at : at + together] for at in range(0, len(names), together)]
    return [(kind, group) for group in groups for kind in KINDS]


async def trial(folder: Path, rounds: list[tuple[str, list[str]]], console: Console) -> dict[str, Any]:
    """Figures; "broken" lists the rules that were broken."""
    broken, blows, begun, cases = list[str](), Counter[str](), time.monotonic(), 0
    longest = dict[str, float]()
    async with stage(folder) as there:
        async for one, wrong in each_round(there, rounds):
            blows[one.kind] += 1
            cases += len(one.took_s)
            for what, seconds in one.seconds.items():
                longest[what] = max(longest.get(what, 0.0), seconds)
            broken += [f"{name} ({one.kind}): {said}" for name, said in wrong.items()]
            said = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in one.seconds.items())
            names = ", ".join(
                f"{name} {one.took_s[name]:.0f} s" for name in sorted(one.took_s, key=lambda name: one.took_s[name])
            )
            console.print(f"{time.monotonic() - begun:7.1f} s  {one.kind}: {said} ({names})", highlight=False)
            for name, sentence in wrong.items():
                console.print(f"          {name}: {sentence[:1000]}", markup=False, highlight=False)
        for node in there.nodes.all:
            if broken:
                console.print(f"-- the end of node {node.name}'s log\n{_odd(node.mta.log)}", markup=False)
            node.mta.end()
        broken += above_limit(there)
        broken += [f"{node.name}: {one}" for node in there.nodes.all for one in await node.mta.problems()]
    return {
        "seconds": round(time.monotonic() - begun, 1), "cases": cases, **{f"blows: {k}": n for k, n in blows.items()},
        **{f"longest: {what}, s": seconds for what, seconds in longest.items()}, "broken": broken,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/trials/conformance", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--all", action="store_true", help="each case has a blow of each kind for itself")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="of --all: so many cases share a blow")
    parser.add_argument("--case", action="append", choices=sorted(CASES), metavar="NAME", help="only these")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these blows")
    parser.add_argument("--folder", type=Path, help="where it lives; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    names = options.case or list(CASES)
    rounds = each(names, options.together) if options.all or options.case else shared(names)
    rounds = [one for one in rounds if not options.kind or one[0] in options.kind]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-conformance-"))
    console = Console(stderr=options.json)
    console.print(f"nodes and logs in {folder}")
    figures = asyncio.run(trial(folder, rounds, console))
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        table(console, "The queue's contract, kept by a cluster", figures)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
