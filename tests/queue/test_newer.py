"""A queue that a newer version has used is left alone, with one sentence: nothing of it is damage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from zonemta_py.disk import frame, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import FORMAT, Type
from zonemta_py.journal.version import StoreTooNew, check

Make = Callable[..., Any]


def newer_bodies(folder: Path) -> None:
    """As a version that has changed bodies: a segment of its own."""
    last = max(record.seq for record in segments.read(folder / "journal"))
    body = {"version": FORMAT + 1, "first": last + 1, "floor": "f" * 16}
    data = frame.frame([Record(last + 1, 1, Type.SEGMENT, pack(body))], 0)
    (folder / "journal" / f"{last + 1:016d}{segments.SUFFIX}").write_bytes(data)


def newer_framing(folder: Path) -> None:
    """As a version that has changed fragments."""
    last = max(record.seq for record in segments.read(folder / "journal"))
    part = bytes([frame.VERSION + 1 << 4 | 1]) + b"whatever that means"
    head = google_crc32c.value(part).to_bytes(4, "little") + (len(part) - 1).to_bytes(2, "little")
    (folder / "journal" / f"{last + 1:016d}{segments.SUFFIX}").write_bytes(head + part)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("newer", [newer_bodies, newer_framing])
async def test_it_is_refused_and_nothing_changes(house: Make, newer: Callable[[Path], None]) -> None:
    """By a start, and by fsck with and without a repair."""
    home = await house()
    await home.put("bob@x.test")
    await home.rest()
    copy = home.image()
    home.abandon()
    home.folder = copy
    newer(copy)
    before = everything(copy)
    with pytest.raises(StoreTooNew, match=r"by a newer version of zonemta-py .* install that version again"):
        await home.open()
    for repair in (False, True):
        with pytest.raises(StoreTooNew):
            home.check(repair=repair)
    assert everything(copy) == before


async def test_a_queue_of_this_version_or_an_older_one_is_opened(house: Make) -> None:
    """Also one whose latest file begins in the middle of a segment, and one whose newest segment is in the archive."""
    home = await house()
    await home.put("bob@x.test")
    await home.rest()
    check(home.folder)
    first = next(segments.read(home.folder / "journal"))
    assert packing.unpack(first.body)["version"] == FORMAT
    (home.folder / "journal" / f"{9_999:016d}{segments.SUFFIX}").write_bytes(b"torn")
    check(home.folder)
