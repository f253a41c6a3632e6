"""Servers that take few recipients a message, tarpits, and headers meant for one: what goes when, and to whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.delivery.smtp.dialogue import Dialogue
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, RELEASED

TOO_MANY = "452 4.5.3 Too many recipients"


class Taker:
    """Takes `most` recipients a message and says `reply` to the others, at `point` (rcpt, data: as Exim with
    recipients_max_reject, dot). wait_s: it thinks so long about each RCPT, and answers a group of commands at its end.

    taken: (recipients, body) of every message.
    """

    def __init__(self, most: int, reply: str, point: str, pipelining: bool, wait_s: float) -> None:
        self.most, self.reply, self.point, self.pipelining, self.wait_s = most, reply, point, pipelining, wait_s
        self.taken: list[tuple[list[str], bytes]] = []
        self.connections = self.port = 0
        self.strangers: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        said = ["220 x"]
        people: list[str] = []
        over = False

        async def flush() -> None:
            writer.write("".join(f"{line}\r\n" for line in said).encode())
            said.clear()

        await flush()
        while line := (await reader.readline()).decode():
            verb = line[:4].upper()
            if verb == "EHLO":
                said += ["250-x", "250 PIPELINING"] if self.pipelining else ["250 x"]
            elif verb == "MAIL":
                people, over = [], False
                said.append("250 ok")
            elif verb == "RCPT":
                await asyncio.sleep(self.wait_s)
                name = line.partition("<")[2].partition("@")[0]
                if name in self.strangers:
                    said.append("550 5.1.1 unknown")
                elif len(people) >= self.most and self.point != "dot":
                    over = True
                    said.append(self.reply)
                else:
                    people.append(name)
                    said.append("250 ok")
            elif verb == "DATA" and over and self.point == "data":
                said.append("554 5.5.3 too many recipients")
            elif verb == "DATA" and people:
                said.append("354 go")
                await flush()
                body = await reader.readuntil(b"\r\n.\r\n")
                if len(people) > self.most:
                    said.append(self.reply)
                else:
                    self.taken.append((people, body))
                    said.append("250 2.0.0 taken")
                people = []
            elif verb == "QUIT":
                break
            else:
                said.append("250 ok" if verb == "RSET" else "503 5.5.1 nobody")
            if not (self.wait_s and reader._buffer):  # type: ignore[attr-defined]
                await flush()
        writer.close()


@pytest.fixture
async def taker() -> AsyncIterator[Callable[..., Awaitable[Taker]]]:
    listening = []

    async def start(
        most: int = 1000, reply: str = TOO_MANY, point: str = "rcpt", pipelining: bool = True, wait_s: float = 0.0
    ) -> Taker:
        server = Taker(most, reply, point, pipelining, wait_s)
        listening.append(await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20))
        server.port = listening[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for one in listening:
        one.close()


def by_index(result: Any) -> dict[int, int]:
    found = {index: outcome.verdict for outcome in result.outcomes for index in outcome.recipients}
    assert sum(len(outcome.recipients) for outcome in result.outcomes) == len(found)  # each in one outcome
    return found


def names(server: Taker) -> list[str]:
    return sorted((name for people, _ in server.taken for name in people), key=lambda name: int(name[1:]))


@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelined", "stepwise"])
@pytest.mark.parametrize(
    "reply",
    [TOO_MANY, "452 too many recipients", "552 too many recipients", "552 5.5.3 no more", "451 4.5.3 enough",
     "450 4.7.1 Error: too many recipients"],
)  # fmt: skip
async def test_the_rest_at_once(reply: str, pipelining: bool, taker: Any, letter: Any, deliver: Any) -> None:
    """One hundred recipients at a server that takes ten: ten messages over one connection, at once (RFC 5321
    4.5.3.1.10), each answer told when it is there, and the number is learned."""
    server = await taker(10, reply, pipelining=pipelining)
    [result] = await deliver(letter(server.port, 100))
    assert by_index(result) == dict.fromkeys(range(100), DELIVERED)
    assert [len(people) for people, _ in server.taken] == [10] * 10
    assert names(server) == [f"r{number}" for number in range(1, 101)]
    assert (server.connections, result.recipients_max, result.stalled) == (1, 10, False)
    assert "452" in result.manner or reply[:3] in result.manner


async def test_a_large_message_too(taker: Any, letter: Any, deliver: Any) -> None:
    """Chunks are fetched again for each message, and all are the same."""
    server = await taker(2)
    chunk = (b"x" * 62 + b"\r\n") * 1024
    message = letter(server.port, 5)
    message.body, message.chunks, message.size = None, 3, 3 * len(chunk)
    [result] = await deliver(message, chunk=lambda _id, _number: chunk)
    assert by_index(result) == dict.fromkeys(range(5), DELIVERED)
    assert [body for _, body in server.taken] == [chunk * 3 + b".\r\n"] * 3


@pytest.mark.parametrize("point", ["data", "dot"])
async def test_refused_as_a_whole(point: str, taker: Any, letter: Any, deliver: Any) -> None:
    """A server that refuses DATA, or the message, for the number of its recipients refuses nobody for good by it."""
    server = await taker(10, "554 5.5.3 too many recipients" if point == "dot" else TOO_MANY, point)
    [result] = await deliver(letter(server.port, 40))
    assert by_index(result) == dict.fromkeys(range(40), DELIVERED)
    assert max(len(people) for people, _ in server.taken) <= 10
    assert result.recipients_max == 10


@pytest.mark.parametrize("reply", ["452 4.3.1 Insufficient system storage", "452 4.2.2 mailbox full",
                                   "452 Too many recipients received this hour", "450 4.2.1 not now",
                                   "550 5.1.1 unknown"])  # fmt: skip
async def test_what_is_not_about_the_number(reply: str, taker: Any, letter: Any, deliver: Any) -> None:
    """Full disks, full mailboxes and limits by the hour are no reason to go on at once."""
    server = await taker(3, reply)
    [result] = await deliver(letter(server.port, 6))
    wanted = BOUNCED if reply[0] == "5" else DEFERRED
    assert by_index(result) == dict.fromkeys(range(3), DELIVERED) | dict.fromkeys(range(3, 6), wanted)
    assert (len(server.taken), result.recipients_max) == (1, 0)


async def test_a_bare_452_has_to_prove_itself(taker: Any, letter: Any, deliver: Any) -> None:
    """452 without a word is tried again at once, and is a limit only if that is then taken."""
    server = await taker(4, "452 no")
    [result] = await deliver(letter(server.port, 6))
    assert (by_index(result), result.recipients_max) == (dict.fromkeys(range(6), DELIVERED), 4)
    server = await taker(0, "452 no")
    [result] = await deliver(letter(server.port, 6))
    assert (by_index(result), result.recipients_max) == (dict.fromkeys(range(6), DEFERRED), 0)


async def test_other_refusals_among_them(taker: Any, letter: Any, deliver: Any) -> None:
    """Whoever is unknown bounces, in whichever of the messages."""
    server = await taker(3)
    server.strangers = {"r2", "r7"}
    [result] = await deliver(letter(server.port, 9))
    wanted = dict.fromkeys(range(9), DELIVERED) | {1: BOUNCED, 6: BOUNCED}
    assert (by_index(result), result.recipients_max) == (wanted, 3)


async def test_counted_messages_are_released(taker: Any, letter: Any, deliver: Any) -> None:
    """Where limits count messages the rest goes back untried: its next message has to be granted."""
    server = await taker(10)
    [result] = await deliver(letter(server.port, 30, counted=True))
    assert by_index(result) == dict.fromkeys(range(10), DELIVERED) | dict.fromkeys(range(10, 30), RELEASED)
    assert result.recipients_max == 10


async def test_messages_per_connection(taker: Any, letter: Any, deliver: Any) -> None:
    """A connection that has had its share of messages ends; who is left goes back untried."""
    server = await taker(10)
    [result] = await deliver(letter(server.port, 40, messages_per_connection=3))
    assert sorted(by_index(result).values()) == [DELIVERED] * 30 + [RELEASED] * 10


# -- tarpits


async def test_a_group_has_the_time_of_its_commands(taker: Any, letter: Any, deliver: Any) -> None:
    """A server that thinks about each RCPT and answers the group at its end: each command has its time."""
    server = await taker(wait_s=0.2)
    [result] = await deliver(letter(server.port, 10), reply_timeout_s=0.6)
    assert by_index(result) == dict.fromkeys(range(10), DELIVERED)
    assert server.connections == 1


async def test_out_of_time(taker: Any, letter: Any, deliver: Any) -> None:
    """Where the group takes even longer, nobody was tried: fewer at a time, and one command at a time, are learned."""
    server = await taker(wait_s=0.5)
    [result] = await deliver(letter(server.port, 8), reply_timeout_s=0.2)
    assert by_index(result) == dict.fromkeys(range(8), RELEASED)
    assert (result.stalled, result.recipients_max, result.down_s) == (True, 4, None)
    assert "commands" in result.manner


async def test_stepwise(taker: Any, letter: Any, deliver: Any) -> None:
    """Told so, a sender says one command at a time, although the server offers PIPELINING."""
    server = await taker(wait_s=0.2)
    [result] = await deliver(letter(server.port, 4, stepwise=True), reply_timeout_s=1)
    assert by_index(result) == dict.fromkeys(range(4), DELIVERED)


async def test_the_group_has_an_end(monkeypatch: Any, taker: Any, letter: Any, deliver: Any) -> None:
    """However many commands: a silent server does not have a connection for hours."""
    waited: list[float] = []
    real = Dialogue.replies

    async def replies(self: Dialogue, count: int, timeout_s: float) -> Any:
        waited.append(timeout_s)
        return await real(self, count, timeout_s)

    monkeypatch.setattr(Dialogue, "replies", replies)
    server = await taker()
    await deliver(letter(server.port, 100), reply_timeout_s=300)
    assert max(waited) == 1800


# -- headers for some

FOR_ONE = """
async def sender_headers(delivery, headers):
    [recipient] = delivery.recipients
    headers.replace("X-For", recipient.address if recipient.address in ("r2@d.example", "r4@d.example") else "all")
