"""`zonemta route`: the decision, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
[[zones]]
name = "usual"

[[zones]]
name = "bulk"
sender_domains = ["*.example.com"]
headers = {{ "List-Id" = "*<news.example.com>*" }}
pool = "shared"

[[zones]]
name = "smart"
recipient_domains = ["partner.example"]
host = "smtp.partner.example"
port = 587

[[pools]]
name = "shared"
[[pools.sources]]
address = "127.0.0.2"
hostname = "two.example.com"
weight = 3
[[pools.sources]]
address = "127.0.0.3"
[[pools.sources]]
address = "127.0.0.4"
disabled_domains = ["d.org"]

[plugins]
folder = "{folder}"
enabled = ["mover"]
"""
PLUGIN = '''"""Moves, refuses, delays and drops by the recipient's name."""

from zonemta_py.plugin import Defer, Drop, Envelope, Reject, Routing


async def queue_route(envelope: Envelope, routing: Routing) -> None:
    """By the local part."""
    name = routing.recipient.partition("@")[0]
    if name == "moved":
        routing.zone, routing.host = "smart", "127.0.0.9"
    elif name == "refused":
        raise Reject(550, "not her", "5.7.1")
    elif name == "late":
        raise Defer(60, "later")
    elif name == "dropped":
        raise Drop("nobody wants it")
'''

LIST_RULE = "header list-id: *<news.example.com>*"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "mover.py").write_text(PLUGIN)
    file = tmp_path / "zonemta.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    return file


@pytest.fixture
def routed(zonemta: Callable[..., Any], config: Path) -> Callable[..., list[dict[str, Any]]]:
    """routed("--to", …) → what --json prints."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        ran = zonemta("route", "--config", config, "--json", *arguments)
        assert ran.code == 0, ran.err
        answers: list[dict[str, Any]] = json.loads(ran.out)
        return answers

    return run


@pytest.mark.parametrize(
    ("arguments", "zone", "rule"),
    [
        (("--from", "a@b.org"), "usual", "default"),
        (("--from", "<>"), "usual", "default"),
        (("--from", "a@news.example.com"), "bulk", "sender domain *.example.com"),
        (("--from", "a@b.org", "--header", "List-ID: <news.example.com>"), "bulk", LIST_RULE),
        (("--from", "a@news.example.com", "--zone-header", "Smart"), "smart", "header X-Sending-Zone"),
        (("--from", "a@b.org", "--header", "X-Sending-Zone: smart"), "smart", "header X-Sending-Zone"),
        (("--from", "a@news.example.com", "--zone-header", "none"), "bulk", "sender domain *.example.com"),
    ],
)  # fmt: skip
def test_the_decision_and_its_rule(
    routed: Callable[..., Any], arguments: tuple[str, ...], zone: str, rule: str
) -> None:
    """As the queue decides: header fields, sender, recipient, origin, default."""
    (answer,) = routed(*arguments, "--to", "c@d.org")
    assert answer["zone"] == zone
    assert [step["rule"] for step in answer["steps"] if step["decides"]] == [rule]


def test_each_recipient_is_answered(routed: Callable[..., Any]) -> None:
    """In the order given; each with its own way."""
    one, two = routed("--from", "a@b.org", "--to", "c@d.org", "--to", "e@PARTNER.example")
    assert (one["recipient"], one["zone"], one["host"]) == ("c@d.org", "usual", "")
    assert (two["recipient"], two["zone"], two["host"], two["port"]) == (
        "e@partner.example", "smart", "smtp.partner.example", 587,
    )  # fmt: skip


def test_source_addresses_and_their_shares(routed: Callable[..., Any]) -> None:
    """Shares follow the weights of those that may be used for the recipient's domain."""
    (answer,) = routed("--from", "a@x.example.com", "--to", "c@d.org")
    assert [(s["address"], s["hostname"], s["share"]) for s in answer["sources"][:1]] == [
        ("127.0.0.2", "two.example.com", 0.75)
    ]
    assert [source["share"] for source in answer["sources"]] == [0.75, 0.25, 0.0]


@pytest.fixture
def deaf(config: Path) -> Path:
    """The same, with a provider of our own and a name server that does not answer."""
    providers = config.parent / "providers.toml"
    providers.write_text("[[providers]]\nname = 'partner'\ndomains = ['partner.example']\n")
    dns = f"[dns]\nservers = ['127.0.0.1']\nport = 1\ntimeout_s = 0.2\nproviders = '{providers}'\n"
    config.write_text(config.read_text() + dns)
    return config


@pytest.mark.usefixtures("deaf")
def test_what_dns_says(routed: Callable[..., Any]) -> None:
    """With --dns: hosts, site and provider, or the reason why there is no way; a named host goes without MX."""
    (literal,) = routed("--from", "a@b.org", "--to", "c@[192.0.2.1]", "--dns")
    assert literal["destination"]["hosts"] == [["192.0.2.1", ["192.0.2.1"]]]
    (silent,) = routed("--from", "a@b.org", "--to", "c@d.org", "--dns")
    assert silent["destination"]["error"].startswith("451 4.4.3")
    (named,) = routed("--from", "a@b.org", "--to", "moved@d.org", "--dns", "--plugins")
    assert named["destination"]["hosts"] == [["127.0.0.9", ["127.0.0.9"]]]
    assert "destination" not in routed("--from", "a@b.org", "--to", "c@d.org")[0]


