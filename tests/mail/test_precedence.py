"""Of whom a reply speaks has precedence over what its words are like; the shipped rules on what no example says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mail.shipped_rules import SHIPPED
from zonemta_py.mail import classify
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import ABOUT_RECIPIENT
from zonemta_py.mail.rules.repair import repaired
from zonemta_py.mail.rules.rule import Classified, reply_of
from zonemta_py.mail.rules.rules import names_another
from zonemta_py.mail.vocabulary import matcher
from zonemta_py.mail.vocabulary.spelling import folded


def judged(line: str, stage: str = "rcpt") -> Classified:
    return SHIPPED.judge(classify.judge(reply_of(line), stage).reply, stage, "")


@pytest.mark.parametrize(
    "line",
    [
        "550 5.1.1 no such user: the sender ann@example.com has no account at example.com",
        "550 5.1.1 HELO argument is an unknown user",
        "550 PTR of your machine does not exist, user unknown",
        "550 5.1.1 IP 192.0.2.7 unknown user of our network",
        "550 5.1.7 user unknown",
        "550 5.1.8 no such mailbox",
        "550 5.1.1 to relay here you must be a known user",
        "550 5.7.1 the sender's mailbox does not exist",
        "550 Absender existiert nicht, Benutzer unbekannt",
        "550 L'expéditeur n'existe pas",
        "550 El remitente no existe",
        "550 发件人不存在",
        "550 Отправитель не найден",
    ],
)
def test_what_is_said_of_the_sender_or_of_us_is_not_said_of_the_recipient(line: str) -> None:
    """Such a reply never suppresses anybody, neither at once nor later."""
    for stage in ("rcpt", "data", "dot", "report"):
        classified = judged(line, stage)
        assert classified.kind not in ABOUT_RECIPIENT, (stage, classified.rule)
        assert not classified.agreed


@pytest.mark.parametrize("stage", ["connect", "banner", "ehlo", "tls", "auth", "mail"])
def test_only_replies_to_rcpt_data_and_the_message_are_about_a_recipient(stage: str) -> None:
    """The same words in another place mean somebody else."""
    for line in ("550 5.1.1 user unknown", "550 No such user", "552 5.2.2 mailbox full", "550 Benutzer unbekannt"):
        assert judged(line, stage).kind not in ABOUT_RECIPIENT


@pytest.mark.parametrize(
    ("line", "rests"),
    [
        ("554 5.7.1 192.0.2.7 is on our blacklist", True),
        ("554 5.7.1 Your server is blacklisted", True),
        ("554 5.7.1 A URL in your mail is blacklisted", False),
        ("554 5.7.1 The attachment is on our blocklist", False),
        ("554 5.7.1 From: address is blacklisted", False),
        ("554 5.7.1 blacklisted", False),
    ],
)
def test_a_source_rests_only_when_the_reply_names_it(line: str, rests: bool) -> None:
    """A link or a From on somebody's list says nothing about an IP address."""
    assert bool(judged(line).action.rest_s) is rests


def test_a_recipients_status_bars_retry_and_rest() -> None:
    """5.1.1, 5.1.6 and 5.2.1 are final, whatever else the words are like, unless they name us."""
    for status in ("5.1.1", "5.1.6", "5.2.1"):
        action = judged(f"550 {status} refused, blacklisted").action
        assert (action.verdict, action.rest_s) == ("", 0)
    assert judged("550 5.1.1 your IP 192.0.2.7 is blacklisted").action.verdict == "retry"


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("551 User has moved", True),
        ("550 5.1.6 User has moved", True),
        ("550 User has moved, new address is ann@example.net", True),
        ("550 <ann@example.com> User has moved", False),
    ],
)
def test_moved_needs_a_status_or_an_address(line: str, moved: bool) -> None:
    """A page, a server or a mailbox may have moved as well."""
    assert (judged(line).kind == "moved") is moved


def test_552_that_says_not_found_is_not_too_many_recipients() -> None:
    """RFC 5321 4.5.3.1.10 reads 552 to RCPT as 452; not where the server says what it means."""
    for text in ("mailbox not found", "No such user", "1 Requested mail action aborted, mailbox not found"):
        assert classify.judge(Reply(552, "", text), "rcpt").permanent
    assert not classify.judge(Reply(552, "", "Too many recipients"), "rcpt").permanent


def test_relay_recipient_table() -> None:
    """Postfix's name of a table says nothing about relaying."""
    line = "550 5.1.1 <ann@example.com>: Recipient address rejected: User unknown in relay recipient table"
    assert judged(line).kind == "user-unknown"
    assert judged(line).agreed


@pytest.mark.parametrize(
    ("line", "agreed"),
    [
        ("550 5.1.1 <ann@example.com>: user unknown", True),
        ("550 No such user here", True),
        ("550 Benutzer existiert nicht", True),
        ("550 5.7.1 User unknown", False),
        ("450 4.1.1 User unknown", False),
        ("550 5.1.1 Recipient rejected", False),
        ("550 5.1.1", False),
        ("550 5.1.1 user unknown, or blocked by policy", False),
        ("550 5.1.1 user unknown (temporary lookup failure)", False),
        ("550 5.1.1 refused since <ann@example.com> was not found", False),
        ("550 5.2.2 mailbox full", False),
    ],
)
def test_one_reply_is_enough_only_if_all_agree(line: str, agreed: bool) -> None:
    """Code, text and stage, and no reservation."""
    assert judged(line).agreed is agreed


