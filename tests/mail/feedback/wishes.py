"""Mails of people who want to leave a list, in plain words of 24 languages; and mails that only sound so.

Each line: language, subject ("=" an answer's, that repeats ours), body ("-" none). `apart` as of `quoting`.
"""

# ruff: noqa: E501 - a text is a line, in its own letters
from __future__ import annotations

import hashlib
from email.header import Header
from typing import NamedTuple

ECHOED = "Re: Our spring collection: unsubscribe from winter!"


class Said(NamedTuple):
    language: str
    subject: str
    body: str
    of_others: bool = False
    """Written without a look at how it is read."""

    @property
    def apart(self) -> bool:
        return self.of_others or hashlib.sha256(f"{self.subject}\n{self.body}".encode()).digest()[0] < 26

    def message(self, fields: str = "") -> bytes:
        subject = Header(ECHOED if self.subject == "=" else self.subject, "utf-8").encode()
        return (
            f"From: Bob <bob@example.net>\nTo: news-7f3a@mail.example.com\nSubject: {subject}\nReturn-Path: <bob@example.net>\n"
            f"MIME-Version: 1.0\n{fields}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{self.body}\n"
        ).encode()


def _read(text: str, of_others: bool = False) -> list[Said]:
    rows = (line.split(" | ") for line in text.strip().split("\n"))
    return [Said(language, subject.strip(), _body(body), of_others) for language, subject, body in rows]


def _body(text: str) -> str:
    body = "" if text == "-" else text.replace("\\n", "\n").strip()
    for language, quote in QUOTES.items():
        body = body.replace(f" <{language}>", quote)
    return body


QUOTES = {
    "en": "\n\nOn Tue, 3 Nov 2026 at 09:12, Bloom & Co <news@bloom.example> wrote:\n> Autumn bulbs are here!\n> 20 % off until Sunday.\n>\n> You get this because you signed up. Unsubscribe: https://bloom.example/u/1",
    "de": "\n\nAm 03.11.2026 um 09:12 schrieb Bloom & Co:\n> Herbstzwiebeln sind da!\n> 20 % Rabatt bis Sonntag.\n>\n> Newsletter abbestellen: https://bloom.example/u/1",
    "fr": "\n\nLe mar. 3 nov. 2026 à 09:12, Bloom & Co <news@bloom.example> a écrit :\n> Les bulbes d'automne sont là !\n> -20 % jusqu'à dimanche.\n>\n> Se désabonner : https://bloom.example/u/1",
    "es": "\n\nEl mar, 3 nov 2026 a las 9:12, Bloom & Co (<news@bloom.example>) escribió:\n> ¡Ya están los bulbos de otoño!\n>\n> Darse de baja: https://bloom.example/u/1",
}
"""What stands below an answer."""


