"""`zonemta journal`: reads real segments, written by the journal's own writer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.cli.terminal.output import moment
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Writer

START_MS = 1_700_000_000_000
RECIPIENTS = [["default", "bob@x.org", 0, None], ["default", "Eve@x.org", 0, None]]
BODIES: list[tuple[Type, object]] = [
    (Type.SEGMENT, {"version": 1}),
    (Type.ENVELOPE, ["m1", {"sender": "a@b.c\x1b[2J"}, RECIPIENTS]),
    (Type.ENVELOPE, ["m2", {"sender": ""}, [["default", "carl@y.org", 0, None]]]),
    (Type.START, [1, "m1", "default", "x.org", [["bob@x.org", 5]], START_MS]),
    (Type.DELIVERY, [1, "m1", "default", "x.org", [], {}, {}, None, "a field of the future"]),
    (Type.POSITION, {"marks": {"default": 7}}),
    (Type.FINISH, ["m2"]),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [Record(n + 1, START_MS + n * 60_000, kind, pack(body)) for n, (kind, body) in enumerate(BODIES)]
    Writer(tmp_path / "journal").write(records, sync=True)
    return tmp_path


def types(out: str) -> list[str]:
    return [json.loads(line)["type"] for line in out.splitlines()]


def test_every_record_is_a_line(zonemta: Callable[..., object], folder: Path) -> None:
    """For people: number, time, type, and the body with its fields named; nothing in it can steer the terminal."""
    ran = zonemta("journal", "dump", "--folder", folder)
    lines = ran.out.splitlines()
    assert (ran.code, len(lines)) == (Exit.OK, len(BODIES))
    assert lines[1].split()[:4] == ["2", *moment(START_MS + 60_000).split(), "envelope"]
    assert '"id": "m1"' in lines[1]
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["segment", "envelope", "envelope", "start", "delivery", "position", "finish"]),
        (["--id", "m1"], ["envelope", "start", "delivery"]),
        (["--id", "m2"], ["envelope", "finish"]),
        (["--recipient", "BOB@x.org"], ["envelope", "start"]),
        (["--recipient", "eve@X.org"], ["envelope"]),
        (["--type", "start"], ["start"]),
        (["--type", "Envelope", "--recipient", "carl@y.org"], ["envelope"]),
        (["--since", "2023-11-14T22:18:00"], ["position", "finish"]),
        (["--until", "2023-11-14T22:14:00"], ["segment"]),
        (["--since", "2023-11-14T22:14:20", "--until", "2023-11-14T22:16:20"], ["envelope", "envelope"]),
        (["--id", "nobody"], []),
    ],
)
def test_filters(zonemta: Callable[..., object], folder: Path, options: list[str], expected: list[str]) -> None:
    """By message, recipient, type and time; several must all be met."""
    ran = zonemta("journal", "dump", "--json", "--folder", folder, *options)
    assert (ran.code, types(ran.out)) == (Exit.OK, expected)


def test_json_is_one_document_a_line(zonemta: Callable[..., object], folder: Path) -> None:
    """With the body's fields by name; what this version does not know yet is left out."""
    ran = zonemta("journal", "dump", "--json", "--type", "delivery", "--folder", folder)
    assert json.loads(ran.out) == {
        "seq": 5,
        "ms": START_MS + 240_000,
        "type": "delivery",
        "body": {
            "lease": 1,
            "id": "m1",
            "zone": "default",
            "destination": "x.org",
            "outcomes": [],
            "trace": {},
            "notes": {},
            "about": None,
        },
    }


def test_positions(zonemta: Callable[..., object], folder: Path) -> None:
    """Only the position records."""
    ran = zonemta("journal", "positions", "--json", "--folder", folder)
    assert [json.loads(line)["body"] for line in ran.out.splitlines()] == [{"marks": {"default": 7}}]


def test_damage_is_named_and_the_rest_is_shown(zonemta: Callable[..., object], folder: Path) -> None:
    """A flipped byte costs its record, is named with file and offset on stderr, and makes the exit status 1."""
    (path,) = (folder / "journal").glob("*")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"m2")] ^= 0xFF
    path.write_bytes(data)
    ran = zonemta("journal", "dump", "--json", "--folder", folder)
    assert ran.code == Exit.PROBLEMS
    assert str(path) in ran.err
    assert "zonemta fsck" in ran.err
    assert types(ran.out)[-1] == "position"
