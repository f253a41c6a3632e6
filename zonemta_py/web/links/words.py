"""The pages' words in several languages, and which of them somebody reads (RFC 9110 12.5.4)."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

USUAL = "en"
_ACCEPT_MAX = 500


class PageTexts:
    """The texts of pages in one language. language: its tag."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language, self._texts = language, texts

    def __call__(self, name: str, **values: str) -> str:
        """That text with values in it. Raises KeyError."""
        return self._texts[name].format(**values)


@cache
def every() -> dict[str, PageTexts]:
    """By language."""
    tables = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
    return {language: PageTexts(language, texts) for language, texts in tables.items()}


def wanted(accepted: str) -> PageTexts:
    """accepted: an Accept-Language field. Of languages with the same weight the first; English if there is none."""
    rows: list[tuple[float, int, str]] = []
    for number, one in enumerate(accepted[:_ACCEPT_MAX].split(",")):
        tag, _, weight = one.strip().lower().partition(";q=")
        try:
            rows.append((-float(weight or 1), number, tag.partition("-")[0]))
        except ValueError:
            continue
    for negative, _, language in sorted(rows):
        if negative < 0 and language in every():
            return every()[language]
    return every()[USUAL]
