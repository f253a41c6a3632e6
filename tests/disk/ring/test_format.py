"""FORMAT.md's examples are what is written, and are read as what they say."""

import re
from pathlib import Path

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
