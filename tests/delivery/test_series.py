"""Several messages of one lease over one connection: each settled by its own replies, whatever the server does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.delivery.picky import Dispatch, PickyServer, means_of, verdicts
from zonemta_py.delivery import pipelined
from zonemta_py.delivery import worker as leases
from zonemta_py.mail.envelope import Recipient
from zonemta_py.queue.api import BOUNCED


async def test_all_go_over_one_connection(picky: Any, people: Any, send: Any) -> None:
    """Each gets his own, in order; but for the first, envelopes come with the end of the message before."""
    server = await picky()
    (result,) = await send(people(server.port, 5))
    assert verdicts(result) == ["delivered"] * 5
    assert server.taken == ["n1", "n2", "n3", "n4", "n5"]
    assert (server.connections, server.together) == (1, 4)


@pytest.mark.parametrize("keywords", [(), ("8BITMIME",)])
async def test_without_pipelining_one_waits_for_the_other(
    picky: Any, people: Any, send: Any, keywords: tuple[str, ...]
) -> None:
    """RFC 2920: nothing leaves early unless the server says that it may."""
    server = await picky(keywords=keywords)
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered"] * 4
    assert (server.connections, server.together) == (1, 0)


async def test_a_server_that_wants_one_at_a_time_gets_that(picky: Any, people: Any, send: Any) -> None:
    """Its complaint is nobody's verdict: who was announced is released, and from then on nobody is announced to it."""
    server = await picky(strict=True)
    first, second = await send(people(server.port, 3), people(server.port, 3, ["n4", "n5", "n6"]))
    assert verdicts(first) == ["delivered", "released", "released"]
    assert verdicts(second) == ["delivered"] * 3
    assert server.taken == ["n1", "n4", "n5", "n6"]
    assert server.together == 1


@pytest.mark.parametrize(
    ("way", "verdict"),
    [("rcpt!", "bounced"), ("rcpt", "deferred"), ("data", "deferred"), ("dot", "deferred"), ("dot!", "bounced")],
)
async def test_a_refusal_is_for_one_alone(picky: Any, people: Any, send: Any, way: str, verdict: str) -> None:
    """Those before and behind are delivered over the same connection."""
    server = await picky({"n2": way})
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered", verdict, "delivered", "delivered"]
    assert (server.taken, server.connections) == (["n1", "n3", "n4"], 1)


@pytest.mark.parametrize(
    ("way", "second"),
    [
        ("cut-mail", "released"),
        ("421", "released"),
        ("cut-dot", "deferred"),
        ("421-dot", "deferred"),
        ("cut-after", "delivered"),
    ],
)
async def test_who_was_not_tried_is_released(picky: Any, people: Any, send: Any, way: str, second: str) -> None:
    """Where the connection ends before his message, nothing is said of him; in the middle of it, he is deferred."""
    server = await picky({"n2": way})
    (result,) = await send(people(server.port, 4))
    assert verdicts(result) == ["delivered", second, "released", "released"]
    assert result.down_s is None


async def test_where_nobody_listens_one_is_deferred(people: Any, send: Any) -> None:
    """The others have not been tried, and the destination rests."""
    (result,) = await send(people(1, 4))
    assert verdicts(result) == ["deferred", "released", "released", "released"]
    assert result.down_s is not None


async def test_values_that_make_no_message_are_one_recipients_matter(picky: Any, people: Any, send: Any) -> None:
    """He bounces with the reason; the others get theirs."""
    server = await picky()
    lease = people(server.port, 3)
    lease.recipients[1] = Recipient("no address")
    (result,) = await send(lease)
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    (outcome,) = [outcome for outcome in result.outcomes if outcome.verdict == BOUNCED]
    assert str(outcome.reply).startswith("554 5.6.0 the message cannot be made: To:")


async def test_a_connection_has_its_share_and_no_more(picky: Any, people: Any, send: Any) -> None:
    """`messages_per_connection` ends a series too; the rest is released."""
    server = await picky()
    (result,) = await send(people(server.port, 5), messages_per_connection=3)
    assert verdicts(result) == ["delivered"] * 3 + ["released"] * 2
    assert server.taken == ["n1", "n2", "n3"]


