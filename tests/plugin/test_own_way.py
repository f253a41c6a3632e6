"""What a plugin chooses for single recipients, in a real server: each of one message goes its own way."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.delivery.test_lmtp import TAKEN, Mailboxes
from zonemta_py.plugin.testing import running
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.sink.server import self_made

PLUGIN = """
import datetime
from pydantic import BaseModel
from zonemta_py.plugin import *

class Options(BaseModel):
    box: int
    safe: int

def setup(api: PluginApi, options: Options):
    global _options
    _options = options

async def queue_route(routing):
    name = routing.recipient.partition("@")[0]
    if name == "box":
        routing.host, routing.port, routing.protocol = "127.0.0.1", _options.box, "lmtp"
    elif name == "safe":
        routing.host, routing.port, routing.tls = "127.0.0.1", _options.safe, "implicit"
    elif name == "warm":
        routing.pool = "warm"
    elif name == "unsigned":
        routing.dkim = "none"
    elif name == "other":
        routing.dkim = "b._domainkey.example.com"
    elif name == "plain":
        routing.verp = routing.srs = False
    elif name == "named":
        routing.sender = "bounces@partner.test"
    elif name == "no-named":
        routing.sender = "bounces@partner.test"

async def sender_fetch(delivery):
    if delivery.recipients[0].address.startswith("later"):
        raise Defer(until=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2))
    if delivery.recipients[0].address.startswith("far"):
        raise Defer(until=datetime.datetime.now().timestamp() + 86_400 * 300)

async def sender_connection(delivery, connection):
    if delivery.recipients[0].address.startswith("calm"):
        raise Defer(3600, "it has had enough", rest_s=600)

async def queue_bounce(bounce, notice):
    notice.text = "Dear customer,\\nwe are sorry.\\n\\nYour shop"
    notice.sender, notice.zone = "help@example.com", "notices"
"""
CONFIG = """
dkim = [
    {{ domain = "example.com", selector = "a", key = "{home}/a.pem" }},
    {{ domain = "example.com", selector = "b", key = "{home}/b.pem" }},
]
zones = [{{ name = "default", default = true, pool = "usual" }}, {{ name = "notices", hostname = "notices.test" }}]
pools = [
    {{ name = "usual", sources = [{{ address = "127.0.0.1" }}] }},
    {{ name = "warm", sources = [{{ address = "127.0.0.7", hostname = "warm.test" }}] }},
]
[tls]
ca_file = "{home}/safe.pem"
[return_path]
verp = "v.test"
secret = "0123456789abcdef"
"""


def prepared(home: Path) -> tuple[Path, str]:
    """The plugin's file, and the rest of a configuration."""
    for name in "ab":
        key = ed25519.Ed25519PrivateKey.generate()
        (home / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (home / "safe.pem").write_bytes(self_made("127.0.0.1"))
    (home / "own_way.py").write_text(PLUGIN)
    return home / "own_way.py", CONFIG.format(home=home)


NAMES = ("box", "safe", "warm", "unsigned", "other", "plain", "named", "usual", "later", "far", "no-named")


async def test_each_recipient_goes_its_own_way(tmp_path: Path) -> None:
    """Protocol, TLS, pool, key, return path, the next try; and a notice in the plugin's words, to the real sender."""
    file, config = prepared(tmp_path)
    boxes = Mailboxes([TAKEN])
    lmtp = await asyncio.start_server(boxes.talk, "127.0.0.1", 0)
    secure = SinkOptions(
        listen=("127.0.0.1:0",), keep=True, implicit_tls=True, certificate=tmp_path / "safe.pem", hostname="127.0.0.1"
    )
    async with lmtp, Sink(secure) as safe:
        options = {"box": lmtp.sockets[0].getsockname()[1], "safe": safe.port}
        replies = ("rcpt:/^no-/ 550 5.1.1 No such user",)
        async with running(file, options=options, config=config, replies=replies) as mta:
            message = b"From: shop@example.com\r\nSubject: hello\r\n\r\nHello!\r\n"
            answer = await mta.send(*(f"{name}@x.test" for name in NAMES), message=message)
            assert answer.code == 250
            found = {name: await mta.arrived(f"{name}@x.test") for name in NAMES[2:8]}
            found["safe"] = await mta.arrived("safe@x.test", at=safe)
            assert found["safe"].tls.startswith("TLS")
            assert {name: one.helo for name, one in found.items() if one.helo != "mta.test"} == {"warm": "warm.test"}
            keys = {
                name: [s[2:] for s in sorted(signed(one.headers.all("DKIM-Signature")))] for name, one in found.items()
            }
            assert keys == {name: ["a", "b"] for name in found} | {"unsigned": [], "other": ["b"]}
            paths = {name: one.sender.rpartition("@")[2] for name, one in found.items()}
            assert paths == dict.fromkeys(found, "v.test") | {"plain": "example.com", "named": "partner.test"}
            await mta.idle()
            assert boxes.commands[0] == "LHLO mta.test"
            assert [body.endswith(b"Hello!\r\n.\r\n") for body in boxes.bodies] == [True]
            notice = await mta.arrived("shop@example.com")
            assert (notice.sender, notice.helo) == ("", "notices.test")
            assert "<help@example.com>" in notice.headers.get("From")
            assert b"\r\n\r\nDear customer,\r\nwe are sorry.\r\n\r\nYour shop\r\n\r\n" in notice.body
            assert b"Final-Recipient: rfc822; no-named@x.test" in notice.body
            for name, hours in (("later", 2), ("far", 48)):  # no later than the end of its lifetime
                [row] = json.loads(await mta.zonemta("explain", f"{name}@x.test", "--json"))["rows"]
                assert abs(row["reasons"][0]["until_ms"] / 1000 - time.time() - hours * 3600) < 1800
            asked = ("--plugins", "--from", "shop@example.com", "--to", "box@x.test", "--to", "warm@x.test")
            box, warm = json.loads(await mta.zonemta("route", *asked, "--json"))
            assert (box["protocol"], box["port"]) == ("lmtp", options["box"])
            assert [source["address"] for source in warm["sources"]] == ["127.0.0.7"]
            assert warm["plugins"]["said"] == "pool warm"


def signed(fields: list[str]) -> list[str]:
    return [part.strip() for field in fields for part in field.split(";") if part.strip().startswith("s=")]


async def test_a_site_rests_by_a_plugins_word(tmp_path: Path) -> None:
    """Whoever else writes there waits, and is told whose word that is; an operator may end it."""
    file, config = prepared(tmp_path)
    async with running(file, options={"box": 1, "safe": 1}, config=config) as mta:
        await mta.send("calm@x.test")
        await mta.logged("it has had enough")
        for _ in range(100):
            standing = await mta.zonemta("standing", "--json")
            if "it has had enough (plugin own_way, hook sender_connection)" in standing:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail(standing)
        await mta.send("bob@x.test")
        told = await mta.zonemta("explain", "bob@x.test", "--json")
        assert "it has had enough (plugin own_way, hook sender_connection)" in told
        assert not [one for one in mta.sink.messages if "bob@x.test" in one.recipients]
        await mta.zonemta("resume", "destination", f"127.0.0.1:{mta.sink.port}")
        await mta.arrived("bob@x.test")
