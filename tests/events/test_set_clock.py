"""The feed on a machine whose clock is set: what waits, and how long it has waited, is on steady time."""

import random
from pathlib import Path

import pytest
from survival.clock import MachineClock
from survival.shim import missing

from tests.events.test_feed import running, until

YEARS_S = 2 * 365 * 86_400
LATE_S = 600
"""Less than any setting of the clock, and more than this test takes."""


@pytest.mark.skipif(bool(missing()), reason="no compiler")
async def test_a_clock_that_is_set_holds_up_no_sink(memory: Path, tmp_path: Path) -> None:
    """±1 hour and ±2 years, while a receiver is away and afterwards: all arrives soon, and no age is off by that."""
    clock, dice = MachineClock(tmp_path / "clock"), random.Random(8)
    steps = [3600.0, -3600.0, YEARS_S, -YEARS_S]
    dice.shuffle(steps)
    more = "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 4194304\nring_flush_s = 0.1"
    async with running(memory, more, environment=clock.environment) as run:
        await run.mail(5)
        await run.all_sent()
        await run.hook.stop()
        await run.mail(30)
        await run.mta.drained()
        await until(lambda: run.state()["state"] == "down", "it is not known to be down")
        for step in steps:
            clock.move(step)
            before = run.state()
            await until(lambda before=before: run.state()["lag_s"] not in (0, before["lag_s"]), "no state is written")
            await until(lambda: 0 < run.state()["lag_s"] < LATE_S, f"{step}: {run.state()}", 10)
            await run.mail(1)
        await run.hook.start()
        await run.all_sent()
        clock.move(-YEARS_S)
        await run.mail(3)
        await run.all_sent()
        assert run.state()["dropped"] == 0
