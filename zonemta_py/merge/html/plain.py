"""Plain text of an HTML mail: blocks become lines, links show where they lead."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "div",
        "dl",
        "dt",
        "dd",
        "fieldset",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "tr",
        "ul",
    ]
)
_PARAGRAPHS = frozenset(["blockquote", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"])
_UNSEEN = frozenset(["head", "script", "style", "title", "template"])
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\r\n\f]+")


def plain_text(markup: str, comment: re.Pattern[str]) -> str:
    """comment: comments that match are kept, without <!-- and -->."""
    reader = _Reader(comment)
    reader.feed(markup)
    reader.close()
    text = "\n".join(line.strip(" ") for line in "".join(reader.pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class _Reader(HTMLParser):
    def __init__(self, comment: re.Pattern[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._comment = comment
        self._links: list[tuple[str, int]] = []
        self._unseen: list[str] = []  # open elements, from the first invisible one
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if self._unseen or tag in _UNSEEN or _HIDDEN.search(values.get("style", "")):
            if tag not in _VOID:
                self._unseen.append(tag)
            return
        self._break(tag)
        if tag == "li":
            self.pieces.append("* ")
        elif tag == "hr":
            self.pieces.append("-" * 40 + "\n")
        elif tag == "img":
            self.pieces.append(values.get("alt", ""))
        elif tag in ("td", "th") and self.pieces and not self.pieces[-1].endswith(("\n", " ")):
            self.pieces.append(" ")
        elif tag == "a":
            self._links.append((values.get("href", ""), len(self.pieces)))

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag in self._unseen:
                del self._unseen[len(self._unseen) - 1 - self._unseen[::-1].index(tag) :]
            return
        if tag == "a" and self._links:
            self._show_link(*self._links.pop())
        self._break(tag)

    def _show_link(self, address: str, start: int) -> None:
        shown = "".join(self.pieces[start:]).strip()
        if address and not address.startswith("#") and address not in (shown, f"mailto:{shown}"):
            self.pieces.append(f" <{address}>" if shown else address)

    def _break(self, tag: str) -> None:
        if tag == "br":
            self.pieces.append("\n")
        elif tag in _BLOCKS and self.pieces:
            tail = "".join(self.pieces[-4:])
            wanted = 2 if tag in _PARAGRAPHS else 1
            have = len(tail) - len(tail.rstrip("\n"))
            self.pieces.append("\n" * max(0, wanted - have))

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        text = _SPACES.sub(" ", data)
        if not self.pieces or self.pieces[-1].endswith(("\n", " ")):
            text = text.lstrip(" ")
        if text:
            self.pieces.append(text)

    def handle_comment(self, data: str) -> None:
        if not self._unseen and self._comment.fullmatch(data):
            self.pieces.append(data)
