"""A body's file: what was written comes back, or is said to be damaged; nothing between."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.disk import body_file
from zonemta_py.disk.body_file import BodyDamaged, BodyFile
from zonemta_py.mail.limits import CHUNK_BYTES

ID, OTHER = "18bcfe5680000001", "18bcfe5680000002"
CHUNKS = [bytes([number]) * (100 + number) for number in range(1, 21)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = BodyFile(tmp_path, ID)
    file.write(CHUNKS[:8])
    file.write(CHUNKS[8:])
    assert file.finish() == (tmp_path / ID).stat().st_size
    assert file.chunks == len(CHUNKS)
    return tmp_path


def damaged(folder: Path, message_id: str = ID, chunks: int = len(CHUNKS)) -> bool:
    """As `fault` says, and whoever reads each chunk finds the same in one of them, and nothing wrong in the others."""
    found = body_file.fault(folder, message_id, chunks)
    wrong = 0
    for number in range(1, chunks + 1):
        try:
            assert body_file.read(folder, message_id, chunks, number, 1) == [CHUNKS[number - 1]]
        except BodyDamaged:
            wrong += 1
    assert bool(found) == bool(wrong)
    return bool(found)


@pytest.mark.parametrize(("first", "most"), [(1, 20), (1, 1), (20, 1), (5, 8), (19, 8), (21, 1), (22, 8)])
def test_any_chunks_are_read(folder: Path, first: int, most: int) -> None:
    """Up to so many from there on; none behind the end."""
    assert body_file.read(folder, ID, 20, first, most) == CHUNKS[first - 1 : first - 1 + most]
    assert not damaged(folder)


def test_every_flipped_byte_is_found(folder: Path) -> None:
    """Wherever it is, but for the head, which only people read."""
    path = folder / ID
    data = path.read_bytes()
    for at in range(32, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert damaged(folder), at
    path.write_bytes(data)
    assert not damaged(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 40),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.unlink(),
    ],
)
def test_a_file_of_another_length_is_damaged(folder: Path, change: Callable[[Path], object]) -> None:
    """Cut, grown, empty, gone."""
    change(folder / ID)
    assert damaged(folder)


def test_the_file_of_another_message_is_damaged(folder: Path) -> None:
    """Nobody gets another's mail because somebody has renamed files."""
    (folder / ID).rename(folder / OTHER)
    assert damaged(folder, OTHER)


def test_another_number_of_chunks_is_damaged(folder: Path) -> None:
    """The store says how many there are."""
    for chunks in (19, 21, 1):
        with pytest.raises(BodyDamaged):
            body_file.read(folder, ID, chunks, 1, 1)


def test_what_is_given_up_is_gone(folder: Path) -> None:
    """Before the first write, after it, or after the end; and stays gone."""
    for writes in (0, 1, 2):
        file = BodyFile(folder, OTHER)
        for _ in range(writes):
            file.write([b"x"])
        file.abort()
        file.abort()
        with pytest.raises(OSError, match="abandoned"):
            file.write([b"y"])
        assert body_file.ids(folder) == [ID]


def test_a_file_that_is_there_already_is_left_alone(folder: Path) -> None:
    """Ids never come again; if one does, the older mail stays what it is."""
    with pytest.raises(FileExistsError):
        BodyFile(folder, ID).write([b"x"])
    assert not damaged(folder)


def test_nobody_else_may_read_it(folder: Path) -> None:
    """Mode 0600."""
    assert (folder / ID).stat().st_mode & 0o777 == 0o600


def test_a_write_that_the_disk_takes_a_part_of_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk takes what it can; the rest is written, or its error comes out."""
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda file, pieces: real(file, [b"".join(pieces)[:10]]))
    file = BodyFile(tmp_path, ID)
    file.write(CHUNKS)
    file.finish()
    assert not damaged(tmp_path)

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        BodyFile(tmp_path, OTHER).write(CHUNKS)


def test_other_names_are_no_bodies(folder: Path) -> None:
    """What else somebody puts there is left alone."""
    (folder / "README").write_text("mine")
    assert body_file.ids(folder) == [ID]


def test_large_chunks(tmp_path: Path) -> None:
    """Of full size, more than what is written back in between."""
    chunks = [os.urandom(CHUNK_BYTES) for _ in range(40)]
    file = BodyFile(tmp_path, ID)
    for at in range(0, 40, 8):
        file.write(chunks[at : at + 8])
    file.finish()
    assert body_file.read(tmp_path, ID, 40, 1, 40) == chunks
