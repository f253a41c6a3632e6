"""Mails in which a person answers a newsletter and quotes it: 33 ways to quote, twelve languages.

Whoever answers so wants nothing of what the quoted footer says. Every tenth mail, by a hash of its name, is `apart`:
it was measured, and not looked at, while the reader was written.
"""

# ruff: noqa: E501 - a text is a line, in its own letters
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from email.header import Header
from html import escape
from typing import NamedTuple

SHOP = "Shop <shop@mail.example.com>"


class Language(NamedTuple):
    """What a language's mail programs and people write. wrote, header: of its attributions and header blocks; original,
    forwarded: its dividers. firsts: what people answer. footer: of a newsletter."""

    wrote: str
    header: tuple[str, str, str, str]
    original: str
    forwarded: str
    sent_from: str
    firsts: tuple[str, ...]
    letter: str
    footer: str


LANGUAGES = {
    "en": Language(
        "On Mon, 2 Nov 2026 at 10:00, Shop <shop@mail.example.com> wrote:", ("From", "Sent", "To", "Subject"), "Original Message",
        "Forwarded message", "Sent from my iPhone", ("Lovely!", "Do you have it in blue as well?", "Thanks, see you on Saturday.\nBob"),
        "Dear Ann,\nour spring collection has arrived.", "You receive this mail because you bought something from us.\nUnsubscribe: https://leave.example.com/u/Ab3\nRemove me from this list: https://leave.example.com/r/Ab3"),
    "de": Language(
        "Am Mo., 2. Nov. 2026 um 10:00 Uhr schrieb Shop <shop@mail.example.com>:", ("Von", "Gesendet", "An", "Betreff"), "Ursprüngliche Nachricht",
        "Weitergeleitete Nachricht", "Von meinem iPhone gesendet", ("Sehr schön, danke!", "Gibt es das auch in Größe 42?", "Ich komme am Samstag vorbei.\nViele Grüße\nBernd"),
        "Liebe Ann,\nunsere Frühlingskollektion ist da.", "Sie erhalten diese E-Mail, weil Sie bei uns eingekauft haben.\nNewsletter abbestellen: https://leave.example.com/u/Ab3\nWenn Sie keine Mails mehr wünschen, können Sie sich hier abmelden."),
    "fr": Language(
        "Le lun. 2 nov. 2026 à 10:00, Shop <shop@mail.example.com> a écrit :", ("De", "Envoyé", "À", "Objet"), "Message d'origine",
        "Message transféré", "Envoyé de mon iPhone", ("Très joli, merci !", "Est-ce que la boutique est ouverte dimanche ?", "C'est noté, à samedi.\nBernard"),
        "Chère Ann,\nnotre collection de printemps est arrivée.", "Vous recevez ce message car vous êtes client.\nSe désabonner : https://leave.example.com/u/Ab3\nPour ne plus recevoir nos e-mails, cliquez ici."),
    "es": Language(
        "El lun, 2 nov 2026 a las 10:00, Shop (<shop@mail.example.com>) escribió:", ("De", "Enviado", "Para", "Asunto"), "Mensaje original",
        "Mensaje reenviado", "Enviado desde mi iPhone", ("¡Qué bonito!", "¿Tienen talla 42?", "Gracias, nos vemos el sábado.\nBernardo"),
        "Querida Ann:\nha llegado nuestra colección de primavera.", "Recibe este correo porque es cliente nuestro.\nDarse de baja: https://leave.example.com/u/Ab3\nSi no desea recibir más correos, cancelar suscripción aquí."),
    "pt": Language(
        "Em seg., 2 de nov. de 2026 às 10:00, Shop <shop@mail.example.com> escreveu:", ("De", "Enviada em", "Para", "Assunto"), "Mensagem original",
        "Mensagem encaminhada", "Enviado do meu iPhone", ("Que lindo!", "Vocês entregam em Lisboa?", "Obrigada, até sábado.\nBeatriz"),
        "Cara Ann,\nchegou a nossa coleção de primavera.", "Recebe este e-mail porque é nosso cliente.\nCancelar inscrição: https://leave.example.com/u/Ab3\nRemover o meu endereço desta lista"),
    "it": Language(
        "Il giorno lun 2 nov 2026 alle ore 10:00 Shop <shop@mail.example.com> ha scritto:", ("Da", "Inviato", "A", "Oggetto"), "Messaggio originale",
        "Messaggio inoltrato", "Inviato da iPhone", ("Bellissimo!", "Quanto costa la spedizione?", "Grazie, a sabato.\nBruno"),
        "Cara Ann,\nè arrivata la nostra collezione primaverile.", "Ricevi questa e-mail perché sei nostro cliente.\nCancella iscrizione: https://leave.example.com/u/Ab3\nNon voglio ricevere altre e-mail"),
    "nl": Language(
        "Op ma 2 nov 2026 om 10:00 schreef Shop <shop@mail.example.com>:", ("Van", "Verzonden", "Aan", "Onderwerp"), "Oorspronkelijk bericht",
        "Doorgestuurd bericht", "Verstuurd vanaf mijn iPhone", ("Mooi hoor!", "Hebben jullie dit ook in het blauw?", "Bedankt, tot zaterdag.\nBram"),
        "Beste Ann,\nonze voorjaarscollectie is er.", "Je ontvangt deze mail omdat je klant bent.\nUitschrijven: https://leave.example.com/u/Ab3\nMeld mij af voor deze nieuwsbrief"),
    "pl": Language(
        "pon., 2 lis 2026 o 10:00 Shop <shop@mail.example.com> napisał(a):", ("Od", "Wysłano", "Do", "Temat"), "Wiadomość oryginalna",
        "Przekazana wiadomość", "Wysłane z iPhone'a", ("Śliczne!", "Czy jest rozmiar 42?", "Dziękuję, do soboty.\nBasia"),
        "Droga Anno,\nnasza wiosenna kolekcja już jest.", "Otrzymujesz tę wiadomość, ponieważ jesteś naszym klientem.\nWypisz mnie z listy: https://leave.example.com/u/Ab3\nRezygnacja z newslettera"),
    "ru": Language(
        "пн, 2 нояб. 2026 г. в 10:00, Shop <shop@mail.example.com>:", ("От", "Отправлено", "Кому", "Тема"), "Исходное сообщение",
        "Пересылаемое сообщение", "Отправлено с iPhone", ("Красота!", "А есть ли 42-й размер?", "Спасибо, до субботы.\nБорис"),
        "Дорогая Анна,\nнаша весенняя коллекция уже здесь.", "Вы получили это письмо, потому что вы наш клиент.\nОтписаться: https://leave.example.com/u/Ab3\nУдалите меня из рассылки"),
    "zh": Language(
        "Shop <shop@mail.example.com> 于2026年11月2日周一 10:00写道：", ("发件人", "发送时间", "收件人", "主题"), "原始邮件",
        "转发的邮件", "发自我的iPhone", ("真漂亮！", "有蓝色的吗？", "谢谢，周六见。\n小明"),
        "亲爱的安，\n我们的春季新品到了。", "您收到此邮件是因为您是我们的客户。\n退订：https://leave.example.com/u/Ab3\n取消订阅我们的邮件"),
    "ja": Language(
        "2026年11月2日(月) 10:00 Shop <shop@mail.example.com>:", ("差出人", "送信日時", "宛先", "件名"), "元のメッセージ",
        "転送されたメッセージ", "iPhoneから送信", ("素敵ですね。", "青色はありますか？", "ありがとうございます。土曜日に伺います。\n佐藤"),
        "アン様\n春の新作が届きました。", "このメールはお客様にお送りしています。\n配信停止：https://leave.example.com/u/Ab3\n登録解除はこちら"),
    "sv": Language(
        "Den mån 2 nov. 2026 kl 10:00 skrev Shop <shop@mail.example.com>:", ("Från", "Skickat", "Till", "Ämne"), "Ursprungligt meddelande",
        "Vidarebefordrat meddelande", "Skickat från min iPhone", ("Så fint!", "Finns den i blått?", "Tack, vi ses på lördag.\nBritta"),
        "Hej Ann,\nvår vårkollektion är här.", "Du får det här mejlet eftersom du är kund.\nAvregistrera: https://leave.example.com/u/Ab3\nTa bort mig från listan"),
}  # fmt: skip