WISHES = _read(
    """
en | = | unsub pls
en | REMOVE | -
en | = | REMOVE
en | = | Unsubscribe please.
en | = | stop
en | = | Stop sending me emails!
en | = | Please remove me from your mailing list.
en | = | Hi,\\n\\nplease take me off your list, thanks.\\n\\nBob
en | = | Hello Shop team,\\ncould you please remove bob@example.net from your distribution list?\\nKind regards\\nBob Miller
en | = | I don't want to receive these emails any more.
en | = | I no longer wish to receive your newsletter.
en | = | no more emails please
en | = | Take me off this list NOW
en | unsubscribe me | -
en | Unsubscribe request | Please.
en | = | Please cancel my subscription.
en | = | opt out
en | = | Kindly delete my email address from your database.
en | = | I have asked three times now. Remove me.
en | = | Get me off this mailing list.
en | = | Not interested, please stop emailing me.
en | = | I never signed up for this. Unsubscribe me at once.
en | = | please unsubcribe me
en | = | unsubscribe bob@example.net
en | = | We changed jobs and don't need these any more. Please drop us from the list.\\n\\nSent from my iPhone
de | = | Bitte austragen
de | Abmeldung Newsletter | -
de | = | Ich möchte keine Mails mehr von Ihnen bekommen.
de | = | Bitte nehmen Sie mich aus dem Verteiler.\\n\\nMit freundlichen Grüßen\\nBernd Beispiel
de | = | Newsletter abbestellen
de | = | Guten Tag,\\nhiermit kündige ich den Newsletter.\\nGruß, B.
de | = | Löschen Sie bitte meine E-Mail-Adresse.
de | = | abmelden bitte
de | = | Ich will das nicht mehr!
de | = | Bitte keine weiteren Newsletter.
de | = | Bitte streichen Sie mich von der Liste.
fr | = | désinscription svp
fr | Désabonnement | -
fr | = | Bonjour, merci de me retirer de votre liste de diffusion.
fr | = | Je ne souhaite plus recevoir vos mails.
fr | = | Veuillez supprimer mon adresse de vos fichiers. Cordialement
fr | = | STOP
fr | = | Me désabonner svp, merci
fr | = | Je ne veux plus de vos newsletters !
fr | = | Enlevez-moi de cette liste
fr | = | Bonjour,\\nje voudrais me désinscrire de la newsletter.\\nBien à vous\\nBernard
fr | = | Arrêtez de m'envoyer des e-mails.
es | = | Darme de baja
es | Baja | -
es | = | Por favor, denme de baja de su lista de correo.
es | = | No quiero recibir más correos.
es | = | Hola, quisiera darme de baja del boletín. Gracias.
es | = | Quítenme de la lista
es | = | Eliminen mi correo de su base de datos, por favor.
es | = | Dejen de enviarme publicidad.
es | = | Borrarme de la lista
es | = | Cancelar suscripción
es | = | No me manden más mails
pt | = | Quero cancelar a minha inscrição.
pt | = | Por favor, retirem o meu e-mail da vossa lista.
pt | = | Não quero mais receber estes e-mails.
pt | = | Remover
pt | = | Favor descadastrar meu e-mail
pt | = | Gostaria de deixar de receber a newsletter. Obrigado.
pt | = | Parem de me enviar e-mails!
pt | = | me tira dessa lista
pt | Cancelamento | Cancelem a minha subscrição, por favor.
it | = | Cancellatemi
it | = | Vi prego di cancellarmi dalla vostra mailing list.
it | = | Non desidero più ricevere le vostre e-mail.
it | = | Buongiorno, vorrei disiscrivermi dalla newsletter. Grazie
it | = | Rimuovete il mio indirizzo per favore
it | = | disiscrizione
it | = | Basta email!
it | = | Toglietemi dalla lista
it | = | Smettetela di mandarmi pubblicità
nl | = | uitschrijven aub
nl | = | Graag uitschrijven voor de nieuwsbrief.
nl | = | Ik wil geen mails meer ontvangen.
nl | = | Haal mij van de lijst af
nl | = | Verwijder mijn e-mailadres alstublieft.
nl | Afmelden | -
nl | = | Kunt u mij uit uw bestand halen? Dank u.
pl | = | Wypiszcie mnie
pl | = | Proszę o usunięcie mnie z listy mailingowej.
pl | = | Nie chcę już dostawać tych maili.
pl | = | rezygnuję z newslettera
pl | = | Proszę przestać wysyłać mi wiadomości.
pl | = | Proszę usunąć mój adres z bazy
ru | = | Отпишите меня
ru | = | Прошу удалить мой адрес из рассылки.
ru | = | Не присылайте мне больше писем!
ru | = | Хочу отписаться
ru | = | Больше не хочу получать вашу рассылку, спасибо.
ru | = | Уберите меня из списка
ru | = | отписка
ru | = | Здравствуйте, как мне отказаться от рассылки? Мне это не нужно.
uk | = | Відпишіть мене, будь ласка
uk | = | Не хочу більше отримувати ваші листи.
uk | = | Видаліть мою адресу з розсилки
cs | = | Prosím odhlásit
cs | = | Nechci už dostávat vaše e-maily.
cs | = | Vyřaďte mě ze seznamu
cs | = | Prosím o zrušení odběru novinek.
sv | = | Avregistrera mig
sv | = | Ta bort mig från listan tack
sv | = | Jag vill inte ha fler mejl.
sv | = | Sluta skicka mejl till mig!
da | = | Afmeld mig venligst
da | = | Jeg ønsker ikke at modtage flere mails.
da | = | Slet mig fra listen
no | = | Meld meg av nyhetsbrevet
no | = | Jeg vil ikke ha flere e-poster fra dere.
fi | = | Poistakaa minut listalta
fi | = | En halua enää näitä viestejä.
fi | = | Peruutan uutiskirjeen tilauksen
tr | = | Beni listeden çıkarın
tr | = | Artık e-posta almak istemiyorum.
tr | = | Aboneliğimi iptal edin lütfen
tr | = | Lütfen bana mail atmayın
zh | = | 退订
zh | = | 请把我从邮件列表中删除。
zh | = | 我不想再收到你们的邮件了
zh | = | 请不要再给我发邮件
zh | = | 取消订阅，谢谢
zh | = | TD
zh | = | 別再寄信給我了
zh | = | 麻烦帮我退订一下
ja | = | 配信停止をお願いします。
ja | = | メールの配信を止めてください
ja | = | 今後メールは不要です。
ja | = | 登録を解除してください。
ja | = | 購読を解除したいです
ja | = | もうメールを送らないでください
ko | = | 수신거부
ko | = | 메일 그만 보내세요
ko | = | 구독 취소해 주세요
ko | = | 더 이상 메일을 받고 싶지 않습니다.
hu | = | Kérem, töröljenek a listáról
hu | = | Leiratkozom
hu | = | Nem szeretnék több hírlevelet kapni.
ro | = | Vă rog să mă dezabonați
ro | = | Nu mai vreau să primesc emailuri.
ro | = | Ștergeți-mă din listă
el | = | Διαγράψτε με από τη λίστα
el | = | Δεν θέλω να λαμβάνω άλλα email
ar | = | إلغاء الاشتراك
ar | = | لا أريد استلام المزيد من الرسائل
ar | = | أرجو إزالة بريدي من القائمة
he | = | הסירו אותי מרשימת התפוצה
he | = | לא מעוניין לקבל מיילים
he | = | הסר
vi | = | Vui lòng hủy đăng ký cho tôi
id | = | Tolong hapus saya dari daftar ini
en | = | Pls unsubscribe this email
en | = | Please stop all communication
en | = | I would like to be removed from this mailing
en | = | Can you take me off of this?
en | = | Remove this address please
en | = | cancel newsletter
en | = | Thanks but no thanks, please unsubscribe
de | = | Bitte tragt mich aus
de | = | Keine Werbung mehr bitte!
de | = | Ich möchte den Newsletter nicht mehr erhalten.
de | = | Bitte löschen Sie mich aus Ihrer Datenbank
de | = | Bestellen Sie mich ab.
fr | = | Merci de ne plus m'envoyer de mails
fr | = | Je souhaite me désabonner de votre newsletter
fr | = | Supprimez-moi de votre base de données
fr | = | Plus de mails svp
es | = | Bórrenme de su base de datos
es | = | No quiero más publicidad
es | = | Quiero cancelar mi suscripción
pt | = | Não quero mais receber nada
pt | = | Por favor parem de enviar emails
pt | = | Tirem-me da lista
it | = | Non voglio più ricevere niente da voi
it | = | Cancellate la mia iscrizione
it | = | Per favore non mandatemi più email
nl | = | Stuur mij geen mails meer
nl | = | Graag afmelden
nl | = | Schrijf mij uit
pl | = | Proszę nie wysyłać mi więcej maili
pl | = | Nie życzę sobie tych wiadomości
ru | = | Прекратите присылать мне спам
ru | = | Удалите мою почту
ru | = | Отключите рассылку
uk | = | Приберіть мене зі списку розсилки
cs | = | Odhlaste mě
cs | = | Neposílejte mi už maily
sv | = | Jag vill avsluta prenumerationen
sv | = | Skicka inget mer
da | = | Jeg vil gerne afmeldes
fi | = | En halua enää uutiskirjettä
tr | = | Üyeliğimi silin
tr | = | Bana bir daha mail göndermeyin
zh | = | 请将我移出列表
zh | = | 不需要了，请取消
ja | = | メールを停止してください
ja | = | もう送ってこないで
ko | = | 메일 수신을 원하지 않습니다
ko | = | 구독 해지 부탁드립니다
hu | = | Ne küldjenek több levelet
ro | = | Vreau să mă dezabonez
el | = | Μην μου στέλνετε άλλα email
en | = | take me off this list pls
en | = | Hi there,\\n\\ncould you please stop sending me these? I never order from you anymore.\\n\\nThanks\\nMargaret Hill\\nSent from my iPhone
en | = | STOP EMAILING ME!!!!
en | = | unsubcribe <en>
en | unsubscribe | -
en | = | No more emails please.\\n\\nGet Outlook for Android <en>
en | = | How do I get off this mailing list? I've clicked the link three times and still get these every week. Please remove jill@example.net. <en>
en | Remove me | Remove me from your database. Thank you.
en | = | I don't want these mails anymore <en>
en | = | Good morning, My mother passed away in March. Please take her off your mailing list.\\n\\nKind regards,\\nTom
en | = | opt out
en | = | leave me alone. i did not sign up for this crap, delete my address <en>
de | = | bitte austragen, danke <de>
de | = | Guten Tag,\\n\\nich möchte Ihren Newsletter nicht mehr bekommen.\\n\\nMit freundlichen Grüßen\\nH. Brandt <de>
de | = | Hört endlich auf mir diesen Müll zu schicken!!!
de | Abmeldung | Hallo,\\nhiermit melde ich mich vom Newsletter ab.\\nLG Sabine
de | = | abbestelen bitte
de | = | Keine Werbung mehr bitte!\\n\\nVon meinem iPhone gesendet <de>
de | = | Sehr geehrte Damen und Herren,\\n\\nbitte löschen Sie meine E-Mail-Adresse aus Ihrem Verteiler. Ich bin nicht mehr in der Firma tätig.\\n\\nFreundliche Grüße\\nPeter Lenz\\nLenz Bau GmbH\\nTel. 030 123456
de | = | Bitte mich abmelden <de>
de | Newsletter abbestellen | -
fr | = | Bonjour,\\nmerci de me retirer de votre liste.\\nCordialement\\nJ. Moreau <fr>
fr | = | stop pub svp
fr | = | je ne veux plus recevoir vos mails <fr>
fr | Désinscription | Bonjour, je souhaite me désinscrire. Merci d'avance
fr | = | Desabonnez moi SVP !!!! ca fait 3 fois que je demande
fr | = | Veuillez supprimer mon adresse de vos fichiers.\\n\\nEnvoyé de mon iPhone <fr>
fr | = | arretez de m'envoyer vos newsletters <fr>
fr | = | Plus de mail merci
es | = | Por favor dadme de baja <es>
es | BAJA | -
es | = | Hola, no quiero recibir más correos. Gracias\\n\\nEnviado desde mi iPhone <es>
es | = | quitenme de su lista ya!!!
es | = | dejen de mandarme publicidad <es>
es | = | Buenos días:\\n\\nLes ruego que eliminen mi dirección de su base de datos.\\n\\nUn saludo,\\nCarmen Ruiz
es | = | como hago para desuscribirme? no me interesa <es>
es | = | me quiero borrar de esta lista
it | = | Cancellatemi dalla vostra lista grazie
it | = | Buongiorno,\\nnon desidero più ricevere le vostre email.\\nCordiali saluti\\nMario Bianchi
it | = | basta mail!!!
it | Disiscrizione | vorrei disiscrivermi dalla newsletter
it | = | toglietemi dalla mailing list per favore\\n\\nInviato da iPhone
it | = | Non mi mandate più niente
it | = | Salve, vi prego di rimuovere il mio indirizzo. Grazie, Lucia
pt | = | Favor remover meu email da lista
pt | = | não quero mais receber isso
pt | = | Bom dia, gostaria de cancelar a minha subscrição. Obrigado\\nJoão
pt | = | parem de me enviar emails!!
pt | descadastrar | -
pt | = | Me tira dessa lista por favor\\n\\nEnviado do meu iPhone
pt | = | Agradeço que retirem o meu contacto da vossa base de dados.
nl | = | graag uitschrijven
nl | = | Beste,\\n\\nIk wil geen mails meer ontvangen.\\n\\nMvg,\\nJan
nl | = | Stop met mailen!
nl | Afmelden | Afmelden nieuwsbrief aub
nl | = | haal mij van de lijst af\\n\\nVerstuurd vanaf mijn iPhone
nl | = | Wilt u mijn adres verwijderen uit uw bestand? Bij voorbaat dank.
nl | = | kunnen jullie me uit de mailinglijst halen
pl | = | Proszę o wypisanie z listy
pl | = | prosze mnie usunac z bazy
pl | = | Dzień dobry,\\nnie chcę więcej dostawać tych wiadomości.\\nPozdrawiam\\nAnna
pl | rezygnacja | Rezygnuję z newslettera.
pl | = | przestańcie mi wysyłać ten spam!!!
pl | = | Wypiszcie mnie\\n\\nWysłane z iPhone'a
sv | = | Ta bort mig från listan tack
sv | = | Hej!\\nJag vill inte ha fler mejl från er.\\nMvh Lars
sv | avregistrera | -
sv | = | sluta skicka reklam\\n\\nSkickat från min iPhone
sv | = | Vill avsluta prenumerationen på nyhetsbrevet.
sv | = | avprenumerera mig
da | = | Afmeld mig venligst
da | = | Hej, vil I ikke slette mig fra jeres mailliste? Tak. Mette
da | = | Jeg ønsker ikke at modtage flere mails fra jer.
da | = | stop med at sende mig det her\\n\\nSendt fra min iPhone
da | Framelding | framelding af nyhedsbrev
no | = | Meld meg av nyhetsbrevet
no | = | Vennligst fjern meg fra listen deres. Hilsen Kari
no | = | vil ikke ha mer mail fra dere
no | = | Slutt å sende meg e-post!
no | avmelding | -
fi | = | Poistakaa minut listalta
fi | = | Hei,\\nen halua enää näitä viestejä.\\nT. Pekka
fi | uutiskirjeen peruutus | Haluan peruuttaa uutiskirjeen.
fi | = | Lopettakaa mainosten lähettäminen!!\\n\\nLähetetty iPhonesta
fi | = | poista sähköpostiosoitteeni rekisteristänne kiitos
cs | = | Prosím o odhlášení z odběru
cs | = | Dobrý den,\\nnechci už dostávat vaše emaily.\\nS pozdravem\\nNovák
cs | = | odhlaste me
cs | = | vyřaďte mě z databáze, děkuji
cs | = | Přestaňte mi posílat reklamu!\\n\\nOdesláno z iPhonu
cs | Odhlásit | -
hu | = | Kérem töröljenek a listáról
hu | = | Tisztelt Cím!\\nNem kérek több hírlevelet.\\nÜdvözlettel,\\nKovács Éva
hu | = | leiratkozom
hu | = | ne küldjenek több emailt!!!
hu | leiratkozás | Szeretnék leiratkozni. Köszönöm
tr | = | Lütfen beni listeden çıkarın
tr | = | Merhaba,\\nartık mail almak istemiyorum.\\nTeşekkürler\\nAyşe
tr | = | mail atmayın artık bana!!
tr | = | Üyelikten çıkmak istiyorum\\n\\niPhone'umdan gönderildi
tr | abonelik iptali | Aboneliğimi iptal edin lütfen
tr | = | e-posta adresimi silin
ru | = | Отпишите меня от рассылки
ru | = | Здравствуйте,\\nне хочу больше получать ваши письма.\\nС уважением, Ольга
ru | = | хватит слать мне спам!!!
ru | отписаться | -
ru | = | уберите мой адрес из базы пожалуйста\\n\\nОтправлено с iPhone
ru | = | Прошу исключить меня из списка рассылки
ja | = | 配信停止をお願いします
ja | = | お世話になっております。\\n今後メールの送信は不要です。\\nよろしくお願いいたします。\\n田中
ja | 退会希望 | 退会したいです。
ja | = | もう送らないでください\\n\\niPhoneから送信
ja | = | メルマガ解除してください
zh | = | 请取消订阅
zh | = | 您好,请不要再给我发邮件了,谢谢
zh | 退订 | -
zh | = | 把我从邮件列表里删掉
zh | = | 別再寄廣告信給我
el | = | Παρακαλώ διαγράψτε με από τη λίστα
"""
)

