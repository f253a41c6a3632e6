"""A plugin that is enabled several times, at some listeners, for some zones, open or closed by the operator's word."""

from __future__ import annotations

import asyncio
import json
import smtplib
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Address, Reject, Routing
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import Mta, delivery, envelope, received, running, session
from zonemta_py.plugin.verdicts import PluginFailed

MARK = """
from pydantic import BaseModel
from zonemta_py.plugin import Address, Envelope, Headers, PluginApi, Routing, Session

class Options(BaseModel):
    name: str = ""

def setup(api: PluginApi, options: Options):
    global _api, _name
    _api, _name = api, options.name

async def smtp_rcpt_to(address: Address, session: Session):
    session.notes.setdefault("asked", []).append(_api.name)
    _api.count("asked")

async def message_headers(envelope: Envelope, headers: Headers):
    headers.add("X-Came", _name)

async def queue_route(envelope: Envelope, routing: Routing):
    routing.notes[_api.name] = _name

async def sender_headers(delivery, headers):
    headers.add("X-Goes", _name)
"""
LoadHost = Callable[..., Host]


@pytest.fixture
def load_host(tmp_path: Path) -> LoadHost:
    """load_host(source, [instance, …], options={…}) enables mark.py as these instances, in their order."""

    def make(source: str, instances: list[dict[str, Any]], **more: Any) -> Host:
        (tmp_path / "mark.py").write_text(textwrap.dedent(source))
        known = [{"plugin": "mark"} | one for one in instances]
        given = {"folder": tmp_path, "enabled": [one["name"] for one in known], "instances": known}
        return Host.load(Plugins.model_validate(given | more), Configured(frozenset(("default", "bulk"))))

    return make


async def test_each_has_its_own(load_host: LoadHost) -> None:
    """Options, module variables, api: two of one file share nothing, and are called in the order of `enabled`."""
    options = {"eu": {"name": "Paris"}, "us": {"name": "Boston"}}
    host = load_host(MARK, [{"name": "us"}, {"name": "eu"}], options=options)
    headers, asked = Headers(), session()
    await host.call("message_headers", envelope=envelope(), headers=headers)
    await host.call("smtp_rcpt_to", address=Address("anna@one.test"), session=asked)
    assert headers.all("X-Came") == ["Boston", "Paris"]
    assert asked.notes["asked"] == ["us", "eu"]
    counted = [(row["plugin"], row["value"]) for row in host.statistics() if row.get("counter") == "asked"]
    assert counted == [("us", 1), ("eu", 1)]


async def test_at_listeners(load_host: LoadHost) -> None:
    """What is called at none of a listener's hooks costs nothing there; those of senders are not a listener's."""
    host = load_host(MARK, [{"name": "a", "listeners": ["in"]}, {"name": "b"}])
    for listener, names in (("in", ["a", "b"]), ("other", ["b"])):
        asked = session(listener=listener)
        await host.at(listener).call("smtp_rcpt_to", address=Address("anna@one.test"), session=asked)
        assert asked.notes["asked"] == names
    only = load_host(MARK, [{"name": "a", "listeners": ["in"]}])
    assert not only.at("other").listens("message_headers")
    assert only.at("other").listens("sender_headers")
    assert host.at("in") is host


async def test_in_zones(load_host: LoadHost) -> None:
    host = load_host(MARK, [{"name": "a", "zones": ["bulk"]}, {"name": "b"}], options={"a": {"name": "a"}})
    for zone, names in (("bulk", ["a", ""]), ("default", [""])):
        headers = Headers()
        await host.call("sender_headers", delivery=delivery(zone=zone), headers=headers)
        assert headers.all("X-Goes") == names
        routing = Routing("anna@one.test", zone)
        await host.call("queue_route", envelope=envelope(), routing=routing)
        assert ("a" in routing.notes) == (zone == "bulk")


def test_a_limit_that_never_applies(load_host: LoadHost) -> None:
    """It is said at load, with what the plugin has."""
    routes = "async def queue_route(envelope, routing): pass"
    with pytest.raises(PluginError, match=r"listeners would never apply, .* \(it has queue_route\); leave that out"):
        load_host(routes, [{"name": "a", "listeners": ["in"]}])
    with pytest.raises(PluginError, match=r"zones would never apply, .* \(it has smtp_end\)"):
        load_host("async def smtp_end(session): pass", [{"name": "a", "zones": ["bulk"]}])


