"""What the reports of `written.py` say, and how it is to be read."""

# ruff: noqa: E501 - a text is a line
from __future__ import annotations

from typing import NamedTuple

from tests.mail.feedback.measure import Row

DAEMON = "Mail Delivery System <MAILER-DAEMON@mx.example.net>"


class Text(NamedTuple):
    name: str
    subject: str
    body: str
    rows: list[Row]
    sender: str = DAEMON
    charset: str = "us-ascii"
    fields: str = ""
    report: str = ""
    encloses: bool = True


def _failed(
    name: str, subject: str, body: str, hardness: str, reasons: str, charset: str = "us-ascii", **more: str
) -> Text:
    who = more.pop("who", "ann@example.net")
    row = Row(more.pop("kind", "bounce"), who, hardness, reasons)
    return Text(name, subject, body.replace("{to}", who), [row], charset=charset, **more)  # type: ignore[arg-type]


def _away(
    name: str, subject: str, body: str, charset: str = "us-ascii", fields: str = "", kind: str = "auto-reply"
) -> Text:
    return Text(
        name, subject, body, [Row(kind, "bob@example.net", "", "")], "Bob <bob@example.net>", charset, fields, "", False
    )


FAILURES = [
    _failed("qmail-unknown", "failure notice", "Hi. This is the qmail-send program at mx.example.net.\nI tried, and could not deliver.\n\n<{to}>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 5.1.1 Nobody lives at this address\nGiving up on 192.0.2.7.\n", "hard", "user-unknown|undefined"),
    _failed("qmail-full", "failure notice", "Hi. This is the qmail-send program at mx.example.net.\n\n<{to}>:\nThe user's mailbox is over quota, the letter was not stored. (#4.2.2)\nI'm not going to try again; this message has been in the queue too long.\n", "soft", "mailbox-full"),
    _failed("exim-unknown", "Mail delivery failed: returning message to sender", "This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  {to}\n    host mx.example.net [192.0.2.9]\n    SMTP error from remote mail server after RCPT TO:<{to}>:\n    550-5.1.1 This mailbox\n    550 5.1.1 does not exist here\n", "hard", "user-unknown", fields="X-Failed-Recipients: ann@example.net\nAuto-Submitted: auto-replied\n"),
    _failed("exim-timeout", "Mail delivery failed: returning message to sender", "This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  {to}\n    host mx.example.net [192.0.2.9]\n    Connection timed out: retry timeout exceeded\n", "soft", "expired|network"),
    _failed("exim-delay", "Warning: message 1abc delayed 24 hours", "This message was created automatically by mail delivery software.\nA message that you sent has not yet been delivered to one or more of its\nrecipients after more than 24 hours on the queue on mx.example.net.\n\nThe address to which the message has not yet been delivered is:\n\n  {to}\n    host mx.example.net [192.0.2.9]: 451 4.7.1 Greylisted, come back in 5 minutes\n\nNo action is required on your part. Delivery attempts will continue.\n", "soft", "greylisting|rate", kind="delay"),
    _failed("postfix-full", "Undelivered Mail Returned to Sender", "This is the mail system at host mx.example.net.\n\nYour message could not be delivered, which is a pity.\n\n<{to}>: host lmtp.example.net[192.0.2.3] said: 552 5.2.2 <{to}>\n    Quota exceeded (mailbox for user is full) (in reply to end of DATA command)\n", "hard", "mailbox-full"),
    _failed("postfix-nohost", "Undelivered Mail Returned to Sender", "This is the mail system at host mx.example.net.\n\n<{to}>: Host or domain name not found. Name service error for\n    name=example.net type=AAAA: Host not found\n", "hard", "host-unknown"),
    _failed("sendmail-unknown", "Returned mail: see transcript for details", "The original message was received at Mon, 2 Nov 2026 10:00:00 GMT\nfrom out.example.com [192.0.2.1]\n\n   ----- The following addresses had permanent fatal errors -----\n<{to}>\n    (reason: 550 5.1.1 <{to}>... User unknown)\n\n   ----- Transcript of session follows -----\n... while talking to mx.example.net.:\n>>> RCPT To:<{to}>\n<<< 550 5.1.1 <{to}>... User unknown\n550 5.1.1 <{to}>... User unknown\n", "hard", "user-unknown"),
    _failed("exchange-unknown", "Undeliverable: Spring", "Delivery has failed to these recipients or groups:\n\n{to}<mailto:{to}>\nThe address was looked for everywhere, and is nowhere.\n\nDiagnostic information for administrators:\n\nGenerating server: EX01.example.net\n\n{to}\nRemote Server returned '550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup'\n", "hard", "user-unknown", sender="postmaster@example.net"),
    _failed("exchange-full", "Undeliverable: Spring", "Your message to {to} couldn't be delivered.\n\nann's mailbox is full and can't accept messages now.\n\n{to}\nRemote Server returned '554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:QuotaExceededException.MapiExceptionShutoffQuotaExceeded'\n", "hard", "mailbox-full", sender="Microsoft Outlook <MicrosoftExchange329e@example.net>"),
    _failed("domino", "DELIVERY FAILURE: User Ann Lee (ann@example.net) not listed in Domino Directory", "Your message\n\n  Subject: Spring\n\nwas not delivered to:\n\n  {to}\n\nbecause:\n\n  User Ann Lee (ann@example.net) not listed in Domino Directory\n", "hard", "user-unknown", sender="postmaster@example.net"),
    _failed("google-unknown", "Delivery Status Notification (Failure)", "** Address not found **\n\nYour message wasn't delivered to {to} because the address couldn't be found, or is unable to receive mail.\n\nThe response from the remote server was:\n550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking - gsmtp\n", "hard", "user-unknown", sender="Mail Delivery Subsystem <mailer-daemon@googlemail.com>", fields="X-Failed-Recipients: ann@example.net\n"),
    _failed("google-delay", "Delivery Status Notification (Delay)", "** Delivery incomplete **\n\nThere was a temporary problem delivering your message to {to}. Gmail will retry for 46 more hours.\n\nThe response was:\nThe recipient server did not accept our requests to connect.\n", "soft", "network|expired", kind="delay", sender="Mail Delivery Subsystem <mailer-daemon@googlemail.com>"),
    _failed("yahoo", "Failure Notice", "Sorry, we were unable to deliver your message to the following address.\n\n<{to}>:\n552: 5.2.2 This mailbox is over its quota\n", "hard", "mailbox-full", sender="MAILER-DAEMON@yahoo.com"),
    _failed("zimbra", "Undelivered Mail Returned to Sender", "This is the mail system at host zimbra.example.net.\n\n<{to}>: delivery temporarily suspended: connect to\n    mx.example.net[192.0.2.3]:7025: Connection refused\n", "soft", "network"),
    _failed("opensmtpd", "Delivery status notification: error", "    Hi!\n\n    This is the MAILER-DAEMON, please DO NOT REPLY to this email.\n\n    An error has occurred while attempting to deliver a message for\n    the following list of recipients:\n\n{to}: 550 Invalid recipient\n", "hard", "user-unknown", sender="Mailer Daemon <MAILER-DAEMON@mx.example.net>"),
    _failed("dma", "Mail delivery failed", "This is the DragonFly Mail Agent v0.13 at mx.example.net.\n\nThere was an error delivering your mail to <{to}>.\n\nmx.example.net [192.0.2.4] did not like our RCPT TO:\n554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org\n", "hard", "blocked-ip"),
    _failed("groupwise", "Message status - undeliverable", "The message that you sent was undeliverable to the following:\n\t{to} (user not found)\n", "hard", "user-unknown", sender="Mailer-Daemon@example.net"),
    _failed("mdaemon", "Permanent Delivery Failure", "---------------------------------------------------\nThe attached message had PERMANENT fatal delivery errors!\n\nAfter one or more unsuccessful delivery attempts the attached message has\nbeen removed from the mail queue on this server.\n\nFailed address: {to}\n\n--- Session Transcript ---\n RCPT To:<{to}>\n 550 <{to}>, Recipient unknown\n", "hard", "user-unknown", sender="MDaemon@example.net"),
    _failed("gateway-virus", "Undeliverable mail: rejected by policy", "The gateway at gw.example.net has refused to pass on your letter.\n\nRecipient: <{to}>\nReason: 554 5.7.0 Message rejected, an infected attachment was found (virus: Eicar)\n", "hard", "virus", sender="postmaster@gw.example.net"),
    _failed("gateway-spam", "Mail could not be delivered", "Your letter to {to} was classified as spam, and rejected with\n\n550 5.7.1 This message looks like spam\n", "hard", "spam-content", sender="Mail Administrator <mailadmin@gw.example.net>"),
    _failed("lda-full", "Returned mail: delivery problems encountered", "A message (from <news-7f3a@mail.example.com>) was received at 2 Nov 2026.\nThe following addresses had delivery problems:\n<{to}>\n\tPersistent Transient Failure: Mailbox full, no room for new messages\n", "soft", "mailbox-full"),
    _failed("expired", "Delivery failure", "We tried for five days to reach the server of this recipient, in vain:\n\n{to}\n  no answer from host; the message has expired\n", "soft", "expired|network"),
    _failed("loop", "Undeliverable mail", "The message for {to} was returned:\n554 5.4.6 Too many hops, mail loop\n", "hard", "network|syntax"),
    _failed("sender-refused", "failure notice", "Hi. This is the qmail-send program at mx.example.net.\n\n<{to}>:\nConnected to 192.0.2.7 but sender was rejected.\nRemote host said: 550 5.1.8 Unknown domain of sender\n", "hard", "policy|authentication"),
    Text("qmail-two", "failure notice", "Hi. This is the qmail-send program at mx.example.net.\nI could not deliver.\n\n<ann@example.net>:\nRemote host said: 550 5.1.1 unknown user\nGiving up on 192.0.2.7.\n\n<bea@example.net>:\nRemote host said: 452 4.2.2 mailbox full\nGiving up on 192.0.2.7.\nI'm not going to try again; this message has been in the queue too long.\n", [Row("bounce", "ann@example.net", "hard", "user-unknown"), Row("bounce", "bea@example.net", "soft", "mailbox-full")]),
    Text("exim-two", "Mail delivery failed: returning message to sender", "A message that you sent could not be delivered to all of its recipients:\n\n  ann@example.net\n    all relevant MX records point to non-existent hosts\n  bea@example.net\n    SMTP error from remote mail server after RCPT TO:<bea@example.net>:\n    host mx.example.net [192.0.2.9]: 550 5.2.1 This account has been disabled\n", [Row("bounce", "ann@example.net", "hard", "host-unknown"), Row("bounce", "bea@example.net", "hard", "suspended|inactive")]),
    _failed("german", "Unzustellbar: Frühling", "Ihre Nachricht konnte nicht zugestellt werden.\n\nEmpfänger: {to}\nGrund: 550 5.1.1 Empfänger unbekannt, Benutzer existiert nicht\n", "hard", "user-unknown", "iso-8859-1", sender="Postmaster <postmaster@example.net>"),
    _failed("german-full", "Unzustellbare Nachricht", "Die Zustellung an folgende Adresse ist fehlgeschlagen:\n\n{to}\n\nDas Postfach des Empfängers ist voll.\n", "soft", "mailbox-full", "windows-1252"),
    _failed("french", "Échec de remise : Printemps", "Votre message n'a pas pu être remis au destinataire suivant :\n\n<{to}>\n550 5.1.1 Adresse inconnue, utilisateur inexistant\n", "hard", "user-unknown", "utf-8", sender="postmaster@example.net"),
    _failed("spanish", "No se pudo entregar: Primavera", "Su mensaje no ha podido ser entregado a:\n\n{to}\n\nEl servidor respondió: 550 5.1.1 El usuario no existe\n", "hard", "user-unknown", "utf-8", sender="postmaster@example.net"),
    _failed("portuguese", "Mensagem não entregue", "Não foi possível entregar a sua mensagem para {to}.\n\nMotivo: 552 5.2.2 Caixa postal cheia\n", "hard", "mailbox-full", "iso-8859-15"),
    _failed("italian", "Mancato recapito: Primavera", "Il messaggio non è stato recapitato al seguente destinatario:\n\n{to}\n550 5.1.1 Utente sconosciuto\n", "hard", "user-unknown", "utf-8"),
    _failed("russian", "Недоставленное сообщение", "Ваше письмо не может быть доставлено получателю:\n\n<{to}>\n550 5.1.1 Пользователь не найден\n", "hard", "user-unknown", "koi8-r"),
    _failed("russian-full", "Письмо не доставлено", "Ошибка доставки сообщения для {to}:\n\nПочтовый ящик переполнен.\n", "soft", "mailbox-full", "windows-1251"),
    _failed("polish", "Niedostarczona poczta", "Nie można dostarczyć wiadomości do odbiorcy:\n\n{to}\n550 5.1.1 Nieznany użytkownik\n", "hard", "user-unknown", "iso-8859-2"),
    _failed("czech", "Nedoručitelná zpráva", "Vaši zprávu nebylo možné doručit příjemci:\n\n<{to}>: 550 5.1.1 Uživatel neexistuje\n", "hard", "user-unknown|undefined", "iso-8859-2"),
    _failed("turkish", "İletiniz teslim edilemedi", "İletiniz şu alıcıya teslim edilemedi:\n\n{to}\n550 5.1.1 Kullanıcı bulunamadı\n", "hard", "user-unknown", "iso-8859-9"),
    _failed("dutch", "Onbestelbaar: Lente", "Uw bericht kon niet worden bezorgd bij:\n\n{to}\n550 5.1.1 Gebruiker onbekend\n", "hard", "user-unknown", "utf-8"),
    _failed("japanese", "配信不能通知", "次の宛先へメールを配信できませんでした。\n\n{to}\n\n550 5.1.1 User unknown\n", "hard", "user-unknown", "iso-2022-jp"),
    _failed("japanese-full", "メール送信エラー", "以下の宛先に送信できませんでした。\n<{to}>\nメールボックスが一杯です。\n", "soft", "mailbox-full", "shift_jis", sender="Postmaster@ezmail.example.net"),
    _failed("chinese", "退信通知", "您的邮件无法投递到以下收件人：\n\n{to}\n550 5.1.1 用户不存在\n", "hard", "user-unknown", "gb2312"),
    _failed("chinese-full", "系统退信", "很抱歉，您的邮件被退回：\n收件人 {to}\n原因：收件人邮箱已满\n", "soft", "mailbox-full", "gb18030"),
    _failed("korean", "메일 발송 실패", "다음 수신자에게 메일을 전달할 수 없습니다.\n\n{to}\n550 5.1.1 User unknown\n", "hard", "user-unknown", "euc-kr"),
    _failed("arabic", "فشل تسليم الرسالة", "لم يتم تسليم رسالتك إلى:\n\n{to}\n\n550 5.1.1 User unknown\n", "hard", "user-unknown", "windows-1256"),
    _failed("swedish", "Kunde inte levereras: Vår", "Ditt meddelande kunde inte levereras till\n\n{to}\n\n550 5.1.1 Mottagaren finns inte\n", "hard", "user-unknown", "utf-8"),
]  # fmt: skip


