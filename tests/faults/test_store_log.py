"""LevelDB's log, mended: what is written as its own format describes it, and read by LevelDB itself."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.leveldb import log as store_log
from zonemta_py.disk.leveldb.store import Store, StoreDamaged, StoreFailed, StoreLocked

BATCHES = st.lists(st.binary(min_size=1, max_size=400) | st.integers(30_000, 70_000).map(bytes), min_size=1, max_size=8)


@given(BATCHES)
def test_an_intact_log_is_left_alone(batches: list[bytes]) -> None:
    """None: there is nothing to mend."""
    assert store_log.repair(store_log.build(batches)) is None


@given(BATCHES, st.data())
def test_a_flipped_bit_costs_one_batch_and_changes_none(batches: list[bytes], data: st.DataObject) -> None:
    """All others are kept, in order and unchanged, also those behind it; what is lost is there to be named."""
    whole = bytearray(store_log.build(batches))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    log = store_log.read(bytes(whole))
    kept = [batch for _, batch in log.batches]
    assert len(kept) >= len(batches) - 1
    assert len(kept) == len(batches) or any(log.lost) or log.holes
    rest = iter(batches)
    assert all(batch in rest for batch in kept)
    mended = store_log.repair(bytes(whole))
    assert mended is None or [batch for _, batch in store_log.read(mended).batches] == kept


@given(BATCHES, st.data(), st.integers(0, 40_000))
def test_a_log_that_ends_early_is_torn_and_not_damaged(batches: list[bytes], data: st.DataObject, zeros: int) -> None:
    """Cut anywhere: what is incomplete there is the tail; zeros behind a whole batch are nothing at all."""
    whole = store_log.build(batches)
    end = data.draw(st.integers(0, len(whole)))
    log = store_log.read(whole[:end])
    assert (log.lost, log.holes, log.tail) == ([], False, whole[log.end : end])
    kept = [batch for _, batch in log.batches]
    assert kept == batches[: len(kept)]
    padded = store_log.read(whole + bytes(zeros))
    assert ([batch for _, batch in padded.batches], padded.lost, padded.holes) == (batches, [], False)


def test_a_page_that_never_reached_the_disk_is_a_tear() -> None:
    """A power cut may leave zeros in the middle of the batch that was being written; behind it nothing is whole."""
    first, second = os.urandom(5000), os.urandom(50_000)
    whole = bytearray(store_log.build([first, second]))
    whole[12_288:20_480] = bytes(8192)
    log = store_log.read(bytes(whole))
    assert ([batch for _, batch in log.batches], log.lost, log.holes) == ([first], [], True)
    assert log.end == 5007


def test_a_record_in_the_body_of_a_letter_is_none() -> None:
    """A message may contain the bytes of a record; damage before it must not make that count."""
    forged = store_log.build([b"forged"])
    whole = bytearray(store_log.build([b"x" * 300 + forged + forged + b"y" * 300, b"next"]))
    whole[4] ^= 0x10  # the length: the walk has to search
    assert [batch for _, batch in store_log.read(bytes(whole)).batches][-1] == b"next"
    assert b"forged" not in [batch for _, batch in store_log.read(bytes(whole)).batches]


def test_leveldb_reads_what_was_built(tmp_path: Path) -> None:
    """A batch that LevelDB wrote, framed anew, is the same to LevelDB; a damaged one is gone after the repair."""
    store = Store(tmp_path / "store")
    for number in range(3):
        store.write([(b"key %d" % number, b"value %d" % number)], sync=True)
    store.close()
    path = next((tmp_path / "store").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[data.index(b"value 1")] ^= 1
    path.write_bytes(bytes(data))
    Store.repair(tmp_path / "store")
    store = Store(tmp_path / "store")
    found = [store.get(b"key %d" % number) for number in range(3)]
    store.close()
    assert found == [b"value 0", None, b"value 2"]


# ---------------------------------------------------------------- two logs, and a power cut


def _batch(sequence: int, *pairs: tuple[bytes, bytes]) -> bytes:
    """As LevelDB writes it: its first number, how many, and for each a 1, key and value behind their lengths."""
    rows = [b"\1" + bytes((len(key),)) + key + bytes((len(value),)) + value for key, value in pairs]
    return struct.pack("<QI", sequence, len(pairs)) + b"".join(rows)


BATCHES_OF_FIVE = [_batch(number, (b"key %d" % number, b"value %d" % number)) for number in range(1, 6)]


def _two_logs(folder: Path, older: list[bytes], newer: list[bytes]) -> tuple[Path, Path]:
    Store(folder).close()
    first = next(folder.glob("*.log"))
    second = first.with_name(f"{int(first.stem) + 7:06d}.log")
    first.write_bytes(store_log.build(older))
    second.write_bytes(store_log.build(newer))
    return first, second


def _keys(folder: Path) -> list[bytes]:
    store = Store(folder)
    found = list(store.keys(b"", b"\xff"))
    store.close()
    return found


@pytest.mark.parametrize("lost", range(6))
def test_batches_whose_predecessors_are_lost_are_dropped(tmp_path: Path, lost: int) -> None:
    """The older log lost its end to a power cut, the newer one was there: what is left is what was before the gap."""
    _two_logs(tmp_path / "store", BATCHES_OF_FIVE[: max(0, 3 - lost)], BATCHES_OF_FIVE[3:])
    left = 5 if lost == 0 else 2 - lost + 1
    wanted = [b"key %d" % number for number in range(1, left + 1)]
    if lost >= 3:  # nothing says that there was an older log
        wanted = [b"key 4", b"key 5"]
    assert _keys(tmp_path / "store") == wanted


def test_a_gap_within_a_log_cuts_there(tmp_path: Path) -> None:
    _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:2], [*BATCHES_OF_FIVE[2:3], BATCHES_OF_FIVE[4]])
    assert _keys(tmp_path / "store") == [b"key 1", b"key 2", b"key 3"]


def test_an_older_log_that_is_damaged_is_no_power_cut(tmp_path: Path) -> None:
    """Acknowledged mail may stand behind it: nothing is cut, the store is repaired and keeps all that can be read."""
    first, second = _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:3], BATCHES_OF_FIVE[3:])
    before = second.read_bytes()
    first.write_bytes(first.read_bytes()[:-3])
    with pytest.raises(StoreDamaged):
        Store(tmp_path / "store")
    assert second.read_bytes() == before
    Store.repair(tmp_path / "store")
    assert _keys(tmp_path / "store") == [b"key 1", b"key 2", b"key 4", b"key 5"]


def test_a_log_that_the_tables_have_made_needless_says_nothing(tmp_path: Path) -> None:
    """It may have lost its end, unsynced: all of it stands in a table, and what follows stays."""
    first, second = _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:3], BATCHES_OF_FIVE[3:])
    assert len(_keys(tmp_path / "store")) == 5  # now a table holds all, and a new log is empty
    live = next((tmp_path / "store").glob("*.log"))
    live.write_bytes(store_log.build([_batch(6, (b"key 6", b"value 6"))]))
    first.write_bytes(store_log.build(BATCHES_OF_FIVE[:2]))
    assert not second.exists()
    assert len(_keys(tmp_path / "store")) == 6


def test_the_log_in_use_of_another_process_is_not_touched(tmp_path: Path) -> None:
    first, second = _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:1], BATCHES_OF_FIVE[3:])
    lock = "f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX)"
    hold = f"import fcntl, sys; {lock}; print('held', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, tmp_path / "store" / "LOCK"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = first.read_bytes(), second.read_bytes()
        with pytest.raises(StoreLocked):
            Store(tmp_path / "store")
        assert (first.read_bytes(), second.read_bytes()) == before
    finally:
        holder.communicate(b"\n")


@pytest.mark.parametrize("current", [b"MANIFEST-\xff\n", b"MANI\0FEST\n", b"\n", b"../x\n", b""])
def test_a_damaged_current_is_damage(tmp_path: Path, current: bytes) -> None:
    """The file that names the manifest; repair does without it."""
    _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:3], BATCHES_OF_FIVE[3:])
    (tmp_path / "store" / "CURRENT").write_bytes(current)
    with pytest.raises(StoreDamaged):
        Store(tmp_path / "store")
    Store.repair(tmp_path / "store")
    assert len(_keys(tmp_path / "store")) == 5


def test_a_log_that_the_disk_does_not_give_out_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is asked again later; nothing is repaired, and nothing is lost, for that."""
    _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:3], BATCHES_OF_FIVE[3:])

    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.suffix == ".log":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", fail)
        with pytest.raises(StoreFailed, match="Input/output error"):
            Store(tmp_path / "store")
    assert len(_keys(tmp_path / "store")) == 5


