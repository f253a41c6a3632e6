"""A reply that says of something of ours that it is unknown, gone or closed suppresses nobody, in whatever language.

Words of ours and words of absence are combined: hundreds of replies that look like "user unknown" and are about sender,
domain, host, address, HELO, PTR, SPF, keys or relaying. (A bare address is not among them: nothing in a text says whose
it is.)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.rule import reply_of
from zonemta_py.mail.rules.rules import Rules

RULES = Path(__file__).parents[2] / "config" / "rules.toml"

WORDS = {
    "en": (
        "sender|your sender|envelope sender|return path|MAIL FROM|originator|author|From address|reply-to|your domain|"
        "sender domain|your host|client host|your server|your IP address|192.0.2.10|HELO name|EHLO|reverse DNS|"
        "PTR record|hostname of 192.0.2.10|"
        "your MX|SPF record|DKIM key|DMARC record|your certificate|relay host|your account|"
        "your network|link in the message|Message-ID",
        "unknown|does not exist|not found|is invalid|no such user|user unknown|mailbox unavailable|has no mailbox|"
        "not known here|is disabled|was closed|cannot be verified|no such mailbox|address rejected|undeliverable",
    ),
    "de": (
        "Absender|Ihre Absenderadresse|Ihre Domain|Ihr Server|Ihre IP-Adresse|HELO-Name|PTR-Eintrag|SPF-Eintrag",
        "unbekannt|existiert nicht|nicht gefunden|ist ungültig|gibt es nicht|gesperrt|Benutzer unbekannt",
    ),
    "fr": (
        "Expéditeur|adresse de l'expéditeur|votre domaine|votre serveur|votre adresse IP|nom HELO|enregistrement PTR",
        "inconnu|n'existe pas|introuvable|invalide|inexistant|bloqué|utilisateur inconnu",
    ),
    "es": (
        "Remitente|dirección del remitente|su dominio|su servidor|su dirección IP|nombre HELO|registro PTR",
        "desconocido|no existe|no encontrado|inválido|bloqueado|usuario desconocido|buzón inexistente",
    ),
    "it": (
        "Mittente|indirizzo del mittente|il suo dominio|il vostro server|il vostro IP|nome HELO|record PTR",
        "sconosciuto|non esiste|non trovato|non valido|bloccato|utente sconosciuto|casella inesistente",
    ),
    "pt": (
        "Remetente|endereço do remetente|seu domínio|seu servidor|seu IP|nome HELO|registro PTR",
        "desconhecido|não existe|não encontrado|inválido|bloqueado|usuário desconhecido",
    ),
    "nl": (
        "Afzender|adres van de afzender|uw domein|uw server|uw IP-adres|HELO-naam",
        "onbekend|bestaat niet|niet gevonden|ongeldig|geblokkeerd|gebruiker onbekend",
    ),
    "pl": (
        "Nadawca|adres nadawcy|Twoja domena|Twój serwer|Twój adres IP|nazwa HELO",
        "nieznany|nie istnieje|nie znaleziono|zablokowany|użytkownik nieznany",
    ),
    "ru": (
        "Отправитель|адрес отправителя|ваш домен|ваш сервер|ваш IP|имя HELO|PTR-запись",
        "неизвестен|не существует|не найден|заблокирован|пользователь не найден",
    ),
    "zh": (
        "发件人|发件人地址|发信域名|您的服务器|您的IP|反向解析|HELO域名",
        "不存在|未知|未找到|无效|被封禁|用户不存在",
    ),
    "ja": (
        "送信者|送信元アドレス|送信元ドメイン|あなたのサーバー|送信元IP|逆引き|HELO名",
        "存在しません|不明|見つかりません|無効です|ユーザー不明",
    ),
    "ko": ("발신자|보낸 사람 주소|발신 도메인|귀하의 서버|발신 IP", "존재하지 않습니다|알 수 없음|사용자 없음"),
    "tr": ("Gönderen|gönderen adresi|sunucunuz|IP adresiniz", "bulunamadı|bilinmiyor|mevcut değil|kullanıcı yok"),
    "cs": ("Odesílatel|adresa odesílatele|vaše doména|váš server", "neznámý|neexistuje|uživatel neexistuje"),
    "sv": ("Avsändaren|avsändaradressen|er domän|er server|er IP-adress", "okänd|finns inte|användaren finns inte"),
    "fi": ("Lähettäjä|lähettäjän osoite|palvelimenne|IP-osoitteenne", "tuntematon|ei löydy|ei ole olemassa"),
    "hu": ("A feladó|feladó címe|az Ön szervere|IP-címe", "ismeretlen|nem létezik|nem található"),
    "el": ("Ο αποστολέας|διεύθυνση αποστολέα|ο διακομιστής σας|η IP σας", "άγνωστος|δεν υπάρχει|δεν βρέθηκε"),
    "uk": ("Відправник|адреса відправника|ваш домен|ваш сервер", "невідомий|не існує|користувача не знайдено"),
}


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules.load([RULES])


def said(language: str) -> Iterator[str]:
    ours, gone = (words.split("|") for words in WORDS[language])
    for one, what in product(ours, gone):
        yield f"{one} {what}"
        yield f"{what}: {one}"


@pytest.mark.parametrize("language", WORDS)
def test_what_is_said_of_us_suppresses_nobody(rules: Rules, language: str) -> None:
    replies = [Reply(550, enhanced, text) for text in said(language) for enhanced in ("5.1.1", "")]
    assert [str(reply) for reply in replies if rules.judge(reply, "rcpt", "").agreed] == []


def test_the_same_words_of_a_recipient_do(rules: Rules) -> None:
    """Otherwise nothing would be shown above."""
    for text in ("user unknown", "no such mailbox", "recipient does not exist", "Empfänger unbekannt"):
        assert rules.judge(Reply(550, "5.1.1", text), "rcpt", "").agreed


OURS = (
    "192.0.2.25|client host mta.example.com|the connecting server|your HELO|the PTR of 192.0.2.25|your sending domain|"
    "the sender|the envelope sender|your network|DKIM selector|the relay host|your account here|sending user|"
    "the authenticated user|the login you used|the URL in the body|your certificate|list owner"
)
CLOSED = (
    "{} is disabled|{}: mailbox disabled|mailbox of {} is closed|{}: account suspended|account of {} is inactive|"
    "{} is no longer in use|user disabled by {}|mailbox disabled for {}|mailbox locked, {} is unknown"
)


def test_what_is_closed_of_ours_suppresses_nobody(rules: Rules) -> None:
    texts = [said.format(one) for one, said in product(OURS.split("|"), CLOSED.split("|"))]
    assert [text for text in texts if rules.judge(Reply(550, "5.2.1", text), "rcpt", "").agreed] == []


@pytest.mark.parametrize(
    ("line", "enough"),
    [
        ("550 5.2.1 The email account that you tried to reach is disabled", True),
        ("550 5.2.1 Postfach deaktiviert", True),
        ("550 5.2.1 mailbox is not active any more", True),
        ("554 5.1.1 user unknown", True),
        ("550 5.1.0 user unknown", True),
        ("550 mailbox disabled", False),  # words alone: often it is for a time
        ("550 5.2.1 mailbox temporarily disabled", False),
        ("550 5.2.1 mailbox disabled, over quota", False),
        ("450 5.2.1 mailbox disabled", False),
        ("550 5.7.1 user unknown", False),
        ("554 5.1.1 invalid recipient", False),  # filters say so too
    ],
)
def test_what_one_reply_is_enough_for(rules: Rules, line: str, enough: bool) -> None:
    assert rules.judge(reply_of(line), "rcpt", "").agreed is enough
