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

    @property
    def apart(self) -> bool:
        return hashlib.sha256(f"{self.subject}\n{self.body}".encode()).digest()[0] < 26

    def message(self, fields: str = "") -> bytes:
        subject = Header(ECHOED if self.subject == "=" else self.subject, "utf-8").encode()
        return (
            f"From: Bob <bob@example.net>\nTo: news-7f3a@mail.example.com\nSubject: {subject}\nReturn-Path: <bob@example.net>\n"
            f"MIME-Version: 1.0\n{fields}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{self.body}\n"
        ).encode()


def _read(text: str) -> list[Said]:
    rows = (line.split(" | ") for line in text.strip().split("\n"))
    return [
        Said(language, subject.strip(), "" if body == "-" else body.replace("\\n", "\n").strip())
        for language, subject, body in rows
    ]


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
"""
)
