"""Words that a wish to leave a list is made of, in the languages that people answer in: by what they do in it.

A word that ends with "-" stands for all that begin so; in writing without spaces each is looked for as it stands.
Without marks and in small letters, as `spelling.folded` makes them.
"""

from __future__ import annotations

LEAVE = """
unsub unsubs unsubscribe unsubscribes unsubscribed unsubscribing unsubscription unsubcribe unsuscribe unsubscibe
unsubscrib deregister optout opt signoff td
abmelden abmeldung abbestellen abbestell- austragen austragung abbestellung abmelde abmeldet
desabonn- desinscri- desabonnement resili- desabo
darme darse denme desuscrib- dessubscrev- desinscrev- descadastr- desinscreva-
disiscri- disiscriz- disicri- disdett- disdir- cancellami cancellatemi cancellarmi cancellazione toglietemi toglimi
rimuovimi rimuovetemi
uitschrijv- uitschrijf afmeld- afmelden uitgeschreven
wypis- wypisz- wypisac- rezygn- wyrejestr-
отпис- отпиш- відпис- відпиш- отказ- відмов-
odhlas- odhlás- odhlaseni odber-
avregistrer- avanmal- avprenumer- avsluta avmeld- afregistr- avbestill-
leiratkoz- dezabon- peruuta peruutan peruuttaa
abonelikten abonelig-
διαγραψτε διαγραφη διαγραψε απεγγραφ- διαγραφω
수신거부 구독취소 구독해지 수신해지 탈퇴
退订 退訂 取消订阅 取消訂閱 退会 退會 配信停止 配信解除 配信中止 登録解除 購読解除 購読中止 購読停止
購読を解除 登録を解除
メルマガ解除 配信を停止 配信の停止 購読をやめ 解約
unsubscribirme baja
הסר הסירו הסירי להסיר
اشتراك- الاشتراك اشتراكي
berhenti
abzumelden abgemeldet abzubestellen austrage austragt abbestelle
desinscriv- desincri- desabonez
desuscrib- desapuntad- desapuntarme
descadastre desinscrever dessubscrever
disiscrivetemi cancellarmi
frameld- frameldt utmeld- avmeld- frameling
anulat- dezabonare dezabonati
odjav- odhlas- odhlasit
irtisanou-"""
"""That alone says it."""

SURE = """
unsub unsubs unsubscribe unsubscribing unsubscription unsubcribe unsuscribe unsubscibe unsubscrib optout
desabonn- desabonnement descadastr- disiscri- leiratkoz- dezabon- отпишите отписаться відпишіть відписатися
avregistrer- 退订 退訂 取消订阅 取消訂閱 配信停止 配信解除 メルマガ解除 수신거부
"""
"""Those of them that mean nothing else: one signs off from courses and meters, too."""

