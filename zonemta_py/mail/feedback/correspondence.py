"""Words of what people, and programs in their name, answer: absences, help desks, challenges, unsubscribes, complaints.

As in `vocabulary`: lower-case, with one space between words, looked for as they stand.
"""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.vocabulary import phrases

AWAY_SUBJECTS = phrases(
    """
    out of office; out of the office; out-of-office; ooo:; automatic reply; auto reply; auto-reply; autoreply;
    auto response; auto-response; autoresponse; autorespons; automated reply; automated response; automatic response;
    auto responder; autoresponder; auto:; [auto]; (auto); vacation; on vacation; away from; on holiday; annual leave;
    on leave; maternity leave; parental leave; sabbatical; i am away; i'm away; currently away; away until; absence;
    absent; be back; no longer with; thank you for your email; thank you for contacting; thank you for your message;
    thank you for your e-mail; we have received your; we received your; your message has been received;
    my new address; new e-mail address; new email address; ticket received; request received; abwesen; abwesenheit;
    automatische antwort; autom. antwort; nicht im büro; nicht im hause; bin im urlaub; außer haus; im urlaub;
    eingangsbestätigung; réponse automatique; reponse automatique; absence du bureau; absent du bureau; en congé;
    message d'absence; accusé de réception; je suis absent; respuesta automática; respuesta automatica;
    fuera de la oficina; fuera de oficina; de vacaciones; ausente; autorespuesta; resposta automática;
    resposta automatica; fora do escritório; fora do escritorio; em férias; de férias; ausência; risposta automatica;
    fuori ufficio; fuori sede; assenza; in ferie; assente; automatisch antwoord; automatisch bericht; afwezig;
    niet op kantoor; met vakantie; op vakantie; automatyczna odpowiedź; odpowiedź automatyczna; autoodpowiedź;
    nieobecn; poza biurem; na urlopie; urlop; автоответ; автоматический ответ; вне офиса; в отпуске; отсутству;
    отпуск; автоматична відповідь; відпустк; automatická odpověď; mimo kancelář; dovolená; nepřítomnost; neprítomnosť;
    otomatik yanıt; otomatik cevap; ofis dışında; izinde; tatilde; automatiskt svar; autosvar; frånvaro;
    ej på kontoret; semester; automatisk svar; ikke på kontoret; fravær; på ferie; automaattinen vastaus;
    poissa toimistosta; poissaolo; lomalla; automatikus válasz; házon kívül; szabadság; távollét; răspuns automat;
    în concediu; nu sunt la birou; αυτόματη απάντηση; εκτός γραφείου; σε άδεια; απουσία; 自動返信; 自動応答; 不在通知;
    不在のお知らせ; 不在連絡; 休暇; 受付完了; お問い合わせありがとう; 自动回复; 自動回覆; 自动答复; 外出; 休假;
    不在办公室; 不在辦公室; 자동 회신; 자동응답; 자동 응답; 자동회신; 부재중; 부재 중; 휴가; رد تلقائي; خارج المكتب;
    في إجازة; تلقائي; תשובה אוטומטית; מענה אוטומטי; מחוץ למשרד; בחופשה; trả lời tự động; vắng mặt; nghỉ phép;
    ตอบกลับอัตโนมัติ; ไม่อยู่ที่สำนักงาน; ลาพักร้อน; balasan otomatis; di luar kantor; sedang cuti; automatski odgovor;
    odsutn; samodejni odgovor; автоматичен отговор; automatinis atsak; automātiska atbilde; automaatvastus;
    """
)
"""In the subject of a person's, or a help desk's, automatic reply."""

TICKETS = phrases("ticket #; [ticket; case #;")
"""Likewise, but people who answer leave it there."""

