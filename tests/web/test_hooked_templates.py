"""The content hooks of plugins see a campaign's template when it is taken, once, and may change or refuse it."""

from __future__ import annotations

import email
import html as html_module
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.merge.compile import compile
from zonemta_py.merge.source import File, TemplateSource, Text
from zonemta_py.plugin import templates
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.testing import load
from zonemta_py.plugin.verdicts import PluginFailed

HTML = (
    '<p class="{{ name }}">Dear {{ name }},</p>{% if vip %}<a href="http://shop.test/vip">x</a>{% endif %}'
    '<a href="http://shop.test/{{ name }}">y</a>{# to do #}'
)


def packed(**more: Any) -> bytes:
    given: dict[str, Any] = {
        "file": "t", "subject": Text("Hello {{ name }}"), "sender": Text("The Shop <news@a.test>"),
        "text": Text("Dear {{ name }},\nsee http://shop.test/\n"), "html": Text(HTML), "prepared": True,
    }  # fmt: skip
    return TemplateSource(**given | more).pack()


def plugin(folder: Path, source: str) -> Host:
    (folder / "look.py").write_text("from zonemta_py.plugin import *\n" + source)
    return load(folder / "look.py")


def campaign() -> Envelope:
    return Envelope("news@a.test", [], campaign="spring")


def bodies(message: bytes) -> tuple[str, str]:
    """Text and HTML, their lines ending in LF."""
    made = email.message_from_bytes(message, policy=policy.default)
    assert isinstance(made, EmailMessage)
    text, html = (made.get_body((kind,)) for kind in ("plain", "html"))
    assert isinstance(text, EmailMessage)
    assert isinstance(html, EmailMessage)
    return text.get_content().replace("\r\n", "\n"), html.get_content().replace("\r\n", "\n")


async def seen(host: Host, template: bytes) -> TemplateSource:
    return TemplateSource.unpack(await templates.shown(host, campaign(), None, template))


async def test_nothing_changes_where_nobody_changes_anything(tmp_path: Path) -> None:
    """The same bytes, and so the same name."""
    host = plugin(tmp_path, "async def message_analyze(envelope, stream):\n    async for _ in stream: pass\n")
    template = packed(
        images=(File("logo", "image/png", b"png"),), attachments=(File("a.pdf", "application/pdf", b"p"),)
    )
    assert await templates.shown(host, campaign(), None, template) == template


async def test_what_is_seen(tmp_path: Path) -> None:
    """Each part, in the place that it has in messages, as words and texts; the whole; and who it is for."""
    host = plugin(
        tmp_path,
        "async def message_rewrite(envelope, node, stream):\n"
        "    parts = envelope.scratch.setdefault('parts', [])\n"
        "    has_words = node.words is not None\n"
        "    parts.append([node.content_type, node.path, node.parents, node.encoding, node.filename, has_words])\n"
        "async def message_analyze(envelope, stream):\n"
        "    envelope.notes['whole'] = (b''.join([block async for block in stream])).decode()\n"
        "async def message_store(envelope, stream):\n"
        "    envelope.notes['body'] = len(b''.join([block async for block in stream]))\n"
        "async def message_queue(envelope, info):\n"
        "    envelope.notes['parts'] = [list(map(str, one)) for one in envelope.scratch['parts']]\n"
        "    envelope.notes['of'] = [envelope.campaign, envelope.sender, info.headers.get('Subject')]\n",
    )
    files = {"images": (File("logo", "image/png", b"png"),), "attachments": (File("a.pdf", "application/pdf", b"p"),)}
    notes = (await seen(host, packed(**files))).notes
    mixed, related, both = "multipart/mixed", "multipart/related", "multipart/alternative"
    assert notes["parts"] == [
        [*map(str, one)]
        for one in (
            ("text/plain", (0, 0, 0), (mixed, related, both), "8bit", "", True),
            ("text/html", (0, 0, 1), (mixed, related, both), "8bit", "", True),
            ("image/png", (0, 1), (mixed, related), "base64", "logo", False),
            ("application/pdf", (1,), (mixed,), "base64", "a.pdf", False),
        )
    ]
    assert notes["of"] == ["spring", "news@a.test", "Hello zq1z"] or notes["of"][2].startswith("Hello zq")
    assert "Dear zq" in notes["whole"]
    assert "{{" not in notes["whole"]
    assert "to do" not in notes["whole"]
    assert notes["body"] < len(notes["whole"])


