"""What docs/NEWSLETTERS_FROM.md says of other programs' templates and exports is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.merge.compile import compile, problems
from zonemta_py.merge.source import TemplateSource
from zonemta_py.merge.suspects import suspects
from zonemta_py.pipeline.prepare.source.dialect import recipient_column

PAGE = (Path(__file__).parents[2] / "docs" / "NEWSLETTERS_FROM.md").read_text()
ROWS = [
    tuple(cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row)[1:3])
    for row in re.findall(r"^\| [^-].*\|$", PAGE, re.M)
]
PERSON = {
    "first_name": "Ada", "last_name": "Lovelace", "name": "Ada Lovelace", "city": "London", "points": "120",
    "day": "2026-12-24", "items": "apples;pears", "unsubscribe_url": "https://l.example/u",
    "preferences_url": "https://l.example/p",
}  # fmt: skip
OURS = sorted({span for _, here in ROWS for span in re.findall(r"`([^`]*(?:\{\{|\{%)[^`]*)`", here)})
THEIRS = sorted({span for there, _ in ROWS for span in re.findall(r"`([^`]+)`", there) if span[0] in "*%{"})
SAME = {"{{name}}"}
"""Of theirs: means the same here."""


@pytest.mark.parametrize("text", OURS)
def test_what_is_written_here_is_rendered(rendered: Callable[..., bytes], text: str) -> None:
    made = rendered(PERSON, text=text)
    assert made.rpartition(b"\r\n\r\n")[2].strip()


@pytest.mark.parametrize("tag", THEIRS)
def test_what_is_written_there_is_named_before_it_is_sent(source: Callable[..., TemplateSource], tag: str) -> None:
    """As a tag of another program, or as what Jinja2 cannot read; nothing goes out as it stands."""
    made = source(text=f"Hello {tag}!")
    found = problems(made, [*PERSON]) or list(suspects(made))
    assert bool(found) == (tag not in SAME)
    assert not found or re.search("another program|the list has no column|is not allowed", str(found[0]))
    if not found:
        assert b"Ada Lovelace" in compile(made).render(PERSON, "a@x.test", "may", "Fri, 01 May 2026 08:00:00 +0000")


@pytest.mark.parametrize(
    ("header", "column"),
    [
        (["Email Address", "First Name", "Last Name", "MEMBER_RATING", "OPTIN_TIME", "TAGS"], "Email Address"),
        (["uuid", "email", "name", "attributes", "status", "created_at", "updated_at"], "email"),
        (["address", "name", "subscribed", "vars"], "address"),
    ],
)
def test_exports_are_read_as_they_are(header: list[str], column: str) -> None:
    assert recipient_column(header) == column