REQUESTS = phrases(
    """
    ticket; case; request; enquiry; inquiry; message; e-mail; email; query; vorgang; anfrage; nachricht; anliegen;
    demande; solicitud; consulta; mensaje; solicitação; pedido; mensagem; richiesta; messaggio; verzoek; vraag;
    bericht; zaak; zgłoszen; wiadomo; запрос; обращени; заявк; письмо; звернення; запит; požadav; zpráv; talep;
    başvuru; ileti; ärende; meddelande; henvendelse; forespørsel; sag; tiedustelu; viesti; kérés; megkeresés; üzenet;
    cerere; solicitare; mesaj; αίτημα; 问询; 工单; 来信; 邮件; 來信; 信件; お問い合わせ; お問合せ; メール; 문의; 메일;
    طلب; رسالتك; פנייה; פנייתך; yêu cầu; permintaan; pesan;
    """
)
RECEIVED = phrases(
    """
    received; got your; was registered; has been registered; has been created; has been opened; has been logged;
    eingegangen; erhalten; registriert; bien reçu; a été reçu; enregistré; recibido; recibida; registrad; recebid;
    ricevut; presa in carico; ontvangen; geregistreerd; otrzymaliśmy; zarejestrowan; przyjęt; получен; принят;
    зарегистрирован; отримано; прийнято; přijat; obdrželi; alındı; aldık; mottagit; mottaget; modtaget; mottatt;
    vastaanotettu; megkaptuk; érkezett; primit; înregistrat; λάβαμε; ελήφθη; 收到; 已受理; 受け付け; 受付; 受理; 접수;
    받았; استلمنا; تم استلام; קיבלנו; התקבלה; đã nhận; telah menerima; diterima;
    """
)
"""Together with REQUESTS in a subject: a help desk acknowledges."""

AWAY_TEXTS = phrases(
    """
    thank you for writing; thanks for writing; out of the office; out of office; i am currently away; i will be away;
    i'm currently out; on vacation; on holiday until; on annual leave; on maternity leave; limited access to email;
    limited access to e-mail; upon my return; when i return; when i get back; until my return; i will respond;
    no longer works; no longer work for; no longer work at; no longer work here; no longer work in;
    no longer with the company; is no longer with; has left the company; this is an automatic reply;
    this is an automated re; this is an auto; automatically generated reply; we have received your;
    thank you for contacting; thank you for your message; thank you for your e-mail; thank you for your email;
    a ticket has been; your ticket; ticket number; this mailbox is not monitored; mailbox is unattended;
    inbox is not monitored; is no longer in use; has changed my email; my new email address; i have changed my email;
    i am on leave; i'm on leave; i am on holiday; i'm on holiday; i am travelling; i'm travelling; i am traveling;
    i'm traveling; ich bin derzeit nicht; ich bin zurzeit nicht; ich bin bis; nicht im büro; im urlaub;
    nicht mehr für; nicht mehr bei; in dringenden fällen; vielen dank für ihre nachricht; vielen dank für ihre e-mail;
    wieder erreichbar; elternzeit; je suis absent; je suis actuellement; en congé; absent du bureau; de retour le;
    à mon retour; nous avons bien reçu; ne travaille plus; estoy fuera; fuera de la oficina; de vacaciones;
    a mi regreso; hemos recibido su; ya no trabaja; estaré ausente; estou ausente; estou fora; de férias; em férias;
    meu retorno; não trabalha mais; recebemos sua; recebemos a sua; sono assente; sono fuori; in ferie;
    al mio rientro; sarò assente; abbiamo ricevuto; non lavora più; ik ben afwezig; ik ben niet aanwezig;
    met vakantie; op vakantie; niet meer werkzaam; we hebben uw; jestem nieobecn; przebywam na urlopie; na urlopie;
    poza biurem; po powrocie; nie pracuje; я в отпуске; нахожусь в отпуске; буду отсутствовать; меня не будет;
    больше не работает; ваше обращение; ваше письмо получено; jsem mimo kancelář; na dovolené; po návratu;
    ofis dışındayım; izindeyim; izinli; tatildeyim; jag är på semester; jag är inte på kontoret; åter på kontoret;
    tillbaka; jeg er på ferie; ikke på kontoret; tilbake; olen lomalla; poissa; szabadságon; házon kívül;
    sunt în concediu; λείπω; σε άδεια; 不在にして; 休暇をいただ; 休暇を取; 自動返信; 自動的に返信; 戻り次第;
    お問い合わせいただき; 不在办公室; 正在休假; 休假中; 自动回复; 会尽快回复; 自動回覆; 부재중; 휴가 중;
    자동으로 발송; 자동 회신; أنا خارج; في إجازة; איני במשרד; בחופשה; tôi đang nghỉ; vắng mặt; ขณะนี้ฉันไม่อยู่;
    saya sedang cuti; di luar kantor; thanks for getting in touch; thanks for contacting; has been given the number;
    your reference number; your case number; will look at it within; will get back to you; we will reply; we'll reply;
    i have retired; i retired; has retired; have left the; i have left; i left the; has moved on; is on leave;
    out until; not in today; passed away; has died; is deceased; this account is no longer;
    this address is no longer monitored; not monitored; nobody reads; do not reply to this; ich bin im; bin ich nicht;
    nicht mehr im unternehmen; ausgeschieden; im ruhestand; wird nicht gelesen; nicht überwacht; a quitté; est parti;
    à la retraite; en arrêt; se ha jubilado; ya no forma parte; dejó la empresa; aposent; já não faz parte;
    deixou a empresa; è in pensione; ha lasciato; is met pensioen; heeft ons verlaten; przeszł; odszedł; odeszła;
    на пенсии; уволил; больше не сотрудник; не працює; odešel; odešla; emekli; ayrıldı; ayrılmıştır; gått i pension;
    har slutat; er stoppet; har sluttet; jäänyt eläkkeelle; nyugdíj; pensionat; 退职; 离职; 退職; 退社; 퇴사; 퇴직;
    uw bericht aan; dank voor uw; danke für ihre; merci pour votre; merci de votre; gracias por su;
    gracias por escribir; gracias por contactar; obrigado por; obrigada por; grazie per; dziękujemy za; спасибо за;
    благодарим; дякуємо; děkujeme; teşekkür; tack för; takk for; tak for; kiitos; köszönjük; mulțumim; ευχαριστούμε;
    感谢您; 謝謝您; ありがとうございま; 감사합니다; شكرا; תודה;
    """
)

