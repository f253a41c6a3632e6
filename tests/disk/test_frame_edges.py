"""Framing to the byte: fragments made here by hand, from FORMAT.md, are what the code writes, reads and refuses."""

import struct

import google_crc32c
import pytest

from zonemta_py.disk import frame as framing
from zonemta_py.disk.frame import BROKEN, Damage, Record, fragments, frame, good_end, parse, record_at

FULL, FIRST, MIDDLE, LAST = 0x11, 0x12, 0x13, 0x14
ROOM = 32_768
CUT, WRONG = "cut off", "checksum does not match"


def fragment(kind: int, part: bytes = b"", length: int | None = None) -> bytes:
    """length: what its header says, if not the truth."""
    crc = google_crc32c.value(bytes([kind]) + part)
    return struct.pack("<IHB", crc, len(part) if length is None else length, kind) + part


def wrong(kind: int, part: bytes = b"", length: int | None = None) -> bytes:
    """The same, with a checksum that does not match."""
    good = fragment(kind, part, length)
    return bytes([good[0] ^ 1]) + good[1:]


def joined(record: Record) -> bytes:
    return struct.pack("<QQB", record.seq, record.ms, record.type) + record.body


def row(size: int, seq: int = 1) -> Record:
    """A record whose parts have together so many bytes, at least 17."""
    return Record(seq, 1_700_000_000_000, 5, b"r" * (size - 17))


def found(data: bytes, at: int = 0) -> tuple[list[tuple[int, int, int]], list[Damage]]:
    """(offset, kind, bytes) of each fragment, and the damages."""
    damages: list[Damage] = []
    return [(offset, kind, len(part)) for offset, kind, part in fragments(data, damages, at)], damages


def test_sizes_and_kinds_are_for_ever() -> None:
    """They are in every journal."""
    assert (framing.BLOCK_BYTES, framing.VERSION) == (ROOM, 1)
    assert (framing.FULL, framing.FIRST, framing.MIDDLE, framing.LAST) == (FULL, FIRST, MIDDLE, LAST)
    assert BROKEN not in (FULL, FIRST, MIDDLE, LAST)


# Writing


@pytest.mark.parametrize("offset", [0, 5, ROOM, 3 * ROOM + 5])
def test_what_fits_into_a_block_is_one_fragment(offset: int) -> None:
    fits = row(ROOM - offset % ROOM - 7)
    assert frame([fits], offset) == fragment(FULL, joined(fits))
    longer = row(ROOM - offset % ROOM - 6)
    assert frame([longer], offset) == fragment(FIRST, joined(longer)[:-1]) + fragment(LAST, joined(longer)[-1:])


@pytest.mark.parametrize("room", range(1, 40))
def test_what_is_left_of_a_block_is_filled_or_used(room: int) -> None:
    """By zeros where no header fits; a header alone fits into seven bytes."""
    before, one = row(ROOM - 7 - room), row(17)
    data = frame([before], 0)
    rest = room if room < 7 else 0
    assert data == fragment(FULL, joined(before)) + bytes(rest)
    if room < 7:
        expected = bytes(room) + fragment(FULL, joined(one))
    elif room < 24:
        expected = fragment(FIRST, joined(one)[: room - 7]) + fragment(LAST, joined(one)[room - 7 :])
    else:
        expected = fragment(FULL, joined(one)) + bytes(room - 24 if room - 24 < 7 else 0)
    assert frame([one], ROOM - room) == expected, "also where a file was cut before its filling"
    assert frame([before, one], 0) == data + expected[rest:]


def test_a_long_record_takes_whole_blocks_between() -> None:
    long = row(2 * ROOM)
    parts = joined(long)
    step = ROOM - 7
    pieces = [
        fragment(FIRST, parts[:step]),
        fragment(MIDDLE, parts[step : 2 * step]),
        fragment(LAST, parts[2 * step :]),
    ]
    assert frame([long, row(17, 2)], 0) == b"".join(pieces) + fragment(FULL, joined(row(17, 2)))
    assert frame([], 5) == b""


