"""Segment files as rows: nothing lost, nothing twice, however they are split and wherever they are damaged."""

import itertools
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.frame import BLOCK_BYTES, Record, frame
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.pipeline.journal import reader
from zonemta_py.pipeline.journal.reader import Segment, Split
from zonemta_py.pipeline.journal.schema import ROWS

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VERDICTS = ("", "delivered", "deferred", "bounced", "held", "requeued", "postponed")


def moment(ms: int | None) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if ms else None


def read_all(splits: Iterable[Split], faults: list[segments.Fault] | None = None) -> list[Row]:
    batches = [batch for split in splits for batch in reader.read(split, faults if faults is not None else [])]
    rows: list[Row] = pa.Table.from_batches(batches, ROWS).to_pylist()
    return sorted(rows, key=lambda row: (row["seq"], row["part"]))


def whole(path: Path, from_seq: int = 0) -> Split:
    return Split(path, 0, path.stat().st_size, from_seq)


def write(path: Path, records: list[Record]) -> Path:
    path.write_bytes(frame(records, 0))
    return path


def one(kind: int, body: Any, tmp_path: Path) -> list[Row]:
    """The rows of a journal with this one record; columns that are null are left out."""
    path = write(tmp_path / f"{1:016d}.journal", [Record(1, 1_700_000_000_123, kind, pack(body))])
    faults: list[segments.Fault] = []
    rows = read_all([whole(path)], faults)
    assert faults == []
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def plainly(record: Record) -> list[Row]:
    """What the most frequent records say, written down a second time, plainly."""
    row: Row = {"seq": record.seq, "at": moment(record.ms), "type": Type(record.type).name}
    body = unpack(record.body)
    if record.type == Type.ENVELOPE:
        meta = body[1]
        row |= {"id": body[0], "sender": meta["sender"], "size": meta["size"], "campaign": meta.get("campaign")}
        row |= {
            "tenant": meta.get("tenant"),
            "subject": meta.get("headers", {}).get("subject"),
            "origin": meta.get("origin"),
        }
        rows = [{"zone": who[0], "recipient": who[1], "received_at": moment(meta["received_ms"])} for who in body[2]]
    elif record.type == Type.START:
        row |= {"lease": body[0], "id": body[1], "zone": body[2], "destination": body[3], "started_at": moment(body[5])}
        rows = [{"recipient": who if isinstance(who, str) else who[0], "size": body[7]} for who in body[4]]
    elif record.type == Type.DELIVERY:
        row |= {"lease": body[0], "id": body[1], "zone": body[2], "destination": body[3]}
        for name, value in zip(
            ("remote", "local", "tls", "", "took_ms", "source", "site", "provider"), body[5], strict=False
        ):
            row |= {name: value} if name else {"started_at": moment(value)}
        rows = [
            {"verdict": VERDICTS[said[0]], "code": said[1], "enhanced": said[2], "reply": said[3], "stage": said[4]}
            | {"relayed": said[6], "class": said[7] or None, "rule": said[8] or None}
            | (
                {"recipient": who, "due_at": None}
                if isinstance(who, str)
                else {"recipient": who[0], "due_at": moment(who[2])}
            )
            for said in body[4]
            for who in said[5]
        ]
    elif record.type == Type.SUPPRESS:
        rows = [{"recipient": entry[0], "kind": entry[1]} for entry in body]
    else:
        rows = [{"id": body[0]} if record.type == Type.FINISH else {}]
    return [row | {"part": part} | more for part, more in enumerate(rows)]


def test_a_real_archive_is_read_as_it_is(real_archive: Path) -> None:
    """Each record that the journal's own reader finds has its rows, with all that it says, and there are no others."""
    expected = [row for record in segments.read(real_archive) for row in plainly(record)]
    faults: list[segments.Fault] = []
    found = read_all([split for one in reader.segments(real_archive) for split in reader.splits(one)], faults)
    assert faults == []
    assert len(expected) > 1000
    assert [(row["seq"], row["part"]) for row in found] == [(row["seq"], row["part"]) for row in expected]
    for row, plain in zip(found, expected, strict=True):
        assert {name: row[name] for name in plain} == plain
    assert {row["segment"] for row in found} == {path.name for path in real_archive.iterdir()}
    assert {row["type"] for row in found} >= {"ENVELOPE", "START", "DELIVERY", "FINISH", "SEGMENT", "END"}