"""


async def test_a_header_meant_for_one(taker: Any, letter: Any, deliver: Any, plugin: Any) -> None:
    """`sender_headers` sees one recipient at a time; those whose headers come out equal share a message."""
    server = await taker()
    [result] = await deliver(letter(server.port, 5), host=plugin(FOR_ONE))
    assert by_index(result) == dict.fromkeys(range(5), DELIVERED)
    seen = {tuple(people): body.partition(b"X-For: ")[2].split(b"\r\n")[0] for people, body in server.taken}
    assert seen == {("r1", "r3", "r5"): b"all", ("r2",): b"r2@d.example", ("r4",): b"r4@d.example"}
    assert server.connections == 1


async def test_one_message_where_nobody_is_singled_out(taker: Any, letter: Any, deliver: Any, plugin: Any) -> None:
    """A header that is everybody's costs no second DATA."""
    server = await taker()
    source = 'async def sender_headers(headers):\n    headers.replace("X-All", "yes")\n'
    [result] = await deliver(letter(server.port, 50), host=plugin(source))
    assert by_index(result) == dict.fromkeys(range(50), DELIVERED)
    assert [len(people) for people, _ in server.taken] == [50]


async def test_headers_and_a_limit(taker: Any, letter: Any, deliver: Any, plugin: Any) -> None:
    """Both at once: nobody gets another's header."""
    server = await taker(2)
    [result] = await deliver(letter(server.port, 7), host=plugin(FOR_ONE))
    assert by_index(result) == dict.fromkeys(range(7), DELIVERED)
    assert names(server) == [f"r{number}" for number in range(1, 8)]
    for people, body in server.taken:
        own = body.partition(b"X-For: ")[2].split(b"\r\n")[0].decode()
        assert own == "all" or (own == f"{people[0]}@d.example" and len(people) == 1)


async def test_a_verdict_about_one(taker: Any, letter: Any, deliver: Any, plugin: Any) -> None:
    """What the hook raises for one recipient is his alone."""
    source = """
async def sender_headers(delivery, headers):
    if delivery.recipients[0].address == "r2@d.example":
        raise Hold("look at it")
"""
    server = await taker()
    [result] = await deliver(letter(server.port, 3), host=plugin(source))
    assert by_index(result) == {0: DELIVERED, 1: HELD, 2: DELIVERED}


async def test_plugins_hear_of_all_that_was_delivered(
    taker: Any, letter: Any, deliver: Any, plugin: Any, tmp_path: Any
) -> None:
    """`sender_delivered` is called once, with what became of each recipient of all messages."""
    server = await taker(2)
    note = tmp_path / "heard"
    source = f"""
from pathlib import Path
async def sender_delivered(delivery, result):
    places = sorted(index for outcome in result.outcomes for index in outcome.recipients)
    with Path({str(note)!r}).open("a") as file:
        file.write(f"{{len(delivery.recipients)}} {{places}}\\n")
"""
    await deliver(letter(server.port, 5), host=plugin(source))
    assert note.read_text() == "5 [0, 1, 2, 3, 4]\n"
