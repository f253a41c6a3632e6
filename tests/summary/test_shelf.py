"""Summaries beside segments: made once, never trusted when they do not fit, and gone with what they are of."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.pipeline.erasure.proof import forget
from zonemta_py.summary import questions, views
from zonemta_py.summary.keeper import SummaryKeeper
from zonemta_py.summary.questions import SummarySpan
from zonemta_py.summary.shelf import SummaryShelf, discard

START_MS = 1_772_409_600_000
EVER = SummarySpan(0, 1 << 31)
MINUTE_MS = 60_000


class Journal:
    """Writes segments of a queue into an archive, each record a second after the one before."""

    def __init__(self, archive: Path, ms: int = START_MS) -> None:
        self.archive, self.ms, self.seq = archive, ms, 0
        self.records: list[Record] = []
        archive.mkdir(parents=True, exist_ok=True)

    def add(self, kind: Type, body: Any) -> None:
        self.seq += 1
        self.ms += 1000
        self.records.append(Record(self.seq, self.ms, kind, pack(body)))

    def accept(self, *people: str, sender: str = "ann@shop.example", **metadata: Any) -> str:
        id_ = f"{self.ms << 20 | self.seq:016x}"
        said = {"sender": sender, "size": 100, "received_ms": self.ms, **metadata}
        self.add(Type.ENVELOPE, [id_, said, [["bulk", one, 0, None] for one in people]])
        return id_

    def answer(self, id_: str, verdict: int, *people: str, reply: str = "OK", provider: str = "google") -> None:
        code = {DELIVERED: 250, DEFERRED: 450, BOUNCED: 550}[verdict]
        outcome = [
            verdict,
            code,
            "",
            reply,
            "dot",
            list(people),
            False,
            "user-unknown" if verdict == BOUNCED else "",
            "",
        ]
        trace = ["mx:25", "", "TLSv1.3", self.ms, 5, "192.0.2.1", "mx.test", provider, []]
        self.add(Type.DELIVERY, [1, id_, "bulk", "mx.test", [outcome], trace])

    def close(self) -> Path:
        path = self.archive / f"{self.records[0].seq:016d}{segments.SUFFIX}"
        self.add(Type.END, None)
        path.write_bytes(frame(self.records, 0))
        os.utime(path, (self.ms / 1000, self.ms / 1000))
        self.records = []
        return path


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "archive")


def made(archive: Path) -> tuple[int, list[Any]]:
    """How many summaries had to be made, and what is read."""
    shelf = SummaryShelf([archive])
    lacking = shelf.lacking(shelf.within(0, 1 << 62))
    assert not shelf.make(lacking)
    return len(lacking), [one for place in shelf.within(0, 1 << 62) if (one := shelf.holds(place))]


def senders(archive: Path) -> dict[Any, int]:
    """Attempts by user and sender's domain."""
    found = questions.mail(made(archive)[1], ("user", "sender"), EVER)
    return {key: row["attempts"] for key, row in found.items() if row["attempts"]}


def test_a_later_segment_knows_the_sender(journal: Journal) -> None:
    first = journal.accept("a@x.test", user="u1")
    journal.answer(first, DEFERRED, "a@x.test", reply="later")
    journal.close()
    journal.answer(first, DELIVERED, "a@x.test")
    journal.close()
    assert senders(journal.archive) == {("u1", "shop.example"): 2}
    assert made(journal.archive)[0] == 0


def test_a_message_that_another_queue_has_taken_over(journal: Journal) -> None:
    """Its attempts are in that queue's journal, which is summarized first; then the segment with its ENVELOPE comes."""
    other = Journal(journal.archive.parent / "queues" / "1" / "archive", START_MS + 10 * MINUTE_MS)
    moved = journal.accept("a@x.test", user="u1")
    journal.add(Type.FINISH, [moved, "", [1, 1, 0]])
    other.answer(moved, DELIVERED, "a@x.test")
    other.close()
    assert senders(journal.archive) == {("", ""): 1}
    journal.close()
    assert senders(journal.archive) == {("u1", "shop.example"): 1}


