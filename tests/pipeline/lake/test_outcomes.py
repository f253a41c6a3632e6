"""Table `outcomes`."""

import pytest

from zonemta_py.pipeline.lake import deliveries, outcomes, scan

NAMES = (
    "state", "attempts", "received_at", "first_attempt_at", "ended_at", "to_first_s", "to_delivery_s", "reply", "day",
)  # fmt: skip


def of(table, days=None):
    said = scan.chosen(table, outcomes.SCANS)
    return outcomes.outcomes(deliveries.numbered(said["results"]), **said, days=days).to_pylist()


def told(table):
    made = of(table)
    keyed = {(row["id"], row["recipient"]): row for row in made}
    assert len(keyed) == len(made), "one row per recipient and message"
    return keyed


@pytest.mark.parametrize("seed", [3, 4])
def test_each_recipient_has_one_row_with_its_end_or_state(table_of, drawn, expected_outcomes, seed):
    """Whatever happens, in whatever order: one row, and state, counts and times as the records give them."""
    rows = drawn(seed, messages=30)
    made = {
        key: {name: row[name] for name in NAMES} for key, row in told(table_of(rows)).items()
    }  # fmt: skip
    assert made == {key: {name: row[name] for name in NAMES} for key, row in expected_outcomes(rows).items()}


def test_without_its_envelope_a_recipient_is_there_all_the_same(table_of, drawn, expected_outcomes):
    """Envelopes may reach the archive after the results: state and attempts are right without them."""
    rows = [row for row in drawn(5) if row["type"] != "ENVELOPE"]
    made = {key: (row["state"], row["attempts"], row["to_first_s"]) for key, row in told(table_of(rows)).items()}
    assert made == {key: (row["state"], row["attempts"], None) for key, row in expected_outcomes(rows).items()}


def test_an_envelope_written_again_changes_no_state(table_of, journal):
    """A start may write an envelope again behind the results; what was held stays held."""
    journal.envelope("00000000000000a1", ["a@x.example"])
    journal.result("00000000000000a1", ["a@x.example"], "held")
    journal.envelope("00000000000000a1", ["a@x.example"])
    assert of(table_of(journal.rows))[0]["state"] == "held"


def test_a_removed_recipient_says_why(table_of, journal):
    """REMOVED gives reason and time; who was never tried has no attempt and no reply."""
    journal.envelope("00000000000000a1", ["a@x.example"], zone="mail")
    journal.pass_time(minutes=1)
    journal.record("REMOVED", ["a@x.example"], id="00000000000000a1", zone="mail", reason="suppressed: hard-bounce")
    row = of(table_of(journal.rows))[0]
    assert (row["state"], row["reason"], row["attempts"], row["zone"]) == (
        "removed",
        "suppressed: hard-bounce",
        0,
        "mail",
    )
    assert (row["reply"], row["domain"], row["ended_at"]) == (None, "x.example", journal.now)


def test_who_was_left_out_at_acceptance_is_suppressed(table_of, journal):
    """It is none of the envelope's, and was never accepted; the row is there while others wait, and when all have
    ended. Who is suppressed while the message waits had been accepted, and is removed."""
    journal.record("REMOVED", ["s@x.example"], id="00000000000000a1", zone="mail", reason="suppressed: manual")
    journal.envelope("00000000000000a1", ["a@x.example"], zone="mail")
    journal.envelope("00000000000000a1", ["later@x.example"], zone="mail")
    journal.record("REMOVED", ["later@x.example"], id="00000000000000a1", zone="mail", reason="suppressed: manual")
    waiting = {key[1]: row["state"] for key, row in told(table_of(journal.rows)).items()}
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    ended = {key[1]: row["state"] for key, row in told(table_of(journal.rows)).items()}
    assert waiting == {"s@x.example": "suppressed", "later@x.example": "removed", "a@x.example": "waiting"}
    assert ended == {"s@x.example": "suppressed", "later@x.example": "removed", "a@x.example": "delivered"}


def test_days_can_be_made_by_themselves(table_of, drawn):
    """Asked for some days, the rows of messages born on them come out as among all."""
    table = table_of(drawn(3, messages=30))
    rows = of(table)
    for day in {row["day"] for row in rows}:
        assert of(table, {day}) == [row for row in rows if row["day"] == day]
