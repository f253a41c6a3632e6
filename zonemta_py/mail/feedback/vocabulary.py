"""Words that tell what a message is, in the languages that servers, people and their programs answer in.

Everything is lower-case, with one space between words, and is looked for as it stands: that is fast, and a phrase that
a line break has torn apart is found. A phrase must be unlikely in a letter of a person.
"""

from __future__ import annotations

import re
import unicodedata

_SHORT = 6
_DIACRITICS = "".join(map(chr, range(0x0300, 0x0370)))


def phrases(text: str) -> tuple[str, ...]:
    """They stand between semicolons. Those in Latin letters with diacritics are there without them, too: much is
    written by systems that have none."""
    said = [phrase for part in text.split(";") if (phrase := " ".join(part.split()))]
    return tuple(dict.fromkeys([*said, *map(_bare, said)]))


def beginning(those: tuple[str, ...]) -> re.Pattern[str]:
    """Finds any of the phrases where a word begins, short ones as a word, or, in writing without spaces, anywhere."""
    return re.compile("|".join(map(_pattern, those)))


def _pattern(phrase: str) -> str:
    if phrase[0] > "\u2e80":
        return re.escape(phrase)
    return rf"(?<!\w){re.escape(phrase)}" + (r"(?!\w)" if len(phrase) < _SHORT and phrase.isascii() else "")


def _bare(phrase: str) -> str:
    bare = unicodedata.normalize("NFKD", phrase).translate(dict.fromkeys(map(ord, _DIACRITICS)))
    return bare if bare.isascii() else phrase


DAEMONS = phrases(
    """
    mailer-daemon; mailer_daemon; maildaemon; mail-daemon; mailerdaemon; mail delivery; mail.delivery; mail deliver;
    maildelivery; postmaster; post_master; post.master; daemon@; mail administrator; mmdf; mail system; mail-system;
    mailsystem; mail router; ndr administrator; mdaemon; interscan; delivery subsystem; delivery-subsystem;
    delivery system; mail gateway; bounce; undeliver; smtp gateway; antivirus; anti-virus; virusscan; mailscanner;
    mailscan; spamfilter; mail filter; mailfilter; mail-filter; mailguard; mailsweeper; noreply-delivery;
    mail transport; mta@; mailrouter;
    """
)
"""In a From field: a mail system's."""

MACHINES = phrases(
    """
    mail; post; smtp; mta; root@; robot; sympa; majordom; listserv; mailman; -owner@; bot@; system; noreply; no-reply;
    no_reply; donotreply; do-not-reply; notif; server; relay; gate; queue; correu; service; daemon; admin; deliver;
    transport; spool; filter; guard; courier; report; alert; watch; support; helpdesk; automat; agent; status; wall;
    spam; virus; secur; scan; bounce; kurier; kurir; layanan; surel; cartero; correo; correio; courrier; poczt; pošt;
    почт; пошт; пощ; послуж; сервер; робот; система; levelez; rendszer; passerelle; zustell; sunucu; järjestelm; 邮;
    郵; メール; 配信; 메일; 시스템; 系统; 系統; البريد; דואר; thư;
    """
)
"""In a From field: a program writes, not a person."""

POSTAL = phrases(
    """
    mailer; del correu; correu@; mail system; mail server; mail gate; mail robot; mail service; mailservice;
    mailserver; mailgate; mail-; mail@; post@; poste@; posta@; posti@; postur@; pasts@; smtp; mta; postman; postal;
    postmast; delivery; courrier; correo; correio; poczt; pošt; почт; пошт; пощ; levelez; pasta; póst; sähköposti;
    e-post; epost; postboks; postvak; mailpoort; 邮件; 郵件; メール; 配信; 메일; البريد; דואר; thư điện; surel;
    ไปรษณีย์; จดหมาย; डाक; मेल; pošte; poštni; posta; postkamer; kirje; پست; gateway; queue; robot;
    """
)
"""In a From field: who brings mail. With the null sender they report, in whatever language."""

