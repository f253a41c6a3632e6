"""`zonemta explain` and `zonemta lanes` against a real queue, served on its socket."""

import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, DELIVERED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

BODY = b"Subject: x\r\n\r\nHi\r\n"
Served = Any
Told = Callable[..., Any]


def put(*addresses: str, **more: Any) -> Callable[[LocalQueue], Awaitable[str]]:
    async def work(queue: LocalQueue) -> str:
        now_ms = int(time.time() * 1000)
        recipients = [Recipient(address) for address in addresses]
        envelope = Envelope("ann@example.com", recipients, len(BODY), received_ms=now_ms, **more)
        return (await queue.accept(envelope, BODY)).id

    return work


def settle(verdict: int, reply: Reply, stage: str = "dot", down_s: float | None = None) -> Any:
    """The next delivery has this answer."""

    async def work(queue: LocalQueue) -> None:
        (delivery,) = await queue.lease(1, "sender-1")
        outcome = Outcome(verdict, reply, stage, list(range(len(delivery.recipients))))
        await queue.settle(Result(delivery.lease, [outcome], down_s))
        await queue.core.disk.lines.stable()

    return work


OK, LATER = Reply(250, "2.0.0", "ok"), Reply(451, "4.2.0", "mailbox busy")


def test_a_recipient_that_nothing_holds(served: Callable[..., Served], told: Told) -> None:
    """Said as it is, with how many are before it and what its turn depends on."""
    queue = served()
    queue.do(put("a@x.org"))
    queue.do(put("b@x.org"))
    out = told("explain", "b@x.org").out
    assert "nothing holds it" in out
    assert "its turn" in out
    assert "the 1 before it" in out
    assert "`zonemta lanes`" in out
    (row,) = json.loads(told("explain", "b@x.org", "--json").out)["rows"]
    assert (row["before"], row["reasons"]) == (1, [])


def pull(reserve_s: float, remote: str = "") -> Any:
    async def work(queue: LocalQueue) -> None:
        await queue.pull("jobs", 1, reserve_s, remote=remote, worker="pull")

    return work


def test_a_message_that_somebody_has(served: Callable[..., Served], told: Told) -> None:
    """Reserved: by whom, since when and until when. Being taken: as long as that lasts."""
    queue = served()
    for _ in range(3):
        queue.do(put("jobs@queue", protocol="PULL", sending_zone="jobs"))
    for asked in (pull(600, "192.0.2.7"), pull(0, "192.0.2.8"), pull(60)):
        queue.do(asked)
    reserved, taken, unknown = told("explain", "jobs@queue", "--plain").out.splitlines()[-3:]
    assert "its acknowledgement\t192.0.2.7 has reserved it" in reserved
    assert re.search(r"\(now\)|ago|just now", reserved) or "2026" in reserved
    assert reserved.rstrip().endswith(("in 10 min", "in 600 s"))
    assert "192.0.2.8 is fetching it now" in taken
    assert "a client has reserved it" in unknown


def test_a_queue_by_its_name(served: Callable[..., Served], told: Told) -> None:
    queue = served()
    queue.do(put("jobs@queue", protocol="PULL", sending_zone="jobs"))
    assert "it waits for a client to fetch it" in told("explain", "Jobs").out


def test_a_message_that_waits_for_its_next_try(served: Callable[..., Served], told: Told) -> None:
    """The last answer, when, and until when: local time and the span."""
    queue = served()
    message_id = queue.do(put("a@x.org"))
    queue.do(settle(DEFERRED, LATER))
    out = told("explain", message_id).out
    assert "next try" in out
    assert "tried once, the last answer was: 451 4.2.0 mailbox busy" in out
    assert "s ago" in out
    assert ", in " in out


