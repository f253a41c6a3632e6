"""What pages say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.reception.http.admin.requests import DOCUMENT
from zonemta_py.reception.http.dashboard import desk
from zonemta_py.reception.http.dashboard.words import percent

_REQUEST = re.compile(r"\b(GET|POST|PUT|DELETE) (/v1/[\w/{}-]+)")


def test_requests_that_pages_name_are_there() -> None:
    """Whoever is told to send one finds it; capitals stand for a name."""
    templates = Path(desk.__file__).parent / "templates"
    named = {one for path in templates.rglob("*.j2") for one in _REQUEST.findall(path.read_text())}
    known = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert named
    assert {(method, re.sub("[A-Z]+$", "{name}", path)) for method, path in named} <= known


def test_a_share_is_written_as_in_the_queues_own_sentences() -> None:
    """Both stand side by side."""
    assert percent(0.171) == "17.1%"