# ---------------------------------------------------------------- damage that LevelDB takes for a crash's


def _filled(folder: Path, letters: int = 5) -> Path:
    """A store with some batches in its log; returns the log."""
    store = Store(folder)
    for number in range(1, letters + 1):
        state = msgpack.packb([0, 0, number, 0, number])
        store.write([(b"key %d" % number, b"value %d" % number), (b"state", state)], sync=True)
    store.close()
    return next(folder.glob("*.log"))


@pytest.mark.parametrize("at", [4, 5, 6, 20])
@pytest.mark.parametrize("number", [2, 5])
def test_damage_in_the_newest_log_is_damage(tmp_path: Path, at: int, number: int) -> None:
    """Also in its last block and its last batch, in length, type and contents: what is behind it is kept."""
    folder = tmp_path / "store"
    log = _filled(folder)
    data = bytearray(log.read_bytes())
    start = store_log.read(bytes(data)).batches[number - 1][0]
    data[start + at] ^= 4
    log.write_bytes(data)
    with pytest.raises(StoreDamaged):
        Store(folder)
    assert log.read_bytes() == data
    Store.repair(folder)
    left = {b"key %d" % n for n in range(1, 6)}
    assert set(_keys(folder)) - {b"state"} in (left, left - {b"key %d" % number})


