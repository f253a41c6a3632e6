"""Replies about the account or address that mail comes from, and those that are not sure, suppress nobody: in thirty
languages, with a recipient's status and at a recipient's stage."""

import pytest

from tests.mail.shipped_rules import SHIPPED as RULES
from zonemta_py.mail.reply import Reply

ABOUT_US = """
sending account disabled
the account you are sending from is disabled
your account has been disabled
your mailbox has been disabled permanently
the account of the sender is disabled
submitting account is disabled
originating mailbox disabled
Absenderkonto deaktiviert
Ihr Konto wurde deaktiviert
das sendende Konto ist deaktiviert
Ihr Postfach wurde gelöscht
compte expéditeur désactivé
votre compte a été désactivé
compte d'envoi désactivé définitivement
la cuenta remitente está deshabilitada
su cuenta ha sido deshabilitada
la cuenta de envío fue deshabilitada
a conta remetente foi desativada
sua conta foi desativada
a conta de envio está desativada
l'account mittente è disattivato
il suo account è stato disattivato
account d'invio disattivato
afzenderaccount is uitgeschakeld
uw account is uitgeschakeld
konto nadawcy zostało wyłączone
twoje konto zostało wyłączone
konto wysyłające jest wyłączone
учетная запись отправителя отключена
ваша учетная запись отключена
отправляющий аккаунт отключен
обліковий запис відправника вимкнено
gönderen hesap devre dışı
hesabınız devre dışı bırakıldı
发件账户已被禁用
发信账号已停用
您的账户已被禁用
您的帐号已停用
送信元アカウントは無効です
お客様のアカウントは無効になっています
발신 계정이 비활성화되었습니다
귀하의 계정이 비활성화되었습니다
akun pengirim dinonaktifkan
akun Anda telah dinonaktifkan
tài khoản gửi đã bị vô hiệu hóa vĩnh viễn
tài khoản của bạn đã bị vô hiệu hóa
účet odesílatele je zakázán
váš účet byl zrušen
avsändarkontot är inaktiverat
ditt konto är inaktiverat
afsenderkontoen er deaktiveret
din konto er deaktiveret
lähettäjän tili on poistettu käytöstä
tilisi on poistettu käytöstä
a feladó fiókja le van tiltva
az Ön fiókja le van tiltva
contul expeditorului este dezactivat
contul dvs. este dezactivat
ο λογαριασμός αποστολέα είναι απενεργοποιημένος
ο λογαριασμός σας απενεργοποιήθηκε
חשבון השולח הושבת
החשבון שלך הושבת
حساب المرسل معطل
تم تعطيل حسابك
บัญชีผู้ส่งถูกปิดใช้งาน
บัญชีของคุณถูกปิดใช้งาน
حساب فرستنده غیرفعال است
حساب شما غیرفعال شده است
the user you authenticate as does not exist
no such user: your login
unknown sending user
sender mailbox does not exist
l'adresse d'expédition n'existe pas
die Absenderadresse existiert nicht
la dirección de origen no existe
o endereço de origem não existe
l'indirizzo di provenienza non esiste
adres zwrotny nie istnieje
обратный адрес не существует
return address does not exist
From address does not exist
reply-to address does not exist
bounce address does not exist
发信地址不存在
差出人アドレスは存在しません
보내는 주소가 존재하지 않습니다
""".strip().splitlines()
UNSURE = """
Issuer address does not exist
отправивший пользователь не найден
The person who wrote this has no mailbox
we called back, and no such user answered at shop.example
address in MAIL does not exist
autor desconocido
Recipient unknown because your company is blocked
User unknown (temporary directory failure)
LDAP lookup failed, please retry
Could not verify that user exists
mailbox not found on this node, use the MX instead
発信者のアドレスは存在しません
Callback: user does not exist
Envelope originator: no such user
unknown user in your return address
SASL user unknown
the user named in AUTH= does not exist
connecting user unknown
The user that connects is not known
the user sending this was not found
Errors-To address: user unknown
the mailbox in Disposition-Notification-To is unknown
usuario desconocido: autenticación fallida
użytkownik nieznany: uwierzytelnianie nie powiodło się
Sending has been disabled for this account
account used for sending is no longer active
mailbox disabled: that of the one who wrote
mailbox disabled for external senders
mailbox disabled to strangers
account is disabled while under attack
""".strip().splitlines()


@pytest.mark.parametrize("stage", ["rcpt", "dot", "report"])
def test_one_of_them_is_not_enough(stage: str) -> None:
    statuses = ("5.1.1", "5.2.1", "")
    agreed = [
        (text, status)
        for text in (*ABOUT_US, *UNSURE)
        for status in statuses
        if RULES.judge(Reply(550, status, text), stage, "").agreed
    ]
    assert not agreed


def test_nor_is_a_mailbox_enough_that_may_come_back() -> None:
    for text in (
        "Casella sospesa per mancato rinnovo del canone", "account suspended, invoice unpaid",
        "邮箱处于休眠状态,登录后即可激活",
        "Recipient has moved to a new server, please retry shortly",
    ):  # fmt: skip
        for status in ("5.2.1", "5.1.6"):
            assert not RULES.judge(Reply(550, status, text), "rcpt", "").agreed, text
