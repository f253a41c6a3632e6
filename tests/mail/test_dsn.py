"""Notifications are read back with the standard library's e-mail package, as a stranger's program would."""

from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config.section import shipped
from zonemta_py.mail.dsn import Kind, build, enclose
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.mail.notices.phrases import load
from zonemta_py.mail.notices.wording import Failed, Wording
from zonemta_py.mail.reply import Reply

HOUR_MS = 3_600_000
RECEIVED_MS = 1_700_000_000_000
HEADER = b"From: a@example.com\r\nSubject: Hello\r\nMessage-ID: <1@example.com>\r\n"
NO_USER = Reply(550, "5.1.1", "no such user here")
BUSY = Reply(451, "4.7.1", "try again later")
ENGLISH = Wording("mta.example.org", "mailer-daemon@mta.example.org", (load("en", shipped("notices")),))


def envelope(sender: str = "news@example.com", **more: object) -> Envelope:
    return Envelope(sender, [], received_ms=RECEIVED_MS, **more)  # type: ignore[arg-type]


def failed(address: str = "bob@example.net", reply: Reply = NO_USER, **more: object) -> Failed:
    recipient = Recipient(address, 0, more.pop("orcpt", None))  # type: ignore[arg-type]
    return Failed(recipient, reply, **{"remote": "mx.example.net[192.0.2.1]:25", **more})  # type: ignore[arg-type]


def raw(
    kind: Kind, failures: list[Failed], env: Envelope | None = None, original: bytes = HEADER, **more: bool
) -> bytes:
    now_ms = RECEIVED_MS + 48 * HOUR_MS
    env = env or envelope()
    return build(kind, env, failures, original, wording=ENGLISH, now_ms=now_ms, unique="u1", **more)


def parsed(kind: Kind, failures: list[Failed], env: Envelope | None = None, **more: object) -> EmailMessage:
    message = message_from_bytes(raw(kind, failures, env, **more), policy=policy.default)  # type: ignore[arg-type]
    assert not message.defects
    assert isinstance(message, EmailMessage)
    return message


def parts(message: EmailMessage) -> tuple[EmailMessage, list[EmailMessage], EmailMessage]:
    text, status, original = message.iter_parts()
    return text, status.get_payload(), original  # type: ignore[return-value]


def test_the_message_is_a_report_from_the_postmaster_that_nobody_answers() -> None:
    """RFC 3462's multipart/report, from mailer-daemon, marked as automatic, threaded to the message it is about."""
    message = parsed("failed", [failed()], envelope(headers={"message-id": "<1@example.com>"}))
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    assert message["From"].addresses[0].addr_spec == "mailer-daemon@mta.example.org"
    assert message["To"].addresses[0].addr_spec == "news@example.com"
    assert message["Auto-Submitted"] == "auto-replied"
    assert message["Message-ID"] == "<u1@mta.example.org>"
    assert message["In-Reply-To"] == message["References"] == "<1@example.com>"
    assert [p.get_content_type() for p in message.iter_parts()] == [
        "text/plain", "message/delivery-status", "text/rfc822-headers",
    ]  # fmt: skip


def test_a_failure_names_recipient_server_and_reply() -> None:
    """Every field of RFC 3464 that is known is there, and people read the same in a sentence."""
    env = envelope(envid="QQ314159")
    text, (message, recipient), _ = parts(
        parsed("failed", [failed(last_ms=RECEIVED_MS, orcpt="rfc822;rob@x.org")], env)
    )
    assert dict(message.items()) == {
        "Original-Envelope-Id": "QQ314159",
        "Reporting-MTA": "dns; mta.example.org",
        "Arrival-Date": "Tue, 14 Nov 2023 22:13:20 +0000",
    }
    assert dict(recipient.items()) == {
        "Original-Recipient": "rfc822;rob@x.org",
        "Final-Recipient": "rfc822; bob@example.net",
        "Action": "failed",
        "Status": "5.1.1",
        "Remote-MTA": "dns; mx.example.net",
        "Diagnostic-Code": "smtp; 550 5.1.1 no such user here",
        "Last-Attempt-Date": "Tue, 14 Nov 2023 22:13:20 +0000",
    }
    sentence = " ".join(text.get_content().split())
    assert "could not be delivered to <bob@example.net>. mx.example.net[192.0.2.1]:25 said: 550 5.1.1 no" in sentence


def test_a_recipient_given_up_is_expired() -> None:
    """A temporary reply at the end of a message's life becomes 5.4.7, and the last reply is still shown."""
    text, (_, recipient), _ = parts(parsed("failed", [failed(reply=BUSY, attempts=9)]))
    assert recipient["Status"] == "5.4.7"
    assert recipient["Diagnostic-Code"] == "smtp; 451 4.7.1 try again later"
    assert "within 2 days" in " ".join(text.get_content().split())


