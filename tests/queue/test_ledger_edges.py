"""The ledger to the byte and the millisecond: when a segment ends, what is news, which records are open."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.disk.frame import Record
from zonemta_py.journal import records, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import END_BODY
from zonemta_py.queue.core.ledger import Ledger

Make = Callable[..., Any]
BODY = packing.pack(["nobody", ["none", ""], [], ""])
SEGMENT_BYTES = 65_536


async def written(home: Any, since: int = 0) -> list[Record]:
    """The journal's records from there on."""
    await home.queue.core.disk.journal.stable()
    return list(segments.read(home.folder / "journal", since))


async def test_a_journal_begins_with_a_segment(house: Make) -> None:
    """Which says its own number, and what may come behind it."""
    home = await house()
    first = (await written(home))[0]
    assert (first.seq, first.type) == (1, Type.SEGMENT)
    body = packing.unpack(first.body)
    assert (body["version"], body["first"], len(body["floor"])) == (records.FORMAT, 1, 16)


async def test_a_ledger_begins_a_segment_of_its_own(house: Make) -> None:
    """It has none to end; and whoever waits for closed segments looks once at the start."""
    home = await house()
    core = home.queue.core
    ledger = Ledger(
        home.config.queue, core.disk.journal, core.disk.segments, core.disk.ids, core.clock, home.damages.append
    )
    assert ledger.rotated.is_set()
    assert not ledger.rotate_with_news()
    next_seq = core.disk.journal.next_seq
    assert ledger.append(Type.STANDING, BODY) == next_seq + 1
    assert [record.type for record in await written(home, next_seq)] == [Type.SEGMENT, Type.STANDING]


async def test_a_new_segment_follows_the_end_of_the_old(house: Make) -> None:
    home = await house()
    core = home.queue.core
    next_seq, before = core.disk.journal.next_seq, len(core.disk.segments.rows())
    core.disk.ledger.rotated.clear()
    core.disk.ledger.rotate()
    assert core.disk.ledger.rotated.is_set()
    end, begin = await written(home, next_seq)
    assert (end.type, end.body, begin.type) == (Type.END, END_BODY, Type.SEGMENT)
    assert end.ms == begin.ms == core.clock.ms()
    body = packing.unpack(begin.body)
    assert (body["version"], body["first"]) == (records.FORMAT, next_seq + 1) == (records.FORMAT, begin.seq)
    assert [row[:2] for row in core.disk.segments.rows()[before:]] == [[begin.seq, body["floor"]]]


@pytest.mark.parametrize(("size", "full"), [(SEGMENT_BYTES - 48, False), (SEGMENT_BYTES - 47, True)])
async def test_a_segment_is_full_when_it_is_larger_than_configured(house: Make, size: int, full: bool) -> None:
    """By the bodies and 24 bytes for each record; the record that fills it is its last."""
    home = await house(queue={"segment_bytes": SEGMENT_BYTES})
    ledger, journal_line = home.queue.core.disk.ledger, home.queue.core.disk.journal
    for _ in range(2):
        ledger.rotate()
        begun = journal_line.next_seq
        assert ledger.append(Type.STANDING, BODY) == begun
        assert ledger.append(Type.STANDING, bytes(size - len(BODY))) == begun + 1
        assert ledger.append(Type.STANDING, BODY) == begun + 2 + (2 if full else 0)


async def test_a_record_is_of_now_unless_it_says_when(house: Make) -> None:
    home = await house()
    core = home.queue.core
    began = core.disk.journal.next_seq
    for write in (
        core.disk.ledger.append,
        core.disk.ledger.open,
        lambda kind, body, *ms: core.disk.ledger.write(kind, body, lambda: None, *ms),
    ):
        write(Type.STANDING, BODY)
        write(Type.STANDING, BODY, 12_345)
    assert [record.ms for record in await written(home, began)] == [core.clock.ms(), 12_345] * 3


@pytest.mark.parametrize("kind", [kind for kind in Type if kind not in (Type.SEGMENT, Type.END, Type.POSITION)])
async def test_anything_but_a_position_is_news(house: Make, kind: Type) -> None:
    """News is told once; and a position behind it does not make it old."""
    home = await house()
    ledger, journal_line = home.queue.core.disk.ledger, home.queue.core.disk.journal
    ledger.rotate()
    ledger.append(Type.POSITION, packing.pack({}))
    next_seq = journal_line.next_seq
    assert not ledger.rotate_with_news()
    assert journal_line.next_seq == next_seq
    ledger.append(kind, BODY)
    ledger.append(Type.POSITION, packing.pack({}))
    assert ledger.rotate_with_news()
    assert journal_line.next_seq == next_seq + 4
    assert not ledger.rotate_with_news()


async def test_a_segment_with_news_is_closed_at_its_age(house: Make) -> None:
    """Not before; and the next one's age is its own."""
    home = await house(queue={"segment_s": 100})
    ledger, journal_line, clock = home.queue.core.disk.ledger, home.queue.core.disk.journal, home.clock
    for _ in range(2):
        ledger.rotate()
        ledger.append(Type.STANDING, BODY)
        began, next_seq = clock.now_s, journal_line.next_seq
        for age in (0, 1, 50, 99.95):
            clock.now_s = began + age
            ledger.rotate_old()
            assert journal_line.next_seq == next_seq
        clock.now_s = began + 100
        ledger.rotate_old()
        assert journal_line.next_seq == next_seq + 2
        ledger.append(Type.STANDING, BODY)
        clock.now_s += 150
        ledger.rotate_old()
        assert journal_line.next_seq == next_seq + 5
        clock.now_s += 150
        ledger.rotate_old()
        assert journal_line.next_seq == next_seq + 5, "it has no news"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1), (1, 2, 0, 3)])
async def test_the_mark_is_below_the_oldest_that_is_open(house: Make, order: tuple[int, ...]) -> None:
    """Whatever is closed in between, new records or those of a replay, with others among them or not."""
    home = await house()
    core = home.queue.core
    ledger = Ledger(
        home.config.queue, core.disk.journal, core.disk.segments, core.disk.ids, core.clock, home.damages.append
    )
    numbers = [100, 1000, 1002, 5000]
    for number in numbers:
        ledger.expect(number)
    for place, which in enumerate(order, 1):
        ledger.close(int(str(numbers[which])))  # the number counts, not the object
        still = [number for at, number in enumerate(numbers) if at not in order[:place]]
        assert ledger.applied() == (min(still) - 1 if still else core.disk.journal.stable_seq)
    opened = ledger.open(Type.STANDING, BODY)
    assert ledger.applied() == opened - 1


async def test_what_fails_is_told_and_stays_open(house: Make) -> None:
    """It is raised all the same: whoever gave it must not go on."""
    home = await house()
    ledger = home.queue.core.disk.ledger
    seq = ledger.open(Type.STANDING, BODY)
    later = ledger.open(Type.STANDING, BODY)
    error = KeyError("one")

    def fail() -> None:
        raise error

    with pytest.raises(KeyError):
        ledger.apply(seq, fail)
    assert home.damages == [error]
    home.damages.clear()
    ledger.apply(later, lambda: None)
    assert ledger.applied() == seq - 1
    ledger.apply(seq, lambda: None)
    await home.queue.core.disk.journal.stable()
    assert ledger.applied() == later
