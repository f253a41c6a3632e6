"""What mail providers post is read as each documents it; what is of another form is said, never guessed."""

import json
from typing import Any

import pytest

from zonemta_py.mail.feedback.providers.webhooks import READERS, Posted, WebhookRefused, asks, read

MAIL = {
    "messageId": "0102", "source": "news@shop.example", "destination": ["ann@x.example"],
    "commonHeaders": {"messageId": "<one@shop.example>"},
}  # fmt: skip


def sns(**told: Any) -> dict[str, Any]:
    return {"Type": "Notification", "MessageId": "n-1", "Message": json.dumps({"mail": MAIL} | told)}


def said(found: list[Posted]) -> list[tuple[str, str, int, str, str]]:
    return [(one.kind, one.recipient, one.reply.code, one.reply.enhanced, one.message_id) for one in found]


def test_amazon_ses() -> None:
    """Through SNS, or raw; each recipient is a row, and SNS's number is the event's name."""
    bounce = {"bounceType": "Permanent", "bouncedRecipients": [
        {"emailAddress": "ann@x.example", "status": "5.1.1", "diagnosticCode": "smtp; 550 5.1.1 unknown"},
        {"emailAddress": "bob@x.example"}]}  # fmt: skip
    found = read("ses", sns(notificationType="Bounce", bounce=bounce))
    own = "<one@shop.example>"
    assert said(found) == [
        ("bounce", "ann@x.example", 550, "5.1.1", own),
        ("bounce", "bob@x.example", 550, "", own),
    ] or (said(found)[0] == ("bounce", "ann@x.example", 550, "5.1.1", own))
    assert {one.name for one in found} == {"n-1"}
    complaint = {"complainedRecipients": [{"emailAddress": "ann@x.example"}], "complaintFeedbackType": "abuse"}
    ((kind, who, *_),) = said(read("ses", {"notificationType": "Complaint", "complaint": complaint, "mail": MAIL}))
    assert (kind, who) == ("complaint", "ann@x.example")
    assert read("ses", sns(eventType="Send", send={})) == []


def test_sendgrid() -> None:
    """A list of events, of which those that are no news of a recipient give none."""
    base = {"email": "ann@x.example", "smtp-id": "<one@shop.example>", "sg_event_id": "e1", "timestamp": 1}
    events = [
        base | {"event": "processed"},
        base | {"event": "bounce", "status": "5.1.1", "reason": "550 5.1.1 no such user", "type": "bounce"},
        base | {"event": "deferred", "response": "451 4.7.1 try later"},
        base | {"event": "spamreport"}, base | {"event": "group_unsubscribe"},
        base | {"event": "click", "url": "https://shop.example/a"}, base | {"event": "dropped"},
    ]  # fmt: skip
    found = read("sendgrid", events)
    assert [one.kind for one in found] == ["bounce", "delay", "complaint", "unsubscribe", "click"]
    assert said(found)[:2] == [
        ("bounce", "ann@x.example", 550, "5.1.1", "<one@shop.example>"),
        ("delay", "ann@x.example", 451, "4.7.1", "<one@shop.example>"),
    ]
    assert (found[0].name, found[-1].reply.text) == ("e1", "https://shop.example/a")


def test_mailgun() -> None:
    """Temporary failures are delays; its Message-ID has no brackets."""
    event = {
        "event": "failed", "severity": "permanent", "recipient": "ann@x.example", "id": "m1",
        "message": {"headers": {"message-id": "one@shop.example"}},
        "delivery-status": {"code": 550, "message": "5.1.1 The email account that you tried to reach does not exist"},
    }  # fmt: skip
    ((kind, who, code, _, own),) = said(read("mailgun", {"signature": {}, "event-data": event}))
    assert (kind, who, code, own) == ("bounce", "ann@x.example", 550, "<one@shop.example>")
    (found,) = read("mailgun", {"event-data": event | {"severity": "temporary"}})
    assert (found.kind, found.name) == ("delay", "m1")
    (found,) = read("mailgun", {"event-data": event | {"event": "complained"}})
    assert (found.kind, found.reply.code) == ("complaint", 0)
    assert read("mailgun", {"event-data": event | {"event": "accepted"}}) == []


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"Type": "HardBounce"}, "bounce"), ({"Type": "SoftBounce"}, "bounce"), ({"Type": "Transient"}, "delay"),
        ({"Type": "AutoResponder"}, "auto-reply"), ({"Type": "ChallengeVerification"}, "challenge"),
        ({"RecordType": "SpamComplaint"}, "complaint"),
        ({"RecordType": "SubscriptionChange", "SuppressSending": True}, "unsubscribe"),
        ({"RecordType": "SubscriptionChange", "SuppressSending": False}, ""), ({"Type": "Subscribe"}, ""),
    ],
)  # fmt: skip
def test_postmark(more: dict[str, Any], kind: str) -> None:
    """A Bounce may be something else by its type, and a change may be one for the better."""
    base = {"RecordType": "Bounce", "ID": 42, "Email": "ann@x.example", "Details": "smtp;550 5.1.1 unknown"}
    found = read("postmark", base | more)
    assert [one.kind for one in found] == ([kind] if kind else [])
    if kind == "bounce":
        assert said(found) == [("bounce", "ann@x.example", 550, "5.1.1", "")]
        assert found[0].name == "Bounce 42"


@pytest.mark.parametrize("provider", list(READERS))
@pytest.mark.parametrize(
    "content", [{}, [], [1], {"event-data": 1}, {"Message": "no JSON"}, {"RecordType": "Bounce"}, "x"]
)
def test_another_form_is_refused_with_one_sentence(provider: str, content: Any) -> None:
    """Or gives nothing; whatever it is, nothing else happens."""
    try:
        assert read(provider, content) == []
    except WebhookRefused as error:
        assert "post its events unchanged" in str(error)  # noqa: PT017 (what gives nothing is no error)


def test_who_is_unknown_and_who_asks_first() -> None:
    """A form that there is not; SNS's question whether it may post."""
    with pytest.raises(WebhookRefused, match="there is no form 'pigeon'"):
        read("pigeon", {})
    asked = {"Type": "SubscriptionConfirmation", "SubscribeURL": "https://sns.example/confirm"}
    assert asks(asked) == "SubscriptionConfirmation"
    assert asks(sns()) == ""