class Answer(NamedTuple):
    """name: style, language, number of the first line. apart: not to be looked at."""

    name: str
    message: bytes

    @property
    def apart(self) -> bool:
        return hashlib.sha256(self.name.encode()).digest()[0] < 26


def _marked(text: str, mark: str = "> ") -> str:
    return "\n".join(f"{mark}{line}".rstrip() for line in text.split("\n"))


def _original(tongue: Language) -> str:
    return f"{tongue.letter}\n\nhttps://www.example.com/spring\n\n{tongue.footer}"


def _block(tongue: Language, bold: str = "") -> str:
    sent, when, to, subject = tongue.header
    return "\n".join(
        f"{bold}{name}:{bold} {value}"
        for name, value in (
            (sent, "Shop <shop@mail.example.com>"), (when, "02.11.2026 10:00"), (to, "ann@example.net"), (subject, "Spring"),
        )
    )  # fmt: skip


def _html(text: str) -> str:
    return "<br>\n".join(escape(line) for line in text.split("\n"))


def _mail_html(tongue: Language) -> str:
    """A newsletter's HTML: the footer's links have nothing but words."""
    lines = [line.partition(": http")[0].partition("：http")[0] for line in tongue.footer.split("\n")]
    links = "".join(f'<a href="https://leave.example.com/u/Ab3">{escape(line)}</a><br>' for line in lines)
    return f"<table><tr><td>{_html(tongue.letter)}</td></tr><tr><td>{links}</td></tr></table>"


