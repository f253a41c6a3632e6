"""Plugins and campaigns, in the real server: content hooks once for the template, header hooks for each recipient."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from zonemta_py.plugin.testing import Mta, running

PLUGIN = """
from zonemta_py.plugin import *

def setup(api: PluginApi):
    global _api
    _api = api

async def smtp_rcpt_to(address: Address, session: Session):
    pass

async def message_analyze(envelope: Envelope, stream: Stream):
    _api.count("looked")
    content = b"".join([block async for block in stream])
    if b"virus" in content:
        raise Reject(554, "a virus")
    envelope.notes["size"] = len(content)

async def message_rewrite(envelope: Envelope, node: Node, stream: Stream):
    if node.content_type != "text/html":
        return None
    if envelope.campaign and "bad" in envelope.campaign:
        raise Reject(550, "no HTML in bad campaigns")
    return _marked(stream)

async def _marked(stream):
    async for block in stream:
        yield block
    yield b"<p>marked</p>"

async def message_headers(envelope: Envelope, headers: Headers):
    to = envelope.recipients[0].address
    headers.add("X-To", to)
    headers.add("X-Campaign-Of", f"{envelope.campaign} {envelope.user}")
    if to.startswith("no"):
        raise Reject(550, "not to nobody")
    if to.startswith("drop"):
        raise Drop("unwanted")

async def queue_route(envelope: Envelope, routing: Routing):
    if envelope.campaign and not envelope.notes.get("size"):
        raise Reject(550, "the template's notes are lost")
"""
TEMPLATE = {
    "from": "The Shop <news@example.com>", "subject": "Hello {{ name }}", "text": "Dear {{ name }}",
    "html": "<p>Dear {{ name }}</p>",
}  # fmt: skip


class Site:
    """An MTA with HTTP."""

    def __init__(self, mta: Mta, port: int, token: str) -> None:
        self.mta = mta
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=60
        )

    async def put(self, name: str, **more: Any) -> httpx.Response:
        document = {"sender": "news@example.com", "template": TEMPLATE | more}
        return await self._client.put(f"/v1/campaigns/{name}", json=document)

    async def post(self, path: str, document: dict[str, Any], key: str = "") -> httpx.Response:
        return await self._client.post(path, json=document, headers={"Idempotency-Key": key} if key else {})

    async def inject(self, name: str, *people: str) -> None:
        rows = [[one, one.partition("@")[0]] for one in people]
        answer = await self.post("/v1/inject", {"campaign": name, "columns": ["name"], "recipients": rows}, f"{name}-1")
        assert answer.status_code < 300, answer.text


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    file = tmp_path / "look.py"
    file.write_text(PLUGIN)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with running(file, config=f"[http]\nenabled = true\nport = {port}\n") as mta:
        token = mta.config_file.parent / "queue" / "http.token"
        for _ in range(600):
            if token.exists():
                break
            await asyncio.sleep(0.05)
        made = Site(mta, port, token.read_text().strip())
        for _ in range(600):
            try:
                await made._client.get("/v1/campaigns")
                break
            except httpx.TransportError:
                await asyncio.sleep(0.05)
        yield made


async def test_a_campaign(site: Site) -> None:
    """Its HTML is changed once, and notes of that are there for each recipient; headers are changed for each; refusals
    are about one recipient."""
    assert (await site.put("spring")).status_code == 200
    assert (await site.put("spring")).json() == {"created": False}
    people = [f"p{number}@one.test" for number in range(20)]
    await site.inject("spring", "nobody@one.test", *people, "drop@one.test")
    for one in people:
        found = await site.mta.arrived(one)
        assert b"<p>marked</p>" in found.body
        assert f"Dear=20{one.partition('@')[0]}".encode() in found.body
        assert found.headers.get("X-To") == one
        assert found.headers.get("X-Campaign-Of").startswith("spring ")
    await site.mta.idle()
    assert (await site.mta.size())["held"] == 1
    rows = json.loads(await site.mta.zonemta("trace", "nobody@one.test", "--json"))["rows"]
    assert any("not to nobody" in json.dumps(row) for row in rows)
    assert "unwanted" in await site.mta.zonemta("explain", "drop@one.test")


async def test_a_campaign_that_is_refused(site: Site) -> None:
    """With the place in the template; nothing of it is there."""
    answer = await site.put("bad")
    assert answer.status_code == 422
    assert "no HTML in bad campaigns" in answer.text
    assert "template.html" in answer.text
    answer = await site.put("ill", text="a virus")
    assert (answer.status_code, "plugin look, hook message_analyze: 554 5.7.1 a virus" in answer.text) == (422, True)
    assert (await site._client.get("/v1/campaigns/ill")).status_code == 404


async def test_a_correction_and_a_trial(site: Site) -> None:
    """Another text is looked at, too; a message to oneself has the content once."""
    assert (await site.put("spring")).status_code == 200
    trial = {"messages": [{"to": "me@one.test", "fields": {"name": "Me"}}]}
    answer = await site.post("/v1/campaigns/spring/test", trial)
    assert answer.status_code == 200, answer.text
    found = await site.mta.arrived("me@one.test")
    assert found.body.count(b"<p>marked</p>") == 1
    assert found.headers.all("X-To") == ["me@one.test"]
    await site.post("/v1/campaigns/spring/suspend", {})
    ill = await site.post("/v1/campaigns/spring/text", {"template": TEMPLATE | {"html": "<p>virus</p>"}})
    assert ill.status_code == 422
    good = await site.post("/v1/campaigns/spring/text", {"template": TEMPLATE | {"html": "<p>New, {{ name }}</p>"}})
    assert good.status_code == 200, good.text
    await site.post("/v1/campaigns/spring/resume", {})
    await site.inject("spring", "anna@one.test")
    body = (await site.mta.arrived("anna@one.test")).body
    assert (b"New,=20anna" in body, b"<p>marked</p>" in body) == (True, True)


async def test_what_check_says(tmp_path: Path) -> None:
    """Which hooks merged mail does not meet; the others are tried on the template."""
    (tmp_path / "look.py").write_text(PLUGIN)
    (tmp_path / "zonemta.toml").write_text('[plugins]\nenabled = ["look.py"]\n')
    template = tmp_path / "letter.toml"
    template.write_text('subject = "Hi"\nfrom = "news@example.com"\nhtml = """<p>Dear {{ name }}</p>"""\n')

    async def check() -> tuple[int, str]:
        command = [sys.executable, "-m", "zonemta_py", "campaign", "check", str(template), "-c"]
        ran = await asyncio.create_subprocess_exec(
            *command, str(tmp_path / "zonemta.toml"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await ran.communicate()
        return ran.returncode or 0, said.decode()

    code, said = await check()
    assert code == 0, said
    assert "plugin look: smtp_rcpt_to is not called for merged mail" in said
    assert "message_rewrite: called once for the template, of look" in said
    assert "plugins change html of the template" in said
    template.write_text('subject = "Hi"\nfrom = "news@example.com"\nhtml = """<p>virus</p>"""\n')
    code, said = await check()
    assert (code, "plugin look, hook message_analyze: 554 5.7.1 a virus" in said) == (65, True)
