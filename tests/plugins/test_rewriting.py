"""The bundled plugin rewriting: messages streamed through the host as the receiver does it, read by Python's email
package; and through the real MTA."""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import received

TO = "https://l.test/r?to={url}"
LINKS = {"links": [{"to": TO}]}
FOOTER = {"footers": [{"text": "Grüße – Example AG", "html": "<p>Grüße</p>"}]}
PLAIN_FOOTER = {"footers": [{"text": "Example\n& Co"}]}


def load(**options: Any) -> Host:
    return Host.load(Plugins(enabled=["rewriting"], options={"rewriting": options}))


def envelope() -> Envelope:
    return Envelope("ann@news.example.com", [], user="ann")


async def rewritten(host: Host, message: bytes) -> bytes:
    return await received(host, message, envelope())


def part(kind: str, text: str, coded: str = "7bit", more: str = "", charset: str = "utf-8") -> bytes:
    made = EmailMessage()
    made.set_content(text, subtype=kind, cte=coded, charset=charset)
    return more.encode() + made.as_bytes(policy=policy.SMTP)


def content(message: bytes, kind: str = "") -> str:
    """Of the message, or of its first part of that kind."""
    parsed = message_from_bytes(message, policy=policy.default)
    found = next(one for one in parsed.walk() if not kind or one.get_content_type() == kind)
    return found.get_content().replace("\r\n", "\n")  # type: ignore[no-any-return]


@pytest.mark.parametrize("coded", ["7bit", "8bit", "quoted-printable", "base64"])
@pytest.mark.parametrize("length", [0, 50_000])
async def test_links_in_html(coded: str, length: int) -> None:
    """In whatever transfer encoding, which stays; the link leads to what it led to."""
    link = "https://shop.test/a?b=1&c=ä%20#d" if coded != "7bit" else "https://shop.test/a?b=1&c=%C3%A4#d"
    html = f'<p>{"text " * length}</p><a class=x href="{link.replace("&", "&amp;")}">a</a>\n'
    html = html.replace("text text ", "text text\n")
    stored = await rewritten(load(**LINKS), part("html", html, coded))
    assert f"Content-Transfer-Encoding: {coded}".encode() in stored
    found = content(stored)
    start = found.index('href="') + 6
    new = found[start : found.index('"', start)].replace("&amp;", "&")
    assert parse_qs(urlsplit(new).query)["to"] == [link]
    assert found.replace(found[start : found.index('"', start)], link.replace("&", "&amp;")) == html


@pytest.mark.parametrize(
    "html",
    [
        "<a href='https://a.test/'>x</a>",
        "<a href=https://a.test/>x</a>",
        '<A\nTARGET=_blank HREF = "https://a.test/">x</A>',
        '<area shape="rect" href="https://a.test/">',
        '<a title=" href=\'https://no.test/\'" href="https://a.test/">x</a>',
        "<a data-href='https://no.test/' href=' https://a.test/ '>x</a>",
    ],
)
async def test_forms_of_a_tag(html: str) -> None:
    found = content(await rewritten(load(**LINKS), part("html", html)))
    assert found.count('"https://l.test/r?to=https%3A%2F%2Fa.test%2F"') == 1
    assert found.count("no.test") == html.count("no.test")


@pytest.mark.parametrize(
    "html",
    [
        '<a href="mailto:a@a.test">x</a>',
        '<a href="#top">x</a>',
        '<a href="">x</a>',
        '<a name="x">x</a>',
        '<img src="https://a.test/x.png">',
        '<!-- <a href="https://a.test/">x</a> -->',
        '<style>a[href="https://a.test/"] {}</style>',
        "<script>\"<a href='https://a.test/'>\"</script>",
        '<a href="https://l.test/r?to=x">x</a>',
        '<a href="https://[::1">x</a>',
        "<!-- <a href='https://a.test/'>",
        "<a href='https://a.test/'",
        '<abbr href="https://a.test/">',
        f'<a href="https://a.test/{"x" * 3000}">x</a>',
        "https://a.test/",
    ],
)
async def test_what_stays(html: str) -> None:
    """Byte by byte."""
    message = part("html", html, more="X-A: b\r\n")
    assert await rewritten(load(**LINKS), message) == message


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("see https://a.test/b.", "https://a.test/b"),
        ("(https://a.test/b)", "https://a.test/b"),
        ("https://a.test/b_(c)", "https://a.test/b_(c)"),
        ("<https://a.test/b?c=d&e>", "https://a.test/b?c=d&e"),
        ("HTTPS://A.test", "HTTPS://A.test"),
        ('"https://a.test/"', "https://a.test/"),
        ("https://a.test/?!", "https://a.test/"),
    ],
)
async def test_links_in_text(text: str, link: str) -> None:
    found = content(await rewritten(load(**LINKS), part("plain", text)))
    (new,) = re.findall(r"https://l\.test/r\?to=([\w%.~-]+?)(?=[.)>\"?!\s]*$)", found)
    assert unquote(new) == link
    assert found.replace(f"https://l.test/r?to={new}", link).strip() == text
    assert await rewritten(load(links=[{"to": TO, "text": False}]), part("plain", text)) == part("plain", text)