LOOKALIKES = _read(
    """
en | Swimming course | Hello, I have to sign off from the swimming course on Tuesday because of my shoulder.
en | = | Please take Emma off the list for the school trip, she is ill.
en | Meter 4711 | We would like to cancel the registration of the meter in flat 3.
en | Contract, clause 7 | Please remove clause 7 before you send me the contract.
en | = | No more mail? I miss them!
en | = | No more emails from you this month? I miss them.
en | = | Why did you stop sending the newsletter? I loved it.
en | Re: Stop by on Friday? | Sure, six o'clock.
en | Stop press: new opening hours | We open at nine from Monday.
en | Bus stop | The bus stop in front of your shop has moved.
en | = | I cannot stop reading your newsletters!
en | = | Don't remove me, please! I still want to get these.
en | = | Please do not unsubscribe me, I only changed my phone.
en | = | How many people unsubscribe after such a mail, by the way?
en | Unsubscribe rates in Q3 | Attached are the figures you asked for.
en | Remove the snow from the car park | The landlord asks all tenants to clear their places.
en | = | Can you remove the blue one from my order 1234 and add a red one?
en | = | Please cancel my order 1234.
en | = | Please cancel my subscription to the magazine, but keep sending me your newsletter.
en | = | My husband wants to unsubscribe from his gym. Anyway: how much is the green dress?
en | Opt-out clause in the pension plan | Could you explain paragraph 3?
en | = | I opted out of the gift wrapping, and it came wrapped.
en | = | Take me off the waiting list for the workshop, I got a place elsewhere.
en | = | I took the labels off my list of returns. Which address do I send them to?
en | Sign-off for the budget | Please sign off the budget by Friday.
en | = | The unsubscribe link in your mail does not look nice on my phone, just so you know.
en | = | Stop! I forgot to say that the size is 42.
en | = | Great newsletter, thanks.
en | Delete my photo? | Is it possible to delete my photo on the team page?
en | = | Please change my address to bob@new.example, and remove the old one.
en | = | Is there a list I can subscribe to for the kids' clothes?
en | Digest of talk, vol 12 | Today's topics: 1. How to unsubscribe (Ann) 2. Stop words in search (Bob)
en | Remove before flight | The key rings with this text: do you have them in red?
en | = | I want more emails like this one!
en | Cancellation of the concert | We regret that the concert on Friday is cancelled.
en | = | I stopped getting your emails. Can you check?
en | = | You have taken me off your list by mistake; please put me back on.
de | Abmeldung Schwimmkurs | Hiermit melde ich meine Tochter Lena vom Schwimmkurs am Dienstag ab.
de | Abmeldung des Zählers 4711 | Der Zähler in der Wohnung 3 soll zum 31.12. abgemeldet werden.
de | Kündigung der Wohnung | Hiermit kündige ich die Wohnung zum 31. März.
de | = | Bitte streichen Sie Punkt 7 aus dem Vertrag.
de | = | Keine Mails mehr? Die vermisse ich!
de | = | Bitte nehmen Sie mich nicht aus dem Verteiler, ich lese das gern.
de | Abmelden vom Mittagessen | Leon ist krank und isst heute nicht mit.
de | = | Warum kommen keine Newsletter mehr? Ich habe mich gefreut.
de | = | Löschen Sie bitte die Bestellung 1234.
de | Austragen des Hefts | Wer kann am Samstag die Gemeindebriefe austragen?
de | = | Können Sie mich bitte auf die Warteliste setzen und von der anderen Liste nehmen?
de | Stopp-Schild vor dem Laden | Da fehlt jetzt das Schild.
de | = | Ich will mich nicht abmelden, nur die Adresse ändern.
fr | Désinscription cantine | Ma fille Léa ne mangera pas à la cantine mardi.
fr | = | Vous n'envoyez plus de mails ? Ils me manquent !
fr | = | Veuillez supprimer l'article 7 du contrat.
fr | = | Je ne reçois plus vos mails, pourquoi ?
fr | Arrêt de bus | L'arrêt de bus devant le magasin a été déplacé.
fr | Arrêt de travail | Je suis en arrêt jusqu'à lundi.
fr | = | Ne me retirez pas de la liste, s'il vous plaît.
fr | = | Merci de retirer la robe bleue de ma commande.
fr | Résiliation du bail | Je vous informe de la résiliation de mon bail au 31 mars.
es | Baja por enfermedad | Estoy de baja hasta el lunes.
es | = | Quiero dar de baja el contador de la luz del piso 3.
es | = | ¿Ya no envían correos? Los echo de menos.
es | = | Por favor, eliminen el vestido azul de mi pedido.
es | Planta baja | La tienda está en la planta baja, ¿verdad?
es | = | No me borren de la lista, por favor.
es | = | Me encanta, ¿hay rebaja?
es | Baja del curso de natación | Mi hija no podrá asistir más.
pt | = | Podem remover a cláusula 7 do contrato?
pt | = | Já não enviam e-mails? Tenho saudades!
pt | Cancelamento da encomenda 1234 | Queria cancelar a encomenda, por favor.
pt | Baixa médica | Estou de baixa até segunda.
pt | = | Não me retirem da lista, por favor!
pt | = | Remover a nódoa do vestido: como se faz?
it | = | Perché non mandate più la newsletter? Mi manca!
it | Cancellazione del corso di nuoto | Mia figlia non potrà venire martedì.
it | = | Per favore togliete il vestito blu dal mio ordine.
it | = | Non cancellatemi, vi prego, ho solo cambiato telefono.
it | = | Cancellate l'articolo 7 del contratto.
nl | Afmelden voor zwemles | Emma is ziek en komt dinsdag niet.
nl | = | Geen nieuwsbrief meer? Ik mis hem!
nl | = | Haal de blauwe jurk maar uit mijn bestelling.
nl | = | Ik wil me niet uitschrijven hoor, alleen mijn adres wijzigen.
nl | Uitschrijven bij de gemeente | Moet ik me voor de verhuizing uitschrijven?
pl | Wypis ze szpitala | Mama wraca w piątek do domu.
pl | = | Proszę usunąć punkt 7 z umowy.
pl | = | Nie usuwajcie mnie z listy!
pl | Rezygnacja z kursu pływania | Córka nie będzie już chodzić we wtorki.
pl | = | Dlaczego nie wysyłacie już newslettera? Brakuje mi go.
ru | = | Не удаляйте меня из рассылки, пожалуйста!
ru | = | Почему больше не приходят ваши письма? Я скучаю.
ru | = | Удалите, пожалуйста, синее платье из моего заказа.
ru | Отписка чиновника | Получил из мэрии обычную отписку, посмотрите.
ru | Остановка автобуса | Её перенесли за угол.
cs | Odhlášení oběda | Prosím odhlásit oběd na úterý, syn je nemocný.
cs | = | Proč už neposíláte novinky? Chybí mi.
sv | Avanmälan simskola | Lisa är sjuk och kommer inte på tisdag.
sv | = | Inga fler mejl? Jag saknar dem!
sv | = | Ta bort den blå klänningen från min beställning.
da | Afmelding fra svømning | Emma er syg på tirsdag.
da | = | Fjern venligst punkt 7 fra kontrakten.
fi | = | Miksi ette enää lähetä uutiskirjettä? Kaipaan sitä.
tr | = | Lütfen mavi elbiseyi siparişimden çıkarın.
tr | = | Beni listeden çıkarmayın lütfen!
zh | = | 请把蓝色的裙子从我的订单中删除。
zh | = | 怎么不再发邮件了？我很想念。
zh | 退会费的问题 | 请问会费什么时候退？
ja | = | 注文から青いドレスを削除してください。
ja | = | 最近メールが届きません。配信停止されたのでしょうか？
ja | 退会者の人数について | 先月の人数を教えてください。
ko | = | 주문에서 파란 원피스를 빼 주세요.
ko | 구독 취소율 보고서 | 첨부 파일을 확인해 주세요.
hu | = | Kérem, törölje a kék ruhát a rendelésemből.
ro | = | De ce nu mai trimiteți newsletterul? Îmi lipsește.
el | = | Διαγράψτε το άρθρο 7 από το συμβόλαιο.
ar | = | أرجو حذف الفستان الأزرق من طلبي.
he | = | נא להסיר את השמלה הכחולה מההזמנה שלי.
en | Cancellation of my booking | Please cancel my booking for Tuesday.
en | = | Could you remove the shipping fee?
en | = | Please stop by tomorrow.
en | = | Take it off the menu please.
de | = | Bitte stornieren Sie meine Bestellung.
de | Abmeldung vom Elternabend | Wir können leider nicht kommen.
fr | = | Merci de supprimer la facture.
es | = | Por favor, quiten la oferta.
it | = | Potete togliere il sale?
nl | = | Graag de afspraak afzeggen.
pl | = | Proszę odwołać wizytę.
ru | = | Отмените мой заказ, пожалуйста.
zh | = | 请取消我的订单。
ja | = | 予約を取り消してください。
en | = | Don't stop, these are great!
en | Remove | Which stain remover do you sell?
en | = | Please cancel my order 88213, I chose the wrong size.
en | = | Can you remove the tulips from my basket? Site is stuck. <en>
en | = | I can't unsubscribe my husband's premium plan in the app, is that intended? I only want the family one.
en | = | Please stop the delivery on Friday, nobody is at home.
en | = | I was removed from your list by mistake, please add me again!
en | = | Loved the piece about why people unsubscribe. Are the numbers public? <en>
en | = | We don't want the blue ones anymore, send the red ones instead please.
en | = | Take me off the waiting list for the course, but keep the newsletters coming!
en | = | My new address is jo@example.net, please change it. I don't want to miss any mail.
en | = | I cannot stop reading these. Best newsletter ever.
en | = | Quick question: does the lamp turn off by itself?
en | Your invoice | Hi, remove line 3 from invoice 2026-114 please, we never got that. Regards, Anne
en | = | Is it possible to get fewer mails, once a month maybe? I do like them.
en | = | If you leave the list open over the weekend I will add two names.
en | = | How do your customers unsubscribe? We are looking for a tool like yours.
de | = | Bitte stornieren Sie meine Bestellung 4711. <de>
de | = | Ich möchte mich für den Kurs am Samstag abmelden, bin krank. Den Newsletter lese ich weiter gern!
de | = | Warum wurde ich abgemeldet? Ich will den Newsletter weiter bekommen.
de | = | Ich bekomme keine Mails mehr von Ihnen, was ist los?
de | = | Können Sie bitte die Adresse auf der Rechnung ändern? Die alte löschen.
de | = | Hören Sie bloß nicht auf mit dem Newsletter!
de | = | Bitte keine Nüsse in die Lieferung, ich bin allergisch.
de | = | Wir melden uns nächste Woche ab Mittwoch wieder.
de | = | Mein Abo der Zeitschrift läuft noch bis Mai, richtig?
fr | = | Je ne veux plus la taille M mais la L, c'est possible ? <fr>
fr | = | Pourquoi ai-je été désinscrit ? Je veux continuer à recevoir vos lettres.
fr | = | Merci d'annuler ma commande n° 5521.
fr | = | Ne vous arrêtez surtout pas, j'adore vos mails !
fr | = | Je ne reçois plus vos mails depuis mars, pouvez-vous vérifier ?
fr | = | Retirez le lot 3 de la liste de prix s'il vous plaît, il est vendu.
es | = | Quiero cancelar el pedido 3312, por favor.
es | = | ¿Por qué me disteis de baja? Quiero seguir recibiendo el boletín. <es>
es | = | Mi marido está de baja hasta el lunes, contesto yo en su lugar.
es | = | No dejéis de escribir, me encanta.
es | = | Ya no recibo vuestros correos, ¿pasa algo?
it | = | Vorrei annullare l'ordine 221.
it | = | Non smettete mai di scrivere!
it | = | Potete togliere le cipolle dalla lista della spesa?
it | = | Non ricevo più le vostre mail, come mai?
pt | = | Quero cancelar a compra de ontem.
pt | = | Por que não recebo mais os emails de vocês?
nl | = | Ik wil mijn bestelling annuleren.
nl | = | Waarom ben ik uitgeschreven? Ik wil de nieuwsbrief graag blijven ontvangen.
nl | = | Ik kan helaas niet komen, schrijf mij maar uit voor de workshop van 12 mei.
pl | = | Proszę anulować moje zamówienie nr 77.
pl | = | Dlaczego nie dostaję już waszych wiadomości?
sv | = | Jag vill avbeställa min order från igår.
sv | = | Jag får inte längre era mejl, varför?
da | = | Jeg vil gerne afmelde mig løbet på lørdag, har brækket foden.
no | = | Kan dere avbestille hotellrommet for oss?
fi | = | Haluan peruuttaa tilaukseni 1203, väärä koko.
cs | = | Chci zrušit objednávku č. 91.
hu | = | Szeretném törölni a rendelésemet.
tr | = | Siparişimi iptal etmek istiyorum.
tr | = | Neden artık mail gelmiyor? Almaya devam etmek istiyorum.
ru | = | Отмените, пожалуйста, мой заказ 512.
ru | = | Почему мне больше не приходят письма? Хочу получать дальше.
ja | = | 注文をキャンセルしたいのですが。
zh | = | 我想取消订单。
ja | = | メールが届かなくなりました。また送ってください。
"""
)