def test_a_log_that_lost_acknowledged_batches_is_damaged(tmp_path: Path) -> None:
    """Cut between two batches it looks whole: what was acknowledged is known from elsewhere."""
    folder = tmp_path / "store"
    log = _filled(folder)
    data = log.read_bytes()
    log.write_bytes(data[: store_log.read(data).batches[3][0]])
    with pytest.raises(StoreDamaged, match="from batch 4 on"):
        Store(folder, acknowledged=5)
    assert log.exists()
    Store(folder, acknowledged=3).close()


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST-*", "*.ldb", "*.log"])
def test_a_file_that_is_gone_is_damage(tmp_path: Path, gone: str) -> None:
    """LevelDB would make a new store where CURRENT is gone, and go on without a log; and delete what is whole."""
    folder = tmp_path / "store"
    _filled(folder)
    Store(folder).close()  # a table of what was in the log
    store = Store(folder)
    store.write([(b"key 9", b"value 9")], sync=True)
    store.close()
    for path in folder.glob(gone):
        path.unlink()
    with pytest.raises(StoreDamaged):
        Store(folder)
    Store.repair(folder)
    lost = {"*.ldb": 5, "*.log": 1}.get(gone, 0)
    assert len([key for key in _keys(folder) if key != b"state"]) == 6 - lost


def test_a_manifest_that_lost_its_end_costs_no_table(tmp_path: Path) -> None:
    """It names a log that is gone, and not the table that was made of it."""
    folder = tmp_path / "store"
    store = Store(folder, 65_536)
    (manifest,) = folder.glob("MANIFEST-*")
    early = manifest.stat().st_size
    for number in range(40):
        store.write([(b"key %02d" % number, os.urandom(10_000))], sync=True)
    store.close()
    assert manifest.stat().st_size > early
    os.truncate(manifest, early)
    with pytest.raises(StoreDamaged):
        Store(folder, 65_536)
    Store.repair(folder)
    assert len(_keys(folder)) == 40


def test_a_store_whose_making_was_broken_off_is_made_again(tmp_path: Path) -> None:
    """A first manifest and nothing else."""
    folder = tmp_path / "store"
    Store(folder).close()
    (manifest,) = folder.glob("MANIFEST-*")
    for path in folder.iterdir():
        path.unlink()
    manifest.with_name("MANIFEST-000001").write_bytes(store_log.build([b"\x01\x1aleveldb.BytewiseComparator"]))
    assert _keys(folder) == []


def test_the_log_is_removed_while_it_is_written(tmp_path: Path) -> None:
    """No write is good any more; what was acknowledged before is saved from memory."""
    folder = tmp_path / "store"
    store = Store(folder)
    store.write([(b"key 1", b"value 1")], sync=True)
    for path in folder.glob("*.log"):
        path.unlink()
    with pytest.raises(StoreDamaged, match="is gone"):
        store.write([(b"key 2", b"value 2")], sync=True)
    store.close()
    assert b"key 1" in _keys(folder)


def test_what_is_cut_is_given_away_first(tmp_path: Path) -> None:
    """A newer log whose predecessors are lost, and its bytes."""
    _, second = _two_logs(tmp_path / "store", BATCHES_OF_FIVE[:2], BATCHES_OF_FIVE[3:])
    data = second.read_bytes()
    told: list[tuple[str, int, bytes]] = []
    Store(tmp_path / "store", cut=lambda path, end, lost: told.append((path.name, end, lost))).close()
    assert told == [(second.name, 0, data)]


def test_a_hole_that_took_acknowledged_batches_is_damage(tmp_path: Path) -> None:
    """Then it was no power cut, and what is behind it stays."""
    folder = tmp_path / "store"
    rows = [
        _batch(n, (b"key %d" % n, b"value %d" % n), (b"state", msgpack.packb([0, 0, 0, 0, n]))) for n in range(1, 8, 2)
    ]
    _two_logs(folder, rows[:1], rows[2:])
    with pytest.raises(StoreDamaged, match="missing"):
        Store(folder, acknowledged=2)
    Store.repair(folder)
    assert set(_keys(folder)) == {b"key 1", b"key 5", b"key 7", b"state"}