# Fragments


def test_fragments_are_read_to_the_last_byte() -> None:
    """From any block boundary; an empty part is one too."""
    data = fragment(FIRST) + fragment(LAST, b"x" * 100) + fragment(FULL)
    assert found(data) == ([(0, FIRST, 0), (7, LAST, 100), (114, FULL, 0)], [])
    behind = data + bytes(ROOM - len(data))
    assert found(behind + data, ROOM) == ([(ROOM, FIRST, 0), (ROOM + 7, LAST, 100), (ROOM + 114, FULL, 0)], [])
    assert [part for _, _, part in fragments(data, [])] == [b"", b"x" * 100, b""]


@pytest.mark.parametrize("before", [0, 7, 50])
@pytest.mark.parametrize("rest", range(1, 7))
def test_a_part_of_a_header_is_a_cut(before: int, rest: int) -> None:
    first = fragment(FULL, b"x" * (before - 7)) if before else b""
    assert found(first + fragment(FULL, b"y" * 9)[:rest]) == (
        [(0, FULL, before - 7)] if before else [],
        [Damage(before, CUT)],
    )


def test_filling_is_passed_over() -> None:
    """Six bytes at most: where seven are left a header is expected."""
    for rest in range(1, 7):
        data = fragment(FULL, b"x" * (ROOM - 7 - rest)) + bytes(rest)
        assert found(data + fragment(FULL)) == ([(0, FULL, ROOM - 7 - rest), (ROOM, FULL, 0)], [])
    data = fragment(FULL, b"x" * (ROOM - 14)) + bytes(7)
    assert found(data)[1] == [Damage(ROOM - 7, WRONG)]


@pytest.mark.parametrize("kind", [0x00, 0x10, 0x15, 0x21, 0x01])
def test_an_unknown_kind_is_damage(kind: int) -> None:
    """Though its checksum is right."""
    data = fragment(kind, b"x" * 30)
    assert found(data) == ([(0, BROKEN, 0)], [Damage(0, WRONG)])
    assert framing._whole(data, 0) is None


def test_a_fragment_never_leaves_its_block() -> None:
    """Though its checksum is right, and all its bytes are there."""
    for over in (1, 2, 9):
        data = fragment(FULL, b"\0" * (ROOM - 7 + over))
        assert found(data)[0][0] == (0, BROKEN, 0)
        assert framing._whole(data, 0) is None
    exact = fragment(FULL, b"\0" * (ROOM - 7))
    assert found(exact) == ([(0, FULL, ROOM - 7)], [])
    assert framing._whole(exact, 0) == ROOM


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (fragment(FULL, b"\0" * 100)[:-1], CUT),
        (fragment(FULL, b"\0" * 100)[:-4], CUT),
        (fragment(FULL, b"\0" * 100)[:-90], CUT),
        (fragment(FULL, b"\0" * 100)[:7], CUT),
        (wrong(FULL, b"\0" * 100), WRONG),
        (wrong(FULL, b"\0" * 100) + bytes(1), WRONG),
        (wrong(FULL, b"\0" * 100) + bytes(50), WRONG),
        (wrong(FULL), WRONG),
        (wrong(FULL, bytes(ROOM - 7), length=65_535), WRONG),
        (wrong(FULL, bytes(ROOM - 8), length=65_535), CUT),
        (wrong(FULL, bytes(ROOM - 9), length=65_535), CUT),
        (wrong(FULL, bytes(ROOM - 8), length=ROOM - 7), CUT),
        (wrong(FULL, bytes(9), length=20) + fragment(FULL, b"x"), WRONG),
    ],
)
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_damage_is_a_cut_only_if_its_end_is_missing(data: bytes, what: str, blocks: int) -> None:
    """By what its header says, which ends in its block at the latest; and nothing whole follows."""
    before = fragment(FULL, b"x" * (ROOM - 7)) * blocks
    parts, damages = found(before + data)
    assert parts[: blocks + 1] == [(n * ROOM, FULL, ROOM - 7) for n in range(blocks)] + [(blocks * ROOM, BROKEN, 0)]
    assert damages == [Damage(blocks * ROOM, what)]