def test_a_delay_says_until_when() -> None:
    """A delayed recipient has Will-Retry-Until and a 4.x.x status, and keeps its original out of the mail."""
    until_ms = RECEIVED_MS + 72 * HOUR_MS
    _, (_, recipient), _ = parts(parsed("delayed", [failed(reply=BUSY, until_ms=until_ms)]))
    assert (recipient["Action"], recipient["Status"]) == ("delayed", "4.7.1")
    assert recipient["Will-Retry-Until"] == "Fri, 17 Nov 2023 22:13:20 +0000"


def test_relaying_is_reported_as_a_success_of_ours() -> None:
    """NOTIFY=SUCCESS at a server without DSN gets Action: relayed, status 2.x.x."""
    _, (_, recipient), _ = parts(parsed("relayed", [failed(reply=Reply(250, "", "queued as 1234"))]))
    assert (recipient["Action"], recipient["Status"]) == ("relayed", "2.0.0")


def test_delivered_by_lmtp() -> None:
    """NOTIFY=SUCCESS where our delivery was the last one: Action: delivered (RFC 3461 5.2.1)."""
    _, (_, recipient), _ = parts(parsed("delivered", [failed(reply=Reply(250, "2.0.0", "saved"))]))
    assert (recipient["Action"], recipient["Status"]) == ("delivered", "2.0.0")


def test_mail_under_requiretls() -> None:
    """Its notification asks for it too, and returns the header section at most (RFC 8689 5)."""
    env = envelope(require_tls=True)
    assert enclose(env, b"", 5).require_tls
    assert b"the body" not in raw("failed", [failed()], env, original=WHOLE, whole=True)


def test_our_own_verdict_is_not_passed_off_as_a_server_s() -> None:
    """Where no server said it (DNS, a plugin), there is no Remote-MTA and the code is not labelled smtp."""
    _, (_, recipient), _ = parts(parsed("failed", [failed(reply=Reply(550, "5.1.2", "no such domain"), remote="")]))
    assert "Remote-MTA" not in recipient
    assert recipient["Diagnostic-Code"] == "x-zonemta; 550 5.1.2 no such domain"


@pytest.mark.parametrize(
    ("remote", "name"),
    [("mx.example.net[192.0.2.1]:25", "mx.example.net"), ("[2001:db8::1]:25", "[2001:db8::1]"), ("mx", "mx")],
)
def test_the_remote_mta_is_the_server_s_name(remote: str, name: str) -> None:
    """Remote-MTA is the bare name, or the address in brackets where there is no name."""
    _, (_, recipient), _ = parts(parsed("failed", [failed(remote=remote)]))
    assert recipient["Remote-MTA"] == f"dns; {name}"


def test_one_notification_may_be_about_many() -> None:
    """Recipients follow each other in groups separated by a blank line."""
    addresses = [f"user{n}@example.net" for n in range(50)]
    _, (_, *recipients), _ = parts(parsed("failed", [failed(address) for address in addresses]))
    assert [r["Final-Recipient"] for r in recipients] == [f"rfc822; {address}" for address in addresses]


WHOLE = HEADER + b"\r\nthe body\r\n"


@pytest.mark.parametrize(
    ("kind", "whole", "form", "has_body"),
    [
        ("failed", True, "message/rfc822", True),
        ("failed", False, "text/rfc822-headers", False),
        ("delayed", True, "text/rfc822-headers", False),
        ("relayed", True, "text/rfc822-headers", False),
    ],
)
def test_the_body_comes_back_only_with_failures(kind: Kind, whole: bool, form: str, has_body: bool) -> None:
    """RET=FULL counts for failures; delays and relays carry the header section only (RFC 3461 4.3)."""
    message = parsed(kind, [failed()], original=WHOLE, whole=whole)
    assert list(message.iter_parts())[2].get_content_type() == form
    assert (b"the body" in raw(kind, [failed()], original=WHOLE, whole=whole)) is has_body


@pytest.mark.parametrize(
    ("original", "whole", "form"),
    [
        ("Subject: Grüße\r\n".encode(), False, "message/global-headers"),
        ("Subject: Grüße\r\n\r\nbody".encode(), True, "message/global"),
        (b"Subject: Gr\xfc\xdfe\r\n", False, "text/rfc822-headers"),
    ],
)
def test_the_original_s_bytes_are_returned_as_they_are(original: bytes, whole: bool, form: str) -> None:
    """UTF-8 in a header section makes it one of RFC 6533's types; other bytes pass unchanged, labelled 8bit."""
    bytes_out = raw("failed", [failed()], original=original, whole=whole)
    assert f"Content-Type: {form}\r\nContent-Transfer-Encoding: 8bit".encode() in bytes_out
    assert original in bytes_out


