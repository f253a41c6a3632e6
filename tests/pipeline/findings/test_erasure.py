"""One person is forgotten: everywhere the address stands, in whatever form, and nowhere else; counts stay true."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.frame import BLOCK_BYTES, Record, frame, parse
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import read
from zonemta_py.mail.address import xtext_encode
from zonemta_py.mail.addresses import verp
from zonemta_py.pipeline.erasure.archive import erase_archive, search
from zonemta_py.pipeline.erasure.lake import erase_lake
from zonemta_py.pipeline.erasure.lake import search as search_lake
from zonemta_py.pipeline.erasure.person import ERASED_DOMAIN, DataSubject, pseudonym

ANN = "Ann.B+x@Example.com"
LONG = f"{'l' * 60}@a-rather-long-name.example.com"
STAND_IN = pseudonym()
ID = "18bcfe5680000001"


def ann(address: str = ANN, subaddresses: bool = False) -> DataSubject:
    return DataSubject(address, STAND_IN, subaddresses)


FORMS = [
    ANN, ANN.upper(), f"<{ANN.lower()}>", f"to={ANN}", f"rfc822;{xtext_encode(ANN)}", f"mailto:{ANN}?subject=x",
    "https://example.org/u?e=ann.b%2Bx%40example.com&k=1", "bounces+ann.b+x=example.com@lists.example.org", f"'{ANN}'.",
    verp.encode(ID, ANN, "ours.example", "secret", 20_000), f'{{"who": "{ANN}"}}',
]  # fmt: skip
OTHERS = [
    "joann.b+x@example.com", "ann.b+x@example.com.au", "ann.b+x@sub.example.com", "ann.b+xy@example.com",
    "ann.b@example.com", "me+ann.b+x@example.com", "ann.b+x@example.org", "ann.b+x at example.com",
    "ann-b+x@example.com", "ann.b+x@example.company",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMS)
def test_every_form_is_found_and_replaced(text: str) -> None:
    """Case, brackets, ORCPT, URLs, JSON, return paths: nothing of the local part is left, the rest of the text is."""
    fresh, count = ann().erased(text)
    assert count == 1
    assert "ann" not in fresh.lower()
    assert ann().maybe(text.encode())
    assert not ann().found(fresh)


@pytest.mark.parametrize("text", OTHERS)
def test_other_people_are_left_alone(text: str) -> None:
    """Addresses that merely contain the person's, or are like it."""
    assert ann().erased(text) == (text, 0)


def test_subaddresses_go_where_asked() -> None:
    """local+anything@domain is the same person if the operator says so, and only then."""
    for text in (
        "ann@example.com",
        "ann+news@example.com",
        "x-ann+news=example.com@l.example",
        "ann%2Bnews%40example.com",
    ):
        assert ann("ann@example.com", subaddresses=True).erased(text)[1] == 1, text
    assert not ann("ann@example.com").found("ann+news@example.com")
    assert ann("ann@example.com", subaddresses=True).is_("Ann+a@example.com")


def test_a_return_path_with_a_mark_is_found() -> None:
    """An address too long for a return path stands there as a hash of it, which somebody could guess."""
    path = verp.encode(ID, LONG, "ours.example", "secret", 20_000)
    assert "." in path.partition("@")[0]
    fresh, count = ann(LONG).erased(f"sent as {path}")
    assert count == 1
    assert verp.decode(path, "secret", 20_000, 9).mark not in fresh


def test_domains_beyond_ascii_are_found_in_both_forms() -> None:
    """As U-labels and as A-labels, whichever was given; also in bytes with more around them."""
    for given_as in ("jörg@bücher.example", "jörg@xn--bcher-kva.example"):
        for text in ("jörg@bücher.example", "JÖRG@xn--bcher-kva.example", json.dumps("jörg@bücher.example")):
            assert ann(given_as).erased(text)[1] == 1, (given_as, text)
    assert ann("jörg@bücher.example").erased(b"\xff\xd9 " + "jörg@bücher.example".encode())[1] == 1


def test_what_is_no_address_is_refused() -> None:
    """One sentence; erasing "ann" everywhere would be a disaster."""
    for text in ("ann", "@example.com", "ann@", ""):
        with pytest.raises(ValueError, match="is not an address"):
            ann(text)