# -- splits

SIZES = st.lists(st.sampled_from((0, 1, 30, 300, 3000, 32_700, 32_760, 40_000, 100_000)), min_size=1, max_size=40)


def records_of(sizes: list[int]) -> list[Record]:
    return [Record(n, 1000 + n, 99, pack(bytes(size))) for n, size in enumerate(sizes, 1)]


@given(SIZES, st.data())
def test_however_a_file_is_split_each_record_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    """Cuts at any block boundaries, also within a record that is longer than several pieces."""
    path = write(tmp_path_factory.mktemp("split") / f"{1:016d}.journal", records_of(sizes))
    splits = cut(path, data)
    faults: list[segments.Fault] = []
    found = [payload for split in splits for window in reader.payloads(split, faults) for payload in window]
    assert faults == []
    assert [int.from_bytes(payload[:8], "little") for payload in found] == list(range(1, len(sizes) + 1))
    assert [payload[17:] for payload in found] == [record.body for record in records_of(sizes)]


def cut(path: Path, data: st.DataObject) -> list[Split]:
    size = path.stat().st_size
    blocks = range(1, (size - 1) // BLOCK_BYTES + 1)
    cuts = data.draw(st.sets(st.sampled_from(blocks)) if blocks else st.just(set()))
    edges = [0, *(block * BLOCK_BYTES for block in sorted(cuts)), size]
    return [Split(path, start, end, 0) for start, end in itertools.pairwise(edges)]


@given(
    SIZES,
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), max_size=3),
    st.integers(0, 1 << 30),
    st.data(),
)
def test_damage_costs_the_same_and_is_named_once_however_a_file_is_split(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    flips: list[tuple[int, int]],
    end: int,
    data: st.DataObject,
) -> None:
    """Bytes flipped, the end torn off: what is left, and what is said of it, is what the journal's reader finds."""
    content = bytearray(frame(records_of(sizes), 0))
    for place, mask in flips:
        content[place % len(content)] ^= mask
    path = tmp_path_factory.mktemp("damage") / f"{1:016d}.journal"
    path.write_bytes(content[: len(content) - end % 200] if end % 2 else content)
    expected_faults: list[segments.Fault] = []
    expected = list(segments.read_file(path, expected_faults))
    faults: list[segments.Fault] = []
    splits = cut(path, data) if path.stat().st_size else []
    found = [payload for split in splits for window in reader.payloads(split, faults) for payload in window]
    assert [payload[17:] for payload in found] == [record.body for record in expected]
    assert sorted(faults) == sorted(expected_faults)


def test_one_large_file_gives_pieces_for_every_core(tmp_path: Path) -> None:
    """A segment of 16 MB, the usual size, is two pieces of whole blocks, without gap or overlap."""
    one = Segment(tmp_path / "x", 16 * 1024 * 1024 + 5, 1, 2, 0, 0, 0)
    splits = reader.splits(one)
    assert len(splits) == 3
    assert [split.start for split in splits] == [0, *(split.end for split in splits[:-1])]
    assert all(split.start % BLOCK_BYTES == 0 for split in splits)
    assert splits[-1].end == one.size


# -- the archive


def test_records_that_two_files_have_are_read_once(tmp_path: Path) -> None:
    """A write that failed is repeated in a new file; the number counts once, from the first file that has it whole."""
    kept = [Record(n, 1000, Type.FINISH, pack([f"first{n}"])) for n in range(1, 8)]
    again = [Record(n, 1000, Type.FINISH, pack([f"again{n}"])) for n in range(5, 12)]
    write(tmp_path / f"{1:016d}.journal", kept)
    write(tmp_path / f"{5:016d}.journal", again)
    write(tmp_path / f"{5:016d}+.journal", [*again, Record(12, 1000, Type.END, pack(None))])
    found = reader.segments(tmp_path)
    assert [one.own for one in found] == [(1, 7), (8, 11), (12, 12)]
    rows = read_all([split for one in found for split in reader.splits(one)])
    assert [(row["seq"], row["id"]) for row in rows] == [
        (record.seq, unpack(record.body)[0] if record.type == Type.FINISH else None)
        for record in segments.read(tmp_path)
    ]
    assert len(rows) == 12


