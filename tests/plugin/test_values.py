"""Every field that a plugin may change × what nobody can use: the plugin is named, and nobody meets the value."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin import values
from zonemta_py.plugin.arguments import (
    Address,
    Attempts,
    Auth,
    Bounce,
    ConnectOptions,
    Deferral,
    Ending,
    Info,
    NextTry,
    Notice,
    Refusal,
    Routing,
    Server,
    Session,
    Sni,
    StoredMessage,
)
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.verdicts import Hold, PluginFailed
from zonemta_py.queue.api import Delivery, Result

MakeHost = Callable[..., Host]
VALUES: dict[str, str] = {
    "None": "None", "a text": "'text'", "a number": "5", "a list": "[1]", "an object": "object()",
    "CRLF": "'x@y.test\\r\\nRCPT TO:<z@y.test>'", "below 0": "-100", "not a number": "float('nan')",
    "too large": "10**30", "more than 64 bits": "1 << 64",
}  # fmt: skip
TEXTS = {
    "body", "origin", "origin_name", "protocol", "deadline_mode", "window", "time_zone", "unsubscribe_scope", "track",
    "request", "token", "account", "durability", "ret", "envid", "user", "sending_zone", "campaign", "tenant", "zone",
    "host", "hostname", "pool", "text",
}  # fmt: skip
NUMBERS = {
    "size", "received_ms", "hold_until_ms", "deadline_ms", "lines", "port", "priority", "delay_s", "life_h", "wait_s",
}  # fmt: skip
ABSENT = {
    "meta", "chosen",
    "ret", "envid", "user", "sending_zone", "campaign", "tenant", "auth", "socket", "context", "srs", "verp", "sts",
}  # fmt: skip


def fits(name: str, field: str, kind: str) -> bool:
    """As docs and docstrings say it, not as the rules are written."""
    if kind == "None":
        return (field in ABSENT and (name, field) != ("session", "user")) or (name, field) == ("envelope", "priority")
    if (name, field) == ("routing", "protocol"):
        return False
    return (kind == "a text" and field in TEXTS) or (kind == "a number" and field in NUMBERS)


def arguments(hook: str) -> dict[str, Any]:
    """What that hook is given."""
    people = [Recipient("a@x.test"), Recipient("b@x.test")]
    all_: dict[str, Any] = {
        "routing": Routing("a@x.test", "default"), "envelope": Envelope("s@x.test", people),
        "options": ConnectOptions("mx.x.test"), "address": Address("a@x.test"), "session": Session(user="me"),
        "delivery": Delivery(1, "id", "default", "x.test", "s@x.test", people, 5, 1), "server": Server(),
        "bounce": Bounce("id", "s@x.test", people, Reply(550, "5.1.1", "No")), "data": Sni(), "server_name": "x.test",
        "auth": Auth("me", "secret"), "headers": Headers.parse(b"Subject: x\r\n"), "info": Info(), "zone": "default",
        "attempts": Attempts(1, 0, 2), "reply": Reply(550), "error": OSError("x"), "connection": None,
        "result": Result(1, []), "entry": {"message": "x"}, "stored": StoredMessage("id"), "why": "RSET",
        "refusal": Refusal("RCPT", Reply(550)), "ending": Ending("gone", None, 0, 0, 0, 1), "api": None,
        "deferral": Deferral(Reply(450), 1, 1, 2), "retry": NextTry(300, Reply(450), 1, 1), "process": None,
        "notice": Notice(),
    }  # fmt: skip
    return {name: all_[name] for name in HOOKS[hook].arguments}


CASES = [
    (hook, values.argument_of(name), rule.field, kind)
    for hook, declared in HOOKS.items()
    if not declared.streams
    for name in values.checked(hook, declared.arguments)
    if not name.endswith(", kept")
    for rule in values.RULES[name]
    if rule.test is not values.kept
    for kind in VALUES
]


KEPT = [
    (hook, values.argument_of(name), rule.field)
    for hook, declared in HOOKS.items()
    for name in values.checked(hook, declared.arguments)
    for rule in values.RULES[name]
    if rule.test is values.kept
]


@pytest.mark.parametrize(("hook", "name", "field"), KEPT)
async def test_what_is_not_a_plugins_to_change_stays(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, hook: str, name: str, field: str
) -> None:
    """What the server itself goes on with: what a delivery is of, above all."""
    host = make_host(f"async def {hook}({name}):\n    {name}.{field} = object()\n")
    given = arguments(hook)
    before = getattr(given[name], field)
    with contextlib.suppress(PluginFailed):
        await host.call(hook, **given)
    assert f"p1.py:2: set {name}.{field} to" in caplog.text
    assert getattr(given[name], field) == before


@pytest.mark.parametrize(("hook", "name", "field", "kind"), CASES)
async def test_what_cannot_be_used_is_the_plugins_failure(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, hook: str, name: str, field: str, kind: str
) -> None:
    host = make_host(f"async def {hook}({name}):\n    {name}.{field} = {VALUES[kind]}\n")
    given = arguments(hook)
    before = getattr(given[name], field)
    call, failure = HOOKS[hook], None
    try:
        if call.waits:
            await host.call(hook, **given)
        else:
            host.call_now(hook, **given)
    except PluginFailed as error:
        failure = error
    if fits(name, field, kind):
        assert failure is None
        assert "p1" not in caplog.text
        return
    assert (failure is not None) == (call.failing == "raise")
    assert failure is None or (failure.plugin, failure.hook, failure.reply.code) == ("p1", hook, 451)
    assert f"plugin p1, hook {hook}" in caplog.text
    assert f"p1.py:2: set {name}.{field} to" in caplog.text
    assert "; it must " in caplog.text
    assert "\r" not in caplog.text
    assert getattr(given[name], field) == before, "what it has set is taken back"


def test_what_can_be_changed_where_it_is_is_copied() -> None:
    """What plugins may set to a list or a dict."""
    shapes: list[Any] = [[], {}, ["192.0.2.1"], ["x", "y"], [Recipient("a@x.test")]]
    kept = {name for name in values.RULES if name.endswith(", kept")}
    found = {
        rule.field for name, rules in values.RULES.items() if name not in kept for rule in rules
        if any(rule.test(one) for one in shapes)
    }  # fmt: skip
    assert found == values.CHANGEABLE


@pytest.mark.parametrize(("hook", "name"), [("smtp_data", "envelope"), ("sender_fetch", "delivery")])
@pytest.mark.parametrize("kind", VALUES)
async def test_recipients_that_are_changed_where_they_are(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, hook: str, name: str, kind: str
) -> None:
    host, given = (
        make_host(f"async def {hook}({name}):\n    {name}.recipients[1].address = {VALUES[kind]}\n"),
        arguments(hook),
    )
    with pytest.raises(PluginFailed):
        await host.call(hook, **given)
    assert f"set {name}.recipients to" in caplog.text
    assert [one.address for one in given[name].recipients] == ["a@x.test", "b@x.test"]


async def test_what_a_plugin_has_not_changed_is_not_judged(make_host: MakeHost) -> None:
    """Addresses that others have let in, for one."""
    host, given = make_host("async def smtp_data(envelope):\n    envelope.priority = 3\n"), arguments("smtp_data")
    given["envelope"].recipients[0].address = "postmaster"
    await host.call("smtp_data", **given)
    assert given["envelope"].priority == 3


async def test_the_next_plugin_never_sees_it(make_host: MakeHost, caplog: pytest.LogCaptureFixture) -> None:
    """Of hooks that pass, work goes on with what was there before; the right one is named."""
    host = make_host(
        "async def queue_bounce(bounce):\n    bounce.recipients = bounce.recipients[:1]\n",
        "async def queue_bounce(bounce):\n    bounce.reply = 'no'\n    bounce.recipients = []\n",
        "async def queue_bounce(bounce):\n    assert (bounce.reply.code, len(bounce.recipients)) == (550, 1)\n",
    )
    given = arguments("queue_bounce")
    await host.call("queue_bounce", **given)
    assert [one.address for one in given["bounce"].recipients] == ["a@x.test"]
    assert "plugin p2, hook queue_bounce" in caplog.text
    assert "plugin p3" not in caplog.text


async def test_passwords_are_not_shown(make_host: MakeHost, caplog: pytest.LogCaptureFixture) -> None:
    host = make_host("async def queue_route(routing):\n    routing.auth = ('me', 'topsecret', 'x')\n")
    with pytest.raises(PluginFailed):
        await host.call("queue_route", **arguments("queue_route"))
    assert "set routing.auth to a tuple that is not shown" in caplog.text
    assert "topsecret" not in caplog.text


HAS = Configured(frozenset(("default",)), True, frozenset(("warm",)), frozenset(("a._domainkey.x.test",)))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("pool = 'warm'", ""),
        ("pool = 'cold'", "set routing.pool to 'cold', which is no pool of the configuration"),
        ("dkim = 'a._domainkey.x.test'", ""),
        ("dkim = 'none'", ""),
        ("dkim = 'b._domainkey.x.test'", "which is no DKIM key of the configuration that signs"),
        ("dkim = 'a key'", 'it must be "", "none", or a key\'s name in DNS'),
        ("srs = False", ""),
        ("srs = True", "set routing.srs to True, but the configuration has no return_path.srs"),
        ("verp = True", "set routing.verp to True, but the configuration has no return_path.verp"),
        ("sts = True", ""),
        ("tls = 'implicit'", ""),
        ("protocol = 'lmtp'", ""),
        ("sender = '<>'", ""),
        ("sender = 'é@x.test'", "be an address in ASCII, empty, or <>"),
    ],
)
async def test_what_is_chosen_by_name_is_there(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, change: str, wrong: str
) -> None:
    """In the configuration that the plugin was loaded with."""
    host, given = (
        make_host(f"async def queue_route(routing):\n    routing.{change}\n", configured=HAS),
        arguments("queue_route"),
    )
    if not wrong:
        return await host.call("queue_route", **given)
    with pytest.raises(PluginFailed):
        await host.call("queue_route", **given)
    assert wrong in "\n".join(caplog.messages)
    assert given["routing"] == Routing("a@x.test", "default")
    return None


@pytest.mark.parametrize("change", ["routing.port = 'x'", "routing.zone = 5"])
async def test_what_is_set_beside_a_verdict_is_judged_too(make_host: MakeHost, change: str) -> None:
    """It holds when the mail goes on."""
    source = f"from zonemta_py.plugin import Defer\nasync def queue_route(routing):\n    {change}\n    raise Defer(9)\n"
    given = arguments("queue_route")
    with pytest.raises(PluginFailed):
        await make_host(source).call("queue_route", **given)
    assert given["routing"] == Routing("a@x.test", "default")


async def test_a_notice_goes_by_a_zone_that_is_there(make_host: MakeHost, caplog: pytest.LogCaptureFixture) -> None:
    host, given = (
        make_host("async def queue_bounce(notice):\n    notice.zone = 'no'\n", configured=HAS),
        arguments("queue_bounce"),
    )
    await host.call("queue_bounce", **given)
    assert "set notice.zone to 'no', which the configuration does not have" in caplog.text
    assert given["notice"] == Notice()


@pytest.mark.parametrize("unknown", ["default", "refuse", "hold"])
async def test_an_unknown_zone(make_host: MakeHost, caplog: pytest.LogCaptureFixture, unknown: str) -> None:
    """By the operator's choice."""
    host = make_host(
        "async def queue_route(routing):\n    routing.zone = 'nowhere'\n", zones=("default",), unknown_zone=unknown
    )
    given = arguments("queue_route")
    with caplog.at_level(logging.WARNING):
        if unknown == "refuse":
            with pytest.raises(PluginFailed):
                await host.call("queue_route", **given)
        elif unknown == "hold":
            with pytest.raises(Hold, match=r"set routing\.zone to 'nowhere'"):
                await host.call("queue_route", **given)
            return
        else:
            await host.call("queue_route", **given)
            assert "a@x.test stays in default" in caplog.text
    assert "plugin p1, hook queue_route" in caplog.text
    assert "p1.py:2: set routing.zone to 'nowhere', which the configuration does not have" in caplog.text
    assert given["routing"].zone == "default"