@pytest.mark.parametrize(
    ("text", "another"),
    [
        ("user unknown", False),
        ("<Ann@example.com>: user unknown", False),
        ("no such user 'ann@example.com'.", False),
        ("<news@example.net>: user unknown", True),
        ("<ann@example.com>: forwards to bob@example.net, user unknown", True),
    ],
)
def test_a_reply_that_names_somebody_else_is_told(text: str, another: bool) -> None:
    """Such as the sender's address, or where a recipient's mail goes on to."""
    assert names_another(text, ["ann@example.com"]) is another


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Das Postfach ist überfüllt", "mailbox-full"),
        ("Das Postfach ist ueberfuellt", "mailbox-full"),
        ("Das Postfach ist \ufffdberf\ufffdllt", "mailbox-full"),
        ("Das Postfach ist Ã¼berfÃ¼llt", "mailbox-full"),
        ("=?utf-8?Q?Das_Postfach_ist_=C3=BCberf=C3=BCllt?=", "mailbox-full"),
        ("Das Postfach ist =FCberf=FCllt", "mailbox-full"),
        ("Das Postfach ist &uuml;berf&uuml;llt", "mailbox-full"),
        ("Почтовый ящик переполнен".encode("koi8-r").decode("latin-1"), "mailbox-full"),
        ("该邮箱不存在".encode("gbk").decode("latin-1"), "user-unknown"),
        ("メールボックスがいっぱいです".encode("iso2022_jp").decode("latin-1"), "mailbox-full"),
        ("사용자를 찾을 수 없습니다".encode("euc-kr").decode("latin-1"), "user-unknown"),
    ],
)
def test_text_that_was_mangled_is_understood(text: str, kind: str) -> None:
    """Servers send any charset; what arrives is often something else."""
    assert SHIPPED.judge(Reply(550, "", text), "rcpt", "").kind == kind


@given(st.text())
def test_no_text_breaks_repair_and_folding(text: str) -> None:
    """Both answer, whatever comes."""
    assert isinstance(folded(repaired(text)), str)


def test_no_word_for_a_sender_or_for_us_is_taken_for_a_recipient() -> None:
    """In any language of the vocabulary, "SENDER UNKNOWN" is nothing against the recipient, even as 550 5.1.1."""
    languages = tomllib.loads(Path(matcher.__file__).with_name("replies.toml").read_text("utf-8"))
    assert len(languages) >= 21
    for language, concepts in languages.items():
        for who in [*concepts.get("sender", []), *concepts.get("source", [])]:
            for what in concepts["unknown"][::50]:
                text = f"{who} {what}".replace("*", "").replace("…", " ")
                classified = SHIPPED.judge(Reply(550, "5.1.1", text), "rcpt", "")
                assert classified.kind not in ABOUT_RECIPIENT, (language, text, classified.rule)
                assert not classified.agreed, (language, text)


@pytest.mark.parametrize(
    ("line", "kind", "verdict"),
    [
        ("550 5.7.1 mail from 192.0.2.7 is refused, its reputation is too low", "poor-reputation", "retry"),
        ("550 5.7.1 the reputation of example.com is too low", "poor-reputation", ""),
        ("554 5.3.0 temporary fault of our database, please try again later", "system-error", "retry"),
        ("554 5.3.0 fault of our database", "system-error", ""),
        ("550 5.7.1 too much junk comes from 192.0.2.7", "poor-reputation", "retry"),
        ("450 4.7.25 Client host rejected: [192.0.2.7] is nobody", "reverse-dns", "retry"),
        ("550 Relais refusé, utilisateur non authentifié", "relay-denied", ""),
    ],
)
def test_what_is_said_of_our_address_or_asks_to_come_again_is_tried_again(line: str, kind: str, verdict: str) -> None:
    """Junk before anybody saw the message is our address; of a domain's reputation another address is no help."""
    classified = judged(line)
    assert (classified.kind, classified.action.verdict) == (kind, verdict)


def test_a_link_on_a_list_is_no_fault_of_an_address_that_is_named_too() -> None:
    classified = judged("550 5.7.1 Blacklisted URL: shop.example (from 192.0.2.7)", "dot")
    assert (classified.kind, classified.action.verdict) == ("spam-content", "")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("554 5.7.1 198.51.100.77 is listed at bl.spamcop.net", "spam-content"),
        ("550 5.7.1 host 198.51.100.77 mentioned in the mail is on a blocklist", "spam-content"),
        ("554 5.7.1 203.0.113.5 is listed at bl.spamcop.net", "blocked-ip"),
        ("554 5.7.1 Service unavailable; Client host [198.51.100.9] blocked using zen.spamhaus.org", "blocked-ip"),
    ],
)
def test_an_address_that_is_not_ours_was_read_in_the_message(line: str, kind: str) -> None:
    """At the end of the message, where ours are known: the letter is refused for good, and we do not rest."""
    reply = reply_of(line)
    known = SHIPPED.judge(reply, "dot", "", ("203.0.113.5",))
    ours = kind == "blocked-ip"
    assert (known.kind, known.action.verdict, bool(known.action.rest_s)) == (kind, "retry" if ours else "", ours)
    for unknown in (SHIPPED.judge(reply, "dot", ""), SHIPPED.judge(reply, "rcpt", "", ("203.0.113.5",))):
        assert (unknown.kind, bool(unknown.action.rest_s)) == ("blocked-ip", True)


def test_what_is_listed_in_a_letter_is_refused_for_good() -> None:
    """Not the letter's way: a retry would meet the same."""
    for line in (
        "554 5.7.1 URIBL blacklisted: bad.example",
        "554 5.7.1 The URL http://bad.example/x is listed on SURBL",
    ):
        action = judged(line, "dot").action
        assert (action.verdict, action.rest_s) == ("", 0)
