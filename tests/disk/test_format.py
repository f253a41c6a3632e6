"""FORMAT.md is true: its example is what the code writes, its tables name every type and every key."""

import re
import struct
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import google_crc32c
import pytest

from zonemta_py.disk import body_file, keys, packing
from zonemta_py.disk.frame import BLOCK_BYTES, VERSION, Record, frame, parse
from zonemta_py.disk.notes import Note
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import LostRecord
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DELIVERED,
    DeliveryRecord,
    DeliveryTrace,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    InDoubtRow,
    MovedRecord,
    OpenRecord,
    OutcomeRow,
    RecipientRow,
    RemovedRecord,
    StartRecord,
    Who,
    address_of,
)
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.journal.records.people import FeedbackRecord, UnsuppressRecord
from zonemta_py.queue.suppression.entry import Suppressed

PAGE = (Path(packing.__file__).parent / "FORMAT.md").read_text()
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
ID, FLOOR, MS = "18bcfe5680000001", "18bcfe5680000000", 1_700_000_000_000


def test_the_example_is_what_the_code_writes() -> None:
    """Byte for byte, and it reads back."""
    envelope = [ID, {"sender": "a@b.c", "size": 5, "received_ms": MS, "chunks": 1}, [["default", "x@y.z", 0, None]]]
    rows = [
        Record(1, MS, Type.SEGMENT, packing.pack({"version": 1, "first": 1, "floor": FLOOR})),
        Record(2, MS + 1, Type.ENVELOPE, packing.pack(envelope)),
        Record(3, MS + 2, Type.FINISH, packing.pack([ID])),
        Record(4, MS + 3, Type.END, packing.pack(None)),
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
        keys.deleted("<zone>", 0, "<id>", "<recipient>").decode().replace("0" * 16, "<task>"),
        keys.bounced("<zone>", 0, "<id>", "<recipient>").decode().replace("0" * 12, "<until>"),
        keys.task(0).decode().replace("0" * 16, "<number>"),
        keys.in_doubt("<id>", "<recipient>").decode(),
        keys.size("<zone>", "<domain>").decode(),
        keys.index_of(b"<family> <zone> <middle> <id> <recipient>").decode(),
        keys.flow_size("<tenant>~<campaign>").decode(),
        keys.quota("<account>", "<what>", 0).decode().replace(" 0", " <length>"),
        unquote(keys.plugin("<plugin>", "<kind>", "<name>").decode()),
        keys.plugin_done("<token>").decode(),
        keys.TRACKED.decode(),
        keys.LOG.decode(),
        keys.ORDERED.decode(),
        keys.template("<name>", 1).decode(),
        keys.campaign("<name>").decode(),
        keys.tally("<name>").decode(),
        keys.course("<name>").decode(),
        keys.left("<name>").decode(),
        keys.request("<scope>", "<name>").decode(),
        keys.request_end(0, keys.request("<scope>", "<name>")).decode().replace("0" * 12, "<until>"),
        keys.suppressed("<address>").decode(),
        keys.suppressed("<address>", "<scope>").decode(),
        keys.sent("<id>").decode(),
        keys.sent_as(b"\0").decode().replace("00", "<name>"),
        keys.sent_to("<id>", "<hash>").decode(),
        keys.evidence("<address>").decode(),
        keys.guard("<provider> <source>").decode(),
        keys.guard_day("<provider>").decode(),
        keys.feedback(0).decode().replace("0" * 16, "<seq>"),
        keys.feedback_of("<id>", "<name>").decode(),
        keys.standing(0).decode().replace("0" * 16, "<seq>"),
        keys.STANDING_STATE.decode(),
        keys.lesson(0).decode().replace("0" * 16, "<number>"),
        keys.spooled("<id>").decode(),
        keys.domain("<name>").decode(),
        keys.DOMAINS_STATE.decode(),
        keys.SENT_ABOUT.decode() + "<id> [<address>]",
        keys.moving_to(7).decode().replace("7", "<queue>"),
        keys.moving_from(7).decode().replace("7", "<queue>"),
        keys.moving_away("<zone>").decode(),
        keys.taken("<id>").decode(),
        keys.taken("- <what>").decode(),
        keys.STATE.decode(),
    }
    assert set(re.findall(r"^\| `([^`]+)`", SECTIONS["Store: keys and values"], re.M)) == made


