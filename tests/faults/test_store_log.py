"""LevelDB's log, mended: what is written as its own format describes it, and read by LevelDB itself."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk import store_log
from zonemta_py.disk.store import Store

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
    kept = [part for kind, part in store_log._fragments(mended) if kind == 1]
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
