"""The queue's hooks as plugins meet them: the right arguments, and what their changes and verdicts come to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from zonemta_py.mail.dsn import Failed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.notices.wording import OwnWords
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.queue_hooks import PluginHooks
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.hooks import PutOff, Routed

LATER = Reply(450, "4.2.0", "later")
A, B = Recipient("a@x.test"), Recipient("b@x.test")
ENVELOPE = Envelope("s@from.test", [A, B])

ROUTE = """
from zonemta_py.plugin import Defer, Drop, Reject
async def queue_route(envelope, routing):
"""


def hooks(make_host: Any, source: str) -> PluginHooks:
    return PluginHooks(make_host(source, zones=("default", "bulk")))


async def routed(make_host: Any, body: str) -> Routed:
    return await hooks(make_host, f"{ROUTE}    {body}").route(ENVELOPE, Routed(A, "default"))


async def test_a_route_is_what_the_plugin_changed(make_host: Any) -> None:
    """Zone, host with port, source and delay are handed to the queue; what was left alone is not."""
    body = "routing.zone, routing.host, routing.port, routing.source = 'bulk', 'mx.test', 26, '127.0.0.9'"
    given = await routed(make_host, f"{body}; routing.delay_s = 9")
    assert (given.zone, given.delay_s) == ("bulk", 9)
    assert given.routing == {"host": "mx.test", "port": 26, "source": "127.0.0.9"}
    assert (await routed(make_host, "pass")) == Routed(A, "default")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("routing.zone = 'nowhere'", "'nowhere', which"), ("routing.port = 26", "port 26 but no host"),
        ("routing.protocol = 'lmtp'", "protocol lmtp but no host"),
    ],
)  # fmt: skip
async def test_a_route_that_means_nothing_is_told(
    make_host: Any, caplog: pytest.LogCaptureFixture, body: str, said: str
) -> None:
    """A zone that is not configured, or a port without a host, changes nothing, and the log says so."""
    with caplog.at_level(logging.WARNING):
        assert await routed(make_host, body) == Routed(A, "default")
    assert said in caplog.text


async def test_whose_route_means_nothing(make_host: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The plugin that has set it last is named, and no other."""
    sets = "async def queue_route(routing):\n    routing.{} = {!r}\n"
    values = (("port", 26), ("protocol", "lmtp"), ("port", 27), ("priority", 2))
    hooks_ = PluginHooks(make_host(*(sets.format(*one) for one in values)))
    with caplog.at_level(logging.WARNING):
        await hooks_.route(ENVELOPE, Routed(A, "default"))
    told = [record.getMessage() for record in caplog.records]
    end = "but no host, so it is ignored; set routing.host, too"
    assert told == [
        f"plugin p3, hook queue_route: gives a@x.test port 27 {end}",
        f"plugin p2, hook queue_route: gives a@x.test protocol lmtp {end}",
    ]


async def test_verdicts_about_a_recipient(make_host: Any) -> None:
    """Reject refuses it, Defer delays it, Drop forgets it; a plugin that fails refuses the message for now."""
    assert (await routed(make_host, "raise Reject(550, 'no')")).refusal == Reply(550, "5.7.1", "no")
    assert (await routed(make_host, "raise Defer(60)")).delay_s == 60
    drop = (await routed(make_host, "raise Drop('unwanted')")).drop
    assert drop is not None
    assert drop[1:] == ("queue_route", "unwanted")
    with pytest.raises(QueueRefusal) as caught:
        await routed(make_host, "raise RuntimeError")
    assert caught.value.reply.code == 451


DELAYED = """
from zonemta_py.plugin import Drop
async def queue_delayed(delivery, attempts):
    raise Drop(f"{[r.address for r in delivery.recipients]} {attempts}")
"""


@pytest.mark.parametrize(("tried", "previous"), [(1, 0), (2, 1_000), (3, 0)])
async def test_a_delay_is_about_one_recipient(
    make_host: Any, monkeypatch: pytest.MonkeyPatch, tried: int, previous: int
) -> None:
    """queue_delayed sees that recipient alone and the times of attempts made, not the time of the last to come."""
    made = hooks(make_host, DELAYED)
    asked: list[dict[str, Any]] = []
    call = made._host.call

    async def note(name: str, **arguments: Any) -> None:
        asked.append(arguments)
        await call(name, **arguments)

    monkeypatch.setattr(made._host, "call", note)
    late = Failed(B, LATER, attempts=tried, last_ms=5_000, until_ms=172_800_000)
    assert not await made.delayed("id1", "default", ENVELOPE, late, 1_000)
    assert asked[0]["delivery"].recipients == [B]
    times = asked[0]["attempts"]
    assert (times.first_ms, times.previous_ms, times.last_ms) == (1_000, previous, 5_000)


