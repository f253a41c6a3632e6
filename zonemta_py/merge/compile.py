"""Makes a loaded template ready: `prepare`, once, where the tools are installed; then `compile`, wherever it is sent.

Both raise TemplateRefused with everything that is wrong, before the first message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from types import CodeType

from jinja2 import TemplateSyntaxError, meta

from zonemta_py.merge import header, review
from zonemta_py.merge.html.markup import Protected, has_style, inline_css, mjml_to_html, protect
from zonemta_py.merge.html.plain import plain_text
from zonemta_py.merge.language import TOKENS_MAX, Language
from zonemta_py.merge.limits import excess
from zonemta_py.merge.problems import RenderRefused, TemplateProblem, TemplateRefused
from zonemta_py.merge.render import Compiled, Field, Part
from zonemta_py.merge.schedule_fields import is_to_us, unclear
from zonemta_py.merge.source import LINKS, TemplateSource, Text
from zonemta_py.merge.suspects import suspects

PROBLEMS_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_OURS = re.compile(
    r"from|sender|to|cc|bcc|subject|date|message-id|reply-to|return-path|received|mime-version|content-.*"
    r"|dkim-signature|list-unsubscribe(-post)?|resent-.*|arc-.*",
    re.IGNORECASE,
)
_CID = re.compile(r"""["'(]cid:([^"')\s]{1,200})(?=["')])""")
_SRC = re.compile(r"""\bsrc\s{0,9}=\s{0,9}["']([^"'<>]{1,300})["']""", re.IGNORECASE)
_IMAGE = re.compile(r"<(?:mj-)?(?:image|img)\b", re.IGNORECASE)
_ELSEWHERE = re.compile(r"\s*(?:(?!file:)[a-z][a-z0-9+.-]{1,20}:|//|\{)", re.IGNORECASE)
"""An address with its scheme, or one made of fields."""
_ELEMENT_MAX = 2_000
_ANGLE = re.compile(r"(.*)<([^<>]*)>\s*", re.DOTALL)
_HTML, _PLAIN = Language(autoescape=True), Language(autoescape=False)


def problems(source: TemplateSource, columns: Collection[str] | None = None) -> list[TemplateProblem]:
    """The problems that can be found without the tools. columns: names of the fields that the list has, None if not
    known.

    PROBLEMS_MAX at most. Raises TypeError for what is not a source.
    """
    return list(islice(_problems(source, columns), PROBLEMS_MAX))


def _problems(source: TemplateSource, columns: Collection[str] | None) -> Iterator[TemplateProblem]:
    found = list(islice(excess(source), PROBLEMS_MAX))
    yield from found
    if found:
        return
    left = TOKENS_MAX
    for text, language in _texts(source):
        try:
            left -= language.tokens(text.content, left)
        except TemplateSyntaxError:
            left = 0 if left <= 0 else left  # told below
        if left <= 0:
            yield _at(text, f"the template has more than {TOKENS_MAX:,} Jinja2 tokens; shorten it")
            return
        yield from review.review(text, language, columns)
    for name, text in source.headers:
        yield from _header_name(name, text)
    if not (source.text or source.html or source.mjml):
        yield TemplateProblem(source.file, 0, 0, "there is neither text nor html nor mjml; give one of them")
    yield from _missing_images(source)


def fields(source: TemplateSource) -> set[str]:
    """Names that the template may look up; what is in no column of the list has a default. Raises TemplateRefused."""
    found = problems(source)
    if found:
        raise TemplateRefused(found)
    texts = (language.parse(text.content) for text, language in _texts(source))
    return {name for tree in texts for name in meta.find_undeclared_variables(tree)}


def wanted(source: TemplateSource) -> dict[str, str]:
    """Names that must be columns of the list → where each is asked for first. source: a good one."""
    found: dict[str, str] = {}
    for text, language in _texts(source):
        for name, line, column in review.wanted(text, language):
            found.setdefault(name, f"{text.file}:{line}:{column}")
    return found


def _texts(source: TemplateSource) -> Iterator[tuple[Text, Language]]:
    heads = (source.subject, source.sender, source.reply_to, source.to_name, source.list_unsubscribe, source.text)
    yield from ((text, _PLAIN) for text in heads if text is not None)
    yield from ((text, _PLAIN) for name, text in source.headers if not is_to_us(name))
    yield from ((text, _HTML) for text in (source.html, source.mjml) if text is not None)


def _header_name(name: str, text: Text) -> list[TemplateProblem]:
    if not _NAME.fullmatch(name):
        return [_at(text, f"{name[:80]!a} is not the name of a header field; use letters, digits and -")]
    if _OURS.fullmatch(name):
        return [_at(text, f"the header {name} is made from the template's own keys; remove it")]
    return []


def _missing_images(source: TemplateSource) -> Iterator[TemplateProblem]:
    text = source.html or source.mjml
    if text is None:
        return
    names = {image.name for image in source.images}
    for found in _CID.finditer(text.content):
        if found[1] not in names:
            sentence = f"there is no inline image {found[1]!r}; name it under images"
            yield TemplateProblem(text.file, *text.place(found.start(1)), sentence)


def _local_images(source: TemplateSource) -> Iterator[TemplateProblem]:
    """Images that only the template's author can see."""
    text = source.html or source.mjml
    for found in _SRC.finditer(text.content) if text is not None else ():
        opening = text.content.rfind("<", max(0, found.start() - _ELEMENT_MAX), found.start()) if text else -1
        if text is None or opening < 0 or not _IMAGE.match(text.content, opening) or _ELSEWHERE.match(found[1]):
            continue
        sentence = f"no recipient can see the image {found[1][:80]!r}; name it under images and write cid:NAME, or its https://"
        yield TemplateProblem(text.file, *text.place(found.start(1)), sentence)