WISHES += _read(
    """
en | = | Enough already, get me off of this thing
en | = | Dear team,\\n\\nI retired last year and have no more use for your bulletins. Kindly discontinue.\\n\\nRegards, Prof. A. Whitcombe
en | = | Who gave you my address? Delete it.
en | = | pls unsuscribe me thx
en | Please remove from list | -
en | = | we closed the shop in june, no need to send us offers any longer. ta, Bev
en | = | I've asked you twice already. Stop it.
en | cancel newsletter | hi can you cancel my newsletter cheers
de | = | Moin, könnt ihr mich bitte rausnehmen? Danke! Gruß Uwe
de | = | Ich verzichte ab sofort auf Ihre E-Mails.
de | = | nehmt mich endlich aus eurem scheiß Verteiler raus
de | Kündigung Newsletter | Hiermit kündige ich Ihren Newsletter zum nächstmöglichen Zeitpunkt.
de | = | Kein Interesse mehr. Bitte Adresse löschen.\\n\\nGesendet von Outlook für iOS
de | = | newsleter abmelden
de | = | Ich widerspreche der Nutzung meiner Daten zu Werbezwecken.
fr | = | Bonjour, pourriez-vous me désinscrire ? Je ne suis plus concernée. Bonne journée, Claire
fr | = | marre de vos pubs, rayez-moi de la liste
fr | Se désabonner | -
fr | = | Je vous prie de ne plus m'adresser de courriers électroniques.
fr | = | STOP
es | = | Buenas, ¿me podéis sacar de la lista? Gracias
es | = | no me envieis mas nada
es | cancelar suscripcion | -
es | = | Ya no trabajo en ese sector, por favor eliminadme de vuestros envíos. Un saludo
it | = | per cortesia non scrivetemi più
it | Cancellazione | Chiedo la cancellazione dalla newsletter. Distinti saluti
it | = | Potete togliermi dai vostri contatti? Grazie mille
pt | = | Por favor retirem-me da vossa lista
pt | = | chega de spam!!! me excluam
pt | Cancelar newsletter | Quero cancelar a newsletter.
nl | = | Hoi, kan ik van deze mails af? Groetjes Marieke
nl | = | Ik heb hier geen interesse in, gelieve mij te verwijderen.
nl | = | uitschijven svp
pl | = | Proszę nie przysyłać mi już ofert
pl | = | wypisz mnie z tego
pl | = | Chciałbym zrezygnować z subskrypcji. Z góry dziękuję
sv | = | Kan ni plocka bort mig från utskicken?
sv | = | Nej tack, inga fler nyhetsbrev
da | = | Må jeg blive slettet fra listen? Vh Søren
da | = | Afmelding tak
no | = | Hei, jeg vil melde meg av. Takk
no | = | Ikke send meg flere nyhetsbrev
fi | = | Älkää lähettäkö enää mainoksia
fi | = | Pyydän poistamaan osoitteeni listaltanne.
cs | = | Neposílejte mi už nic
cs | = | Zrušte prosím odběr novinek
hu | = | Kérem, vegyenek le a listáról
hu | = | Nem szeretnék több levelet kapni
tr | = | Bültenden çıkmak istiyorum lütfen
tr | = | bana artık reklam göndermeyin
ru | = | Добрый день! Удалите меня, пожалуйста, из рассылки. Спасибо
ru | = | больше не пишите мне
uk | = | Відпишіть мене, будь ласка
uk | = | не надсилайте мені більше листів
ja | = | 配信を止めてください
ja | = | メールアドレスの削除をお願いします。
zh | = | 不要再发了
zh | = | 麻烦帮我取消邮件订阅
ro | = | Vă rog să mă scoateți din listă
el | = | Θέλω να διαγραφώ από το newsletter
en | = | Please unsubscribe this address, it belongs to a school that has closed.
en | = | not interested, take me off
en | = | For the last time: I do not want your newsletter!!
en | = | Could you kindly drop my name from your mailing list? Thank you, Rose
en | = | No more of this please
en | off the list please | -
de | = | Schmeißt mich bitte aus der Liste, danke
de | = | Guten Morgen, ich würde gerne keine Mails mehr von Ihnen bekommen. Viele Grüße, Inge
de | = | abmelden!!!!
de | = | Bitte keine weiteren Zusendungen an diese Adresse.
de | = | Ich habe mich nie angemeldet. Nehmen Sie mich sofort raus.
fr | = | Merci de bien vouloir cesser vos envois
fr | = | enlevez moi de cette liste de diffusion
fr | = | Bonjour, je n'ai plus besoin de vos infos, veuillez me retirer. Bien à vous
fr | = | desinscription
es | = | Solicito la baja de su boletín. Atentamente, Luis
es | = | no quiero más mails
es | = | Sáquenme de esta lista por favor
it | = | disiscrivetemi
it | = | Non voglio più le vostre offerte, grazie
it | = | Chiedo di essere rimosso dalla vostra mailing list.
pt | = | Não me enviem mais nada
pt | = | Quero sair da lista
nl | = | Stuur mij alsjeblieft geen nieuwsbrieven meer
nl | = | Uitschrijven graag, groet Piet
pl | = | Nie życzę sobie takich maili
pl | = | proszę o usunięcie mojego adresu
sv | = | Jag vill bli borttagen från er lista
sv | = | Avsluta nyhetsbrevet tack
da | = | Fjern mig fra jeres liste
no | = | Kan dere stryke meg fra listen?
fi | = | Haluan pois listalta
cs | = | Vymažte mě ze seznamu
hu | = | Töröljenek kérem
tr | = | Bu listeden çıkmak istiyorum
ru | = | Уберите меня из списка!!!
uk | = | Не хочу отримувати ваші листи
ja | = | 購読を解除したいです
zh | = | 我不想再收到你们的邮件
ko | = | 메일 그만 보내주세요
en | = | kindly take us off your mailings, we are not a business any more
en | = | I do not wish to hear from you again
en | = | Remove!!!
en | = | please cancel these emails
en | = | unsubscribe me from all lists. Regards, Tim
de | = | Bitte streichen Sie meine Adresse
de | = | ich will das nicht mehr
de | = | Newsletter bitte abbestellen, vielen Dank
fr | = | Retirez mon mail de vos listes
fr | = | Je ne désire plus être abonné
es | = | Eliminen mi correo por favor
it | = | Vi chiedo di non inviarmi più mail
nl | = | Graag verwijderen uit jullie bestand
pl | = | Proszę usunąć mój mail
sv | = | Ta bort min adress
ru | = | Прошу больше не присылать
pt | = | Quero deixar de receber os emails
tr | = | Listeden çıkar
ja | = | 配信不要です
zh | = | 取消订阅
""",
    of_others=True,
)

