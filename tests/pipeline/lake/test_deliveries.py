"""Table `deliveries`."""

from datetime import UTC, timedelta

import pytest

from zonemta_py.pipeline import deliveries

COMPARED = ("seq", "part", *(name for name in deliveries.COLUMNS if name not in ("seq", "part")))


def plain(row):
    return tuple(value.replace(tzinfo=UTC) if hasattr(value, "hour") else value for value in row)


def told(rows):
    """Rows of Spark or of plain Python in one order and form."""
    return sorted(tuple(plain(row.get(name, None) for name in COMPARED)) for row in rows)


def as_dicts(frame):
    return [row.asDict() for row in frame.collect()]


@pytest.mark.parametrize("seed", [1, 2])
def test_one_row_per_attempt_with_its_number_and_its_envelope(frame, drawn, expected_deliveries, seed):
    """Whatever happens to recipients: each attempt is a row, numbered by seq, with what the first envelope says."""
    rows = drawn(seed, messages=30)
    assert told(as_dicts(deliveries.deliveries(frame(rows)))) == told(expected_deliveries(rows))


def test_what_was_not_tried_is_no_attempt(frame, journal):
    """Released and postponed results are no rows and take no number."""
    journal.envelope("00000000000000a1", ["a@x.example"])
    for verdict in ("released", "deferred", "postponed", "delivered"):
        journal.result("00000000000000a1", ["a@x.example"], verdict)
    rows = deliveries.deliveries(frame(journal.rows)).orderBy("seq").collect()
    assert [(row.verdict, row.attempt, row.final) for row in rows] == [("deferred", 1, False), ("delivered", 2, True)]


def test_a_batch_gives_each_recipient_one_row(frame, journal):
    """A message to many is joined by id: no recipient is multiplied by the others' envelope rows."""
    people = [f"p{index}@x.example" for index in range(50)]
    journal.envelope("00000000000000a1", people, campaign="spring")
    journal.envelope("00000000000000a1", people, campaign="spring")
    journal.result("00000000000000a1", people, "delivered")
    rows = deliveries.deliveries(frame(journal.rows)).collect()
    assert len(rows) == 50
    assert {row.campaign for row in rows} == {"spring"}


def test_an_attempt_after_the_end_does_not_end_it_again(frame, journal):
    """Should a recipient be delivered twice, the first end is the final one."""
    for _ in range(2):
        journal.result("00000000000000a1", ["a@x.example"], "delivered")
    rows = deliveries.deliveries(frame(journal.rows)).orderBy("attempt").collect()
    assert [row.final for row in rows] == [True, False]


def test_earlier_attempts_count_without_being_rows(frame, journal):
    """Given by `keys`, attempts of other days are numbered along, and left out."""
    journal.result("00000000000000a1", ["a@x.example"], "deferred")
    first = list(journal.rows)
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    later = [row for row in journal.rows if row not in first]
    (row,) = deliveries.deliveries(frame(later), deliveries.keys(frame(first))).collect()
    assert (row.attempt, row.final) == (2, True)
    assert row.first_at.replace(tzinfo=UTC) == first[0]["started_at"]


def test_an_envelope_touches_the_days_of_its_attempts(frame, journal):
    """Days to be made again: of new attempts, of later ones of the same message, of all where the envelope is new."""
    start = journal.now
    journal.envelope("00000000000000a1", ["a@x.example"])
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "deferred")
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    envelope, first, second = journal.rows
    days = [(start + timedelta(days=days)).date() for days in range(3)]

    def touched(new):
        return sorted(row.day for row in deliveries.touched(frame(journal.rows), frame([new])).collect())

    assert touched(envelope) == days[1:]
    assert touched(first) == days[1:]
    assert touched(second) == days[2:]