def test_addresses_beyond_ascii_make_it_global() -> None:
    """RFC 6533: message/global-delivery-status in UTF-8, address type utf-8."""
    data = raw("failed", [failed("jürgen@example.net")], envelope("grüße@example.com"))
    assert b"Content-Type: message/global-delivery-status\r\nContent-Transfer-Encoding: 8bit" in data
    assert "Final-Recipient: utf-8; jürgen@example.net\r\n".encode() in data
    assert "\r\nTo: <grüße@example.com>\r\n".encode() in data


def test_an_ascii_sender_gets_an_ascii_header() -> None:
    """However the failed recipient is written, the notification's own header stays ASCII if its reader's address is."""
    head, _, _ = raw("failed", [failed("jürgen@example.net")]).partition(b"\r\n\r\n")
    assert head.isascii()


def test_text_beyond_ascii_in_a_reply_is_legible_to_people() -> None:
    """The sentence keeps the reply's letters (quoted-printable); the ASCII-only status part has question marks."""
    data = raw("failed", [failed(reply=Reply(550, "5.1.1", "Empfänger unbekannt"))])
    text, (_, recipient), _ = parts(parsed("failed", [failed(reply=Reply(550, "5.1.1", "Empfänger unbekannt"))]))
    assert data.isascii()
    assert "Empfänger" in text.get_content()
    assert recipient["Diagnostic-Code"] == "smtp; 550 5.1.1 Empf?nger unbekannt"


EVIL = st.text(st.sampled_from("a \r\n\t\0:;<>@-=_u1.\x85\u2028ü\ud800") | st.characters(), max_size=600)


@settings(max_examples=150, deadline=None)
@given(reply=EVIL, address=EVIL, envid=EVIL, orcpt=EVIL, remote=EVIL, message_id=EVIL)
def test_nothing_said_can_start_a_field_or_a_part(
    reply: str, address: str, envid: str, orcpt: str, remote: str, message_id: str
) -> None:
    """Whatever a server or client says, there are three parts, only our fields, and only CRLF line ends."""
    env = envelope("x" + address.replace("--=_u1", ""), envid=envid, headers={"message-id": message_id})
    failure = failed(f"{address}@x", Reply(550, "", reply), orcpt=orcpt, remote=remote)
    data = raw("failed", [failure], env)
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert b"\r" not in data.replace(b"\r\n", b"")
    assert b"\0" not in data
    assert data.count(b"\r\n--=_u1\r\n") == 3
    head = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    names = [line.partition(b":")[0] for line in head if not line.startswith(b" ")]
    assert set(names) <= {
        b"From", b"To", b"Subject", b"Date", b"Message-ID", b"Auto-Submitted", b"In-Reply-To", b"References",
        b"MIME-Version", b"Content-Type",
    }  # fmt: skip
    assert len(names) == len(set(names))
    groups = data.split(b"\r\n--=_u1\r\n")[2].split(b"\r\n\r\n")[1:]
    assert len(groups) == 2
    for group in groups:
        assert all(
            line.startswith(b" ") or line.split(b":")[0] in STATUS_FIELDS for line in group.split(b"\r\n") if line
        )


STATUS_FIELDS = {
    b"Original-Envelope-Id", b"Reporting-MTA", b"Arrival-Date", b"Original-Recipient", b"Final-Recipient", b"Action",
    b"Status", b"Remote-MTA", b"Diagnostic-Code", b"Last-Attempt-Date", b"Will-Retry-Until",
}  # fmt: skip


def test_the_envelope_of_a_notification_cannot_cause_another() -> None:
    """It comes from the null sender, goes to the sender with NOTIFY=NEVER, and is a message of our own."""
    env = envelope(tenant="t1", campaign="c1")
    data = raw("failed", [failed()])
    outer = enclose(env, data, 5)
    assert (outer.sender, outer.recipients) == ("", [Recipient("news@example.com", int(Notify.NEVER))])
    assert (outer.size, outer.body, outer.protocol, outer.received_ms) == (len(data), "7BIT", "LOCAL", 5)
    assert (outer.smtputf8, outer.tenant, outer.campaign) == (False, "t1", "c1")
    assert enclose(env, b"\xff", 5).body == "8BITMIME"
    assert enclose(envelope("ü@example.com"), data, 5).smtputf8


@pytest.mark.parametrize(("sender", "failures"), [("", [failed()]), ("a@example.com", [])])
def test_a_notification_to_nobody_is_our_mistake(sender: str, failures: list[Failed]) -> None:
    """Null senders are never notified (RFC 5321 4.5.5); asking for it is a bug that shows."""
    with pytest.raises(ValueError, match="needs a sender"):
        raw("failed", failures, envelope(sender))
