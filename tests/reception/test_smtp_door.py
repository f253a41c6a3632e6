"""The SMTP dialogue, over real sockets."""

from __future__ import annotations

import itertools
import re
import smtplib
import socket
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reception.letter import MESSAGE, body_of
from zonemta_py.mail.envelope import Notify
from zonemta_py.mail.limits import CHUNK_BYTES


def test_a_message_is_taken_and_handed_on(door: Any) -> None:
    """250 names the id that the queue gave; envelope and bytes are those of the client, with our trace field on top."""
    with door.greeted() as wire:
        assert wire.mail(MESSAGE) == "250 2.0.0 OK: queued as id1"
    envelope, stored = door.submission.kept[0]
    assert body_of(stored) == MESSAGE
    assert (envelope.sender, [r.address for r in envelope.recipients]) == ("a@b.test", ["c@d.test"])
    assert (envelope.origin, envelope.origin_name, envelope.protocol) == ("127.0.0.1", "client.test", "ESMTP")
    assert envelope.headers["subject"] == "x"
    assert envelope.headers["message-id"] == "<1@b.test>"
    assert abs(envelope.received_ms - time.time() * 1000) < 60_000
    assert re.match(
        rb"Received: from client\.test \(\[127\.0\.0\.1\]\)\r\n by mx\.test with ESMTP id \S+\r\n for <c@d\.test>;\r\n",
        stored,
    )


def test_ehlo_offers_what_we_keep(door: Any) -> None:
    """All the extensions of the specification, and neither TLS nor AUTH where the listener has none."""
    with door.wire() as wire:
        assert wire.banner == "220 mx.test ESMTP"
        lines = wire.ask("EHLO client.test").split("\n")
    assert lines[0] == "250-mx.test"
    assert [line[4:] for line in lines[1:-1]] == [
        "PIPELINING", "SIZE 104857600", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN", "MT-PRIORITY MIXER",
        "DELIVERBY 1",
    ]  # fmt: skip
    assert re.fullmatch(r"250 FUTURERELEASE 2592000 \d{4}-\d\d-\d\dT\d\d:\d\d:00Z", lines[-1])


def test_every_reply_has_an_enhanced_status_code(open_door: Any) -> None:
    """RFC 2034: all but those to HELO and EHLO, and 3xx; and the code's class is the reply's."""
    commands = [
        "NOOP", "NOOP x", "RSET", "RSET x", "HELP", "VRFY a@b.test", "VRFY", "EXPN x", "BOGUS", "MAIL", "MAIL FROM:x",
        "RCPT TO:<a@b.test>", "DATA", "AUTH PLAIN", "STARTTLS", "HELO", "EHLO", "\xff", "", "ETRN x",
        "MAIL FROM:<a@b.test>", "MAIL FROM:<a@b.test>", "DATA", "DATA x", "RCPT TO:<>", "RCPT TO:<a@b.test> X=1",
        "RCPT TO:<ü@b.test>", "NO\rOP", "QUIT",
    ]  # fmt: skip
    door = open_door(limits={"errors_per_connection": 100})
    with door.greeted() as wire:
        for command in commands:
            answer = wire.ask(command)
            assert re.match(r"([245])\d\d \1\.\d\.\d+ \S", answer), (command, answer)
        assert wire.reply() == ""


def test_pipelined_commands_are_answered_in_order_and_in_few_packets(door: Any) -> None:
    """RFC 2920: several transactions in one write; replies come in order, coalesced."""
    one = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nRCPT TO:<bad\r\nRCPT TO:<e@f.test>\r\nDATA\r\n"
    with door.greeted() as wire:
        wire.send(one)
        answers = wire.socket.recv(4096)
        assert [line[:9] for line in answers.decode().splitlines()] == [
            "250 2.1.0", "250 2.1.5", "501 5.1.3", "250 2.1.5", "354 End d",
        ]  # fmt: skip
        wire.send(MESSAGE + b".\r\n" + one + MESSAGE + b".\r\nQUIT\r\n")
        codes = []
        while line := wire.reply():
            codes.append(line[:3])
    assert codes == ["250", "250", "250", "501", "250", "354", "250", "221"]
    assert [len(envelope.recipients) for envelope, _ in door.submission.kept] == [2, 2]


def test_where_packets_end_does_not_matter(door: Any) -> None:
    """A dialogue sent byte by byte gives what it gives in one piece."""
    script = b"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n" + MESSAGE + b".\r\nQUIT\r\n"
    with door.wire() as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in script:
            wire.send(bytes([byte]))
        assert [wire.reply()[:3] for _ in range(6)] == ["250", "250", "250", "354", "250", "221"]
    assert body_of(door.submission.kept[0][1]) == MESSAGE


