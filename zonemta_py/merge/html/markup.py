"""Jinja2 within HTML and MJML: replaced by placeholders while other programs process the markup, restored after.

An expression becomes a word, a tag between elements becomes a comment (a word would be moved out of tables). Where an
expression stands in an element but not in quotes, no escaping makes it safe, and it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser

from zonemta_py.merge.problems import TemplateProblem, TemplateRefused, ToolMissing
from zonemta_py.merge.source import Text


def mjml(markup: str) -> str:
    """MJML as HTML. Raises ValueError with the compiler's words, ToolMissing."""
    try:
        from mjml import mjml2html
    except ImportError:
        raise _missing("MJML") from None
    # No fonts from elsewhere: a reader's program must not ask a third party.
    return str(mjml2html(markup, fonts={}))


def inline_css(markup: str) -> str:
    """Style sheets as style attributes; what cannot be one (@media, :hover) stays. Raises ToolMissing."""
    try:
        from css_inline import CSSInliner
    except ImportError:
        raise _missing("CSS") from None
    inliner = CSSInliner(
        keep_at_rules=True, keep_style_tags=True, remove_inlined_selectors=True, load_remote_stylesheets=False
    )
    return str(inliner.inline(markup))


def _missing(what: str) -> ToolMissing:
    return ToolMissing(f"a template with {what} needs the extra campaign; run: pip install 'zonemta-py[campaign]'")


_CHUNK = re.compile(
    r"""\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*[-+]?%\}"""
    r"""|\{\#.*?\#\}|\{([{%])(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?!\1\}|[}]\})[^"'])*?(?:\}\}|%\})""",
    re.DOTALL,
)
_ELEMENT = re.compile(
    r"<!--(?:.*?-->|.*\Z)"
    r"|<(?P<raw>style|script|title|textarea|mj-style|mj-title|mj-preview)\b[^>]*(?:\Z|>(?:.*?</(?P=raw)\s*>|.*\Z))"
    r"""|<[a-zA-Z/!](?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^'">])*+(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE,
)
"""What is never closed extends to the end, as in a browser; so each character is read once."""
_TAG = re.compile(
    r"<!--(?:.*?-->|.*\Z)"
    r"|<(?P<raw>style|script|title|textarea)\b[^>]*(?:\Z|>(?:.*?</(?P=raw)\s*>|.*\Z))"
    r"""|<[a-zA-Z/!?](?:=\s*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))|[^>])*+(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE,
)
"""The same as parsers see it, to which a quote means something behind = only."""
_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")
_OPENING = re.compile(r"\{([{%#])")
_STYLE = re.compile(r"<(?:mj-)?style\b", re.IGNORECASE)
_COMPONENTS = frozenset(
    (
        "mjml",
        "mj-head",
        "mj-body",
        "mj-include",
        "mj-attributes",
        "mj-all",
        "mj-class",
        "mj-breakpoint",
        "mj-font",
        "mj-html-attributes",
        "mj-html-attribute",
        "mj-selector",
        "mj-preview",
        "mj-style",
        "mj-title",
        "mj-accordion",
        "mj-accordion-element",
        "mj-accordion-title",
        "mj-accordion-text",
        "mj-button",
        "mj-carousel",
        "mj-carousel-image",
        "mj-column",
        "mj-divider",
        "mj-group",
        "mj-hero",
        "mj-image",
        "mj-navbar",
        "mj-navbar-link",
        "mj-raw",
        "mj-section",
        "mj-social",
        "mj-social-element",
        "mj-spacer",
        "mj-table",
        "mj-text",
        "mj-wrapper",
    )
)


@dataclass(frozen=True, slots=True)
class Protected:
    """markup: with words and comments in the place of Jinja2. chunks: word → what it stands for."""

    markup: str
    chunks: dict[str, str]
    pattern: re.Pattern[str]

    def restore(self, markup: str) -> str:
        """Raises LookupError if a tag was lost, doubled or moved on the way: the template would mean something else."""
        tags = [word for word in self.pattern.findall(self.markup) if self._is_tag(word)]
        left = [word for word in self.pattern.findall(markup) if self._is_tag(word)]
        if left != tags:
            astray = next((word for word in tags if left.count(word) != 1), tags[0])
            raise LookupError(self.chunks[astray])
        return self.put_back(_OPENING.sub(r"{ \1", markup))  # CSS may say "{#" too

    def put_back(self, text: str) -> str:
        return self.pattern.sub(lambda found: self.chunks[found["word"]], text)

    def _is_tag(self, word: str | tuple[str, ...]) -> bool:
        return not self.chunks[word if isinstance(word, str) else word[0]].startswith("{{")


