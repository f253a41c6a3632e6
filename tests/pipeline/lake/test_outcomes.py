"""Table `outcomes`."""

from datetime import UTC, date

import pytest
from pyspark.sql import functions as F

from zonemta_py.pipeline import deliveries, outcomes

NAMES = (
    "state", "attempts", "received_at", "first_attempt_at", "ended_at", "to_first_s", "to_delivery_s", "reply", "day",
)  # fmt: skip


def of(frame, rows):
    bronze = frame(rows)
    return outcomes.outcomes(deliveries.deliveries(bronze), bronze)


def told(frame, rows):
    made = of(frame, rows).collect()
    keyed = {(row.id, row.recipient): row for row in made}
    assert len(keyed) == len(made), "one row per recipient and message"
    return keyed


def utc(value):
    return value.replace(tzinfo=UTC) if hasattr(value, "hour") else value


@pytest.mark.parametrize("seed", [3, 4])
def test_each_recipient_has_one_row_with_its_end_or_state(frame, drawn, expected_outcomes, seed):
    """Whatever happens, in whatever order: one row, and state, counts and times as the records give them."""
    rows = drawn(seed, messages=30)
    made = {
        key: {name: utc(row[name]) for name in NAMES} for key, row in told(frame, rows).items()
    }  # fmt: skip
    assert made == {key: {name: row[name] for name in NAMES} for key, row in expected_outcomes(rows).items()}


def test_without_its_envelope_a_recipient_is_there_all_the_same(frame, drawn, expected_outcomes):
    """Envelopes may reach the archive after the results: state and attempts are right without them."""
    rows = [row for row in drawn(5) if row["type"] != "ENVELOPE"]
    made = {key: (row.state, row.attempts, row.to_first_s) for key, row in told(frame, rows).items()}
    assert made == {key: (row["state"], row["attempts"], None) for key, row in expected_outcomes(rows).items()}


def test_an_envelope_written_again_changes_no_state(frame, journal):
    """A start may write an envelope again behind the results; what was held stays held."""
    journal.envelope("00000000000000a1", ["a@x.example"])
    journal.result("00000000000000a1", ["a@x.example"], "held")
    journal.envelope("00000000000000a1", ["a@x.example"])
    assert of(frame, journal.rows).first().state == "held"


def test_a_removed_recipient_says_why(frame, journal):
    """REMOVED gives reason and time; who was never tried has no attempt and no reply."""
    journal.envelope("00000000000000a1", ["a@x.example"], zone="mail")
    journal.pass_time(minutes=1)
    journal.record("REMOVED", ["a@x.example"], id="00000000000000a1", zone="mail", reason="suppressed: hard-bounce")
    row = of(frame, journal.rows).first()
    assert (row.state, row.reason, row.attempts, row.zone) == ("removed", "suppressed: hard-bounce", 0, "mail")
    assert (row.reply, row.domain, utc(row.ended_at)) == (None, "x.example", journal.now)


def test_who_was_left_out_at_acceptance_stays_removed(frame, journal):
    """A suppressed recipient is none of the envelope's; the row is there while others wait, and when all have ended."""
    journal.record("REMOVED", ["s@x.example"], id="00000000000000a1", zone="mail", reason="suppressed: manual")
    journal.envelope("00000000000000a1", ["a@x.example"], zone="mail")
    waiting = {key[1]: row.state for key, row in told(frame, journal.rows).items()}
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    ended = {key[1]: row.state for key, row in told(frame, journal.rows).items()}
    assert waiting == {"s@x.example": "removed", "a@x.example": "waiting"}
    assert ended == {"s@x.example": "removed", "a@x.example": "delivered"}


def test_the_day_is_in_the_id(spark):
    """The day of an outcome is that of its id; ranges of ids find exactly the ids of the days wanted."""
    ids = ["18bcfe5680000000", "18bd0470ffffffff", "18bd047100000000", "not an id", "18BCFE5680000000"]
    rows = spark.createDataFrame([(one,) for one in ids], ["id"]).withColumn("day", outcomes.born("id"))
    days = {row.id: row.day for row in rows.collect()}
    assert days == {
        "18bcfe5680000000": date(2023, 11, 14), "18bd0470ffffffff": date(2023, 11, 14),
        "18bd047100000000": date(2023, 11, 15), "not an id": outcomes.NO_DAY, "18BCFE5680000000": outcomes.NO_DAY,
    }  # fmt: skip
    for day in set(days.values()):
        found = {row.id for row in rows.filter(outcomes.within([day])).collect()}
        assert found == {one for one, its in days.items() if its == day}
    assert rows.filter(outcomes.within([date(2023, 11, 14), date(2023, 11, 15)])).filter(F.col("id") < "2").count() == 3
