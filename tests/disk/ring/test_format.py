"""FORMAT.md's examples are what is written, and are read as what they say."""

import re
import struct
from itertools import product
from pathlib import Path
from zlib import crc32

import pytest

from zonemta_py.disk.ring import pages
from zonemta_py.disk.ring.pages import Metadata, Page

TEXT = (Path(pages.__file__).parent / "FORMAT.md").read_text()
METADATA = Metadata(4096, 8, 0x5A4D5441, writes=2, num_pages=2)
PAGES = (Page(1, False, False, [b'{"id":1}', b'{"id":2}']), Page(8, True, True, [b'{"id":9}']))


def examples() -> list[bytes]:
    blocks = re.findall(r"```\n((?:[0-9a-f]{4}  .*\n)+)```", TEXT)
    return [b"".join(bytes.fromhex(line[6:54]) for line in block.splitlines()) for block in blocks]


def test_the_examples() -> None:
    metadata, *shown = examples()
    assert metadata == pages.packed_metadata(METADATA)
    reserved = bytes(pages.SLOTS[1]) + metadata
    assert pages.unpacked_metadata(reserved) == METADATA
    for page, data in zip(PAGES, shown, strict=True):
        assert pages.packed_page(page, 4096, METADATA.ring_id) == data.ljust(4096, b"\0")
        assert pages.unpacked_page(data, METADATA.ring_id) == page


def test_sequence_numbers_and_places() -> None:
    assert [pages.sequence(at, False, 5) for at in range(5)] == [1, 2, 3, 4, 5]
    assert [pages.sequence(at, True, 5) for at in range(5)] == [5, 4, 3, 2, 1]
    assert (pages.room(4096) - pages.needed(b""), 4096 - pages.OVERHEAD_BYTES) == (4076, 4076)


def test_every_flip_is_noticed() -> None:
    """Of metadata, and of a page as far as it is used."""
    packed = pages.packed_metadata(METADATA)
    for at in range(len(packed)):
        data = bytearray(packed)
        data[at] ^= 1
        assert pages.unpacked_metadata(bytes(data)) is None
    packed = pages.packed_page(PAGES[0], 4096, METADATA.ring_id)
    for at in range(40):
        data = bytearray(packed)
        data[at] ^= 128
        assert pages.unpacked_page(bytes(data), METADATA.ring_id) is None
    assert pages.unpacked_page(packed, METADATA.ring_id + 1) is None
    assert not pages.is_blank(packed)
    assert pages.is_blank(bytes(4096))


@pytest.mark.parametrize(
    ("size", "count"), [(0, 0), (0, 5), (4096, 0), (4096, 1), (5000, 4), (4096, 65_536), (4096, 4_294_967_295)]
)
def test_sizes_that_no_ring_has(size: int, count: int) -> None:
    """Whatever its CRC: what is read or made of it would be without bounds."""
    assert pages.unpacked_metadata(pages.packed_metadata(Metadata(size, count, 1))) is None


@pytest.mark.parametrize(("count", "records"), [(2, b"\xff\xff\xff\xff"), (1, b""), (1, b"\x09\0\0\0x"), (0, b"x")])
def test_records_that_do_not_end_where_the_page_says(count: int, records: bytes) -> None:
    head = struct.pack("<HHII", 1, 0, len(records), count)
    page = struct.pack("<I", crc32(records, crc32(head, 7))) + head + records
    assert pages.unpacked_page(page.ljust(4096, b"\0"), 7) is None


def test_flags() -> None:
    for falling, partial, apart in product((False, True), repeat=3):
        page = Page(3, falling, partial, [b"x"], apart)
        assert pages.unpacked_page(pages.packed_page(page, 4096, 1), 1) == page
