"""What comes back is taken at addresses of ours, from everybody; nothing else is, and nobody gets mail by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.reception.back import (
    EARLIER,
    ID,
    PATH,
    STRANGERS,
    TODAY,
    complaint,
    leaving_path,
    report,
    srs_path,
    verp_path,
)
from tests.reception.letter import MESSAGE, body_of
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal

Opened = Callable[..., Any]


@pytest.fixture
def back(open_door: Opened) -> Any:
    """A listener at which nobody may relay."""
    return open_door(sections={"return_path": PATH}, limits={"errors_per_connection": 100}, **STRANGERS)


def one(door: Any) -> Any:
    (row,) = door.submission.heard
    assert door.submission.kept == []
    return row


def test_a_bounce(back: Any) -> None:
    """Tied by the token; what the report says is kept with it."""
    with back.greeted() as wire:
        assert wire.mail(report(), "", (verp_path(),)) == "250 2.0.0 OK: recorded"
    row = one(back)
    assert (row.kind, row.recipient, row.message, row.genuine, row.via) == ("bounce", "ann@d.test", ID, "token", "smtp")
    assert (row.enhanced, row.reporter, row.message_id, row.form) == ("5.1.1", "mx.d.test", "<m@ours.test>", "rfc3464")
    assert "user unknown" in row.text
    assert row.raw == b""


@pytest.mark.parametrize("spelt", [str.upper, str.swapcase, lambda path: f'"{path[:-7]}"@B.TEST'])
def test_however_the_address_is_spelt(back: Any, spelt: Callable[[str], str]) -> None:
    with back.greeted() as wire:
        assert wire.mail(report(), "", (spelt(verp_path()),))[:3] == "250"
    assert (one(back).recipient.lower(), one(back).genuine) == ("ann@d.test", "token")


def test_a_forwarded_mailbox(back: Any) -> None:
    """The report names another one: the token's recipient is meant, and the other one stays in the text."""
    with back.greeted() as wire:
        wire.mail(report("ann.at.home@else.test"), "", (verp_path(),))
    assert one(back).recipient == "ann@d.test"
    assert one(back).text.endswith("(reported for ann.at.home@else.test)")


def test_a_long_recipient(back: Any) -> None:
    """Stands as a hash in the path: the report's own words fill it in, if they fit it."""
    long = f"{'a' * 40}@d.test"
    with back.greeted() as wire:
        wire.mail(report(long), "", (verp_path(long),))
        wire.mail(report("other@d.test"), "", (verp_path(long),))
    first, second = back.submission.heard
    assert (first.recipient, second.recipient, second.message) == (long, "", ID)
    assert second.mark == first.mark != ""


def test_a_token_that_is_enclosed(back: Any) -> None:
    """A complaint knows the original's return path: that proves whom it is about. The address to unsubscribe by only
    says so: everybody sees it to whom the message was forwarded."""
    fields = (f"Return-Path: <{verp_path()}>\r\n", f"List-Unsubscribe: <mailto:{leaving_path()}?subject=x>\r\n")
    with back.greeted() as wire:
        for field in (*fields, f"Return-Path: <{verp_path(secret='0' * 16)}>\r\n"):
            assert wire.mail(complaint(field), "fbl@provider.test", ("fbl@ours.test",))[:3] == "250"
    rows = back.submission.heard
    assert [(row.kind, row.recipient, row.message) for row in rows[:2]] == [("complaint", "ann@d.test", ID)] * 2
    assert [row.genuine for row in rows[:2]] == ["token", ""]
    assert (rows[2].kind, rows[2].genuine, rows[2].message) == ("complaint", "", "")


def test_without_a_proof(back: Any) -> None:
    """It is recorded, with what may tie it to a message; that it is genuine is not said."""
    with back.greeted() as wire:
        wire.mail(report(original="Feedback-ID: spring:acme:default:x\r\n"), "", ("BOUNCE@ours.test",))
    row = one(back)
    assert (row.kind, row.recipient, row.genuine, row.message) == ("bounce", "ann@d.test", "", "")
    assert (row.message_id, row.feedback_id) == ("<m@ours.test>", "spring:acme:default:x")