FAILURES = phrases(
    """
    undeliver; delivery has failed; did not reach; while attempting to deliver; returned mail; returned to sender;
    mail delivery fail; delivery failure; failure notice; delivery fail; failed delivery; failure delivery;
    non-delivery; nondeliver; non delivery; not delivered; could not be delivered; couldn't be delivered;
    can't be delivered; cannot be delivered; delivery status notification; delivery notification; delivery report;
    mail system error; mail failure; message delivery has failed; mail could not be delivered; error sending;
    no s'ha lliurat; no s'ha pogut lliurar; ni bila dostavljena; nije isporučena; bounce event; bounce report;
    hard bounce; hard-bounce; hard bounced; message rejeté; message refusé; mensaje rechazado; mensagem rejeitada;
    messaggio rifiutato; bericht geweigerd; nachricht abgelehnt; wiadomość odrzucona; сообщение отклонено;
    n'a pas été diffusé; niet aangenomen; nicht angenommen; no fue aceptad; non è stato accettato; não foi aceit;
    nie został przyjęt; не принят; не прийнят; nebyla přijata; kabul edilme; togs inte emot; ble ikke mottatt;
    blev ikke modtaget; ei hyväksytty; zurückgekommen; kommt zurück; vissza; konnten wir nicht zustellen;
    nicht weitergereicht; nicht weitergeleitet;
    kunne ikke afleveres; kunde inte lämnas; nepodarilo doručiť; nemohli odoslať; nedoručen; nem tudtuk kézbesíteni;
    nu am putut livra; nu a ajuns; не можахме да доставим; не беше доставен; не смог передать; не смогли доставить;
    не змогли доставити; teslim edemedik; ulaşmadı; لم نتمكن من تسليم; לא הצלחנו למסור; تحویل داده نشد; 未能送到;
    无法送达; 沒有送達; 投递不了; 配達できませんでした; お届けできません; 전달되지 못; 배달하지 못; không gửi được;
    chưa được gửi; ส่งไม่ถึง; tidak sampai; tidak dapat kami teruskan; delivery error; mail error; mailer error;
    unable to deliver; not deliverable; message rejected; mail rejected; rejected:; email delivery failure;
    returning message; returning to sender; bounced; user unknown; unknown user; address unknown; invalid address;
    delivery problem; unzustellbar; nicht zugestellt; unzustellbarkeit; zustellung fehlgeschlagen; nicht zustellbar;
    non remis; non distribu; échec de la remise; echec de la remise; non délivr; echec de remise; échec de remise;
    non livré; non entregable; no se pudo entregar; no entregad; no se puede entregar; error de entrega;
    fallo en la entrega; correo devuelto; mensaje devuelto; não entregue; nao entregue; falha na entrega;
    não foi possível entregar; não pôde ser entregue; devolvid; mancato recapito; recapito non riuscito;
    non recapitabile; impossibile recapitare; mancata consegna; non consegnato; onbestelbaar; niet bezorgd;
    niet afgeleverd; kan niet worden bezorgd; niedostarczon; nie dostarczono; nie można dostarczyć; zwrot; niedoręcz;
    недоставлен; не доставлен; не может быть доставлен; ошибка доставки; невозможно доставить; не удалось доставить;
    недоставка; не вдалося доставити; nedoručiteln; nebylo možné doručit; teslim edilemedi; teslim edilemiyor;
    iletilemedi; gönderilemedi; kunde inte levereras; går inte att leverera; gick inte att leverera; olevererat;
    kunne ikke leveres; ikke leveret; uleverbar; kan ikke leveres; toimitus epäonnistui; ei voitu toimittaa;
    ei voida toimittaa; kézbesíthetetlen; nem kézbesíthető; sikertelen kézbesítés; nelivrabil; nu a putut fi livrat;
    δεν παραδόθηκε; αποτυχία παράδοσης; 退信; 无法投递; 未送达; 投递失败; 发送失败; 無法傳遞; 傳送失敗; 無法投遞;
    退回; 配信できません; 配信不能; 配信エラー; 送信できません; 送信エラー; メールエラー; 届けられません; 届きません;
    未配信; 배달되지; 반송; 전송 실패; 발송 실패; 배달할 수 없; 전달할 수 없; 전달되지; تعذر التسليم; فشل التسليم;
    فشل تسليم; لم يتم تسليم; לא נמסר; לא ניתן למסור; gửi không thành công; không thể gửi; ส่งไม่สำเร็จ; वितरित नहीं;
    नहीं पहुँचा; nie doręczon; ni mogoče dostaviti; ni bilo mogoče dostaviti; nav piegādāt; neizdevās;
    komst ekki til skila; kom ikke frem; kom inte fram; niet kunnen bezorgen; ไม่สามารถส่ง; tidak terkirim;
    gagal dikirim; gagal terkirim; tidak dapat dikirim; neisporuč; did not reach the following; failed mail;
    mail has been returned; message has been returned; wasn't able to deliver; was not able to deliver;
    was unable to deliver; were unable to deliver; intended recipient; email bounce; mail bounce; bounce notification;
    bounce message; was rejected; has been rejected; could not deliver; cannot deliver; can not deliver;
    permanent fatal errors; failed permanently; no such user; no such recipient; mailbox full; mailbox is full;
    quota exceeded; over quota; does not exist; not been delivered; message you sent blocked; was blocked by;
    has been blocked; could not be sent; couldn't be sent; not be relayed; failed to deliver; failed to be delivered;
    not a valid user; not a valid recipient; not a valid address; no se ha podido entregar; no ha podido ser entregad;
    no pudo ser entregad; devolución de correo; devolución del mensaje; n'a pas pu être remis; n'a pas pu être délivr;
    n'a pas pu être livr; n'a pas pu être distribu; n'a pas été remis; retour à l'expéditeur;
    konnte nicht übermittelt; konnten nicht zugestellt; nicht ausgeliefert; rücksendung; unzustellbare;
    non è stato recapitato; non è stato consegnato; non è stato possibile recapitare; messaggio respinto;
    não foi entregue; não pode ser entregue; mensagem devolvida; retorno de mensagem; kon niet worden bezorgd;
    kon niet worden afgeleverd; kon niet afgeleverd; nie została dostarczona; nie mogła zostać dostarczona;
    niedoręczon; не была доставлена; не было доставлено; не может быть доставлено; не удалось отправить;
    возврат письма; не доставлено; nepodařilo doručit; nelze doručit; nebyla doručena; ulaştırılamadı; iletilemiyor;
    har inte levererats; inte kunnat levereras; blev ikke leveret; er ikke levert; kunne ikke sendes; ei toimitettu;
    nem sikerült kézbesíteni; nem lehetett kézbesíteni; nu a fost livrat; nu poate fi livrat;
    δεν ήταν δυνατή η παράδοση; 无法送到; 被退回; 投递不成功; 未能送达; 未能投递; 发送不成功; 無法送達; 無法傳送;
    投遞失敗; 寄送失敗; 配達できません; 配信できなかった; 送信できなかった; 送信に失敗; 配信に失敗; 届けできません;
    보내지 못; 전송되지; 전송하지 못; 전달하지 못; 반송되; 발송되지; تعذر تسليم; تعذر إرسال; لم تصل رسالتك; לא הגיעה;
    לא ניתן היה למסור; thư bị trả lại; ถูกตีกลับ; dikembalikan; не е доставен; nije isporučen; nije moguće isporučiti;
    sporočila ni bilo; nepavyko pristatyti; neizdevās piegādāt; ei õnnestunud; не може бути доставлен;
    повернення листа; mail returned; message returned; was returned; is returned; letter returned;
    been returned to you; virus in your; virus in a; virus found; virus detected; virus alert; contained a virus;
    contains a virus; not reach its; did not arrive; could not reach; cannot be reached; was not accepted;
    were not accepted; not be processed; zurückgewiesen; zurückgesendet; zurückgeschickt; abgewiesen; abgelehnt;
    konnte nicht gesendet; a été rejeté; a été refusé; rejeté par; rechazado; ha sido devuelto; fue devuelto;
    rejeitad; recusad; rifiutat; respint; geweigerd; teruggestuurd; odrzucon; zwrócon; отклонен; возвращен;
    возвращено; отклонено; відхилен; повернено; odmítnut; vráceno; reddedildi; geri döndü; avvisat; avvist; afvist;
    palautettu; elutasít; visszaküld; respins; απορρίφθηκε; επιστράφηκε; 拒收; 拒绝接收; 受信拒否; 返送; 수신 거부됨;
    رفض; נדחתה; bị từ chối; ถูกปฏิเสธ; ditolak;
    """
)
"""In a subject or text: it was not delivered."""

