"""The envelope as it is kept: everything comes back, and what was not said takes no room."""

from __future__ import annotations

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.envelope import Envelope, Recipient

TEXTS = st.lists(st.text(max_size=5), max_size=3)
RECIPIENTS = st.builds(
    Recipient, st.text(max_size=9), st.integers(0, 15), st.none() | st.text(max_size=9), st.none() | TEXTS
)
ENVELOPES = st.builds(
    Envelope,
    sender=st.text(max_size=9),
    recipients=st.lists(RECIPIENTS, max_size=3),
    size=st.integers(0, 2**40),
    smtputf8=st.booleans(),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=2),
    sending_zone=st.none() | st.just("bulk"),
    campaign=st.none() | st.just("spring"),
    priority=st.none() | st.integers(-9, 9),
    hold_until_ms=st.integers(0, 2**42),
    deadline_ms=st.integers(-(2**42), 2**42),
    deadline_mode=st.sampled_from(["", "N", "R"]),
    require_tls=st.booleans(),
    window=st.sampled_from(["", "office"]),
    time_zone=st.sampled_from(["", "Europe/Berlin"]),
    unsubscribe=st.booleans(),
    hashes=st.dictionaries(st.sampled_from(["relaxed", "simple"]), st.binary(min_size=32, max_size=32)),
    columns=TEXTS,
    source=st.sampled_from(["", "192.0.2.7"]),
    request=st.text(max_size=9),
    digest=st.binary(max_size=32),
)


@settings(max_examples=100, deadline=None)
@given(ENVELOPES)
def test_what_is_kept_comes_back(envelope: Envelope) -> None:
    """Through msgpack, as on the socket and on disk."""
    assert Envelope.from_wire(msgpack.unpackb(msgpack.packb(envelope.to_wire()))) == envelope


def test_what_was_not_said_is_left_out() -> None:
    """An ordinary message's metadata names none of the scheduling fields; priority 0 is something said."""
    assert not Envelope("", []).metadata().keys() & {"priority", "hold_until_ms", "deadline_ms", "window", "hashes"}
    assert Envelope("", [], priority=0).metadata()["priority"] == 0
    assert Recipient("a@b.test").to_wire() == ["a@b.test", 0, None]


def test_a_message_is_merged_by_its_columns_or_by_values() -> None:
    """A template without fields has no columns; that it is merged is said all the same."""
    assert not Envelope("", [Recipient("a@b.test")]).merged
    assert Envelope("", [Recipient("a@b.test", values=["x"])], columns=["name"]).merged
    assert Envelope("", [Recipient("a@b.test", values=[])]).metadata()["columns"] == []
    assert "columns" not in Envelope("", [Recipient("a@b.test")]).metadata()


def test_what_is_unknown_is_left_aside() -> None:
    """Metadata of a newer version, or with the queue's own keys, still makes an envelope."""
    assert Envelope.from_metadata({"sender": "a@b.test", "chunks": 1, "later": True}, []) == Envelope("a@b.test", [])