def test_what_is_not_there() -> None:
    """Listeners and zones of an instance are configured ones; no two instances have one name."""
    zones, plugins = [{"name": "default"}], {"enabled": ["a"]}

    def config(*instances: dict[str, Any]) -> Config:
        return Config.model_validate({"zones": zones, "plugins": plugins | {"instances": [*instances]}})

    assert config({"name": "a", "zones": ["default"]})
    with pytest.raises(ValidationError, match=r"there is no zone 'defalt' in \[\[zones\]\]; did you mean 'default'"):
        config({"name": "a", "zones": ["defalt"]})
    with pytest.raises(ValidationError, match=r"there is no listener 'subm' in \[\[listeners\]\]"):
        config({"name": "a", "listeners": ["subm"]})
    with pytest.raises(ValidationError, match=r"no listener 'http', as HTTP is off; write \[http\] enabled"):
        config({"name": "a", "listeners": ["http"]})
    with pytest.raises(ValidationError, match=r"two plugins.instances are named 'a'"):
        config({"name": "a"}, {"name": "a"})


def test_an_instance_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a module of its own, which finds its neighbours."""
    package = tmp_path / "wide_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text("WORD = 'here'")
    (package / "hook.py").write_text(
        "from .rules import WORD\nn = []\ndef setup(api):\n    n.append(1)\n    api.count(WORD, len(n))\n"
    )
    info = tmp_path / "wide-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wide\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zonemta.plugins]\nwide = wide_plugin.hook\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = {"enabled": ["wide", "again"], "instances": [{"name": "again", "plugin": "wide"}]}
    host = Host.load(Plugins.model_validate(given))
    assert [(row["plugin"], row["value"]) for row in host.statistics()] == [("wide", 1), ("again", 1)]
    for name in [one for one in sys.modules if one.startswith("wide_plugin")]:
        del sys.modules[name]


async def test_open_goes_on(load_host: LoadHost, caplog: pytest.LogCaptureFixture) -> None:
    """What the plugin has changed before it failed is taken back; it is named and counted all the same."""
    source = """
        async def message_headers(envelope, headers):
            headers.add("X-Half", "1")
            envelope.tenant = "half"
            headers.remove("Subject")
            raise KeyError("x")
    """
    host = load_host(source, [{"name": "a", "failing": "open"}])
    mail, headers = envelope(), Headers.parse(b"Subject: hello\r\n")
    await host.call("message_headers", envelope=mail, headers=headers)
    assert (headers.build(), mail.tenant) == (b"Subject: hello\r\n", None)
    assert "plugin a, hook message_headers" in caplog.text
    assert "raised KeyError: 'x'; mail goes on without it" in caplog.text
    assert [(row["plugin"], row["failures"]) for row in host.statistics()] == [("a", 1)]
    with pytest.raises(PluginFailed):
        await load_host(source, [{"name": "a"}]).call("message_headers", envelope=mail, headers=headers)


async def test_a_verdict_is_no_failure(load_host: LoadHost) -> None:
    source = "from zonemta_py.plugin import *\nasync def smtp_mail_from(address): raise Reject(550, 'no')"
    host = load_host(source, [{"name": "a", "failing": "open"}])
    with pytest.raises(Reject):
        await host.call("smtp_mail_from", address=Address("anna@one.test"), session=session())


WRONG: dict[str, str] = {
    "raises": "raise KeyError('x')", "is too slow": "await asyncio.sleep(60)", "returns": "return 5",
    "exits": "sys.exit()", "sets what nobody can use": "envelope.sender = 5",
}  # fmt: skip


@pytest.mark.parametrize("hook", ["message_analyze", "message_rewrite", "message_store", "message_queue"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_open_streams(load_host: LoadHost, hook: str, wrong: str) -> None:
    """The hooks that see a message as it streams, with more of it than a plugin that does not read can hold up."""
    argument = {"message_queue": "info", "message_rewrite": "node, stream"}.get(hook, "stream")
    source = f"import asyncio, sys\nasync def {hook}(envelope, {argument}):\n    {WRONG[wrong]}\n"
    message = b"Subject: x\r\n\r\n" + b"a line of text\r\n" * 40_000
    host = load_host(source, [{"name": "a", "failing": "open"}], timeout_s=0.2)
    mail = Envelope("ann@a.test", [])
    assert await received(host, message, mail) == message
    assert mail.sender == "ann@a.test"
    assert sum(row["failures"] + row["overruns"] for row in host.statistics()) >= 1
    with pytest.raises(PluginFailed):
        await received(load_host(source, [{"name": "a"}], timeout_s=0.2), message)


async def test_a_part_that_was_taken_cannot_be_given_back(load_host: LoadHost) -> None:
    """Part of it may be written by then."""
    source = """
        async def message_rewrite(node, stream):
            async for block in stream:
                yield block
                raise KeyError("x")
    """
    with pytest.raises(PluginFailed):
        await received(load_host(source, [{"name": "a", "failing": "open"}]), b"Subject: x\r\n\r\nHello\r\n")


# -- in the real server


async def test_in_the_server(tmp_path: Path) -> None:
    """Two of one plugin, one of them at one listener, one for one zone; and one that fails open there."""
    (tmp_path / "mark.py").write_text(MARK)
    (tmp_path / "bad.py").write_text(
        "async def smtp_rcpt_to(address):\n    raise KeyError('rcpt')\n"
        "async def queue_route(envelope, routing):\n    raise KeyError('route')\n"
        "async def sender_headers(delivery, headers):\n    headers.add('X-Bad', 'x')\n    raise KeyError('headers')\n"
    )
    config = f"""
        [plugins]
        folder = "{tmp_path}"
        enabled = ["eu", "us", "bad"]
        [[plugins.instances]]
        name = "eu"
        plugin = "mark"
        listeners = ["other"]
        zones = ["bulk"]
        [[plugins.instances]]
        name = "us"
        plugin = "mark"
        [[plugins.instances]]
        name = "bad"
        failing = "open"
        [plugins.options.eu]
        name = "Paris"
        [plugins.options.us]
        name = "Boston"
        [[zones]]
        name = "default"
        default = true
        [[zones]]
        name = "bulk"
        recipient_domains = ["two.test"]
    """
    async with running(config=config, listeners=("other",)) as mta:
        assert (await mta.send("anna@one.test")).code == 250
        found = await mta.arrived("anna@one.test")
        assert [found.headers.all(name) for name in ("X-Came", "X-Goes", "X-Bad")] == [["Boston"], ["Boston"], []]
        assert (await mta.send("bob@two.test", listener="other")).code == 250
        found = await mta.arrived("bob@two.test")
        assert found.headers.all("X-Came") == found.headers.all("X-Goes") == ["Paris", "Boston"]
        for hook in ("smtp_rcpt_to", "queue_route", "sender_headers"):
            assert "; mail goes on without it" in await mta.logged(f"plugin bad, hook {hook}")
        rows = json.loads(await mta.zonemta("plugin", "list", "--json"))[:3]
        assert [(row["name"], row["listeners"], row["failing"]) for row in rows] == [
            ("eu", ["other"], "closed"), ("us", [], "closed"), ("bad", [], "open"),
        ]  # fmt: skip
        assert "eu (other) > us > bad (open)" in await mta.zonemta("plugin", "order", "smtp_rcpt_to")
        checked = await mta.zonemta("plugin", "check")
        assert "plugin eu: good; hooks: smtp_rcpt_to (other), message_headers (other), queue_route (bulk)" in checked


async def test_what_a_worker_dies_of(tmp_path: Path) -> None:
    """Open: after two deaths at the same mail, it goes on without the plugin."""
    (tmp_path / "dies.py").write_text(
        "import os\nasync def message_queue(envelope, info):\n"
        "    if envelope.recipients[0].address.startswith('dead'):\n        os._exit(1)\n"
    )
    config = '[[plugins.instances]]\nname = "dies"\nfailing = "open"\n'
    async with running(tmp_path / "dies.py", config=f"[plugins]\n{config}") as mta:
        code = await _until_taken(mta)
        assert code == 250
        await mta.arrived("dead@one.test")


async def _until_taken(mta: Mta) -> int:
    for _ in range(20):
        try:
            return (await mta.send("dead@one.test")).code
        except (OSError, smtplib.SMTPServerDisconnected):
            await asyncio.sleep(0.2)
    raise AssertionError(mta.log)
