"""The ledger: a record is stable before the store is given what it says, and counts as applied after that only."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import records
from zonemta_py.disk.records import Type
from zonemta_py.queue.admin import orders
from zonemta_py.queue.api import HELD
from zonemta_py.queue.lifecycle import in_doubt

Make = Callable[..., Any]


async def test_the_store_is_given_records_in_their_order_and_only_stable_ones(house: Make) -> None:
    """What is open holds the mark back, whichever is closed first."""
    home = await house()
    ledger, journal, given = home.queue.core.ledger, home.queue.core.journal, list[str]()
    until = ledger.applied()

    def apply(what: str) -> Callable[[], None]:
        return lambda: given.append(f"{what} {journal.stable_seq >= numbers[what]}")

    body = records.pack(["nobody", ["none", ""], [], ""])
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
        with pytest.raises(ZeroDivisionError):
            await home.queue.ask(what, id=message_id)
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
        await home.queue.core.journal.stable()
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
    ledger, journal = home.queue.core.ledger, home.queue.core.journal
    body = records.pack(["nobody", ["none", ""], [], ""])
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