def _group(recipient: str, action: str, status: str, diagnostic: str, more: str = "") -> str:
    return f"Final-Recipient: rfc822; {recipient}\nAction: {action}\nStatus: {status}\n{more}Diagnostic-Code: {diagnostic}\n"


STATUSES = [
    Text("status-one", "Undeliverable", "Reporting-MTA: dns; mx.example.net\n\n" + _group("ann@example.net", "failed", "5.1.1", "smtp; 550 5.1.1 no such user"), [Row("bounce", "ann@example.net", "hard", "user-unknown")]),
    Text("status-generic", "Undeliverable", "Reporting-MTA: dns; mx.example.net\n\n" + _group("ann@example.net", "failed", "5.0.0", "smtp; 550-Mail refused: 5.2.2\n 550 the mailbox is full"), [Row("bounce", "ann@example.net", "hard", "mailbox-full")]),
    Text("status-two", "Undeliverable", "Reporting-MTA: dns; mx.example.net\n\n" + _group("ann@example.net", "failed", "5.4.4", "X-Postfix; Host not found") + "\n" + _group("bea@example.net", "delayed", "4.4.1", "smtp; 421 4.4.1 connection timed out"), [Row("bounce", "ann@example.net", "hard", "host-unknown"), Row("delay", "bea@example.net", "soft", "network")]),
    Text("status-delivered", "Delivered", "Reporting-MTA: dns; mx.example.net\n\n" + _group("ann@example.net", "relayed", "2.0.0", "smtp; 250 2.0.0 Ok"), [Row("delivered", "ann@example.net", "", "")]),
    Text("status-expired", "Undeliverable", "Reporting-MTA: dns; mx.example.net\n\n" + _group("ann@example.net", "failed", "4.4.7", "smtp; 550 4.4.7 QUEUE.Expired; message expired"), [Row("bounce", "ann@example.net", "soft", "expired")]),
    Text("status-remote", "Undeliverable", "reporting-mta: DNS;MX.EXAMPLE.NET\n\noriginal-recipient: rfc822;ann@example.net\nfinal-recipient: RFC822;ann@inner.example.net\naction: Failed (permanently)\nstatus: 5.1.1 (bad destination mailbox)\nremote-mta: dns;in.example.net\n", [Row("bounce", "ann@example.net", "hard", "user-unknown")]),
    Text("status-wide", "Undeliverable", "Reporting-MTA: dns; mx.example.net\n\nFinal-Recipient: utf-8; änn@exämple.net\nAction: failed\nStatus: 5.6.7\nDiagnostic-Code: smtp; 553 5.6.7 SMTPUTF8 is required\n", [Row("bounce", "änn@exämple.net", "hard", "protocol|syntax")]),
]  # fmt: skip


