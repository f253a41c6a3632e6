"""The dialogue: what the sink answers, and when it does not."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from contextlib import suppress
from typing import Any

import pytest

from zonemta_py.sink import SinkOptions


async def test_a_dialogue_is_answered_and_kept(start_sink: Any, connect: Any) -> None:
    """A plain transaction gets positive replies; the message is kept with all that was said of it."""
    sink = await start_sink()
    client = await connect(sink.port)
    assert "PIPELINING" in await client.say("EHLO me.test")
    assert (await client.say("MAIL FROM:<from@src.test> RET=HDRS ENVID=x")).startswith("250")
    assert (await client.say('rcpt to:<"odd > one"@dest.test> NOTIFY=NEVER')).startswith("250")
    assert (await client.say("DATA")).startswith("354")
    assert (await client.say(b"Message-ID: <1@x>\r\n\r\n..dot\r\n.\r\n")).startswith("250")
    assert (await client.say("QUIT")).startswith("221")
    assert await client.rest() == b""
    (message,) = sink.messages
    assert message.body == b"Message-ID: <1@x>\r\n\r\n.dot\r\n"
    assert (message.sender, message.recipients) == ("from@src.test", ['"odd > one"@dest.test'])
    assert (message.message_id, message.helo, message.client, message.tls) == ("<1@x>", "me.test", "127.0.0.1", "")
    assert message.parameters == ["RET=HDRS ENVID=x", "NOTIFY=NEVER"]
    assert message.port == sink.port


async def test_pipelined_transactions_in_one_write(start_sink: Any, connect: Any) -> None:
    """Any number of commands and bodies may come in one write; replies come in order."""
    sink = await start_sink()
    client = await connect(sink.port)
    one = b"MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nRCPT TO:<b@Y.test>\r\nDATA\r\n"
    client.send(b"EHLO me\r\n" + (one + b"hi\r\n.\r\n") * 3 + b"QUIT\r\n")
    text = (await client.rest()).decode()
    codes = [line[:3] for line in text.splitlines() if line[3:4] == " "]
    assert codes == ["250", *["250", "250", "250", "354", "250"] * 3, "221"]
    assert sink.counters.domains == {"x.test": 3, "y.test": 3}
    assert (sink.counters.messages, sink.counters.recipients, sink.counters.bytes) == (3, 6, 12)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("RCPT TO:<a@b>", "503"),
        ("DATA", "503"),
        ("MAIL TO:<a@b>", "501"),
        ("FLY", "500"),
        ("NOOP\nNOOP", "500"),
        ("STARTTLS", "502"),
        ("MAIL FROM:<a@b> SIZE=999999999999", "552"),
        ("NOOP", "250"),
        ("VRFY x", "252"),
        ("RSET", "250"),
        ("HELO x", "250"),
    ],
)
async def test_commands_out_of_place(start_sink: Any, connect: Any, line: str, code: str) -> None:
    """What is out of order, unknown or too big is refused with the reply of RFC 5321."""
    client = await connect((await start_sink()).port)
    assert (await client.say(line)).startswith(code)


async def test_a_bare_line_feed_ends_no_command(start_sink: Any, connect: Any) -> None:
    """Commands end with CRLF; a client that sends LF only is told so and cut off."""
    client = await connect((await start_sink()).port)
    client.send(b"NOOP\n")
    assert (await client.rest()).startswith(b"500 5.5.2")


async def test_a_smuggled_message_stays_text(start_sink: Any, connect: Any) -> None:
    """A message hidden behind LF . LF is part of the first one, not a second."""
    sink = await start_sink()
    client = await connect(sink.port)
    await client.until_data()
    assert (await client.say(b"a\n.\nMAIL FROM:<evil@x>\r\n.\r\n")).startswith("250")
    assert [message.body for message in sink.messages] == [b"a\n.\nMAIL FROM:<evil@x>\r\n"]


async def test_rules_choose_recipients(start_sink: Any, connect: Any) -> None:
    """A rule refuses the recipients it names and no others; what it did is counted."""
    sink = await start_sink(rules=(r"rcpt:/@slow\.test$/ 450 4.2.1 later", "rcpt:/^no@/ 550 5.1.1 unknown"))
    client = await connect(sink.port)
    await client.say("EHLO me")
    await client.say("MAIL FROM:<a@b>")
    said = [await client.say(f"RCPT TO:<{name}>") for name in ("a@slow.test", "no@fast.test", "b@fast.test")]
    assert [reply[:3] for reply in said] == ["450", "550", "250"]
    await client.say("DATA")
    await client.say(b"x\r\n.\r\n")
    assert sink.messages[0].recipients == ["b@fast.test"]
    assert sink.counters.replies == {"rcpt 450": 1, "rcpt 550": 1}


async def test_a_refused_dot_is_no_message(start_sink: Any, connect: Any) -> None:
    """What is refused at the dot is neither counted nor kept, and the next transaction starts clean."""
    sink = await start_sink(rules=("dot:/@dest/ 451 4.3.0 not now",))
    client = await connect(sink.port)
    await client.until_data()
    assert (await client.say(b"x\r\n.\r\n")).startswith("451")
    assert (await client.until_data("a@other.test"))[-1].startswith("354")
    assert (await client.say(b"y\r\n.\r\n")).startswith("250")
    assert [message.body for message in sink.messages] == [b"y\r\n"]
    assert sink.counters.messages == 1


@pytest.mark.parametrize("stage", ["ehlo", "mail", "rcpt", "data", "body", "dot"])
@pytest.mark.parametrize("action", ["close", "reset", "silent", "half", "garbage"])
async def test_failures_at_every_stage(start_sink: Any, connect: Any, stage: str, action: str) -> None:
    """Each way to fail happens at the stage that was named; a message is taken only where garbage leaves a way on."""
    sink = await start_sink(rules=(f"{stage} {action}",))
    client = await connect(sink.port)
    client.send(b"EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
    client.send(b"text\r\n.\r\n")
    try:
        if action in ("silent", "half"):
            client.writer.write_eof()
        if action == "garbage":
            client.send(b"QUIT\r\n")
        text = await client.rest()
    except ConnectionResetError:
        text = b""
    assert sink.counters.replies[f"{stage} {action}"] >= 1
    assert sink.counters.messages == (action == "garbage" and stage in ("ehlo", "body"))
    if action == "garbage":
        assert b"not smtp" in text


@pytest.mark.parametrize("action", ["close", "reset"])
async def test_close_and_reset_are_two_things(start_sink: Any, connect: Any, action: str) -> None:
    """close ends the connection in good order, reset breaks it."""
    client = await connect((await start_sink(rules=(f"mail {action}",))).port)
    client.send("MAIL FROM:<a@b>")
    if action == "close":
        assert await client.rest() == b""
    else:
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_an_address_that_is_no_ascii_is_kept(start_sink: Any, connect: Any) -> None:
    """SMTPUTF8 addresses arrive as the text they are."""
    sink = await start_sink()
    client = await connect(sink.port)
    await client.say("MAIL FROM:<grüße@src.test> SMTPUTF8")
    await client.say("RCPT TO:<用户@例え.test>")
    await client.say("DATA")
    await client.say(b".\r\n")
    assert (sink.messages[0].sender, sink.messages[0].recipients) == ("grüße@src.test", ["用户@例え.test"])


async def test_a_banner_may_be_refused(start_sink: Any, connect: Any) -> None:
    """421 in place of the banner hangs up behind it."""
    sink = await start_sink(rules=("connect:/^127/ 421 4.3.2 closed",))
    client = await connect(sink.port, greeted=False)
    assert await client.rest() == b"421 4.3.2 closed\r\n"


async def test_latency_keeps_order_and_input(start_sink: Any, connect: Any) -> None:
    """With latency before every reply, pipelined commands are still answered one after the other."""
    sink = await start_sink(latency_s=0.01, dot_latency_s=0.02, jitter=0.5, seed=1)
    client = await connect(sink.port)
    client.send(b"EHLO me\r\nMAIL FROM:<>\r\nRCPT TO:<a@x>\r\nDATA\r\nhi\r\n.\r\nQUIT\r\n")
    codes = [line[:3] for line in (await client.rest()).decode().splitlines() if line[3:4] == " "]
    assert codes == ["250", "250", "250", "354", "250", "221"]
    assert sink.counters.messages == 1


async def test_a_slow_recipient_is_slow_alone(start_sink: Any, connect: Any) -> None:
    """`after` delays the replies a rule is for; other connections are answered meanwhile."""
    sink = await start_sink(rules=("rcpt:/@slow/ 250 2.1.5 at last, after 600s",))
    slow, fast = await connect(sink.port), await connect(sink.port)
    for client in (slow, fast):
        await client.say("EHLO me")
        await client.say("MAIL FROM:<>")
    slow.send("RCPT TO:<a@slow.test>")
    assert (await fast.say("RCPT TO:<a@fast.test>")).startswith("250")


async def test_a_delivery_counts_before_its_reply(start_sink: Any, connect: Any) -> None:
    """A client that is gone before the final reply has delivered all the same."""
    sink = await start_sink(rules=("dot 250 2.0.0 slowly, after 600s",))
    client = await connect(sink.port)
    await client.until_data()
    client.send(b"x\r\n.\r\n")
    while not sink.messages:  # noqa: ASYNC110 (a sink has no event for each of its messages)
        await asyncio.sleep(0.01)
    assert sink.messages[0].body == b"x\r\n"


def _send_with_tls(port: int, implicit: bool) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    kind = (
        (lambda: smtplib.SMTP_SSL("127.0.0.1", port, context=context))
        if implicit
        else (lambda: smtplib.SMTP("127.0.0.1", port))
    )
    with kind() as smtp:
        if not implicit:
            smtp.starttls(context=context)
            smtp.ehlo()
            assert not smtp.has_extn("starttls")
        smtp.sendmail("a@b.test", ["c@d.test", "e@f.test"], "Subject: x\r\n\r\n.hidden\r\n" + "y" * 300_000)
        return str(smtp.sock.version())  # type: ignore[union-attr]


@pytest.mark.parametrize("implicit", [False, True])
async def test_tls_with_a_self_made_certificate(start_sink: Any, implicit: bool) -> None:
    """smtplib delivers by STARTTLS and by implicit TLS without any certificate being prepared."""
    sink = await start_sink(implicit_tls=implicit, capabilities=(*SinkOptions().capabilities, "STARTTLS"))
    version = await asyncio.to_thread(_send_with_tls, sink.port, implicit)
    (message,) = sink.messages
    assert message.tls.startswith(version)
    assert message.recipients == ["c@d.test", "e@f.test"]
    assert message.body == b"Subject: x\r\n\r\n.hidden\r\n" + b"y" * 300_000 + b"\r\n"


async def test_what_is_pipelined_behind_starttls_is_forgotten(start_sink: Any, connect: Any) -> None:
    """Commands sent in the clear behind STARTTLS never count as said under TLS (command injection)."""
    sink = await start_sink(capabilities=("STARTTLS",))
    client = await connect(sink.port)
    await client.say("EHLO me")
    client.send(b"STARTTLS\r\nMAIL FROM:<evil@x>\r\n")
    assert (await client.reply()).startswith("220")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    await client.writer.start_tls(context)
    assert (await client.say("RCPT TO:<a@b>")).startswith("503")


async def test_a_failed_handshake_ends_only_its_connection(start_sink: Any, connect: Any) -> None:
    """Rubbish in place of a TLS handshake is cut off; the sink goes on."""
    sink = await start_sink(capabilities=("STARTTLS",))
    client = await connect(sink.port)
    assert (await client.say("STARTTLS")).startswith("220")
    client.send(b"no handshake at all\r\n" * 10)
    with suppress(ConnectionResetError):
        await client.rest()
    assert (await (await connect(sink.port)).say("NOOP")).startswith("250")
