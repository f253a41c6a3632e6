"""Table `deliveries`."""

from datetime import timedelta

import pytest

from zonemta_py.pipeline.lake import deliveries, scan

COMPARED = ("seq", "part", *(name for name in deliveries.COLUMNS if name not in ("seq", "part")))


def told(rows):
    """Rows in one order and form."""
    return sorted(tuple(row.get(name) for name in COMPARED) for row in rows)


@pytest.mark.parametrize("seed", [1, 2])
def test_one_row_per_attempt_with_its_number_and_its_envelope(deliveries_of, drawn, expected_deliveries, seed):
    """Whatever happens to recipients: each attempt is a row, numbered by seq, with what the first envelope says."""
    rows = drawn(seed, messages=30)
    assert told(deliveries_of(rows)) == told(expected_deliveries(rows))


def test_what_was_not_tried_is_no_attempt(deliveries_of, journal):
    """Released and postponed results are no rows and take no number."""
    journal.envelope("00000000000000a1", ["a@x.example"])
    for verdict in ("requeued", "released", "deferred", "postponed", "delivered"):
        journal.result("00000000000000a1", ["a@x.example"], verdict)
    rows = deliveries_of(journal.rows)
    assert [(row["verdict"], row["attempt"], row["final"]) for row in rows] == [
        ("deferred", 1, False),
        ("delivered", 2, True),
    ]


def test_a_batch_gives_each_recipient_one_row(deliveries_of, journal):
    """A message to many is joined by id: no recipient is multiplied by the others' envelope rows."""
    people = [f"p{index}@x.example" for index in range(50)]
    journal.envelope("00000000000000a1", people, campaign="spring")
    journal.envelope("00000000000000a1", people, campaign="spring")
    journal.result("00000000000000a1", people, "delivered")
    rows = deliveries_of(journal.rows)
    assert len(rows) == 50
    assert {row["campaign"] for row in rows} == {"spring"}


def test_an_attempt_after_the_end_does_not_end_it_again(deliveries_of, journal):
    """Should a recipient be delivered twice, the first end is the final one."""
    for _ in range(2):
        journal.result("00000000000000a1", ["a@x.example"], "delivered")
    rows = deliveries_of(journal.rows)
    assert [row["final"] for row in rows] == [True, False]


def test_a_bounce_that_was_kept_is_the_end_unless_it_was_tried_again(deliveries_of, journal):
    """A task may have queued it again."""
    until = journal.now + timedelta(hours=1)
    for verdict in ("bounced", "deferred", "bounced"):
        journal.result("00000000000000a1", ["a@x.example"], verdict, due_at=until)
    assert [row["final"] for row in deliveries_of(journal.rows)] == [False, False, True]
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    assert [row["final"] for row in deliveries_of(journal.rows)] == [False, False, False, True]


def test_earlier_attempts_count_without_being_rows(deliveries_of, journal):
    """Attempts of other days are numbered along, and left out."""
    journal.result("00000000000000a1", ["a@x.example"], "deferred")
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    first, later = journal.rows
    (row,) = deliveries_of(journal.rows, [later["day"]])
    assert (row["attempt"], row["final"], row["first_at"]) == (2, True, first["started_at"])


def test_the_first_time_is_that_of_the_first_attempt_that_has_one(deliveries_of, journal):
    """An attempt that never began (the queue's own bounce) has no time; later ones count from the first that has."""
    times = [None, journal.now, journal.now + timedelta(hours=1)]
    for started_at in times:
        journal.result("00000000000000a1", ["a@x.example"], "deferred", started_at=started_at)
    assert [row["first_at"] for row in deliveries_of(journal.rows)] == [None, journal.now, journal.now]


def test_a_domain_is_what_is_behind_the_last_at_sign(deliveries_of, journal):
    """Local parts may hold an @ in quotes; domains are in lower case."""
    people = ['"a@b"@X.Example', "postmaster"]
    journal.result("00000000000000a1", people, "delivered")
    assert [row["domain"] for row in deliveries_of(journal.rows)] == ["x.example", "postmaster"]


def test_an_envelope_touches_the_days_of_its_attempts(table_of, journal):
    """Days to be made again: of new attempts, of later ones of the same message, of all where the envelope is new."""
    start = journal.now
    journal.envelope("00000000000000a1", ["a@x.example"])
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "deferred")
    journal.pass_time(days=1)
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    envelope, first, second = journal.rows
    days = [(start + timedelta(days=days)).date() for days in range(3)]
    known = scan.chosen(table_of(journal.rows), deliveries.KNOWN)

    def touched(new):
        return sorted(deliveries.touched(**known, **scan.chosen(table_of([new]), deliveries.ARRIVED)))

    assert touched(envelope) == days[1:]
    assert touched(first) == days[1:]
    assert touched(second) == days[2:]