class Placeholders:
    """Jinja2 in the texts of one template as words, while somebody looks at them who does not know it. texts: all of
    them; no word is in any."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._prefix, lower = "zq", [text.lower() for text in texts]
        while any(self._prefix in text for text in lower):
            self._prefix += "q"
        self._chunks: dict[str, str] = {}
        self.pattern = re.compile(rf"{self._prefix}\d+z")

    def hide(self, text: str) -> str:
        """Comments are left out: they print nothing."""
        return _CHUNK.sub(self._put_aside, text)

    def _put_aside(self, found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return ""
        word = f"{self._prefix}{len(self._chunks)}z"
        self._chunks[word] = found[0]
        return word

    def show(self, hidden: str, changed: str) -> str:
        """Of a text that was `hidden` and has been changed: with its Jinja2, and what was added printed as it stands.

        Raises LookupError if a tag was lost, doubled or moved: the template would mean something else.
        """
        tags, left = self._tags(hidden), self._tags(changed)
        if left != tags:
            raise LookupError(self._chunks[next((one for one in tags if left.count(one) != 1), (tags or left)[0])])
        text = _OPENING.sub(lambda found: f"{{{{ '{found[0]}' }}}}", changed)
        return self.pattern.sub(lambda found: self._chunks.get(found[0], found[0]), text)

    def _tags(self, text: str) -> list[str]:
        return [one for one in self.pattern.findall(text) if not self._chunks.get(one, "{{").startswith("{{")]


def protect(text: Text) -> Protected:
    """text: good Jinja2. Raises TemplateRefused for Jinja2 where escaping cannot make it safe, and for a tag or comment
    that never ends."""
    content = text.content
    _check_ends(text)
    prefix = "zq"
    while prefix in content.lower():
        prefix += "q"
    chunks: dict[str, str] = {}
    places: dict[str, int] = {}

    def put_aside(found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return ""
        word = f"{prefix}{len(chunks)}z"
        chunks[word], places[word] = found[0], found.start()
        return word

    words = re.compile(rf"{prefix}\d+z")
    markup = _CHUNK.sub(put_aside, content)
    parts, end, problems = [], 0, []
    for element in _ELEMENT.finditer(markup):
        parts += [_commented(markup[end : element.start()], words, chunks), element[0]]
        end = element.end()
        for word, sentence in _misplaced(element, words, chunks):
            problems.append(TemplateProblem(text.file, *text.place(places[word]), sentence))
    if problems:
        raise TemplateRefused(problems)
    parts.append(_commented(markup[end:], words, chunks))
    pattern = re.compile(rf"(?:<!--)?(?P<word>{prefix}\d+z)(?:-->)?")
    return Protected("".join(parts), chunks, pattern)


def _check_ends(text: Text) -> None:
    """Python's parser takes each < of a tag that never ends for another beginning, and reads to the end from there: its
    time grows with the square of the text. Raises TemplateRefused."""
    for found in _TAG.finditer(_blanked(text.content)):
        if not found[0].endswith("-->" if found[0].startswith("<!--") else ">"):
            what, end = ("comment", "-->") if found[0].startswith("<!--") else ("tag", ">")
            if found["raw"] and ">" in found[0]:
                what, end = "element", f"</{found['raw'].lower()}>"
            place = text.place(found.start())
            sentence = f"the {what} that begins with {found[0][:20]!r} never ends; write {end} behind it"
            raise TemplateRefused([TemplateProblem(text.file, *place, sentence)])


def _blanked(markup: str) -> str:
    """Jinja2 may hold < and quotes: blanked, so that lines and columns stay."""
    return _CHUNK.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), markup)


def _commented(text: str, words: re.Pattern[str], chunks: dict[str, str]) -> str:
    return words.sub(lambda found: f"<!--{found[0]}-->" if chunks[found[0]][1] == "%" else found[0], text)


def _misplaced(element: re.Match[str], words: re.Pattern[str], chunks: dict[str, str]) -> list[tuple[str, str]]:
    raw = (element["raw"] or "").lower()
    if element[0].startswith("<!--") or raw in ("title", "textarea", "mj-title", "mj-preview"):
        return []
    if raw == "script":
        return [(word, "a script cannot contain fields, because they cannot be escaped safely there; remove it")
                for word in words.findall(element[0])]  # fmt: skip
    if raw:
        return [(word, "a style sheet cannot depend on fields; write style=\"…\" on the element")
                for word in words.findall(element[0])]  # fmt: skip
    bare = words.findall(_QUOTED.sub("", element[0]))
    return [(word, f'{chunks[word][:40]} is used in a tag outside quotes; write name="{{{{ … }}}}"')
            for word in bare]  # fmt: skip


def mjml_to_html(protected: str, text: Text) -> str:
    """Raises TemplateRefused, ToolMissing."""

    problems = _Components(text).problems_of(text.content)
    if problems:
        raise TemplateRefused(problems)
    try:
        return mjml(protected)
    except ValueError as error:
        raise TemplateRefused(
            [
                TemplateProblem(
                    text.file, text.line, text.column, f"the MJML does not compile: {error}; correct its elements"
                )
            ]
        ) from None


class _Components(HTMLParser):
    """MJML compilers take unknown elements for HTML; the author means a component."""

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text
        self._open: list[tuple[str, int, int]] = []
        self._problems: list[TemplateProblem] = []

    def problems_of(self, markup: str) -> list[TemplateProblem]:
        self.feed(_blanked(markup))
        self.close()
        for name, line, column in self._open:
            self._say(f"<{name}> is never closed; write </{name}>", line, column)
        return self._problems

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if not tag.startswith("mj"):
            return
        if tag not in _COMPONENTS:
            self._say(f"MJML has no <{tag}>; see the list of components at https://documentation.mjml.io")
        elif tag == "mj-include":
            self._say("a template cannot include files; replace <mj-include> by the text itself")
        self._open.append((tag, *self.getpos()))

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.handle_starttag(tag, attrs)
        if tag.startswith("mj"):
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not tag.startswith("mj"):
            return
        if self._open and self._open[-1][0] == tag:
            self._open.pop()
        else:
            last = f"close <{self._open[-1][0]}> of line {self._open[-1][1]} first" if self._open else "nothing is open"
            self._say(f"</{tag}> closes nothing here; {last}")
            while any(name == tag for name, _, _ in self._open) and self._open.pop()[0] != tag:
                pass

    def _say(self, sentence: str, line: int = 0, column: int = 0) -> None:
        if not line:
            line, column = self.getpos()
        shift = self._text.column - 1 if line == 1 else 0
        self._problems.append(
            TemplateProblem(self._text.file, self._text.line + line - 1, column + 1 + shift, sentence)
        )


def has_style(markup: str) -> bool:
    return _STYLE.search(markup) is not None