REMOVE = """
rimoss- eliminat- sair salir salirme salirse borttag- bortplock- wypisa- vyjm- vyjmout kivenni kivesz- retire
plocka plockas retirem elimine eliminen poistamaan vyradte odstrante odeberte
schmeisst schmeissen werft nehmt abschalten unterlassen einstellen aufhort
отключ- перестань- прекра- остано- вимкн- припин- silin silinsin cikarin kesin kaldirin kapatin durdurun
移出 去除 踢出 取消掉 停发 关闭 やめて 消して 止めて 外し 빼주 끊 지워 중지해 해지해
desactiv- desconect- suspend- supprim- ôtez sortez sortir effacez cessez desinscrire desapunt- desapuntenme
parad basta smett- stoppa stoppe sluta upphor avsluta slet slett fjern lopettakaa poistakaa hagyjak abba
torolje vegyenek ki
opriti incetati scoateti σταματηστε βγαλτε διαγραφω ξεγραψτε
توقفوا احذفوا ازيلوا שלחו תפסיקו הפסיקו מחקו תורידו להוריד huy bo ngung dung hentikan keluarkan
odebrat zrusit zruste odepsat vyradit vymazat vyskrtn- rozesil-
remove removed removal delete deleted take taken taking strike drop cross get stop cease end cancel cancelled canceled
cancellation quit discontinue terminate exclude erase leave leaving rid withdraw
streichen streicht nehmen nimm nehmt verzicht- widersprech- widerspreche loschen losche entfernen entfernt entferne
kundigen kundige kundigung
stoppen stopp stoppt beenden beende aufhoren tilgen raus
retir- supprim- enlev- ote- otez arret- annul- effac- radi- cess- stopper
quit- quiten- quitenme quitarme elimin- eliminen- borr- borren- borrarme cancel- dej- dejen retir- saqu- saquen sacar
sacarme parar paren anular
remov- retir- tira tire tirem tirar exclu- apag- apaguem par- parem deix- deixar anul-
rimuov- togli- cancell- elimin- tolg- smett- smettetela basta annull- interromp- cessa-
verwijder- schrap- haal halen stop stoppen
usun- wykresl- skresl- przestan- przestac zrezygn- skasuj- zaprzesta- wymaz-
удал- убер- исключ- вычеркн- прекрат- остановит- перестан- снимит- убрать
видал- видаліть прибер- викресл- припин- виключ- зніміть
vyrad- vyrad- odstran- smaz- zrus- zruseni vymaz- prestan-
ta bort sluta stryk radera slett- slet- fjern- stop stoppe stryk-
poista- lopeta- lopettakaa
sil- silin cikar- cikarin iptal kaldir- durdur- gondermeyin atmayin yollamayin
torol- toroljenek toroljon vegye szedjen allits-
sterge- stergeti scoate- scoateti elimin- opriti anul-
βγαλτε αφαιρ- σταματ- ακυρ-
제외 삭제 해지 취소 거부 중단 중지 차단 그만 빼
删除 移除 刪除 去掉 取消 停止 拿掉 别再 不要再 别 別再 請勿 请勿
解除 停止 削除 中止 止め やめ 外して 抹消
حذف إزالة ازالة أزل احذف إلغاء الغاء ايقاف إيقاف توقف
הורידו הוריד תמחקו מחקו בטל בטלו לבטל הפסיקו
enough genug schluss assez bastante doen dosc хватит досить отстаньте dost genoeg yeter eleg destul 够了 結構
huy xoa ngung dung hapus hapuskan keluarkan stop
hort lasst unterlasst verschont verschonen abstellen stellt rausnehmen rauswerfen loscht kundigt
laissez fichez foutez virez vire barrez ray- desincrire
quitad quitadme borrad borradme sacad sacadme basta borrarme saquenme eliminadme
pare parai chega apague apaguem excluam excluir
smettila smettetela fermate finitela levatemi togliete cancellate rimuovete lasciatemi
ophouden stopt verwijdert schrappen
przestancie przestan usuncie usunac skonczcie koniec wykresli-
уберите убирайте прекращайте отстань достали завязывайте кончайте удалить
кінчайте годі приберіть
vyskrt- skoncete dost zastavte smazat
slutt slutta avslutt- stans- stopp sletta raderas
loppu lopett- lopet- riitta- poistaa poistettava
cikmak cikayim ayril- silmek silinmek sildir- birakin keser kesin cikart-
torles- torl- hagyjanak hagyd szuntess- allits- vegyel vegyek
terminati lasati incetat- stergere scoat-
σβησ- αφαιρεστε διαγραψετε
删 刪 删掉 刪掉 移走 剔除 拉黑 屏蔽 取关 住手
外す 消す 打ち切
"""
"""That says it of somebody's name or of a list."""

CARRY = """
take taken taking get drop cross leave leaving withdraw lift strike
nehmen nimm nehmt raus stellt werft verzicht- widersprech- widerspreche
sortez sortir barrez ray-
haal halen
sac- saqu- tirar tira tire
levatemi
取消 外し
"""
"""Those that move something, or say no to it: they need to say whom, or from what."""

OFF = """
off af raus weg rid loswerden vaek pois pryc fuori dehors fuera вон прочь
"""
"""Where to."""

ME = """
me us myself ourselves i'd
mich uns
moi nous m me moi
me nos mi
me nos mim
mi ci me
mij me ons
mnie nas mi
меня нас мне нам
мене нас мені нам
me nas mi mne
mig mej meg os oss
minut minua meidat
beni bizi bana bize
engem minket nekem
ma mie ne mine
με μας μου
저 저를 저희 저의 제
我 我们 我們
私 わたし
ني لي
אותי אותנו לי
toi tui saya kami
"""