def test_an_envelope_that_a_start_has_written_again_counts_once(journal: Journal) -> None:
    journal.accept("a@x.test", user="u1")
    again = journal.records[-1]
    journal.close()
    journal.add(Type.SEGMENT, {"first": journal.seq + 1})
    journal.seq += 1
    journal.ms += 1000
    journal.records.append(Record(journal.seq, journal.ms, Type.ENVELOPE, again.body))
    journal.close()
    found = questions.mail(made(journal.archive)[1], ("user",), EVER)
    assert found[("u1",)]["messages"] == found[("u1",)]["accepted"] == 1


@pytest.mark.parametrize("harm", ["cut", "byte", "empty", "version", "other"])
def test_what_does_not_fit_is_made_again(journal: Journal, harm: str) -> None:
    """Damage anywhere, another version, another segment's: the answer is the same, from a new file."""
    for number in range(3):
        one = journal.accept(f"p{number}@x.test", user=f"u{number}")
        journal.answer(one, BOUNCED, f"p{number}@x.test", reply=f"<p{number}@x.test>: no such user")
        path = journal.close()
    _, read = made(journal.archive)
    right = (questions.mail(read, ("user",), EVER), questions.replies(read, ("bounced",), EVER))
    summary = segments.summary_of(path)
    data = summary.read_bytes()
    if harm == "other":
        shutil.copy(segments.summary_of(segments.files(journal.archive)[0]), summary)
    else:
        summary.write_bytes({"cut": data[:-5], "byte": data[:-9] + bytes((data[-9] ^ 1,)) + data[-8:], "empty": b"",
                             "version": data[:16] + b"\2" + data[17:]}[harm])  # fmt: skip
    shelf = SummaryShelf([journal.archive])
    places = shelf.within(0, 1 << 62)
    if harm in ("cut", "byte"):  # in a block, which is met when it is read
        from zonemta_py.summary.reading import read as read_all

        again = read_all(shelf, 0, 1 << 62)
    else:
        assert [place.path for place in shelf.lacking(places)] == [path]
        again = made(journal.archive)[1]
    assert (questions.mail(again, ("user",), EVER), questions.replies(again, ("bounced",), EVER)) == right


def test_a_segment_that_was_repaired_is_counted_again(journal: Journal) -> None:
    one = journal.accept("a@x.test")
    journal.answer(one, DELIVERED, "a@x.test")
    path = journal.close()
    made(journal.archive)
    fresh = path.with_suffix(".mending")
    fresh.write_bytes(frame([one for one in segments.read_file(path, []) if one.type != Type.DELIVERY], 0))
    fresh.replace(path)
    assert made(journal.archive)[0] == 1
    assert senders(journal.archive) == {}


def test_a_person_is_erased_from_summaries(journal: Journal, tmp_path: Path) -> None:
    """From that of the segment, and from later ones that know the person as a sender; the proof looks into them."""
    first = journal.accept("b@x.test", sender="eve@eve-alone.example", user="eve@eve-alone.example")
    journal.answer(first, DEFERRED, "b@x.test", reply="<eve@eve-alone.example>: slow down")
    journal.close()
    journal.answer(first, BOUNCED, "b@x.test", reply="<b@x.test>: from eve@eve-alone.example? no")
    second = journal.close()
    other = journal.accept("c@x.test", user="u2")
    journal.answer(other, DELIVERED, "c@x.test")
    third = journal.close()
    made(journal.archive)
    kept = segments.summary_of(third).stat().st_ino
    told = forget("eve@eve-alone.example", tmp_path / "proof.json", journal.archive)
    assert told["state"] == "done"
    assert not segments.summary_of(second).exists()
    assert segments.summary_of(third).stat().st_ino == kept
    assert not any("eve" in key[0] for key in senders(journal.archive))
    said = [row.example for row in questions.replies(made(journal.archive)[1], ("deferred", "bounced"), EVER)]
    assert said
    assert not any("eve-alone" in one for one in said)


