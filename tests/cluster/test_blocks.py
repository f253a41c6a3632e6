"""Blocks of a queue's log: what is cut is joined again, and what is lacking or damaged is named, never passed over."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.cluster import blocks
from zonemta_py.cluster.blocks import BlockKind, Joiner, Pen, cut
from zonemta_py.disk.packing import pack

PEN = Pen(3, 77, 12345)
ROWS = st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=3000)), max_size=40)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 1000)


def written(values: list[tuple[BlockKind, object]], first: int = 1) -> list[bytes]:
    found: list[bytes] = []
    for kind, value in values:
        found += cut(kind, PEN, first + len(found), pack(value))
    return found


@given(
    st.lists(st.tuples(st.sampled_from([BlockKind.STORE, BlockKind.JOURNAL, BlockKind.LIVE]), ROWS), max_size=8),
    st.integers(1, 99),
)
def test_what_is_cut_is_joined(values: list[tuple[BlockKind, object]], first: int) -> None:
    """Of whatever size; each block knows its messages."""
    joiner, at = Joiner(first), first
    found = []
    for number, data in enumerate(written(values, first), first):
        block = joiner.take(number, data)
        if block is not None:
            found.append((block.kind, [tuple(row) for row in block.value]))
            assert (block.first, block.last, block.epoch, block.base) == (at, number, PEN.epoch, PEN.base)
            at = number + 1
    assert found == values
    assert joiner.faults == []


@given(
    st.lists(st.tuples(st.sampled_from([BlockKind.STORE, BlockKind.JOURNAL]), ROWS), min_size=2, max_size=8), st.data()
)
def test_damage_is_named_and_the_rest_is_kept(values: list[tuple[BlockKind, object]], data: st.DataObject) -> None:
    """A message that is gone, or has one wrong bit, costs its own block and no other."""
    messages = dict(enumerate(written(values), 1))
    struck = data.draw(st.sampled_from(sorted(messages)[:-1]))
    if data.draw(st.booleans()):
        del messages[struck]
    else:
        changed = bytearray(messages[struck])
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        messages[struck] = bytes(changed)
    joiner = Joiner(1)
    found = [block for number, one in messages.items() if (block := joiner.take(number, one)) is not None]
    assert len(joiner.faults) == 1
    assert str(struck) in joiner.faults[0]
    assert len(found) == len(values) - 1
    assert not any(block.first <= struck <= block.last for block in found)


def test_what_its_writer_did_not_finish_is_void() -> None:
    """The next process begins with TAKEOVER, and nobody was told of it; what comes late of the dead one is void too."""
    large = [[b"key", random.Random(1).randbytes(5000)]]
    begun = cut(BlockKind.STORE, PEN, 1, pack(large))
    assert len(begun) > 2
    after = Pen(4, 77, 999)
    messages = [*begun[:2], cut(BlockKind.TAKEOVER, after, 3, pack([4, "b"]))[0]]
    messages.append(cut(BlockKind.STORE, PEN, 4, pack([]))[0])
    messages.append(cut(BlockKind.STORE, after, 5, pack([[b"k", b"v"]]))[0])
    joiner = Joiner(1)
    found = [block for number, one in enumerate(messages, 1) if (block := joiner.take(number, one)) is not None]
    assert [block.kind for block in found] == [BlockKind.TAKEOVER, BlockKind.STORE]
    assert (joiner.faults, joiner.void) == ([], 1)


def test_a_message_in_another_place_is_no_block() -> None:
    """A stream that was put together of another one."""
    joiner = Joiner(1)
    assert joiner.take(1, cut(BlockKind.STORE, PEN, 2, pack([]))[0]) is None
    assert joiner.take(2, b"something else") is None
    assert len(joiner.faults) == 2


@given(ROWS, st.lists(st.tuples(st.integers(1, 99), st.integers(0, 9), st.integers(0, 99), st.binary(max_size=50))))
def test_a_batch_and_records_in_one_message_are_two_blocks(rows: list[object], records: list[object]) -> None:
    """Readers see no difference but that both have the same place."""
    joiner = Joiner(5)
    messages = cut(BlockKind.BOTH, PEN, 5, pack([[7, rows], records]))
    [block] = [one for number, data in enumerate(messages, 5) if (one := joiner.take(number, data)) is not None]
    batch, journal = blocks.apart(block)
    assert (batch.kind, batch.value[0], [*map(tuple, batch.value[1])]) == (BlockKind.STORE, 7, rows)
    assert (journal.kind, [*map(tuple, journal.value)]) == (BlockKind.JOURNAL, records)
    assert (batch.first, batch.last) == (journal.first, journal.last) == (5, 4 + len(messages))
    assert blocks.apart(batch) == (batch,)