@given(st.recursive(st.text() | st.integers() | st.binary() | st.none() | st.booleans() | st.floats(allow_nan=False),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_what_does_not_name_the_person_stays_as_it_is(value: Any) -> None:
    """Values of all kinds come back equal, and of the same types."""
    assert ann().erased(value) == (value, 0)
    assert type(ann().erased(value)[0]) is type(value)


def bodies(address: str) -> list[tuple[Type, Any]]:
    """Records of all types that can name somebody."""
    who = [[address, 0, 0]]
    metadata = {
        "sender": "news@example.org",
        "size": 9,
        "received_ms": 1,
        "headers": {"subject": "Dear Ann, your results"},
    }
    two = metadata | {"headers": {"subject": "To both"}}
    return [
        (Type.SEGMENT, {"version": 1, "first": 1, "floor": ID}),
        (Type.ENVELOPE, [ID, metadata, [["default", address, 0, f"rfc822;{address}", ["Ann", "Berlin"]]]]),
        (Type.ENVELOPE, [ID, two, [["default", address, 0, None], ["default", "bob@example.com", 0, None]]]),
        (Type.START, [1, ID, "default", "mx", who, 1, "", 9]),
        (
            Type.DELIVERY,
            [1, ID, "default", "mx", [[3, 550, "5.1.1", f"<{address}> unknown", "rcpt", who]], ["mx", "", ""]],
        ),
        (Type.IN_DOUBT, [[1], [[ID, "default", address, 1, "retry"]]]),
        (Type.REMOVED, [ID, "default", [address], "order"]),
        (Type.MOVED, [ID, "default", [address], 1]),
        (Type.TASK, ["did", 9, ["default", [[ID, address, 0, None]], 1, "hold", {}]]),
        (Type.STANDING, ["stop", ["tenant", "t"], [1, 1], f"asked for by {address}"]),
        (Type.POSITION, {"working": [[1, ID, "default", "mx", who, 1]], "marks": {}}),
        (Type.END, None),
    ]


def segment(folder: Path, first: int, addresses: list[str]) -> Path:
    """A file with all those records for each address, and enough of others to fill blocks."""
    rows = [row for address in addresses for row in bodies(address)[1:-1]]
    rows = [bodies(ANN)[0], *rows, *[(Type.FINISH, ["f" * 400])] * 400, *rows, bodies(ANN)[-1]]
    records = [Record(first + n, 1_000 + n, kind, pack(body)) for n, (kind, body) in enumerate(rows)]
    folder.mkdir(exist_ok=True)
    path = folder / f"{first:016d}.journal"
    path.write_bytes(frame(records, 0))
    return path


def heads(path: Path) -> list[tuple[int, int, int]]:
    return [record[:3] for record in parse(path.read_bytes(), [])]


@pytest.mark.parametrize("address", [ANN, LONG, "a@b.example"])
def test_segments_keep_numbers_times_and_types(tmp_path: Path, address: str) -> None:
    """Of each record only the person is gone; files that do not name the person are not touched."""
    mine, other = (
        segment(tmp_path / "a", 1, [address, "bob@example.com"]),
        segment(tmp_path / "a", 1_000, ["bob@example.com"]),
    )
    before, untouched, was = heads(mine), other.stat(), mine.read_bytes()
    [place] = list(erase_archive(tmp_path / "a", ann(address)))
    assert heads(mine) == before
    assert (other.stat().st_ino, other.stat().st_mtime_ns) == (untouched.st_ino, untouched.st_mtime_ns)
    assert (place.entries, place.damage) == (20, [])
    assert place.before == hashlib.sha256(was).hexdigest()
    assert place.after == hashlib.sha256(mine.read_bytes()).hexdigest()
    assert search(mine, ann(address)) == 0
    assert list(erase_archive(tmp_path / "a", ann(address))) == []
    faults: list[Any] = []
    assert [record[:3] for record in read(tmp_path / "a", faults=faults)] == before + heads(other)
    assert faults == []


def test_what_was_the_persons_alone_goes_too(tmp_path: Path) -> None:
    """Merge values, ORCPT, and the subject of a message that nobody else got; the other's message keeps its subject."""
    path = segment(tmp_path, 1, [ANN])
    list(erase_archive(tmp_path, ann()))
    first, second = [unpack(r.body) for r in parse(path.read_bytes(), []) if r.type == Type.ENVELOPE][:2]
    assert first[2] == [["default", STAND_IN, 0, None, ["", ""]]]
    assert first[1]["headers"] == {"subject": ""}
    assert second[1]["headers"] == {"subject": "To both"}
    assert [row[1] for row in second[2]] == [STAND_IN, "bob@example.com"]
    assert b"Berlin" not in path.read_bytes()


def test_a_damaged_segment_is_reported_and_keeps_what_can_be_read(tmp_path: Path) -> None:
    """Its readable records stay, LOST ones stand for the rest; one that does not name the person is left as it is."""
    mine, other = segment(tmp_path, 1, [ANN]), segment(tmp_path, 1_000, ["bob@example.com"])
    for path in (mine, other):
        with path.open("r+b") as file:
            file.seek(BLOCK_BYTES + 100)
            file.write(b"\0" * 40)
    readable, left = {head[0] for head in heads(mine)}, other.read_bytes()
    first, second = list(erase_archive(tmp_path, ann()))
    assert first.damage
    assert first.after
    assert (second.entries, second.after, other.read_bytes() == left) == (0, "", True)
    assert second.damage
    kept = heads(mine)
    assert readable < {head[0] for head in kept}
    assert any(head[2] == Type.LOST for head in kept)
    assert search(mine, ann()) == 0


def test_a_crash_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """What a killed run left beside a segment is swept away, and the segment done by the next run."""
    path = segment(tmp_path, 1, [ANN])
    path.with_name(path.name + ".erasing").write_bytes(b"half")
    list(erase_archive(tmp_path, ann()))
    assert sorted(os.listdir(tmp_path)) == [path.name]
    assert search(path, ann()) == 0


def lake(folder: Path) -> None:
    """Tables as they come: text, structures, maps, times, binary; a plan; text beside them."""
    day = folder / "deliveries" / "v=3" / "day=2026-03-02"
    day.mkdir(parents=True)
    at = pa.array([1, 2, 3], pa.timestamp("us", tz="UTC"))
    evidence = [[{"reply": f"<{ANN}> no", "n": 1}], [], None]
    rows = pa.table(
        {
            "recipient": [ANN, "bob@example.com", ANN.lower()],
            "at": at,
            "evidence": pa.array(evidence, pa.list_(pa.struct([("reply", pa.string()), ("n", pa.int32())]))),
            "classes": pa.array([[(ANN, 1)], [("x", 2)], None], pa.map_(pa.string(), pa.int64())),
            "sketch": pa.array([b"\x00\xff", b"", None], pa.binary()),
        }
    )
    pq.write_table(rows, day / "a.parquet", row_group_size=2, compression="zstd")
    pq.write_table(rows.slice(1, 1), day / "b.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(rows.slice(0, 1), day / "old.parquet", use_deprecated_int96_timestamps=True)
    (day / ".a.parquet.crc").write_bytes(b"crc")
    plan = folder / "plans" / "spring"
    plan.mkdir(parents=True)
    request = {"campaign": "spring", "columns": ["name"], "recipients": [[ANN, "Ann"], ["bob@example.com", "Bob"]]}
    body = [json.dumps(request).encode()]
    pq.write_table(pa.table({"chunk": ["spring 1"], "n": pa.array([2], pa.int32()), "body": body}), plan / "p.parquet")
    (plan / "report.json").write_text(json.dumps({"rejected": [ANN], "kept": 1}))


def test_the_lake_keeps_rows_schema_and_order(tmp_path: Path) -> None:
    """Every column that names the person is rewritten, nested ones too; all else, and other files, stay as they are."""
    lake(tmp_path)
    day = tmp_path / "deliveries" / "v=3" / "day=2026-03-02"
    before, quiet = pq.read_table(day / "a.parquet"), (day / "b.parquet").stat().st_ino
    places = {Path(place.file).name: place for place in erase_lake(tmp_path, ann())}
    assert {name: place.entries for name, place in places.items()} == {
        "a.parquet": 2, "old.parquet": 1, "p.parquet": 1, "report.json": 1,
    }  # fmt: skip
    after = pq.read_table(day / "a.parquet")
    assert after.schema == before.schema
    assert after["recipient"].to_pylist() == [STAND_IN, "bob@example.com", STAND_IN]
    assert after["classes"].to_pylist() == [[(STAND_IN, 1)], [("x", 2)], None]
    assert after.select(["at", "sketch"]) == before.select(["at", "sketch"])
    assert pq.ParquetFile(day / "old.parquet").schema.column(1).physical_type == "INT96"
    assert pq.ParquetFile(day / "a.parquet").num_row_groups == 2
    assert (day / "b.parquet").stat().st_ino == quiet
    assert not (day / ".a.parquet.crc").exists()
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or search_lake(path, ann())[0] == 0


def test_nobody_is_sent_mail_from_a_plan_any_more(tmp_path: Path) -> None:
    """The person's row is gone from the chunk, and the count is right."""
    lake(tmp_path)
    list(erase_lake(tmp_path, ann()))
    rows = pq.read_table(tmp_path / "plans" / "spring" / "p.parquet").to_pylist()
    assert rows[0]["n"] == 1
    assert json.loads(rows[0]["body"])["recipients"] == [["bob@example.com", "Bob"]]
    assert json.loads((tmp_path / "plans" / "spring" / "report.json").read_text()) == {
        "rejected": [STAND_IN],
        "kept": 1,
    }


def test_a_file_that_is_no_parquet_is_reported(tmp_path: Path) -> None:
    """It stays, and the proof says so."""
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not")
    [place] = list(erase_lake(tmp_path, ann()))
    assert "cannot be read as Parquet" in place.damage[0]


def test_stand_ins_say_nothing_and_are_never_the_same() -> None:
    """Chance alone: two erasures of one address cannot be joined."""
    assert pseudonym() != pseudonym()
    assert pseudonym().endswith(f"@{ERASED_DOMAIN}")