async def test_a_signature_that_only_the_two_of_us_can_make() -> None:
    host = load(links=[{"to": "https://l.test/{user}/{sender_domain}?to={url}&by={signature}", "secret": "s3cret"}])
    found = content(await rewritten(host, part("plain", "https://a.test/\n"))).strip()
    signature = hmac.digest(b"s3cret", b"https://a.test/", hashlib.sha256).hex()[:32]
    assert found == f"https://l.test/ann/news.example.com?to=https%3A%2F%2Fa.test%2F&by={signature}"


@pytest.mark.parametrize(
    ("rule", "yes"),
    [
        ({"only": ["a.test"]}, True),
        ({"only": ["*.a.test"]}, False),
        ({"never": ["A.test"]}, False),
        ({"never": ["b.test"]}, True),
        ({"senders": ["*.example.com"]}, True),
        ({"senders": ["example.com"]}, False),
        ({"users": ["bob"]}, False),
        ({"users": ["a*"]}, True),
    ],
)
async def test_whose_links(rule: dict[str, Any], yes: bool) -> None:
    found = await rewritten(load(links=[{"to": TO} | rule]), part("plain", "https://a.test/\n"))
    assert (b"l.test" in found) == yes


# -- footers


@pytest.mark.parametrize("coded", ["7bit", "8bit", "quoted-printable", "base64"])
@pytest.mark.parametrize("charset", ["us-ascii", "utf-8", "iso-8859-1"])
async def test_a_footer_below_the_text(coded: str, charset: str) -> None:
    """In the part's charset; ASCII becomes UTF-8 where it has to."""
    stored = await rewritten(load(**FOOTER), part("plain", "Hello\n", coded, charset=charset))
    wanted = "Grüße – Example AG" if charset != "iso-8859-1" else "Gru?"
    found = content(stored)
    assert found.startswith("Hello\n\nGr")
    assert wanted in found
    head = stored.partition(b"\r\n\r\n")[0]
    assert coded == "7bit" or f"Content-Transfer-Encoding: {coded}".encode() in head
    assert coded != "7bit" or stored.isascii()


async def test_a_message_that_is_no_mime_becomes_one() -> None:
    stored = await rewritten(load(**FOOTER), b"Subject: x\r\n\r\nHello")
    assert content(stored) == "Hello\n\nGrüße – Example AG\n"
    assert b"\r\nMIME-Version: 1.0\r\n" in stored
    stored = await rewritten(load(**PLAIN_FOOTER), b"Subject: x\r\n\r\nHello")
    assert stored == b"Subject: x\r\n\r\nHello\r\n\r\nExample\r\n& Co\r\n"


@pytest.mark.parametrize(
    ("html", "then"),
    [
        ("<html><body>x</BODY ></html>\n", "<html><body>x\n{}\n</BODY ></html>\n"),
        ("<html>x</html>\n", "<html>x\n{}\n</html>\n"),
        ("x\n", "x\n\n{}\n"),
        ("<pre></body></pre><body>x</body>\n", "<pre></body></pre><body>x\n{}\n</body>\n"),
    ],
)
async def test_a_footer_in_html(html: str, then: str) -> None:
    assert content(await rewritten(load(**FOOTER), part("html", html))) == then.format("<p>Gr&#252;&#223;e</p>")
    assert "<p>Example<br>&amp; Co</p>" in content(await rewritten(load(**PLAIN_FOOTER), part("html", html)))


