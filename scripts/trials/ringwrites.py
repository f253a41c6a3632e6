"""What it costs to write real event records: the ring, an append-only log and SQLite, each in a process of its own.

Every contender takes the same records, as the event feed makes them of messages, and gives all of them back, as a
queue does. Counted by /proc/self/io: `write_bytes` is what the kernel sends to the storage layer for this process (0 on
a file system in memory: take --folder on a disk; the file system's own journal is not in it), `wchar` what was handed
to write calls.

Two promises are compared. "page": what the ring promises, at most a page of records is lost; the log and SQLite sync
after as many bytes, or as a transaction. "record": each record is on stable storage before the next one, which the ring
does not offer.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.disk.ring.ring import Ring
from zonemta_py.events import prepared
from zonemta_py.events.derive import events_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import DELIVERED, EnvelopeRecord

PAGE_BYTES = 16_384
SOURCE = "5f0c6f6d2c9b4d5ea1f3f5a0c7d2e4b1"


def records(count: int) -> Iterator[bytes]:
    """Of messages with one recipient each: accepted, queued, attempted, delivered, finished."""
    seq, made = 1, 0
    while True:
        for one in _journalled(seq):
            for event in events_of(one):
                yield prepared.pack(prepared.ready(event, SOURCE))
                made += 1
                if made == count:
                    return
        seq += 4


def _journalled(seq: int) -> Iterator[Record]:
    ms, name, address = 1_795_000_000_000 + seq, f"19f3c2d8a{seq:07x}", f"ann.{seq % 9973}@example.com"
    metadata = {
        "sender": "bounce@news.example.org", "size": 5_200 + seq % 900, "origin": "192.0.2.7", "protocol": "ESMTPS",
        "headers": {"subject": f"Your order {seq} is on its way"},
    }  # fmt: skip
    flow = "mx.example.com 192.0.2.9 0  spring"
    trace = ["mx1.example.com[198.51.100.3]:25", "192.0.2.9", "TLSv1.3 TLS_AES_256_GCM_SHA384", ms, 340]
    outcome = [DELIVERED, 250, "2.0.0", "OK queued as 4F2k9X1Yz7", "dot", [address], False, "", ""]
    yield Record(seq, ms, Type.ENVELOPE, EnvelopeRecord(name, metadata, [["default", address]]).pack())
    yield Record(seq + 1, ms, Type.START, pack([seq, name, "default", flow, [address], ms]))
    yield Record(seq + 2, ms + 340, Type.DELIVERY, pack([seq, name, "default", flow, [outcome], trace]))
    yield Record(seq + 3, ms + 341, Type.FINISH, pack([name]))


# -- contenders: each writes, syncs as promised, reads all back, and says how many that were


def ring(path: Path, rows: Iterator[bytes], count: int) -> int:
    """Pages are synced one by one."""
    made = Ring.create(path, max(2, count * 1200 // PAGE_BYTES), PAGE_BYTES, sync=True)
    for row in rows:
        made.append(row)
    made.flush()
    read = 0
    while taken := made.take()[1]:
        read += len(taken)
    made.close()
    return read


def log_by_page(path: Path, rows: Iterator[bytes], count: int) -> int:
    return _log(path, rows, PAGE_BYTES)


def log_by_record(path: Path, rows: Iterator[bytes], count: int) -> int:
    return _log(path, rows, 0)


def _log(path: Path, rows: Iterator[bytes], page: int) -> int:
    """Length and bytes, appended. What was read is deleted with the file."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    waiting = b""
    for row in rows:
        waiting += len(row).to_bytes(4, "little") + row
        if len(waiting) >= page:
            os.write(file, waiting)
            os.fdatasync(file)
            waiting = b""
    os.write(file, waiting)
    os.fdatasync(file)
    read, at, data = 0, 0, path.read_bytes()
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
        read += 1
    os.close(file)
    path.unlink()
    return read


