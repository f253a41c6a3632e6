"""Table `feedback`: what came back, beside the attempt that had delivered the message."""

import json
from datetime import date

import pytest

from tests.pipeline.lake.test_update import place
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.pipeline.journal import rows as journal_rows
from zonemta_py.pipeline.lake import feedback, table, update

ONE, TWO = "00000000000000a1", "00000000000000b2"


@pytest.fixture
def told(spark, tmp_path):
    """told(journal) → the table's rows after an update, in their order."""

    def of(journal):
        place(tmp_path, journal.rows)
        update.update(spark, tmp_path, ["feedback"])
        return table.read(spark, tmp_path, "feedback").orderBy("seq").collect()

    return of


def test_each_record_is_a_row_with_its_latest_attempt(told, journal):
    """Provider, source and site of the recipient's last attempt before it, and the message's campaign; of an unknown
    message there are none, and its campaign is what the record says."""
    journal.envelope(ONE, ["a@x.example", "b@x.example"], campaign="spring")
    accepted = journal.now
    journal.result(ONE, ["a@x.example"], "deferred", provider="yahoo")
    journal.pass_time(minutes=5)
    journal.result(ONE, ["a@x.example"], "delivered", provider="google")
    journal.pass_time(hours=30)
    journal.feedback(ONE, "a@x.example", "bounce", campaign="said", code=550, enhanced="5.1.1", reply="no such user")
    journal.feedback(TWO, "c@Y.example", "complaint", told={"form": "arf"}, name=None, campaign="said")
    journal.feedback(ONE, "a@x.example", "unsubscribe", told={"again": True})
    first, second = told(journal)
    assert (first.kind, first.provider, first.site) == ("bounce", "google", "mx.example")
    assert (first.campaign, first.code) == ("spring", 550)
    assert (first.at - first.delivered_at).total_seconds() == 30 * 3600
    assert first.received_at.timestamp() == accepted.timestamp()
    assert (second.campaign, second.received_at) == ("said", None)
    assert (first.form, first.tied, first.agreed, first.genuine, first.reporter) == (
        "rfc3464", "token", True, "token", "mx.example",
    )  # fmt: skip
    assert (second.kind, second.domain, second.provider, second.form, second.genuine) == (
        "complaint", "y.example", None, "arf", None,
    )  # fmt: skip


def test_an_attempt_that_comes_later_into_the_lake_is_seen(told, journal):
    """Segments arrive in any order: the day is made again."""
    journal.feedback(ONE, "a@x.example", "bounce")
    (row,) = told(journal)
    assert row.provider is None
    late = type(journal)()
    late.seq, late.now = 100, journal.now
    late.pass_time(hours=-1)
    late.result(ONE, ["a@x.example"], "delivered")
    (row,) = told(late)
    assert row.provider == "google"


def test_an_envelope_that_comes_later_is_seen(spark):
    """It alone says which campaign it was, and when it was accepted."""
    columns = "type string, id string, day date"
    day = date(2026, 3, 4)
    told = spark.createDataFrame([("FEEDBACK", ONE, day), ("FEEDBACK", TWO, date(2026, 3, 5))], columns)
    new = spark.createDataFrame([("ENVELOPE", ONE, date(2026, 3, 3)), ("FINISH", TWO, day)], columns)
    assert feedback.touched(told, new) == [day]


def test_a_record_of_the_journal_is_a_row():
    """As SCHEMA.md says; what is unknown is null."""
    record = FeedbackRecord(
        "bounce", "a@x.example", ONE, "<1@s>", "spring", code=550, text="no", reporter="mx", via="smtp",
        genuine="token", form="rfc3464", reply_class="user-unknown", rule="r", agreed=True,
    )  # fmt: skip
    made = journal_rows._batch(
        int(Type.FEEDBACK), [(7, 1_700_000_000_000)], [record.pack()], {"segment": "s.journal"}, []
    )
    (row,) = made.to_pylist()
    told = json.loads(row.pop("value"))
    assert told == {"form": "rfc3464", "tied": "", "scope": "", "message_id": "<1@s>", "agreed": True, "again": False}
    filled = {name: value for name, value in row.items() if value is not None and name not in ("at", "segment")}
    assert filled == {
        "seq": 7, "part": 0, "type": "FEEDBACK", "id": ONE, "recipient": "a@x.example", "campaign": "spring",
        "code": 550, "reply": "no", "class": "user-unknown", "rule": "r", "remote": "mx", "what": "smtp",
        "kind": "bounce", "name": "token",
    }  # fmt: skip
