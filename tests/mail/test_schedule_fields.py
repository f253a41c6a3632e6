"""What senders ask of the schedule, as text: every parameter and field, and every way to get it wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail import fields, schedule_fields
from zonemta_py.mail.address import AddressRefused, parse_mail
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.schedule_fields import FIELDS, PARAMETERS, InvalidValue, ScheduleParameters, Terms, apply

NOW = 1_795_248_000_000
"""2026-11-21T08:00:00Z."""
DAY_MS = 86_400_000
TERMS = Terms(30, frozenset(["office"]), frozenset(["Europe/Berlin", "UTC"]))
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)).map(lambda d: d.replace(microsecond=0))
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def asked(parameters: str) -> ScheduleParameters:
    """What MAIL with these parameters wishes for, settled now."""
    wishes = parse_mail(f"<a@b.test> {parameters}").schedule
    assert wishes is not None
    wishes.settle(NOW, TERMS.hold_days)
    return wishes


def ordered(**fields: str) -> Envelope:
    """The envelope after the fields were obeyed; deliver_after="60" is X-Deliver-After: 60."""
    envelope = Envelope("a@b.test", [])
    names = {name.lower()[2:].replace("-", "_"): name for name in FIELDS}
    apply(envelope, {names[field]: value for field, value in fields.items()}, TERMS, NOW)
    return envelope


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("MT-PRIORITY=9", {"priority": 9}),
        ("mt-priority=-9", {"priority": -9}),
        ("MT-PRIORITY=0", {"priority": 0}),
        ("HOLDFOR=1", {"hold_until_ms": NOW + 1000}),
        ("HOLDFOR=2592000", {"hold_until_ms": NOW + 30 * DAY_MS}),
        ("HOLDUNTIL=2026-11-21T09:00:00Z", {"hold_until_ms": NOW + 3_600_000}),
        ("HOLDUNTIL=2026-11-21T10:00:00.25+01:00", {"hold_until_ms": NOW + 3_600_250}),
        ("HOLDUNTIL=2026-11-21T08:00:00Z", {"hold_until_ms": NOW}),
        ("BY=120;R", {"deadline_ms": NOW + 120_000, "by_mode": "R"}),
        ("BY=+1;r", {"deadline_ms": NOW + 1000, "by_mode": "R"}),
        ("BY=120;NT", {"deadline_ms": NOW + 120_000, "by_mode": "N"}),
        ("BY=0;N", {"deadline_ms": NOW, "by_mode": "N"}),
        ("BY=-999999999;N", {"deadline_ms": NOW - 999_999_999_000, "by_mode": "N"}),
        ("REQUIRETLS", {"require_tls": True}),
        ("HOLDFOR=60 BY=61;R MT-PRIORITY=3", {"hold_until_ms": NOW + 60_000, "deadline_ms": NOW + 61_000}),
        ("HOLDFOR=60 BY=1;N", {"hold_until_ms": NOW + 60_000, "deadline_ms": NOW + 1000}),
    ],
)
def test_what_mail_may_ask_for(parameters: str, expected: dict[str, object]) -> None:
    """RFC 6710, 4865, 2852 and 8689; intervals become moments counted from now."""
    wishes = asked(parameters)
    assert {name: getattr(wishes, name) for name in expected} == expected


@pytest.mark.parametrize(
    "parameters",
    [
        "MT-PRIORITY=10", "MT-PRIORITY=-10", "MT-PRIORITY=+1", "MT-PRIORITY=-0", "MT-PRIORITY", "MT-PRIORITY=x",
        "MT-PRIORITY=٣", "HOLDFOR=0", "HOLDFOR=-1", "HOLDFOR=1.5", "HOLDFOR=01", "HOLDFOR=1234567890", "HOLDFOR",
        "HOLDUNTIL=2026-11-21", "HOLDUNTIL=2026-11-21T09:00:00", "HOLDUNTIL=2026-02-30T09:00:00Z", "HOLDUNTIL=60",
        "HOLDUNTIL=2026-11-21T09:00:00+25:00", "HOLDUNTIL", "BY=120", "BY=120;X", "BY=;R", "BY=0;R", "BY=-5;R",
        "BY=1234567890;R", "BY=1;RTT", "BY", "REQUIRETLS=1", "BY=5;R BY=5;R",
    ],
)  # fmt: skip
def test_what_mail_may_not_say(parameters: str) -> None:
    """501 5.5.4, with the keyword and what to say instead; a repeated keyword too (RFC 4865, 2852)."""
    with pytest.raises(AddressRefused) as caught:
        parse_mail(f"<a@b.test> {parameters}")
    reply = caught.value.reply
    assert (reply.code, reply.enhanced) == (501, "5.5.4")
    assert reply.text.startswith(parameters.partition("=")[0])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("HOLDFOR=2592001", "30 days at most"),
        ("HOLDUNTIL=2026-12-21T08:00:01Z", "30 days at most"),
        ("HOLDUNTIL=2026-11-21T07:59:59Z", "in the past"),
        ("HOLDFOR=60 HOLDUNTIL=2026-11-21T09:00:00Z", "exclude each other"),
        ("HOLDFOR=60 BY=60;R", "the deadline passes before the hold ends"),
    ],
)
def test_what_cannot_be_kept(parameters: str, said: str) -> None:
    """Holds beyond the limit or in the past, two of them, and a return before the release are refused."""
    with pytest.raises(InvalidValue, match=said):
        asked(parameters)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"campaign": "spring.2026_a-b"}, {"campaign": "spring.2026_a-b"}),
        ({"tenant": "A" * 63}, {"tenant": "A" * 63}),
        ({"priority_level": "-9"}, {"priority": -9}),
        ({"deliver_after": "3600"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "+3600"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "2026-11-21T10:00:00+01:00"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "2026-11-21 09:00:00Z"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "Sat, 21 Nov 2026 10:00:00 +0100"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "21 Nov 2026 09:00 GMT"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "Sat, 21 Nov 2026 04:00:00 -0500 (EST)"}, {"hold_until_ms": NOW + 3_600_000}),
        ({"deliver_after": "2020-01-01T00:00:00Z"}, {"hold_until_ms": 0}),
        ({"deliver_after": "0"}, {"hold_until_ms": 0}),
        ({"deliver_by": "60"}, {"deadline_ms": NOW + 60_000, "deadline_mode": "R"}),
        ({"deliver_by": "2026-11-22T08:00:00Z"}, {"deadline_ms": NOW + DAY_MS, "deadline_mode": "R"}),
        ({"window": "office", "time_zone": "Europe/Berlin"}, {"window": "office", "time_zone": "Europe/Berlin"}),
        ({"unsubscribe": "Yes"}, {"unsubscribe": True}),
        ({"unsubscribe": "0"}, {"unsubscribe": False}),
        ({"unsubscribe": "Campaign"}, {"unsubscribe": True, "unsubscribe_scope": "campaign"}),
        ({"unsubscribe": "list"}, {"unsubscribe": True, "unsubscribe_scope": "list"}),
        ({"unsubscribe": "no", "track": "Clicks"}, {"unsubscribe": False, "unsubscribe_scope": "", "track": "clicks"}),
    ],
)
def test_what_fields_may_ask_for(fields: dict[str, str], expected: dict[str, object]) -> None:
    """A release in the past is no hold; both kinds of dates, and seconds."""
    envelope = ordered(**fields)
    assert {name: getattr(envelope, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"campaign": "a b"}, "X-Campaign: 'a b' is not a valid name; use up to 63 letters"),
        ({"campaign": ""}, "X-Campaign: '' is not a valid name"),
        ({"tenant": ".hidden"}, "X-Tenant: '.hidden' is not a valid name"),
        ({"tenant": "a" * 64}, "X-Tenant: 'aaa"),
        ({"campaign": "grün"}, r"X-Campaign: 'gr\\xfcn' is not a valid name"),
        ({"priority_level": "high"}, "X-Priority-Level: 'high' is not a priority; give a number from -9 to 9"),
        ({"deliver_after": "tomorrow"}, "X-Deliver-After: 'tomorrow' is not a date; write it like 2026-11-21T08:00"),
        ({"deliver_after": "2026-11-21T09:00:00"}, "X-Deliver-After: .* is not a date"),
        ({"deliver_after": "Sat, 31 Feb 2026 10:00:00 +0100"}, "X-Deliver-After: .* is not a date"),
        ({"deliver_after": "2592001"}, "X-Deliver-After: messages are held for 30 days at most"),
        ({"deliver_by": "0"}, "X-Deliver-By: '0' is in the past"),
        ({"deliver_by": "2020-01-01T00:00:00Z"}, "X-Deliver-By: .* is in the past"),
        ({"deliver_after": "60", "deliver_by": "60"}, "the deadline passes before the hold ends"),
        ({"window": "night"}, r"X-Window: 'night' is not a window of this server; name a \[\[windows\]\] table"),
        ({"time_zone": "Berlin"}, "X-Time-Zone: 'Berlin' is not a time zone; give an IANA name such as Europe/Berlin"),
        ({"time_zone": "../../etc/passwd"}, "X-Time-Zone: .* is not a time zone"),
        ({"unsubscribe": "please"}, "X-Unsubscribe: 'please' is neither yes nor no"),
        ({"track": "maybe"}, "X-Track: 'maybe' is not one of yes, no, opens, clicks"),
    ],
)
def test_what_fields_may_not_say(fields: dict[str, str], said: str) -> None:
    """One sentence with the field, what it said, and the remedy."""
    with pytest.raises(InvalidValue, match=said):
        ordered(**fields)


def test_mail_goes_before_fields() -> None:
    """What a parameter said stands, also where a field says otherwise; a field's mistake is refused all the same."""
    envelope = Envelope("", [])
    asked("MT-PRIORITY=0 HOLDFOR=60 BY=100;N").put_into(envelope)
    fields = {"X-Priority-Level": "5", "X-Deliver-After": "30", "X-Deliver-By": "3600"}
    apply(envelope, fields, TERMS, NOW)
    assert (envelope.priority, envelope.hold_until_ms) == (0, NOW + 60_000)
    assert (envelope.deadline_ms, envelope.deadline_mode) == (NOW + 100_000, "N")
    with pytest.raises(InvalidValue):
        apply(envelope, {"X-Priority-Level": "urgent"}, TERMS, NOW)