async def test_a_bounce_can_be_changed_or_stopped(make_host: Any) -> None:
    """Recipients left out are not told about, another reply is told about the rest, Drop stops it all."""
    failed = [Failed(A, LATER), Failed(B, LATER)]
    keep_b = "bounce.recipients = bounce.recipients[1:]; bounce.reply = Reply(550, '5.0.0', 'gone')"
    source = "from zonemta_py.plugin import Drop\nfrom zonemta_py.mail.reply import Reply\n"
    changed = hooks(make_host, f"{source}async def queue_bounce(bounce):\n    {keep_b}")
    (left,) = await changed.bounced("id1", "default", ENVELOPE, failed)
    assert (left.recipient, left.reply) == (B, Reply(550, "5.0.0", "gone"))
    stopped = hooks(make_host, f"{source}async def queue_bounce(bounce):\n    raise Drop('quiet')")
    assert await stopped.bounced("id1", "default", ENVELOPE, failed) == []


OFF = PutOff(A, LATER, 2, 1_000, "greylisted", "192.0.2.1")


async def test_a_plugin_chooses_when_the_next_try_is(make_host: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What it leaves alone, or cannot be used, is as the schedule has it."""
    code = "async def queue_retry(delivery, retry):\n    if retry.kind == 'greylisted': retry.wait_s = {}\n"
    assert await hooks(make_host, code.format("7")).retried("id", "default", ENVELOPE, OFF, 300) == 7
    assert await hooks(make_host, code.format("-1")).retried("id", "default", ENVELOPE, OFF, 300) == 300
    assert "set retry.wait_s to -1" in caplog.text
    assert await hooks(make_host, code).retried("id", "default", ENVELOPE, OFF._replace(kind=""), 300) == 300


async def test_a_deferral_is_about_one_recipient(make_host: Any) -> None:
    code = """
        async def queue_deferred(delivery, deferral):
            assert [one.address for one in delivery.recipients] == ["a@x.test"]
            assert (deferral.reply.code, deferral.attempts) == (450, 2)
            assert (deferral.next_ms, deferral.kind) == (9_000, "greylisted")
    """
    one = hooks(make_host, code)
    assert (one.defers, one.retries) == (True, False)
    await one.deferred("id", "default", ENVELOPE, OFF, 9_000)
    assert one._host.statistics()[0]["failures"] == 0


async def test_what_else_is_chosen_for_a_recipient(make_host: Any) -> None:
    """Is kept by its name; a switch that is off too, and a protocol with a host only."""
    body = "routing.protocol, routing.pool, routing.dkim, routing.sender = 'lmtp', 'warm', 'none', 'b@x.test'; "
    switches = "routing.srs, routing.verp, routing.sts = False, None, True; "
    kept = {"pool": "warm", "dkim": "none", "sender": "b@x.test", "srs": False, "sts": True}
    assert (await routed(make_host, body + switches)).routing == kept
    host = "routing.host, routing.tls = 'mx.test', 'implicit'"
    way = {"host": "mx.test", "port": 25, "protocol": "lmtp", "tls": "implicit"}
    assert (await routed(make_host, body + switches + host)).routing == kept | way


@pytest.mark.parametrize("verdict", ["Defer(60)", "Hold('look')"])
async def test_what_is_chosen_holds_when_it_goes_later(make_host: Any, verdict: str) -> None:
    """Of an earlier plugin too."""
    source = "from zonemta_py.plugin import Defer, Hold\nasync def queue_route(routing):\n    "
    zones = ("default", "bulk")
    host = make_host(f"{source}routing.zone = 'bulk'", f"{source}routing.tls = 'none'; raise {verdict}", zones=zones)
    given = await PluginHooks(host).route(ENVELOPE, Routed(A, "default"))
    assert (given.zone, given.routing) == ("bulk", {"tls": "none"})
    assert "(plugin p2, hook queue_route)" in given.said


async def test_the_source_that_a_message_asks_for_stays(make_host: Any) -> None:
    """And a plugin sees it."""
    asked = Routed(A, "default", {"source": "127.0.0.9"})
    assert await hooks(make_host, f"{ROUTE}    assert routing.source == '127.0.0.9'").route(ENVELOPE, asked) == asked
    left = await hooks(make_host, f"{ROUTE}    routing.source = ''").route(ENVELOPE, asked)
    assert left.routing is None


async def test_a_notice_in_a_plugins_words(make_host: Any) -> None:
    """Those of a delay are asked about one by one."""
    words = "notice.text, notice.sender, notice.zone = 'Hello', 'help@x.test', 'bulk'"
    own = OwnWords("Hello", "help@x.test", "bulk")
    made = hooks(make_host, f"async def queue_bounce(notice):\n    {words}")
    told = await made.bounced("id1", "default", ENVELOPE, [Failed(A, LATER), Failed(B, LATER)])
    assert [one.own for one in told] == [own, own]
    made = hooks(make_host, f"async def queue_delayed(delivery, notice):\n    {words}")
    late = await made.delayed("id1", "default", ENVELOPE, Failed(A, LATER), 1_000)
    assert late is not None
    assert late.own == own
