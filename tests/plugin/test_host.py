"""The host: order, verdicts, time limits, containment, blame, statistics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin import calls
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import Address, Attempts, Auth, Bounce, Notice, Process, Routing, Session, Sni
from zonemta_py.plugin.verdicts import Defer, Drop, PluginFailed, Reject

MakeHost = Callable[..., Host]


async def rcpt(host: Host, address: str = "a@example.com") -> Address:
    given = Address(address)
    await host.call("smtp_rcpt_to", address=given, session=Session(id="s"))
    return given


def test_a_plugin_knows_how_long_it_may_wait(make_host: Callable[..., Host]) -> None:
    """For limits of its own, which have to end before."""
    source = "def setup(api, options):\n    assert api.timeout_s == 7\n"
    make_host(source, timeout_s=7)


async def test_an_empty_host() -> None:
    """Without plugins nothing listens, and calling is harmless."""
    host = Host.empty()
    assert not host.listens("smtp_rcpt_to")
    assert (await rcpt(host)).address == "a@example.com"
    assert host.statistics() == []
    assert host.commands == {}


async def test_plugins_run_in_configured_order(make_host: MakeHost) -> None:
    """Each sees what the one before it changed."""
    add = "async def smtp_rcpt_to(address, session): address.address += '{}'"
    host = make_host(add.format(1), add.format(2))
    assert host.listens("smtp_rcpt_to")
    assert not host.listens("smtp_mail_from")
    assert (await rcpt(host, "a@x")).address == "a@x12"


async def test_a_plugin_takes_the_arguments_it_needs(make_host: MakeHost) -> None:
    """Any subset, in any order, or all as keywords."""
    host = make_host(
        "async def smtp_rcpt_to(): pass",
        "async def smtp_rcpt_to(session): session.notes['x'] = 1",
        "async def smtp_rcpt_to(session, address): address.address += str(session.notes['x'])",
        "async def smtp_rcpt_to(**all): all['address'].address += '!'",
    )
    assert (await rcpt(host, "a@x")).address == "a@x1!"


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [("Reject(550, 'no')", Reject, 550), ("Defer(9, 'wait')", Defer, 451), ("Reject(421, 'x', '4.3.2')", Reject, 421)],
)
async def test_a_verdict_ends_the_round(make_host: MakeHost, raised: str, kind: type[Exception], code: int) -> None:
    """It is raised to the caller, says who raised it, is no failure, and later plugins are not asked."""
    host = make_host(
        f"from zonemta_py.plugin import *\nasync def smtp_rcpt_to(address): raise {raised}",
        "async def smtp_rcpt_to(address): address.address = 'reached'",
    )
    given = Address("a")
    with pytest.raises(kind) as caught:
        await host.call("smtp_rcpt_to", address=given, session=Session())
    assert (caught.value.plugin, caught.value.hook, caught.value.reply.code) == ("p1", "smtp_rcpt_to", code)
    assert given.address == "a"
    first, second = host.statistics()
    assert (first["verdicts"], first["failures"], second["calls"]) == (1, 0, 0)


BAD = {
    "raises": ("async def smtp_rcpt_to(address):\n    raise KeyError('x')", ":2: raised KeyError: 'x'"),
    "raises deep": (
        "import json\nasync def smtp_rcpt_to(address):\n    await _a()\nasync def _a():\n    json.loads('')",
        ":5: raised JSONDecodeError",
    ),
    "sleeps": ("import asyncio\nasync def smtp_rcpt_to(): await asyncio.sleep(60)", "took longer than 0.05 s"),
    "waits for ever": (
        "import asyncio\nasync def smtp_rcpt_to(): await asyncio.get_running_loop().create_future()",
        "took longer than 0.05 s",
    ),
    "times out itself": ("async def smtp_rcpt_to(): raise TimeoutError('mine')", "raised TimeoutError: mine"),
    "returns garbage": ("async def smtp_rcpt_to(): return 'reject'", "returned str, but this hook returns nothing"),
    "exits": ("import sys\nasync def smtp_rcpt_to(): sys.exit(1)", "raised SystemExit: 1"),
    "interrupts": ("async def smtp_rcpt_to(): raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "interrupts later": (
        "import asyncio\nasync def smtp_rcpt_to():\n    await asyncio.sleep(0)\n    raise KeyboardInterrupt",
        "raised KeyboardInterrupt",
    ),
    "leaves": ("async def smtp_rcpt_to(): raise GeneratorExit", "raised GeneratorExit"),
    "cancels": (
        "import asyncio\nasync def smtp_rcpt_to():\n    await asyncio.sleep(0)\n    raise asyncio.CancelledError",
        "raised CancelledError",
    ),
    "wrong verdict": (
        "from zonemta_py.plugin import *\nasync def smtp_rcpt_to(): raise Drop('x')",
        "raised Drop, but this hook accepts Reject, Defer",
    ),
    "wrong code": (
        "from zonemta_py.plugin import *\nasync def smtp_rcpt_to(): raise Reject(250, 'ok')",
        "Reject needs a code from 400 to 599",
    ),
    "unreadable": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nasync def smtp_rcpt_to(): raise E",
        "raised E: (its text cannot be read: ValueError)",
    ),
    "recursion": ("async def smtp_rcpt_to(): await smtp_rcpt_to()", "raised RecursionError"),
}


@pytest.mark.parametrize(("source", "says"), BAD.values(), ids=BAD)
async def test_failures_are_contained(
    make_host: MakeHost, source: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets 451 4.3.0, the log one line with plugin, hook, file, line and problem, the count goes up."""
    host = make_host(source, timeout_s=0.05 if "took longer" in says else 20)
    with pytest.raises(PluginFailed) as caught:
        await rcpt(host)
    assert (caught.value.reply.code, caught.value.reply.enhanced) == (451, "4.3.0")
    assert (caught.value.plugin, caught.value.hook) == ("p1", "smtp_rcpt_to")
    blocked = "blocked its "  # as it seems on a busy machine, with such a limit
    errors = [one for one in caplog.records if one.levelname == "ERROR" and blocked not in one.getMessage()]
    assert len(errors) == 1
    assert "plugin p1, hook smtp_rcpt_to, " in errors[0].getMessage()
    assert "p1.py:" in errors[0].getMessage()
    assert says in errors[0].getMessage()
    assert host.statistics()[0]["failures"] == 1