Style = Callable[[str, Language], tuple[str, str]]
STYLES: dict[str, Style] = {
    "gmail": lambda own, t: ("plain", f"{own}\n\n{t.wrote}\n\n{_marked(_original(t))}\n"),
    "gmail-wrapped": lambda own, t: ("plain", f"{own}\n\n{t.wrote.replace(' <', chr(10) + '<').replace('(<', chr(10) + '(<')}\n\n{_marked(_original(t))}\n"),
    "gmail-html": lambda own, t: ("html", f'<div dir="ltr">{_html(own)}</div><br><div class="gmail_quote gmail_quote_container"><div dir="ltr" class="gmail_attr">{_html(t.wrote)}<br></div><blockquote class="gmail_quote" style="margin:0px 0px 0px 0.8ex;border-left:1px solid rgb(204,204,204);padding-left:1ex">{_mail_html(t)}</blockquote></div>'),
    "outlook-plain": lambda own, t: ("plain", f"{own}\n\n{_block(t)}\n\n{_original(t)}\n"),
    "outlook-bold": lambda own, t: ("plain", f"{own}\n\n{_block(t, '*')}\n\n{_original(t)}\n"),
    "outlook-divider": lambda own, t: ("plain", f"{own}\n\n-----{t.original}-----\n{_block(t)}\n\n{_original(t)}\n"),
    "outlook-rule": lambda own, t: ("plain", f"{own}\n\n________________________________\n{_block(t)}\n\n{_original(t)}\n"),
    "outlook-html": lambda own, t: ("html", f'<html xmlns:o="urn:schemas-microsoft-com:office:office"><body><div class="WordSection1"><p class="MsoNormal">{_html(own)}<o:p></o:p></p><p class="MsoNormal"><o:p>&nbsp;</o:p></p><div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0in 0in 0in"><p class="MsoNormal"><b>{t.header[0]}:</b> {escape(SHOP)} <br><b>{t.header[1]}:</b> 02.11.2026 10:00<br><b>{t.header[2]}:</b> ann@example.net<br><b>{t.header[3]}:</b> Spring<o:p></o:p></p></div>{_mail_html(t)}</div></body></html>'),
    "outlook-web": lambda own, t: ("html", f'<div class="elementToProof">{_html(own)}</div><div id="appendonsend"></div><hr style="display:inline-block;width:98%" tabindex="-1"><div id="divRplyFwdMsg" dir="ltr"><font face="Calibri, sans-serif"><b>{t.header[0]}:</b> {escape(SHOP)}<br></font></div><div>{_mail_html(t)}</div>'),
    "apple": lambda own, t: ("plain", f"{own}\n\n{t.sent_from}\n\n> {t.wrote}\n> \n> {_marked(_original(t)).removeprefix('> ')}\n"),
    "apple-html": lambda own, t: ("html", f'<html><body>{_html(own)}<br><br><div dir="ltr">{_html(t.sent_from)}</div><div dir="ltr"><br><blockquote type="cite">{_html(t.wrote)}<br><br></blockquote></div><blockquote type="cite"><div dir="ltr">{_mail_html(t)}</div></blockquote></body></html>'),
    "thunderbird-html": lambda own, t: ("html", f'<p>{_html(own)}</p><div class="moz-cite-prefix">{_html(t.wrote)}<br></div><blockquote type="cite" cite="mid:m1@mail.example.com">{_mail_html(t)}</blockquote>'),
    "yahoo-html": lambda own, t: ("html", f'<div class="yahoo-style-wrap"><div dir="ltr">{_html(own)}</div></div><div id="yahoo_quoted_7" class="yahoo_quoted"><div>{_html(t.wrote)}</div><div>{_mail_html(t)}</div></div>'),
    "yahoo-plain": lambda own, t: ("plain", f"{own}\n\n    {t.wrote}  \n \n {_marked(_original(t), ' ')}\n"),
    "bottom": lambda own, t: ("plain", f"{t.wrote}\n{_marked(_original(t))}\n\n{own}\n"),
    "inline": lambda own, t: ("plain", f"{t.wrote}\n{_marked(t.letter)}\n\n{own}\n\n{_marked(t.footer)}\n"),
    "forward": lambda own, t: ("plain", f"{own}\n\n---------- {t.forwarded} ---------\n{_block(t)}\n\n\n{_original(t)}\n"),
    "nested": lambda own, t: ("plain", f"{own}\n\n{t.wrote}\n>> {t.wrote}\n{_marked(_original(t), '>>> ')}\n"),
    "bars": lambda own, t: ("plain", f"{own}\n\n{t.wrote}\n{_marked(_original(t), '| ')}\n"),
    "names": lambda own, t: ("plain", f"{own}\n\n{t.wrote}\n{_marked(_original(t), 'SH> ')}\n"),
    "flowed": lambda own, t: ("flowed", f"{own}\n\n{t.wrote.replace(' Shop', chr(32) + chr(10) + 'Shop')}\n> {_original(t).replace(chr(10), chr(32) + chr(10) + '> ')}\n"),
    "rule-only": lambda own, t: ("plain", f"{own}\n\n{'-' * 30}\n{_original(t)}\n"),
    "unquoted": lambda own, t: ("plain", f"{own}\n\n\n{_original(t)}\n"),
    "footer-alone": lambda own, t: ("plain", f"{own}\n\n-- \n{t.footer}\n"),
    "footer-unmarked": lambda own, t: ("plain", f"{own}\n\n{t.footer}\n"),
    "samsung": lambda own, t: ("plain", f"{own}\n\n{t.sent_from}\n\n\n-------- {t.original} --------\n{_block(t)}\n\n{_original(t)}\n"),
    "gmx-html": lambda own, t: ("html", f'<div style="font-family: Verdana">{_html(own)}<div name="quote" style="margin:10px 5px 5px 10px; padding: 10px 0 10px 10px; border-left:2px solid #C3D9E5;"><div style="margin:0 0 10px 0;"><b>{t.header[1]}:</b> 02.11.2026<br><b>{t.header[0]}:</b> {escape(SHOP)}</div><div name="quoted-content">{_mail_html(t)}</div></div></div>'),
    "proton-html": lambda own, t: ("html", f'<div>{_html(own)}</div><div class="protonmail_quote">------- {t.original} -------<br>{_html(t.wrote)}<br><blockquote class="protonmail_quote" type="cite">{_mail_html(t)}</blockquote></div>'),
    "zoho": lambda own, t: ("plain", f"{own}\n\n\n---- {t.wrote.rstrip(':： ')} ----\n\n{_original(t)}\n"),
    "notes": lambda own, t: ("plain", f"{own}\n\n-----{t.wrote.rstrip(':： ')}: -----\n{t.header[2]}: ann@example.net\n{t.header[0]}: {SHOP}\n\n{_original(t)}\n"),
    "html-unmarked": lambda own, t: ("html", f"<p>{_html(own)}</p><p>&nbsp;</p>{_mail_html(t)}"),
    "html-cite-lost": lambda own, t: ("html", f"<div>{_html(own)}</div><br><div>{_html(t.wrote)}</div><div>{_mail_html(t)}</div>"),
    "attached": lambda own, t: ("attached", f"{own}\n\0{_original(t)}"),
}  # fmt: skip


