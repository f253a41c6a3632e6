"""`zonemta route` says what becomes of a message that is handed in: random mail goes through both, then the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zonemta_py.cli.config.route import _fields, _listener, handed_in
from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.queue_hooks import PluginHooks
from zonemta_py.queue.lifecycle import checks
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import Login
from zonemta_py.reception.receiver import MessageRefused, Receiver
from zonemta_py.zones.router import Router

CONFIG = {
    "zones": [
        {"name": "usual"},
        {"name": "bulk", "headers": {"List-Id": "*<news.example.com>*", "Precedence": "bulk"}},
        {"name": "shop", "sender_domains": ["*.shop.example"], "recipient_domains": ["d.example"]},
        {"name": "inside", "origins": ["10.0.0.0/8"]},
    ],
    "listeners": [
        {"name": "in"}, {"name": "wild", "port": 2526, "trust_sending_zone": False, "trust_headers": False},
    ],
    "users": {"ann": "x"},
    "accounts": [{"name": "a", "users": ["ann"], "zone": "shop"}, {"name": "n", "networks": ["10.1.0.0/16"]}],
    "plugins": {
        "enabled": ["custom_routing"],
        "options": {
            "custom_routing": {
                "rules": [
                    {"header": {"X-Kind": "sale*"}, "zone": "bulk", "priority": -2},
                    {"header": {"Reply-To": "*@shop.example"}, "sender": ["a.example"], "delay_s": 9},
                    {"campaign": ["spring"], "host": "relay.example", "port": 26},
                    {"header": {"X-Campaign": "autumn"}, "zone": "inside"},
                    {"user": ["ann"], "recipient": ["c.example"], "reject": "550 5.7.1 no"},
                ]
            }
        },
    },
}  # fmt: skip
VALUES = {
    "X-Kind": ["sale", "Sale of May", "x" * 300 + "sale", "no sale", "=?utf-8?q?sale_=C3=BC?="],
    "List-Id": ["News <news.example.com>", "x" * 250 + " <news.example.com>", "<other>"],
    "Precedence": ["bulk", "Bulk", "list"], "Reply-To": ["x@shop.example", "x@a.example"],
    "X-Campaign": ["spring", "autumn", "two words"], "X-Sending-Zone": ["shop", "SHOP", "nowhere", "bulk"],
    "Subject": ["hallo", "ü"], "X-Priority-Level": ["3", "many"],
}  # fmt: skip
FIELD = st.sampled_from([(name, value) for name, values in VALUES.items() for value in values])


class Kept:
    """A queue that only keeps the envelope."""

    async def accept(self, envelope: Envelope, last: bytes) -> Envelope:
        return envelope


@cache
def server() -> tuple[Config, Host]:
    config = Config.model_validate(CONFIG)
    return config, Host.of(config)


async def received(config: Config, host: Host, name: str, envelope: Envelope, fields: bytes) -> Any:
    """The envelope as a receiver hands it to the queue, or its refusal."""
    gate = ConnectionLimits(config.limits)
    site = ListenerSettings(config, _listener(config, name), Kept(), host, gate, Login({}))  # type: ignore[arg-type]
    account = site.accounts.of(envelope.origin, user=envelope.user or "")
    senders = site.permissions.user(envelope.user) if envelope.user else site.permissions.network(envelope.origin)
    session = SimpleNamespace(account=account, senders=senders, user=envelope.user or "", client="", listener=name)
    envelope.account = account
    receiver = Receiver(site, session, envelope, "", "t")  # type: ignore[arg-type]
    receiver.take(fields + b"body\r\n")
    try:
        return await receiver.accept(False, False)
    except MessageRefused as refused:
        return refused.reply


def decisions(config: Config, host: Host, envelope: Envelope) -> Any:
    """What the queue's own code makes of it."""
    hooks = PluginHooks(host)
    campaigns = SimpleNamespace(canceled=set(), by_name={})
    core: Any = SimpleNamespace(router=Router(config.zones), hooks=hooks, campaigns=campaigns, membership=None)
    return asyncio.run(_asked(core, envelope))


async def _asked(core: Any, envelope: Envelope) -> Any:
    return [await core.hooks.route(envelope, routed) for routed in checks.routes(core, envelope)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(FIELD, max_size=5),
    st.sampled_from(["", "a@a.example", "b@x.shop.example", "c@SHOP.example"]),
    st.lists(st.sampled_from(["x@b.example", "x@c.example", "x@d.example"]), min_size=1, max_size=3, unique=True),
    st.sampled_from(["127.0.0.1", "10.1.2.3", "10.9.9.9"]),
    st.sampled_from(["", "ann"]),
    st.sampled_from(["in", "wild"]),
)
def test_what_route_looks_at_is_what_the_queue_gets(
    fields: list[tuple[str, str]], sender: str, to: list[str], origin: str, user: str, listener: str
) -> None:
    """Header fields that stay, zone, campaign, priority and refusal are the same, and so is each recipient's way."""
    section = _fields([f"{name}: {value}" for name, value in fields])
    config, host = server()
    both: list[Any] = []
    for way in ("route", "receiver"):
        envelope = Envelope(sender, [Recipient(one) for one in to], origin=origin, user=user or None)
        if way == "route":
            told: Any = asyncio.run(handed_in(config, _listener(config, listener), host, envelope, section, True))
            told = told or envelope
        else:
            told = asyncio.run(received(config, host, listener, envelope, section))
        if isinstance(told, Envelope):
            for name in ("date", "message-id"):
                told.headers.pop(name, None)
            looked = (told.headers, told.sending_zone, told.campaign, told.tenant, told.priority, told.account)
            both.append((looked, [vars_of(one) for one in decisions(config, host, told)]))
        else:
            both.append(str(told))
    assert both[0] == both[1]


def vars_of(routed: Any) -> Any:
    return (routed.recipient.address, routed.zone, routed.routing, routed.delay_s, str(routed.refusal), routed.drop)


@pytest.mark.parametrize("header", ["X-Kind: sale", "Organization: Acme", "X-Spam-Flag: YES"])
def test_a_plugin_s_rule_holds_for_any_field(zonemta: Callable[..., Any], tmp_path: Path, header: str) -> None:
    """In `zonemta route`, and of a message that is handed in: the field stays with the envelope."""
    name, _, value = header.partition(": ")
    rule = {"header": {name: value}, "zone": "bulk"}
    options = {"enabled": ["custom_routing"], "options": {"custom_routing": {"rules": [rule]}}}
    config = Config.model_validate({"zones": [{"name": "usual"}, {"name": "bulk"}], "plugins": options})
    host = Host.of(config)
    envelope = Envelope("a@a.example", [Recipient("b@b.example")], origin="127.0.0.1")
    got = asyncio.run(received(config, host, "smtp", envelope, _fields([header, "X-Other: x"])))
    assert got.headers[name.lower()] == value
    assert "x-other" not in got.headers, "what nobody needs costs nothing"
    assert [one.zone for one in decisions(config, host, got)] == ["bulk"]
    file = tmp_path / "c.toml"
    file.write_text(
        '[[zones]]\nname = "usual"\n[[zones]]\nname = "bulk"\n[plugins]\nenabled = ["custom_routing"]\n'
        f'[[plugins.options.custom_routing.rules]]\nzone = "bulk"\nheader = {{ {name} = "{value}" }}\n'
    )
    ran = zonemta("route", "--config", file, "--from", "a@a.example", "--to", "b@b.example", "--header", header,
                  "--plugins", "--json")  # fmt: skip
    assert json.loads(ran.out)[0]["zone"] == "bulk", ran