def sqlite_by_page(path: Path, rows: Iterator[bytes], count: int) -> int:
    return _sqlite(path, rows, PAGE_BYTES)


def sqlite_by_record(path: Path, rows: Iterator[bytes], count: int) -> int:
    return _sqlite(path, rows, 0)


def _sqlite(path: Path, rows: Iterator[bytes], page: int) -> int:
    """A queue as it is usually made: a table, pages of 4 KB, write-ahead log, synchronous = FULL; what was read is
    deleted."""
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = FULL")
    base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, record BLOB)")
    _in_transactions(base, "INSERT INTO queue (record) VALUES (?)", ((row, len(row)) for row in rows), page)
    found = base.execute("SELECT id, length(record) FROM queue ORDER BY id").fetchall()
    _in_transactions(base, "DELETE FROM queue WHERE id = ?", iter(found), page)
    base.close()
    return len(found)


def _in_transactions(base: sqlite3.Connection, statement: str, rows: Iterator[tuple[Any, int]], page: int) -> None:
    size = 0
    for value, length in rows:
        if not base.in_transaction:
            base.execute("BEGIN")
        base.execute(statement, (value,))
        size += length
        if size >= page:
            base.execute("COMMIT")
            size = 0
    if base.in_transaction:
        base.execute("COMMIT")


CONTENDERS: dict[str, tuple[str, Callable[[Path, Iterator[bytes], int], int]]] = {
    "ring": ("page", ring),
    "append-only log": ("page", log_by_page),
    "SQLite": ("page", sqlite_by_page),
    "append-only log, each record": ("record", log_by_record),
    "SQLite, each record": ("record", sqlite_by_record),
}


def _io() -> dict[str, int]:
    return {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines()}


def one(name: str, folder: Path, count: int) -> dict[str, Any]:
    """In this process, which does nothing else."""
    rows = list(records(count))
    payload = sum(map(len, rows))
    before, begin = _io(), time.perf_counter()
    read = CONTENDERS[name][1](folder / "queue", iter(rows), count)
    wall_s, after = time.perf_counter() - begin, _io()
    assert read == count, f"{name} gave back {read} of {count}"
    written, handed = (after[key] - before[key] for key in ("write_bytes", "wchar"))
    return {
        "contender": name,
        "promise": CONTENDERS[name][0],
        "records": count,
        "payload_bytes": payload,
        "handed_to_write_bytes": handed,
        "written_bytes": written,
        "amplification_calls": round(handed / payload, 3),
        "amplification": round(written / payload, 3),
        "pages_per_record": round(written / 4096 / count, 4),
        "write_calls_per_record": round((after["syscw"] - before["syscw"]) / count, 4),
        "records_per_s": round(count / wall_s),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/ring", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--records", type=int, default=50_000, help="records (default 50,000)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk to be measured")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.folder, options.records)))
        return 0
    figures = []
    for name in CONTENDERS:
        with tempfile.TemporaryDirectory(prefix="zonemta-ring-", dir=options.folder) as folder:
            command = [sys.executable, "-m", "ringwrites", "--one", name, "--folder", folder]
            command += ["--records", str(options.records)]
            figures.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        _show(figures)
    return 0


def _show(figures: list[dict[str, Any]]) -> None:
    size = figures[0]["payload_bytes"] / figures[0]["records"]
    table = Table(title=f"{figures[0]['records']:,} records of {size:.0f} bytes on average")
    columns = ("contender", "promise", "amplification", "amplification_calls", "pages_per_record",
               "write_calls_per_record", "records_per_s")  # fmt: skip
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in figures:
        table.add_row(*(f"{row[column]:,}" if not isinstance(row[column], str) else row[column] for column in columns))
    Console().print(table)
    print("amplification: bytes sent to the storage layer for each byte of records; pages of 4 KB")


if __name__ == "__main__":
    sys.exit(main())
