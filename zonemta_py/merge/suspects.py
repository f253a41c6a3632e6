"""What is good Jinja2 and yet no good mail, said before anything is sent: merge tags of other programs, links that lead
nowhere, elements that mail programs remove or that nobody closes, a subject of several lines.

Templates that are stored already are not looked at again. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urlsplit

from zonemta_py.merge.problems import TemplateProblem
from zonemta_py.merge.source import TemplateSource, Text

SCHEMES = frozenset((
    "http", "https", "mailto", "tel", "sms", "cid", "geo", "webcal", "whatsapp", "tg", "skype", "facetime", "ftp",
    "sftp", "market", "intent", "itms", "itms-apps", "xmpp", "sip", "sips", "magnet", "signal", "viber", "maps",
))  # fmt: skip
"""Of links that a mail program can do something with."""
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_STYLE = re.compile(
    r"<style\b[^>]{0,2000}>.*?</style\s{0,9}>|<!--.*?-->|\bstyle\s{0,9}=\s{0,9}(?:\"[^\"<>]*\"|'[^'<>]*')",
    re.DOTALL | re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"\*\|[A-Za-z][^|*\n]{0,60}\|\*|%recipient(?:[._][\w.-]{1,60})?%|%[a-z_]{0,30}unsubscribe_(?:url|email)%"
    r"|%%[A-Za-z][\w.-]{0,60}%%|\[\[[A-Za-z][\w:. -]{0,60}\]\]"
    r"|(?<![{\w])\$?\{[A-Za-z_][\w.-]{0,60}\}(?!\})"
)
_MEANT = {
    "fname": "first_name", "lname": "last_name", "email": "recipient", "unsub": "unsubscribe_url",
    "update_profile": "preferences_url", "recipient": "recipient", "mailing_list_unsubscribe_url": "unsubscribe_url",
    "tag_unsubscribe_url": "unsubscribe_url",
}  # fmt: skip
"""Words of others → ours."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_HREF = re.compile(
    r"<(?:a|area|mj-button|mj-navbar-link|mj-social-element|mj-image)\b[^<>]{0,2000}?\bhref\s{0,9}=\s{0,9}"
    r"""(?:"([^"<>]{0,4000})"|'([^'<>]{0,4000})')""",
    re.IGNORECASE,
)
_SRC = re.compile(
    r"<(?:img|mj-image|mj-carousel-image)\b[^<>]{0,2000}?\bsrc\s{0,9}=\s{0,9}"
    r"""(?:"([^"<>]{0,4000})"|'([^'<>]{0,4000})')""",
    re.IGNORECASE,
)
_NO_HOST = re.compile(r"[\s\\^`|%\"]")
_PLAIN_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s<>\"')\]]{0,2000})")
_REMOVED = re.compile(r"<(script|form|iframe|object|embed|applet|input|textarea|select)\b", re.IGNORECASE)
_CLOSED = frozenset((
    "a", "abbr", "b", "big", "blockquote", "center", "code", "div", "em", "font", "h1", "h2", "h3", "h4", "h5", "h6",
    "i", "ol", "s", "small", "span", "strong", "sub", "sup", "table", "title", "u", "ul",
))  # fmt: skip
"""Elements that do not end by themselves (HTML 13.1.2.4)."""


def suspects(source: TemplateSource) -> Iterator[TemplateProblem]:
    """Every one, with its place."""
    subject = _masked(source.subject.content).strip()
    if "\n" in subject:
        yield _at(source.subject, source.subject.content.find("\n"), "a subject is one line; put it on one")
    for text in _texts(source):
        yield from _foreign(text)
    for markup in (source.html, source.mjml):
        if markup is not None:
            yield from _markup(markup)
    if source.html is not None:
        yield from _unclosed(source.html)
    if source.text is not None:
        for found in _PLAIN_URL.finditer(source.text.content):
            yield from _link(source.text, found[1], found.start(1))


def _texts(source: TemplateSource) -> Iterator[Text]:
    heads = (source.subject, source.sender, source.reply_to, source.to_name, source.text, source.html, source.mjml)
    yield from (text for text in heads if text is not None)


def _at(text: Text, offset: int, sentence: str) -> TemplateProblem:
    return TemplateProblem(text.file, *text.place(offset), sentence)