def _report(kind: str, more: str = "") -> str:
    return f"Feedback-Type: {kind}\nUser-Agent: Loop/1\nVersion: 1\nSource-IP: 192.0.2.1\nReported-Domain: mail.example.com\n{more}"


def _complaint(name: str, kind: str, who: str, report: str, subject: str = "Abuse report") -> Text:
    return Text(
        name,
        subject,
        "A reader has complained about this message.",
        [Row(kind, who, "", "")],
        "feedback@isp.example.net",
        report=report,
    )


COMPLAINTS = [
    _complaint("arf-abuse", "complaint", "ann@example.net", _report("abuse", "Original-Rcpt-To: <ann@example.net>\n")),
    _complaint("arf-redacted", "complaint", "", _report("abuse", "Original-Rcpt-To: redacted@example.net\n")),
    _complaint("arf-fraud", "complaint", "ann@example.net", _report("fraud", "Original-Rcpt-To: ann@example.net\n")),
    _complaint("arf-opt-out", "complaint", "ann@example.net", _report("opt-out", "Removal-Recipient: ann@example.net\n")),
    _complaint("arf-not-spam", "other", "ann@example.net", _report("not-spam", "Original-Rcpt-To: ann@example.net\n")),
    _complaint("arf-authentication", "other", "ann@example.net", _report("auth-failure", "Original-Rcpt-To: ann@example.net\nAuth-Failure: dmarc\n")),
    _complaint("arf-two", "complaint", "ann@example.net", _report("abuse", "Original-Rcpt-To: ann@example.net\n"), "Fw: Spring"),
    Text("forwarded-complaint", "complaint about message from 192.0.2.1", "", [Row("complaint", "ann@example.net", "", "")], "staff@hotmail.com"),
    Text("spam-report", "Spam report from a reader", "A customer of ours pressed the button.", [Row("complaint", "ann@example.net", "", "")], "abuse@isp.example.net"),
]  # fmt: skip