CHALLENGES = phrases(
    """
    confirm your message; confirm that you are human; confirm you are human; prove you are human;
    prove that you are human; you are a human; you are a real person; not a robot; verify your email address so;
    verify yourself; please verify that you sent; sender verification; requires verification; challenge-response;
    challenge/response; challenge response; add your address to my; approved sender; approved senders;
    to be added to the; allowed senders; allowed sender list; request to be added; your message is being held;
    message is held until; message is on hold; message is waiting for your; release your message;
    deliver your message, please; to deliver your message, click; click the link below to; complete this one-time;
    one-time verification; spamarrest; spam arrest; boxbe; bluebottle; tmda; mailblocks; spamblocker; choicemail;
    qurb; uol antispam; antispam uol; anti-spam uol; cleanmessage; bitte bestätigen sie ihre nachricht;
    confirmer votre message; confirmer que vous; confirme su mensaje; confirmar su mensaje; confirme que;
    confirmar o envio; confirme o envio; conferma il tuo messaggio; potwierdź, że; potwierdź swoj;
    подтвердите отправку; подтвердите, что; 確認のため返信; that you are a person; that you are not a machine;
    no robot; not a bot; not a spammer; i don't know you yet; letters in the picture; characters in the picture;
    letters shown; verification needed; verification required; unknown sender, please; has not been verified;
    kein roboter; dass sie ein mensch; absender bestätigen; bestätigen sie ihre e-mail; n'êtes pas un robot;
    êtes humain; no es un robot; no eres un robot; es una persona; não é um robô; é uma pessoa real; non sei un robot;
    non è un robot; geen robot; nie jesteś robotem; не робот; robot olmadığınızı; nejste robot; 不是机器人;
    不是機器人; ロボットではない; 로봇이 아님; you're human; you are human; i am a human; i am human; solve the;
    captcha; puzzle; a human being; real human; released once you; held until you; let me know you are;
    answer this mail without changing; reply to this message to confirm; simply reply to this; to have it released;
    confirm your address to; confirmez votre; confirmez que; bestätigen sie ihre; bestätigen sie, dass; confirme su;
    confirme o seu; confirma que; conferma che; bevestig uw; bevestig dat; підтвердьте; potvrďte; onaylayın;
    bekräfta att; bekræft at; bekreft at; vahvista; erősítse meg; confirmați că; επιβεβαιώστε; 确认您是; 請確認您;
    확인해 주; répondez simplement à ce; antworten sie einfach auf diese; responda simplemente a este;
    responda simplesmente a este; rispondi semplicemente a questo; beantwoord deze; erősítse meg, hogy; ön ember;
    engedélyezett feladók; är en människa; er et menneske; olet ihminen; sunteți om; είστε άνθρωπος; 사람임을;
    人間である; 真人; 验证您是; أنك إنسان; שאתה אדם; là người; bukan robot; liste blanche; lista blanca; lista branca;
    lista bianca; białej liście; белый список; білий список; ホワイトリスト; 白名单; 白名單; needs to know you;
    unknown to me; not known to me; your address is not known; whitelist;
    """
)