async def test_a_call_may_wait(make_host: MakeHost) -> None:
    """Awaiting within the limit works: sleeping, threads, futures, a timeout of the plugin's own."""
    source = """
        import asyncio
        async def smtp_rcpt_to(address):
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                address.address = await asyncio.to_thread(str.upper, address.address)
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(9)
            except TimeoutError:
                address.address += "!"
    """
    assert (await rcpt(make_host(source), "a@x")).address == "A@X!"


async def test_a_blocking_plugin_is_measured_and_named(make_host: MakeHost, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing can interrupt it, so the call ends normally; the log and the statistics say who held everything up."""
    host = make_host("import time\nasync def smtp_rcpt_to(): time.sleep(0.03)", timeout_s=0.01)
    await rcpt(host)
    assert "plugin p1, hook smtp_rcpt_to" in caplog.text
    assert "the limit is 0.01 s" in caplog.text
    (only,) = host.statistics()
    assert (only["calls"], only["overruns"], only["failures"]) == (1, 1, 0)
    assert only["worst_s"] == only["seconds"] >= 0.03


@pytest.mark.parametrize(
    "then",
    [
        "return",
        "raise KeyError(1)",
        "await asyncio.sleep(0.01)",
        "await _stubborn()",
    ],
)
async def test_a_stubborn_plugin_is_cut_off(
    make_host: MakeHost, then: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it makes of its cancellation: what it was to check is not checked. It has a moment to clean up, and is
    not resumed after that."""
    monkeypatch.setattr(calls, "GRACE_S", 0.05)
    source = f"""
        import asyncio
        async def _stubborn():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                {then}
        async def smtp_rcpt_to():
            await _stubborn()
    """
    host = make_host(source, timeout_s=0.02)
    with pytest.raises(PluginFailed):
        await rcpt(host)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    if "raise" not in then:
        assert "was cut off" in caplog.text
    [counted] = host.statistics()
    assert (counted["failures"], counted["overruns"]) == (1, 1)


async def test_a_stubborn_plugin_cannot_keep_its_caller(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the client hangs up, or the process ends, the call does, however the plugin likes that."""
    monkeypatch.setattr(calls, "GRACE_S", 0.05)
    source = """
        import asyncio
        async def smtp_rcpt_to(address):
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    if address.address == "soft@x.test":
                        return
    """
    for name in ("soft", "hard"):
        host = make_host(source, timeout_s=60)
        task = asyncio.create_task(host.call("smtp_rcpt_to", address=Address(f"{name}@x.test"), session=Session()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_loop_of_the_process_goes_on(make_host: MakeHost, tmp_path: Path) -> None:
    """A plugin that stops it has failed, and nobody else notices."""
    host = make_host("import asyncio\nasync def smtp_rcpt_to(): asyncio.get_running_loop().stop()")
    await host.begin(Process("receiver", 1), tmp_path)
    with pytest.raises(PluginFailed, match="raised RuntimeError: the event loop is the server's"):
        await rcpt(host)
    await asyncio.sleep(0.01)
    await host.end()


def test_a_death_is_about_one_user_and_not_about_all_of_a_client() -> None:
    """Many log in from one address: behind a proxy, or a web server on this machine."""
    session = Session(client="127.0.0.1")
    anna, ben = (
        calls.subject_of("smtp_auth", {"auth": Auth(name, "x"), "session": session}) for name in ("anna", "ben")
    )
    assert anna != ben
    assert "anna" in anna.about
    assert "shop.test" in calls.subject_of("smtp_sni", {"server_name": "shop.test", "data": Sni()}).about


async def test_cancellation_from_outside_passes(make_host: MakeHost) -> None:
    """When the client hangs up the call ends, and the plugin is not blamed."""
    host = make_host("import asyncio\nasync def smtp_rcpt_to(): await asyncio.sleep(60)")
    task = asyncio.create_task(rcpt(host))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.statistics()[0]["failures"] == 0


async def test_a_wrong_call_is_our_own_mistake() -> None:
    """Calling an unknown hook, or one with other arguments than it offers, is a bug of the caller, and no plugin's."""
    with pytest.raises(KeyError):
        await Host.empty().call("smtp_rcptto")
    with pytest.raises(AssertionError, match="smtp_rcpt_to is called with adress"):
        await Host.empty().call("smtp_rcpt_to", adress=None)


def test_the_handshake_cannot_wait(make_host: MakeHost) -> None:
    """smtp_sni runs to its end inside the handshake; what fails leaves the listener's own certificate."""
    host = make_host(
        "import ssl\nasync def smtp_sni(data):\n    data.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)",
        "async def smtp_sni(): 1 / 0",
    )
    data = Sni("smtp")
    host.call_now("smtp_sni", server_name="a.example", data=data)
    assert isinstance(data.context, ssl.SSLContext)


PASSING: dict[str, dict[str, Any]] = {
    "queue_bounce": {
        "bounce": Bounce("1", "a@example.com", [Recipient("b@example.com")], Reply(550)),
        "notice": Notice(),
    },
    "queue_delayed": {"delivery": None, "attempts": Attempts(1, 2, 3), "notice": Notice()},
    "queue_release": {"zone": "default", "delivery": None},
    "sender_delivered": {"delivery": None, "result": None},
    "sender_response_error": {"delivery": None, "connection": None, "reply": Reply(550)},
    "smtp_init": {"server": None},
}


@pytest.mark.parametrize("hook", PASSING)
async def test_where_stopping_would_harm_work_goes_on(make_host: MakeHost, hook: str) -> None:
    """A plugin that fails in such a hook is logged and counted, the next one is asked, and nothing is raised."""
    host = make_host(f"async def {hook}(): 1 / 0", f"async def {hook}(): pass")
    await host.call(hook, **PASSING[hook])
    first, second = host.statistics()
    assert (first["failures"], second["calls"]) == (1, 1)


async def test_a_bounce_may_be_stopped(make_host: MakeHost) -> None:
    """Drop is what queue_bounce accepts."""
    host = make_host("from zonemta_py.plugin import *\nasync def queue_bounce(bounce): raise Drop(bounce.sender)")
    with pytest.raises(Drop, match=r"a@example\.com"):
        await host.call("queue_bounce", **PASSING["queue_bounce"])


async def test_routing_is_changed_in_place(make_host: MakeHost) -> None:
    """queue_route fills in where one recipient's mail goes."""
    host = make_host("async def queue_route(envelope, routing): routing.host, routing.port = 'mx.example.com', 26")
    routing = Routing("b@example.com", "default")
    await host.call("queue_route", envelope=Envelope("a@example.com", []), routing=routing)
    assert (routing.host, routing.port, routing.zone) == ("mx.example.com", 26, "default")


def test_log_entries_are_filtered_without_a_loop(make_host: MakeHost) -> None:
    """log_entry changes or drops a line wherever it is logged; without plugins the line passes as it is."""
    source = """
        from zonemta_py.plugin import Drop
        async def log_entry(entry):
            if entry["event"] == "noise":
                raise Drop("noise")
            entry["to"] = "***"
    """
    host = make_host(source)
    assert host.filter_log({"event": "noise"}) is None
    assert host.filter_log({"event": "sent", "to": "b"}) == {"event": "sent", "to": "***"}
    entry = {"event": "noise"}
    assert Host.empty().filter_log(entry) is entry


@pytest.mark.parametrize("body", ["1 / 0", "await asyncio.sleep(1)", "return 1", "raise Reject(550, 'x')"])
async def test_a_failing_log_filter_lets_the_line_pass(make_host: MakeHost, body: str) -> None:
    """No line is lost to a plugin that fails, or that waits where nothing can wait."""
    host = make_host(f"import asyncio\nfrom zonemta_py.plugin import *\nasync def log_entry(entry): {body}")
    assert host.filter_log({"event": "x"}) == {"event": "x"}
    assert host.statistics()[0]["failures"] == 1


def test_a_log_filter_that_logs_is_not_called_for_its_own_lines(make_host: MakeHost) -> None:
    """What is logged while a line is filtered passes unfiltered, so there is no endless round."""
    source = """
        inner = []
        async def log_entry(entry):
            entry["seen"] = True
            inner.append(entry["log"]({"event": "inner"}))
            entry["inner"] = inner
    """
    host = make_host(source)
    filtered = host.filter_log({"event": "outer", "log": host.filter_log})
    assert filtered is not None
    assert filtered["inner"] == [{"event": "inner"}]


def test_counters_and_commands(make_host: MakeHost) -> None:
    """What setup registers is in statistics and commands."""
    source = """
        def setup(api):
            api.count("started")
            api.count("bytes", 10)
            api.count("bytes", 5)
            api.command("greet", lambda name: f"hello {name}")
    """
    host = make_host(source)
    assert {"plugin": "p1", "counter": "bytes", "value": 15} in host.statistics()
    assert {"plugin": "p1", "counter": "started", "value": 1} in host.statistics()
    assert host.commands["greet"]("you") == "hello you"


async def test_only_a_sender_knows_a_site_that_could_rest(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere a plugin that asks for it has failed; its word is not passed over in silence."""
    host = make_host("from zonemta_py.plugin import Defer\nasync def queue_route(): raise Defer(9, rest_s=60)")
    with pytest.raises(PluginFailed):
        await host.call("queue_route", envelope=Envelope("a@x.test", []), routing=Routing("b@x.test", "default"))
    assert "asks for a rest of the site, which only hooks of a sender know" in caplog.text


async def test_a_time_limit_of_a_plugins_own_is_its_own_matter(make_host: Callable[..., Host]) -> None:
    """However long it takes to clean up then: its verdict is what counts, and its caller is not cancelled."""
    host = make_host(
        "import asyncio\n"
        "from zonemta_py.plugin import Reject\n"
        "async def smtp_data(envelope):\n"
        "    try:\n"
        "        async with asyncio.timeout(0.05):\n"
        "            try:\n"
        "                await asyncio.sleep(60)\n"
        "            finally:\n"
        "                await asyncio.sleep(1.3)\n"
        "    except TimeoutError:\n"
        "        raise Reject(450, 'it does not answer')\n",
        timeout_s=20,
    )
    with pytest.raises(Reject, match="it does not answer"):
        await host.call("smtp_data", envelope=Envelope("", []), session=Session())
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
