"""Metadata: what is taken, from where, and what a record tells of it."""

import json

import pytest

from zonemta_py.mail import metadata
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.metadata import MESSAGE_BYTES_MAX, NAMES_MAX, RECIPIENT_BYTES_MAX, InvalidMetadata


def test_what_fits() -> None:
    for value in ({}, {"a": None, "b.c-d_e": [1, 2.5, {"x": True}]}, {"9": "é" * 500}):
        assert metadata.fault(value, MESSAGE_BYTES_MAX) == ""


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (["a"], "is not an object; give names with their values"),
        ({"a b": 1}, "has the name 'a b'; use up to 63 letters, digits, dots, underscores and hyphens"),
        ({"": 1}, "has the name ''; use up to 63"),
        ({"a" * 64: 1}, "use up to 63 letters"),
        ({f"n{number}": 1 for number in range(33)}, "has 33 names; give 32 at most"),
        ({"a": "x" * 2100}, "takes more than 2,048 bytes as JSON, or is no JSON; shorten it"),
        ({"a": float("nan")}, "or is no JSON"),
        ({"a": b"x"}, "or is no JSON"),
    ],
)
def test_what_does_not_fit(value: object, wrong: str) -> None:
    assert wrong in metadata.fault(value, MESSAGE_BYTES_MAX)


def test_fields() -> None:
    """Names are in lower case, and of several of one name the first counts."""
    fields = [("X-Meta-Order", "17"), ("x-meta-kind", "bill"), ("X-META-ORDER", "18")]
    assert metadata.of_fields(fields) == {"order": "17", "kind": "bill"}
    with pytest.raises(InvalidMetadata, match="the metadata in X-Meta fields has 33 names"):
        metadata.of_fields((f"x-meta-n{number}", "") for number in range(NAMES_MAX + 1))


def test_columns() -> None:
    columns = ["name", "meta_order", "metadata", "meta_", "meta_none"]
    values = ["Anna", "17", json.dumps({"order": 3, "list": [1]}), "x", ""]
    assert metadata.of_columns(columns, values) == {"order": "17", "list": [1]}
    assert metadata.of_columns(columns, ["Anna", "", "", "", ""]) == {}
    for wrong in ("17", "{", "[" * 100_000):
        with pytest.raises(InvalidMetadata, match=r"is not a JSON object; write it like \{"):
            metadata.of_columns(["metadata"], [wrong])
    with pytest.raises(InvalidMetadata, match="takes more than 512 bytes"):
        metadata.of_columns(["meta_a"], ["x" * RECIPIENT_BYTES_MAX])


def test_the_recipient_s_come_over_the_message_s() -> None:
    stored = {"meta": {"order": 1, "kind": "bill"}, "chosen": {"x-kind": "b"}}
    of = metadata.about(stored, [("a@x.org", {"order": 2}), ("b@x.org", None), ("c@x.org", {})])
    assert of == [{"order": 1, "kind": "bill"}, {"x-kind": "b"}, {"a@x.org": {"order": 2}}]
    headers = {"headers": {"x-kind": "b"}}
    assert metadata.told(of, "a@x.org") == {"metadata": {"order": 2, "kind": "bill"}, **headers}
    assert metadata.told(of, "b@x.org") == metadata.told(of) == {"metadata": {"order": 1, "kind": "bill"}, **headers}
    assert metadata.of_one(of, "b@x.org") == [*of[:2], {}]
    assert metadata.told(None) == {}
    assert metadata.about({"meta": {}}, [("a@x.org", None)]) is None


def test_an_envelope_has_one_sign_for_all() -> None:
    """Where nothing is to come back there is none; else it is there, though perhaps empty."""
    assert "meta" not in Envelope("a@x.org", [Recipient("b@x.org")]).metadata()
    for envelope in (
        Envelope("a@x.org", [Recipient("b@x.org"), Recipient("c@x.org", meta={"a": 1})]),
        Envelope("a@x.org", [Recipient("b@x.org")], chosen={"x-kind": "a"}),
    ):
        assert envelope.metadata()["meta"] == {}
        again = Envelope.from_wire(envelope.to_wire())
        assert (again.meta, again.chosen, again.recipients) == ({}, envelope.chosen, envelope.recipients)
