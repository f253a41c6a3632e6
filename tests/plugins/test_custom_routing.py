"""The bundled example custom_routing, loaded by a real host from a real configuration."""

from __future__ import annotations

import asyncio
import itertools
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.spec import Routing
from zonemta_py.plugin.verdicts import Reject

ENVELOPE = Envelope(
    "news@lists.example.com",
    [],
    user="anna",
    campaign="Spring-2030",
    headers={"list-id": "Weekly News <news.example.com>"},
)


def load(*rules: dict[str, Any], table: Path | None = None, zones: tuple[str, ...] = ()) -> Host:
    options: dict[str, Any] = {"rules": list(rules)}
    if table is not None:
        options["table"] = str(table)
    plugins = Plugins(enabled=["custom_routing"], options={"custom_routing": options})
    return Host.load(plugins, Configured(frozenset(zones)))


async def route(host: Host, recipient: str = "b@example.org", envelope: Envelope = ENVELOPE) -> Routing:
    routing = Routing(recipient, "default")
    await host.call("queue_route", envelope=envelope, routing=routing)
    return routing


def problem(*rules: dict[str, Any], **more: Any) -> str:
    with pytest.raises(PluginError) as caught:
        load(*rules, **more)
    assert str(caught.value).startswith("plugin custom_routing, /")
    return str(caught.value)


_stamps = itertools.count(2_000_000_000, 10)


def newest(path: Path, text: str) -> None:
    """Writes it anew, with a change time that differs whatever the clock's grain."""
    path.write_text(text)
    stamp = next(_stamps)
    os.utime(path, (stamp, stamp))


async def test_the_example_of_its_page(tmp_path: Path) -> None:
    """The configuration printed in the plugin's docstring is valid TOML, loads, and does what it says."""
    import plugins.custom_routing as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    host = Host.load(Config.model_validate(document).plugins, Configured(frozenset(("default", "bulk"))))
    partner = await route(host, "x@mail.partner.example")
    assert (partner.host, partner.port, partner.zone) == ("smtp.partner.example", 587, "default")
    news = await route(host)
    assert (news.host, news.zone, news.priority) == ("", "bulk", -1)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({}, True),
        ({"recipient": ["example.org"]}, True),
        ({"recipient": ["EXAMPLE.org"]}, True),
        ({"recipient": ["a.example", "*.org"]}, True),
        ({"recipient": ["*.example.org"]}, False),
        ({"recipient": ["[e]xample.org", "example.or"]}, False),
        ({"sender": ["*.example.com"]}, True),
        ({"sender": [""]}, False),
        ({"header": {"List-Id": "*<news.example.com>"}}, True),
        ({"header": {"List-Id": "*", "X-None": "*"}}, False),
        ({"user": ["ann?"]}, True),
        ({"user": ["berta"]}, False),
        ({"campaign": ["spring-*"]}, True),
        ({"campaign": ["spring-*"], "user": ["berta"]}, False),
    ],
)
async def test_conditions(condition: dict[str, Any], matches: bool) -> None:
    """Patterns ignore case, all conditions must hold, a rule without any holds always."""
    routed = await route(load({**condition, "zone": "other"}))
    assert routed.zone == ("other" if matches else "default")


async def test_the_null_sender() -> None:
    """ "" among the senders means the null return path."""
    host = load({"sender": [""], "zone": "bounces"})
    assert (await route(host, envelope=Envelope("", []))).zone == "bounces"


async def test_the_first_match_wins() -> None:
    """Rules below it are not asked, and each rule counts its matches."""
    host = load({"zone": "one", "user": ["anna"], "name": "anna"}, {"zone": "two"})
    assert (await route(host)).zone == "one"
    assert (await route(host, envelope=Envelope("a@b.example", []))).zone == "two"
    counted = {row["counter"]: row["value"] for row in host.statistics() if "counter" in row}
    assert counted == {"rule_anna": 1, "rule_2": 1}


async def test_all_outcomes() -> None:
    """Everything a rule names is written down; the rest stays."""
    host = load({"zone": "z", "host": "h", "port": 26, "source": "127.0.0.2", "delay_s": 60, "priority": 5})
    assert await route(host) == Routing("b@example.org", "z", "h", 26, None, "", "127.0.0.2", 5, 60.0)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("Not here", "550 5.7.1 Not here"),
        ("554 5.1.1 Not here", "554 5.1.1 Not here"),
        ("450 Not yet", "450 4.7.1 Not yet"),
    ],
)
async def test_reject(text: str, reply: str) -> None:
    """reject is a text, or code and text."""
    with pytest.raises(Reject) as caught:
        await route(load({"reject": text}))
    assert str(caught.value.reply) == reply


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"recipient": ["a.example"]}, "option rules.0: the rule does nothing"),
        ({"zone": "a", "reject": "no"}, "a rule that rejects cannot set zone as well"),
        ({"port": 26}, "port requires host"),
        ({"protocol": "lmtp"}, "protocol requires host"),
        ({"tls": "yes"}, "option rules.0.tls: Input should be"),
        ({"host": "a b"}, "option rules.0.host: is not a host name or IP address; got 'a b'"),
        ({"source": "1.2.3"}, "option rules.0.source: '1.2.3' does not appear to be an IPv4 or IPv6 address"),
        ({"host": "a", "port": 0}, "option rules.0.port: Input should be greater than or equal to 1; got '0'"),
        ({"zone": "a", "recipent": ["b"]}, "option rules.0.recipent: Extra inputs are not permitted"),
        ({"delay_s": -1}, "option rules.0.delay_s"),
    ],
)
def test_rules_are_checked_at_load(rule: dict[str, Any], says: str) -> None:
    """A rule that cannot be meant is refused with its number and key."""
    assert says in problem(rule)