def test_a_hold_of_mail_counts_for_a_deadline_in_a_field() -> None:
    """The two together must be possible, wherever each was said."""
    envelope = Envelope("", [])
    asked("HOLDFOR=60").put_into(envelope)
    with pytest.raises(InvalidValue, match="deadline passes"):
        apply(envelope, {"X-Deliver-By": "59"}, TERMS, NOW)


@settings(max_examples=100, deadline=None)
@given(MOMENTS, OFFSETS)
def test_dates_come_back(moment: datetime, zone: timezone) -> None:
    """Both spellings of a moment, in any offset, are that moment; `utc` writes what `date_time` reads."""
    there = moment.replace(tzinfo=UTC).astimezone(zone)
    ms = int((there - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1000
    assert schedule_fields.date_time(there.isoformat()) == ms
    assert schedule_fields.mail_date(format_datetime(there)) == ms
    assert schedule_fields.date_time(fields.utc(ms)) == ms


@settings(max_examples=60, deadline=None)
@given(st.integers(-9, 9), st.integers(-(10**9) + 1, 10**9 - 1), st.sampled_from("NR"), st.integers(1, 10**9 - 1))
def test_numbers_come_back(level: int, seconds: int, mode: str, hold: int) -> None:
    """What is written as the RFCs write it is read as it was meant."""
    assert schedule_fields.priority(str(level)) == level
    assert schedule_fields.hold_for(str(hold)) == hold
    if mode == "N" or seconds > 0:
        assert schedule_fields.deliver_by(f"{seconds};{mode}") == (seconds, mode)


NEARLY = st.text(st.sampled_from("0123456789-+:;.TtZz NRSat,ov\r\n()\x00é²"), max_size=40) | st.text(max_size=40)
PARSERS: list[Callable[[str], object]] = [
    schedule_fields.priority, schedule_fields.hold_for, schedule_fields.deliver_by, schedule_fields.date_time,
    schedule_fields.mail_date, schedule_fields.name,
    lambda text: schedule_fields.moment(text, NOW),
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(NEARLY)
def test_no_text_breaks_a_parser(text: str) -> None:
    """Each gives a value or Unclear, whose sentence is one printable line, whatever came."""
    sentences = []
    for parse in PARSERS:
        try:
            parse(text)
        except InvalidValue as unclear:
            sentences.append(str(unclear))
    assert all(sentence.isprintable() and len(sentence) < 700 for sentence in sentences)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), NEARLY | st.integers(0, 10**7).map(str)))
def test_no_field_breaks_the_envelope(fields: dict[str, str]) -> None:
    """Whatever fields say, they are refused, or the envelope keeps within the terms and survives the wire."""
    envelope = Envelope("a@b.test", [])
    try:
        apply(envelope, fields, TERMS, NOW)
    except InvalidValue:
        return
    assert envelope.hold_until_ms <= NOW + 30 * DAY_MS
    assert envelope.priority is None or -9 <= envelope.priority <= 9
    assert not envelope.deadline_mode or envelope.deadline_ms > max(NOW, envelope.hold_until_ms)
    assert Envelope.from_wire(envelope.to_wire()) == envelope


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(PARAMETERS)), NEARLY))
def test_no_parameter_breaks_mail(parameters: dict[str, str]) -> None:
    """MAIL with any such parameters is a command, or a refusal with 501 or 555."""
    words = " ".join(f"{keyword}={value}" if value else keyword for keyword, value in parameters.items())
    code = 250
    try:
        command = parse_mail(f"<a@b.test> {words}")
        if command.schedule:
            command.schedule.settle(NOW, 30)
    except AddressRefused as refused:
        code = refused.reply.code
    except InvalidValue:
        code = 501
    assert code in (250, 501, 555)
