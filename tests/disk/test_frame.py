"""Framing: what was written is read again, whatever is cut, flipped or skipped; a wrong record never comes out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.disk.frame import BLOCK_BYTES, Damage, Record, frame, good_end, parse


def row(seq: int, size: int = 10) -> Record:
    return Record(seq, 1_700_000_000_000 + seq, seq % 12, bytes([seq % 251 + 1]) * size)


def read(data: bytes) -> tuple[list[Record], list[Damage]]:
    damages: list[Damage] = []
    return list(parse(data, damages)), damages


lengths = st.one_of(
    st.integers(0, 300), st.integers(BLOCK_BYTES - 40, BLOCK_BYTES + 10), st.integers(2 * BLOCK_BYTES, 3 * BLOCK_BYTES)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(lengths, max_size=12), st.data())
def test_what_is_written_in_any_portions_is_read_again(sizes: list[int], data: st.DataObject) -> None:
    """Records of any length, appended in any portions, come back whole, in order, without a damage."""
    records = [row(index + 1, size) for index, size in enumerate(sizes)]
    written, start = b"", 0
    while start < len(records):
        stop = data.draw(st.integers(start + 1, len(records)))
        written += frame(records[start:stop], len(written))
        start = stop
    assert read(written) == (records, [])
    assert good_end(written) == len(written.rstrip(b"\0")) or not records or len(written) - good_end(written) < 7


@settings(max_examples=60, deadline=None)
@given(st.lists(lengths, min_size=1, max_size=8), st.data())
def test_a_cut_costs_only_what_is_behind_it(sizes: list[int], data: st.DataObject) -> None:
    """Cut anywhere: the records that end before the cut are read, nothing else is, and `good_end` says where."""
    records = [row(index + 1, size) for index, size in enumerate(sizes)]
    ends, written = [], b""
    for record in records:
        written += frame([record], len(written))
        ends.append(good_end(written))
    cut = data.draw(st.one_of(st.integers(0, len(written)), st.sampled_from(ends)))
    found, damages = read(written[:cut])
    whole = [record for record, end in zip(records, ends, strict=True) if end <= cut]
    assert found == whole
    assert good_end(written[:cut]) == (ends[len(whole) - 1] if whole else 0)
    if written[good_end(written[:cut]) : cut].strip(b"\0"):
        assert [damage.what for damage in damages] == ["cut off"]


def test_a_cut_inside_a_fragment_s_header_is_one_damage() -> None:
    """The record's first fragment is whole, the second is cut within its header: one cut, named once."""
    written = frame([row(1, 0), row(2, 32_728)], 0)
    found, damages = read(written[: 32_768 + 1])
    assert found == [row(1, 0)]
    assert [damage.what for damage in damages] == ["cut off"]


def test_every_single_flipped_byte_is_damage_or_harmless() -> None:
    """Flip any byte of a small journal: what is read is a part of what was written, and a loss is always reported."""
    records = [row(1, 20), row(2, 0), row(3, 7), row(4, 90)]
    good = frame(records, 0)
    for at in range(len(good)):
        for mask in (0x01, 0x80, 0xFF):
            bad = bytearray(good)
            bad[at] ^= mask
            found, damages = read(bytes(bad))
            assert all(record in records for record in found)
            assert damages or found == records


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 4 * BLOCK_BYTES), st.integers(1, 3000), st.binary(min_size=1, max_size=4))
def test_damage_across_blocks_never_makes_a_wrong_record(at: int, length: int, filling: bytes) -> None:
    """Overwrite a stretch with anything: only written records come out, and a loss is reported."""
    records = [row(1, 100), row(2, 3 * BLOCK_BYTES), row(3, 50), row(4, BLOCK_BYTES)]
    bad = bytearray(frame(records, 0))
    bad[at : at + length] = (filling * length)[:length]
    found, damages = read(bytes(bad))
    assert all(record in records for record in found)
    assert damages or found == records


def test_a_middle_that_became_zeros_does_not_join_its_neighbours() -> None:
    """A block of zeros, as a file system leaves it after a power cut, ends the record it was part of."""
    records = [row(1, 3 * BLOCK_BYTES), row(2)]
    data = bytearray(frame(records, 0))
    data[BLOCK_BYTES : 2 * BLOCK_BYTES] = bytes(BLOCK_BYTES)
    found, damages = read(bytes(data))
    assert found == [row(2)]
    assert damages


@settings(max_examples=30, deadline=None)
@given(st.lists(lengths, min_size=1, max_size=12))
def test_reading_starts_at_any_block(sizes: list[int]) -> None:
    """From each block boundary on, every record that begins there or behind is read, and no other."""
    records, offsets, written = [row(index + 1, size) for index, size in enumerate(sizes)], [], b""
    for record in records:
        offsets.append(len(written))
        written += frame([record], len(written))
    for start in range(0, len(written), BLOCK_BYTES):
        found, damages = read(written[start:])
        assert found == [r for r, offset in zip(records, offsets, strict=True) if offset >= start]
        assert damages == []


@pytest.mark.parametrize("room", range(30))
def test_a_header_never_crosses_a_block(room: int) -> None:
    """Near the end of a block: less than seven bytes are filled with zeros, and the record is read again."""
    filler = row(1, BLOCK_BYTES - 7 - 17 - room)
    data = frame([filler, row(2)], 0)
    assert read(data) == ([filler, row(2)], [])
    if room < 7:
        assert data[BLOCK_BYTES - room : BLOCK_BYTES] == bytes(room)