def test_the_table_of_what_dns_says(zonemta: Callable[..., Any], deaf: Path) -> None:
    """A line for each host, or a sentence."""
    ran = zonemta("route", "--config", deaf, "--from", "a@b.org", "--to", "c@[192.0.2.1]", "--to", "c@d.org", "--dns")
    assert ran.code == 0
    assert "Site [192.0.2.1]" in ran.out
    assert "No route: 451 4.4.3" in ran.out


def test_the_table_shows_it_all(zonemta: Callable[..., Any], config: Path) -> None:
    """Every kind of rule has a line; the last lines say what comes of it."""
    ran = zonemta("route", "--config", config, "--from", "a@x.example.com", "--to", "c@d.org")
    assert ran.code == 0
    rules = (
        "header X-Sending-Zone",
        "the message has none",
        "sender domain *.example.com",
        "decides",
        "origin network",
    )
    outcome = ("no zone has such a rule", "zone bulk, to the MX hosts by SMTP", "two.example.com", "75.0%", "disabled")
    assert [shown for shown in (*rules, *outcome) if shown not in ran.out] == []


def test_tables_of_destinations_and_smart_hosts(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Which tables apply, and what comes out of them."""
    file = tmp_path / "zonemta.toml"
    file.write_text(
        """
[[zones]]
name = "usual"
hosts = ["10.0.0.1:587", "10.0.0.2", "mx"]

[[destinations]]
name = "partner"
domains = ["*.partner.example"]
life_h = 7
tls = "required"

[[destinations]]
name = "relay"
sites = ["10.0.0.1:587"]
schedule_min = [1, 2]
"""
    )
    ran = zonemta("route", "--from", "a@b.example", "--to", "c@d.partner.example", "--config", file, "--json")
    (answer,) = json.loads(ran.out)
    assert answer["destinations"] == ["partner", "relay"]
    assert (answer["life_h"], answer["schedule_min"], answer["tls"]) == (7, [1, 2], "required")
    assert answer["hosts"] == [["10.0.0.1", 587], ["10.0.0.2", 25], ["mx", 25]]
    ran = zonemta("route", "--from", "a@b.example", "--to", "c@d.partner.example", "--config", file)
    said = (
        "zone usual, destinations partner, relay, to 10.0.0.1 port 587, else to 10.0.0.2 port 25, else to the MX hosts"
    )
    assert said in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("name", "zone", "said"),
    [
        ("plain", "usual", "change nothing"),
        ("moved", "smart", "zone smart instead of usual, host 127.0.0.9, port 25"),
        ("refused", "usual", "refuse this recipient: 550 5.7.1 not her"),
        ("late", "usual", "wait 60 s first"),
        ("dropped", "usual", "drop this recipient: nobody wants it"),
    ],
)
def test_plugins_have_the_last_word(routed: Callable[..., Any], name: str, zone: str, said: str) -> None:
    """Only where they are asked for: loading them runs their code."""
    (answer,) = routed("--from", "a@b.org", "--to", f"{name}@d.org", "--plugins")
    assert (answer["zone"], answer["plugins"]["said"]) == (zone, said)
    assert "plugins" not in routed("--from", "a@b.org", "--to", f"{name}@d.org")[0]


def test_plugins_in_the_table(zonemta: Callable[..., Any], config: Path) -> None:
    """They have a line of their own, behind the rules."""
    ran = zonemta("route", "--config", config, "--from", "a@b.org", "--to", "moved@d.org", "--plugins")
    assert "hook queue_route" in ran.out
    assert "to 127.0.0.9 port 25 by SMTP" in ran.out


def test_who_has_set_what(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Each plugin has a line of its own, in their order; of a login only the user is shown."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(
        "async def queue_route(envelope, routing):\n"
        "    routing.host, routing.delay_s, routing.auth = 'mx.a.test', 5, ('ann', 'geheim')\n"
        "    routing.notes['seen'] = True\n"
    )
    second.write_text(
        "from zonemta_py.plugin import Hold\n\nasync def queue_route(envelope, routing):\n"
        "    routing.host = 'mx.b.test'\n    if routing.recipient[0] == 'h':\n        raise Hold('later')\n"
    )
    file = tmp_path / "c.toml"
    file.write_text(f"[plugins]\nenabled = ['{first}', '{second}']\n")
    for to, verdict in (("bob@d.org", {}), ("held@d.org", {"verdict": "holds this recipient: later"})):
        ran = zonemta("route", "--from", "a@b.org", "--to", to, "--plugins", "--json", "--config", file)
        (answer,) = json.loads(ran.out)
        assert answer["plugins"]["steps"] == [
            {"plugin": "first", "set": {"host": "mx.a.test", "auth": "ann", "delay_s": 5, "notes": {"seen": True}}},
            {"plugin": "second", "set": {"host": "mx.b.test"}, **verdict},
        ]
    ran = zonemta("route", "--from", "a@b.org", "--to", "bob@d.org", "--plugins", "--config", file)
    assert "plugin second" in ran.out
    assert "host = 'mx.b.test'" in ran.out
    assert "geheim" not in ran.out


def test_what_is_set_in_vain(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """It stands in the table, with the plugin."""
    plugin, file = tmp_path / "vain.py", tmp_path / "c.toml"
    plugin.write_text("async def queue_route(routing):\n    routing.protocol = 'lmtp'\n")
    file.write_text(f"[plugins]\nenabled = ['{plugin}']\n")
    command = ("route", "--from", "a@b.org", "--to", "bob@d.org", "--plugins", "--config", file)
    said = "plugin vain, hook queue_route: gives bob@d.org protocol lmtp but no host, so it is ignored"
    assert said in zonemta(*command, "--plain").out
    (answer,) = json.loads(zonemta(*command, "--json").out)
    assert answer["plugins"]["ignored"] == [f"{said}; set routing.host, too"]


_VERDICTS = """
from zonemta_py.plugin import Defer, Drop, Hold, Reject

_RAISED = {
    "held": Hold("look at it"),
    "late": Defer(60, "in a minute"),
    "dropped": Drop("nobody wants it"),
    "refused": Reject(550, "not her"),
    "failed": ValueError("no answer"),
}

async def queue_route(envelope, routing):
    raise _RAISED[routing.recipient.partition("@")[0]]
"""


@pytest.mark.parametrize(
    ("to", "whose", "said"),
    [
        ("held", "holds this recipient: look at it", "hold this recipient for an operator: look at it"),
        ("late", "puts this recipient off for 60 s: 451 4.7.1 in a minute", "wait 60 s first"),
        ("dropped", "drops this recipient: nobody wants it", "drop this recipient: nobody wants it"),
        ("refused", "refuses this recipient: 550 5.7.1 not her", "refuse this recipient: 550 5.7.1 not her"),
        ("failed", "fails: raised ValueError: no answer", "refuse the message: 451 4.3.0 Local processing failed"),
    ],
)
def test_whose_verdict_it_is(zonemta: Callable[..., Any], tmp_path: Path, to: str, whose: str, said: str) -> None:
    """The plugin's line says what it has decided, and why; the last one what becomes of the recipient."""
    plugin, file = tmp_path / "judge.py", tmp_path / "c.toml"
    plugin.write_text(_VERDICTS)
    file.write_text(f"[plugins]\nenabled = ['{plugin}']\n")
    ran = zonemta("route", "--from", "a@b.org", "--to", f"{to}@d.org", "--plugins", "--config", file)
    (line,) = (line for line in ran.out.splitlines() if line.startswith("plugin judge"))
    (outcome,) = (line for line in ran.out.splitlines() if line.startswith("hook queue_route"))
    assert whose in line
    assert said in outcome


def test_who_refuses_it_at_reception(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """A verdict of message_headers names its plugin, too."""
    plugin, file = tmp_path / "judge.py", tmp_path / "c.toml"
    plugin.write_text(
        "from zonemta_py.plugin import Reject\n\nasync def message_headers(envelope, headers):\n"
        "    raise Reject(550, 'no such mail')\n"
    )
    file.write_text(f"[plugins]\nenabled = ['{plugin}']\n")
    ran = zonemta("route", "--from", "a@b.org", "--to", "c@d.org", "--plugins", "--config", file)
    assert ran.code == 65
    assert "550 5.7.1 no such mail (plugin judge, hook message_headers)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "a b", "--to", "c@d.org"), "Malformed address"),
        (("--from", "a@b.org", "--to", "c"), "give --from and --to as user@example.com"),
        (
            ("--from", "a@b.org", "--to", "c@d.org", "--header", "no colon"),
            "'no colon' is not a header field; give it as",
        ),
        (("--from", "a@b.org", "--to", "c@d.org", "--origin", "here"), "'here' is not an IP address"),
        (("--from", "a@b.org"), "--to"),
    ],
)
def test_mistakes_are_one_sentence(zonemta: Callable[..., Any], arguments: tuple[str, ...], said: str) -> None:
    """With the remedy, and exit status 64."""
    ran = zonemta("route", *arguments)
    assert (ran.code, ran.err.count("\n")) == (64, 1)
    assert said in ran.err


def test_mail_of_a_pull_zone_waits(zonemta: Callable[..., Any], config: Path) -> None:
    """It goes nowhere, and DNS is not asked."""
    with config.open("a") as file:
        file.write("\n[[zones]]\nname = 'branch'\ndelivery = 'pull'\nrecipient_domains = ['branch.test']\n")
    ran = zonemta("route", "--config", config, "--dns", "--from", "a@b.org", "--to", "c@branch.test")
    assert (ran.code, ran.err) == (0, "")
    assert "zone branch, where it waits until a client fetches it" in ran.out
