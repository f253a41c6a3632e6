"""Bodies of records to the field: each is read whole, from its shortest form to one that has grown behind it."""

from typing import Any

import pytest

from zonemta_py.disk import records
from zonemta_py.disk.records import Who, address_of

Class = Any
CLASSES = [
    (records.RecipientRow, 2), (records.EnvelopeRecord, 3), (records.OpenRecord, 1), (records.StartRecord, 6),
    (records.OutcomeRow, 6), (records.DeliveryTrace, 0), (records.FinishRecord, 1), (records.InDoubtRow, 5),
    (records.RemovedRecord, 4), (records.MovedRecord, 4), (records.LostRecord, 2), (records.StandingRecord, 4),
    (records.UnsuppressRecord, 2), (records.TaskRecord, 3),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "least"), CLASSES, ids=lambda value: getattr(value, "__name__", None))
def test_every_field_is_read_and_what_has_grown_behind_is_not(kind: Class, least: int) -> None:
    """Fields that an older queue did not write are as the class says."""
    values = [f"value {number}" for number in range(len(kind._fields))]
    assert list(kind.of(values)) == list(kind.of([*values, "of a later queue"])) == values
    for few in range(least, len(values)):
        defaults = [kind._field_defaults[name] for name in kind._fields[few:]]
        assert list(kind.of(values[:few])) == [*values[:few], *defaults]
    if least:
        with pytest.raises(TypeError):
            kind.of(values[: least - 1])


def test_what_an_older_queue_did_not_write_is_nothing() -> None:
    assert records.DeliveryTrace() == ("", "", "", 0, 0, "", "", "", ())
    assert records.RecipientRow("z", "a@x.test") == ("z", "a@x.test", 0, None)
    assert records.OutcomeRow(1, 250, "", "", "dot", [])[6:] == (False, "", "", False)
    assert records.StartRecord(1, "id", "z", "d", [], 5)[6:] == ("", 0)


@pytest.mark.parametrize(
    ("who", "value"),
    [
        (Who("a@x.test"), "a@x.test"),
        (Who("a@x.test", 5), ["a@x.test", 5]),
        (Who("a@x.test", 0, 7), ["a@x.test", 0, 7]),
        (Who("a@x.test", 5, 7), ["a@x.test", 5, 7]),
    ],
)
def test_a_recipient_is_written_in_its_shortest_form(who: Who, value: Any) -> None:
    assert who.value() == value
    assert Who.of(value) == who
    assert address_of(value) == "a@x.test"
    if isinstance(value, list):
        assert Who.of([*value, *[0, 0, "later"][len(value) - 1 :]])[: len(value)] == tuple(value)


def test_records_within_records_are_read_too() -> None:
    outcome = [1, 250, "2.0.0", "ok", "dot", ["a@x.test", ["b@x.test", 5]], True, "kind", "rule", True]
    trace = ["remote", "local", "tls", 1, 2, "source", "site", "provider", [["row"]]]
    delivery = records.DeliveryRecord.of([3, "id", "z", "d", [[*outcome, "later"]], [*trace, "later"], "later"])
    assert delivery == (3, "id", "z", "d", [tuple(outcome)], tuple(trace))
    assert delivery.outcomes[0].addresses() == ["a@x.test", "b@x.test"]
    doubt = records.InDoubtRecord.of([[1, 2], [["id", "z", "a@x.test", 5, "hold", "x.test", "why", "later"]], "later"])
    assert doubt == ([1, 2], [("id", "z", "a@x.test", 5, "hold", "x.test", "why")])
    envelope = records.EnvelopeRecord.of(["id", {}, [["z", "a@x.test", 1, "rfc822;a", "later"]], "later"])
    assert envelope.rows() == [("z", "a@x.test", 1, "rfc822;a")]


@pytest.mark.parametrize(
    ("where", "envelope", "case"),
    [
        (None, None, None),
        ({}, None, None),
        ({"envelope": {"sender": ""}}, {"sender": ""}, None),
        ({"lost": "2023"}, None, "2023"),
    ],
)
def test_a_removal_says_where_they_were(where: Any, envelope: Any, case: Any) -> None:
    removed = records.RemovedRecord("id", "z", ["a@x.test"], "purged", where)
    assert (removed.envelope, removed.case) == (envelope, case)
    assert records.unpack(removed.pack()) == ["id", "z", ["a@x.test"], "purged"] + ([] if where is None else [where])


@pytest.mark.parametrize("scopes", [None, [], ["all"]])
def test_scopes_are_written_where_there_are_any(scopes: Any) -> None:
    packed = records.UnsuppressRecord(["a@x.test"], "me", scopes).pack()
    assert records.unpack(packed) == [["a@x.test"], "me"] + ([] if scopes is None else [scopes])
