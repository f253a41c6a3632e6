"""How large a template may be: bounds the cost of checking and compiling it."""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.merge import header
from zonemta_py.merge.problems import RenderRefused, TemplateProblem
from zonemta_py.merge.source import File, TemplateSource, Text

TEXT_CHARACTERS_MAX = 1024 * 1024
"""Of a text, HTML or MJML."""
FIELD_CHARACTERS_MAX = 10_000
"""Of a header field, before and after it is filled in."""
HEADERS_MAX = 100
FILES_MAX = 100
FILES_BYTES_MAX = 25 * 1024 * 1024


def excess(source: TemplateSource) -> Iterator[TemplateProblem]:
    """What exceeds the limits, and names and types of files that are not allowed in a header section. Raises
    TypeError."""
    bodies = [text for text in (source.text, source.html, source.mjml) if text is not None]
    heads = (source.subject, source.sender, source.reply_to, source.to_name, source.list_unsubscribe)
    fields = [text for text in (*heads, *(text for _, text in source.headers)) if text is not None]
    yield from _too_long(bodies, TEXT_CHARACTERS_MAX)
    yield from _too_long(fields, FIELD_CHARACTERS_MAX)
    files = (*source.images, *source.attachments)
    for what, count, most in (("headers", len(source.headers), HEADERS_MAX), ("files", len(files), FILES_MAX)):
        if count > most:
            yield TemplateProblem(source.file, 0, 0, f"there are {count:,} {what}; use {most} at most")
    size = sum(len(_whole(file).content) for file in files)
    if size > FILES_BYTES_MAX:
        yield TemplateProblem(
            source.file,
            0,
            0,
            f"its files have {size:,} bytes; use {FILES_BYTES_MAX:,} at most, and link to larger ones",
        )
    for file in files:
        try:
            header.media_type(file.kind)
            if file in source.images:
                header.content_id(file.name)
        except RenderRefused as refused:
            yield TemplateProblem(source.file, 0, 0, str(refused))


def _too_long(texts: list[Text], most: int) -> Iterator[TemplateProblem]:
    for text in texts:
        if not isinstance(text.content, str) or not isinstance(text.file, str):
            raise TypeError("its texts are not strings")
        if len(text.content) > most:
            sentence = f"it has {len(text.content):,} characters; use {most:,} at most"
            yield TemplateProblem(text.file, text.line, text.column, sentence)


def _whole(file: File) -> File:
    if not (isinstance(file.name, str) and isinstance(file.kind, str) and isinstance(file.content, bytes)):
        raise TypeError("its files are not names, types and bytes")
    return file
