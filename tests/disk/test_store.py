"""The store: atomic synced batches, a fence after any write error, and one sentence for everything that goes wrong."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.leveldb import log as store_log
from zonemta_py.disk.leveldb.store import Store, StoreDamaged, StoreError, StoreFailed, StoreLocked


def test_a_second_opening_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """It names the folder, and says what to do."""
    store = Store(tmp_path / "store")
    with pytest.raises(StoreLocked) as caught:
        Store(tmp_path / "store")
    assert str(tmp_path / "store") in str(caught.value)
    assert "stop that `zonemta run` or name another folder" in str(caught.value)
    assert "\n" not in str(caught.value)
    store.close()


def test_a_batch_is_read_again(tmp_path: Path) -> None:
    """After a write, and after closing and opening: keys in order, deletions done."""
    store = Store(tmp_path)
    store.write([(b"a 2", b"two"), (b"a 1", b"one"), (b"b 1", b"x")], sync=True)
    store.write([(b"a 2", None), (b"a 3", b"three")], sync=False)
    for _ in range(2):
        assert list(store.scan(b"a ", b"a!")) == [(b"a 1", b"one"), (b"a 3", b"three")]
        assert list(store.keys(b"a 2", b"b!")) == [b"a 3", b"b 1"]
        assert (store.first(b"a ", b"a!"), store.last(b"a ", b"a!")) == (b"a 1", b"a 3")
        assert (store.first(b"c ", b"c!"), store.last(b"c ", b"c!"), store.get(b"none")) == (None, None, None)
        store.reopen()
    store.close()


def test_a_write_error_fences_the_store_until_it_is_reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB may lose what it acknowledges after an error, so nothing is acknowledged before it was opened afresh."""
    store = Store(tmp_path)
    store.write([(b"a", b"1")], sync=True)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "listdir", fail)  # the last thing that a synced write does
        with pytest.raises(StoreFailed) as caught:
            store.write([(b"b", b"2")], sync=True)
    assert caught.value.full
    with pytest.raises(StoreFailed, match="fenced") as refused:
        store.write([(b"c", b"3")], sync=True)
    assert refused.value.full, "whoever reads meanwhile learns why"
    store.reopen()
    store.write([(b"c", b"3")], sync=True)
    assert (store.get(b"a"), store.get(b"c")) == (b"1", b"3")
    store.close()


def test_a_closed_store_fails_and_is_not_damaged(tmp_path: Path) -> None:
    """What is only being opened again must not be taken for damage: that would set mail aside."""
    store = Store(tmp_path)
    store.close()
    for read in (lambda: store.get(b"a"), lambda: list(store.scan(b"a", b"b")), lambda: store.last(b"a", b"b")):
        with pytest.raises(StoreFailed):
            read()


def test_a_flipped_byte_is_damage(tmp_path: Path) -> None:
    """In a table or in the log: reading or opening says so, and repair keeps the rest."""
    store = Store(tmp_path)
    store.write([(b"key %03d" % number, os.urandom(1000)) for number in range(100)], sync=True)
    store.reopen()  # makes a table of the log
    store.close()
    (table,) = tmp_path.glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[50_000] ^= 1
    table.write_bytes(data)
    with pytest.raises(StoreDamaged, match="fsck --repair"):
        list((store := Store(tmp_path)).scan(b"key ", b"key!"))
    store.close()
    Store.repair(tmp_path)
    store = Store(tmp_path)
    assert 90 <= len(list(store.keys(b"key ", b"key!"))) < 100
    store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Files in the way are the caller's OSError; files that are not LevelDB's are a StoreError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"exist|directory"):
        Store(tmp_path / "file")
    folder = tmp_path / "store"
    Store(folder).close()
    (folder / "CURRENT").write_text("nonsense\n")
    with pytest.raises(StoreError):
        Store(folder)


def test_a_synced_write_covers_the_unsynced_ones_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB changes logs without syncing the old one; chunks written there must be stable when their batch is."""
    synced: set[int] = set()
    real = os.fdatasync

    def fdatasync(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        real(file)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    store, seen = Store(tmp_path, 65_536), 0
    for number in range(40):
        for part in range(4):
            store.write([(b"message %d %06d" % (number, part), bytes(65_536))], sync=False)
        store.write([(b"message %d #" % number, b"")], sync=True)
        older = sorted(tmp_path.glob("*.log"))[:-1]
        for log in older:
            with contextlib.suppress(FileNotFoundError):  # its table has been written meanwhile
                assert log.stat().st_ino in synced
                seen += 1
    store.close()
    assert seen


def test_the_manifest_names_each_table_that_is_in_use(tmp_path: Path) -> None:
    """After compactions too; where it is damaged nobody can say which tables are of no use."""
    store = Store(tmp_path / "store", write_buffer_bytes=65_536)
    for number in range(300):
        store.write([(b"key %d" % (number % 100), bytes(2000))], sync=False)
    store.compact(b"", b"\xff")
    store.close()
    manifest = (tmp_path / "store" / (tmp_path / "store" / "CURRENT").read_text().strip()).read_bytes()
    there = {int(path.stem) for path in (tmp_path / "store").glob("*.ldb")}
    assert there
    known = store_log.tables(manifest)
    assert known is not None
    assert there <= known
    middle = len(manifest) // 2
    assert store_log.tables(manifest[:middle] + bytes([manifest[middle] ^ 1]) + manifest[middle + 1 :]) is None


def test_a_store_that_is_opened_again_while_it_is_read_ends_nobody(tmp_path: Path) -> None:
    """As after a write error: reads are refused meanwhile. In a process of its own, for LevelDB would take it along."""
    done = subprocess.run([sys.executable, "-c", READ_AND_REOPEN, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


READ_AND_REOPEN = """
import sys, threading, time
from pathlib import Path
from zonemta_py.disk.leveldb.store import Store, StoreError
store, rounds = Store(Path(sys.argv[1]) / "store"), 40
store.write([(b"k%06d" % number, b"v" * 200) for number in range(5000)], True)
thread = threading.Thread(target=lambda: [(store.reopen(), time.sleep(0.002)) for _ in range(rounds)])
thread.start()
while thread.is_alive():
    try:
        list(store.scan(b"k", b"l"))
        list(map(store.get, [b"k%06d" % number for number in range(100)]))
    except StoreError:
        pass
assert len(list(store.keys(b"k", b"l"))) == 5000
assert [key for key, _ in store.scan(b"k000002", b"k000100")] == [b"k%06d" % number for number in range(2, 100)]
"""


def test_a_walk_that_nobody_ends_may_be_collected_within_another(tmp_path: Path) -> None:
    """The garbage collector closes it wherever it runs, and a read may be what made it run."""
    store = Store(tmp_path / "store")
    store.write([(b"k%d" % number, b"v") for number in range(9)], sync=True)

    def forget() -> None:
        walk = store.scan(b"k", b"l")
        next(walk)
        circle: list[Any] = [walk]
        circle.append(circle)

    def collect() -> None:
        with store._reading:
            gc.collect()

    forget()
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    store.close()