def test_the_proof_finds_who_is_in_a_summary(journal: Journal, tmp_path: Path) -> None:
    """Its compression hides nobody."""
    from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
    from zonemta_py.pipeline.erasure.proof import _in_archive

    one = journal.accept("a@x.test", user="eve@eve-alone.example")
    journal.answer(one, DELIVERED, "a@x.test")
    path = journal.close()
    made(journal.archive)
    person = DataSubject("eve@eve-alone.example", pseudonym())
    assert _in_archive(segments.summary_of(path), person)[0]


def test_killed_at_any_moment(journal: Journal, tmp_path: Path) -> None:
    """What a killed maker leaves is never read, and the next one goes on."""
    for number in range(60):
        for one in range(200):
            journal.answer(journal.accept(f"p{one}@x.test", user=f"u{number}"), DELIVERED, f"p{one}@x.test")
        journal.close()
    code = (
        "import sys; from pathlib import Path; from zonemta_py.summary.keeper import SummaryKeeper; "
        f"print('on', flush=True); SummaryKeeper(Path({str(tmp_path)!r})).look()"
    )
    for delay in (0.02, 0.1, 0.2):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
    SummaryKeeper(tmp_path).look()
    discard([journal.archive])
    assert made(journal.archive)[0] == 0
    assert sum(senders(journal.archive).values()) == 12_000
    assert not list(journal.archive.glob("*.new"))


def test_the_keeper_makes_what_is_new(journal: Journal, tmp_path: Path) -> None:
    keeper = SummaryKeeper(tmp_path)
    assert keeper.look() == 0
    journal.answer(journal.accept("a@x.test"), DELIVERED, "a@x.test")
    journal.close()
    assert keeper.look() == 1
    assert keeper.look() == 0


def test_names_beyond_the_bound_are_added_up(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    form = views.VIEWS["owners"]
    monkeypatch.setitem(views.VIEWS, "owners", form._replace(rows_max=2))
    for number, count in enumerate((5, 4, 1, 1, 1)):
        for _ in range(count):
            journal.accept("a@x.test", user=f"u{number}", sender=f"a@s{number}.test")
    journal.close()
    found = questions.mail(made(journal.archive)[1], ("user", "sender"), EVER)
    assert {key: row["accepted"] for key, row in found.items()} == {
        ("u0", "s0.test"): 5, ("u1", "s1.test"): 4, (views.OTHERS, views.OTHERS): 3,
    }  # fmt: skip


def test_only_the_hours_that_are_asked_for(journal: Journal) -> None:
    for _ in range(3):
        journal.answer(journal.accept("a@x.test"), DELIVERED, "a@x.test")
        journal.ms += 60 * MINUTE_MS
    journal.close()
    _, read = made(journal.archive)
    hour = START_MS // views.HOUR_MS
    by_hour = questions.mail(read, ("hour",), SummarySpan(hour + 1, hour + 2))
    assert {key: row["attempts"] for key, row in by_hour.items()} == {(hour + 1,): 1}


def test_what_a_question_selects(journal: Journal) -> None:
    journal.answer(journal.accept("a@x.test", tenant="one"), DELIVERED, "a@x.test")
    journal.answer(journal.accept("a@x.test", tenant="two"), BOUNCED, "a@x.test", provider="")
    journal.close()
    _, read = made(journal.archive)
    found = questions.mail(read, ("provider",), EVER._replace(only={"tenant": ["two"]}))
    assert {key: row["bounced"] for key, row in found.items()} == {("",): 1}
    with pytest.raises(ValueError, match="no table of source, user"):
        questions.view_of(("user", "source"))


def test_an_archive_that_cannot_be_written_answers_all_the_same(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zonemta_py.summary import file
    from zonemta_py.summary.reading import read as read_all

    journal.answer(journal.accept("a@x.test"), DELIVERED, "a@x.test")
    journal.close()

    def refused(*_: object) -> None:
        raise PermissionError(13, "no", "there")

    monkeypatch.setattr(file, "write", refused)
    read = read_all(SummaryShelf([journal.archive]), 0, 1 << 62)
    assert questions.mail(read, (), EVER)[()]["delivered"] == 1