def test_unreachable_rules() -> None:
    """A rule without conditions must be the last."""
    assert "rule 1 matches everything, so those below it are never reached" in problem({"zone": "a"}, {"zone": "b"})


def test_unknown_zones() -> None:
    """Where the zones are known, a rule must name one of them."""
    said = problem({"zone": "blk", "name": "r"}, zones=("default", "bulk"))
    assert "rule r: there is no zone 'blk'; there are bulk, default" in said


async def test_table(tmp_path: Path) -> None:
    """The table is asked for recipients that no rule claims; comments and blank lines are skipped."""
    table = tmp_path / "hosts.csv"
    table.write_text("# partners\n\nExample.org, mx1.example.org\nexample.net,10.0.0.1,2525\n")
    host = load({"recipient": ["example.net"], "zone": "ruled"}, table=table)
    assert (await route(host, "a@EXAMPLE.ORG")).host == "mx1.example.org"
    assert (await route(host, "a@example.net")).host == ""
    assert (await route(host, "a@other.example")).host == ""
    unruled = await route(load(table=table), "a@example.net")
    assert (unruled.host, unruled.port) == ("10.0.0.1", 2525)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no entries"),
        ("a.example,b\na.example", ":2: write domain,host or domain,host,port"),
        ("a.example,b c", ":1: write domain,host"),
        (",b", ":1: write domain,host"),
        ("a.example,b,0", ":1: '0' is not a port; write 1 to 65535"),
        ("a.example,b,x", ":1: 'x' is not a port"),
        ("a.example,\xe9", ":1: write domain,host"),
    ],
)
def test_a_broken_table_is_refused_at_load(tmp_path: Path, text: str, says: str) -> None:
    """File and line are named."""
    table = tmp_path / "hosts.csv"
    table.write_text(text)
    assert says in problem(table=table)


def test_other_broken_tables(tmp_path: Path) -> None:
    """A missing file, and one that is no text."""
    assert "cannot be read (No such file or directory)" in problem(table=tmp_path / "none.csv")
    (tmp_path / "hosts.csv").write_bytes(b"\xff\xfe")
    assert "is not CSV in UTF-8" in problem(table=tmp_path / "hosts.csv")


async def test_a_changed_table_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new table serves at once; a broken or missing one is reported once and the last good one stays."""
    table = tmp_path / "hosts.csv"
    newest(table, "a.example,one\n")
    host = load(table=table)
    (call,) = host.calls("queue_route")
    monkeypatch.setitem(call.function.__globals__, "TABLE_CHECK_S", 0)
    assert (await route(host, "x@a.example")).host == "one"
    newest(table, "a.example,two\n")
    assert (await route(host, "x@a.example")).host == "two"
    newest(table, "rubbish\n")
    for _ in range(3):
        assert (await route(host, "x@a.example")).host == "two"
    assert caplog.text.count("the previous table stays in use") == 1
    table.unlink()
    for _ in range(3):
        assert (await route(host, "x@a.example")).host == "two"
    assert caplog.text.count("the previous table stays in use") == 2
    newest(table, "a.example,three\n")
    routed = await asyncio.gather(*(route(host, "x@a.example") for _ in range(5)))
    assert {routing.host for routing in routed} <= {"two", "three"}
    assert (await route(host, "x@a.example")).host == "three"


async def test_the_file_is_not_looked_at_for_every_recipient(tmp_path: Path) -> None:
    """Within TABLE_CHECK_S a change is not seen yet: the queue's process is not kept busy with stat()."""
    table = tmp_path / "hosts.csv"
    newest(table, "a.example,one\n")
    host = load(table=table)
    newest(table, "a.example,two\n")
    assert (await route(host, "x@a.example")).host == "one"


async def test_a_rule_chooses_protocol_tls_and_pool() -> None:
    host = load({"host": "mx.example", "protocol": "lmtp", "tls": "implicit", "pool": "warm"})
    found = await route(host)
    assert (found.host, found.protocol, found.tls, found.pool) == ("mx.example", "lmtp", "implicit", "warm")