_FAILED = re.compile(
    r"\b(?:not|never|cannot|can't|couldn't|didn't|wasn't|weren't|hasn't|haven't|won't|unable|failed|impossible|nobody)\b"
    r"(?:\W{1,3}\w{1,20}){0,4}?\W{1,3}(?:deliver\w*|hand\w* (?:over|to)|accept\w*|reach\w*|arrive\w*|receive\w*"
    r"|get|gets|got|served|placed|stored|sent|send|forward\w*|pass\w* on|relay\w*|transmi\w+|transfer\w*|bring"
    r"|brought|processed)\b"
    r"|\b(?:was|were|has|have|had|is|are|be|been|being)\b(?:\W{1,3}\w{1,20}){0,2}?\W{1,3}"
    r"(?:reject|refus|return|bounc|block|turned (?:down|away|back)|sent back|given back|discard|dropped|destroy"
    r"|withheld|declin|denied|thrown away|undeliver|stopped)"
)


def fails(words: str) -> bool:
    """Whether the words, lower case with single spaces, say that something was not delivered."""
    return says(words, FAILURES) or _FAILED.search(words) is not None


REASONS = phrases(
    """
    user; recipient; address; mailbox; account; quota; full; exist; reject; refus; block; spam; junk; virus; infect;
    unknown; invalid; not found; policy; large; size; relay; attach; connect; time; host; domain; expire; day; long;
    empfänger; benutzer; postfach; adresse; konto; unbekannt; abgelehnt; voll; destinat; usuario; usuário;
    utilisateur; utente; buzón; caixa; casella; boîte; plein; lleno; cheia; piena; rechaz; rejet; rifiut; rejeit;
    desconoc; inconnu;
    """
)
"""In a clause about a failure: it also tells why."""