def block(*damaged: int) -> bytes:
    """Three fragments that fill a block; of those that are named checksum and length are wrong."""
    parts = [b"a" * 100, b"b" * 200, b"c" * (ROOM - 321)]
    return b"".join(
        wrong(FULL, part, 9_999 if len(part) < 999 else None) if number in damaged else fragment(FULL, part)
        for number, part in enumerate(parts)
    )


@pytest.mark.parametrize("number", [0, 1])
def test_reading_goes_on_in_the_same_block(number: int) -> None:
    """At the first chain of whole fragments that ends with it, whatever comes in the next."""
    whole = [(0, FULL, 100), (107, FULL, 200), (314, FULL, ROOM - 321)]
    second = [(ROOM + at, kind, size) for at, kind, size in whole]
    second[number] = (second[number][0], BROKEN, 0)
    third = [(2 * ROOM, FULL, 100), (2 * ROOM + 107, FULL, 200), (2 * ROOM + 314, BROKEN, 0)]
    assert found(block() + block(number) + block(2)) == (
        whole + second + third,
        [Damage(second[number][0], WRONG), Damage(2 * ROOM + 314, WRONG)],
    )


def test_what_is_left_of_a_block_is_lost_if_no_chain_ends_with_it() -> None:
    """And reading goes on with the next."""
    data = block(0, 2) + block()
    assert [part[:2] for part in found(data)[0]] == [
        (0, BROKEN), (ROOM, FULL), (ROOM + 107, FULL), (ROOM + 314, FULL),
    ]  # fmt: skip


@pytest.mark.parametrize("before", [0, 7, 50, ROOM - 107, ROOM, ROOM + 50, 3 * ROOM + 50])
def test_where_a_whole_fragment_ends(before: int) -> None:
    """What the search behind damage goes by."""
    start = b"\0" * before
    room = ROOM - before % ROOM
    assert framing._whole(start + fragment(FULL), before) == before + 7
    assert framing._whole(start + fragment(LAST, b"x" * 60) + b"more", before) == before + 67
    assert framing._whole(start + fragment(FIRST, b"x" * (room - 7)) + b"more", before) == before + room
    assert framing._whole(start + fragment(FIRST, b"x" * (room - 6)) + b"more", before) is None
    assert framing._whole(start + wrong(FULL, b"x" * 60) + b"more", before) is None
    assert framing._whole(start + wrong(FULL, b"y" * 60) + b"more", before) is None
    assert framing._whole(start + fragment(FULL, b"x" * 60)[:-1], before) is None
    for rest in range(7):
        assert framing._whole(start + fragment(FULL)[:rest], before) is None


# Records


@pytest.mark.parametrize("before", [0, 7, 50, ROOM + 50])
def test_what_a_damaged_fragment_says(before: int) -> None:
    """As much of it as its length says, and as there is; nothing where not even the fixed fields are there."""
    start = b"s" * before
    said = row(40)
    for made in (wrong, fragment):
        assert record_at(start + made(FULL, joined(said)) + b"more", before) == said
    assert record_at(start + fragment(FULL, joined(said))[:-3], before) == said._replace(body=said.body[:-3])
    assert record_at(start + fragment(FULL, joined(row(17))), before) == row(17)
    assert record_at(start + fragment(FULL, joined(row(17))[:-1]), before) is None
    assert record_at(start + fragment(FULL, joined(said), length=16), before) is None
    assert record_at(start + fragment(FULL, joined(said), length=17), before) == row(17)
    for rest in range(8):
        assert record_at(start + fragment(FULL, joined(said))[:rest], before) is None


def read(data: bytes) -> tuple[list[int], list[Damage]]:
    """Numbers of the records, and the damages."""
    damages: list[Damage] = []
    return [record.seq for record in parse(data, damages)], damages