@pytest.mark.parametrize("fake", [b"\n.\n", b"\r\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\r", b"\r\n\0.\r\n"])
@pytest.mark.parametrize("line_ends", ["normalise", "refuse"])
def test_no_second_message_can_be_smuggled_in(open_door: Any, fake: bytes, line_ends: str) -> None:
    """Nothing but CRLF . CRLF ends DATA: what follows a fake end is part of the one message, or is refused with it."""
    door = open_door(limits={"line_ends": line_ends})
    evil = b"MAIL FROM:<evil@x.test>\r\nRCPT TO:<v@y.test>\r\nDATA\r\nSubject: evil\r\n\r\nx\r\n"
    with door.greeted() as wire:
        answer = wire.mail(MESSAGE + b"x" + fake + evil)
        refused = line_ends == "refuse" or b"\0" in fake
        assert answer[:3] == ("554" if refused else "250")
        assert wire.ask("NOOP")[:3] == "250"
    assert [envelope.sender for envelope, _ in door.submission.kept] == ([] if refused else ["a@b.test"])


BYTES = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from([b"\r\n", b".", b"..", b"A: b\r\n", b"text", b"\r\n.", b" x", b"\xfe", b"\x7f:"])).map(
        b"".join
    ),
)


@given(message=BYTES)
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_bytes_in_are_bytes_stored(door: Any, message: bytes) -> None:
    """Any message with CRLF line ends comes out as it went in, but for the fields added, all in one place."""
    message = re.sub(rb"\r\n|\r|\n", b"\r\n", message).replace(b"\0", b"0")
    if message and not message.endswith(b"\r\n"):
        message += b"\r\n"
    wire = getattr(door, "kept_wire", None)
    if wire is None:
        wire = door.kept_wire = door.greeted()
    answer = wire.mail(re.sub(rb"(^|\r\n)\.", rb"\1..", message))
    assert answer.startswith("250"), answer
    stored = body_of(door.submission.kept[-1][1])
    added = rb"(?:Date: [^\r]*\r\n)?(?:Message-ID: [^\r]*\r\n)?(?:\r\n)?"
    for at in range(len(message) + 1):  # the fields were put in at exactly one place
        if (
            stored.startswith(message[:at])
            and re.fullmatch(added, stored[at : len(stored) - (len(message) - at)])
            and stored.endswith(message[at:])
        ):
            return
    raise AssertionError(f"{message!r} was stored as {stored!r}")


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
def test_messages_are_cut_into_chunks(door: Any, extra: int) -> None:
    """One chunk goes by put, more by begin, write of whole chunks, and commit of the rest; no byte is lost."""
    filler = b"0123456789abcde\r\n" * (CHUNK_BYTES // 10)
    with door.greeted() as wire:
        wire.mail(MESSAGE)
        overhead = len(door.submission.kept[0][1]) - len(MESSAGE)
        message = MESSAGE + filler
        message = message[: CHUNK_BYTES + extra - overhead - 2] if extra < 3 else message * (1 + extra // CHUNK_BYTES)
        message = message.rstrip(b"\r\n") + b"\r\n"
        assert wire.mail(message)[:3] == "250"
    envelope, stored = door.submission.kept[1]
    assert body_of(stored) == message
    assert door.submission.begun == (1 if len(stored) > CHUNK_BYTES else 0)
    assert envelope.size == len(stored)


def test_missing_fields_are_added_to_the_header_section(door: Any) -> None:
    """Date and Message-ID stand at the end of the header section; a message without one gets one, and an empty line."""
    with door.greeted() as wire:
        wire.mail(b"Subject: x\r\n\r\nhi\r\n")
        wire.mail(b"just text\r\n")
    first, second = (body_of(stored) for _, stored in door.submission.kept)
    assert re.fullmatch(rb"Subject: x\r\nDate: [^\r]+\r\nMessage-ID: <[^\r]+@mx\.test>\r\n\r\nhi\r\n", first)
    assert re.fullmatch(rb"Date: [^\r]+\r\nMessage-ID: <[^\r]+@mx\.test>\r\n\r\njust text\r\n", second)
    assert door.submission.kept[0][0].headers["message-id"].encode() in first


@pytest.mark.parametrize(("trusted", "zone"), [(True, "bulk"), (False, None)])
def test_the_sending_zone_field_is_taken_out(open_door: Any, trusted: bool, zone: str | None) -> None:
    """X-Sending-Zone never leaves the house; it chooses the zone only where the listener trusts it."""
    door = open_door(trust_sending_zone=trusted)
    with door.greeted() as wire:
        wire.mail(b"x-sending-zone: bulk\r\n" + MESSAGE)
    envelope, stored = door.submission.kept[0]
    assert envelope.sending_zone == zone
    assert body_of(stored) == MESSAGE


def test_delivery_status_notification_parameters_are_kept(door: Any) -> None:
    """RFC 3461: RET, ENVID, NOTIFY and ORCPT reach the queue."""
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<a@b.test> RET=HDRS ENVID=x+2B1 BODY=8BITMIME")[:3] == "250"
        assert wire.ask("RCPT TO:<c@d.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;o@d.test")[:3] == "250"
        wire.ask("DATA")
        assert wire.ask(MESSAGE + b".")[:3] == "250"
    envelope = door.submission.kept[0][0]
    assert (envelope.ret, envelope.envid, envelope.body) == ("HDRS", "x+1", "8BITMIME")
    recipient = envelope.recipients[0]
    assert (recipient.notify, recipient.orcpt) == (Notify.SUCCESS | Notify.FAILURE, "rfc822;o@d.test")


def test_a_recipient_named_twice_is_kept_once(door: Any) -> None:
    """It hears 250 both times and gets one copy."""
    with door.greeted() as wire:
        assert wire.mail(MESSAGE, recipients=("c@d.test", "x@d.test", "c@D.TEST"))[:3] == "250"
    assert [r.address for r in door.submission.kept[0][0].recipients] == ["c@d.test", "x@d.test"]


def test_international_mail(door: Any) -> None:
    """SMTPUTF8: addresses and the trace field's protocol name."""
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<jörg@bücher.test> SMTPUTF8")[:3] == "250"
        assert wire.ask("RCPT TO:<用户@例子.test>")[:3] == "250"
        wire.ask("DATA")
        assert wire.ask(MESSAGE + b".")[:3] == "250"
    envelope, stored = door.submission.kept[0]
    assert envelope.smtputf8
    assert (envelope.sender, envelope.recipients[0].address) == ("jörg@bücher.test", "用户@例子.test")
    assert b"with UTF8SMTP id" in stored


def test_helo_has_no_extensions(door: Any) -> None:
    """RFC 5321 4.1.1.1: mail works, parameters do not."""
    with door.wire() as wire:
        assert wire.ask("HELO old.test") == "250 mx.test"
        assert wire.ask("MAIL FROM:<a@b.test> SIZE=1")[:9] == "555 5.5.4"
        assert wire.mail(MESSAGE)[:3] == "250"
    assert door.submission.kept[0][0].protocol == "SMTP"


def test_commands_before_ehlo_and_out_of_order_are_refused(door: Any) -> None:
    """RFC 5321 4.1.4."""
    with door.wire() as wire:
        assert wire.ask("MAIL FROM:<a@b.test>")[:9] == "503 5.5.1"
        wire.ask("EHLO x")
        assert wire.ask("RCPT TO:<a@b.test>")[:9] == "503 5.5.1"
        assert wire.ask("DATA")[:9] == "503 5.5.1"
        wire.ask("MAIL FROM:<>")
        assert wire.ask("MAIL FROM:<a@b.test>")[:9] == "503 5.5.1"
        assert wire.ask("DATA")[:9] == "554 5.5.1"
        assert wire.ask("RSET")[:3] == "250"
        assert wire.ask("MAIL FROM:<a@b.test>")[:3] == "250"


def test_postmaster_is_taken_without_a_domain(door: Any) -> None:
    """RFC 5321 4.5.1: it is ours."""
    with door.greeted() as wire:
        assert wire.mail(MESSAGE, recipients=("Postmaster",))[:3] == "250"
    assert door.submission.kept[0][0].recipients[0].address == "postmaster@mx.test"


def test_the_standard_library_can_send(door: Any) -> None:
    """smtplib, with dots and 8-bit text."""
    with smtplib.SMTP(door.address, door.port, timeout=60) as client:
        text = "Subject: hi\n\n.\n..\n. dot\nGrüße\n".encode()
        assert client.sendmail("a@b.test", ["c@d.test", "e@d.test"], text, mail_options=["BODY=8BITMIME"]) == {}
    stored = door.submission.kept[0][1]
    assert stored.endswith("\r\n\r\n.\r\n..\r\n. dot\r\nGrüße\r\n\r\n".encode())  # its way with bare LF


def test_ids_differ(door: Any) -> None:
    """Every message has an id of its own in its trace field, within and across connections."""
    for _ in range(2):
        with door.greeted() as wire:
            wire.mail(MESSAGE)
            wire.mail(MESSAGE)
    ids = [re.search(rb" id (\S+)", stored)[1] for _, stored in door.submission.kept]  # type: ignore[index]
    assert all(one != other for one, other in itertools.combinations(ids, 2))


@pytest.mark.parametrize(("declared", "text", "kept"), [
    ("", "Gruß", "8BITMIME"), ("", "hi", "7BIT"), (" BODY=7BIT", "Gruß", "8BITMIME"),
    (" BODY=8BITMIME", "hi", "8BITMIME"),
])  # fmt: skip
def test_eight_bit_text_is_known_as_such(door: Any, declared: str, text: str, kept: str) -> None:
    """Clients often send it without saying so; the queue hears what is true (RFC 6152)."""
    with door.greeted() as wire:
        wire.ask(f"MAIL FROM:<a@b.test>{declared}")
        wire.ask("RCPT TO:<c@d.test>")
        wire.ask("DATA")
        assert wire.ask(MESSAGE + text.encode() + b"\r\n.")[:3] == "250"
    assert door.submission.kept[0][0].body == kept