LISTS = phrases(
    """
    the results of your email command; awaits moderator approval; is not a member of;
    not a member of this mailing list; are not member; you are not allowed to post; not allowed to post;
    post by non-member; non-member; subscribers only; held for moderat; is being held until the list moderator;
    loop alert; duplicated message-id; listserv; majordomo results; command results; ezmlm; sympa;
    request to mailing list; confirm subscribe; confirm unsubscribe; subscription confirm; you are not subscribed;
    welcome to the;
    """
)
"""Answers of a list server, in the subject."""

HELD = phrases(
    """
    awaits moderator; awaiting moderat; waits for the moderator; held for moderat; held until the list moderator;
    held until the moderator; held for approval; pending moderat; pending approval; needs approval;
    moderator can review; forwarded to the moderator; forwarded to the list's editor; forwarded to the list's owner;
    submitted for moderation; transmis aux modérateurs; en attente de modération; attente d'approbation;
    wartet auf freigabe durch; wartet auf die moderat; zur moderation; von der moderation freigegeben;
    pendiente de moderación; pendiente de aprobación; aguarda moderação; aguardando moderação; in attesa di moderazione;
    in attesa dell'approvazione; wacht op goedkeuring; oczekuje na moderac; ожидает модерац; ожидает одобрения;
    """
)
"""A list has taken a message, and its moderator will see it."""

REFUSED = phrases(
    """
    was rejected; been rejected; is rejected; not allowed to post; not allowed to send; not authorized to send;
    not authorized to post; not authorised to; not permitted to; may not post; cannot post; only members;
    members only; members can post; subscribers only; only subscribers; subscribers can post; non-member;
    non-subscriber; not a member of; not a subscriber; not subscribed; not from a list member; list is closed;
    closed list; list is private; private list; abgelehnt; zurückgewiesen; nur mitglieder; nur abonnenten;
    nicht berechtigt; a été rejeté; a été refusé; n'êtes pas autorisé; réservée aux abonnés; réservé aux abonnés;
    seuls les abonnés; seuls les membres; ha sido rechazado; fue rechazado; solo los miembros;
    solo los suscriptores; no está autorizad; foi rejeitad; apenas membros; só membros; não está autorizad;
    è stato rifiutato; è stato respinto; solo i membri; solo gli iscritti; non sei autorizzat; geweigerd;
    alleen leden; afgewezen; odrzucon; tylko członkowie; отклонен; отклонён; только участник; только подписчик;
    zamítnut; avvisats; avvist; afvist; hylättiin; elutasít; reddedildi; 拒否; 拒绝; 拒絕; 거부;
    """
)
"""A list has not taken a message, and nobody will see it."""

POSTING = phrases(
    """
    your message; your mail; your e-mail; your email; your post; posting; post to; to post; send mail; message to;
    ihre nachricht; deine nachricht; ihr beitrag; ihre e-mail; ihre mail; an diese liste; votre message;
    votre courriel; su mensaje; tu mensaje; sua mensagem; messaggio; uw bericht; je bericht; wiadomość; wiadomosc;
    сообщение; письмо; zpráva; ditt meddelande; viestisi; üzenet; mesaj; メール; 邮件; 郵件; 메일;
    """
)
"""What it has not taken."""

OF_TRADE = phrases(
    """
    payment; transfer; transaction; invoice; purchase; direct debit; standing order; refund; iban; parcel; shipment;
    courier; your order; credit card; debit card; überweisung; zahlung; lastschrift; rechnung; buchung; paket;
    sendung; bestellung; paiement; virement; prélèvement; facture; colis; commande; transferencia; factura; pedido;
    transferência; pagamento; fatura; encomenda; bonifico; addebito; fattura; ordine; betaling; overboeking;
    factuur; pakket; bestelling; przelew; płatność; faktura; paczka; zamówienie; платеж; платёж; перевод; счет;
    счёт; посылка; заказ; platba; zásilka; objednávk; betalning; faktura; havale; ödeme; kargo; sipariş; fizetés;
    utalás; csomag; 振込; 支払; 決済; 荷物; 付款; 转账; 轉帳; 支付; 包裹; 결제; 송금;
    """
)
"""Things that fail, and have numbers, which are no mail."""