async def test_all_forms_of_the_text_and_nothing_else() -> None:
    """multipart/mixed of (alternative of (plain, related of (html, image)), an attached text, a text below it)."""
    made = EmailMessage()
    made["Subject"] = "x"
    made.set_content("plain https://a.test/\n")
    made.add_alternative('<body><img src="cid:1"><a href="https://a.test/">x</a></body>', subtype="html")
    made.get_payload()[1].add_related(b"png", "image", "png", cid="<1>")  # type: ignore[union-attr]
    made.add_attachment("attached https://a.test/\n", filename="a.txt")
    made.add_attachment("below https://a.test/\n", disposition="inline")
    before = made.as_bytes(policy=policy.SMTP)
    after = message_from_bytes(await rewritten(load(**LINKS, **PLAIN_FOOTER), before), policy=policy.default)
    texts = [one.get_content() for one in after.walk() if one.get_content_maintype() == "text"]
    assert ["Example" in one for one in texts] == [True, True, False, False]
    assert ["l.test" in one for one in texts] == [True, True, False, True]
    kinds = [one.get_content_type() for one in after.walk()]
    assert kinds == [one.get_content_type() for one in made.walk()]


SIGNED = [
    b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhttps://a.test/\r\n--b--\r\n",
    b"Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\nContent-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n"
    b"Content-Type: text/html\r\n\r\n<a href='https://a.test/'>\r\n--b--\r\n--o--\r\n",
    b"Content-Type: multipart/encrypted; boundary=b\r\n\r\n--b\r\n\r\nhttps://a.test/\r\n--b--\r\n",
    b"Content-Type: multipart/report; boundary=b\r\n\r\n--b\r\n\r\nhttps://a.test/\r\n--b--\r\n",
    b"Subject: x\r\n\r\n-----BEGIN PGP SIGNED MESSAGE-----\r\nHash: SHA256\r\n\r\nhttps://a.test/\r\n",
    b"DKIM-Signature: v=1\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: text/plain; name=a.txt\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: text/plain\r\nContent-Disposition: ATTACHMENT\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: text/calendar\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: text/plain; charset=utf-16\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: text/plain; charset=nonsense\r\n\r\nhttps://a.test/\r\n",
    b"Content-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\nhttps://a.test/\r\n",
    b"Subject: x\r\n\r\n" + b"https://a.test/\r\n" * 70_000,
]


@pytest.mark.parametrize("message", SIGNED, ids=range(len(SIGNED)))
async def test_what_is_never_touched(message: bytes) -> None:
    assert await rewritten(load(**LINKS, **PLAIN_FOOTER), message) == message


async def test_a_long_part_that_was_to_become_utf_8_is_coded_all_the_same() -> None:
    """Its header section has gone before."""
    message = b"Subject: x\r\n\r\n" + b"0123456789 = \r\n" * 80_000
    stored = await rewritten(load(**FOOTER), message)
    assert content(stored).encode() == b"0123456789 = \n" * 80_000


@pytest.mark.parametrize(
    "html", ["<a " * 300_000, "<!--" * 200_000, "<a href=" * 120_000, "<script" * 140_000, "</body" * 160_000]
)
async def test_hostile_html_takes_no_long_time(html: str) -> None:
    """The test's own time limit is the bound."""
    await rewritten(load(**LINKS, **PLAIN_FOOTER), b"Content-Type: text/html\r\n\r\n" + html.encode())


async def test_bytes_that_are_not_its_charset_stay() -> None:
    message = b"Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\xff\xfe\r\n"
    stored = await rewritten(load(**PLAIN_FOOTER), message)
    assert stored.startswith(message)
    assert b"Example" in stored


def test_through_the_mta(start_mta: Any) -> None:
    running = start_mta(
        f'[plugins]\nenabled = ["rewriting"]\n[[plugins.options.rewriting.links]]\nto = "{TO}"\n'
        "[[plugins.options.rewriting.footers]]\ntext = 'Grüße'\n"
    )
    assert running.send(b"Subject: x\r\n\r\nhttps://a.test/\r\n", "bob@one.test").startswith("250")
    assert content(running.came("bob@one.test").body).rstrip() == TO.format(url="https%3A%2F%2Fa.test%2F") + "\n\nGrüße"


def test_the_example_of_its_page() -> None:
    import plugins.rewriting as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "the plugin does nothing"),
        ({"links": [{"to": "https://l.test/"}]}, "write a URL such as"),
        ({"links": [{"to": "https://l.test/{url}{what}"}]}, "write a URL such as"),
        ({"links": [{"to": "l.test/{url}"}]}, "write a URL such as"),
        ({"links": [{"to": "https://l.test/{url}{"}]}, "for a brace"),
        ({"links": [{"to": "https://l.test/{url}&{signature}"}]}, "belong together"),
        ({"links": [{"to": TO, "secret": "s3cret"}]}, "belong together"),
        ({"footers": [{"text": ""}]}, "text"),
    ],
)
def test_mistakes(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(**options)
    assert sentence in str(caught.value)
    assert "s3cret" not in str(caught.value)