def test_a_file_of_which_earlier_ones_have_everything_has_nothing_of_its_own(tmp_path: Path) -> None:
    """It is not planned for, so that no stream waits for it."""
    write(tmp_path / f"{1:016d}.journal", records_of([1] * 9))
    write(tmp_path / f"{4:016d}.journal", records_of([1] * 9)[3:6])
    assert [one.own for one in reader.segments(tmp_path)] == [(1, 9), None]


def test_a_file_that_cannot_be_read_at_all_is_planned_for_and_reported(tmp_path: Path) -> None:
    """It has no times, so no filter leaves it out; reading it names the damage."""
    path = tmp_path / f"{7:016d}.journal"
    path.write_bytes(b"\x01" * 100)
    (one,) = reader.segments(tmp_path)
    assert one.own == (7, 7)
    assert not one.outside(1 << 50, 1 << 51)
    faults: list[segments.Fault] = []
    assert read_all(reader.splits(one), faults) == []
    assert [fault.offset for fault in faults] == [0]


def test_first_and_last_record_are_found_behind_large_ones(tmp_path: Path) -> None:
    """Times and numbers come from the ends of the file, also where a record is longer than a block."""
    write(tmp_path / f"{1:016d}.journal", records_of([100_000, 5, 100_000]))
    (one,) = reader.segments(tmp_path)
    assert (one.first_seq, one.last_seq, one.first_ms, one.last_ms) == (1, 3, 1001, 1003)


def test_segments_are_left_out_by_time_with_an_hour_to_spare() -> None:
    """A clock that was set back a little hides no record."""
    hour = 3_600_000
    one = Segment(Path("x"), 1, 1, 2, 100 * hour, 101 * hour, 0)
    assert not one.outside(102 * hour, 200 * hour)
    assert one.outside(102 * hour + 1, 200 * hour)
    assert not one.outside(0, 99 * hour + 1)
    assert one.outside(0, 99 * hour)


# -- record types

ABOUT = {"id": "i", "zone": "z", "recipient": "a@x"}
BASE = {"seq": 1, "part": 0, "at": moment(1_700_000_000_123), "segment": f"{1:016d}.journal", "node": ""}


def standing(*values: str) -> Row:
    names = ("what", "kind", "name", "value", "reason")
    return {"type": "STANDING"} | dict(zip(names, values, strict=True))


