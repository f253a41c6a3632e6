"""The ledger: a record is stable before the store is given what it says, and counts as applied after that only."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.journal.records import Type
from zonemta_py.queue.admin import orders
from zonemta_py.queue.api import HELD, QueueFault
from zonemta_py.queue.lifecycle import in_doubt
from zonemta_py.queue.lifecycle.settle import Settling
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]


async def test_the_store_is_given_records_in_their_order_and_only_stable_ones(house: Make) -> None:
    """What is open holds the mark back, whichever is closed first."""
    home = await house()
    ledger, journal, given = home.queue.core.disk.ledger, home.queue.core.disk.journal, list[str]()
    until = ledger.applied()

    def apply(what: str) -> Callable[[], None]:
        return lambda: given.append(f"{what} {journal.stable_seq >= numbers[what]}")

    body = packing.pack(["nobody", ["none", ""], [], ""])
    slow = ledger.open(Type.STANDING, body)
    numbers = {what: ledger.write(Type.STANDING, body, apply(what)) for what in ("first", "second")}
    later = ledger.open(Type.STANDING, body)
    assert given == []
    await journal.stable()
    assert given == ["first True", "second True"]
    assert ledger.applied() == slow - 1 >= until
    ledger.close(later)
    assert ledger.applied() == slow - 1
    ledger.close(slow)
    assert ledger.applied() == journal.stable_seq == later


@pytest.mark.parametrize("what", ["release", "drop"])
async def test_an_order_that_was_recorded_is_carried_out_after_a_crash(
    house: Make, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The crash comes before the store has been given it, and after other mail and a position."""
    home = await house()
    message_id = await home.put("bob@x.test", "cid@x.test")
    for delivery in await home.leases():
        await home.settle(delivery, HELD)
    await home.rest()
    with monkeypatch.context() as patch:
        patch.setattr(orders, f"apply_{what}", stumble)
        with pytest.raises(QueueFault, match="a fault of its own"):
            await home.queue.ask(what, id=message_id)
    assert [type(error) for error in home.damages] == [ZeroDivisionError], "the process would have ended"
    home.damages.clear()
    await home.put("eve@y.test")
    await home.queue.position()
    await home.crash()
    sizes = await home.sizes()
    assert (sizes["held"], sizes["queued"] + sizes["deferred"]) == (0, 3 if what == "release" else 1)
    await home.sound()


async def test_who_is_in_doubt_is_in_the_journal_before_the_store(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sender dies, and then everything, before the store was given the list."""
    home = await house(zones=[{"name": "z", "in_doubt": "hold"}])
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    with monkeypatch.context() as patch:
        patch.setattr(in_doubt, "_resolve_all", lambda *_: None)
        home.queue.lost(home.queue.leases.out[delivery.lease].worker)
        await home.queue.core.disk.journal.stable()
    await home.crash()
    assert (await home.sizes())["held"] == 1
    assert [row["recipient"] for row in await home.queue.ask("in-doubt")] == ["bob@x.test"]
    await home.sound()


def stumble(*_: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("seed", range(12))
async def test_no_record_counts_as_applied_before_its_turn(house: Make, seed: int) -> None:
    """Written, opened, closed in any order: the mark stays below the oldest that is open, and never goes back."""
    home, die = await house(), random.Random(seed)
    ledger, journal = home.queue.core.disk.ledger, home.queue.core.disk.journal
    body = packing.pack(["nobody", ["none", ""], [], ""])
    waiting, given, mark = list[int](), set[int](), ledger.applied()

    def write() -> None:
        number = ledger.write(Type.STANDING, body, lambda: given.add(number))
        written.append(number)

    written = list[int]()
    for _ in range(60):
        act = die.choice((write, write, lambda: waiting.append(ledger.open(Type.STANDING, body)), None))
        if act is not None:
            act()
        elif waiting:
            ledger.close(waiting.pop(die.randrange(len(waiting))))
        if die.random() < 0.2:
            await journal.stable()
        owed = [*waiting, *(number for number in written if number not in given)]
        assert mark <= ledger.applied() < min(owed, default=journal.next_seq)
        mark = ledger.applied()
    await journal.stable()
    for number in die.sample(waiting, len(waiting)):
        ledger.close(number)
    assert given == set(written)
    assert ledger.applied() == journal.stable_seq == journal.next_seq - 1


async def test_a_result_that_could_not_be_applied_ends_the_process_and_is_applied_by_the_next(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it may have been counted: none of that may be written, and nothing after it counts as applied."""
    home = await house()
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    reached = asyncio.Event()

    def fall(*_: Any) -> None:
        reached.set()
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Settling, "apply", fall)
        settled = asyncio.ensure_future(home.settle(delivery))
        await asyncio.wait_for(reached.wait(), 60)
    assert [type(error) for error in home.damages] == [ZeroDivisionError], "the process would have ended"
    home.damages.clear()
    assert home.queue.core.disk.ledger.applied() < home.queue.core.disk.journal.stable_seq
    settled.cancel()
    await home.crash()
    assert sum((await home.sizes()).values()) == 0
    assert home.queue.core.counters.message_count == 0
    assert home.queue.core.disk.ledger.applied() == home.queue.core.disk.journal.stable_seq
    await home.sound()


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        ("StoreDamaged('two blocks')", os.EX_IOERR, "zonemta: two blocks; starting again to repair it"),
        ("KeyError('rows')", os.EX_SOFTWARE, "KeyError: 'rows'"),
    ],
)
def test_what_could_not_be_applied_is_told_before_the_process_ends(
    tmp_path: Path, error: str, status: int, told: str
) -> None:
    """Only damage makes the next start repair the store; a fault of ours leaves its traceback."""
    program = f"""
from pathlib import Path
from zonemta_py.disk.leveldb.store import StoreDamaged
from zonemta_py.queue.recovery.open_store import stop_to_recover

def blunder():
    raise {error}

try:
    blunder()
except Exception as error:
    stop_to_recover(Path({str(tmp_path)!r}))(error)
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == status
    assert told in done.stderr.splitlines()
    assert ("in blunder" in done.stderr) == (status == os.EX_SOFTWARE)
    assert (tmp_path / REPAIR_MARK).exists() == (status == os.EX_IOERR)
