"""The vocabularies' phrases, and sentences that are read with them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.mail.shipped_rules import SHIPPED
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import ABOUT_RECIPIENT
from zonemta_py.mail.vocabulary import matcher
from zonemta_py.mail.vocabulary.spelling import folded

FOLDER = Path(matcher.__file__).parent


def spoken_of(text: str) -> list[set[str]]:
    return [set(token.concepts) for token in matcher.tokens(folded(text))]


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.toml")))
def test_nothing_of_a_file_is_lost(file: str) -> None:
    """It is not read as TOML, for that takes long."""
    read = tomllib.loads((FOLDER / file).read_text("utf-8"))
    tables = [one for one in read.values() if isinstance(one, dict)] or [read]
    assert list(matcher.lists(file)) == [one for table in tables for one in table.items()]


def test_every_phrase_about_replies_is_found() -> None:
    for concept, phrases in matcher.lists("replies.toml"):
        for phrase in phrases:
            text = folded(phrase.replace("*", "").replace("…", " "))
            assert spoken_of(text) or not text[0].isalnum(), (concept, phrase)


@pytest.mark.parametrize("file", ["returned.toml", "wishes.toml"])
def test_phrases_are_spelled_as_they_are_looked_for(file: str) -> None:
    """In small letters with single spaces; a word by itself, as folding makes it."""
    for name, phrases in matcher.lists(file):
        assert len(set(phrases)) == len(phrases), name
        for phrase in phrases:
            assert phrase == " ".join(phrase.lower().split()), (name, phrase)
            assert file != "wishes.toml" or folded(phrase) == phrase.strip(), (name, phrase)


@pytest.mark.parametrize(
    ("text", "concepts"),
    [
        ("attachments that are not allowed", [{"virus"}]),
        ("ไม่มีผู้ใช้ชื่อนี้ในระบบของเรา", [{"unknown"}, {"system"}]),
        ("กล่องจดหมายของผู้รับเต็มแล้ว", [{"recipient"}, {"recipient"}, {"full"}]),
    ],
)
def test_gaps_within_phrases_and_words_without_spaces(text: str, concepts: list[set[str]]) -> None:
    """A "*" within a phrase; Thai."""
    assert [said for said in spoken_of(text) if said & {"virus", "unknown", "system", "recipient", "full"}] == concepts


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Das Zertifikat des Servers ist abgelaufen", "tls"),
        ("The certificate of the server is unknown", "tls"),
        ("İletinin teslim süresi doldu", "expired"),
        ("Fristen for levering er overskredet", "expired"),
        ("Viesti on suurempi kuin palvelin sallii", "message-too-big"),
        ("What you sent weighs more than they take", "message-too-big"),
        ("The domain has expired", "host-unknown"),
        ("Rok je istekao te je poruka obrisana", "expired"),
        ("there is none of that name here", "user-unknown"),
        ("няма такъв потребител", "user-unknown"),
    ],
)
def test_sentences_of_bounces(text: str, kind: str) -> None:
    """What is said of a certificate, of the time for delivery, or of the message is not said of the recipient."""
    assert SHIPPED.judge(Reply(550, "", text), "report", "").kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "Your message could not be delivered. Please check the address and try again.",
        "Ihre Nachricht konnte nicht zugestellt werden. Bei Fragen wenden Sie sich an Ihren Administrator.",
        "Votre message n'a pas pu être remis. Veuillez vérifier l'adresse.",
        "К сожалению, нам не удалось доставить ваше сообщение. Проверьте адрес получателя.",
        "申し訳ございませんが、メールをお届けできませんでした。アドレスをご確認ください。",
        "메일을 배달할 수 없습니다.",
        "您的邮件无法送达，请检查地址。",
        "ไม่สามารถส่งข้อความของคุณได้ โปรดตรวจสอบที่อยู่",
    ],
)
def test_courtesy_says_nothing_of_the_recipient(text: str) -> None:
    """That it failed is all that these say."""
    assert SHIPPED.judge(Reply(550, "", text), "report", "").kind not in ABOUT_RECIPIENT