ONE, TWO = joined(row(40, 1)), joined(row(60, 2))


@pytest.mark.parametrize(
    ("data", "numbers", "damages"),
    [
        (fragment(FIRST, ONE[:9]) + fragment(MIDDLE, ONE[9:20]) + fragment(LAST, ONE[20:]), [1], []),
        (fragment(LAST, ONE) + fragment(FULL, TWO), [2], []),
        (fragment(MIDDLE, ONE) + fragment(LAST, ONE) + fragment(FULL, TWO), [2], []),
        (fragment(FULL, ONE) + fragment(LAST, TWO), [1], []),
        (fragment(FIRST, ONE) + fragment(FULL, TWO), [2], [Damage(47, "record without its end")]),
        (
            fragment(FIRST, ONE) + fragment(FIRST, TWO[:5]) + fragment(LAST, TWO[5:]),
            [2],
            [Damage(47, "record without its end")],
        ),
        (fragment(FULL, ONE[:16]) + fragment(FULL, TWO), [2], [Damage(0, "record too short")]),
        (fragment(FIRST, ONE[:9]) + wrong(MIDDLE, ONE[9:20]) + fragment(LAST, ONE[20:]), [], [Damage(16, WRONG)]),
        (fragment(FIRST, ONE), [], [Damage(47, CUT)]),
        (fragment(FIRST, ONE[:9]) + fragment(MIDDLE, ONE[9:]), [], [Damage(54, CUT)]),
        (fragment(FIRST, ONE) + b"abc", [], [Damage(47, CUT)]),
        (wrong(FULL, ONE) + fragment(FIRST, TWO), [], [Damage(0, WRONG), Damage(114, CUT)]),
        (wrong(FULL, ONE) + fragment(FIRST, TWO) + b"abc", [], [Damage(0, WRONG), Damage(114, CUT)]),
        (
            fragment(FIRST, ONE) + fragment(FIRST, TWO),
            [],
            [Damage(47, "record without its end"), Damage(114, CUT)],
        ),
    ],
)
def test_records_are_made_of_their_own_fragments_only(data: bytes, numbers: list[int], damages: list[Damage]) -> None:
    """One that lacks a fragment is lost, and each loss is named once, where it shows."""
    assert read(data) == (numbers, damages)


@pytest.mark.parametrize(
    ("kinds", "end"),
    [
        ([], 0),
        ([FULL], 1),
        ([FULL, FULL], 2),
        ([FIRST], 0),
        ([LAST], 0),
        ([MIDDLE, LAST], 0),
        ([FULL, LAST], 1),
        ([FULL, MIDDLE], 1),
        ([FIRST, MIDDLE], 0),
        ([FIRST, LAST], 2),
        ([FIRST, MIDDLE, LAST, MIDDLE], 3),
        ([FIRST, FULL, LAST], 2),
        ([FULL, FIRST], 1),
        ([LAST, FULL], 2),
    ],
)
@pytest.mark.parametrize("start", [0, ROOM])
def test_the_last_whole_record_ends_there(kinds: list[int], end: int, start: int) -> None:
    data = b"".join(fragment(kind, b"x" * 40) for kind in kinds)
    assert good_end(bytes(start) + data, start) == (start + 47 * end if end else 0)
    if not start:
        assert good_end(data) == 47 * end


def test_a_record_that_was_torn_within_is_no_whole_one() -> None:
    """A power cut may leave the last of its fragments, and not the one before: the end is where the record begins."""
    data = fragment(FULL, ONE) + fragment(FIRST, TWO[:9]) + wrong(MIDDLE, TWO[9:20]) + fragment(LAST, TWO[20:])
    assert found(data)[0][-1] == (len(data) - 7 - len(TWO[20:]), LAST, len(TWO[20:]))
    assert read(data)[0] == [1]
    assert good_end(data) == len(fragment(FULL, ONE))