def test_a_person_writes(back: Any) -> None:
    """To a return path or the postmaster: nothing follows from it, and an operator can read it."""
    with back.greeted() as wire:
        for to in (verp_path(), "postmaster", "Postmaster@MX.test", "abuse@b.test"):
            assert wire.mail(MESSAGE, "ann@d.test", (to,))[:3] == "250"
    assert [row.kind for row in back.submission.heard] == ["other"] * 4
    assert all(row.raw == MESSAGE for row in back.submission.heard)


def test_an_unsubscribe(back: Any) -> None:
    """Whatever a person writes; not what a machine answers, nor a report."""
    with back.greeted() as wire:
        assert wire.mail(MESSAGE, "ann@d.test", (leaving_path(scope="all"),))[:3] == "250"
        wire.mail(MESSAGE, "", (leaving_path(scope="all"),))
        wire.mail(report(), "x@y.test", (leaving_path(scope="all"),))
    row, *others = back.submission.heard
    assert (row.kind, row.recipient, row.message, row.scope) == ("unsubscribe", "ann@d.test", ID, "all")
    assert (row.genuine, row.via) == ("token", "mailto")
    with back.greeted() as wire:
        wire.mail(MESSAGE, "ann@d.test", (leaving_path(scope="list"),))
    assert back.submission.heard.pop().scope == "list"
    long = f"{'a' * 40}@d.test"  # stands as a hash in the address
    with back.greeted() as wire:
        wire.mail(b"From: Ann <" + long.encode() + b">\r\n" + MESSAGE, "x@y.test", (leaving_path(long),))
    assert back.submission.heard.pop().recipient == long
    assert [other.kind for other in others] == ["other", "bounce"]


def test_the_same_message_again(back: Any) -> None:
    """Its answer was lost: it has the same name, so that the queue knows it; another message has another one."""
    with back.greeted() as wire:
        for subject in (b"one", b"one", b"two"):
            assert wire.mail(b"Subject: " + subject + b"\r\n\r\nx\r\n", "", ("bounce@ours.test",))[:3] == "250"
    assert len(back.submission.heard) == 2


def test_forwarding(back: Any) -> None:
    """SRS: a bounce goes on to the original sender, or the forwarder before us; by no other sender, and unsigned."""
    inner = "SRS0=abcd=XY=origin.test=bob@relay.test"
    with back.greeted() as wire:
        assert wire.mail(report(), "", (srs_path(), srs_path(inner)))[:3] == "250"
        assert wire.mail(report(), "spam@x.test", (srs_path(),)) == (
            "550 5.7.1 Only bounces are forwarded from here: mail with the null sender <>"
        )
    ((envelope, stored),) = back.submission.kept
    assert (envelope.sender, [each.address for each in envelope.recipients]) == ("", ["eve@there.test", inner])
    assert body_of(stored) == report()
    assert envelope.unsigned
    assert back.submission.heard == []


def test_what_a_stranger_cannot_say(open_door: Opened) -> None:
    """A forwarded bounce chooses no zone, campaign, priority or time: these are for those who may relay."""
    path = PATH | {"forward_zone": "default"}
    door = open_door(sections={"return_path": path}, **STRANGERS)
    wish = b"X-Sending-Zone: fast\r\nX-Campaign: c\r\nX-Tenant: t\r\nX-Priority-Level: 9\r\n" + report()
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<> MT-PRIORITY=9 HOLDFOR=1000")[:3] == "250"
        assert wire.ask(f"RCPT TO:<{srs_path()}>")[:3] == "250"
        assert wire.ask("DATA")[:3] == "354"
        wire.send(wish + b".\r\n")
        assert wire.reply()[:3] == "250"
    ((envelope, _),) = door.submission.kept
    assert (envelope.sending_zone, envelope.campaign, envelope.tenant) == ("default", None, None)
    assert (envelope.priority, envelope.hold_until_ms) == (None, 0)


