"""Who refuses what: a list that refuses a posting has bounced it; a bank that refuses a payment has not."""

import pytest

from zonemta_py.mail.feedback.read import read

LIST, ADDRESS = "talk-owner@lists.y.example", "talk@lists.y.example"
POSTINGS = [
    (
        "Your message was rejected",
        f"Your message to the {ADDRESS} list was rejected: not from a list member.\n",
    ),
    (
        'Request to mailing list "talk" rejected',
        f'Your request to the {ADDRESS} mailing list\n\n    Posting of your message titled "Spring"\n\nhas been'
        ' rejected by the list moderator. Reason:\n\n"Non-members are not allowed to post messages to this list."\n',
    ),
    ("Post by non-member", f"Your post to {ADDRESS} was rejected. Only members can post.\n"),
    (f"Ihre Nachricht an {ADDRESS} wurde abgelehnt", "Nur Mitglieder dürfen an diese Liste schreiben.\n"),
    (f"Votre message à {ADDRESS} a été rejeté", "Cette liste est réservée aux abonnés.\n"),
]


@pytest.mark.parametrize(("subject", "body"), POSTINGS)
@pytest.mark.parametrize("field", ["Auto-Submitted: auto-replied", "Precedence: bulk", "X-Ordinary: yes"])
def test_a_list_that_refuses_a_posting_has_bounced_it(subject: str, body: str, field: str) -> None:
    (found,) = read(f"From: {LIST}\nTo: b-7@s.example\nSubject: {subject}\n{field}\n\n{body}".encode()).found
    assert (found.kind, found.recipient, found.reply.code) == ("bounce", ADDRESS, 550)


@pytest.mark.parametrize(
    "body",
    [
        f"Your message to {ADDRESS} has been held: only members can post.\n",
        f"Your message to {ADDRESS} waits for the moderator and has not been rejected.\n",
        "Your subscription request was rejected. Your message said: please.\n",
    ],
)
def test_a_list_that_keeps_a_posting_has_not(body: str) -> None:
    (found,) = read(f"From: {LIST}\nTo: b-7@s.example\nSubject: About your message\n\n{body}".encode()).found
    assert found.kind != "bounce"


PAYMENTS = [
    ("Payment rejected", "The payment of EUR 40.00 was rejected (status 554). Contact carl@bank.example.\n"),
    (
        "Your transfer has failed (code 550)",
        "Transfer 88123 to ann@shop.example failed.\nError 550: no such account.\n",
    ),
    ("Payment declined", "Status 5.2.2. The payment to bob@y.example could not be completed: limit exceeded.\n"),
    ("Payment rejected: 550 5.1.1", "Status: 550 5.1.1 beneficiary unknown. Payee: bob@y.example.\n"),
    ("Überweisung abgelehnt", "Statusnummer 554 5.7.1: Konto gesperrt. Fragen: hilfe@bank.example\n"),
    ("Paiement refusé", "Le paiement à bob@y.example a été refusé. Code 550 5.1.1 : bénéficiaire inconnu.\n"),
    ("Delivery failed", "We could not deliver your parcel 550511. Recipient unknown. Contact: bob@y.example\n"),
]


@pytest.mark.parametrize(("subject", "body"), PAYMENTS)
@pytest.mark.parametrize("sender", ["<>", "<service@bank.example>"])
def test_a_payment_or_a_parcel_with_a_number_is_no_bounce(subject: str, body: str, sender: str) -> None:
    message = (
        f"Return-Path: {sender}\nFrom: Bank <service@bank.example>\nTo: b-7@s.example\nSubject: {subject}\n\n{body}"
    )
    assert {one.kind for one in read(message.encode()).found} == {"other"}


def test_a_message_about_a_payment_that_came_back_is_one() -> None:
    message = (
        "Return-Path: <>\nFrom: Mail <mail@y.example>\nTo: b-7@s.example\nSubject: Undeliverable: Payment received\n\n"
        "Your message to bob@y.example about the payment was not delivered: 550 5.1.1 no such user.\n"
    )
    (found,) = read(message.encode()).found
    assert (found.kind, found.recipient) == ("bounce", "bob@y.example")
