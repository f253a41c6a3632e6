"""Erasure of one person from reports on campaigns: a page that names the person is removed, since its figures, plots
and files belong together; it can be made again from what is left.

Pages that wait to be put into their folder are removed, too, and made anew. Failures: OSError.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from zonemta_py.reports.shelf import ReportShelf

Named = Callable[[bytes], bool]
"""Whether a text names the person."""
_FILE = re.compile(rb"base64,([A-Za-z0-9+/]{8,}={0,2})")


def in_pages(shelf: ReportShelf, named: Named) -> list[str]:
    """The names of campaigns whose pages have been removed."""
    gone = list[str]()
    for row in shelf.rows():
        if (page := shelf.page(row)) is not None and _names(page, named):
            shelf.remove(row)
            shelf.write(replace(row, file="", made_ms=0))
            gone.append(row.name)
    for page in shelf.folder.glob("*.html"):
        if _names(page, named):
            page.unlink(missing_ok=True)
    return gone


def _names(page: Path, named: Named) -> bool:
    """In its text, in the JSON of its plots, or in the files that it carries."""
    content = page.read_bytes()
    if named(content) or named(html.unescape(content.decode("utf-8", "replace")).encode()):
        return True
    return any(named(_decoded(found)) for found in _FILE.findall(content))


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