def forged() -> list[str]:
    ours = verp_path()
    return [
        ours.replace("ann=", "eve="), verp_path(secret="0" * 16), verp_path(today=TODAY - 30),
        verp_path(today=TODAY + 5),
        srs_path(today=TODAY - 30), srs_path(secret="0" * 16), "SRS0=abcd=XY=victim.test=eve@s.test",
        "SRS1=abcd=victim.test==XY=q=x@s.test", leaving_path(today=TODAY - 400), "nobody@b.test", "ann=d.test@b.test",
        "victim%elsewhere.test@b.test", '"victim@elsewhere.test"@b.test', "elsewhere.test!victim@s.test",
        '"SRS0=abcd=XY=victim.test=eve"@s.test', ours.replace("=", "%3D"), "b@b.test", "SRS0=@s.test", "SRS0===@s.test",
    ]  # fmt: skip


def test_what_is_refused_for_good(back: Any) -> None:
    """At one of our domains: forged, too old, unknown. One sentence each, and never a later failure."""
    with back.greeted() as wire:
        wire.ask("MAIL FROM:<>")
        for address in forged():
            answer = wire.ask(f"RCPT TO:<{address}>")
            assert answer.startswith("550 5.1.1 "), (address, answer)
        assert wire.ask("DATA")[:3] == "554"


RELAYS = (
    "<victim@elsewhere.test>", "<@b.test:victim@elsewhere.test>", "<@ours.test,@b.test:victim@elsewhere.test>",
    "<victim%b.test@elsewhere.test>", "<victim@[127.0.0.1]>", "<victim@[192.0.2.1]>", "<victim@mx.test>",
    "<postmaster@elsewhere.test>", "<fbl@elsewhere.test>", "<fbl@ours.test.elsewhere.test>", "<fbl+x@ours.test>",
    "<SRS0=abcd=XY=victim.test=eve@elsewhere.test>", '<"fbl@ours.test"@elsewhere.test>', "<other@ours.test>",
)  # fmt: skip
BROKEN = ("victim", "<victim>", "<>", "<b@>", "<@b.test>", "<a@b.test> <victim@elsewhere.test>", "<a b@b.test>",
          "<victim@elsewhere.test\\r\\n>", "<ü@b.test>", "<victim@elsewhere.test@b.test>")  # fmt: skip


def test_it_is_no_open_relay(back: Any) -> None:
    """Neither for the null sender nor for another one, as ours or as a stranger's."""
    for sender in ("", "spam@x.test", verp_path(), "fbl@ours.test"):
        with back.greeted() as wire:
            wire.ask(f"MAIL FROM:<{sender}>")
            for path in RELAYS:
                assert wire.ask(f"RCPT TO:{path}").startswith("550 5.7.1 "), path
                break  # the next refusals of this client come later and later: one is enough for each sender
            for path in BROKEN:
                assert wire.ask(f"RCPT TO:{path}")[:1] == "5", path
    assert back.submission.kept == []


@pytest.mark.parametrize("path", RELAYS)
def test_relaying_is_refused(back: Any, path: str) -> None:
    with back.greeted() as wire:
        wire.ask("MAIL FROM:<>")
        assert wire.ask(f"RCPT TO:{path}").startswith("550 5.7.1 Relaying denied")


def test_who_may_relay(open_door: Opened) -> None:
    """One message to an address of ours and to somebody else, as before; a forged one is refused before it loops."""
    door = open_door(sections={"return_path": PATH}, feedback=True)
    with door.greeted() as wire:
        assert wire.mail(report(), "a@b.test", ("c@d.test", verp_path()))[:3] == "250"
        assert wire.mail(MESSAGE, "a@b.test", ("bob@b.test",))[:3] == "250"  # the domain may have people, too
        assert wire.mail(MESSAGE, "a@b.test", (verp_path(secret="0" * 16),))[:3] == "550"
    assert [row.kind for row in door.submission.heard] == ["bounce"]
    assert [[each.address for each in envelope.recipients] for envelope, _ in door.submission.kept] == [
        ["c@d.test"], ["bob@b.test"],
    ]  # fmt: skip