TARGET = """
osoit- listalta listaltanne dados courriers adresser subskrypcji subskrypcje zasilani utskicken vermelding
bulletin bulletins circular circulars mailshot mailshots bestand inscripcion inscription inscriptions
werbezwecken werbezwecke nutzung daten utskicken
communication communications correspondence contacting contact updates offers newsletter's emailer mailout mailouts
uyelik- uyeligim- kayd- gonderi- mailleri mailini listeniz- rundschreiben werbemails werbepost kontakt
送って 送って来 送信 お知らせ 案内 メッセージ 列表中 通讯 推送 推广 消息 短信 보내지 문자 알림 뉴스 홍보
рассыл- письмами почту спамить спам коммуникац- оповещен- уведомлен- розсил- спам сповіщен-
comunicaciones comunicacoes comunicazioni communications correspondance correspondencia promociones promocoes promozioni
utskicken reklam reklame mainoksia mainospost- mainonta hirdetes- reklamlevel- reclame- reclama promotii διαφημισ-
neposilejte posilejte rozesilk- newsletteru reklam- ofert reklamy korespondenc-
list lists newsletter newsletters mailing mailings maillist email emails mail mails message messages subscription
subscriptions distribution database contacts emailing spam junk ads advertising promotions promo promos address
addresses name details marketing send sending mailinglist
liste verteiler mailverteiler newsletterverteiler werbung nachrichten adresse mailadresse emailadresse abo abonnement
infomails rundmail rundbrief werbemails zusendung schicken senden zuschicken
liste listes diffusion courriel courriels mailing fichier fichiers envoi envois publicite publicites messages
infolettre abonnement envoyer pub coordonnees
lista listas correo correos boletin boletines publicidad suscripcion mensajes distribucion enviarme mandarme envien
manden direccion datos base
lista boletim mensagens subscricao inscricao assinatura publicidade envio morada endereco enviar mandar cadastro
lista newsletter posta iscrizione messaggi mandarmi inviarmi inviare pubblicita indirizzo indirizzi
lijst nieuwsbrief nieuwsbrieven mailbestand berichten reclame adres mailadres emailadres mailadressen bestand sturen
listy lista newslettera newsletter maili wiadomosci mailingowej mailingu subskrypcji wysylac adres bazy
рассылк- список списка писем письма письмо почт- адрес подписк- базы спам сообщени- присыла- слать шлите писать
розсилк- списку лист- адрес- підписк- бази надсила-
seznam- novin- zprav- mail- odber- adres- databaz- posilat
listan lista nyhetsbrev- mejl mejlen utskick prenumeration- mejlutskick mejladress skicka adress listen nyhedsbrev-
e-post epost eposter poster post liste mailliste sende adresse
listalta lista listaltanne uutiskirje- viestej- sahkopost- tilau- postituslista- lahettakaa
listeden listenizden liste bulten- posta postalar- mesaj- abonelik- gonder- adres- mail-
lista- hirlev- level- uzenet- cime- ertesit- feliratkoz-
lista newsletter- emailuri email- mesaje- abonament- adres- trimit- posta
λιστα email μηνυματα newsletter ενημερωτικ- λαμβανω
메일 메일을 뉴스레터 리스트 명단 목록 이메일 이메일을 구독 수신 메일링 보내- 광고
邮件 郵件 名单 名單 列表 邮箱 郵箱 订阅 訂閱 信 垃圾 广告 廣告 邮件列表 发 发送 寄
メール メルマガ リスト 配信 購読 登録 ニュースレター 名簿 アドレス 送ら
القائمة قائمة بريدي البريد الرسائل رسائل رسائلكم النشرة
רשימת התפוצה מרשימת מהרשימה רשימה מיילים דיוור הודעות מייל
alone ruhe tranquille paz pace peace rust spokoju spokoj покое спокое fred rauhaan rahat beke
dang ky thu email daftar milis surel langganan berlangganan
mailinglijst maillijst verzendlijst mailinglist adressenlijst mailingliste adressliste kartei datei datenbank
fichier carnet bdd mailing-list
listado registro registros contacto contactos
contacto contactos emails mails
rubrica elenco database contatti
mainos- mainosten mainosviest- rekister- rekisterista sahkopostiosoite- sahkopostilist-
maillista kundregister register registret reklambrev
mailliste mailingliste mailinglista adresseliste kundeliste kundekartotek
uyelik- uyeligim- eposta- mailiniz- e-posta e-postalar- sms
adatbazis- hirlevelet
kontaktow bazie mailingow listy
"""
"""What one is taken off, or gets no more of."""

