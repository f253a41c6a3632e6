"""Bodies of records to the field: each is read whole, from its shortest form to one that has grown behind it."""

from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.journal.records.files import LostRecord
from zonemta_py.journal.records.mail import (
    DeliveryRecord,
    DeliveryTrace,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    InDoubtRow,
    MovedRecord,
    OpenRecord,
    OutcomeRow,
    RecipientRow,
    RemovedRecord,
    StartRecord,
    Who,
    address_of,
)
from zonemta_py.journal.records.orders import StandingRecord, TaskRecord
from zonemta_py.journal.records.people import UnsuppressRecord

Class = Any
CLASSES = [
    (RecipientRow, 2), (EnvelopeRecord, 3), (OpenRecord, 1), (StartRecord, 6),
    (OutcomeRow, 6), (DeliveryTrace, 0), (FinishRecord, 1), (InDoubtRow, 5),
    (RemovedRecord, 4), (MovedRecord, 3), (LostRecord, 2), (StandingRecord, 4),
    (UnsuppressRecord, 2), (TaskRecord, 3),
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
    assert DeliveryTrace() == ("", "", "", 0, 0, "", "", "", ())
    assert RecipientRow("z", "a@x.test") == ("z", "a@x.test", 0, None, None)
    assert OutcomeRow(1, 250, "", "", "dot", [])[6:] == (False, "", "", False, None)
    assert StartRecord(1, "id", "z", "d", [], 5)[6:] == ("", 0, None)


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
        assert Who.of([*value, *[0, 0, 0, "later"][len(value) - 1 :]])[: len(value)] == tuple(value)


def test_records_within_records_are_read_too() -> None:
    outcome = [1, 250, "2.0.0", "ok", "dot", ["a@x.test", ["b@x.test", 5]], True, "kind", "rule", True, ["p", "h", ""]]
    trace = ["remote", "local", "tls", 1, 2, "source", "site", "provider", [["row"]]]
    delivery = DeliveryRecord.of([3, "id", "z", "d", [[*outcome, "later"]], [*trace, "later"], None, None, "later"])
    assert delivery == (3, "id", "z", "d", [tuple(outcome)], tuple(trace), None, None)
    assert DeliveryRecord.of([3, "id", "z", "d", [outcome], trace]) == delivery
    noted = DeliveryRecord.of([3, "id", "z", "d", [outcome], trace, [{"a": 1}, [], {}]])
    assert DeliveryRecord.of(packing.unpack(noted.pack())).notes == [{"a": 1}, [], {}]
    told = noted._replace(notes=None, about=[{"order": 17}, {}, {}])
    assert DeliveryRecord.of(packing.unpack(told.pack())) == told
    assert delivery.outcomes[0].addresses() == ["a@x.test", "b@x.test"]
    doubt = InDoubtRecord.of([[1, 2], [["id", "z", "a@x.test", 5, "hold", "x.test", "why", None, "later"]], "later"])
    assert doubt == ([1, 2], [("id", "z", "a@x.test", 5, "hold", "x.test", "why", None)])
    envelope = EnvelopeRecord.of(["id", {}, [["z", "a@x.test", 1, "rfc822;a", None, "later"]], "later"])
    assert envelope.rows() == [("z", "a@x.test", 1, "rfc822;a", None)]


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
    removed = RemovedRecord("id", "z", ["a@x.test"], "purged", where)
    assert (removed.envelope, removed.case) == (envelope, case)
    assert packing.unpack(removed.pack()) == ["id", "z", ["a@x.test"], "purged"] + ([] if where is None else [where])


@pytest.mark.parametrize("scopes", [None, [], ["all"]])
def test_scopes_are_written_where_there_are_any(scopes: Any) -> None:
    packed = UnsuppressRecord(["a@x.test"], "me", scopes).pack()
    assert packing.unpack(packed) == [["a@x.test"], "me"] + ([] if scopes is None else [scopes])