def _masked(content: str, *more: re.Pattern[str]) -> str:
    """As long as before, without expressions, which stay words."""
    for pattern in (_JINJA, *more):
        content = pattern.sub(lambda found: "_" * len(found[0]), content)
    return content


def _foreign(text: Text) -> Iterator[TemplateProblem]:
    for found in _FOREIGN.finditer(_masked(text.content, _STYLE)):
        if found[0][2:5].upper() in ("IF:", "ELS", "END", "IFN"):
            sentence = (
                f"{found[0]!r} is of another program; conditions are {{% if name %}} … {{% else %}} … {{% endif %}}"
            )
            yield _at(text, found.start(), sentence)
            continue
        named = _NAME.findall(re.sub(r"recipient[._]|\w+:(?=\w{3})", "", found[0]))
        own = _MEANT.get(named[0].lower(), named[0].lower()) if named else "name"
        what = f"{found[0]!r} is a merge tag of another program, and would be sent as it stands"
        yield _at(text, found.start(), f"{what}; write {{{{ {own} }}}}, or {{{{ {found[0]!r} }}}} if it is meant")


def _markup(text: Text) -> Iterator[TemplateProblem]:
    content = _masked(text.content, _COMMENT)
    for found in _REMOVED.finditer(content):
        name = found[1].lower()
        yield _at(
            text, found.start(), f"mail programs remove or refuse <{name}>; remove it, and link to a page instead"
        )
    for found in _HREF.finditer(text.content):
        group = 1 if found[1] is not None else 2
        yield from _link(text, found[group], found.start(group))
    for found in _SRC.finditer(content):
        group = 1 if found[1] is not None else 2
        start, end = found.span(group)
        yield from _picture(text, text.content[start:end].strip(), start)


def _picture(text: Text, url: str, offset: int) -> Iterator[TemplateProblem]:
    """One of a private network: `compile` refuses those that are no address."""
    if url.lower().startswith(("http:", "https:")) and (what := _unreachable(url)):
        yield _at(text, offset, f"no recipient can see the picture {url[:80]!r}, {what}; write its public address")


def _link(text: Text, url: str, offset: int) -> Iterator[TemplateProblem]:
    url = url.strip()
    if url.startswith(("{", "#")):
        return
    if not url or url.lower() in ("mailto:", "tel:", "sms:"):
        yield _at(text, offset, "the link is empty; write where it leads")
        return
    scheme, colon, _ = url.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        if not url.startswith("//"):
            yield _at(text, offset, f"the link {url[:80]!r} leads nowhere from a mail; write it whole, with https://")
        return
    if scheme.lower() not in SCHEMES:
        yield _at(text, offset, f"no recipient can open the link {url[:80]!r}; write it with https://")
    elif scheme.lower() in ("http", "https") and (what := _unreachable(url)):
        yield _at(text, offset, f"no recipient can open the link {url[:80]!r}, {what}; write its public address")


def _unreachable(url: str) -> str:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return "which is no address"
    if "{" in url.partition("//")[2].partition("/")[0]:
        return ""
    try:
        return "" if ipaddress.ip_address(host).is_global else "which is of a private network"
    except ValueError:
        pass
    if not host:
        return "which has no host"
    if _NO_HOST.search(host):
        return "which is no address"
    last = host.rpartition(".")[2]
    if "." not in host or last in ("localhost", "local", "internal", "lan", "test", "invalid"):
        return "which is of this machine or network"
    return ""


class _Elements(HTMLParser):
    """open: of each name, where it has been opened and not closed."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=False)
        self.open: dict[str, list[int]] = {}
        self.closed = set[str]()
        self._starts = [0]
        for found in re.finditer("\n", content):
            self._starts.append(found.end())
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        line, column = self.getpos()
        if tag in _CLOSED:
            self.open.setdefault(tag, []).append(self._starts[line - 1] + column)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """It closes itself, whatever HTML says."""

    def handle_endtag(self, tag: str) -> None:
        self.closed.add(tag)
        if self.open.get(tag):
            self.open[tag].pop()


def _unclosed(text: Text) -> Iterator[TemplateProblem]:
    """Where branches of the template may close what others open, only elements that none closes."""
    content, branches = _masked(text.content), "{%" in text.content
    found = _Elements(content)
    for name, places in found.open.items():
        for place in places if not branches or name not in found.closed else ():
            yield _at(text, place, f"<{name}> is not closed; write </{name}> where it ends")