async def test_what_is_changed(tmp_path: Path) -> None:
    """Fields stay fields, and what the plugin writes is no field, whatever it looks like; an attachment is replaced."""
    host = plugin(
        tmp_path,
        "async def message_rewrite(envelope, node, stream):\n"
        "    if node.filename:\n"
        "        node.headers.replace('Content-Type', 'text/plain')\n"
        "        node.headers.remove('Content-Transfer-Encoding')\n"
        "    return _changed(node, stream)\n"
        "async def _changed(node, stream):\n"
        "    content = b''.join([block async for block in decoded(node.encoding, stream)])\n"
        "    yield b'none' if node.filename else content + b'{{ secret }}\\r\\n{% x %}'\n",
    )
    source = await seen(host, packed(attachments=(File("a.pdf", "application/pdf", b"p"),)))
    assert source.attachments == (File("a.pdf", "text/plain", b"none"),)
    made = compile(source).render({"name": "Ann <&>", "vip": ""}, "ann@b.test", "spring", "today")
    text, html = bodies(made)
    assert text.endswith("{{ secret }}\n{% x %}")
    assert html.endswith("{{ secret }}\n{% x %}")
    assert "Dear Ann <&>," in text
    assert "Dear Ann &lt;&amp;&gt;," in html
    assert "shop.test/vip" not in html


@pytest.mark.parametrize(
    ("source", "place", "says"),
    [
        (
            "async def message_rewrite(node):\n    if node.content_type == 'text/html': raise Reject(550, 'no HTML')",
            "html",
            "plugin look, hook message_rewrite: 550 5.7.1 no HTML",
        ),
        (
            "async def message_rewrite(node):\n    if node.filename: raise Reject(550, 'no files')",
            "attachments[a.pdf]",
            "550 5.7.1 no files",
        ),
        ("async def message_analyze(stream):\n    raise Drop('a virus')", "", "dropped: a virus"),
        (
            "async def message_store(): pass\nasync def message_queue(info): raise Reject(554, 'spam')",
            "",
            "554 5.7.1 spam",
        ),
    ],
)
async def test_a_refusal_has_its_place(tmp_path: Path, source: str, place: str, says: str) -> None:
    template = packed(attachments=(File("a.pdf", "application/pdf", b"p"),))
    with pytest.raises(templates.TemplateStopped, match=says) as caught:
        await templates.shown(plugin(tmp_path, source), campaign(), None, template)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("write", "says"),
    [
        ("content.replace(_tag(content), b'')", r"lost, doubled or moved \{% if vip %\}"),
        ("content + _tag(content)", "lost, doubled or moved"),
        ("content + b'\\xff'", "wrote what is not UTF-8"),
    ],
)
async def test_a_template_that_is_spoilt(tmp_path: Path, write: str, says: str) -> None:
    source = (
        "import re\n"
        "def _tag(content):\n    return re.findall(rb'zq+\\d+z', content)[2] if b'<p' in content else b'?'\n"
        "async def message_rewrite(node, stream):\n    return _changed(stream)\n"
        "async def _changed(stream):\n    content = b''.join([block async for block in stream])\n"
        f"    yield {write}\n"
    )
    with pytest.raises(templates.TemplateStopped, match=says) as caught:
        await templates.shown(plugin(tmp_path, source), campaign(), None, packed(text=None))
    assert isinstance(caught.value.verdict, PluginFailed)


async def test_message_queue_alone_is_about_batches(tmp_path: Path) -> None:
    """A quota is not taken for a template."""
    host = plugin(tmp_path, "async def message_queue(envelope): raise Reject(550, 'no')\n")
    assert not templates.looked_at(host)


async def test_links_and_footers_by_the_bundled_plugin() -> None:
    """Links with a field in them stay: what they are is known only when a message is made."""
    options = {
        "links": [{"to": "https://l.test/r?to={url}&by={signature}", "secret": "x"}], "footers": [{"text": "Ü GmbH"}],
    }  # fmt: skip
    host = Host.load(Plugins(enabled=["rewriting"], options={"rewriting": options}))
    source = await seen(host, packed())
    made = compile(source).render({"name": "Ann", "vip": "yes"}, "ann@b.test", "spring", "today")
    text, html = bodies(made)
    assert "see https://l.test/r?to=http%3A%2F%2Fshop.test%2F&by=" in text
    assert text.endswith("Ü GmbH\n")
    assert 'href="https://l.test/r?to=http%3A%2F%2Fshop.test%2Fvip&amp;by=' in html
    assert 'href="http://shop.test/Ann"' in html
    assert "Ü GmbH" in html_module.unescape(html)
    assert await seen(host, source.pack()) == source
    assert [row["value"] for row in host.statistics() if row.get("counter") == "left"] == [2]