DELAYS = phrases(
    """
    delay: ; delayed: ; message kept; kept for up to; retried every; is waiting in; waits in the; waiting in our queue;
    we go on trying; we try again; try it again; go on until; new attempt; neuer versuch; wird später zugestellt;
    wartet auf; in attesa; nuovo tentativo; en attente; nouvel essai; nouvelle tentative; en espera; nuevo intento;
    em espera; nova tentativa; oczekuje na; ponowimy; ожидает; повторим; очікує; čeká na; čaká na; bekliyor;
    yeniden dene; står i kö; nytt försök; i kø; nyt forsøg; nytt forsøk; odottaa; uusi yritys; várakozik;
    în așteptare; 待機中; 再試行; 再送を; 重试; 重試; 等待; 대기; 재시도; قيد الانتظار; بانتظار; ממתינ; đang chờ;
    menunggu; रुकी; รอการ; attempts continue; wir probieren; probieren es; liegt noch bei uns; będzie próbowa;
    będziemy próbowa; nadal próbuj; próby będą; on continue; nous poursuivons; seguirá probando; seguiremos probando;
    continuaremos a tentar; vamos continuar; continueremo; proveremo ancora; blijven proberen; proberen het tot;
    prøver igen; prøver videre; prøver på nytt; försöker igen; yrittämistä jatketaan; próbálkozunk; vom încerca;
    ще опитаме; продолжим попытки; 引き続き; 継続して; keep trying; been queued for; next try; next attempt;
    is waiting; warning message only; delivery status notification (delay; delivery delayed; message delayed;
    delayed mail; has been delayed; keep the message; keep your message; keeps your message; look again; so far;
    next one at; next attempt at; has not yet been delivered; not yet been delivered; will be retried;
    delivery attempts will continue; will continue to try; warning--could not send; warning: could not send;
    warning: message; still being retried; will keep trying; still trying; is delayed; mail delayed; delayed delivery;
    temporarily delayed; you do not need to resend; delivery incomplete; not been delivered yet; zustellung verzögert;
    wird verzögert; verspätet; verzögert sich; verzögerung; remise retardée; livraison retardée; a été retardé;
    a été différé; entrega retrasada; se ha retrasado; entrega demorada; atrasada; entrega adiada; consegna ritardata;
    in ritardo; recapito ritardato; vertraagd; opóźnion; opóźnienie; задерж; отложена; gecikti; fördröj; försenad;
    forsinket; viivästy; zpožděn; odložen; 遅延; 遅れて; 延迟; 延遲; 지연; تأخر; תעוכב; καθυστέρ; késlelte; întârzi;
    trì hoãn; tertunda; ล่าช้า; could not be delivered yet; couldn't be delivered yet; cannot be delivered yet;
    not delivered yet; not yet delivered; go on trying; keep on trying; continue trying; we will try again;
    will try again; further attempts; will be tried again; is being retried; message is still in the queue;
    still queued; noch nicht zugestellt; weiter versucht; weitere versuche; erneut versucht; pas encore été remis;
    pas encore été délivré; pas encore pu être; est retardé; message retardé; nouvelles tentatives; essaierons;
    réessaie; aún no se ha; todavía no se ha; nuevos intentos; seguirá intentando; seguiremos intentando;
    ainda não foi entregue; novas tentativas; continuaremos tentando; non è stato ancora; non è ancora stato;
    nuovi tentativi; ulteriori tentativi; nog niet bezorgd; nog niet afgeleverd; opnieuw geprobeerd;
    jeszcze nie został; ponowne próby; пока не доставлен; ещё не доставлен; еще не доставлен; попытки будут;
    попытки доставки; повторные попытки; ще не доставлен; dosud nebyl; další pokusy; henüz teslim; tekrar denenecek;
    ännu inte levererat; nya försök; endnu ikke leveret; ennå ikke levert; ei vielä toimitettu; yritetään uudelleen;
    még nem kézbesít; újrapróbál; încă nu a fost; 尚未投递; 尚未送达; 将继续尝试; 繼續嘗試; 再送を試み; 再試行;
    まだ配信; 계속 시도; 다시 시도; ستتم المحاولة; akan dicoba lagi; sẽ thử lại; remains in our queue;
    remains in the queue; stays in the queue; stays in our queue; kept in the queue; kept in our queue;
    still in our queue; still in the queue; carry on trying; we carry on; keep at it; we keep on; we shall try;
    we'll try again; we'll keep trying; will be attempted again; we will retry; we shall retry; we'll retry;
    next delivery attempt; next retry; takes longer; for the time being; not given up;
    no action is required on your part; need not do anything; need to do nothing; don't have to do anything;
    do not have to do anything; wir versuchen es; versuchen es weiter; bisher nicht; weiterhin versucht;
    bleibt in der warteschlange; in der warteschlange; nächster versuch; bislang nicht; nous réessay; nous continu;
    prochaine tentative; reste dans la file; en file d'attente; en attente de livraison; sigue en espera;
    sigue en cola; próximo intento; volveremos a intentar; seguimos intentando; se seguirá; próxima tentativa;
    continua na fila; tentaremos novamente; voltaremos a tentar; prossimo tentativo; riproverem; ritenteremo;
    resta in coda; è ancora in coda; volgende poging; blijft in de wachtrij; we proberen het; blijven het proberen;
    następna próba; kolejna próba; kolejne próby; pozostaje w kolejce; będziemy próbować; spróbujemy;
    следующая попытка; остается в очереди; остаётся в очереди; находится в очереди; будет повторена; попробуем;
    наступна спроба; залишається в черзі; další pokus; zůstává ve frontě; sonraki deneme; kuyrukta; nästa försök;
    ligger kvar i kön; næste forsøg; neste forsøk; ligger i kø; seuraava yritys; pysyy jonossa; következő kísérlet;
    következő próbálkozás; 次回の; 再送します; 再送いたします; 送信待ち; 下次尝试; 仍在队列; 稍后重试; 下次嘗試;
    仍在佇列; 대기 중; 다음 시도; 재시도; lần thử tiếp; percobaan berikutnya; επόμενη προσπάθεια; המשך ניסיונות;
    ננסה שוב; سنحاول; سنعاود;
    """
)
"""It is still tried."""