AUTO = "Auto-Submitted: auto-replied\n"
ANSWERS = [
    _away("away-english", "Out of Office: Spring", "I am on annual leave until Monday and read no mail."),
    _away("away-english-plain", "Re: Spring", "Thank you for your message. I am currently out of the office with limited access to email.", fields=AUTO),
    _away("away-header", "Spring", "Back on Monday.", fields="X-Autoreply: yes\n"),
    _away("away-precedence", "Spring", "See you soon.", fields="Precedence: auto_reply\n"),
    _away("left-company", "Automatic reply: Spring", "Bob no longer works here; this mailbox does not exist any more. User unknown, so to speak."),
    _away("away-550", "Automatic reply: Undeliverable newsletters", "I cannot read mail. Error 550 5.1.1 is what my boss says when I am away.", fields=AUTO),
    _away("ticket", "[Ticket #4711] We have received your request", "Your ticket has been created. An agent will answer.", fields="Auto-Submitted: auto-generated\n"),
    _away("away-german", "Abwesenheitsnotiz: Frühling", "Ich bin bis Montag nicht im Büro. In dringenden Fällen hilft die Zentrale.", "iso-8859-1"),
    _away("away-german-2", "Automatische Antwort: Frühling", "Vielen Dank für Ihre Nachricht, ich bin im Urlaub.", "utf-8", AUTO),
    _away("away-french", "Réponse automatique : Printemps", "Je suis absent du bureau jusqu'à lundi.", "iso-8859-1"),
    _away("away-spanish", "Respuesta automática: Primavera", "Estoy fuera de la oficina, de vacaciones.", "utf-8"),
    _away("away-portuguese", "Resposta automática: Primavera", "Estou de férias até segunda-feira.", "utf-8"),
    _away("away-italian", "Risposta automatica: Primavera", "Sono assente fino a lunedì.", "utf-8"),
    _away("away-dutch", "Automatisch antwoord: Lente", "Ik ben afwezig tot maandag.", "utf-8"),
    _away("away-polish", "Odpowiedź automatyczna: Wiosna", "Jestem nieobecny, na urlopie.", "iso-8859-2"),
    _away("away-russian", "Автоответ: Весна", "Я в отпуске до понедельника.", "koi8-r"),
    _away("away-ukrainian", "Автоматична відповідь: Весна", "Я у відпустці.", "utf-8"),
    _away("away-czech", "Automatická odpověď: Jaro", "Jsem mimo kancelář, na dovolené.", "iso-8859-2"),
    _away("away-turkish", "Otomatik yanıt: Bahar", "Ofis dışındayım, izindeyim.", "iso-8859-9"),
    _away("away-swedish", "Autosvar: Vår", "Jag är på semester.", "utf-8"),
    _away("away-danish", "Automatisk svar: Forår", "Jeg er på ferie.", "utf-8"),
    _away("away-finnish", "Automaattinen vastaus: Kevät", "Olen lomalla.", "utf-8"),
    _away("away-hungarian", "Automatikus válasz: Tavasz", "Szabadságon vagyok.", "utf-8"),
    _away("away-greek", "Αυτόματη απάντηση: Άνοιξη", "Λείπω σε άδεια.", "iso-8859-7"),
    _away("away-japanese", "自動返信: 春", "ただいま不在にしております。", "iso-2022-jp"),
    _away("away-chinese", "自动回复: 春天", "您好，我正在休假中。", "gb2312"),
    _away("away-taiwan", "自動回覆: 春天", "我不在辦公室。", "big5"),
    _away("away-korean", "자동 회신: 봄", "휴가 중입니다.", "euc-kr"),
    _away("away-arabic", "رد تلقائي: الربيع", "أنا خارج المكتب.", "windows-1256"),
    _away("away-hebrew", "תשובה אוטומטית: אביב", "איני במשרד.", "windows-1255"),
    _away("challenge", "Please confirm your message to bob@example.net", "I only take mail from approved senders. Click to prove you are human.", kind="challenge"),
    _away("challenge-2", "Re: Spring", "Your message is being held until you verify that you are a real person. One-time verification: reply.", kind="challenge"),
    _away("list", "Your message to talk awaits moderator approval", "Is being held until the list moderator can review it."),
]  # fmt: skip


def _leaves(name: str, subject: str, body: str, charset: str = "us-ascii") -> Text:
    return Text(
        name,
        subject,
        body,
        [Row("unsubscribe", "bob@example.net", "", "")],
        "Bob <bob@example.net>",
        charset,
        "",
        "",
        False,
    )


UNSUBSCRIBES = [
    _leaves("unsubscribe", "unsubscribe", ""),
    _leaves("unsubscribe-body", "Spring", "UNSUBSCRIBE\n\n-- \nBob"),
    _leaves("unsubscribe-german", "Abmelden", "bitte"),
    _leaves("unsubscribe-french", "désabonnement", "", "utf-8"),
    _leaves("unsubscribe-japanese", "配信停止", "", "iso-2022-jp"),
]
