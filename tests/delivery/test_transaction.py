"""What is said to a server: parameters, order, the message's very bytes; and what its mixed answers mean."""

from __future__ import annotations

import asyncio
import resource
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.delivery.smtp import commands
from zonemta_py.mail.envelope import Notify, Recipient
from zonemta_py.mail.lines import Decoder, Stuffer
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, QueueRefusal


def by_recipient(result: Any) -> dict[int, tuple[int, str]]:
    return {index: (outcome.verdict, outcome.stage) for outcome in result.outcomes for index in outcome.recipients}


@pytest.mark.parametrize("keywords", [("PIPELINING",), ()], ids=["pipelined", "stepwise"])
async def test_each_recipient_by_its_own_reply(keywords: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """Accepted, refused for now, refused for good and for a number that is none, in one transaction."""
    server = await scripted({"rcpt2": "4xx", "rcpt3": "5xx", "rcpt4": b"552 too many recipients\r\n"}, keywords)
    [result] = await deliver(letter(server.port, 5))
    fourth = (DEFERRED, "rcpt") if keywords else (DELIVERED, "dot")  # one by one the fifth is not asked for before
    assert by_recipient(result) == {
        0: (DELIVERED, "dot"), 1: (DEFERRED, "rcpt"), 2: (BOUNCED, "rcpt"), 3: fourth, 4: (DELIVERED, "dot"),
    }  # fmt: skip
    assert not keywords or next(o.reply.code for o in result.outcomes if o.recipients == [3]) == 452


async def test_nobody_accepted_but_354(scripted: Any, letter: Any, deliver: Any) -> None:
    """A server that takes DATA with no recipient gets an empty message, and the connection stays in step."""
    server = await scripted({"rcpt1": "5xx", "data": b"354 go\r\n"})
    first, second = await deliver(letter(server.port), letter(server.port, 2))
    assert by_recipient(first) == {0: (BOUNCED, "rcpt")}
    assert by_recipient(second)[1] == (DELIVERED, "dot")
    assert server.bodies[0] == b""
    assert server.connections == 1


@pytest.mark.parametrize("point", ["mail", "rcpt", "data", "dot"])
async def test_positive_reply_of_the_wrong_kind(point: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """354 where 250 belongs (or the other way round) means that the two are out of step: temporary."""
    server = await scripted({point: b"250 ok\r\n" if point == "data" else b"354 go\r\n"})
    [result] = await deliver(letter(server.port))
    assert by_recipient(result) == {0: (DEFERRED, point)}
    assert result.outcomes[0].reply.enhanced == "4.5.0"


async def test_replies_of_several_lines(scripted: Any, letter: Any, deliver: Any) -> None:
    """Lines of one reply are joined; of two codes the last line's counts: it is what the server has come to."""
    server = await scripted({"dot": b"250-2.0.0 taken\r\n250 2.0.0 as 4711\r\n"})
    [result] = await deliver(letter(server.port))
    assert (result.outcomes[0].reply.enhanced, result.outcomes[0].reply.text) == ("2.0.0", "taken as 4711")
    for said, verdict, text in (
        (b"250-2.0.0 taken for\r\n550 5.1.1 nobody\r\n", BOUNCED, "550 5.1.1 2.0.0 taken for nobody"),
        (b"250-taken\r\n451 4.3.0 not stored\r\n", DEFERRED, "451 4.3.0 taken not stored"),
        (b"451-slow today\r\n250 2.0.0 kept\r\n", DELIVERED, "250 2.0.0 slow today kept"),
        (b"250\t2.0.0 tab\r\n", DELIVERED, "250 2.0.0 tab"),
    ):
        server = await scripted({"dot": said})
        [result] = await deliver(letter(server.port))
        assert by_recipient(result) == {0: (verdict, "dot")}
        assert str(result.outcomes[0].reply) == text
    server = await scripted({"mail": b"what do you want\r\n"})
    [result] = await deliver(letter(server.port))
    assert by_recipient(result) == {0: (DEFERRED, "mail")}
    assert result.outcomes[0].reply.text.endswith("reply to MAIL: what do you want")


async def test_endless_reply(scripted: Any, letter: Any, deliver: Any) -> None:
    """A reply without end is cut off: temporary, and our memory is safe."""
    server = await scripted({"mail": b"250-" + b"x" * 60 + b"\r\n" + b"250-y\r\n" * 20_000})
    [result] = await deliver(letter(server.port))
    assert by_recipient(result) == {0: (DEFERRED, "mail")}


async def test_parameters(scripted: Any, letter: Any, deliver: Any) -> None:
    """What the client asked for goes out where the server offers it, xtext-encoded."""
    server = await scripted(keywords=("PIPELINING", "8BITMIME", "SIZE", "DSN", "SMTPUTF8"))
    message = letter(server.port, eightbit=True, smtputf8=True, ret="HDRS", envid="a+b c")
    message.recipients = [Recipient("é@d.example", int(Notify.SUCCESS | Notify.DELAY), "rfc822;x+y@d.example")]
    [result] = await deliver(message)
    assert server.commands[1:3] == [
        "MAIL FROM:<a@b.example> SIZE=21 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb+20c",
        "RCPT TO:<é@d.example> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;x+2By@d.example",
    ]
    assert result.outcomes[0].relayed is False


async def test_parameters_that_are_not_offered(scripted: Any, letter: Any, deliver: Any) -> None:
    """A server without DSN gets no NOTIFY, and the recipient who asked is reported as relayed."""
    server = await scripted(keywords=())
    message = letter(server.port, 2, eightbit=True, ret="HDRS", envid="a")
    message.recipients[1].notify = int(Notify.SUCCESS)
    [result] = await deliver(message)
    assert server.commands[1:4] == ["MAIL FROM:<a@b.example>", "RCPT TO:<r1@d.example>", "RCPT TO:<r2@d.example>"]
    assert {tuple(outcome.recipients): outcome.relayed for outcome in result.outcomes} == {(0,): False, (1,): True}


@pytest.mark.parametrize(
    ("address", "body", "verdict"),
    [
        ("é@d.example", b"Subject: x\r\n\r\n", BOUNCED),
        ("e@d.example", "Subject: é\r\n\r\n".encode(), BOUNCED),
        ("e@d.example", "Subject: e\r\n\r\né".encode(), DELIVERED),
    ],
)
async def test_smtputf8_not_offered(
    address: str, body: bytes, verdict: int, scripted: Any, letter: Any, deliver: Any
) -> None:
    """Without SMTPUTF8 at the server, addresses or header fields that need it cannot go: 5.6.7. Others can."""
    server = await scripted()
    [result] = await deliver(letter(server.port, body=body, smtputf8=True, recipients=[Recipient(address)]))
    assert result.outcomes[0].verdict == verdict
    assert verdict == DELIVERED or result.outcomes[0].reply.enhanced == "5.6.7"


async def test_addresses_with_line_ends_never_leave(scripted: Any, letter: Any, deliver: Any) -> None:
    """An address with control characters is refused here; the other recipients get the message."""
    server = await scripted()
    message = letter(server.port, 2)
    message.recipients[0].address = "x>\r\nQUIT\r\n@d.example"
    [result] = await deliver(message)
    assert by_recipient(result) == {0: (BOUNCED, "rcpt"), 1: (DELIVERED, "dot")}
    message.sender = "a\nb@c.example"
    [result] = await deliver(message)
    assert by_recipient(result) == {0: (BOUNCED, "mail"), 1: (BOUNCED, "mail")}


LINES = st.lists(st.sampled_from([b".", b"..", b"a", b"", b".a", b"\xff\x00", b"x.\r\n.y"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(LINES, st.booleans(), st.lists(st.integers(0, 60), max_size=6))
def test_what_is_stuffed_is_unstuffed(lines: list[bytes], ended: bool, cuts: list[int]) -> None:
    """Whatever the message and wherever it is cut into chunks, the server gets its exact bytes."""
    message = b"\r\n".join(lines) + (b"\r\n" if ended else b"")
    stuffer, decoder = Stuffer(), Decoder(10**6, 10**6, refuse_nul=False)
    places = sorted({min(cut, len(message)) for cut in (0, *cuts, len(message))})
    wire = b"".join(stuffer.stuff(message[a:b]) for a, b in pairwise(places)) + stuffer.end()
    got = decoder.feed(wire)
    assert decoder.done
    assert decoder.rest == b""
    assert got == message + (b"" if not message or message.endswith(b"\r\n") else b"\r\n")


async def test_bytes_sent_are_bytes_received(scripted: Any, letter: Any, deliver: Any) -> None:
    """In one chunk or in many, with dots at the borders."""
    server = await scripted()
    chunks = [b"Subject: x\r\n\r\n.\r", b"\n.a\r\n", b".\r\n..", b"\r\nno end"]
    whole = letter(server.port, body=b"".join(chunks))
    pieces = letter(server.port)
    pieces.body, pieces.chunks = None, len(chunks)
    await deliver(whole, pieces, chunk=lambda _id, number: chunks[number - 1])
    assert server.bodies == [b"".join(chunks) + b"\r\n"] * 2


async def test_large_message_to_a_slow_reader(scripted: Any, letter: Any, deliver: Any, queue_of: Any) -> None:
    """A 10 MB message waits in the queue, not in our memory, while the server is slow."""
    chunk = (b"x" * 62 + b"\r\n") * 1024
    server = await scripted()
    server.slow_s = 0.005
    message = letter(server.port)
    message.body, message.chunks, message.size = None, 160, 160 * len(chunk)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue = queue_of([message], lambda _id, _number: chunk, 1)
    ahead = 0

    async def watch() -> None:
        nonlocal ahead
        while True:
            await asyncio.sleep(0.01)
            ahead = max(ahead, queue.fetched)
            if ahead < 40:
                assert not server.bodies

    task = asyncio.create_task(watch())
    [result] = await deliver(message, queue=queue)
    task.cancel()
    assert result.outcomes[0].verdict == DELIVERED
    assert len(server.bodies[0]) == 160 * len(chunk)
    kept_by_the_server_kib = 3 * 10 * 1024  # its list of lines and their join
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < kept_by_the_server_kib + 16 * 1024


async def test_a_server_that_stops_reading(scripted: Any, letter: Any, deliver: Any, queue_of: Any) -> None:
    """Only what fits the system's buffers and two chunks is fetched; then silence ends it."""
    chunk = (b"x" * 62 + b"\r\n") * 1024
    server = await scripted({"body": "silence"})
    message = letter(server.port)
    message.body, message.chunks, message.size, message.lines = None, 1600, 1600 * len(chunk), 1
    queue = queue_of([message], lambda _id, _number: chunk, 1)
    [result] = await deliver(message, queue=queue)
    assert by_recipient(result) == {0: (DEFERRED, "body")}
    assert queue.fetched < 400


async def test_body_that_cannot_be_read(scripted: Any, letter: Any, deliver: Any, until: Any) -> None:
    """A chunk that the queue cannot give: deferred, and the server never sees an end of the message."""

    def chunk(_id: str, number: int) -> bytes:
        if number == 2:
            raise QueueRefusal(Reply(451, "4.3.0", "damaged"))
        return b"Subject: x\r\n\r\n"

    server = await scripted()
    message = letter(server.port, 2)
    message.body, message.chunks = None, 3
    [result] = await deliver(message, chunk=chunk)
    assert by_recipient(result) == {0: (DEFERRED, "body"), 1: (DEFERRED, "body")}
    await until(lambda: not server.talking)
    assert server.bodies == []


def test_notify_never_stands_alone() -> None:
    """NEVER excludes the others (RFC 3461 4.1), whatever was stored."""
    flags = int(Notify.NEVER | Notify.SUCCESS)
    assert commands.rcpt(Recipient("a@b", flags), True) == "RCPT TO:<a@b> NOTIFY=NEVER\r\n"
    assert commands.rcpt(Recipient("a@b", flags), False) == "RCPT TO:<a@b>\r\n"


@pytest.mark.parametrize(
    "address", ["a@b.c", "", '"a b<c>"@d.e', r'"a\"b"@d.e', "user..x.@d.e", "ü@d.e", "a@[IPv6:::1]", "a'b@d.e"]
)
def test_what_is_one_argument(address: str) -> None:
    """It is sent as it stands."""
    assert commands.sendable(address)


@pytest.mark.parametrize(
    "address",
    ["a@b.c> NOTIFY=NEVER", "a b@c.d", "<a@b.c", 'a"b@c.d', '"a"@b c', '"a@b.c', "a@b.c\r\nDATA", '"a"b"@c.d'],
)
def test_what_would_be_two_arguments_never_leaves(address: str) -> None:
    """Whoever has put it there: a plugin may name recipients that no parser has seen."""
    assert not commands.sendable(address)


def test_null_sender() -> None:
    """The null return path is <>."""
    assert commands.mail(Delivery(1, "m", "z", "d", "", [], 5, 1), 5, {}, False) == "MAIL FROM:<>\r\n"