def test_a_listener_without_it(open_door: Opened) -> None:
    """Beside one that has it: there it is a stranger's mail like any other."""
    sections = {"return_path": {key: PATH[key] for key in ("verp", "secret")}}
    door = open_door(sections=sections, relay_networks=[])
    with door.greeted() as wire:
        assert wire.mail(report(), "", (verp_path(),)).startswith("550 5.7.1")


def test_more_recipients_than_one_transaction_may_have(open_door: Opened) -> None:
    """The rest is to come later: a bounce that is refused for good would be lost."""
    door = open_door(sections={"return_path": PATH}, limits={"recipients": 2}, **STRANGERS)
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<>")
        answers = [wire.ask(f"RCPT TO:<{verp_path(f'ann{n}@d.test')}>")[:9] for n in range(3)]
    assert answers == ["250 2.1.5", "250 2.1.5", "452 4.5.3"]


def test_an_earlier_secret(back: Any) -> None:
    with back.greeted() as wire:
        assert wire.mail(report(), "", (verp_path(secret=EARLIER),))[:3] == "250"


def test_the_queue_is_away(back: Any) -> None:
    """451, and the client keeps it."""
    back.submission.refusal, back.submission.refuse_at = QueueRefusal(Reply(451, "4.3.0", "away")), "feedback"
    with back.greeted() as wire:
        assert wire.mail(report(), "", (verp_path(),)) == "451 4.3.0 away"
        back.submission.refusal = None
        assert wire.mail(report(), "", (verp_path(),))[:3] == "250"
    assert len(back.submission.heard) == 1


def test_a_large_one(open_door: Opened) -> None:
    """Only its beginning is read, and all of it is taken; with whatever bytes it has."""
    door = open_door(sections={"return_path": PATH | {"read_bytes": 10_000}}, **STRANGERS)
    head, end = report().split(b"--X--")
    with door.greeted() as wire:
        body = head + b"\0\rbare\n" + b"x" * 70_000 + b"\r\n" + b"y" * 2_000_000 + b"\r\n--X--" + end
        assert wire.mail(body, "", (verp_path(),))[:3] == "250"
    assert one(door).kind == "bounce"


def test_more_than_is_wanted_at_once(open_door: Opened) -> None:
    """A client gets a quarter of the places; the others are told to come again, and it is not their error."""
    door = open_door(sections={"return_path": PATH | {"at_once": 4}}, limits={"errors_per_connection": 1}, **STRANGERS)
    with door.greeted() as wire, door.greeted() as other:
        for each in (wire, other):
            each.ask("MAIL FROM:<>")
        assert wire.ask(f"RCPT TO:<{verp_path()}>")[:3] == "250"
        for _ in range(3):
            assert other.ask(f"RCPT TO:<{verp_path()}>").startswith("451 4.3.2 Too much comes back at once")
        wire.ask("RSET")
        assert other.ask(f"RCPT TO:<{verp_path()}>")[:3] == "250"


def test_more_than_is_wanted_a_second(open_door: Opened) -> None:
    door = open_door(sections={"return_path": PATH | {"per_second": 0.2}}, **STRANGERS)
    with door.greeted() as wire:
        assert [wire.mail(report(), "", (verp_path(),))[:3] for _ in range(3)] == ["250", "250", "451"]


def test_a_client_that_dies_in_data(open_door: Opened) -> None:
    """Nothing is recorded, and its place is free again, as soon as it is known to be gone."""
    door = open_door(sections={"return_path": PATH | {"at_once": 4}}, **STRANGERS)
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<>")
        assert wire.ask(f"RCPT TO:<{verp_path()}>")[:3] == "250"
        wire.ask("DATA")
        wire.send(report()[:200])
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<>")
        until = time.monotonic() + 60
        while wire.ask(f"RCPT TO:<{verp_path()}>")[:3] != "250":
            assert time.monotonic() < until
        assert door.submission.heard == []