def test_what_plugins_keep_with_a_recipient(served: Callable[..., Served], told: Told) -> None:
    """Notes are shown after a deferral, bounded, by `explain` and `queue show`; whole in the rows of both and of
    `queue list`."""
    queue, kept = served(), {"plan": "gold", "tries": 1, "long": "x" * 500}

    async def work(queue: LocalQueue) -> str:
        recipients = [Recipient("a@x.org", noted=dict(kept)), Recipient("b@x.org")]
        envelope = Envelope("ann@example.com", recipients, len(BODY), received_ms=int(time.time() * 1000))
        return (await queue.accept(envelope, BODY)).id

    message_id = queue.do(work)
    queue.do(settle(DEFERRED, LATER))
    out = told("explain", message_id).out
    assert f"Notes of plugins on a@x.org: plan gold, tries 1, long {'x' * 120}…\n" in out
    assert "on b@x.org" not in out
    assert "Notes of plugins on it: plan gold" in told("explain", "a@x.org").out
    out = told("queue", "show", message_id).out
    assert re.search(r"Notes of recipients\n.*\n(.*\n)?a@x.org +plan +gold\na@x.org +tries +1\n", out)
    assert "x" * 121 not in out
    for asked in (("queue", "show", message_id), ("queue", "list")):
        told_of = json.loads(told(*asked, "--json").out)
        rows = told_of["recipients" if "recipients" in told_of else "rows"]
        assert {row["recipient"]: row["notes"] for row in rows} == {"a@x.org": kept, "b@x.org": {}}
    (row,) = json.loads(told("explain", "a@x.org", "--json").out)["rows"]
    assert row["notes"] == kept


def test_a_destination_that_cannot_be_reached(served: Callable[..., Served], told: Told) -> None:
    """By domain: its line of mail, and in all how many recipients are queued and deferred."""
    queue = served()
    queue.do(put("a@x.org"))
    queue.do(put("b@x.org"))
    queue.do(settle(DEFERRED, Reply(421, "4.4.1", "connection refused"), "connect", 300))
    out = told("explain", "X.org").out
    assert "cannot be reached" in out
    assert "connection refused" in out
    assert "in 5 min" in out
    assert "1 queued, 1 deferred in all" in out
    assert "zonemta queue list --domain X.org --state deferred" in out


def test_a_limit_in_plain_words(served: Callable[..., Served], told: Told) -> None:
    """Which limit, for what, and when it lets the next one through."""
    queue = served(throttles=[{"name": "gentle", "per": ["campaign"], "messages": "1/hour"}])
    queue.do(put("a@x.org", campaign="spring"))
    queue.do(put("b@x.org", campaign="spring"))
    queue.do(settle(DELIVERED, OK))
    out = told("explain", "spring").out
    assert "Why campaign spring waits" in out
    assert "gentle: campaign=spring (messages)" in out
    for name in "cdef":
        queue.do(put(f"{name}@x.org", campaign="spring"))
    assert (
        "By the limit gentle: campaign=spring (messages) the last of 5 goes in 5 h at the earliest"
        in told("explain", "spring").out
    )
    last = json.loads(told("explain", "spring", "--json").out)["last"]
    assert (last["waiting"], 4.9 * 3600 < last["s"] <= 5 * 3600) == (5, True)
    assert "in 60 min" in out


def test_a_recipient_that_is_being_delivered(served: Callable[..., Served], told: Told) -> None:
    """By whom, and where to."""
    queue = served()
    queue.do(put("a@x.org"))
    queue.do(lambda queue: queue.lease(1, "sender-1"))
    assert "sender-1 is delivering it to x.org" in told("explain", "a@x.org").out


@pytest.mark.parametrize("of", ["message", "recipient"])
def test_what_was_delivered_is_in_the_journal(served: Callable[..., Served], told: Told, of: str) -> None:
    """It is not in the queue; the sentence names the command that tells what became of it, and that one does."""
    queue = served()
    message_id = queue.do(put("a@x.org"))
    queue.do(settle(DELIVERED, OK))
    what = message_id if of == "message" else "a@x.org"
    ran = told("explain", what)
    assert (ran.code, ran.out) == (Exit.DATA, "")
    assert f"{what} is not in the queue" in ran.err
    assert f"`zonemta trace {what}`" in ran.err
    (said,) = (json.loads(line) for line in told("explain", what, "--json").err.splitlines())
    assert ran.err == f"zonemta: {said['error']}\n"
    assert "delivered" in told("trace", what).out


def test_a_name_nobody_has(served: Callable[..., Served], told: Told) -> None:
    """One sentence with what may be asked for."""
    served()
    ran = told("explain", "nowhere.org")
    assert ran.code == Exit.DATA
    assert "nothing called 'nowhere.org' is waiting or suspended" in ran.err