LINES = {
    "pass\n    routing.port = 0": 3,
    "if routing.zone:\n        routing.host, routing.port = 'mx.test', 0\n    routing.port": 3,
    "routing.port -= 25": 2,
    "routing.port = 5\n    routing.port = 0": 1,
    "setattr(routing, 'port', 0)": 1,
    "routing.notes['x'] = object()": 2,
    "r = routing\n    r.port = 0": 1,
}


@pytest.mark.parametrize("body", LINES)
async def test_the_line_is_that_of_the_assignment(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    """If there is one; else that of the function."""
    host = make_host(f"async def queue_route(routing):\n    {body}\n")
    with pytest.raises(PluginFailed):
        await host.call("queue_route", **arguments("queue_route"))
    assert f"p1.py:{LINES[body]}: set routing." in caplog.text


ABOUT_A_CONNECTION = ("sender_connect", "sender_tls_error", "sender_connected")
AFTERWARDS = ("sender_response_error", "sender_delivered")
CHANGES = {
    "source": ("'127.0.0.9'", ("sender_connecting", "sender_connection", *ABOUT_A_CONNECTION, *AFTERWARDS)),
    "sender": ("'bounces@x.test'", (*ABOUT_A_CONNECTION, *AFTERWARDS)),
    "recipients": ("delivery.recipients[:1]", (*ABOUT_A_CONNECTION, *AFTERWARDS)),
}
SENDERS = ("sender_fetch", "sender_connecting", "sender_connection", *ABOUT_A_CONNECTION, *AFTERWARDS)


@pytest.mark.parametrize("hook", SENDERS)
@pytest.mark.parametrize("field", CHANGES)
async def test_what_comes_too_late_is_named(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, hook: str, field: str
) -> None:
    """A delivery's source address, return path and recipients are refused where they have no effect any more, with
    where they have one; elsewhere they are taken. Notes are taken everywhere."""
    value, late = CHANGES[field]
    host = make_host(f"async def {hook}(delivery):\n    delivery.{field} = {value}\n")
    given = arguments(hook)
    delivery = given["delivery"]
    before = getattr(delivery, field)
    with contextlib.suppress(PluginFailed):
        await host.call(hook, **given)
    if hook in late:
        assert f"set delivery.{field} to " in caplog.text
        assert "it must stay as it is here: set it at sender_fetch" in caplog.text
        assert getattr(delivery, field) == before
    else:
        assert not caplog.text
        assert getattr(delivery, field) != before


IN_PLACE = {
    "a recipient's address": "delivery.recipients[0].address = 'other@x.test'",
    "one less": "del delivery.recipients[0]",
    "another order": "delivery.recipients.reverse()",
}


@pytest.mark.parametrize("change", IN_PLACE)
async def test_recipients_are_not_changed_in_place_either(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """Their notes may be."""
    noting = "async def sender_connected(delivery):\n    delivery.recipients[1].notes['a'] = 1\n"
    host = make_host(noting, f"async def sender_connected(delivery):\n    {IN_PLACE[change]}\n")
    given = arguments("sender_connected")
    with pytest.raises(PluginFailed):
        await host.call("sender_connected", **given)
    assert "plugin p2, hook sender_connected" in caplog.text
    assert "plugin p1" not in caplog.text
    people = given["delivery"].recipients
    assert [(one.address, one.notes) for one in people] == [("a@x.test", {}), ("b@x.test", {"a": 1})]


GOOD = """async def queue_deferred(deferral, delivery):
    delivery.notes.setdefault("seen", []).append("p{n}")
    delivery.recipients[0].notes["by"] = "p{n}"
    delivery.recipients.sort(key=lambda one: one.address, reverse=True)
"""
BAD = {
    "a note in a note": 'delivery.notes["seen"].append(object())',
    "a recipient's note": 'delivery.recipients[0].notes["by"] = object()',
    "a recipient's address": 'delivery.recipients[0].address = "x"',
    "no recipient": "delivery.recipients[0] = 5",
    "its end": 'delivery.source = "x"; raise RuntimeError("no")',
    "a deleted field": "del delivery.source",
}


@pytest.mark.parametrize("wrong", BAD)
async def test_a_plugins_failure_takes_back_what_it_has_done_and_no_more(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    """What those before it have set stays, and those after it see that."""
    bad = f"async def queue_deferred(deferral, delivery):\n    delivery.notes['p2'] = 1\n    {BAD[wrong]}\n"
    host = make_host(GOOD.format(n=1), bad, GOOD.format(n=3))
    given = arguments("queue_deferred")
    delivery = given["delivery"]
    await host.call("queue_deferred", **given)
    assert "plugin p2, hook queue_deferred" in caplog.text
    assert "plugin p1" not in caplog.text
    assert "plugin p3" not in caplog.text
    assert (delivery.source, [one.address for one in delivery.recipients]) == ("", ["b@x.test", "a@x.test"])
    assert delivery.recipients[0].notes["by"] == "p3"
    assert delivery.notes == {"seen": ["p1", "p3"]}
