"""A server that fails at each point of the dialogue in each way: the right verdict and stage for every recipient."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED

WAYS = ("4xx", "5xx", "silence", "reset", "garbage", "half")
LOST = ("silence", "reset", "garbage", "half")
CHUNK = (b"x" * 62 + b"\r\n") * 1024


def verdicts(result: Any) -> list[tuple[int, str]]:
    """(verdict, stage) of each recipient, in order; fails unless each is in exactly one outcome."""
    rows = {index: (outcome.verdict, outcome.stage) for outcome in result.outcomes for index in outcome.recipients}
    assert sum(len(outcome.recipients) for outcome in result.outcomes) == len(rows)
    return [rows[index] for index in sorted(rows)]


def all_of(verdict: int, stage: str) -> list[tuple[int, str]]:
    return [(verdict, stage)] * 3


def expected(point: str, way: str, grouped: bool) -> list[tuple[int, str]]:
    """What becomes of three recipients of a message that fits one chunk."""
    if point in ("banner", "ehlo"):
        return all_of(DEFERRED, point)
    if way == "silence" and grouped and point in ("mail", "rcpt", "rcpt1", "rcpt2"):
        return all_of(RELEASED, "limit")  # a tarpit: at once again, and one command at a time
    if point in ("mail", "data", "dot"):
        return all_of(BOUNCED if way == "5xx" else DEFERRED, point)
    if point == "rcpt":
        return all_of(BOUNCED if way == "5xx" else DEFERRED, "rcpt")
    own = (BOUNCED if way == "5xx" else DEFERRED, "rcpt")
    if point == "rcpt1":
        return all_of(*own) if way in LOST else [own, (DELIVERED, "dot"), (DELIVERED, "dot")]
    assert point == "rcpt2"
    return [(DEFERRED, "data"), own, own] if way in LOST else [(DELIVERED, "dot"), own, (DELIVERED, "dot")]


@pytest.mark.parametrize("keywords", [("PIPELINING",), ()], ids=["pipelined", "stepwise"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["banner", "ehlo", "mail", "rcpt", "rcpt1", "rcpt2", "data", "dot"])
async def test_failure_at(
    point: str, way: str, keywords: tuple[str, ...], scripted: Any, letter: Any, deliver: Any
) -> None:
    """4xx and everything that is no reply is temporary; 5xx is permanent from MAIL on; each recipient by its own."""
    server = await scripted({point: way}, keywords)
    [result] = await deliver(letter(server.port, 3))
    wanted = expected(point, way, bool(keywords))
    assert verdicts(result) == wanted
    assert len(server.bodies) == any(stage == "dot" for _, stage in wanted)
    assert result.stalled is (wanted[0] == (RELEASED, "limit"))
    assert (result.down_s == 0) is (point in ("banner", "ehlo"))
    for outcome in result.outcomes:
        assert outcome.verdict == DELIVERED or outcome.reply.permanent is (outcome.verdict == BOUNCED)


async def test_connect_refused(letter: Any, deliver: Any) -> None:
    """Nobody listens: temporary, and the destination rests."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        [result] = await deliver(letter(taken.getsockname()[1], 3))
    assert verdicts(result) == all_of(DEFERRED, "connect")
    assert result.down_s == 0
    assert str(result.outcomes[0].reply) == "451 4.4.1 no connection while connecting: connection refused"


@pytest.mark.parametrize("way", WAYS)
async def test_in_the_body(way: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """A server that ends it in mid-message is believed if it says why; the end of the message is never sent."""
    server = await scripted({"body": way})
    message = letter(server.port, 3)
    message.body, message.chunks, message.size = None, 200, 200 * len(CHUNK)
    [result] = await deliver(message, chunk=lambda _id, _number: CHUNK)
    assert verdicts(result) == all_of(BOUNCED if way == "5xx" else DEFERRED, "body")
    assert server.bodies == []
    assert server.connections == 1


@pytest.mark.parametrize("way", ["421", "reset", "garbage", "half"])
async def test_after_the_final_reply(way: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """Once the final reply is there nothing can undo it, and the next message takes a fresh connection."""
    server = await scripted({"after": way})
    first, second = await deliver(letter(server.port), letter(server.port))
    assert verdicts(first) == [(DELIVERED, "dot")]
    # Garbage that comes in behind the next MAIL cannot be told from a reply to it.
    assert verdicts(second) in ([(DELIVERED, "dot")], *([[(DEFERRED, "mail")]] if way in ("garbage", "half") else []))
    assert len(server.bodies) == (2 if second.outcomes[0].verdict == DELIVERED else 1)


@pytest.mark.parametrize("way", [*WAYS, "421"])
async def test_next_message_on_a_reused_connection(way: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """Gone (or 421) before it answered MAIL: a fresh connection, silently. Any other answer counts."""
    server = await scripted({"next": way})
    first, second = await deliver(letter(server.port), letter(server.port))
    assert verdicts(first) == [(DELIVERED, "dot")]
    if way in ("reset", "half", "421"):
        assert verdicts(second) == [(DELIVERED, "dot")]
        assert second.down_s is None
        assert (server.connections, len(server.bodies)) == (2, 2)
    else:
        assert verdicts(second) == [(BOUNCED if way == "5xx" else DEFERRED, "mail")]
        assert (server.connections, len(server.bodies)) == (1, 1)


@pytest.mark.parametrize("way", WAYS)
async def test_rset_of_what_was_left_open(way: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """All recipients refused leaves a transaction open: RSET goes first; a server that cannot reset is left."""
    server = await scripted({"rcpt1": "5xx", "rset": way})
    second_letter = letter(server.port, 2)
    first, second = await deliver(letter(server.port), second_letter)
    assert verdicts(first) == [(BOUNCED, "rcpt")]
    if way in ("silence", "garbage"):
        assert verdicts(second) == [(DEFERRED, "mail")] * 2
    else:
        assert verdicts(second) == [(BOUNCED, "rcpt"), (DELIVERED, "dot")]
        assert server.connections == 2


@pytest.mark.parametrize("way", WAYS)
async def test_quit(way: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """Nobody waits for the reply to QUIT, so nothing can go wrong with it."""
    server = await scripted({"quit": way})
    results = await deliver(letter(server.port), letter(server.port), messages_per_connection=1)
    assert [verdicts(result) for result in results] == [[(DELIVERED, "dot")]] * 2
    assert server.connections == 2


@pytest.mark.parametrize("point", ["banner", "ehlo", "mail", "rcpt1", "rcpt2", "data", "dot"])
async def test_421_anywhere(point: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """421 is temporary for everyone who is not settled yet, and the destination rests."""
    server = await scripted({point: "421"})
    [result] = await deliver(letter(server.port, 3))
    assert {verdict for verdict, _ in verdicts(result)} == {DEFERRED}
    assert result.down_s == 0