def test_no_name_at_all(served: Callable[..., Served], told: Told) -> None:
    """One sentence, not a name in empty quotes."""
    served()
    for what in ("", " "):
        ran = told("explain", what)
        assert (ran.code, ran.err.count("\n")) == (Exit.DATA, 1)
        assert "there is no name to explain; give a message id" in ran.err


def test_a_deadline_is_named(served: Callable[..., Served], told: Told) -> None:
    """What is suspended until it is lifted ends at its deadline all the same: both are shown."""
    queue = served()
    told("suspend", "destination", "x.org")
    deadline_ms = int(time.time() * 1000) + 600_000
    queue.do(put("a@x.org", deadline_ms=deadline_ms, deadline_mode="R"))
    out = told("explain", "a@x.org").out
    for words in ("suspended", "resumed", "deadline", "returned to its sender", "in 10 min"):
        assert words in out


def test_what_waits_for_its_time_is_not_nothing(served: Callable[..., Served], told: Told) -> None:
    """A zone of which all is deferred, and the site that trace and queue list name: where it is shown."""
    queue = served(zones=[{"name": "default", "host": "127.0.0.1", "port": 9}])
    queue.do(put("a@x.org", "b@y.org"))
    queue.do(settle(DEFERRED, Reply(450, "4.2.1", "later")))
    told("queue", "hold", "--domain", "y.org", "--yes")
    out = told("explain", "default").out
    assert "in it are 1 deferred, 1 held: `zonemta queue list --zone default` shows until when each waits" in out
    ran = told("explain", "127.0.0.1:9")
    assert (ran.code, "`zonemta queue list --site 127.0.0.1:9` shows what is deferred" in ran.out) == (0, True)
    assert told("queue", "list", "--site", "127.0.0.1:9", "--plain").out.count("\n") == 2


def test_a_source_address(served: Callable[..., Served], told: Told) -> None:
    """A known one of which nothing waits, and one whose mail waits."""
    queue = served(
        zones=[{"name": "default", "pool": "p"}], pools=[{"name": "p", "sources": [{"address": "127.0.0.2"}]}]
    )
    assert "Nothing is waiting for ip 127.0.0.2" in told("explain", "127.0.0.2").out
    queue.do(put("a@x.org"))
    told("suspend", "source", "127.0.0.2", "--because", "on a list")
    out = told("explain", "127.0.0.2").out
    assert "source 127.0.0.2 is suspended: on a list" in out
    assert "x.org" in out


def test_without_a_running_queue(told: Told) -> None:
    """One sentence, and the exit code that says so."""
    for command in (("explain", "x.org"), ("lanes",), ("standing",), ("warmup",)):
        assert told(*command).code == Exit.UNAVAILABLE


# ---------------------------------------------------------------- lanes


def test_lanes_are_sorted_by_what_waits(served: Callable[..., Served], told: Told) -> None:
    """The longest first; connections in use of those earned; why not now; one zone or all."""
    queue = served(zones=[{"name": "default", "default": True}, {"name": "b", "recipient_domains": ["z.org"]}])
    queue.do(put("a@y.org"))
    queue.do(put("a@z.org"))
    for name in "abc":
        queue.do(put(f"{name}@x.org", tenant="shop", priority=3))
    rows = json.loads(told("lanes", "--json").out)
    assert [(row["site"], row["waiting"]) for row in rows] == [("x.org", 3), ("y.org", 1), ("z.org", 1)]
    out = told("lanes").out
    assert out.index("x.org") < out.index("y.org")
    assert "priority 3, tenant shop" in out
    assert "0 of 5" in out
    told("suspend", "tenant", "shop")
    assert "suspended: tenant shop is suspended: by an operator" in told("lanes").out
    assert [row["zone"] for row in json.loads(told("lanes", "--zone", "default", "--json").out)] == ["default"] * 2


def test_lanes_of_a_zone_that_is_not(served: Callable[..., Served], told: Told) -> None:
    """The zones there are, in one sentence; an empty queue says where else to look."""
    served()
    ran = told("lanes", "--zone", "nosuch")
    assert ran.code == Exit.USAGE
    assert "there is no zone 'nosuch'" in ran.err
    assert "zonemta queue size" in told("lanes").out
