"""Arguments of MAIL and RCPT."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.address import (
    AddressRefused,
    parse_mail,
    parse_mailbox,
    parse_parameters,
    parse_rcpt,
    xtext_decode,
    xtext_encode,
)
from zonemta_py.mail.envelope import Notify


@pytest.mark.parametrize(
    ("argument", "address"),
    [
        ("<a@b.test>", "a@b.test"),
        (" <a@b.test>", "a@b.test"),
        ("<User.Name+tag@EXAMPLE.Test>", "User.Name+tag@example.test"),
        ("<a@localhost>", "a@localhost"),
        ("<a_b@under_score.test>", "a_b@under_score.test"),
        ('<"a b"@c.test>', '"a b"@c.test'),
        (r'<"a\"b@x"@C.test>', r'"a\"b@x"@c.test'),
        ('<""@c.test>', '""@c.test'),
        ("<user..name.@DOCOMO.test>", "user..name.@docomo.test"),
        ("<.user@docomo.test>", ".user@docomo.test"),
        ('<"user..name"@docomo.test>', '"user..name"@docomo.test'),
        ("<@x.test,@y.test:a..b.@b.test>", "a..b.@b.test"),
        ("<@x.test,@y.test:a@b.test>", "a@b.test"),
        ("<a@[192.0.2.1]>", "a@[192.0.2.1]"),
        ("<a@[IPv6:2001:DB8::1]>", "a@[IPv6:2001:db8::1]"),
        ("<a@[x-tag:anything]>", "a@[x-tag:anything]"),
        (f"<{'v' * 200}@b.test>", f"{'v' * 200}@b.test"),
    ],
)
def test_addresses(argument: str, address: str) -> None:
    """RFC 5321 4.1.2: kept as given, the domain lower-cased, source routes dropped."""
    assert parse_rcpt(argument)[0].address == address
    assert parse_mail(argument).address == address


@pytest.mark.parametrize(
    "argument",
    [
        "", "a@b.test", "<a@b.test", "<a@>", "<@b.test>", "<a>", "<a b@c.test>", "<.@c.test>", "<..@c.test>",
        "<a@b..test>", "<a@-b.test>", "<a@b-.test>", "<a@b.test.>", "<a@[1.2.3]>", "<a@[IPv6:zz]>",
        "<a@b.test>x", "<<a@b.test>>", '<"a@b.test>', '<"a"b@c.test>', "<a@b@c.test>", "<a\r\n@b.test>", "<a\0@b.test>",
        f"<a@{'x' * 64}.test>", f"<{'a' * 400}@b.test>", f"<a@{'x.' * 130}test>", "<a\u200b@ü.test>",
        "<ü@b\u2028.test>",
    ],
)  # fmt: skip
def test_malformed_addresses_are_refused(argument: str) -> None:
    """Each with a permanent reply about the address (RFC 3463 X.1.x)."""
    for parse in (parse_mail, lambda text: parse_rcpt(text, True)):
        with pytest.raises(AddressRefused) as refused:
            parse(argument)
        assert refused.value.reply.code in (501, 553)
        assert refused.value.reply.enhanced[:4] in ("5.1.", "5.6.")


def test_the_null_sender_and_postmaster() -> None:
    """<> may send, not receive; <postmaster> may receive, not send (RFC 5321 4.5.1, 4.5.5)."""
    assert parse_mail("<> SIZE=3").address == ""
    assert parse_rcpt("<PostMaster>")[0].address == "postmaster"
    for parse, argument in ((parse_rcpt, "<>"), (parse_mail, "<postmaster>")):
        with pytest.raises(AddressRefused):
            parse(argument)


def test_international_addresses_need_smtputf8() -> None:
    """RFC 6531: as given (U-labels too) but lower-cased, and only if the client said SMTPUTF8."""
    assert parse_mail("<jörg@BÜCHER.test> SMTPUTF8").address == "jörg@bücher.test"
    assert parse_rcpt("<用户@例子.test>", smtputf8=True)[0].address == "用户@例子.test"
    for parse in (parse_mail, parse_rcpt):
        with pytest.raises(AddressRefused) as refused:
            parse("<jörg@b.test>")
        assert refused.value.reply.enhanced == "5.6.7"


def test_parameters_of_mail() -> None:
    """SIZE, BODY, SMTPUTF8, RET, ENVID and AUTH, in any case and order."""
    command = parse_mail("<a@b.test> size=5120 Body=8bitmime RET=hdrs ENVID=QQ+2B314 SMTPUTF8 AUTH=<>")
    assert (command.size, command.body, command.ret) == (5120, "8BITMIME", "HDRS")
    assert (command.envid, command.smtputf8) == ("QQ+314", True)
    assert command.parameters["ENVID"] == "QQ+2B314"


def test_parameters_of_rcpt() -> None:
    """NOTIFY as flags; ORCPT decoded from xtext."""
    recipient, parameters = parse_rcpt("<a@b.test> NOTIFY=success,DELAY ORCPT=rfc822;a+2Bx@b.test")
    assert recipient.notify == Notify.SUCCESS | Notify.DELAY
    assert recipient.orcpt == "rfc822;a+x@b.test"
    assert parameters == {"NOTIFY": "success,DELAY", "ORCPT": "rfc822;a+2Bx@b.test"}
    assert parse_rcpt("<a@b.test> NOTIFY=NEVER")[0].notify == Notify.NEVER
    assert parse_rcpt("<a@b.test>")[0].notify == Notify.UNSET


@pytest.mark.parametrize(
    ("parse", "parameters", "code"),
    [
        (parse_mail, "SIZE=x", 501), (parse_mail, "SIZE", 501), (parse_mail, "BODY=BINARYMIME", 501),
        (parse_mail, "SMTPUTF8=1", 501), (parse_mail, "RET=ALL", 501), (parse_mail, "ENVID=", 501),
        (parse_mail, "ENVID=a+0D+0Ab", 501), (parse_mail, "ENVID=+zz", 501), (parse_mail, "ENVID=+FF", 501),
        (parse_mail, f"ENVID={'x' * 101}", 501), (parse_mail, "SIZE=1 SIZE=1", 501), (parse_mail, "=x", 501),
        (parse_mail, "XMT-PRIORITY=1", 555), (parse_mail, "NOTIFY=NEVER", 555),
        (parse_rcpt, "NOTIFY=NEVER,DELAY", 501), (parse_rcpt, "NOTIFY=", 501), (parse_rcpt, "NOTIFY=SOON", 501),
        (parse_rcpt, "ORCPT=a@b.test", 501), (parse_rcpt, "ORCPT=;a@b.test", 501), (parse_rcpt, "ORCPT=rfc822;", 501),
        (parse_rcpt, "ORCPT=utf-8;ü@b.test", 501), (parse_rcpt, "X=1", 555),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(parse: object, parameters: str, code: int) -> None:
    """501 5.5.4 for a value that makes no sense, 555 5.5.4 for a keyword that is not known (RFC 5321 4.1.1.11)."""
    with pytest.raises(AddressRefused) as refused:
        parse(f"<a@b.test> {parameters}")  # type: ignore[operator]
    assert (refused.value.reply.code, refused.value.reply.enhanced) == (code, "5.5.4")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))))
@settings(max_examples=100)
def test_xtext_round_trip(text: str) -> None:
    """Encoding gives printable ASCII without + and = of its own; decoding gives the text back (RFC 3461 4)."""
    encoded = xtext_encode(text)
    assert encoded.isascii()
    assert "=" not in encoded
    assert " " not in encoded
    assert xtext_decode(encoded) == text


@given(st.text(max_size=60))
@settings(max_examples=150)
def test_nothing_but_a_refusal_comes_out_of_garbage(text: str) -> None:
    """Any text either parses or is refused with a reply; an address never carries what could break a dialogue."""
    for argument in (text, f"<{text}>", f"<a@{text}>", f"<a@b.test> {text}"):
        try:
            recipient, parameters = parse_rcpt(argument, smtputf8=True)
        except AddressRefused:
            continue
        assert recipient.address.isprintable()
        assert ">" not in recipient.address or recipient.address.startswith('"')
        assert parse_parameters(" ".join(f"{k}={v}" for k, v in parameters.items())) == parameters


@pytest.mark.parametrize("unit", ["a", "a.", "b@", "\\a", "é", "@a,"])
def test_length_is_judged_before_anything_else(unit: str) -> None:
    """A text of megabytes in an address's place costs nothing to refuse: no expression is tried on it."""
    text = unit * (1_000_000 // len(unit))
    for long in (text, f"{text}@b.test", f'"{text}"@b.test', f"a@{text}", f"<{text}>"):
        for parse in (parse_mailbox, lambda one: parse_mail(f"<{one}> SMTPUTF8"), lambda one: parse_rcpt(f"<{one}>")):
            tracemalloc.start()
            with pytest.raises(AddressRefused):
                parse(long)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 8_000_000, f"{peak:,} bytes for {long[:20]!r}"