def _at(text: Text, sentence: str) -> TemplateProblem:
    return TemplateProblem(text.file, text.line, text.column, sentence)


def prepare(source: TemplateSource, columns: Collection[str] | None = None) -> TemplateSource:
    """MJML compiled, CSS inlined, text made from HTML where there is none. Raises TemplateRefused, ToolMissing."""
    found = [*problems(source, columns), *islice((*unclear(source), *_local_images(source)), PROBLEMS_MAX)]
    if found:
        raise TemplateRefused(found)
    markup = source.mjml or source.html
    protected = protect(markup) if markup is not None else None
    if found := [*islice(suspects(source), PROBLEMS_MAX)]:
        raise TemplateRefused(found)
    if markup is None or protected is None:
        return replace(source, prepared=True)
    html = mjml_to_html(protected.markup, markup) if source.mjml else protected.markup
    if has_style(html):
        html = inline_css(html)
    try:
        final = replace(markup, content=protected.restore(html)) if html != protected.markup else markup
    except LookupError as lost:
        where = markup.place(markup.content.find(lost.args[0]))
        sentence = f"{lost.args[0][:60]} is not allowed here in MJML or beside a style sheet; move it between elements"
        raise TemplateRefused([TemplateProblem(markup.file, *where, sentence)]) from None
    text = source.text or _made_text(html, protected, markup)
    return replace(source, html=final, mjml=None, text=text, prepared=True)


def _made_text(html: str, protected: Protected, markup: Text) -> Text:
    plain = plain_text(html, protected.pattern)
    return Text(protected.put_back(plain), f"text made from {markup.file}")


def compile(source: TemplateSource) -> Compiled:
    """source: prepared (otherwise this does it, which needs the tools). Raises TemplateRefused, ToolMissing."""
    source = source if source.prepared else prepare(source)
    found = problems(source)
    if found:
        raise TemplateRefused(found)
    try:
        return _compiled(source)
    except RenderRefused as refused:  # what all recipients share
        raise TemplateRefused([TemplateProblem(source.file, 0, 0, str(refused))]) from None


def _compiled(source: TemplateSource) -> Compiled:
    return Compiled(
        sender=_mailbox("From", source.sender),
        reply_to=_mailbox("Reply-To", source.reply_to) if source.reply_to else None,
        to_name=_field("To", source.to_name) if source.to_name else None,
        subject=_field("Subject", source.subject),
        list_unsubscribe=_field("List-Unsubscribe", source.list_unsubscribe) if source.list_unsubscribe else None,
        one_click=source.one_click,
        headers=[_field(name, text) for name, text in source.headers if not is_to_us(name)],
        text=_part("plain", source.text, _PLAIN),
        html=_part("html", source.html, _HTML),
        images=source.images,
        attachments=source.attachments,
        links=_links(source),
    )


def _links(source: TemplateSource) -> frozenset[str]:
    """Names of links that it prints."""
    trees = (language.parse(text.content) for text, language in _texts(source) if "_url" in text.content)
    return frozenset(name for tree in trees for name in meta.find_undeclared_variables(tree) if name in LINKS)


def _mailbox(name: str, text: Text) -> tuple[Field | None, Field]:
    """Name and address are separated in the template: no field can move the < between them."""
    found = _ANGLE.fullmatch(text.content)
    display, address = (found[1].strip().strip('"'), found[2]) if found else ("", text.content.strip())
    parsed = _field(name, replace(text, content=address))
    if parsed.constant is not None:
        try:
            header.addr_spec(name, parsed.constant)
        except ValueError as refused:
            raise TemplateRefused([_at(text, str(refused))]) from None
    return _field(name, replace(text, content=display)) if display else None, parsed


def _field(name: str, text: Text) -> Field:
    content = text.content.strip()
    if "{" not in content:
        return Field(name, None, content)
    return Field(name, _PLAIN.template(_code(replace(text, content=content), _PLAIN)), None)


def _part(kind: str, text: Text | None, language: Language) -> Part | None:
    if text is None:
        return None
    code = _code(text, language)
    return Part(kind, language.template(code), list(_strings(code)))


def _code(text: Text, language: Language) -> CodeType:
    try:
        return language.code(language.parse(text.content))
    except (SyntaxError, RecursionError, MemoryError) as error:  # Python's own limits
        raise TemplateRefused([_at(text, f"the template is nested too deeply ({error}); reduce its nesting")]) from None


def _strings(code: CodeType) -> Iterator[str]:
    """The pieces of a template that are the same in every message."""
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _strings(constant)