def message(own: str, style: str, language: str, head: str = "") -> bytes:
    """head: further fields."""
    tongue = LANGUAGES[language]
    kind, body = STYLES[style](own, tongue)
    fields = f"From: Bob <bob@example.net>\nTo: news-7f3a@mail.example.com\nSubject: {Header('Re: ' + tongue.letter.split(chr(10))[1], 'utf-8').encode()}\nReturn-Path: <bob@example.net>\nMIME-Version: 1.0\n{head}"
    if kind == "attached":
        own, original = body.split("\0")
        enclosed = (
            f"From: {SHOP}\nTo: ann@example.net\nSubject: Spring\nContent-Type: text/plain; charset=utf-8\n\n{original}"
        )
        body = f"--b\nContent-Type: text/plain; charset=utf-8\n\n{own}\n--b\nContent-Type: message/rfc822\n\n{enclosed}\n--b--\n"
        return f'{fields}Content-Type: multipart/mixed; boundary="b"\n\n{body}'.encode()
    if kind == "html" and len(own) % 2:  # with a plain part that the program has made of it, or alone
        plain = f"{own}\n\n{tongue.wrote}\n\n{_marked(_original(tongue))}\n"
        parts = f"--b\nContent-Type: text/plain; charset=utf-8\n\n{plain}\n--b\nContent-Type: text/html; charset=utf-8\n\n{body}\n--b--\n"
        return f'{fields}Content-Type: multipart/alternative; boundary="b"\n\n{parts}'.encode()
    content = "text/plain; charset=utf-8; format=flowed" if kind == "flowed" else f"text/{kind}; charset=utf-8"
    return f"{fields}Content-Type: {content}\nContent-Transfer-Encoding: 8bit\n\n{body}".encode()


def answers() -> Iterator[Answer]:
    """One of the first lines in every style and language."""
    for place, style in enumerate(STYLES):
        for at, (code, tongue) in enumerate(LANGUAGES.items()):
            number = (place + at) % len(tongue.firsts)
            yield Answer(f"{style}-{code}-{number}", message(tongue.firsts[number], style, code))
