"""Remains: damaged bytes of the store's log still say whose mail they were."""

from __future__ import annotations

import random
from pathlib import Path

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb import log, remains
from zonemta_py.disk.leveldb.store import Store

ID = "18bcfe5680000001"


def _batch(folder: Path) -> bytes:
    store = Store(folder)
    metadata = {"sender": "ann@src.test", "chunks": 1, "headers": {"subject": "Your invoice"}}
    store.write(
        [
            (keys.chunk(ID, 1), random.Random(1).randbytes(3000)),
            (keys.existence(ID), packing.pack([1, 2, 2])),
            (keys.metadata(ID), packing.pack(metadata)),
            (keys.fresh("z", ID, "bob@x.test"), b""),
            (keys.parked("z", "y.test", ID, '"c d"@y.test'), b""),
            (keys.fresh("z", "18bcfe5680000000", "gone@x.test"), None),
            (keys.STATE, packing.pack([0, 0, 1, 5, 17])),
        ],
        sync=True,
    )
    store.close()
    (_, batch) = log.read(next(folder.glob("*.log")).read_bytes()).batches[0]
    return batch


def test_a_batch_names_its_mail(tmp_path: Path) -> None:
    """Sender, subject and recipients; what was taken out is no mail."""
    batch = _batch(tmp_path)
    row = {"sender": "ann@src.test", "subject": "Your invoice", "recipients": ["bob@x.test", '"c d"@y.test']}
    assert remains.messages(batch) == {ID: row}
    assert remains.number(batch) == 17


def test_half_a_batch_names_what_it_can(tmp_path: Path) -> None:
    """Cut or damaged anywhere, it raises nothing; a flipped bit in the body hides nothing."""
    batch = _batch(tmp_path)
    dice = random.Random(2)
    for _ in range(300):
        damaged = bytearray(batch[dice.randrange(len(batch)) : dice.randrange(len(batch))] or batch)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        remains.messages(bytes(damaged))
        remains.number(bytes(damaged))
    flipped = bytearray(batch)
    flipped[1000] ^= 1
    assert remains.messages(bytes(flipped)) == remains.messages(batch)