def test_the_note_has_the_fields_that_are_listed() -> None:
    """In their order, as many as the code has."""
    row = re.search(r"note := empty \| \[(.+)\]", PAGE)
    assert row
    assert len(row[1].split(", ")) == len(Note._fields)


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


# Bodies of records, written by queues of the time when every writer and every reader knew the places of the fields.
WRITTEN: list[tuple[str, Any]] = [
    (
        "93b03138626366653536383030303030303186a673656e646572ac616e6e407372632e74657374a473697a6516ab72656365697665645f6d"
        "73cf0000018bcfe56800a4626f6479a437424954a870726f746f636f6ca545534d5450a66368756e6b73019194a17aa86140782e74657374"
        "00c0",
        EnvelopeRecord(
            ID,
            {"sender": "ann@src.test", "size": 22, "received_ms": MS, "body": "7BIT", "protocol": "ESMTP", "chunks": 1},
            [["z", "a@x.test", 0, None]],
        ),
    ),
    ("91b031386263666535363830303030303031", OpenRecord(ID)),
    (
        "9805b031386263666535363830303030303032a17aa67a2e7465737491a863407a2e74657374cf0000018bcfe56800a016",
        StartRecord(5, "18bcfe5680000002", "z", "z.test", ["c@z.test"], MS, "", 22),
    ),
    (
        "9803b031386263666535363830303030303031a46d61696ea6782e746573749192aa626f6240782e74657374cf0000018bcfe56800cf0000"
        "018bcfe56800a016",
        StartRecord(3, ID, "main", "x.test", [["bob@x.test", MS]], MS, "", 22),
    ),
    (
        "9601b031386263666535363830303030303031a17aa6782e74657374919901ccfaa5322e302e30a26f6ba3646f7491ac666972737440782e"
        "74657374c2a0a099b56d782e746573745b3132372e302e302e395d3a3235a0a0000aa0a6782e74657374a090",
        DeliveryRecord(
            1,
            ID,
            "z",
            "x.test",
            [OutcomeRow(DELIVERED, 250, "2.0.0", "ok", "dot", ["first@x.test"])],
            DeliveryTrace("mx.test[127.0.0.9]:25", took_ms=10, site="x.test", security=[]),
        ),
    ),
    (
        "9603b031386263666535363830303030303031a46d61696ea6782e74657374919901ccfaa5322e302e30a26f6ba3646f749193aa626f6240"
        "782e74657374cf0000018bcfe5680000c2a0a099b56d782e746573745b3132372e302e302e395d3a3235a0a00000a0a6782e74657374a090",
        DeliveryRecord(
            3,
            ID,
            "main",
            "x.test",
            [OutcomeRow(DELIVERED, 250, "2.0.0", "ok", "dot", [["bob@x.test", MS, 0]])],
            DeliveryTrace("mx.test[127.0.0.9]:25", site="x.test", security=[]),
        ),
    ),
    ("91b031386263666535363830303030303031", FinishRecord(ID)),
    ("92911790", InDoubtRecord([23], [])),
    (
        "9291069195b031386263666535363830303030303032a17aa863407a2e74657374cf0000018bcfe56800a57265747279",
        InDoubtRecord([6], [InDoubtRow("18bcfe5680000002", "z", "c@z.test", MS, "retry")]),
    ),
    (
        "94b031386263666535363830303030303031a17a91a86140782e74657374b664726f7070656420627920616e206f70657261746f72",
        RemovedRecord(ID, "z", ["a@x.test"], "dropped by an operator"),
    ),
    (
        "95b031386263666535363830303030303032a764656661756c7491a9723040782e74657374b2737570707265737365643a20657261736564"
        "82ab64657374696e6174696f6ea0a364756591cf0000018bcfe9fbe0",
        RemovedRecord(
            "18bcfe5680000002",
            "default",
            ["r0@x.test"],
            "suppressed: erased",
            {"destination": "", "due": [MS + 300_000]},
        ),
    ),
    (
        "95b031386263666535363830303030303031a764656661756c7491aa626f6240782e74657374b76c6f73742062792064616d6167653a2069"
        "7473206b657983ab64657374696e6174696f6ea0a364756590a46c6f7374b83230323631313232543230343234372d6d65737361676573",
        RemovedRecord(
            ID,
            "default",
            ["bob@x.test"],
            "lost by damage: its key",
            {"destination": "", "due": [], "lost": "20261122T204247-messages"},
        ),
    ),
    (
        "94b031386263666535363830303030303031a764656661756c7492aa626f6240782e74657374aa63696440782e74657374cf0000018bcfe5"
        "6800",
        MovedRecord(ID, "default", ["bob@x.test", "cid@x.test"], MS),
    ),
    ("920709", LostRecord(7, 9)),
    (
        "94a473746f7092a863616d706169676ea6737072696e679400cf0000018bcfe56800c3cf0000018bcfe56800a477616974",
        StandingRecord("stop", ["campaign", "spring"], [0, MS, True, MS], "wait"),
    ),
    (
        "dc0017a6626f756e6365aa626f6240782e74657374b031386263666535363830303030303031aa3c6d40612e746573743ea6737072696e"
        "67a0a764656661756c74cd0226a5352e312e31ac6e6f20737563682075736572a96d782e782e74657374a772666333343634a4736d7470"
        "a5746f6b656ea0ac757365722d756e6b6e6f776eac756e6b6e6f776e2d75736572c3a5746f6b656e91d931313862636665353638303030"
        "3030303120306130613061306130613061306130613061306130613061306130613061306100c2a0",
        FeedbackRecord(
            "bounce",
            "bob@x.test",
            ID,
            "<m@a.test>",
            "spring",
            "",
            "default",
            550,
            "5.1.1",
            "no such user",
            "mx.x.test",
            "rfc3464",
            "smtp",
            "token",
            "",
            "user-unknown",
            "unknown-user",
            True,
            "token",
            [f"{ID} {'0a' * 16}"],
        ),
    ),
    ("9291aa616e6e40782e74657374a0", UnsuppressRecord(["ann@x.test"], "")),
    ("9391aa626f6240782e74657374a091a963616d706169676e73", UnsuppressRecord(["bob@x.test"], "", ["campaigns"])),
]