FINAL = phrases(
    """
    giving up; abandoned; given up; gave up; permanent error; failed permanently; permanent fatal;
    will not be retried; no further delivery attempts; not going to try again; permanent failure;
    could not send mail for 5; endgültig; will not succeed; message expired; expired in; expired after; time is up;
    ran out of time; lifetime is over; last attempt; final attempt; no further attempt; no more attempt;
    not be tried again; not try again; won't try again; not be attempted again; not be resent; not be sent any more;
    stopped trying; have abandoned; been abandoned; taken out of the queue; taken from the queue;
    removed from the queue; removed from our queue; deleted from the queue; has been removed; has been deleted;
    was deleted; been destroyed; been discarded; been dropped; in vain until; keine weiteren versuche;
    kein weiterer versuch; aufgegeben; nicht erneut versucht; nicht weiter versucht; letzter versuch; gelöscht;
    abandonn; plus de tentative; aucune nouvelle tentative; dernière tentative; supprimé; no se volverá a intentar;
    no se intentará; último intento; se abandon; no se reintentará; não haverá nova; não será tentad;
    última tentativa; desistimos; foi removid; non verranno effettuati; non saranno effettuati; ultimo tentativo;
    rinunci; geen verdere poging; geen nieuwe poging; opgegeven; zaprzestano; ostatnia próba; nie będzie ponown;
    kolejnych prób nie; попыток не будет; попытки прекращены; больше не будет; прекращены; спроб не буде;
    další pokusy nebud; vzdáv; vzdali; tekrar denenmeyecek; vazgeç; inga fler försök; gett upp; gitt opp; opgivet;
    luovuttu; ei yritetä; nem próbál; feladtuk; 再送は行; 再送しません; 断念; 不再重试; 不再尝试; 已放弃; 不再重試;
    已放棄; 더 이상 시도; 포기;
    """
)
"""It is not tried again, whatever else is said about delay."""

