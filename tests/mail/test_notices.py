"""Texts of notices: every shipped language has all of them, an operator's own replace some, mistakes are named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config.section import shipped
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.notices.phrases import KEYS, KINDS, Phrases, PhrasesError, load
from zonemta_py.mail.notices.wording import Failed, Wording
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import CLASSES

SHIPPED = shipped("notices")
LANGUAGES = sorted(file.stem for file in SHIPPED.glob("*.toml"))
RECEIVED_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
NO_USER = Reply(550, "5.1.1", "no such user")


def wording(*languages: Phrases) -> Wording:
    return Wording("mta.example.org", "mailer-daemon@mta.example.org", languages or (load("en", SHIPPED),))


def text(words: Wording, kind: str = "failed", subject: str = "Hello", age_h: int = 48, **more: object) -> str:
    envelope = Envelope("ann@example.com", [], received_ms=RECEIVED_MS, headers={"subject": subject})
    row = {
        "recipient": Recipient("bob@example.net"),
        "reply": NO_USER,
        "remote": "mx.example.net[192.0.2.1]:25",
        **more,
    }
    return words.text(kind, envelope, [Failed(**row)], RECEIVED_MS + age_h * HOUR_MS)  # type: ignore[arg-type]


def flat(said: str) -> str:
    return " ".join(said.split())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_shipped_language_says_all_of_its_own(language: str) -> None:
    """With all its placeholders, and nothing but technical words in common with English."""
    words, english = load(language, SHIPPED), load("en", SHIPPED)
    for key, names in KEYS.items():
        values = {name: f"<{name}>" for name in names}
        said, there = words.say(key, **values), english.say(key, **values)
        assert [value in said for value in values.values()] == [value in there for value in values.values()], key
        if language != "en" and not key.startswith(("signature", "units")):
            assert said != there, key
    for kind in KINDS:
        said = flat(text(wording(words), kind))
        assert "<bob@example.net>" in said
        assert "550 5.1.1 no such user" in said
        assert "mta.example.org" in said


def test_texts_of_ones_own_replace_some(tmp_path: Path) -> None:
    """Those that are not there are the shipped ones; a language that is not shipped falls back to English."""
    (tmp_path / "de.toml").write_text(
        'signature = "Fragen? help@example.com\\nTel. {{1}}"\n[subject]\nfailed = "Oje: {subject}"\n'
    )
    (tmp_path / "eo.toml").write_text('[text]\nfailed = "Ne eblis liveri al <{recipient}>."\n')
    german, esperanto = load("de", SHIPPED, tmp_path), load("eo", SHIPPED, tmp_path)
    said = text(wording(german))
    assert "\nFragen? help@example.com\nTel. {1}\n" in said
    assert "zugestellt werden" in said
    assert wording(german).subject("failed", Envelope("a@x", [], headers={"subject": "Hal\nlo"})) == "Oje: Hal lo"
    assert "Ne eblis liveri al <bob@example.net>." in flat(text(wording(esperanto)))
    assert "mx.example.net[192.0.2.1]:25 said: 550" in flat(text(wording(esperanto)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[text]\nfaild = 'x'", "text.faild: there is no such text"),
        ("[text]\nfailed = '{sender}'", "has {sender}; its placeholders are {age}, {recipient}"),
        ("[text]\nfailed = '{recipient.domain}'", "has {recipient.domain}"),
        ("[text]\nfailed = '{recipient!r}'", "has {recipient}"),
        ("[text]\nfailed = '{recipient'", "a brace too many or too few"),
        ("[text]\nfailed = 3", "must be a text of 2,000"),
        ("text = 'x'", "text: there is no such text"),
        ("[text", "is not TOML in UTF-8"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(content: str, said: str, tmp_path: Path) -> None:
    """With file, text and remedy."""
    (tmp_path / "en.toml").write_text(content)
    with pytest.raises(PhrasesError) as refused:
        load("en", SHIPPED, tmp_path)
    assert said in str(refused.value)
    assert str(tmp_path / "en.toml") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("language", ["xx", "../en", "EN", ""])
def test_a_language_without_texts_is_refused(language: str) -> None:
    """With those there are."""
    with pytest.raises(PhrasesError, match="use one of de, en, es"):
        load(language, SHIPPED)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Otherwise a wrong name would leave the shipped texts, and nobody would know."""
    with pytest.raises(PhrasesError, match="there is no such folder of texts of notices; make it"):
        load("en", SHIPPED, tmp_path / "nowhere")


def test_several_languages_follow_each_other() -> None:
    """The first one has subject and name."""
    words = wording(load("fr", SHIPPED), load("en", SHIPPED))
    said = flat(text(words))
    assert said.index("remis à <bob@example.net>") < said.index("delivered to <bob@example.net>")
    assert words.subject("failed", Envelope("a@x", [])) == "Votre message n'a pas pu être remis"
    assert words.shown_name == "Système de messagerie"


@pytest.mark.parametrize(
    ("age_h", "said"), [(0, "1 min"), (1, "60 min"), (5, "5 hours"), (47, "47 hours"), (48, "2 days"), (99, "4 days")]
)
def test_how_long_it_took(age_h: int, said: str) -> None:
    """In the largest unit that fits."""
    assert f"after {said}" in flat(text(wording(), "delayed", age_h=age_h, reply=Reply(451, "4.3.0", "later")))


def test_what_a_person_can_do_is_said_where_it_is_known() -> None:
    """By the class of the reply; of failures only."""
    words = wording()
    envelope = Envelope("ann@example.com", [], received_ms=RECEIVED_MS)
    for kind in CLASSES:
        said = Failed(Recipient("bob@example.net"), NO_USER, kind=kind)
        assert "<bob@example.net>." in flat(words.text("failed", envelope, [said], RECEIVED_MS))
    full = Failed(Recipient("bob@example.net"), NO_USER, kind="mailbox-full")
    assert "The mailbox is full." in flat(words.text("failed", envelope, [full], RECEIVED_MS))
    assert "The mailbox is full." not in flat(words.text("delayed", envelope, [full], RECEIVED_MS))


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_nothing_said_is_a_placeholder_or_a_line(reply: str, subject: str, address: str) -> None:
    """Braces and line ends of others stay in their line."""
    words = wording()
    said = text(words, reply=Reply(550, "", reply), subject=subject, recipient=Recipient(address))
    plain = text(words, reply=Reply(550, "", "x"), subject="", recipient=Recipient("x"))
    assert said.count("\n\n") <= plain.count("\n\n") + 1
    assert "\r" not in said
