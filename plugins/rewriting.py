"""Rewrites links, and adds footers, in the text and the HTML of messages.

    [plugins]
    enabled = ["rewriting"]

    [[plugins.options.rewriting.links]]
    to = "https://links.example.com/r?to={url}&by={signature}"
    secret = "shared with that server"
    never = ["*.example.com"]
    senders = ["news.example.com"]

    [[plugins.options.rewriting.footers]]
    senders = ["example.com"]
    text = "Example GmbH, Musterstraße 1, Berlin"
    html = "<p><small>Example GmbH, Musterstraße 1, Berlin</small></p>"

Of `links` and of `footers` the first that fits sender and user holds. {url} is the link, percent-encoded; {signature}
32 letters that only who knows `secret` can make for it (HMAC-SHA256 of the link, hexadecimal, cut), so that the server
redirects nobody anywhere else. Rewritten are http and https links of <a> and <area>, and those in plain text. A footer
goes into the message's own text: all forms of it in a multipart/alternative, no attachments and no later parts.

Parts in base64 and quoted-printable stay so. What is signed or encrypted (multipart/signed, multipart/encrypted,
OpenPGP in the text, a DKIM-Signature that came with the message) is never touched, nor are attachments, delivery
reports, and parts of more than 1 MB, which go as they are. What does not change keeps all its bytes. Of a campaign the
template is rewritten, when it is created; links in it with a field, as http://shop.example/{{ id }}, stay, for they
are known only when a message is made. A footer that is there already is not added again. The plugin asks nobody, so
nothing can be down.
"""

from __future__ import annotations

import codecs
import fnmatch
import hashlib
import hmac
import html
import re
import string
import unicodedata
from collections.abc import AsyncIterator
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from zonemta_py.plugin import Envelope, Headers, Node, PluginApi, Stream, decoded, encoded

PART_BYTES_MAX = 1_048_576
"""Of a part as it comes; it is in memory meanwhile. A longer one is not changed."""
LINK_CHARACTERS_MAX = 2_000
"""Of a link; longer ones stay."""
NOTE = "rewriting"
"""In `envelope.scratch`: nothing may be changed."""

