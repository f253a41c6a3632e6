"""Several recipients of one report, each with a reason of its own, in whatever form: all are found, with theirs."""

# ruff: noqa: E501 - a form is a line
import pytest

from tests.mail.shipped_rules import SHIPPED as RULES
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.feedback.texts import fate_of

HEAD = (
    "Return-Path: <>\nFrom: Mail Delivery <postmaster@mx.x.example>\nTo: b-77@s.example\nSubject: Mail not delivered\n"
)
P, Q = f"{HEAD}\n", f"{HEAD}Content-Type: text/html\n\n"
a, b, c = "ann.lee@x.example", "bob@y.example", "cat@z.example"
U, F, S = "no such user here", "mailbox is full", "rejected as spam"
FORMS = {
    "colons": P + f"These failed:\n{a}: {U}\n{b}: {F}\n{c}: {S}\n",
    "bullets": P + f"Hello,\n\nyour mail to three people came back:\n\n- {a} ({U})\n- {b} ({F})\n- {c} ({S})\n\nBye",
    "numbered fields": P
    + f"Recipient 1: {a}\nReason: {U}\n\nRecipient 2: {b}\nReason: {F}\n\nRecipient 3: {c}\nReason: {S}\n",
    "one sentence": P + f"We could not deliver your message to {a} ({U}), {b} ({F}) and {c} ({S}).\n",
    "table": Q
    + f"<p>Not delivered:</p><table><tr><th>Who</th><th>Why</th></tr><tr><td>{a}</td><td>{U}</td></tr><tr><td>{b}</td><td>{F}</td></tr><tr><td>{c}</td><td>{S}</td></tr></table>",
    "arrows": P + f"To: {a} -> {U}\nTo: {b} -> {F}\nTo: {c} -> {S}\n",
    "paragraphs": P + f"<{a}>\n    {U}\n\n<{b}>\n    {F}\n\n<{c}>\n    {S}\n",
    "people": P + f"1. Ann Lee <{a}> {U}\n2. Bob <{b}> {F}\n3. Cat Z <{c}> {S}\n",
    "codes before": P + f"550 5.1.1 {a}... {U}\n552 5.2.2 {b}... {F}\n554 5.7.1 {c}... {S}\n",
    "log": P
    + f'rcpt="{a}" result="550 5.1.1 {U}"\nrcpt="{b}" result="552 5.2.2 {F}"\nrcpt="{c}" result="554 5.7.1 {S}"\n',
    "JSON": P
    + f'{{"failed": [\n {{"address": "{a}", "error": "{U}"}},\n {{"address": "{b}", "error": "{F}"}},\n {{"address": "{c}", "error": "{S}"}}\n]}}\n',
    "codes below": P + f"{a}\n  550 5.1.1 {U}\n{b}\n  552 5.2.2 {F}\n{c}\n  554 5.7.1 {S}\n",
    "sentences": P
    + f"Failed recipient: {a}, because: {U}.\nFailed recipient: {b}, because: {F}.\nFailed recipient: {c}, because: {S}.\n",
    "German fields": P
    + f"Adresse: {a}\nGrund: Benutzer unbekannt\n\nAdresse: {b}\nGrund: Postfach voll\n\nAdresse: {c}\nGrund: Als Spam abgelehnt\n",
    "letters": P
    + f"Your message to {a} was not delivered: {U}.\n\nYour message to {b} was not delivered: {F}.\n\nYour message to {c} was not delivered: {S}.\n",
    "reasons before": P + f"{U}: {a}\n{F}: {b}\n{S}: {c}\n",
    "Postfix": P
    + f"* {a}: host mx.x.example[192.0.2.1] said: 550 5.1.1 {U}\n    (in reply to RCPT TO command)\n* {b}: host mx.y.example[192.0.2.2] said: 552 5.2.2\n    {F} (in reply to RCPT TO command)\n* {c}: host mx said: 554 5.7.1 {S} (in reply to end of DATA command)\n",
    "HTML list": Q + f"<ul><li><b>{a}</b><br>{U}</li><li><b>{b}</b><br>{F}</li><li><b>{c}</b><br>{S}</li></ul>",
    "dialogue": P + f"RCPT TO:<{a}>\n550 5.1.1 {U}\nRCPT TO:<{b}>\n552 5.2.2 {F}\nRCPT TO:<{c}>\n554 5.7.1 {S}\n",
    "brackets": P + f"{a} [{U}]\n{b} [{F}]\n{c} [{S}]\n",
    "rules between": P
    + f"Original recipient {a}:\n{U}\n---\nOriginal recipient {b}:\n{F}\n---\nOriginal recipient {c}:\n{S}\n",
    "tabs": P + f"Recipient\tStatus\n{a}\t550 {U}\n{b}\t552 {F}\n{c}\t554 {S}\n",
    "German numbers": P
    + f"Empfänger 1/3  {a}\n  Ursache      : Benutzer unbekannt\nEmpfänger 2/3  {b}\n  Ursache      : Postfach voll\nEmpfänger 3/3  {c}\n  Ursache      : Spam\n",
}
ALIKE = {
    "a heading over each group": P + f"No such user here:\n  {a}\n  {b}\n\nMailbox is full:\n  {c}\n",
    "one line": P + f"Not delivered to:\n{a}; {b}; {c}\nReason: host not found\n",
    "no reason": P + f"Delivery to the following recipients failed.\n\n       {a}\n       {b}\n       {c}\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_has_its_own_reason(form: str) -> None:
    found = {one.recipient: RULES.judge(one.reply, "report", "").kind for one in read(FORMS[form].encode()).found}
    assert found == {a: "user-unknown", b: "mailbox-full", c: "spam-content"}


@pytest.mark.parametrize("form", ALIKE)
def test_reasons_may_be_shared(form: str) -> None:
    found = {one.recipient: RULES.judge(one.reply, "report", "").kind for one in read(ALIKE[form].encode()).found}
    assert list(found) == [a, b, c]
    assert form != "a heading over each group" or list(found.values()) == ["user-unknown"] * 2 + ["mailbox-full"]
    assert form != "one line" or set(found.values()) == {"host-unknown"}


FATES = {
    "table": Q
    + f"<table><tr><th>Recipient</th><th>Status</th></tr><tr><td>{a}</td><td>Delivered</td></tr><tr><td>{b}</td><td>550 5.1.1 {U}</td></tr><tr><td>{c}</td><td>Delayed: will be retried</td></tr></table>",
    "tabs": P + f"Recipient\tStatus\n{a}\tdelivered\n{b}\t550 5.1.1 {U}\n{c}\tdeferred, 451 4.3.0 try later\n",
    "columns": P
    + f"Not all recipients could be reached.\n\nRecipient            Result\n{a}    OK - 250 2.0.0 accepted\n{b}        Failed - 550 5.1.1 {U}\n{c}        Delayed - 451 4.3.0 try later\n",
    "pipes": P
    + f"| Recipient | Fate |\n|---|---|\n| {a} | delivered |\n| {b} | {U} |\n| {c} | deferred, will be retried |\n",
    "German fields": P
    + f"Empfänger: {a}\nStatus: zugestellt\n\nEmpfänger: {b}\nStatus: Benutzer unbekannt\n\nEmpfänger: {c}\nStatus: verzögert\n",
    "letters": P
    + f"Your message to {a} was delivered successfully.\nYour message to {b} could not be delivered: {U}.\nYour message to {c} is delayed.\n",
    "headings": P + f"Delivered:\n  {a}\n\nFailed ({U}):\n  {b}\n\nStill trying:\n  {c}\n",
    "lines": P
    + f"{a}: relayed to mx.x.example, 250 2.0.0 Ok: queued\n{b}: 550 5.1.1 {U}\n{c}: still trying, 452 4.2.2\n",
}


@pytest.mark.parametrize("form", FATES)
def test_each_has_its_own_fate(form: str) -> None:
    found = read(FATES[form].encode()).found
    assert {one.recipient: (one.kind, one.reply.code // 100) for one in found} == {
        a: ("delivered", 2),
        b: ("bounce", 5),
        c: ("delay", 4),
    }


@pytest.mark.parametrize(
    "said", ["not delivered", "undelivered", "nicht zugestellt", "non remis", "550 accepted no more", "no entregado"]
)
def test_what_denies_a_delivery_is_none(said: str) -> None:
    assert fate_of(said) != "delivered"