LOOKALIKES += _read(
    """
en | = | Please send me the form to sign up my sister as well.
en | = | Can you remove the watermark on the picture?
en | = | My subscription box has not come, please don't cancel it.
en | = | Stop! The link in your mail goes to the wrong page.
en | = | I would like to withdraw 200 from my savings account.
en | = | Please take me with you to the fair :)
en | = | I got no more mails since Easter, was I dropped?
en | = | Off to the sea for a week, will read it when I return.
en | = | delete the second attachment, it is the wrong file
en | Order 551 | Cancel it please, found it cheaper.
en | = | Do not send it to the office, send it home please.
de | = | Bitte nehmen Sie mich in den Verteiler auf!
de | = | Kann man den Pullover auch umtauschen, wenn er nicht passt?
de | = | Ich möchte mein Konto bei der Bank kündigen, wie geht das?
de | = | Entfernen Sie bitte den Rost mit etwas Essig, hat bei mir geholfen.
de | = | Hört sich gut an!
de | = | Schicken Sie mir bitte keine Rechnung auf Papier, PDF reicht.
fr | = | Je voudrais m'inscrire à l'atelier de samedi.
fr | = | Pouvez-vous retirer le produit B de mon panier ?
fr | = | Ne m'oubliez pas pour la prochaine lettre !
fr | = | Je n'arrive pas à supprimer mon compte fidélité en boutique.
es | = | Quitad por favor el gluten del menú, soy celíaca.
es | = | Me quiero apuntar a la lista.
es | = | No me ha llegado el correo con el código.
it | = | Toglietemi una curiosità: chi fa le foto?
it | = | Vorrei iscrivermi anche con l'altro indirizzo.
pt | = | Podem retirar a encomenda da loja amanhã?
pt | = | Quero cancelar o meu cartão.
nl | = | Haal je me op van het station?
nl | = | Ik wil graag een jaar extra op mijn abonnement.
pl | = | Proszę usunąć zdjęcie z galerii.
pl | = | Chcę się zapisać na listę.
sv | = | Stoppa pressarna, ni har stavat fel på sidan två!
da | = | Hvordan får jeg slettet en vare i kurven?
fi | = | Voisitteko poistaa maksun kortiltani?
cs | = | Prosím o zrušení rezervace na pátek.
hu | = | Szeretnék feliratkozni.
ru | = | Удалите второе фото, там ошибка в названии.
ja | = | 予約を解除したいです。
zh | = | 请把我加入邮件列表。
en | = | I take my coffee without sugar, thanks for asking.
en | = | Please take the old address off my account, the new one is right.
en | = | Can you stop the music on the home page? It starts by itself.
en | = | Delete my last mail, I found the answer.
en | = | I would love to get more of these.
en | = | We have left the hotel, thanks for everything.
en | Cancel | my appointment on Monday please
de | = | Streichen Sie bitte Position 4 vom Angebot.
de | = | Ich möchte den Newsletter jetzt auch an meine neue Adresse bekommen.
de | = | Nehmen Sie auch alte Schuhe zurück?
de | = | Ich will keine Mail verpassen!
de | = | Meine Tochter will nicht mehr zum Turnen, bitte abmelden.
fr | = | Je ne veux plus attendre, où est mon colis ?
fr | = | Merci de supprimer l'article en double de ma commande.
fr | = | Inscrivez-moi aussi à la lettre de Noël.
es | = | Quitad la foto de mi hijo de la web, por favor.
es | = | Dame de alta en la lista, gracias.
it | = | Vorrei cancellare la prenotazione di sabato.
it | = | Mi mandate di nuovo il link?
pt | = | Tirem a minha dúvida: a loja abre no domingo?
nl | = | Stop de persen! Er staat een fout in.
nl | = | Ik wil mijn zoon afmelden voor voetbal.
pl | = | Chcę zrezygnować z zakupu.
sv | = | Jag vill ta bort en vara ur korgen.
fi | = | Poistakaa tuote korista.
ru | = | Хочу отказаться от заказа.
ja | = | 会員登録を解除せずに住所を変えたいです。
zh | = | 请停止扣款。
tr | = | Randevumu iptal etmek istiyorum.
cs | = | Chci odhlásit obědy na příští týden.
en | = | Please stop the subscription to the coffee, not the newsletter.
en | = | Take our name off the guest list for Saturday, we are ill.
en | = | Could you email me the list again? I deleted it.
en | = | We no longer sell tickets at the door.
en | = | Remove the stain with salt, it works.
en | = | I want no sugar in it, please.
en | = | My old mail address stops working in May.
en | Unsubscribed? | I think you dropped me. Put me back on.
de | = | Bitte löschen Sie den Termin am Montag.
de | = | Ich möchte die Bestellung nicht mehr, bitte stornieren.
de | = | Melden Sie sich, wenn die Tulpen da sind.
de | = | Nehmen Sie bitte zwei von der Liste, die roten.
fr | = | Je ne peux plus venir samedi, merci de m'enlever de la liste des invités.
fr | = | Arrêtez, vous allez me ruiner !
es | = | Anulen la cita del lunes.
it | = | Togliete pure il mio nome dal cartellone, non suono più.
nl | = | Haal die taart maar van de lijst, hij is op.
pl | = | Proszę usunąć ten komentarz.
sv | = | Ta bort bilden på mig från hemsidan.
ru | = | Уберите, пожалуйста, скидку, она не работает.
pt | = | Não quero mais o produto.
tr | = | Fotoğrafı silin lütfen.
ja | = | 写真を削除してください。
zh | = | 请删除我的评论。
hu | = | Kérem, törölje az időpontomat.
""",
    of_others=True,
)

