"""Scheduling over the wire: parameters and fields reach the envelope, and no field meant for us goes on."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.schedule_fields import FIELDS, Terms
from zonemta_py.reception.ingest import KEPT, Ingest, IngestRules

TERMS = Terms(30, frozenset(["office"]), frozenset(["Europe/Berlin"]))
RULES = IngestRules("mx.test", True, 10_000, 5, trust_fields=True, terms=TERMS, kept=(*KEPT, "x-kind", "x-campaign"))
SAID = (
    b"X-Sending-Zone: bulk\r\nX-Campaign: spring\r\nX-Tenant: acme\r\nX-Priority-Level: -4\r\nX-Deliver-After: 60\r\n"
    b"X-Deliver-By: 120\r\nX-Window: office\r\nX-Time-Zone: Europe/Berlin\r\nX-Unsubscribe: yes\r\n"
)
NOTHING_SAID = {"campaign": None, "tenant": None, "priority": None, "window": "", "unsubscribe": False}


def arrive(message: bytes, rules: IngestRules = RULES) -> tuple[bytes, Ingest]:
    arrival = Ingest(rules, Envelope("a@b.test", [Recipient("c@d.test")]), "Received: from x id ", "t1", 1_000_000)
    arrival.add(message)
    arrival.finish()
    return b"".join(arrival.chunks.ready) + arrival.chunks.last(), arrival


def unsaid(envelope: Envelope) -> dict[str, object]:
    return {name: getattr(envelope, name) for name in NOTHING_SAID}


def test_fields_speak_and_are_taken_out() -> None:
    """Every field reaches the envelope; the bytes that go on are those of the message without them."""
    rest = b"Date: d\r\nX-Kind: receipt\r\nMessage-ID: <m@b.test>\r\n"
    stored, arrival = arrive(SAID + rest + b"\r\nbody\r\n")
    envelope = arrival.envelope
    assert stored.endswith(b" +0000\r\n" + rest + b"\r\nbody\r\n")
    assert arrive(rest + b"\r\nbody\r\n")[0] == stored
    assert (envelope.sending_zone, envelope.campaign, envelope.tenant, envelope.priority) == (
        "bulk",
        "spring",
        "acme",
        -4,
    )
    assert (envelope.hold_until_ms, envelope.deadline_ms, envelope.deadline_mode) == (1_060_000, 1_120_000, "R")
    assert (envelope.window, envelope.time_zone, envelope.unsubscribe) == ("office", "Europe/Berlin", True)
    assert envelope.headers["x-kind"] == "receipt"
    assert envelope.headers["x-campaign"] == "spring"  # taken out, but a zone has a rule about it


@pytest.mark.parametrize(("field", "optional"), [(b"No", True), (b" no ", True), (b"Yes", False), (b"", False)])
@pytest.mark.parametrize("require_tls", [False, True])
def test_tls_required_no_is_obeyed(field: bytes, optional: bool, require_tls: bool) -> None:
    """RFC 8689 4.2: from any client, and not where REQUIRETLS was said; the field goes on with the message."""
    envelope = Envelope("a@b.test", [Recipient("c@d.test")], require_tls=require_tls)
    arrival = Ingest(RULES, envelope, "Received: from x id ", "t1", 1_000_000)
    arrival.add(b"TLS-Required:" + field + b"\r\nDate: d\r\n\r\nbody\r\n")
    arrival.finish()
    assert envelope.tls_optional is (optional and not require_tls)
    assert Envelope.from_metadata(envelope.metadata(), []).tls_optional is envelope.tls_optional
    assert b"TLS-Required:" + field in b"".join(arrival.chunks.ready) + arrival.chunks.last()


OTHERS = st.sampled_from(
    [b"Subject: s\r\n", b"To: a\r\n\tb\r\n", b"X-Campaigns: c\r\n", b"X-Tenant-Id: d\r\n", b"x: \xff\r\n"]
)
OURS = st.tuples(
    st.sampled_from([*FIELDS, "X-Sending-Zone"]),
    st.booleans(),
    st.sampled_from([":", " :", ":\r\n", ": \r\n\t", ":\t"]),
).map(lambda one: f"{one[0].upper() if one[1] else one[0]}{one[2]} 1\r\n".encode())


@settings(max_examples=100, deadline=None)
@given(st.lists(OTHERS.map(lambda f: (False, f)) | OURS.map(lambda f: (True, f)), max_size=8), st.booleans())
def test_only_what_is_said_to_us_goes(fields: list[tuple[bool, bytes]], trusted: bool) -> None:
    """However mixed, folded and spelt: fields of others keep every byte and their order, ours are all gone."""
    rules = IngestRules("mx.test", trusted, 10_000, 5, trust_fields=False, terms=TERMS)
    end = b"Date: d\r\nMessage-ID: <m@b.test>\r\n\r\nX-Tenant: 1\r\n"
    stored, _ = arrive(b"".join(field for _, field in fields) + end, rules)
    assert stored == arrive(b"".join(field for ours, field in fields if not ours) + end, rules)[0]
    assert stored.endswith(b"".join(field for ours, field in fields if not ours) + end)


def test_fields_nobody_trusts_are_taken_out_all_the_same() -> None:
    """They say nothing, right or wrong, and nobody else gets to see them."""
    untrusted = IngestRules("mx.test", False, 10_000, 5, trust_fields=False, terms=TERMS, kept=(*KEPT, "x-campaign"))
    stored, arrival = arrive(SAID + b"X-Tenant: not a name\r\nSubject: s\r\n\r\n", untrusted)
    assert b"X-" not in stored
    assert unsaid(arrival.envelope) == NOTHING_SAID
    assert arrival.envelope.sending_zone is None
    assert arrival.envelope.headers.keys() == {"subject", "date", "message-id"}


def test_only_the_first_of_several_equal_fields_speaks() -> None:
    """All are taken out, folded or not, in any case of letters, and wherever they stand."""
    stored, arrival = arrive(b"x-campaign:\r\n one\r\nSubject: s\r\nX-CAMPAIGN : two\r\n\r\nX-Campaign: body\r\n")
    assert arrival.envelope.campaign == "one"
    assert stored.lower().count(b"x-campaign") == 1
    assert stored.endswith(b"\r\n\r\nX-Campaign: body\r\n")


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_that_says_nonsense_refuses_the_message(door: Any, name: str) -> None:
    """550 5.6.0 behind the dot, naming the field; the dialogue goes on in step."""
    with door.greeted() as wire:
        answer = wire.mail(f"{name}: \u00fc x\r\n\r\nbody\r\n".encode())
        assert answer.startswith(f"550 5.6.0 {name}: ")
        assert wire.mail(b"Subject: s\r\n\r\nbody\r\n").startswith("250 2.0.0")
    assert len(door.submission.kept) == 1


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ("MT-PRIORITY=4 HOLDFOR=60 BY=120;R", "250 2.1.0"),
        ("MT-PRIORITY=10", "501 5.5.4"),
        ("HOLDFOR=2592001", "501 5.5.4"),
        ("HOLDUNTIL=2020-01-01T00:00:00Z", "501 5.5.4"),
        ("HOLDUNTIL=9999-01-01T00:00:00Z", "501 5.5.4"),
        ("HOLDFOR=60 HOLDUNTIL=2036-01-01T00:00:00Z", "501 5.5.4"),
        ("BY=0;R", "501 5.5.4"),
        ("BY=60;R HOLDFOR=60", "501 5.5.4"),
        ("REQUIRETLS", "555 5.5.4"),
        ("MT-PRIORITY=1 MT-PRIORITY=1", "501 5.5.4"),
    ],
)
def test_parameters_are_judged_at_once(door: Any, parameters: str, code: str) -> None:
    """With MAIL, so that no body travels in vain; after a refusal MAIL may be said again."""
    with door.greeted() as wire:
        assert wire.ask(f"MAIL FROM:<a@b.test> {parameters}").startswith(code)
        if not code.startswith("2"):
            assert wire.ask("MAIL FROM:<a@b.test>").startswith("250")


def test_parameters_reach_the_envelope(door: Any) -> None:
    """Counted from the moment of MAIL; what MAIL says goes before what a field says."""
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test> MT-PRIORITY=0 HOLDFOR=60 BY=120;N")
        wire.ask("RCPT TO:<c@d.test>")
        wire.ask("DATA")
        assert wire.ask("X-Priority-Level: 9\r\nX-Deliver-After: 7200\r\n\r\n.").startswith("250")
    envelope = door.submission.kept[0][0]
    assert (envelope.priority, envelope.deadline_mode) == (0, "N")
    assert envelope.deadline_ms - envelope.hold_until_ms == 60_000
    assert 0 <= envelope.received_ms - (envelope.hold_until_ms - 60_000) < 60_000


def test_parameters_need_ehlo(door: Any) -> None:
    """After HELO there are no extensions."""
    with door.wire() as wire:
        wire.ask("HELO client.test")
        assert wire.ask("MAIL FROM:<a@b.test> HOLDFOR=60").startswith("555 5.5.4")


def test_who_may_not_relay_gets_nowhere_with_parameters(open_door: Callable[..., Any]) -> None:
    """Priority and hold are for those who may relay (RFC 6710, RFC 4865): for others RCPT is the end."""
    with open_door(relay_networks=[]).greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test> MT-PRIORITY=9 HOLDFOR=60")
        assert wire.ask("RCPT TO:<c@d.test>").startswith("550 5.7.1")


def test_the_longest_hold_is_configured(open_door: Callable[..., Any]) -> None:
    """limits.hold_days is what EHLO offers and what MAIL and fields are held to."""
    door = open_door(limits={"hold_days": 0.5})
    with door.wire() as wire:
        assert "FUTURERELEASE 43200 20" in wire.ask("EHLO client.test")
        assert wire.ask("MAIL FROM:<a@b.test> HOLDFOR=43201").startswith("501 5.5.4")
        assert wire.mail(b"X-Deliver-After: 43201\r\n\r\n").startswith("550 5.6.0 X-Deliver-After: messages are held")
        assert wire.mail(b"X-Deliver-After: 43200\r\n\r\n").startswith("250")


def test_requiretls_only_under_tls(open_door: Callable[..., Any], certificate: Path) -> None:
    """Offered and taken once TLS is on, and only then (RFC 8689 2)."""
    door = open_door(tls="starttls", certificate=certificate)
    with smtplib.SMTP("127.0.0.1", door.port, timeout=60) as client:
        client.ehlo()
        assert not client.has_extn("requiretls")
        assert client.docmd("MAIL FROM:<a@b.test> REQUIRETLS")[0] == 555
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        client.starttls(context=context)
        client.ehlo()
        assert client.has_extn("requiretls")
        client.sendmail("a@b.test", "c@d.test", b"Subject: s\r\n\r\n", mail_options=["REQUIRETLS"])
    assert door.submission.kept[0][0].require_tls


def test_a_listener_may_trust_nobody(open_door: Callable[..., Any]) -> None:
    """trust_headers = false: the same message goes through, and says nothing."""
    door = open_door(trust_headers=False)
    with door.greeted() as wire:
        assert wire.mail(b"X-Campaign: a b\r\nX-Tenant: acme\r\nSubject: s\r\n\r\n").startswith("250")
    envelope, body = door.submission.kept[0]
    assert unsaid(envelope) == NOTHING_SAID
    assert b"X-" not in body