@pytest.mark.parametrize(("body", "record"), WRITTEN, ids=[type(one).__name__ for _, one in WRITTEN])
def test_a_body_is_what_it_was(body: str, record: Any) -> None:
    """Byte for byte; it reads back as it was, and so does a longer one, which a newer queue may write."""
    written = bytes.fromhex(body)
    assert record.pack() == written
    fields = unpack(written)
    assert type(record).of(fields) == record
    assert type(record).of([*fields, {"new": 1}] if len(fields) == len(record) else fields) == record


@pytest.mark.parametrize(
    ("body", "entry"),
    [
        (
            "9197a9723140782e74657374a66d616e75616ccf0000018bcfe56800a0a0a6746573746572a0",
            Suppressed("r1@x.test", "manual", MS, "", "", "tester", ""),
        ),
        (
            "9198a9723040782e74657374a66d616e75616ccf0000018bcfe56800a0a0a6746573746572a0a67a6f6e653a61",
            Suppressed("r0@x.test", "manual", MS, "", "", "tester", "", "zone:a"),
        ),
        (
            "9199aa616e6e40782e74657374a9636f6d706c61696e74cf0000018bcfe56800a0a0a6746573746572a0a3616c6c91ab686172642d626f"
            "756e6365",
            Suppressed("ann@x.test", "complaint", MS, "", "", "tester", "", "all", ("hard-bounce",)),
        ),
        (
            "919aaa626f6240782e74657374a9636f6d706c61696e74cf0000018bcfe56800a0a0a6746573746572a0a3616c6c91ab686172642d626f"
            "756e6365c3",
            Suppressed("bob@x.test", "complaint", MS, "", "", "tester", "", "all", ("hard-bounce",), True),
        ),
    ],
)
def test_an_entry_of_the_suppression_list_is_what_it_was(body: str, entry: Suppressed) -> None:
    """As short as what it says allows."""
    assert pack([entry.row()]).hex() == body
    assert [Suppressed.of(row) for row in unpack(bytes.fromhex(body))] == [entry]


