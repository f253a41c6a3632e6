"""Limits of every kind, at the same time, with more mail than they let through: kept, reached, explained, and not
granted twice where processes are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from survival.rig import Mta

from restraint import limits as limiting
from restraint.destination import Destination, destination
from restraint.kept import Diary, Grants, Row, by_limit, judge
from restraint.limits import Key, Limit
from restraint.names import name_server
from restraint.traffic import Feeder, by_turns

DOT_LATENCY_S = 0.1
PATIENCE_S = 60.0
EXPLAINED_S = 10.0
HELD = 0.9
"""Where less of a limit was used, the machine was what held mail back, and that `explain` does not say."""
AT_REST_S = 1.0
KILLS = ("queue", "all")
STILL = "a queue stands still"
OF_SEVERAL = ("queue", "authority", STILL, "queue", "all")
RELOAD = "another configuration"
BLOWS = ("queue", "authority", STILL, RELOAD)
STILL_S = 5.0
Progress = Callable[[int, str], None]


async def trial(
    folder: Path, limits: Sequence[Limit], *, seconds: float = 60.0, least: float = 0.97, queues: int = 1,
    kills: Sequence[str] = (), progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """Runs it and returns figures. A queue's process is killed after a third of the time, everything after two; of
    several queues, the authority and another queue are killed too, and one stands still for STILL_S. kills: these blows
    instead, evenly spread."""
    addresses = [address for limit in limits for address in limit.hosts.values()]
    records = {name: value for limit in limits for name, value in limit.records().items()}
    providers = folder / "providers.toml"
    with destination(folder, addresses, dot_latency_s=DOT_LATENCY_S) as target:
        providers.write_text("".join(limit.providers() for limit in limits))
        async with name_server(records) as names:
            more = limiting.config(limits, target.port, names.port, str(providers))
            mta = Mta(folder / "queue", target.port, home=folder, more=more, queues=queues)
            mta.start()
            try:
                run = _Run(mta, target, limits, seconds, progress, kills or (OF_SEVERAL if queues > 1 else KILLS))
                await run.through()
            finally:
                mta.end()
        await asyncio.sleep(0.3)  # the diary's last lines
        diary, grants = Diary(limits, target.events()), Grants(mta.folder, limits)
    rows = judge(limits, diary, grants, run.moments)
    broken = [line for row in rows for line in row.broken(least)]
    held = {(row.limit, row.key) for row in rows if row.reached >= HELD}
    broken += [
        f"{limit.name}: explain {limit.question(key)} does not name the limit"
        for limit, key in run.unnamed if (limit, key) in held
    ]  # fmt: skip
    return {"limits": [_figures(limit, some) for limit, some in by_limit(rows).items()], "broken": broken}


def _figures(limit: Limit, rows: Sequence[Row]) -> dict[str, Any]:
    granted = [row.granted for row in rows if row.granted is not None]
    return {
        "on": limit.dimension,
        "kind": limit.kind,
        "limit": limit.terms.config.partition("\n")[0].partition("= ")[2].strip('"'),
        "buckets": len(rows),
        "burst": rows[0].most,
        "granted": round(max(granted), 2) if granted else None,
        "came": round(max(row.came for row in rows), 2),
        "reached_least": round(min(row.reached for row in rows), 4),
        "reached_most": round(max(row.reached for row in rows), 4),
        "away_s": round(max(row.away_s for row in rows), 2),
    }


class _Run:
    """moments: beginning, kills, end. unnamed: limits that `explain` has not named, with the bucket."""

    def __init__(
        self, mta: Mta, target: Destination, limits: Sequence[Limit], seconds: float, progress: Progress,
        kills: Sequence[str],
    ) -> None:  # fmt: skip
        self._mta, self._target, self._limits, self._seconds, self._progress = mta, target, limits, seconds, progress
        self._kills = kills
        self.moments: list[float] = []
        self.unnamed: list[tuple[Limit, Key]] = []

    async def through(self) -> None:
        await self._mta.accepting()
        flows = {flow: count for limit in self._limits for flow, count in limit.flows(self._seconds).items()}
        feeding = asyncio.create_task(Feeder(self._mta.port).feed(by_turns(flows)))
        try:
            await self._all_flow(feeding)
            self.moments.append(time.monotonic())
            third = self._seconds / (len(self._kills) + 1)
            explaining = asyncio.create_task(self._explained())
            for role in self._kills:
                await self._wait(self.moments[-1] + third, feeding)
                await explaining
                self._kill(role)
                await self._flows_again(feeding)
            await self._wait(self.moments[-1] + third, feeding)
            self.moments.append(time.monotonic())
        finally:
            feeding.cancel()

    async def _all_flow(self, feeding: asyncio.Task[None]) -> None:
        """Something of every bucket has come, and some time has passed to learn how quick the hosts are."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            diary = Diary(self._limits, self._target.events())
            waiting = [owner for owner in diary.counted if not (diary.counted[owner].times or diary.open[owner].times)]
            if not waiting:
                await asyncio.sleep(AT_REST_S)
                return
            _check(feeding)
            await asyncio.sleep(0.1)
        raise AssertionError(f"nothing came of {waiting[0][0].name}: {self._mta.log_tail()}")

    async def _flows_again(self, feeding: asyncio.Task[None]) -> None:
        """Something of every bucket has come since the last kill; what judges says how long that took."""
        killed, end = self.moments[-1], time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            diary = Diary(self._limits, self._target.events())
            if all(max([0.0, *some.times, *diary.open[owner].times]) > killed for owner, some in diary.counted.items()):
                return
            _check(feeding)
            await asyncio.sleep(0.1)
        raise AssertionError(f"nothing came any more after a kill: {self._mta.log_tail()}")

    async def _wait(self, until: float, feeding: asyncio.Task[None]) -> None:
        while time.monotonic() < until:
            _check(feeding)
            note = f"{len(self._target.events()):,} events"
            self._progress(int(time.monotonic() - self.moments[0]), note)
            await asyncio.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def _kill(self, role: str) -> None:
        self.moments.append(time.monotonic())
        if role == STILL:
            stopped = [pid for pid, name in self._mta.children().items() if name == "queue"][-1]
            os.kill(stopped, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(STILL_S, _go_on, stopped)
            return
        if role == RELOAD:
            text = self._mta.config_file.read_text()
            self._mta.config_file.write_text(text.replace("jitter = 0.5", "jitter = 0.4"))
            self._mta.reload()
            return
        self._mta.kill(role, random.random())
        if not self._mta.alive:
            self._mta.start()

    async def _explained(self) -> None:
        """Asks about every bucket until its limit is what holds the mail back, but not for ever."""
        left = [(limit, key) for limit in self._limits for key in limit.buckets()]
        end = time.monotonic() + EXPLAINED_S
        while left and time.monotonic() < end:
            left = [owner for owner in left if not await asyncio.to_thread(self._names_it, *owner)]
            await asyncio.sleep(0.05)
        self.unnamed = left

    def _names_it(self, limit: Limit, key: Key) -> bool:
        try:
            answer = self._mta.ask("explain", what=limit.question(key))
        except ValueError:
            return False
        reasons = [reason for row in answer["rows"] for reason in row["reasons"] if reason["kind"] == "limit"]
        others = f"({limit.kind}, which other queues have now)"
        return any(
            reason["cause"].startswith(limit.name) and reason["cause"].endswith((f"({limit.kind})", others))
            for reason in reasons
        )


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _check(task: asyncio.Task[None]) -> None:
    """Raises what the task raised."""
    if task.done():
        task.result()
