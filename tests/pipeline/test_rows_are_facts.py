"""The lake's reader takes records apart by the column, for speed: it says what the journal's facts say."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.facts import (
    Accepted,
    Answered,
    Attempted,
    CameBack,
    Doubted,
    Ended,
    Fact,
    Moved,
    Opened,
    Removed,
    StateTaken,
    Stood,
    Suppressed,
    TakenOver,
    TaskDid,
    TaskOrdered,
    Unsuppressed,
    facts_of,
)
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.taken import FAMILIES
from zonemta_py.pipeline.journal.rows import Misfit, batches
from zonemta_py.pipeline.journal.schema import ROWS

Row = dict[str, Any]
LEFT = sorted((Path(__file__).parents[1] / "upgrade").glob("*.tar.xz"))
WHERE = {"destination": "d", "due": [], "campaign": "spring"}
TRACE = ["mx:25", "10.0.0.1", "TLSv1.3", 5, 50, "10.0.0.1", "mx", "google", []]
BODIES: list[tuple[Type, Any]] = [
    (Type.ENVELOPE, ["m1", {"sender": "a@b.c", "size": 5}, [["z", "d@e.f", 3, "rfc822;x"], ["y", "g@h.i"]], ["k"]]),
    (Type.OPEN, ["m1"]),
    (Type.START, [1, "m1", "z", "d", ["d@e.f", ["g@h.i", 5]], 9]),
    (Type.START, [1, "m1", "z", "d", ["d@e.f"], 9, "google", 5]),
    (Type.DELIVERY, [1, "m1", "z", "d", [[5, 451, "", "no room", "limit", ["d@e.f"]]], []]),
    (Type.DELIVERY, [1, "m1", "z", "d", [
        [2, 451, "4.2.0", "later", "rcpt", [["d@e.f", 0, 77, 1]], False, "greylisting", "r1"],
        [3, 550, "5.1.1", "no", "rcpt", [["g@h.i", 5, 0, 2], "j@k.l"], True, "unknown-user", "r2", True],
        [9, 250, "", "", "dot", ["m@n.o"]],
    ], TRACE]),
    (Type.FINISH, ["m1", "spring"]),
    (Type.FINISH, ["m1", "spring", [2, 1, 0]]),
    (Type.IN_DOUBT, [[1], [["m1", "z", "d@e.f", 5, "retry"], ["m1", "z", "g@h.i", 5, "hold", "d", "why"]]]),
    (Type.REMOVED, ["m1", "z", ["d@e.f", "g@h.i"], "purged"]),
    (Type.REMOVED, ["m1", "z", ["d@e.f"], "purged", WHERE | {"envelope": {"sender": "a@b.c"}}]),
    (Type.MOVED, ["m1", "z", ["d@e.f"], 5, "0~shop~"]),
    (Type.STANDING, ["stop", ["zone", "z"], [5, 6, True], "me"]),
    (Type.SUPPRESS, [["d@e.f", "bounce", 5, "r", "e", "me", ""], ["g@h.i", "complaint", 5, "", "", "me", "c", "all"]]),
    (Type.UNSUPPRESS, [["d@e.f", "g@h.i"], "me", ["all", "zone:z"]]),
    (Type.TASK, ["created", 0, {"verb": "hold", "cause": "c"}]),
    (Type.TASK, ["did", 4, ["z", [["m1", "d@e.f", 1, 5], ["m2", "g@h.i", 5, 9, "0~~", 77]], 3, "move", {"zone": "y"}]]),
    (Type.TAKEN, ["message", 2, ["m1", {"sender": "a@b.c"}, [["z", "d@e.f", 0, None, 1, 77], ["y", "g@h.i"]], []]]),
    (Type.TAKEN, ["requests", 2, [["request - 00", 5, "m1", 1, 0, b"d", 9]]]),
    (Type.FEEDBACK, ["bounce", "d@e.f", "m1", "", "", "", "z", 550, "5.1.1", "no"]),
]  # fmt: skip


def told(record: Record) -> list[Row]:
    """The rows of a record, by its facts."""
    return [row for fact in facts_of(record) for row in said(fact)]


def said(fact: Fact) -> Iterator[Row]:
    match fact:
        case Accepted():
            for address, row in zip(fact.people, fact.rows(), strict=True):
                yield {"id": fact.id, "zone": row.zone, "recipient": address, "sender": fact.metadata.get("sender")}
        case Attempted():
            more = {"lease": fact.lease, "destination": fact.destination, "provider": fact.provider, "size": fact.size}
            yield from ({"id": fact.id, "zone": fact.zone, "recipient": one, **more} for one in fact.people)
        case Answered(trace=trace):
            more = {
                "lease": fact.lease, "destination": fact.destination, "verdict": fact.verdict, "code": fact.code,
                "enhanced": fact.enhanced, "reply": fact.text, "stage": fact.stage, "class": fact.kind,
                "rule": fact.rule, "relayed": fact.relayed, "remote": trace.remote, "local": trace.local,
                "tls": trace.tls, "took_ms": trace.took_ms, "source": trace.source, "site": trace.site,
                "provider": trace.provider,
            }  # fmt: skip
            for who in fact.who:
                yield {"id": fact.id, "zone": fact.zone, "recipient": who.address, "due_at": who.due_ms, **more}
        case Doubted():
            yield {"id": fact.id, "zone": fact.zone, "recipient": fact.address, "reason": fact.action}
        case Removed() | Moved():
            yield from ({"id": fact.id, "zone": fact.zone, "recipient": one} for one in fact.recipients)
        case TakenOver():
            about = {"id": fact.id, "what": "message", "name": str(fact.queue)}
            for row in fact.message.rows():
                yield {**about, "zone": row.zone, "recipient": row.address, "kind": FAMILIES[row.family]}
        case StateTaken():
            yield {"what": fact.what, "name": str(fact.queue)}
        case Ended() | Opened():
            yield {"id": fact.id}
        case TaskDid():
            who = {"id": fact.id, "zone": fact.zone, "recipient": fact.recipient}
            yield who | {"kind": fact.verb, "name": str(fact.task)}
        case TaskOrdered():
            yield {"what": fact.what, "name": str(fact.task), "kind": fact.value.get("verb")}
        case Stood():
            yield {"what": fact.what, "kind": fact.kind, "name": fact.name, "reason": fact.cause}
        case Suppressed():
            why = {"kind": fact.kind, "reason": fact.reason, "name": fact.by, "campaign": fact.campaign}
            yield {"recipient": fact.address} | why
        case Unsuppressed():
            yield {"recipient": fact.recipient, "name": fact.by}
        case CameBack():
            yield {
                "id": fact.message, "zone": fact.zone, "recipient": fact.recipient, "kind": fact.kind,
                "code": fact.code, "enhanced": fact.enhanced, "reply": fact.text, "class": fact.reply_class,
            }  # fmt: skip


def agree(records: list[Record]) -> None:
    payloads = [
        record.seq.to_bytes(8, "little") + record.ms.to_bytes(8, "little") + bytes([record.type]) + record.body
        for record in records
    ]
    misfits: list[Misfit] = []
    rows = pa.Table.from_batches(list(batches(payloads, 0, "one", misfits)), ROWS).to_pylist()
    assert misfits == []
    for record in records:
        here = sorted((row for row in rows if row["seq"] == record.seq), key=lambda row: row["part"])
        expected = told(record)
        assert len(here) == max(len(expected), 1), record
        for row, one in zip(here, expected, strict=False):
            for name, value in one.items():
                found = int(row[name].timestamp() * 1000) if name == "due_at" and row[name] else row[name]
                assert (found or None) == (value or None), (record, name)


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=lambda value: value.name if isinstance(value, Type) else "")
def test_rows_say_what_facts_say(kind: Type, body: Any) -> None:
    agree([Record(7, 1_700_000_000_000, int(kind), pack(body))])


@pytest.mark.parametrize("packed", LEFT, ids=lambda path: path.name.partition(".")[0])
def test_they_say_the_same_of_what_earlier_versions_left(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as files:
        files.extractall(tmp_path, filter="data")
    queue = tmp_path / "queue"
    agree(list(segments.read_files(segments.every_file(queue / "journal", queue / "archive"))))