DELIVERED = phrases(
    """
    avvenuta consegna; ricevuta di accettazione; kvittering for levering; zustellung erfolgreich; entrega realizada;
    successful mail delivery report; delivery status notification (success; successfully delivered; was successfully;
    has been successfully; relayed; your message was delivered; delivered:; zugestellt:; erfolgreich zugestellt;
    remis avec succès; entregado correctamente; entregue com êxito; consegnato correttamente;
    delivered to the following; has been delivered; was delivered to; zugestellt wurde; wurde zugestellt;
    a bien été remis; a été remis; se ha entregado; foi entregue; è stato consegnato; доставлено адресату;
    """
)

NAMING = phrases(
    """
    recipient; rcpt; address; deliver; addressed to; user; mailbox; account; failed; reach; sent to; message to;
    mail to; to:; to <; for <; for:; bounce; to the following; empfänger; adresse; zustell; an:; benutzer; destinat;
    dirección; endereço; utilisateur; usuario; usuário; utente; indirizzo; casella; ontvanger; adresat; odbiorc;
    adres; получател; адрес; ящик; пользовател; příjemc; alıcı; mottagar; modtager; mottaker; vastaanottaj; címzett;
    收件; 用户; 用戶; 地址; 宛; 受信者; あて先; 送信先; 받는; 수신; 주소; المستلم; נמען; παραλήπτ;
    """
)
"""Before an address: it is a recipient."""

HELPERS = phrases(
    """
    contact; assist; questions; for help; reply to; reported by; send mail to;
    send e-mail to; send email to; forward this; kontakt; wenden sie; contactez; póngase en contacto;
    entre em contato; contatt; identificativo; message id; nachrichten-id;
    обратитесь; обращайтесь; 連絡; 联系; お問い合わせ; message-id; 様; 您好;
    """
)
"""In a line beside an address: it is who helps, or who is written to."""

HELPING = ("support@", "abuse@", "help@", "helpdesk@", "hostmaster@")
"""So begins an address of who helps."""

BOILERPLATE = phrases(
    """
    created automatically; automatically generated; do not reply; not need to resend; warning message only;
    recipients. this is a permanent error; one or more of its; of its recipients; one or more recipients;
    sorry to have to inform; could not be delivered to one or more destinations; below could not be delivered;
    wasn't able to deliver your message to the following; the following address; following recipient;
    further assistance; please send mail to; include this problem report; delete your own text; the postfix program;
    the mail system; program at; mail system at host; original message was received; transcript of session;
    technical details of; this is the mailer-daemon; an error has occurred while attempting;
    the following list of recipients; message will be retried for; your message to the following; failure reasons;
    failed permanently; sorry it didn't work out; i've given up;
    """
)
"""In a line: what every report of its kind says, and what tells nothing of the reason."""


def says(text: str, phrases: tuple[str, ...]) -> bool:
    """Whether one of the phrases is in the text, which is lower-case with single spaces."""
    return any(phrase in text for phrase in phrases)