OF_MAIL = phrases(
    """
    missatge; correu; mesaj; μήνυμα; pranešim; sõnum; mail; message; smtp; mailbox; inbox; postmaster; nachricht;
    postfach; courrier; courriel; correo; mensaje; mensagem; posta; messaggio; bericht; postvak; wiadomo; poczt;
    skrzynk; письм; сообщен; почт; ящик; zpráv; schránk; meddeland; e-post; viesti; sähköposti; ileti; posta kutusu;
    levél; üzenet; メール; 邮; 郵; 信箱; 메일; بريد; דואר; user unknown; no such user; unknown user; 550 5.1.1 <;
    rcpt; relay;
    """
)
"""What speaks of mail."""

OVERVIEWS = phrases(
    """
    report domain:; dmarc; tls report; tls-rpt; smtp tls; aggregate report; quarantine digest; quarantine summary;
    quarantine report; quarantine notification; quarantined messages; spam digest; spam summary; spam-quarantäne;
    quarantäne-bericht; quarantänebericht; résumé de quarantaine; resumen de cuarentena; resumo da quarentena;
    """
)
"""In a subject: about much mail at once."""

UNSUBSCRIBES = phrases(
    """
    unsubscribe; unsub; stop; take me off; taking me off; off the mailing list; streichen sie mich;
    tragen sie mich aus; schicken sie mir keine; senden sie mir keine; mir keine weiteren; take my name off;
    off your list; off the list; off this list; cancel my subscription; cancel subscription; stop sending;
    stop mailing; no more emails; no more mail; no longer wish to receive; don't want these; do not want these;
    abbestell; abo kündigen; newsletter kündigen; aus ihrem verteiler; aus dem verteiler; keine mails mehr;
    keine newsletter mehr; ne plus recevoir; désabonner; me désinscrire; no quiero recibir; no deseo recibir;
    não quero receber; não desejo receber; non voglio ricevere; non desidero ricevere; geen nieuwsbrief meer;
    niet meer ontvangen; nie chcę otrzymywać; proszę o wypisanie; не хочу получать; уберите меня; удалите меня;
    nechci dostávat; almak istemiyorum; vill inte ha; ønsker ikke; en halua; nem kérek; nu mai doresc; δεν θέλω;
    不想再收到; 不要再发; 不要再寄; 配信を停止; 送らないで; 받고 싶지; 그만 보내; opt out; opt-out; optout; remove me;
    remove from list; signoff; abmelden; abmeldung; austragen; désabonn; desabonn; désinscri; desinscri;
    cancelar suscripción; cancelar suscripcion; darse de baja; dar de baja; baja; cancelar inscrição;
    cancelar a inscrição; descadastrar; remover; cancella iscrizione; disiscri; annulla iscrizione; uitschrijven;
    afmelden; wypisz; rezygnacja; отписаться; отписка; відписатися; odhlásit; aboneliğimi iptal; abonelikten;
    avsluta prenumeration; avregistrera; afmeld; meld af; avmeld; peruuta tilaus; leiratkoz; dezabonare; διαγραφή;
    配信停止; 退会; 登録解除; 退订; 退訂; 取消订阅; 수신거부; 수신 거부; 구독 취소; إلغاء الاشتراك; הסר; hủy đăng ký;
    berhenti berlangganan;
    """
)

