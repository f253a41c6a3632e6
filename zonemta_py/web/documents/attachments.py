"""Attachments that were uploaded, as JSON; and the files of a request, wherever their contents come from."""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.web.documents.models import Model


class AttachmentRow(Model):
    """An uploaded attachment. Times are UNIX time in ms."""

    name: str
    type: str
    """Media type."""
    size: int
    """Bytes."""
    ref: str
    """sha256: and the digest of its content: what requests may refer to it by, if not by its name."""
    uploaded_ms: int
    expires_ms: int
    """When it is removed, unless it is uploaded again."""


class Uploaded(AttachmentRow):
    """Content and name are on stable storage."""

    created: bool
    """False: there was one of that name, which this one has replaced."""


class AttachmentRows(Model):
    rows: list[AttachmentRow]
    """By name."""
    next: str | None
    """The `after` of the next page; null: this is the last one."""


class AttachmentGone(Model):
    removed: bool


class AttachedFile(NamedTuple):
    """A file as messages get it. content_id: of an image, else None. digest: of what was referred to, "" of what came
    with the request."""

    name: str
    type: str
    content: bytes
    content_id: str | None = None
    digest: str = ""
