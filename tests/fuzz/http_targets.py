"""Targets of `targets.py` behind HTTP: templates, and bodies that are JSON."""

from __future__ import annotations

import re

from zonemta_py.merge.compile import compile as compile_template
from zonemta_py.merge.problems import RenderRefused, TemplateRefused
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.web.documents import batch, models, reading
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.compose import compose
from zonemta_py.web.documents.problem import RequestProblem

FIELDS = {"x": "x" * 2_000, "words": "a. <b> " * 300, "wide": "漢é" * 200}
_BROKEN = re.compile(rb"\r(?!\n)|(?<!\r)\n|\r\n\.\r\n|\0")


def template(data: bytes) -> None:
    """A stranger's template, in the sandbox, for one recipient."""
    text = Text(data.decode("utf-8", "replace"))
    try:
        made = compile_template(TemplateSource("t", text, Text("a@b.example"), html=text, prepared=True))
        message = made.render(FIELDS, "c@d.example", "e", "f")
    except (TemplateRefused, RenderRefused):
        return
    assert not _BROKEN.search(message), "a message has a line that ends it, or a bare line end"


def _file(one: models.Attachment) -> AttachedFile:
    """One that was uploaded has some content."""
    content = b"uploaded" if one.ref else reading.bytes_of(one.content or "", "")
    return AttachedFile(one.name or "uploaded", one.type or "application/octet-stream", content, one.content_id)


def json_body(data: bytes) -> None:
    """What the HTTP listener reads as JSON: a message, or a batch."""
    try:
        content = reading.parsed(data, reading.ELEMENTS_MAX)
        if "recipients" in content:
            batch.read(content, 1_000)
            return
        message = reading.checked(models.MessageDocument, content)
        files = [_file(one) for one in message.attachments]
        whole = compose(message, files) if message.raw is None else b""
    except (RequestProblem, RenderRefused):
        return
    assert not _BROKEN.search(whole), "a message has a line that ends it, or a bare line end"