@pytest.mark.parametrize("last", [1, 2, 3])
async def test_a_server_that_leaves_is_told_of_at_once(picky: Any, people: Any, last: int) -> None:
    """421 rests the destination with the answer that it was, whose rules may say otherwise; the end is silent of it."""
    server = await picky({f"n{last}": "421-dot"})
    dispatch = Dispatch()
    result, _ = await leases.deliver(means_of(dispatch), people(server.port, 3))
    assert [part.down_s for part in dispatch.parts] == [None] * (last - 1) + [0]
    assert (verdicts(result), result.down_s) == (["released"] * (3 - last), None)


@pytest.mark.parametrize("ways", [{}, {"n2": "cut-mail"}])
async def test_what_became_of_tls_is_told_once(
    picky: Any, people: Any, send: Any, queue_of: Any, ways: dict[str, str]
) -> None:
    """A row for the connection (RFC 8460), with the first answer: nobody may be left for the end of the lease."""
    server = await picky(ways)
    queue = queue_of([lease := people(server.port, 3, host="", hosts=[["mx.d.example", ["127.0.0.1"]]])], None, 1)
    (result,) = await send(lease, queue=queue, sections={"tls": {"reports": True}}, tls="opportunistic")
    (row,) = queue.parts[0].security
    assert (row[0], [one.security for one in (*queue.parts[1:], result)]) == ("d.example", [[]] * len(queue.parts))


async def test_a_fault_of_ours_while_making_a_message_is_its_own(
    picky: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it has left; the one before it goes out, and the connection may be used again."""

    async def faulty(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pipelined, "letter", faulty)
    dispatch = Dispatch()
    server, means = await picky(), means_of(dispatch)
    await leases.deliver(means, people(server.port, 3))
    told = {i: outcome.reply.text for part in dispatch.parts for outcome in part.outcomes for i in outcome.recipients}
    assert (len(means.connections), server.taken) == (1, ["n1"])
    assert (told[1], told[2]) == ("internal error while delivering, see the log",) * 2


WAYS = (
    "", "", "", "mail", "mail!", "rcpt", "rcpt!", "data", "dot", "dot!", "cut-mail", "cut-dot", "cut-after", "421",
    "421-dot",
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=8), strict=st.booleans(), pipelining=st.booleans())
def test_everybody_is_settled_by_what_the_server_did(
    ways: list[str], strict: bool, pipelining: bool, people: Any
) -> None:
    """Leased again until all are settled: taken once and delivered are the same; refused for good is what bounced."""
    asyncio.run(_settled(ways, strict, pipelining, people))


async def _settled(ways: list[str], strict: bool, pipelining: bool, people: Any) -> None:
    names = [f"n{number}" for number in range(1, len(ways) + 1)]
    if not pipelining:  # MAIL comes alone then, and the server cannot know for whom it is
        ways = ["" if way.strip("!") in ("mail", "cut-mail", "421") else way for way in ways]
    server = PickyServer(dict(zip(names, ways, strict=True)), ("PIPELINING",) if pipelining else (), strict)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    dispatch = Dispatch()
    means = means_of(dispatch)
    found: dict[str, str] = {}
    rounds = 0
    while left := [name for name in names if name not in found]:
        rounds += 1
        assert rounds <= 2 * len(names) + 2
        lease = people(server.port, 0, left)
        dispatch.parts = []
        result, _ = await leases.deliver(means, lease)
        result.outcomes = [outcome for part in dispatch.parts for outcome in part.outcomes] + result.outcomes
        found |= {n: v for n, v in zip(left, verdicts(result), strict=True) if v != "released"}
    listener.close()
    taken = [name for name, verdict in found.items() if verdict == "delivered"]
    assert sorted(server.taken) == sorted(taken)
    for name, way in zip(names, ways, strict=True):
        expected = {"": "delivered", "cut-after": "delivered"}.get(way, "bounced" if way.endswith("!") else "deferred")
        assert found[name] == expected, (name, way)
