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


def test_who_a_plugin_has_dropped_is_removed(table_of, journal):
    """Its envelope lists it, and its REMOVED record follows: one row, with the reason; the others wait."""
    why = "dropped: unwanted (plugin choosy, hook queue_route)"
    journal.envelope("00000000000000a1", ["a@x.example", "drop@x.example"], zone="mail")
    journal.record("REMOVED", ["drop@x.example"], id="00000000000000a1", zone="mail", reason=why)
    found = {
        who: (row["state"], row["reason"], row["attempts"]) for (_, who), row in told(table_of(journal.rows)).items()
    }
    assert found == {"a@x.example": ("waiting", None, 0), "drop@x.example": ("removed", why, 0)}


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


def test_who_can_still_be_put_back_is_deleted(table_of, journal):
    """As the queue counts it: neither waiting nor removed, until an undo or the end of its time; what else tasks do and
    undo leaves who was held held."""
    people = [f"{name}@x.example" for name in ("gone", "back", "away", "held", "kept", "free", "sent")]
    gone, back, away, held, kept, free, sent = people

    def task(what, who, kind, number):
        journal.pass_time(minutes=1)
        known = {"id": "00000000000000a1", "zone": "mail", "what": what, "kind": kind, "name": number}
        journal.record("TASK", [who], **known)
        return journal.now

    journal.envelope("00000000000000a1", people, zone="mail")
    at = task("did", gone, "delete", "7")
    task("did", back, "delete", "7")
    task("undid", back, "delete", "7")
    task("did", away, "delete", "7")
    journal.record("REMOVED", [away], id="00000000000000a1", zone="mail", reason="deleted by ann")
    task("did", held, "hold", "8")
    journal.result("00000000000000a1", [kept], "held")
    task("did", kept, "delete", "9")
    task("undid", kept, "delete", "9")
    journal.result("00000000000000a1", [free], "held")
    task("did", free, "release", "10")
    task("did", sent, "delete", "9")
    task("undid", sent, "delete", "9")
    journal.result("00000000000000a1", [sent], "delivered")
    rows = {key[1].partition("@")[0]: row for key, row in told(table_of(journal.rows)).items()}
    assert {name: row["state"] for name, row in rows.items()} == {
        "gone": "deleted", "back": "waiting", "away": "removed", "held": "held", "kept": "held", "free": "waiting",
        "sent": "delivered",
    }  # fmt: skip
    assert (rows["gone"]["ended_at"], rows["back"]["ended_at"]) == (at, None)


def test_days_can_be_made_by_themselves(table_of, drawn):
    """Asked for some days, the rows of messages born on them come out as among all."""
    table = table_of(drawn(3, messages=30))
    rows = of(table)
    for day in {row["day"] for row in rows}:
        assert of(table, {day}) == [row for row in rows if row["day"] == day]