SEND = """
send sending mail mailing email emailing write writing spam spamming contact contacting bother bothering
schicken schickt schick schicke senden sendet sende sendest zusenden zuschicken schreibt schreiben belastigen belastigt
envoyer envoyez envoie ecrire ecrivez spammer
enviar enviarme envien envies enviame enviad enviadme mandar mandarme manden mandes mandad mandadme escribir escribirme
escriban escribais mandeis envieis enviem mandem mandar escrevam escrever
mandarmi mandare mandate mandatemi mandi mandatemela inviarmi inviare inviate inviatemi invii scrivermi scrivete
scrivetemi spedite spedirmi
sturen stuur stuurt mailen mailt toesturen schrijven
wysylac wysylajcie wysylaj przysylac przysylajcie przysylaj pisac piszcie
присыл- слать шлите посыл- отправля- писать пишите
надсил- слати шліть писати
posilat posilejte neposilejte zasilat zasilejte psat neposilat
skicka skickar skriva maila mejla sende sender skriv sende skicke
lahett- lahet-
gonder- yolla- atma- atmayin atmayiniz atma atmak yazma-
kuldj- kuldeni kuldes kuldoz- irjanak
trimit- trimiteti
στελν- στειλ-
보내 보내지 보내는
发 发送 寄 发邮件 發 传
送ら 送って 送る 送信
ارسال إرسال ترسلوا
לשלוח
"""
"""What those who write to one do."""

WANT = """
want wish wants wishing need receive receiving interested like getting care desire
mochte mochten will wollen wunsche wunschen erhalten bekommen brauche haben empfangen interesse interessiert
souhait- veux voudr- desir- recevoir recois recoive interess- voulons besoin
quiero quisier- deseo desea- recibir interes- queremos necesito
quero queremos desejo desejamos receber interess- preciso gostar- pretendo
voglio vorrei desider- ricevere vogliamo interess- serve
wil willen wens wensen ontvangen krijgen hoef
chce chcemy zycz- otrzymywac dostawac potrzebuj-
хочу хотим желаю желаем получать интерес- нужн- нуждаюсь
хочу бажаю отримувати цікав-
chci chceme preji dostavat prijimat nepreji stojim zajem
vill onskar ha faa fa motta modtage ta emot onsker vil har faa
halua haluan haluamme kiinnosta-
istemiyorum istemiyoruz almak ist-
szeretne- kapni ker- erdekel
doresc vrea vreau primesc sa interesat
θελω θελουμε επιθυμω λαμβανω ενδιαφερομαι λαβω
원하지 받고 싶지 싶습니다 않습니다 않아요 받지 관심
想 想要 收到 接收 需要 要 收
欲し 不要 希望 受け取り
أريد اريد استلام أرغب ارغب تلقي
רוצה מעוניין מעונין מעוניינת לקבל מבקש
muon nhan ingin mau menerima
"""
"""With a NOT: I want no more of it."""

NOT = """
inget intet ingenting nothing nada niente rien niets nic nic ничего нічого hicbir semmi nimic τιποτα mitaan
neposilejte neposilat nezasilejte nechte wysylajcie gondermeyiniz kuldjenek μη לא تتوقف
not no don dont t doesn never nor don't
nicht kein keine keinen keinerlei nie nichts
ne n pas plus jamais aucun aucune non
no nunca ningun ninguna
nao não nunca nem nenhum
non mai nessuna niente nessun
geen niet nooit
nie zadnych
не нет никаких
не ні ніяких немає
nechci nechceme ne nic zadne nepreji neposilejte nesmaz- nevyraz- nemazte nechte
inte ej inga ingen ikke ingen
en emme ei alkaa ala eivat ette
yok istemiyorum istemiyoruz cikarmayin silmeyin gondermeyin atmayin
nem ne sem
nu niciun
δεν μην
않 안 말아 마세요 말고 않습니다 않아요 싶지 원하지 그만
不 不要 别 別 勿 没 不再
不要 ない ません ないで 不必要
لا ليس
לא אל
dung khong tidak jangan
"""

