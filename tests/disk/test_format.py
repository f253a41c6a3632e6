"""FORMAT.md is true: its example is what the code writes, its tables name every type and every key."""

import re
import struct
from pathlib import Path

import google_crc32c

from zonemta_py.disk import body_file, keys, records
from zonemta_py.disk.frame import BLOCK_BYTES, VERSION, Record, frame, parse
from zonemta_py.disk.records import Note, Type

PAGE = (Path(records.__file__).parent / "FORMAT.md").read_text()
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
ID, FLOOR, MS = "18bcfe5680000001", "18bcfe5680000000", 1_700_000_000_000


def test_the_example_is_what_the_code_writes() -> None:
    """Byte for byte, and it reads back."""
    envelope = [ID, {"sender": "a@b.c", "size": 5, "received_ms": MS, "chunks": 1}, [["default", "x@y.z", 0, None]]]
    rows = [
        Record(1, MS, Type.SEGMENT, records.pack({"version": 1, "first": 1, "floor": FLOOR})),
        Record(2, MS + 1, Type.ENVELOPE, records.pack(envelope)),
        Record(3, MS + 2, Type.FINISH, records.pack([ID])),
        Record(4, MS + 3, Type.END, records.pack(None)),
    ]
    shown = bytes.fromhex("".join(re.findall(r"^    ([0-9a-f ]+)$", SECTIONS["Example"], re.M)))
    assert shown == frame(rows, 0)
    assert list(parse(shown, [])) == rows
    assert VERSION == 1
    assert f"{BLOCK_BYTES:,} bytes" in SECTIONS["Journal: frames"]


def test_every_record_type_is_listed() -> None:
    """With its number."""
    listed = re.findall(r"^\| (\d+) ([A-Z_]+) \|", SECTIONS["Record types"], re.M)
    assert {name: int(number) for number, name in listed} == {kind.name: int(kind) for kind in Type}


def test_every_key_is_listed() -> None:
    """Each as the code makes it, with its parts named."""
    parts = ("<zone>", "<due>", "<id>", "<recipient>")
    made = {
        keys.chunk("<id>", 1).decode(),
        keys.existence("<id>").decode(),
        keys.metadata("<id>").decode(),
        keys.fresh("<zone>", "<id>", "<recipient>").decode(),
        keys.deferred("<zone>", 0, "<id>", "<recipient>").decode().replace("0" * 12, parts[1]),
        keys.parked("<zone>", "<destination>", "<id>", "<recipient>").decode(),
        keys.held("<zone>", "<id>", "<recipient>").decode(),
        keys.in_doubt("<id>", "<recipient>").decode(),
        keys.size("<zone>", "<domain>").decode(),
        keys.template("<name>", 1).decode(),
        keys.campaign("<name>").decode(),
        keys.tally("<name>").decode(),
        keys.course("<name>").decode(),
        keys.request("<scope>", "<name>").decode(),
        keys.request_end(0, keys.request("<scope>", "<name>")).decode().replace("0" * 12, "<until>"),
        keys.suppressed("<address>").decode(),
        keys.suppressed("<address>", "<scope>").decode(),
        keys.standing(0).decode().replace("0" * 16, "<seq>"),
        keys.STANDING_STATE.decode(),
        keys.STATE.decode(),
    }
    assert set(re.findall(r"^\| `([^`]+)`", SECTIONS["Store: keys and values"], re.M)) == made


def test_the_note_has_the_fields_that_are_listed() -> None:
    """In their order, as many as the code has."""
    row = re.search(r"note := empty \| \[(.+)\]", PAGE)
    assert row
    assert len(row[1].split(", ")) == len(Note._fields)


def test_the_page_can_be_read_in_one_go() -> None:
    """Three hundred lines at most."""
    assert len(PAGE.splitlines()) <= 300


def test_a_body_file_is_as_it_is_described(tmp_path: Path) -> None:
    """Made here by hand from the page, it is what the code writes."""

    def crc(number: int, data: bytes) -> bytes:
        return struct.pack("<I", google_crc32c.value(ID.encode() + struct.pack("<I", number) + data))

    file = body_file.BodyFile(tmp_path, ID)
    file.write([b"one", b"three"])
    assert file.finish() == (tmp_path / ID).stat().st_size
    lengths = struct.pack("<II", 3, 5)
    pieces = [b"zonemta body 1 ", ID.encode(), b"\n"]
    pieces += [crc(1, b"one"), lengths[:4], b"one", crc(2, b"three"), lengths[4:], b"three", lengths, crc(0, lengths)]
    assert (tmp_path / ID).read_bytes() == b"".join(pieces)
