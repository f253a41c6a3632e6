"""LevelDB's log, mended: what is written as its own format describes it, and read by LevelDB itself."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk import store_log
from zonemta_py.disk.store import Store, StoreDamaged, StoreFailed, StoreLocked

BATCHES = st.lists(st.binary(min_size=1, max_size=400) | st.integers(30_000, 70_000).map(bytes), min_size=1, max_size=8)


@given(BATCHES)
def test_an_intact_log_is_left_alone(batches: list[bytes]) -> None:
    """None: there is nothing to mend."""
    assert store_log.mend(store_log.build(batches)) is None


@given(BATCHES, st.data())
def test_a_flipped_bit_costs_batches_and_changes_none(batches: list[bytes], data: st.DataObject) -> None:
    """What is kept is some of the batches, in order and unchanged."""
    log = bytearray(store_log.build(batches))
    log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    mended = store_log.mend(bytes(log))
    if mended is None:
        assert len(batches) > 1  # a trailer between blocks, which nobody reads
        return
    assert store_log.mend(mended) is None
    kept = [part for _, kind, part in store_log._walk(mended) if kind == 1]
    rest = iter(batches)
    assert all(part in rest for part in kept)


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
    assert b"walue 1" not in found
    assert found[0] == b"value 0"


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
    assert not Store.cut_torn_log(tmp_path / "store")
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