MORE = """
more longer anymore any further again already now henceforth
mehr weitere weiteren weiterhin langer weiter
plus davantage autres encore desormais
mas más otros ya
mais outros mais
piu altre altri ulteriori altra
meer verder langer
wiecej juz kolejnych dalszych
больше более дальше
більше надалі
uz vice dalsi
fler mer langre flere mere lenger laengere
enaa enempaa enää
artik daha
tobb tobbe
mai
αλλα πια πλεον
더 이상 더이상 앞으로
再 了 继续 以后
もう これ以上 今後 以後
المزيد بعد
יותר עוד
nua lagi
"""

FILLER = """
podeis podriais puedes buenas scheiss verdammten verdammter damn damned bloody fucking crap shit maldita fichue foutue
ni chcialbym chcialabym gory pyydan agradeco agradezco agradeceria ten bij voorbaat zu already twice this electroniques
zou willen mogen moge kunne lehet szeretnem bardzo uprzejmie halusin voisitteko voisitko muzete mohli mohl byste
gelieve vuestro vuestra vuestros vuestras vuestras nostri vh hi moin gruss könnt konnt ma bli blive vill kan
please pls plz kindly thanks thank you thx ty could can would may from off of out your yours the this that these those
my our my to for at in on any all once immediately now asap today and or with team hello hi hey dear sir madam regards
best cheers just so such as soon possible it them be is am a an do i we again sent iphone ipad android by here would
request requested distribution company's via also address e sincerely ever since effective immediate wish let go
bitte danke vielen dank aus von vom dem den der die das des ihrem ihren ihrer ihre ihr ihnen eurem eurer euren euch
diese dieser diesen dieses sofort umgehend hiermit ab aus ein eine einen mehr auf und guten tag hallo mit freundlichen
grussen gruss grusse viele ich wir sie meine meinen meiner mein unsere unser im zum zur e an fur jetzt gern gerne
konnen konnten wurden doch endlich lg mfg es das
svp merci s'il vous plait s il vous plait de du des la le les l d votre vos vôtre mon ma mes notre nos cette ces ce cet
bonjour cordialement bien veuillez immediatement je nous j vouloir bien pour toute tout tous et a au aux en sur par
recevoir se pourriez pouvez demande salutations stp
por favor gracias de del su sus la el los las lista hola buenos dias inmediatamente esta este estos estas mi mis un una
al y a que saludos cordial atentamente solicito mas pido ruego ya desde en para quisiera ser pueden podrian les dar mas
obrigado obrigada por favor favor da do das dos desta deste dessa desse destes estes estas estes meu minha o a os as
vossa vosso sua seu suas seus ola bom dia imediatamente um uma e em para que já gostaria dos na no mais peco
grazie prego per favore cortesemente dalla dal dalle dai della del dei delle vostra vostro vostre vostri questa queste
questo la il lo le i mio mia mie buongiorno salve subito di da a un una gentilmente cortesia saluti vi che e con gentili
chiedo vogliate essere potete cordiali l d
aub a.u.b alstublieft alsjeblieft graag dank bedankt u van voor uit uw je jullie de het deze dit af mijn onze per direct
mvg groet groeten kunt kun ik wij en een met op te aan in vriendelijke direct beste
prosze dziekuje dzieki z ze od moj moja mojego swojej waszej waszego panstwa tych te ta tego do w na pozdrawiam o sie
ja my natychmiast dzien dobry z poważaniem uprzejmie witam
пожалуйста прошу спасибо из от с со вашей ваш вашу ваши вашего этой эти этого мой мою моего на и здравствуйте срочно
немедленно от я мы добрый день уважением просьба вас вам в эту это электронный электронную для
будь ласка прошу дякую з із від ваші вашої вашу цієї мій мою на і добрий день я ми негайно вашої
prosim dekuji diky z ze od o vas vase vasi vaseho tento tyto muj moji me a dobry den si svuj s pozdravem ihned ja my
tack snälla snalla vanligen från fran er era din dina den det denna dessa detta min mina och hej till jag vi pa bort tak
tack venligst fra jeres dine disse dette mit mine og hej vennligst deres jeg at av af vi flere mvh hilsen om omgaende
dere dem
ottaa kiitos ystavallisesti näitä naita tältä talta teidan postituksenne minun ja hei pois en enaa olkaa hyva
lutfen tesekkurler tesekkur e sizin bu benim bir merhaba hemen saygilar ve edin ediniz ederim beni gonderimlerinizden
kerem kerjuk koszonom kosz a az le rol errol onok minden meg udvozlettel kedves nevem es e szeretnem
va rog multumesc din de la sa acest aceasta dvs mea meu imi si buna ziua o vreau fiti amabili m ati
παρακαλω ευχαριστω απο τη την το τα τις σας αυτη αυτα μου να της του και καλημερα
부탁 부탁드립니다 부탁합니다 주세요 해주세요 해 좀 에서 감사합니다 안녕하세요 이 그 합니다 요청 바랍니다 저를
하고 싶습니다 싶어요 하겠습니다 신청 신청합니다 제발 보내지
请 請 把 从 從 你们 你們 贵公司 贵司 的 了 谢谢 謝謝 您 您好 你好 给 給 麻烦 麻煩 帮 幫 帮忙 一下 中 吧 啊 将 將
这个 這個 我的 到 里 里面 本人 立即 马上 来 掉 们
お願いします お願いいたします お願い致します お願い ください 下さい して を の は が に へ で から て 希望 希望します
したい です ます いたします します 不要 ありがとうございます すみません 今後 お手数ですが よろしく 申し訳 もう 願います
ご です。たい ん
من فضلك فضلكم رجاء الرجاء أرجو ارجو شكرا هذه هذا في على عن إلى
בבקשה נא תודה את של שלכם הזאת הזה שלי אנא תודה שלום
vui long lam on cam cho khoi tu cua toi nay xin tolong mohon terima kasih dari ini anda
porfavor dadme dame dajcie bedankt kunnen zouden jer i isso isto esto eso questo cela ca ceci damit davon hier etmek
etmenizi det dit
teilt teilen finalmente endlich enfin
"""
"""That changes nothing of it."""