WISH = re.compile(
    r"\b(?:remove|take|delete|strike|drop|cross|unsubscribe)\b(?:\W+\w+)?\W+(?:me|us|this address|these addresses"
    r"|(?:my|our) (?:\w+ )?(?:e-?mails?|name|address(?:es)?|details|office|company|school|library))\b"
    r"|\b(?:stop|cease)\b(?:\W+\w+){0,2}?\W+(?:sending|mailing|e-?mailing|writing|newsletters?|mailings?|e-?mails?)\b"
    r"|\bcancel\b.{0,30}\b(?:subscription|newsletters?|mailings?|e-?mails?)\b"
    r"|\b(?:off|from)\b(?:\W+\w+){0,2}?\W+(?:mailing|e-?mail|distribution|your|the|this)(?: \w+)? lists?\b"
    r"|\b(?:streich|austrag|abmeld|lösch|entfern|kündig|abbestell)\w*.{0,40}\b(?:mich|meine|verteiler|newsletter|liste)\b"
    r"|\b(?:nehmen|tragen|melden) sie mich\b"
    r"|\b(?:retir|supprim|désabonn|désinscri|enlev)\w*.{0,40}\b(?:moi|me|mon|ma|liste)\b"
    r"|\b(?:elimin|bórr|borren|cancel)\w*.{0,40}\b(?:me|mi|lista|suscripción)\b"
    r"|\b(?:remov|retir|exclu|cancel)\w*.{0,40}\b(?:me|meu|minha|lista|inscrição)\b"
    r"|\b(?:rimuov|cancell|togli|disiscri)\w*.{0,40}\b(?:mi|mio|mia|lista)\b"
    r"|\b(?:verwijder|schrap|haal|meld|schrijf)\w*.{0,40}\b(?:mij|me|mijn|lijst|nieuwsbrief)\b"
    r"|\b(?:wypis|usu|skreśl|wykreśl)\w*.{0,40}\b(?:mnie|mój|listy)\b"
    r"|(?:удалите|уберите|отпишите|исключите|вычеркните).{0,40}(?:меня|мой|рассыл|списк)"
    r"|(?:видаліть|приберіть|відпишіть).{0,40}(?:мене|мій|розсил|списк)"
    r"|(?:vyřaď|odstraň|odhlas|smaž)\w*.{0,40}(?:mě|mne|seznam)|\bta bort.{0,40}\b(?:mig|min)\b"
    r"|\b(?:fjern|slett|slet|meld)\w*.{0,40}\b(?:mig|meg|min|listen)\b|\bpoista\w*.{0,40}\bminu"
    r"|(?:解除|停止|削除)(?:して|を希望|をお願い|願います)|(?:해지|제외|삭제)해 ?주"
    r"|(?:退订|退訂|取消订阅|取消訂閱|移除|删除).{0,10}(?:我|邮|郵|名单|名單)"
)
"""In the first sentences of a letter: take me off the list."""

NO_WISH = re.compile(
    r"\b(?:don['’]?t|do not|never|not to|bitte nicht|ne (?:me )?|no me|não me|nicht) ?(?:\w+ )?(?:remove|unsubscribe"
    r"|take|delete|strike|drop|stop|cancel|abmeld|austrag|streich|lösch|désabonn|désinscri|retir|supprim|borr|elimin"
    r"|remov)"
    r"|\b(?:nehm|nimm)\w*\b[^.!?\n]{0,80} (?:auf|rein|hinein|dazu)\b\s*(?:[.!?]|$)"
    r"|\bi(?:'ve| have)? (?:already |just )?(?:deleted|removed|cancell?ed|erased|dropped|stopped|left|took)\b"
    r"|\bwaiting list\b|\bnehmen sie die neue\b"
    r"|\b(?:new|neue|nouvelle|nueva|nova|nuova|nieuwe) (?:one|address|e-?mail|adresse|dirección|morada|indirizzo|adres)"
)
"""Somebody wants to stay, or to be written to at another address."""

COMPLAINTS = phrases(
    """
    abuse report; spam report; spam complaint; complaint about message from; email abuse; abuse complaint;
    [spamcop (; feedback report; junk mail report; junk report; spam notification; reported as spam; marked as spam;
    client tos notification; this is spam; complaint report; spam-beschwerde; signalement de spam; denuncia de spam;
    segnalazione di spam; жалоба на спам;
    """
)

COMPLAINING = phrases(
    """
    report; complain; abuse; beschwer; gemeldet; meldung; plainte; signal; plaint; queja; denuncia; reclam; denúncia;
    segnala; lament; klacht; melding; skarg; zgłosz; жалоб; жалу; скарг; stížnost; nahlás; şikayet; şikâyet; anmäl;
    klag; anmeld; valitus; panasz; bejelent; plânger; sesiz; παράπον; αναφορ; 投诉; 投訴; 举报; 檢舉; 通報; 申告;
    苦情; 신고; 불만; شكوى; بلاغ; תלונ; דיווח; khiếu nại; báo cáo; keluhan; lapor; marked; flagged; markiert;
    never signed up; did not sign up; didn't sign up; did not ask for; didn't ask for; nicht bestellt;
    stop sending me; unsolicited;
    """
)
JUNK = phrases(
    """
    spam; spämm; junk; unsolicited; unwanted; unverlangt; unerwünscht; indésirable; non sollicit; no deseado;
    no solicitado; não solicitad; indesejad; indesiderat; ongewenst; ongevraagd; niechcian; niezamówion; спам;
    нежелательн; nevyžádan; istenmeyen; oönskad; uønsket; roskaposti; kéretlen; nesolicitat; ανεπιθύμητ; 垃圾; 迷惑;
    スパム; 스팸; مزعج; غير مرغوب; דואר זבל; ספאם; thư rác;
    """
)
"""Together with COMPLAINING in a subject over somebody's message: a complaint."""