def test_what_older_queues_did_not_write_is_filled_in() -> None:
    """A START of six fields, an outcome of six, a way of five."""
    assert StartRecord.of([5, ID, "z", "z.test", ["c@z.test"], MS]) == (
        5,
        ID,
        "z",
        "z.test",
        ["c@z.test"],
        MS,
        "",
        0,
        None,
    )
    delivery = DeliveryRecord.of(
        [5, ID, "z", "x.test", [[BOUNCED, 550, "5.1.1", "no", "rcpt", ["c@z.test"]]], ["mx", "", "", MS, 3]]
    )
    outcome, trace = delivery.outcomes[0], delivery.trace
    assert (outcome.verdict, outcome.addresses(), outcome.relayed, outcome.kind, outcome.rule) == (
        BOUNCED,
        ["c@z.test"],
        False,
        "",
        "",
    )
    assert (trace.took_ms, trace.source, trace.site, trace.provider, list(trace.security)) == (3, "", "", "", [])
    assert RemovedRecord.of([ID, "z", ["c@z.test"], "gone"]).where is None


def test_what_a_removal_says_of_its_cause() -> None:
    """Damage names its case, and who was never taken in brings the message's metadata."""
    assert RemovedRecord(ID, "z", [], "").case is None
    assert RemovedRecord(ID, "z", [], "").envelope is None
    assert RemovedRecord(ID, "z", [], "", {"destination": "", "due": []}).case is None
    assert RemovedRecord(ID, "z", [], "", {"lost": "1"}).case == "1"
    assert RemovedRecord(ID, "z", [], "", {"envelope": {}}).envelope == {}


@pytest.mark.parametrize(
    ("value", "who"),
    [
        ("a@b.c", Who("a@b.c")),
        (["a@b.c", 5], Who("a@b.c", 5)),
        (["a@b.c", 5, 7], Who("a@b.c", 5, 7)),
        (["a@b.c", 0, 7], Who("a@b.c", 0, 7)),
    ],
)
def test_a_recipient_says_since_when_and_until_when_it_waits(value: Any, who: Who) -> None:
    """In as few words as it takes."""
    assert Who.of(value) == who
    assert who.value() == value
    assert address_of(value) == "a@b.c"


def test_the_rows_of_an_envelope() -> None:
    """A newer queue may say more of a recipient, an older one less."""
    rows = EnvelopeRecord(ID, {}, [["z", "a@b.c", 3, "rfc822;x", None, 9], ["z", "d@b.c"]]).rows()
    assert rows == [RecipientRow("z", "a@b.c", 3, "rfc822;x"), RecipientRow("z", "d@b.c", 0, None)]


def test_rows_of_a_newer_queue_are_read() -> None:
    """What is added at the end of an outcome, a trace or a recipient in doubt is passed over."""
    outcome, trace = (
        [1, 250, "2.0.0", "ok", "dot", ["a@b.c"], False, "", "", True, ["p", "h", ""]],
        ["mx", "", "", 0, 0, "", "", "", []],
    )
    body = [1, ID, "z", "b.c", [[*outcome, "new"]], [*trace, "new"], None, None, "new"]
    assert DeliveryRecord.of(body) == (1, ID, "z", "b.c", [tuple(outcome)], tuple(trace), None, None)
    row = [ID, "z", "a@b.c", MS, "retry", "b.c"]
    assert InDoubtRecord.of([[1], [[*row, "why", None, "new"]]]) == ([1], [(*row, "why", None)])
    assert InDoubtRecord.of([[1], [row]]) == ([1], [(*row, "", None)])
    assert Who.of(["a@b.c", 1, 2, 3, "new"]) == ("a@b.c", 1, 2, 3)