STAY = """
anmeld- aufnehmen aufzunehmen aufnahme apunt- inscri- iscriv- aanmeld- inschrijv- zapis- подпиш- подпис- prihlas-
tilmeld- feliratkozn-
keep stay remain continue subscribe resubscribe mistake accidentally miss missing missed loved instead except
behalten bleiben vermisse vermissen versehentlich irrtum weiterhin
garder rester reste continuer manquent manque erreur
seguir quedarme mantener extrano menos error
continuar manter saudades engano
restare rimanere continuare manca errore tenere
blijven houden mis vergissing
zostac brakuje pomylk-
остат- скуча- ошибк- оставьт-
залиш- сумую
zustat chybi omyl-
stanna kvar saknar misstag savner
kaipaan
ozledim
hianyzik
lipseste
想念 误 错
届きません
"""
"""Somebody who likes it, or has left by mistake."""

ASKING = """
why how what who where when which whether if unless until
warum wieso wie wer was wann ob wenn falls welche
pourquoi comment qui quand quoi si
por porque cuanto cuando quien donde cual si
porque porquê quando quem onde qual se
perche come quando chi dove quale se
waarom hoe wie wat wanneer of als
dlaczego jak kto kiedy czy jezeli jesli
почему зачем как кто когда если
чому як хто коли якщо
proc jak kdo kdy zda pokud
varfor hur vem nar om hvorfor hvordan hvem
miksi miten
neden nicin nasil
miert hogyan
ce cand
γιατι πως
왜 어떻게 언제
为什么 怎么 为何 什么 吗
か 何故 なぜ
"""
"""Of a question, or a condition."""

GREETINGS = """
hi hello dear hey greetings morning afternoon gentlemen sirs hallo guten sehr geehrte geehrter liebe lieber moin servus
bonjour madame monsieur cher chere hola estimado estimada estimados buenos buenas ola caro cara bom boa prezado prezados
buongiorno salve gentile gentili egregio ciao spettabile beste geachte dag goedendag dzien szanowni witam czesc
здравствуйте добрый уважаемые привет вітаю добрий шановні dobry vazeni hej hei god terve merhaba sayin tisztelt jo
buna stimati καλημερα γεια 您好 你好 尊敬 お世話 こんにちは 안녕하세요 مرحبا السلام שלום chao halo selamat
"""
"""A letter begins so."""

PARTS = {
    "leave": LEAVE, "sure": SURE, "remove": REMOVE, "carry": CARRY, "off": OFF, "me": ME, "target": TARGET,
    "send": SEND, "want": WANT, "not": NOT, "more": MORE, "filler": FILLER, "stay": STAY, "asking": ASKING,
}  # fmt: skip
"""What a word can be in a wish → such words."""