def test_several_recipients_are_several_rows(tmp_path: Path) -> None:
    """Each has its number in the record's order; what the record says once stands in each."""
    outcomes = [
        [1, 250, "2.0.0", "ok", "dot", ["a@x", ["b@x", 5, 0]], False, "", ""],
        [2, 451, "", "no", "rcpt", [["c@x", 0, 7000]]],
    ]
    rows = one(Type.DELIVERY, [3, "id", "z", "d", outcomes, ["r", "l", "", 0, 9]], tmp_path)
    assert [(row["part"], row["recipient"], row["verdict"], row.get("due_at")) for row in rows] == [
        (0, "a@x", "delivered", None), (1, "b@x", "delivered", None), (2, "c@x", "deferred", moment(7000)),
    ]  # fmt: skip
    assert [row["took_ms"] for row in rows] == [9, 9, 9]
    assert "class" not in rows[0]
    assert "started_at" not in rows[0]
    assert "relayed" not in rows[2]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (Type.OPEN, ["i"], {"type": "OPEN", "id": "i"}),
        (Type.FINISH, ["i"], {"type": "FINISH", "id": "i"}),
        (Type.REMOVED, ["i", "z", ["a@x"], "dropped"], {"type": "REMOVED", **ABOUT, "reason": "dropped"}),
        (Type.MOVED, ["i", "z", ["a@x"], 9000], {"type": "MOVED", **ABOUT, "due_at": moment(9000)}),
        (
            Type.IN_DOUBT, [[4], [["i", "z", "a@x", 8000, "hold"]]],
            {"type": "IN_DOUBT", **ABOUT, "started_at": moment(8000), "reason": "hold"},
        ),
        (Type.STANDING, ["stop", ["tenant", "a"], [0, 5], "why"], standing("stop", "tenant", "a", "[0, 5]", "why")),
        (Type.STANDING, ["lift", ["zone", "z"], None, ""], standing("lift", "zone", "z", "null", "")),
        (
            Type.REMOVED, ["i", "z", ["a@x"], "suppressed", {"destination": "d", "envelope": {"sender": ""}}],
            {"type": "REMOVED", **ABOUT, "reason": "suppressed", "destination": "d", "sender": ""},
        ),
        (
            Type.SUPPRESS, [["a@x", "complaint", 7000, "why", "said so", "feedback", "c"]],
            {"type": "SUPPRESS", "recipient": "a@x", "kind": "complaint", "reason": "why", "name": "feedback"}
            | {"campaign": "c", "value": '{"since_ms": 7000, "evidence": "said so"}'},
        ),
        (
            Type.SUPPRESS, [["a@x", "unsubscribe", 7000, "", "", "", "", "campaigns"]],
            {"type": "SUPPRESS", "recipient": "a@x", "kind": "unsubscribe", "reason": "", "name": ""}
            | {"value": '{"since_ms": 7000, "evidence": "", "scope": "campaigns"}'},
        ),
        (Type.UNSUPPRESS, [["a@x"], "operator"], {"type": "UNSUPPRESS", "recipient": "a@x", "name": "operator"}),
        (
            Type.UNSUPPRESS, [["a@x"], "operator", ["campaigns"]],
            {"type": "UNSUPPRESS", "recipient": "a@x", "name": "operator", "value": '{"scope": "campaigns"}'},
        ),
        (Type.LOST, [5, 9], {"type": "LOST", "value": "[5, 9]"}),
        (Type.END, None, {"type": "END"}),
        (Type.POSITION, {"applied": 4}, {"type": "POSITION"}),
        (99, {"of": "tomorrow"}, {"type": "TYPE 99"}),
        (
            Type.ENVELOPE, ["i", {"sender": "", "size": 3, "received_ms": 0}, []],
            {"type": "ENVELOPE", "id": "i", "sender": "", "size": 3},
        ),
    ],
)  # fmt: skip
def test_what_a_record_says_has_its_column(kind: int, body: Any, expected: Row, tmp_path: Path) -> None:
    """One record of the type, and its one row; a type of a newer version is a row all the same."""
    assert one(kind, body, tmp_path) == [BASE | expected]


def test_a_body_that_has_grown_is_read_as_before(tmp_path: Path) -> None:
    """Bodies only grow at their end: readers take what they know."""
    start = one(Type.START, [1, "i", "z", "d", ["a@x"], 5000, "google", 77, None, "new"], tmp_path)
    assert start[0]["size"] == 77
    assert one(Type.START, [1, "i", "z", "d", ["a@x"], 5000], tmp_path)[0]["recipient"] == "a@x"


@pytest.mark.parametrize(
    "body", [b"\xc1", pack(7), pack(["only", "two"]), pack([1, 2, 3, 4, 5, 6]), b"", pack([1]) * 2]
)
def test_a_body_without_its_form_is_a_bare_row_and_reported(body: bytes, tmp_path: Path) -> None:
    """Its neighbours of the same type are not touched."""
    good = pack([1, "i", "z", "d", [[1, 250, "", "ok", "dot", ["a@x"]]], ["r"]])
    records = [
        Record(1, 1000, Type.DELIVERY, good),
        Record(2, 1000, Type.DELIVERY, body),
        Record(3, 1 << 63, Type.DELIVERY, good),
    ]
    path = write(tmp_path / f"{1:016d}.journal", records)
    faults: list[segments.Fault] = []
    rows = read_all([whole(path)], faults)
    assert [(row["seq"], row["recipient"]) for row in rows] == [(1, "a@x"), (2, None), (3, "a@x")]
    assert [fault.what.partition(":")[0] for fault in faults] == ["record 2"]
    assert rows[2]["at"].year == 9999


def test_values_of_orders_are_json(tmp_path: Path) -> None:
    """Whatever a value is, it is text that every tool can read."""
    value = {"rate": 2.5, "days": [1, "ü"], "raw": b"\x00"}
    (row,) = one(Type.STANDING, ["rate", ["192.0.2.1", "google"], value, "learned"], tmp_path)
    assert json.loads(row["value"])["days"] == [1, "ü"]
