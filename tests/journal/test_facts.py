"""What records say: older, shorter bodies too, and what earlier versions left on disk."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.alive import Alive
from zonemta_py.journal.facts import Answered, Attempted, Fact, TakenBack, TaskDid, TaskOrdered, Unsuppressed, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import VERDICTS, DeliveryTrace

LEFT = sorted((Path(__file__).parents[1] / "upgrade").glob("*.tar.xz"))
SILENT = {Type.SEGMENT, Type.POSITION, Type.END}


def facts(kind: Type, body: Any) -> list[Fact]:
    return facts_of(Record(7, 1, int(kind), pack(body)))


def test_an_answer_of_an_older_queue_is_whole() -> None:
    """Its outcome has six fields, its trace none; a verdict has one word, and one of a later queue a number."""
    body = [5, "m1", "z", "d", [[5, 451, "", "no room", "limit", ["a@b.c", ["d@e.f", 1, 2, 3]]]], []]
    (one,) = facts(Type.DELIVERY, body)
    who = ["a@b.c", ["d@e.f", 1, 2, 3]]
    assert one == Answered(
        "m1", "z", "d", 5, DeliveryTrace(), 5, 451, "", "no room", "limit", who, False, "", "", False, None
    )
    assert isinstance(one, Answered)
    assert (one.verdict, one.people, one.who[1]) == ("requeued", ["a@b.c", "d@e.f"], ("d@e.f", 1, 2, 3))
    assert one._replace(number=9).verdict == "verdict 9"
    assert len(set(VERDICTS.values())) == len(VERDICTS) == 6


def test_what_one_record_says_of_several() -> None:
    """Each is a fact of its own, in their order."""
    value = ["z", [["m1", "a@b.c", 1, 5], ["m2", "d@e.f", 5, 9, "0~shop~", 77]], 3, "move", {"zone": "other"}]
    assert facts(Type.TASK, ["did", 4, value]) == [
        TaskDid("m1", "z", "a@b.c", "", None, 4, "move", False, "other", 3),
        TaskDid("m2", "z", "d@e.f", "0~shop~", 77, 4, "move", False, "other", 3),
    ]
    assert [fact.now_in for fact in facts(Type.TASK, ["undid", 4, value]) if isinstance(fact, TaskDid)] == ["z", "z"]
    assert facts(Type.TASK, ["created", 0, {}]) == [TaskOrdered(7, "created", {})]
    assert facts(Type.IN_DOUBT, [[1, 2], []]) == [TakenBack(1), TakenBack(2)]
    assert facts(Type.UNSUPPRESS, [["a@b.c"], "me"]) == [Unsuppressed("a@b.c", "all", "me")]
    assert facts(Type.UNSUPPRESS, [["a@b.c"], "me", ["zone:z"]]) == [Unsuppressed("a@b.c", "zone:z", "me")]


@pytest.mark.parametrize("packed", LEFT, ids=lambda path: path.name.partition(".")[0])
def test_what_earlier_versions_left_says_who_waits(packed: Path, tmp_path: Path) -> None:
    """Each record says something of mail, but those about the journal itself; and everybody who was given to a sender,
    and has no answer, is alive."""
    with tarfile.open(packed) as files:
        files.extractall(tmp_path, filter="data")
    queue, alive, given = tmp_path / "queue", Alive(), set[tuple[str, str]]()
    for record in segments.read_files(segments.every_file(queue / "journal", queue / "archive")):
        told = facts_of(record)
        assert bool(told) == (record.type not in SILENT), record
        for fact in told:
            alive.fold(fact)
            if isinstance(fact, Attempted):
                given |= {(fact.id, address) for address in fact.people}
            elif isinstance(fact, Answered):
                given -= {(fact.id, address) for address in fact.people}
    assert given
    assert all(address in alive.alive[message] for message, address in given)
    assert alive.ended
    assert not alive.ended & set(alive.alive)