REPLIES = {
    "en": (
        "So pretty",
        "Where is your shop?",
        "Thanks, will pass it on",
        "Take care, Jo",
        "I'll get two of the blue ones",
        "Lovely!",
        "Got mine yesterday, they are beautiful",
        "Thanks, will have a look",
        "Do you ship to Ireland?",
        "Too expensive for me I'm afraid",
        "Sounds great",
        "Ha ha, very good.",
        "nice one",
        "look at this mum",
        "Yes please, two of them",
        "When does it start?",
        "Who wrote the piece on roses?",
        "Will you be at the fair?",
        "ok",
        "Good morning! And thank you.",
        "Wrong link in the second paragraph",
        "Lovely!",
        "Is this still on?",
        "We grew those last year, what a show they were",
        "count me in",
        "haha",
        "Thank you Sue, see you on Friday",
        "I never got the voucher",
        "👍",
    ),
    "de": (
        "Klasse!",
        "Nehme ich",
        "Bis Freitag dann",
        "Schreibt mir doch, wenn sie da sind",
        "Wunderschön!",
        "Danke, habe bestellt.",
        "Gibt es die auch in Weiß?",
        "Passt, bis Samstag",
        "Super, danke!",
        "Toll, weiter so",
        "Der Gutschein geht nicht",
        "Wie lange gilt das Angebot?",
        "Gerne",
        "Sehr schön",
        "Habt ihr am Sonntag offen?",
        "Danke für den Tipp!",
        "Kann ich das auch in Bar zahlen?",
        "Läuft.",
    ),
    "fr": (
        "Trop bien",
        "Je prends",
        "À bientôt",
        "Magnifique !",
        "Merci beaucoup",
        "Très joli",
        "Est-ce que vous livrez en Corse ?",
        "Bravo à toute l'équipe",
        "Superbe",
        "Merci et bonne semaine",
        "C'est encore disponible ?",
        "J'en prends deux",
    ),
    "es": (
        "Precioso",
        "Me lo llevo",
        "¡Qué bonito!",
        "¿Cuánto cuesta el envío?",
        "Gracias, un abrazo",
        "Vale, apuntado",
        "Qué guay",
        "Gracias, lo miro",
        "¿Hay talla 40?",
        "Me apunto",
    ),
    "it": (
        "Lo prendo",
        "Fantastico",
        "Bellissimo!",
        "Quando arriva?",
        "Grazie mille",
        "Che meraviglia",
        "Grazie, a presto",
        "Quanto costa?",
    ),
    "pt": (
        "Que lindo!",
        "Obrigada, já comprei",
        "Adorei",
        "Maravilha",
        "Ainda tem?",
    ),
    "nl": (
        "Top!",
        "Die neem ik",
        "Prachtig!",
        "Is er nog plek?",
        "Leuk hoor",
        "Mooi!",
        "Kan ik morgen langskomen?",
        "Dank je wel",
    ),
    "pl": (
        "Biorę!",
        "Piękne!",
        "Dziękuję bardzo",
        "Ile kosztuje wysyłka?",
        "Super",
        "Czy jest jeszcze dostępne?",
        "Dziękuję",
    ),
    "sv": (
        "Fint!",
        "Vad fint!",
        "Tack så mycket",
        "Härligt",
        "Finns den i blått?",
    ),
    "ru": (
        "Красота!",
        "Спасибо, посмотрю",
        "А когда доставка?",
        "Здорово!",
        "Сколько стоит?",
    ),
    "ja": (
        "素敵ですね!",
        "ありがとうございます。",
        "いつ届きますか?",
        "いいですね",
        "まだありますか?",
    ),
    "zh": (
        "真漂亮!",
        "谢谢",
        "好的",
        "太好了",
        "多少钱?",
    ),
}
"""By language: what people answer to a newsletter."""