_SEALED = frozenset(("multipart/signed", "multipart/encrypted", "multipart/report"))
_OPENPGP = ("-----BEGIN PGP SIGNED MESSAGE-----", "-----BEGIN PGP MESSAGE-----")
_KINDS = frozenset(("text/plain", "text/html"))
_WORDS = frozenset(("url", "signature", "user", "sender_domain"))
_TAG = re.compile(r"<(?:a|area)\s[^<>]{0,8000}>", re.IGNORECASE)
_RAW = re.compile(r"<(script|style|textarea|title)\b", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]+)(?:(\s*=\s*)("[^"]*"|'[^']*'|[^\s"'<>=`]+))?""")
_LINK = re.compile(r"""\bhttps?://[^\s<>"\x00-\x1f\x7f]+""", re.IGNORECASE)
_AFTER = ".,;:!?'*_"
_CHARSET = re.compile(r"""\s*;\s*charset\s*=\s*(?:"[^"]*"|[^\s;"]*)""", re.IGNORECASE)
_LINE_END = re.compile(r"\r?\n")


class WhoseMail(BaseModel):
    """Patterns know * (anything) and ? (one character), in upper or lower case."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    senders: list[str] = []
    """Domains of the return path; empty: all."""
    users: list[str] = []
    """Names of authenticated users; empty: all."""

    def fits(self, envelope: Envelope) -> bool:
        return _match(self.senders, _domain(envelope.sender)) and _match(self.users, envelope.user or "")


class LinkRewriting(WhoseMail):
    """Where links lead instead."""

    to: str
    """URL with {url}, and maybe {signature}, {user}, {sender_domain}."""
    secret: SecretStr = SecretStr("")
    """Key of {signature}."""
    only: list[str] = []
    """Hosts whose links are rewritten; empty: all."""
    never: list[str] = []
    """Hosts whose links stay."""
    text: bool = True
    """In plain text, too."""

    @model_validator(mode="after")
    def _check(self) -> LinkRewriting:
        try:
            words = {word for _, word, shape, _ in string.Formatter().parse(self.to) if word is not None or shape}
        except ValueError as error:
            raise ValueError(f"to: {error}; write {{{{ for a brace") from None
        if not words <= _WORDS or "url" not in words or urlsplit(self.to).scheme not in ("http", "https"):
            raise ValueError("to: write a URL such as https://links.example.com/r?to={url}&by={signature}")
        if ("signature" in words) != bool(self.secret.get_secret_value()):
            raise ValueError("secret and {signature} belong together")
        return self

    def instead(self, link: str, envelope: Envelope) -> str:
        """What a link becomes; the same, if it stays."""
        if len(link) > LINK_CHARACTERS_MAX or link.startswith(self.to.partition("{")[0]):
            return link
        try:
            parts = urlsplit(link)
            host = parts.hostname or ""
        except ValueError:
            return link
        if parts.scheme.lower() not in ("http", "https") or not host:
            return link
        if not _match(self.only, host) or (self.never and _match(self.never, host)):
            return link
        plain = link.encode("utf-8", "replace")
        key = self.secret.get_secret_value().encode()
        signature = hmac.digest(key, plain, hashlib.sha256).hex()[:32] if key else ""
        known = {"user": envelope.user or "", "sender_domain": _domain(envelope.sender)}
        quoted = {name: quote(value.encode("utf-8", "replace"), safe="") for name, value in known.items()}
        return self.to.format(url=quote(plain, safe=""), signature=signature, **quoted)


class Footer(WhoseMail):
    """What is added below."""

    text: str = Field(min_length=1)
    """To plain text."""
    html: str = ""
    """To HTML; empty: made of the text."""

    @property
    def markup(self) -> str:
        return self.html or f"<p>{'<br>'.join(map(html.escape, self.text.splitlines()))}</p>"


class Options(BaseModel):
    """[plugins.options.rewriting]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    links: list[LinkRewriting] = []
    """The first that fits a message holds."""
    footers: list[Footer] = []
    """The first that fits a message holds."""

    @model_validator(mode="after")
    def _check(self) -> Options:
        if not self.links and not self.footers:
            raise ValueError("the plugin does nothing; give links or footers")
        return self


_api: PluginApi
_options: Options


def setup(api: PluginApi, options: Options) -> None:
    """Keeps the options."""
    global _api, _options
    _api, _options = api, options


async def message_headers(envelope: Envelope, headers: Headers) -> None:
    """Leaves a message alone that has been signed before it came."""
    if "DKIM-Signature" in headers:
        _api.count("left", label="signed")
        envelope.scratch[NOTE] = True


async def message_rewrite(envelope: Envelope, node: Node, stream: Stream) -> AsyncIterator[bytes] | None:
    """Takes the parts that may have something to change."""
    if node.content_type not in _KINDS or _SEALED.intersection(node.parents) or envelope.scratch.get(NOTE):
        return None
    if node.filename or node.headers.get("Content-Disposition").lower().startswith("attachment"):
        return None
    links = next((one for one in _options.links if one.fits(envelope)), None)
    footer = next((one for one in _options.footers if one.fits(envelope)), None) if _is_own_text(node) else None
    if links is not None and node.content_type == "text/plain" and not links.text:
        links = None
    codec = _codec(node.charset)
    if not codec or (links is None and footer is None):
        return None
    comes = node.encoding
    added = _added(footer, node, codec) if footer is not None else ""
    if not added.isascii():
        _widen(node)
    return _changed(_Work(envelope, node, links, added, comes, codec), stream)


class _Work:
    """What is to be done with a part. comes, goes: its transfer encodings. codec: of its charset."""

    def __init__(
        self, envelope: Envelope, node: Node, links: LinkRewriting | None, added: str, comes: str, codec: str
    ) -> None:
        self.envelope, self.links, self.added = envelope, links, added
        self.is_html, self.words = node.content_type == "text/html", node.words
        self.comes, self.codec = comes, codec
        self.goes = comes if added.isascii() or comes != "7bit" else "quoted-printable"

    def text(self, text: str) -> str:
        """The text as it goes."""
        if any(mark in text for mark in _OPENPGP):
            _api.count("left", label="openpgp")
            return text
        if self.links is not None:
            text = self._html_links(text) if self.is_html else self._text_links(text)
        if self.added and _lines(self.added) not in text:
            _api.count("footers")
            text = _below_html(text, self.added) if self.is_html else _below_text(text, self.added)
        return text

    def _instead(self, link: str) -> str:
        assert self.links is not None
        if self.words is not None and self.words.search(link):
            _api.count("left", label="fields")
            return link
        other = self.links.instead(link, self.envelope)
        if other != link:
            _api.count("links")
        return other

    def _text_links(self, text: str) -> str:
        def one(found: re.Match[str]) -> str:
            link = found[0].rstrip(_AFTER)
            while link and link[-1] in ")]}" and link.count(link[-1]) > link.count("([{"[")]}".index(link[-1])]):
                link = link[:-1].rstrip(_AFTER)
            return self._instead(link) + found[0][len(link) :]

        return _LINK.sub(one, text)

    def _html_links(self, text: str) -> str:
        """Of tags outside of comments, scripts and styles."""
        pieces, done, at = list[str](), 0, 0
        while (at := text.find("<", at)) >= 0:
            if text.startswith("<!--", at):
                end = text.find("-->", at + 4)
                at = end if end >= 0 else len(text)
            elif raw := _RAW.match(text, at):
                end = _lower_find(text, f"</{raw[1].lower()}", at)
                at = end + 2 if end >= 0 else len(text)
            elif tag := _TAG.match(text, at):
                pieces += (text[done:at], self._tag(tag[0]))
                at = done = tag.end()
            else:
                at += 1
        return "".join((*pieces, text[done:]))

    def _tag(self, tag: str) -> str:
        for found in _ATTRIBUTE.finditer(tag, 2):
            if found[1].lower() == "href" and found[3]:
                link = html.unescape(found[3].strip("\"'")).strip()
                other = self._instead(link)
                if other != link:
                    return f'{tag[: found.start(3)]}"{html.escape(other)}"{tag[found.end(3) :]}'
                break
        return tag


async def _changed(work: _Work, stream: Stream) -> AsyncIterator[bytes]:
    """The part, changed; byte by byte as it came, if nothing is to be changed in it."""
    held = bytearray()
    async for block in stream:
        held += block
        if len(held) > PART_BYTES_MAX:
            _api.count("left", label="large")
            break
    else:
        content = b"".join([block async for block in decoded(work.comes, _following(bytes(held)))])
        text = content.decode(work.codec, "surrogateescape")
        if text.encode(work.codec, "surrogateescape") == content:
            other = work.text(text)
            if other != text:
                content = other.encode(work.codec, "surrogateescape")
                async for block in encoded(work.goes, _following(content)):
                    yield block
                return
    as_it_is = _following(bytes(held), stream)
    async for block in as_it_is if work.goes == work.comes else encoded(work.goes, decoded(work.comes, as_it_is)):
        yield block


async def _following(first: bytes, stream: Stream | None = None) -> AsyncIterator[bytes]:
    if first:
        yield first
    if stream is not None:
        async for block in stream:
            yield block


def _is_own_text(node: Node) -> bool:
    """Whether it is the message's text, or another form of it, and not a later part."""
    return all(
        index == 0 or parent == "multipart/alternative" for index, parent in zip(node.path, node.parents, strict=False)
    )


def _added(footer: Footer, node: Node, codec: str) -> str:
    """As the part's charset can have it; in HTML always as ASCII."""
    if node.content_type == "text/html":
        return footer.markup.encode("ascii", "xmlcharrefreplace").decode()
    try:
        footer.text.encode(codec)
    except UnicodeEncodeError:
        return unicodedata.normalize("NFKD", footer.text).encode("ascii", "replace").decode()
    return footer.text


def _widen(node: Node) -> None:
    """What was ASCII until now says that it is UTF-8, and is coded for the way."""
    headers = node.headers
    if not node.charset or node.charset in ("us-ascii", "ascii"):
        said = _CHARSET.sub("", headers.get("Content-Type") or node.content_type).rstrip("; ")
        headers.replace("Content-Type", f"{said}; charset=utf-8")
    if node.encoding == "7bit":
        headers.replace("Content-Transfer-Encoding", "quoted-printable")
    if not node.path and "MIME-Version" not in headers:
        headers.add("MIME-Version", "1.0")


def _codec(charset: str) -> str:
    """Python's, of charsets that have ASCII as it is; "": none of them."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except LookupError:
        return ""
    if name == "ascii":
        return "utf-8"
    return "" if name.startswith(("utf-16", "utf-32", "utf-7", "iso2022", "hz", "cp037", "cp500", "cp1140")) else name


def _below_text(text: str, added: str) -> str:
    end = "" if text.endswith("\n") or not text else "\r\n"
    return f"{text}{end}\r\n{_lines(added)}\r\n"


def _below_html(text: str, added: str) -> str:
    end = _lower_rfind(text, "</body")
    end = end if end >= 0 else _lower_rfind(text, "</html")
    place = end if end >= 0 else len(text)
    return f"{text[:place]}\r\n{_lines(added)}\r\n{text[place:]}"


def _lines(text: str) -> str:
    return _LINE_END.sub("\r\n", text.strip("\r\n"))


def _lower_find(text: str, wanted: str, start: int) -> int:
    found = re.compile(re.escape(wanted), re.IGNORECASE).search(text, start)
    return found.start() if found else -1


def _lower_rfind(text: str, wanted: str) -> int:
    places = [found.start() for found in re.finditer(re.escape(wanted), text, re.IGNORECASE)]
    return places[-1] if places else -1


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _match(patterns: list[str], value: str) -> bool:
    """Whether one of the patterns does; no patterns: whatever it is."""
    return not patterns or any(fnmatch.fnmatchcase(value.lower(), _literal(one)) for one in patterns)


def _literal(pattern: str) -> str:
    """fnmatch knows sets of characters in brackets too; here a bracket is one."""
    return pattern.lower().replace("[", "[[]")
